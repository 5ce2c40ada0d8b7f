r"""Base of learners that explore in stages of fixed size.

In a stage, the learner chooses one policy for each triple (h, s, a), and L_0 users follow each policy. With R
admissible pairs, a stage has H R policies. Users after the last stage follow the best remaining policy.

**Widths from data** (:func:`value_widths`). Let P~ and r~ be the estimated transition probabilities and
rewards, with denominators D and slacks Lambda (:mod:`discreet.learners.estimation.tabular_model`,
``post="lp"``). Let G_h = H - h - 1 with h from 0, and

    w_h = min{H - h, beta_r + (G_h / 2) beta_p},  beta_r = L_r / sqrt(D) + Lambda_r / D,
                                                   beta_p = L_p / sqrt(D) + Lambda_p / D.

Then |V^pi(r, P) - V^pi(r~, P~)| <= V^pi(w, P~), simultaneously for all policies pi. By the simulation lemma,
V^pi(r, P) - V^pi(r~, P~) = E_{pi, P~} sum_h [(r - r~) + (P - P~) V^pi_{h+1}(r, P)]. With V in [0, G_h], the
second term is at most G_h ||P - P~||_1 / 2, because P~ is a distribution. The sum of both terms is at most
1 + G_h = H - h.

``width_scale`` multiplies beta_r + (G_h / 2) beta_p; a value below 1 is a heuristic. If D <= E, the width is
H - h.

Source: Bai, Talebi, Zhao, Cheng and Chen 2024.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.learners.estimation.tabular_model import ErrorBounds, PrivateModel
from discreet.learners.online import bonuses
from discreet.learners.online.summary import summary_of
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release
from discreet.utils.config import Knobs

Flags = NDArray[np.bool_]
Growth = Literal["doubling", "squaring"]
Plans = tuple[tuple[NDArray[np.integer[Any]], int], ...]

# Default number m_0 of users per policy in the first stage. It is smaller if the first stage would otherwise
# take more than 1/15 of the users.
MOST_INITIAL = 64

#: Default values of the options that all staged learners share.
SHARED: Mapping[str, Any] = {
    "stages": "doubling", "explore_share": 0.2, "truncate": False, "width_scale": 0.03, "derive_visits": True,
    "center_rewards": True, "known_rewards": False, "failure": 0.05, "noise_failure": 0.05,
    "tie_break": "random",
}  # fmt: skip


def small_integers(most: int) -> np.dtype[Any]:
    """Return the smallest signed integer type that holds 0..most."""
    return np.min_scalar_type(-most - 1)


def stage_sizes(
    users: int, each: int, growth: Growth, initial: int, truncate: bool, most: int | None = None
) -> tuple[int, ...]:
    """Return the number of users per policy, L_0, of each stage.

    With ``growth="doubling"``, stage b has L_0 = ``initial`` * 2^(b-1). With "squaring", stage b has about
    2 K^(1 - 2^-b) users, and L_0 is at least ``initial``.

    All stages together have at most ``most`` users (default: K - 1). If ``truncate`` is True, a last, shorter
    stage can follow.
    """
    sizes: list[int] = []
    left = users - 1 if most is None else most
    while True:
        b = len(sizes) + 1
        if growth == "doubling":
            size = initial * 2 ** (b - 1)
        else:
            size = int(2.0 * users ** (1.0 - 0.5**b) / each)
            size = max(initial, min(size, left // each) if b == 1 else size)
        if size * each > left:
            if truncate and left >= each:
                sizes.append(left // each)
            return tuple(sizes)
        sizes.append(size)
        left -= size * each


@dataclass(frozen=True, eq=False)
class StageModel:
    """Model estimated from a release, with R admissible pairs.

    The symbols are those of :mod:`discreet.learners.estimation.tabular_model`. T is 1 or H.

    Attributes
    ----------
    denominators : (T, R)
        Denominators D.
    transitions : (T, R, S)
        Transition probabilities P~.
    counts : (T, R, S)
        Transition counts N3~ = D P~.
    rewards : (T, R)
        Mean rewards r~.
    seen : (T, R)
        False if D <= E, because the pair may then have no visits.
    reward_slack, transition_slack, width : float
        Lambda_r, Lambda_p, and the E of the projection.
    """

    denominators: Floats
    transitions: Floats
    counts: Floats
    rewards: Floats
    seen: Flags
    reward_slack: float
    transition_slack: float
    width: float

    @classmethod
    def of(cls, release: Release, spec: ProblemSpec, failure: float, ignore_noise: bool) -> StageModel:
        """Estimate the model from a release.

        ``failure`` : probability that any noise bound fails. ``ignore_noise`` : if True, noisy sums are
        treated as exact, and negative sums are set to 0.
        """
        layout = spec.layout
        post: Literal["none", "lp"] = "none" if ignore_noise else "lp"
        model = PrivateModel.from_release(release, layout, post, ErrorBounds("quantile", failure))
        noisy = model.post == "lp"
        transitions = layout.to_rows(model.transitions)
        denominators = layout.to_rows(model.denominators)
        width = 4.0 * float(max(model.errors[0], model.errors[2])) if noisy else 0.0
        if not noisy:
            transitions = np.maximum(transitions, 0.0)
            transitions = transitions / np.maximum(1.0, transitions.sum(axis=-1, keepdims=True))
        sums = transitions.sum(axis=-1)
        return cls(
            denominators, transitions, transitions * denominators[..., None], layout.to_rows(model.rewards),
            denominators > width if noisy else sums > 0.0, model.reward_slack, model.transition_slack, width,
        )  # fmt: skip

    def completed(self) -> Floats:
        """Return P~ (T, R, S) with rows that sum to 1. Rows of pairs without counts are uniform."""
        sums = self.transitions.sum(axis=-1, keepdims=True)
        lacking = np.maximum(0.0, 1.0 - sums)
        return self.transitions + lacking / self.transitions.shape[-1] * (lacking > 1e-9)


def value_widths(
    model: StageModel, spec: ProblemSpec, failure: float, known_rewards: bool, scale: float
) -> Floats:
    """Return the widths w (H, R) that the module docstring defines.

    Each concentration bound fails with probability at most ``failure`` / 2. ``scale`` is ``width_scale``.
    """
    horizon = spec.horizon
    reward, transition = bonuses.hoeffding(spec, "tight", 0.5 * failure, l1=True)
    d = model.denominators
    later = np.arange(horizon - 1, -1, -1, dtype=np.float64)[:, None]
    width = 0.5 * later * (transition / np.sqrt(d) + model.transition_slack / d)
    if not known_rewards:
        width = width + reward / np.sqrt(d) + model.reward_slack / d
    most = later + (0.0 if known_rewards else 1.0)
    return np.where(model.seen, np.minimum(most, scale * width), most)


@dataclass(frozen=True, eq=False)
class StageState:
    """Public state that a learner keeps between releases.

    Attributes
    ----------
    ties : (2,) words
        Key of the public random stream.
    memory
        Data of the subclass.
    number : int
        Number of the last release that the learner has read; -1 before the first release.
    queue : tuple of (policy, users)
        Plans of the current batch. A policy is an (H, S) array of actions, stored as small integers.
    part : int
        Number of plans of the queue that have been returned.
    """

    __repr__ = brief

    spec: ProblemSpec
    ties: NDArray[np.uint64]
    memory: Any
    number: int = -1
    queue: Plans = ()
    part: int = 0


@dataclass(frozen=True, kw_only=True)
class StagedLearner(Knobs):
    """Base class of learners that explore in stages.

    Parameters
    ----------
    preset : str
        A key of ``PRESETS``. The preset sets each option that is None.
    initial : int, optional
        Number of users per policy in the first stage. None: 64, or fewer if the first stage would have more
        than 1/15 of all users.
    stages : "doubling" or "squaring"
        ``doubling``: each stage has twice as many users as the previous stage. ``squaring``: stage b has
        about 2 K^(1 - 2^-b) of the K users (APEVE).
    explore_share : float
        Largest share of users in stages, in (0, 1]. All other users follow the best remaining policy.
    truncate : bool
        True: users who are too few for a whole stage form a shorter stage. False: they follow the best
        remaining policy.
    width_scale : float
        Factor of the widths. With a factor below 1, the widths are not confidence bounds.
    derive_visits, center_rewards, known_rewards : bool
        Options of the query; see :class:`~discreet.learners.online.tabular_base.TabularLearner`.
    failure, noise_failure : float
        Probability that any concentration bound fails, and probability that any bound on the noise fails,
        both in (0, 1).
    tie_break : "random" or "first"
        Choice among equally good policies. ``random``: a uniform draw from the public random stream.
        ``first``: the policy with the lowest number.
    """

    initial: int | None = None
    stages: Growth | None = None
    explore_share: float | None = None
    truncate: bool | None = None
    width_scale: float | None = None
    derive_visits: bool | None = None
    center_rewards: bool | None = None
    known_rewards: bool | None = None
    failure: float | None = None
    noise_failure: float | None = None
    tie_break: Literal["random", "first"] | None = None

    known_initial: ClassVar[bool] = True
    ignores_noise: ClassVar[bool] = False
    PARTS: ClassVar[int] = 1
    """Number of users in a stage, as a multiple of H R L_0."""

    def __post_init__(self) -> None:
        if self.known_rewards and self.center_rewards is None:
            object.__setattr__(self, "center_rewards", False)  # no rewards are queried
        super().__post_init__()
        put = object.__setattr__
        if self.initial is not None:
            put(self, "initial", checks.integer("initial", self.initial, 1))
        checks.choice("stages", self.stages, ("doubling", "squaring"))
        checks.choice("tie_break", self.tie_break, ("random", "first"))
        share = checks.real("explore_share", self.explore_share, 0.0, 1.0, open_low=True)
        put(self, "explore_share", share)
        put(self, "width_scale", checks.real("width_scale", self.width_scale, 0.0))
        for name in ("truncate", "derive_visits", "center_rewards", "known_rewards"):
            put(self, name, checks.flag(name, getattr(self, name)))
        if self.known_rewards and self.center_rewards:
            raise ValueError("center_rewards = True: must be false when known_rewards is true")
        for name in ("failure", "noise_failure"):
            value = checks.real(name, getattr(self, name), 0.0, 1.0, open_low=True, open_high=True)
            put(self, name, value)

    # ---------------------------------------------------------------------- schedule and query
    def least_users(self, spec: ProblemSpec) -> int:
        """Return the smallest number of users that allows one stage and one user after the stage.

        ``spec`` : public description of the problem.
        """
        one = self.PARTS * spec.horizon * spec.layout.rows * int(self.initial or 1)
        least = math.floor(one / float(self.explore_share or 1.0))
        while self._explorers(least) < one:  # the division above was rounded down
            least += 1
        return least

    def _explorers(self, users: int) -> int:
        """Return the largest number of users in stages, for ``users`` users in total."""
        return int(float(self.explore_share or 1.0) * (users - 1))

    def sizes(self, spec: ProblemSpec) -> tuple[int, ...]:
        """Return the number of users per policy for every stage.

        Raises
        ------
        ValueError
            If the number of users is unknown or too small for one stage, or if ``spec`` lacks required data.
        """
        if spec.users is None:
            raise ValueError("users = None: must be known, stages are fixed in advance")
        if spec.initial is None:
            raise ValueError(
                "spec.initial = None: must be the public law of the first state (a world can begin with a "
                "step of one state)"
            )
        if self.known_rewards and spec.known_rewards is None:
            raise ValueError("known_rewards = True: must be false, the spec declares no rewards")
        least = self.least_users(spec)
        if spec.users < least:
            raise ValueError(
                f"episodes = {spec.users}: must be at least {least} users for one stage of exploration "
                f"({self.PARTS} H R initial / explore_share + 1, H = {spec.horizon} steps, "
                f"R = {spec.layout.rows} pairs, initial = {int(self.initial or 1)}, "
                f"explore_share = {self.explore_share:g})"
            )
        each = self.PARTS * spec.horizon * spec.layout.rows
        most, first = self._explorers(spec.users), self.initial
        if first is None:
            first = max(1, min(MOST_INITIAL, most // (15 * each)))
        growth = self.stages or "doubling"
        return stage_sizes(spec.users, each, growth, first, bool(self.truncate), most)

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for transition counts and reward sums of every step."""
        return CountQuery(
            spec.layout,
            visits=not self.derive_visits,
            center_rewards=bool(self.center_rewards),
            known_rewards=bool(self.known_rewards),
        )

    # -------------------------------------------------------------- planning from a release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> StageState:
        """Return the state before the first release.

        ties : (2,) key of the public random stream that breaks ties.
        """
        self.sizes(spec)
        return StageState(spec, np.array(ties, dtype=np.uint64), self._memory(spec))

    def plan(self, state: StageState, release: Release, ask: Ask | None = None) -> tuple[Plan, StageState]:
        """Return the policy of the next users, and the new state.

        Each call with the same release returns the next policy of the batch. Raises ``ValueError`` if the
        batch has no further policy. ``ask`` is not used.
        """
        if release.number != state.number:
            memory, queue = self._read(state, release)
            state = replace(state, memory=memory, queue=queue, number=release.number, part=0)
        part = state.part
        if part >= len(state.queue):
            raise ValueError(f"release.number = {release.number}: its last plan was handed out already")
        policy, users = state.queue[part]
        plan = Plan(policy.astype(np.int64), users, last=part == len(state.queue) - 1)
        return plan, replace(state, part=part + 1)

    @abstractmethod
    def _memory(self, spec: ProblemSpec) -> Any:
        """Return the value of ``StageState.memory`` before the first release."""

    @abstractmethod
    def _read(self, state: StageState, release: Release) -> tuple[Any, Plans]:
        """Return the new value of ``StageState.memory`` after a release, and the plans of the next batch."""

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        if self.width_scale is not None and self.width_scale < 1.0:
            yield f"width_scale = {self.width_scale:g} is below 1"
        if self.explore_share is not None and self.explore_share < 1.0:
            yield f"explore_share = {self.explore_share:g} is below 1"

    def summary(self) -> str:
        """Return a string that lists the options and states whether the regret theorem holds for them."""
        return f"{summary_of(self, self.heuristics())} The privatizer prices them: its guarantee holds."
