"""The one door: the types through which learners and privatizers meet.

The only interaction loop there is::

    session = privatizer.start(learner.query(spec), learner.schedule(spec), randomness)
    state = learner.begin(spec, ties)
    while users_left:
        plan, state = learner.plan(state, session.release(), session.answer)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            session.submit(encoder(rollout(mdp, plan.policy, environment), plan, coins))

A :class:`Privatizer` is a frozen value without shapes or data; ``start`` binds everything
that enters the noise scale; a :class:`Plan` is all that is public before people act; a
:class:`Release` is all that a learner ever sees of people. What passes at that door (plans, reports,
releases) is defined in :mod:`discreet.core.releases`, which knows no learner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.call_protocols import Encoder
from discreet.core.layout import Layout
from discreet.core.protocols import Coins, NoiseDistribution, Query
from discreet.core.releases import (
    Estimate,
    Floats,
    Ints,
    Measurement,
    Message,
    Norm,
    Plan,
    Release,
    Schedule,
    Trust,
)
from discreet.core.short_repr import brief
from discreet.mechanisms.features import Features, MixtureFeatures, fitting_features
from discreet.mechanisms.query_queue import Response

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.core.rng import Randomness

__all__ = [
    "Ask", "Coins", "Encoder", "Estimate", "Floats", "Ints", "Learner", "Measurement", "Mechanism", "Message",
    "NoiseDistribution", "Norm", "Plan", "Privatizer", "Query", "Release", "Response", "ReturnBounds", "Schedule",
    "Session", "ProblemSpec", "StepSums", "StepwiseRelease", "Budget", "Trust",
]  # fmt: skip


def probabilities(name: str, value: NDArray[np.float64], tolerance: float = 1e-9) -> NDArray[np.float64]:
    """Check that the last axis holds distributions; return them unchanged."""
    if (value < 0).any():
        raise ValueError(f"{name} holds {checks.said(value.min())}: probabilities must be at least 0")
    sums = value.sum(axis=-1)
    worst = int(np.abs(sums - 1).argmax()) if sums.size else 0
    if sums.size and abs(sums.flat[worst] - 1) > tolerance:
        where = tuple(int(i) for i in np.unravel_index(worst, sums.shape)) if sums.shape else ()
        raise ValueError(f"{name}{list(where) or ''} sums to {checks.said(sums.flat[worst])}: must sum to 1")
    return value


# ------------------------------------------------------------- public, from the learner's side
@dataclass(frozen=True)
class Budget:
    """A privacy budget as a privatizer states it (``privatizer.budget``): public, so that learners may choose
    by it.

    trust : who sees raw data; then epsilon (with delta; 0 is pure), or rho, or mu; none of them for no
    privacy.
    reports : do a trusted server's counts come as randomized reports, which hold no counts pooled over steps?
    True: always; False: never; None: where the privatizer expects less noise of them, if ever.
    """

    trust: Trust
    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    mu: float | None = None
    reports: bool | None = None

    @property
    def private(self) -> bool:
        """False for a baseline without privacy."""
        return self.trust != "none"

    @property
    def pure(self) -> bool:
        """True for epsilon with delta = 0."""
        return self.epsilon is not None and self.delta == 0.0


@dataclass(frozen=True)
class ReturnBounds:
    """What is public about an episode's return: how it is added up, in which units, and between which bounds.

    low, high : the range of one step's reward in the user's units, which [0, 1] stands for.
    terminal : absorbing states: an episode that comes there is over, and pays nothing more.
    outcomes : rewards on arrival, state to reward in the user's units, where they are known by rule; then
        the records' own rewards are not read. The states must be terminal.
    least, most : bounds of an episode's return, in the user's units; a return beyond them counts as the
        bound. None: what the rest implies (H low and H high, or the smallest and the largest outcome).
    censored : a terminal state of episodes whose outcome is not known. It counts as the middle of the bounds
        (``outcomes`` then holds that), and whoever judges a policy tries both bounds. Needs outcomes.

    Raises ``ValueError`` if a number is not finite, ``high`` is not above ``low``, all outcomes are 0, a
    state with an outcome or ``censored`` is not terminal, or ``censored`` has an outcome.
    """

    low: float = 0.0
    high: float = 1.0
    terminal: tuple[int, ...] = ()
    outcomes: Mapping[int, float] | None = None
    least: float | None = None
    most: float | None = None
    censored: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("low", "high"):
            put(self, name, checks.real(name, getattr(self, name)))
        if not self.low < self.high:
            raise ValueError(f"high = {self.high!r}: must be above low = {self.low!r}")
        put(self, "terminal", tuple(checks.integer("terminal", state, 0) for state in self.terminal))
        if self.outcomes is not None:
            found = {
                checks.integer("outcomes", state, 0): checks.real(f"outcomes[{state}]", reward)
                for state, reward in self.outcomes.items()
            }
            if not found or not set(found) <= set(self.terminal):
                raise ValueError(f"outcomes = {checks.said(found)}: must be of terminal states")
            if len({0.0, *found.values()}) == 1:
                raise ValueError(f"outcomes = {checks.said(found)}: must have one that is not 0")
            put(self, "outcomes", found)
        for name in ("least", "most"):
            if getattr(self, name) is not None:
                put(self, name, checks.real(name, getattr(self, name)))
        if self.censored is not None:
            self._put_middle(checks.integer("censored", self.censored, 0))

    def _put_middle(self, censored: int) -> None:
        """Let a censored end count as the middle of the bounds."""
        if self.outcomes is None:
            raise ValueError(
                f"censored = {censored}: must be given with outcomes; what those who left would have earned "
                "is bounded only where ends alone pay, by rule"
            )
        if censored not in self.terminal:
            raise ValueError(f"censored = {censored}: must be a terminal state")
        least, most = self.bounds(1)
        middle = 0.5 * least + 0.5 * most
        if self.outcomes.get(censored, middle) != middle:
            raise ValueError(f"outcomes[{censored}]: must be left out, the outcome of a censored end is open")
        object.__setattr__(self, "outcomes", {**self.outcomes, censored: middle})

    def bounds(self, horizon: int) -> tuple[float, float]:
        """(least, most) return of an episode of at most ``horizon`` steps. ``ValueError`` if there is none
        between.
        """
        if self.outcomes is not None:
            implied = min(0.0, *self.outcomes.values()), max(0.0, *self.outcomes.values())
        else:
            implied = horizon * self.low, horizon * self.high
        least = implied[0] if self.least is None else self.least
        most = implied[1] if self.most is None else self.most
        if not least < most:
            raise ValueError(f"most = {most!r}: must be above least = {least!r}")
        return least, most


class Sized:
    """Whatever has a layout has its sizes."""

    layout: Layout

    @property
    def states(self) -> int:
        """S."""
        return self.layout.states

    @property
    def actions(self) -> int:
        """A."""
        return self.layout.actions

    @property
    def horizon(self) -> int:
        """H."""
        return self.layout.horizon


@dataclass(frozen=True, eq=False)
class ProblemSpec(Sized):
    """What is publicly declared about the problem before anybody acts.

    layout : sizes and the mask of admissible actions.
    users : K, or None when not known.
    stationary : True permits a learner to pool steps (the MDP is declared the same at every step).
    known_rewards : (H, S, A) mean rewards in [0, 1] if they are public, else None.
    budget : the privatizer's (``privatizer.budget``), or None when not known. Privacy never depends on it:
        noise is set by the privatizer alone.
    features : the public feature map in which the world is linear, or None (tabular).
    initial : (S,) law of the first state if it is public, else None.
    returns : units, bounds and rules of an episode's return; None: rewards in [0, 1] are added up.
    groups : number of public groups of users, at least 1. Decision points count users by group at the start
        of an episode (:mod:`discreet.learners.ope.first_visit_query`); other learners take no notice.

    Raises ``ValueError`` where an array has another shape or a value outside its range, where ``features``
    are of other sizes than ``layout``, or ``initial`` does not add up to 1.
    """

    __repr__ = brief

    layout: Layout
    users: int | None = None
    stationary: bool = False
    known_rewards: Floats | None = None
    budget: Budget | None = None
    features: Features | MixtureFeatures | None = None
    initial: Floats | None = None
    returns: ReturnBounds | None = None
    groups: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", checks.integer("groups", self.groups, 1))
        if self.returns is not None and not isinstance(self.returns, ReturnBounds):
            raise ValueError(f"returns = {checks.said(self.returns)}: must be Returns or None")
        if self.users is not None:
            object.__setattr__(self, "users", checks.integer("users", self.users, 1))
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise ValueError(f"budget = {self.budget!r}: must be privatizer.budget (a Budget) or None")
        if self.known_rewards is not None:
            shape = (self.layout.horizon, self.layout.states, self.layout.actions)
            rewards = checks.floats("known_rewards", self.known_rewards, shape)
            if rewards.min() < 0 or rewards.max() > 1:
                raise ValueError("known_rewards: every entry must be in [0, 1]")
            object.__setattr__(self, "known_rewards", rewards)
        fitting_features(self.features, self.layout)
        if self.initial is not None:
            initial = checks.floats("initial", self.initial, (self.layout.states,))
            object.__setattr__(self, "initial", probabilities("initial", initial))


@dataclass(frozen=True, eq=False)
class StepSums:
    """Noisy sums of one step of a one-shot release, by admissible pairs (the R rows of the layout)."""

    __repr__ = brief

    step: int
    transitions: Floats  # (R, S)
    visits: Floats | None = None  # (R,); None: not released
    rewards: Floats | None = None  # (R,), of r - 1/2; None: not released


class StepwiseRelease(Protocol):
    """A one-shot release of counts that is read step by step, in any order and again: in memory or a file.

    All tables of a large state space at once may not fit in memory; those of one step do.
    """

    @property
    def layout(self) -> Layout: ...
    @property
    def users(self) -> int: ...
    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """By the names of the query's families; their bounds are over the cells of all steps."""
        ...

    @property
    def guarantee(self) -> Guarantee: ...
    def step(self, h: int) -> StepSums:
        """The sums of step h in [0, H). Raises ``ValueError`` outside of it."""
        ...


