"""Base of the learners with linear features: public schedule, tie-breaking, and planning from a release.

**Schedule.** By default, there is a release when the number of users has grown by the factor g = 1 + min(1/2,
2.5 / d) since the last release. Here d is the dimension of the features.

With ``switching="determinant"``, the learner changes the policy only if the determinant of a released,
regularised Gram matrix has doubled since the last change (Ngo et al. 2022). The policy changes at most
``switches`` times.
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
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.summary import summary_of
from discreet.learners.online.tabular_base import batch_size, regular_schedule, sub_batch
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.utils.config import Knobs
from discreet.utils.random_streams_kernels import ROLE_TIES, open_at

Switching = Literal["release", "determinant"]

PRIVATE_SCALE, PLAIN_SCALE = 0.03, 0.1  # default values of bonus_scale with and without privacy

#: Default values of the options that all learners with linear features share.
SHARED: Mapping[str, Any] = {
    "switching": "release", "tie_break": "random", "failure": 0.05, "known_rewards": True,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearState:
    """Public state that a learner keeps between releases.

    Attributes
    ----------
    ties : (2,) words
        Key of the public random stream.
    values, q : (H + 1, S) and (H, R)
        Optimistic V and Q of the last plan. R is the number of admissible state-action pairs.
    context : mapping
        Public arrays of the plan, including (H + 1, S) ``values``. Users' contributions depend on them.
    releases : int, optional
        Number J of noisy releases; None if the number of users is not known.
    fit
        Last estimate. Its type depends on the class of the learner.
    log_dets : (n,), optional
        Log determinants of the regularised Gram matrices when the policy last changed.
    number : int
        Number of the last release that the learner has read; -1 before the first release.
    changed : int
        Number of the release from which the current policy was planned.
    switches : int
        Number of policy changes so far.
    part : int
        Number of sub-batches to which the learner has assigned a policy since the last release.
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
        """Return the number by which failure probabilities are divided, so that bounds hold at all releases.

        The number is J if the number J of releases is known, and j (j + 1) for the j-th ``release``
        otherwise.
        """
        if self.releases is None:
            return float(max(1, release.number) * (release.number + 1))
        return float(max(1, self.releases))


@dataclass(frozen=True, eq=False)
class PlanningResult:
    """Result of planning from one release. The fields have the same meaning as in :class:`LinearState`."""

    values: Floats
    q: Floats
    context: Mapping[str, Floats]
    fit: Any


@dataclass(frozen=True, kw_only=True)
class LinearLearner(Knobs):
    """Base class of the learners with linear features. The preset sets each option that is None.

    Parameters
    ----------
    bonus_scale : float, optional
        Factor of the bonus; 0 gives a greedy learner. None: 0.03 if ``spec.budget`` is private, 0.1
        otherwise.
    replan_every, replan_growth : int, float, optional
        ``replan_every``: release after this number of users. ``replan_growth``: release when the number of
        users has grown by this factor; 1.0 means a release after every user. If neither is given, the factor
        g of :mod:`discreet.learners.online.linear_base` is used.
    switching : "release" or "determinant"
        ``release``: change the policy at every release. ``determinant``: change the policy only when a
        determinant has doubled; no theorem covers this rule with noise.
    switches : int, optional
        Largest number of policy changes with ``switching="determinant"``. None: n d log2(1 + K) for n steps
        with a Gram matrix, dimension d and K users.
    known_rewards : bool
        True: use the public rewards of the problem. False: estimate rewards from a separate released family.
    failure : float
        Probability that a confidence width fails, in (0, 1).
    tie_break : "random" or "first"
        Choice among actions with exactly the same maximal Q. ``random``: a uniform draw from the public
        random stream. ``first``: the action with the lowest index.
    tie_batches : int
        Number of sub-batches into which a batch is split; each sub-batch breaks ties independently. The
        default is 4 if several users can follow one policy and ``tie_break`` is ``random``, else 1.

    Raises
    ------
    ValueError
        If an option is out of its range. The methods ``schedule``, ``query`` and ``begin`` also raise it if
        the options do not fit the problem.
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
    """Required type of ``spec.features``."""
    THEOREM: ClassVar[str] = ""
    """Text that the summary appends to the words "the regret theorem"."""

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

    # ---------------------------------------------------------------------- schedule and query
    def tuned(self, spec: ProblemSpec) -> Self:
        """Return this learner with a value for every option that is None, chosen from the public ``spec``."""
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
        """Return the schedule with the public release times, which are geometric by default."""
        mine = self.tuned(spec)
        return regular_schedule(mine.replan_every, mine.replan_growth, spec, "deterministic")

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        """Return the number of users in the batch that follows the release after ``users`` users."""
        return batch_size(users, self.replan_every, self.replan_growth, spec)

    # -------------------------------------------------------------- planning from a release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> LinearState:
        """Return the state before the first release.

        ties : (2,) key of the public random stream that breaks ties.
        """
        self._check(spec)
        values = np.zeros((spec.horizon + 1, spec.states))
        q = np.zeros((spec.horizon, spec.layout.rows))
        releases = self.schedule(spec).releases
        return LinearState(spec, np.array(ties, dtype=np.uint64), values, q, {"values": values}, releases)

    def plan(self, state: LinearState, release: Release, ask: Ask | None = None) -> tuple[Plan, LinearState]:
        """Return the next users' plan (policy and context) and the new state.

        Each call with the same release assigns a policy to the next sub-batch. ``ask`` is the method
        ``answer`` of the session. Raises ``ValueError`` if no user or no sub-batch is left.
        """
        mine = self.tuned(state.spec)
        if release.number != state.number:
            state = mine._read(state, release, ask)
        parts = int(mine.tie_batches or 1)
        users = mine._batch(release.users, state.spec)
        sizes = [users * (part + 1) // parts - users * part // parts for part in range(parts)]
        part, last = sub_batch(release, state.spec, sizes, state.part)
        plan = Plan(mine._policy(state, part), sizes[part], dict(state.context), last=last)
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
        """Return the estimates that do not depend on V, and (n,) log determinants of regularised matrices.

        ``state`` : state after the earlier releases. ``release`` : the new release.
        """

    @abstractmethod
    def planned(self, state: LinearState, fitted: Any, release: Release, ask: Ask | None) -> PlanningResult:
        """Compute optimistic V and Q backward over steps.

        ``state`` : state after the earlier releases. ``fitted`` : result of :meth:`fitted` for ``release``.
        ``ask`` : method ``answer`` of the session, for learners whose queries depend on V; otherwise None.
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

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        if self.bonus_scale is None or self.bonus_scale < 1.0:
            said = ".1 (.03 when private)" if self.bonus_scale is None else f"{self.bonus_scale:g}"
            yield f"bonus_scale = {said} is below 1"
        if self.replan_every != 1 and self.replan_growth != 1.0:
            yield "several users follow one policy (the theorem replans for each)"
        if self.switching == "determinant":
            yield "switching = 'determinant': under noise its usual analysis fails (arXiv 2605.23131)"

    def summary(self) -> str:
        """Return a string that lists the options and states whether the regret theorem holds for them."""
        return summary_of(self, self.heuristics(), self.THEOREM)
