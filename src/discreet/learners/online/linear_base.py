"""Base of learners with linear features: public schedule, ties, and the pure step from release to plan.

A state is a function of releases alone, as with the tabular learners
(:mod:`discreet.learners.online.tabular_base`). No option here weakens a guarantee. ``known_rewards``, the
schedule and the query options of a class choose what the privatizer is asked for, and it charges for that.

Schedule. By default a release follows when the number of users has grown by the factor g = 1 + min(1/2, 2.5 /
d). It is 1.5 up to d = 5, and 1.05 at d = 50. Noise is drawn J ~ log K / log g times instead of K times. This
rule is fitted to two experiments and has no theorem: with J <~ 2 d batches optimism can fail.
``replan_every=1`` plans for every user. ``switching="determinant"`` reads every release. It changes the
policy only if the determinant of a regularised Gram matrix has doubled since the last change (Ngo et al.
2022), at most ``switches`` times. The matrices are released ones, so this is post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.noise.random_streams_kernels import ROLE_TIES, open_at
from discreet.core.short_repr import brief
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.summary import summary_of
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.utils.config import Knobs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Switching = Literal["release", "determinant"]

PRIVATE_SCALE, PLAIN_SCALE = 0.03, 0.1  # of the bonus

#: Options of every preset.
SHARED: Mapping[str, Any] = {
    "switching": "release", "tie_break": "random", "failure": 0.05, "known_rewards": True,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearState:
    """State that a learner carries between releases: public, and a function of releases alone.

    Attributes
    ----------
    values, q : (H + 1, S) and (H, R)
        Optimistic values of the last plan.
    context : mapping
        Context of the plan, including (H + 1, S) ``values``.
    releases : int, optional
        J, the number of noisy releases; None for an open-ended schedule.
    fit
        The last estimate of the class.
    log_dets : (n,), optional
        Log determinants of the regularised Gram matrices when the policy last changed.
    number : int
        Number of the last release read (-1: none).
    changed : int
        Number of the policy's release.
    switches : int
        Number of changes so far.
    part : int
        Sub-batches handed out since then.
    """

    __repr__ = brief

    spec: ProblemSpec
    ties: NDArray[np.uint64]
    values: Floats
    q: Floats
    context: Mapping[str, Floats]
    releases: int | None = None
    fit: Any = None
    log_dets: Floats | None = None
    number: int = -1
    changed: int = -1
    switches: int = 0
    part: int = 0

    def union(self, release: Release) -> float:
        """Return the divisor of a failure probability that makes it hold at every release.

        J, or j (j + 1) at the j-th release of a schedule without an end (1/2 + 1/6 + 1/12 + ... = 1).
        """
        if self.releases is None:
            return float(max(1, release.number) * (release.number + 1))
        return float(max(1, self.releases))


@dataclass(frozen=True, eq=False)
class PlanningResult:
    """Result of a class for one release: see :class:`LinearState`."""

    values: Floats
    q: Floats
    context: Mapping[str, Floats]
    fit: Any


@dataclass(frozen=True, kw_only=True)
class LinearLearner(Knobs):
    """Base of the learners with linear features. Options left at None come from the preset.

    Parameters
    ----------
    bonus_scale : float, optional
        Multiplies the bonus; 0 is greedy. None: 0.03 under a private ``spec.budget``, 0.1 otherwise.
    replan_every, replan_growth : int, float, optional
        Release after this number of users, or when they have grown by this factor (1.0: every user).
        Neither: the default growth of :mod:`discreet.learners.online.linear_base`.
    switching : "release" or "determinant"
        Change the policy at every release, or when a determinant has doubled (no theorem under noise).
    switches : int, optional
        The cap of "determinant"; None: steps times d log2(1 + K), which exact sums cannot exceed by much.
    known_rewards : bool
        Use the public rewards of the spec; False: estimate them from a separate family.
    failure : float
        In (0, 1): probability that a width fails.
    tie_break : "random" or "first"
    tie_batches : int
        Sub-batches of a batch, each with its own random tie-break; by default 4 if several users follow
        one release and ties are random, else 1.

    Raises
    ------
    ValueError
        For an option out of its range, by name; and from ``schedule``, ``query`` and ``begin`` if the
        learner does not fit the problem.
    """

    bonus_scale: float | None = None
    replan_every: int | None = None
    replan_growth: float | None = None
    switching: Switching | None = None
    switches: int | None = None
    known_rewards: bool | None = None
    failure: float | None = None
    tie_break: Literal["random", "first"] | None = None
    tie_batches: int | None = None

    FEATURES: ClassVar[type[Features | MixtureFeatures]]
    """What ``spec.features`` must be."""
    THEOREM: ClassVar[str] = ""
    """What the summary adds to "the regret theorem"."""

    def __post_init__(self) -> None:
        own_growth = self.replan_growth is not None
        if own_growth and self.replan_every not in (None, 1):
            raise ValueError(
                f"replan_growth = {self.replan_growth!r}: must not be given together with replan_every"
            )
        super().__post_init__()
        put = object.__setattr__
        if own_growth:
            put(self, "replan_growth", checks.real("replan_growth", self.replan_growth, 1.0))
            put(self, "replan_every", None)
        if self.replan_every is not None:
            put(self, "replan_every", checks.integer("replan_every", self.replan_every, 1))
        if self.bonus_scale is not None:
            put(self, "bonus_scale", checks.real("bonus_scale", self.bonus_scale, 0.0))
        checks.choice("switching", self.switching, ("release", "determinant"))
        if self.switches is not None:
            put(self, "switches", checks.integer("switches", self.switches, 1))
            if self.switching != "determinant":
                raise ValueError(f"switches = {self.switches}: must be None unless switching = 'determinant'")
        put(self, "known_rewards", checks.flag("known_rewards", self.known_rewards))
        failure = checks.real("failure", self.failure, 0.0, 1.0, open_low=True, open_high=True)
        put(self, "failure", failure)
        checks.choice("tie_break", self.tie_break, ("random", "first"))
        if self.tie_batches is None:
            every = self.replan_every == 1 or self.replan_growth == 1.0
            put(self, "tie_batches", 4 if self.tie_break == "random" and not every else 1)
        put(self, "tie_batches", checks.integer("tie_batches", self.tie_batches, 1))

    # --------------------------------------------------------------------------- public facts
    def tuned(self, spec: ProblemSpec) -> Self:
        """Return this learner with every option that is None chosen from public facts."""
        self._check(spec)
        found = self
        if self.replan_every is None and self.replan_growth is None:
            assert spec.features is not None
            growth = 1.0 + min(0.5, 2.5 / spec.features.dimension)
            found = replace(found, replan_growth=growth, tie_batches=self.tie_batches)
        if self.bonus_scale is None:
            private = spec.budget is not None and spec.budget.private
            found = replace(found, bonus_scale=PRIVATE_SCALE if private else PLAIN_SCALE)
        return found

    def _check(self, spec: ProblemSpec) -> None:
        if type(spec.features) is not self.FEATURES:
            given = "None" if spec.features is None else type(spec.features).__name__
            worlds = (
                "of a linear mixture, as environments linear-mixture and hypercube have"
                if self.FEATURES is MixtureFeatures
                else "of pairs, as environments linear-mdp, wide-linear and synthetic-linear have"
            )
            raise ValueError(f"spec.features = {given}: must be {self.FEATURES.__name__}, {worlds}")
        if self.known_rewards and spec.known_rewards is None:
            raise ValueError("known_rewards = True: must be false, the spec declares no rewards")

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the release times: geometric by default, public."""
        mine = self.tuned(spec)
        if mine.replan_growth is not None:
            return Schedule(spec.users, growth=mine.replan_growth, plans="deterministic")
        if mine.replan_every == 1:
            return Schedule(spec.users, growth=1.0, plans="deterministic")
        if spec.users is None:
            return Schedule(None, plans="deterministic")
        times = np.arange(0, spec.users, mine.replan_every, dtype=np.int64)
        return Schedule(spec.users, times=times, plans="deterministic")

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        """Return how many users follow the release after ``users`` users."""
        if self.replan_growth is not None:
            later = max(users + 1, math.ceil(self.replan_growth * users))
        else:
            later = users + int(self.replan_every or 1)
        return later - users if spec.users is None else min(later, spec.users) - users

    # -------------------------------------------------------------------------- one release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> LinearState:
        """Return the state before the first release. ``ties`` is the tie-breaking key (2 words)."""
        self._check(spec)
        values = np.zeros((spec.horizon + 1, spec.states))
        q = np.zeros((spec.horizon, spec.layout.rows))
        releases = self.schedule(spec).releases
        return LinearState(spec, np.array(ties, dtype=np.uint64), values, q, {"values": values}, releases)

    def plan(self, state: LinearState, release: Release, ask: Ask | None = None) -> tuple[Plan, LinearState]:
        """Return the next users' policy and context, and the state after it; ``state`` is not changed.

        A new release is read once. Calls with the same release hand out the next sub-batch. ``ask`` is the
        session's ``answer``. Raises ``ValueError`` if no user is left, or if every sub-batch of this release
        was handed out.
        """
        mine = self.tuned(state.spec)
        if release.number != state.number:
            state = mine._read(state, release, ask)
        parts = int(mine.tie_batches or 1)
        users = mine._batch(release.users, state.spec)
        if users < 1:
            raise ValueError(f"release.users = {release.users}: nobody is left of {state.spec.users} users")
        part = state.part
        while part < parts and users * (part + 1) // parts == users * part // parts:
            part += 1
        if part >= parts:
            raise ValueError(f"release.number = {release.number}: its last plan was handed out already")
        size = users * (part + 1) // parts - users * part // parts
        plan = Plan(mine._policy(state, part), size, dict(state.context), last=part == parts - 1)
        return plan, replace(state, part=part + 1)

    def _read(self, state: LinearState, release: Release, ask: Ask | None) -> LinearState:
        fitted, log_dets = self.fitted(state, release)
        new = replace(state, number=release.number, part=0)
        if self.switching == "determinant" and state.log_dets is not None:
            most = self.switches
            if most is None:
                doublings = math.log2(1.0 + (state.spec.users or release.users + 1))
                most = math.ceil(log_dets.size * self._dimension(state.spec) * doublings)
            if state.switches >= most or (log_dets - state.log_dets).max() < math.log(2.0):
                return new
            new = replace(new, switches=state.switches + 1)
        found = self.planned(state, fitted, release, ask)
        return replace(
            new, values=found.values, q=found.q, context=found.context, fit=found.fit, log_dets=log_dets,
            changed=release.number,
        )  # fmt: skip

    @staticmethod
    def _dimension(spec: ProblemSpec) -> int:
        assert spec.features is not None
        return spec.features.dimension

    @abstractmethod
    def fitted(self, state: LinearState, release: Release) -> tuple[Any, Floats]:
        """Return the estimates that need no value function, and log det of the regularised Gram matrices.

        state : after the earlier releases. release : the new one.
        """

    @abstractmethod
    def planned(self, state: LinearState, fitted: Any, release: Release, ask: Ask | None) -> PlanningResult:
        """Return optimistic values, computed backward.

        state : after the earlier releases. fitted : result of :meth:`fitted` for ``release``. ask : the
        session's ``answer``, for learners whose questions depend on values; None if there is none.
        """

    def _policy(self, state: LinearState, part: int) -> Ints:
        layout = state.spec.layout
        flags = np.zeros(kernels.FLAGS, np.int64)
        flags[kernels.RANDOM_TIES] = int(self.tie_break == "random")
        greedy = kernels.LearnerKernel(kernels.VALUE_ITERATION, flags, np.zeros(kernels.KNOBS))
        rows = np.empty((layout.horizon, layout.states), np.int64)
        ties = open_at(state.ties, ROLE_TIES, state.changed, part)
        kernels.choose(greedy, layout.state_ptr, layout.horizon, state.q, ties, rows)
        return np.asarray(layout.row_action[rows])

    # ------------------------------------------------------------------------------- in words
    def heuristics(self) -> Iterator[str]:
        """Yield the options whose values void the regret theorem, each with the reason."""
        if self.bonus_scale is None or self.bonus_scale < 1.0:
            said = ".1 (.03 when private)" if self.bonus_scale is None else f"{self.bonus_scale:g}"
            yield f"bonus_scale = {said} is below 1"
        if self.replan_every != 1 and self.replan_growth != 1.0:
            yield "several users follow one policy (the theorem replans for each)"
        if self.switching == "determinant":
            yield "switching = 'determinant': under noise its usual analysis fails (arXiv 2605.23131)"

    def summary(self) -> str:
        """Return the options, and whether the regret theorem holds. Privacy never depends on them."""
        return summary_of(self, self.heuristics(), self.THEOREM)