# ------------------------------------------------- the privatizer: frozen options, then a session
@runtime_checkable
class Session(Protocol):
    """Stateful, in the trusted core. Order: release, begin, submit x plan.users, release, ...

    Calls out of order raise ``RuntimeError``, broken messages and plans ``ValueError``; neither changes a
    sum.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Of everything that this session ever releases."""
        ...

    def begin(self, plan: Plan) -> Encoder:
        """Open a plan for ``plan.users`` people; what it returns makes a trajectory a message."""
        ...

    def submit(self, message: Message) -> None:
        """Take one person's message of the open plan; each counts once."""
        ...

    def absent(self, users: int = 1) -> None:
        """So many ``users`` of the open plan will not come."""
        ...

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Take what so many simulated people add up to (simulations by batches only).

        sums : by family, of the shapes of the query's tables. users : how many people they are of.
        """
        ...

    def release(self) -> Release:
        """The next release, when all users of the last plan have come or are absent."""
        ...

    def answer(self, question: Response) -> Estimate:
        """The noisy response to ``question`` of the stored users, where the query declared responses."""
        ...

    def close(self) -> None:
        """The end: what is held of people is forgotten."""
        ...


class Mechanism(Protocol):
    """What is done to people, fixed before data: a frozen value that computes what it costs them."""

    @property
    def query(self) -> Any:
        """What is summed."""
        ...

    @property
    def schedule(self) -> Schedule:
        """When it is released."""
        ...

    @property
    def trust(self) -> Trust:
        """Who sees raw data: "none", "central", "joint", "shuffle" or "local"."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What it costs, computed from its own noise."""
        ...

    def laws_at(self, n: int) -> Mapping[str, NoiseDistribution]:
        """The noise law of every family in the release after n users, a scheduled time."""
        ...


