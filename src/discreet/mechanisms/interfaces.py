"""Interface between learners and privatizers: the types and protocols that both use.

There is one interaction loop::

    session = privatizer.start(learner.query(spec), learner.schedule(spec), randomness)
    state = learner.begin(spec, ties)

    while users_left:
        plan, state = learner.plan(state, session.release(), session.answer)
        encoder = session.begin(plan)

        for _ in range(plan.users):
            session.submit(encoder(rollout(mdp, plan.policy, environment), plan, coins))

A :class:`Privatizer` is a frozen object without shapes or data. The method ``start`` fixes everything that
determines the noise scale. A :class:`Plan` contains everything that is public before users act. A
:class:`Release` contains everything that a learner ever sees about users. Plans, messages and releases are
defined in :mod:`discreet.core.releases`, which does not depend on learners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.call_protocols import Encoder
from discreet.core.layout import Layout
from discreet.core.protocols import Coins, NoiseDistribution
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
from discreet.device.feature_map import FeatureMap
from discreet.mechanisms.features import Features, MixtureFeatures, fitting_features
from discreet.mechanisms.query_queue import Response

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.core.rng import Randomness

__all__ = [
    "Ask", "Coins", "Encoder", "Estimate", "Floats", "Ints", "Learner", "Measurement", "Mechanism", "Message",
    "MixedRelease", "NoiseDistribution", "Norm", "Plan", "Privatizer", "Release", "Response", "ReturnBounds",
    "Schedule", "Session", "ProblemSpec", "StepSums", "StepwiseRelease", "Budget", "Trust",
    "followed_release",
]  # fmt: skip


def probabilities(name: str, value: NDArray[np.float64], tolerance: float = 1e-9) -> NDArray[np.float64]:
    """Check that the last axis of ``value`` contains probability distributions, and return ``value``.

    Raises ``ValueError``, with ``name`` in the message, if an entry is negative or a sum differs from 1 by
    more than ``tolerance``.
    """
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
    """Privacy budget of a privatizer (``privatizer.budget``).

    The budget is public, so learners can adapt their choices to it. At most one of ``epsilon``, ``rho`` and
    ``mu`` is set. Without privacy, all three are None.

    Parameters
    ----------
    trust
        Trust model, which states the party that sees raw data.
    epsilon, delta
        Parameters of (epsilon, delta)-DP; delta = 0 is pure epsilon-DP.
    rho
        Parameter of zero-concentrated DP.
    mu
        Parameter of Gaussian DP.
    reports
        True if a trusted server always releases counts as randomized responses. False if a trusted server
        never releases randomized responses. None if it releases them only when the privatizer expects that
        they have less noise. Randomized responses contain no counts that are pooled over steps.
    """

    trust: Trust
    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    mu: float | None = None
    reports: bool | None = None

    @property
    def private(self) -> bool:
        """True unless this is a baseline without privacy."""
        return self.trust != "none"

    @property
    def pure(self) -> bool:
        """True if epsilon is set and delta is 0."""
        return self.epsilon is not None and self.delta == 0.0


@dataclass(frozen=True)
class ReturnBounds:
    """Public facts about an episode's return: the rule that sums rewards, their units, and their bounds.

    Parameters
    ----------
    low, high
        Range of one step's reward in the units of the data. The range is mapped to [0, 1].
    terminal
        Absorbing states. An episode that reaches such a state has ended and has no further reward.
    outcomes
        Dictionary from terminal state to the reward for arriving in it, in the units of the data. Given if a
        rule determines the rewards. The rewards in the records are then not used.
    least, most
        Bounds of an episode's return in the units of the data. A return outside the bounds counts as the
        nearest bound. None: the bounds that the other arguments imply (H low and H high, or the smallest and
        the largest of 0 and the outcomes).
    censored
        Terminal state of episodes with unknown outcome. The return of such an episode is set to the middle of
        the bounds, and ``outcomes`` then contains that value. Policy evaluation also computes the results for
        the two extreme cases, in which the unknown return equals a bound. This argument requires
        ``outcomes``.

    Raises
    ------
    ValueError
        If a number is not finite, ``high`` is not above ``low``, or all outcomes are 0. If the state
        ``censored`` or a state with an outcome is not terminal. If ``censored`` is given without
        ``outcomes``, or if its entry in ``outcomes`` is not the middle of the bounds.
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
        """Set the outcome of the state ``censored`` to the middle of the bounds of an episode's return."""
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
        """Return (least, most): bounds of the return of an episode of at most ``horizon`` steps.

        Raises ``ValueError`` unless least < most.
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
    """Base class with the sizes of the attribute ``layout`` as properties."""

    layout: Layout

    @property
    def states(self) -> int:
        """Number of states S."""
        return self.layout.states

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return self.layout.actions

    @property
    def horizon(self) -> int:
        """Horizon H."""
        return self.layout.horizon


@dataclass(frozen=True, eq=False)
class ProblemSpec(Sized):
    """Public facts about the problem, declared before users act.

    Parameters
    ----------
    layout
        Numbers of states and actions, horizon, and mask of admissible actions.
    users
        Number of users K, or None if unknown.
    stationary
        True if the MDP is declared to be the same at every step. A learner may then sum counts over steps.
    known_rewards
        (H, S, A) mean rewards in [0, 1] if they are public, otherwise None.
    budget
        The privatizer's budget (``privatizer.budget``), or None if unknown. Privacy never depends on this
        field, because only the privatizer determines the noise.
    features
        Public feature map of a linear MDP, or the map of real-valued contexts, or None (tabular).
    initial
        (S,) distribution of the first state if it is public, else None.
    returns
        Units, bounds and rules of an episode's return. None: rewards in [0, 1] are summed.
    groups
        Number of public groups of users, at least 1. The query for decision points
        (:mod:`discreet.learners.ope.first_visit_query`) counts users by group at the start of an episode.
        Other learners ignore groups.

    Raises
    ------
    ValueError
        If an array has another shape or a value outside its range, if the sizes of ``features`` differ from
        those of ``layout``, or if ``initial`` does not sum to 1.
    """

    __repr__ = brief

    layout: Layout
    users: int | None = None
    stationary: bool = False
    known_rewards: Floats | None = None
    budget: Budget | None = None
    features: Features | MixtureFeatures | FeatureMap | None = None
    initial: Floats | None = None
    returns: ReturnBounds | None = None
    groups: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", checks.integer("groups", self.groups, 1))
        if self.returns is not None and not isinstance(self.returns, ReturnBounds):
            raise ValueError(f"returns = {checks.said(self.returns)}: must be ReturnBounds or None")
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
    """Noisy sums of one step of a one-shot release, for each admissible pair (R rows of the layout)."""

    __repr__ = brief

    step: int
    transitions: Floats  # (R, S)
    visits: Floats | None = None  # (R,), or None if not released
    rewards: Floats | None = None  # (R,) sums of r - 1/2, or None if not released


@dataclass(frozen=True)
class MixedRelease(Release):
    """Release after a batch whose users followed plans of several earlier releases.

    followed : public policies that the batch's users followed, each with its number of users.
    """

    followed: tuple[tuple[Any, int], ...] = ()


def followed_release(release: Release, followed: Sequence[tuple[Any, int]]) -> MixedRelease:
    """Return the release with the policies that the users of its newest batch followed."""
    values = {one.name: getattr(release, one.name) for one in fields(Release)}
    return MixedRelease(**values, followed=tuple(followed))


class StepwiseRelease(Protocol):
    """One-shot release of counts that is read one step at a time, from memory or a file.

    The steps can be read in any order and repeatedly. If the state space is large, the tables of one step may
    fit in memory although the tables of all steps do not.
    """

    @property
    def layout(self) -> Layout: ...
    @property
    def users(self) -> int: ...
    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """Noise distribution of each family of the query. The bounds include the cells of all steps."""
        ...

    @property
    def guarantee(self) -> Guarantee: ...
    def step(self, h: int) -> StepSums:
        """Return the sums of step ``h`` in [0, H). Raises ``ValueError`` for other steps."""
        ...


# ------------------------------------------------- privatizer: frozen options, then a session
@runtime_checkable
class Session(Protocol):
    """Stateful session in the trusted core. Call order: release, begin, submit (once per user), release, ...

    Calls in the wrong order raise ``RuntimeError``, and invalid messages and plans raise ``ValueError``. A
    call that raises one of these errors does not change the sums.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee for everything that this session ever releases."""
        ...

    def begin(self, plan: Plan) -> Encoder:
        """Open ``plan`` for ``plan.users`` users.

        Returns the encoder that converts a trajectory to a message.
        """
        ...

    def submit(self, message: Message) -> None:
        """Accept one user's ``message`` for the open plan. Each message is counted once."""
        ...

    def absent(self, users: int = 1) -> None:
        """Count ``users`` users of the open plan as absent. These users will send no message."""
        ...

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add the sums of many simulated users. Only for simulations.

        sums : sums by family, with the shapes of the query's tables. users : number of users in the sums.
        """
        ...

    def release(self) -> Release:
        """Return the next release. Call it after all users of the last plan have submitted or are absent."""
        ...

    def answer(self, question: Response) -> Estimate:
        """Return the noisy response to ``question`` over all users so far. The query must have responses."""
        ...

    def close(self) -> None:
        """Close the session and delete all its user data."""
        ...


class Mechanism(Protocol):
    """Complete description of the processing of user data, fixed before any data arrive.

    A mechanism is a frozen object that computes its privacy guarantee.
    """

    @property
    def query(self) -> Any:
        """Query that defines the released sums."""
        ...

    @property
    def schedule(self) -> Schedule:
        """Public times of release."""
        ...

    @property
    def trust(self) -> Trust:
        """Trust model (party that sees raw data): none, central, joint, shuffle or local."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee, computed from the noise of the mechanism."""
        ...

    def laws_at(self, n: int) -> Mapping[str, NoiseDistribution]:
        """Return the noise distribution of each family in the scheduled release after ``n`` users."""
        ...