@runtime_checkable
class Privatizer(Protocol):
    """Frozen and reusable: ``dr.Central(epsilon=1.0)``. Knows no shapes and holds no data."""

    @property
    def trust(self) -> Trust:
        """Who sees raw data."""
        ...

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Bind all that enters the noise scale; ``ValueError`` where the budget cannot be met.

        query : a learner's, what is summed. schedule : a learner's, when it is released. randomness :
        :class:`Seeded` for simulations or :class:`Secure`, which the guarantee says.
        """
        ...

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> Session:
        """A fresh session of that mechanism; query, schedule, randomness : as for :meth:`mechanism`."""
        ...


Ask = Callable[[Response], Estimate]


@runtime_checkable
class Learner(Protocol):
    """Frozen options, then pure state passing: no reference to data or to a session's inside.

    Every method raises ``ValueError`` where the learner and the problem do not fit.
    """

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """When it wants releases: public, fixed before data. spec : what is declared about the problem."""
        ...

    def query(self, spec: ProblemSpec) -> Any:
        """Which sums it needs of the problem in ``spec``: a :class:`CountQuery`, or of features."""
        ...

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> Any:
        """Its first state for ``spec``. ties : (2,) uint64, the key of the public coins that break ties."""
        ...

    def plan(self, state: Any, release: Release, ask: Ask) -> tuple[Plan, Any]:
        """The next users' plan, and the new state.

        state : of :meth:`begin` or the last plan; it is left as it was. release : the newest one, or the same
        again while its users are not all planned for. ask : answers a planned :class:`Response`
        (``session.answer``).
        """
        ...