@runtime_checkable
class Privatizer(Protocol):
    """Frozen and reusable choice of privacy model and budget: ``dr.Central(epsilon=1.0)``.

    A privatizer contains no shapes and no data.
    """

    @property
    def trust(self) -> Trust:
        """Trust model: the party that sees raw data."""
        ...

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism, which fixes the noise scale.

        query : the learner's query, which defines the sums.

        schedule : the learner's public times of release.

        randomness : :class:`Seeded` for simulations or :class:`Secure`. The guarantee states which one is
            used.

        Raises ``ValueError`` if no mechanism meets the budget.
        """
        ...

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> Session:
        """Start a new session of the mechanism of ``query``, ``schedule`` and ``randomness``.

        The arguments are those of :meth:`mechanism`.
        """
        ...


Ask = Callable[[Response], Estimate]


@runtime_checkable
class Learner(Protocol):
    """Learner: frozen options, and methods that are pure functions of their arguments.

    A learner has no reference to data or to the internals of a session. Every method raises ``ValueError`` if
    learner and problem do not fit.
    """

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the public times of release for the problem ``spec``, fixed before data are read."""
        ...

    def query(self, spec: ProblemSpec) -> Any:
        """Return the query for the problem ``spec``: a :class:`CountQuery` or a query of feature sums."""
        ...

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> Any:
        """Return the learner's initial state for the problem ``spec``.

        ties : (2,) uint64, key of the public random numbers that break ties.
        """
        ...

    def plan(self, state: Any, release: Release, ask: Ask) -> tuple[Plan, Any]:
        """Return the plan for the next users, and the learner's new state.

        state : the learner's state from :meth:`begin` or from the previous call. The method does not modify
            the state.

        release : the newest release. The same release is passed to every call until the plans include all
            users before the next release.

        ask : function that returns the answer to a planned :class:`Response` (``session.answer``).
        """
        ...
