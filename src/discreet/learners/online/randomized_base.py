r"""Base of learners that explore by random draws instead of a bonus, and that need exact sums.

At each release, a learner draws rewards and transition probabilities from a distribution that depends on the
counts. The next users follow the greedy policy of the drawn values. The distribution is correct only for
exact counts, so the learners reject a private budget and noisy sums. They have no privacy guarantee.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.learners.estimation.tabular_model import release_rows
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.summary import summary_of
from discreet.learners.online.tabular_base import batch_size, sub_batch
from discreet.learners.online.tabular_planning_kernels import LearnerKernel
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.utils.config import Knobs
from discreet.utils.random_streams_kernels import ROLE_SAMPLES, ROLE_TIES, generator_at, open_at


@dataclass(frozen=True, eq=False)
class RandomizedState:
    """State of the learner between releases.

    R is the number of admissible state-action pairs. T is 1 if steps are pooled, otherwise H.

    Attributes
    ----------
    ties : (2,) words
        Key of the public random stream.
    visits, reward_sums : (T, R)
        Number of visits to each pair, and sum of their rewards.
    transitions : (T, R, S)
        Transition counts.
    users : int
        Number of users in the sums.
    number : int
        Number of the release that contains these sums; -1 before the first release.
    part : int
        Number of sub-batches to which the learner has assigned a policy since that release.
    """

    __repr__ = brief

    spec: ProblemSpec
    ties: NDArray[np.uint64]
    visits: Floats
    transitions: Floats
    reward_sums: Floats
    users: int = 0
    number: int = -1
    part: int = 0


@dataclass(frozen=True, eq=False)
class Draw:
    """Drawn model for planning: Q_h = rewards_h + (transitions_h / denominators_h) V_{h+1}.

    R is the number of admissible state-action pairs. T is 1 if steps are pooled, otherwise H.

    Attributes
    ----------
    rewards : (H, R)
    transitions : (T, R, S)
    denominators : (T, R), at least 1
    """

    rewards: Floats
    transitions: Floats
    denominators: Floats


@dataclass(frozen=True, kw_only=True)
class RandomizedLearner(Knobs):
    """Base of learners that plan with randomly drawn values.

    Parameters
    ----------
    preset : str
        A key of ``PRESETS``.
    stationary : bool
        True: pool the counts of all steps. This is allowed only if the problem is declared stationary.
    known_rewards : bool
        True: use the public rewards of the problem (``spec.known_rewards``).
    replan_growth : float
        Factor by which the number of users grows from one release to the next, at least 1.0. With 1.0, there
        is a release after every user.
    samples : int
        Number of sub-batches into which the users between two releases are split. Each sub-batch has a
        separate draw.
    """

    stationary: bool | None = None
    known_rewards: bool | None = None
    replan_growth: float | None = None
    samples: int | None = None

    CAP: ClassVar[int] = kernels.CAP_LEFT

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        for name in ("stationary", "known_rewards"):
            put(self, name, checks.flag(name, getattr(self, name)))
        put(self, "replan_growth", checks.real("replan_growth", self.replan_growth, 1.0))
        put(self, "samples", checks.integer("samples", self.samples, 1))

    # ---------------------------------------------------------------------- schedule and query
    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return a schedule with release times that grow by the factor ``replan_growth``."""
        self._check(spec)
        return Schedule(spec.users, growth=self.replan_growth, plans="deterministic")

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for transition counts, and for reward sums unless rewards are known."""
        self._check(spec)
        return CountQuery(
            spec.layout,
            stationary=bool(self.stationary),
            visits=False,
            known_rewards=bool(self.known_rewards),
        )

    def _check(self, spec: ProblemSpec) -> None:
        if spec.budget is not None and spec.budget.private:
            raise ValueError(
                f"privatizer with {spec.budget.trust} privacy: must be NoPrivacy() ('none') for the learner "
                f"{type(self).__name__}, which draws from a law that only exact sums give"
            )
        if self.stationary and not spec.stationary:
            raise ValueError("stationary = True: must be false, the problem is not declared stationary")
        if self.known_rewards and spec.known_rewards is None:
            raise ValueError("known_rewards = True: must be false, the spec declares no rewards")

    def _known(self, spec: ProblemSpec) -> Floats | None:
        """Return the (H, R) public mean rewards if the option ``known_rewards`` is True; otherwise None."""
        if not self.known_rewards or spec.known_rewards is None:
            return None
        return spec.layout.to_rows(spec.known_rewards)

    # -------------------------------------------------------------- planning from a release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> RandomizedState:
        """Return the state before the first release.

        ``ties`` : key of the public random stream, (2,) words.
        """
        self._check(spec)
        shape = (1 if self.stationary else spec.horizon, spec.layout.rows)
        key = np.array(ties, dtype=np.uint64)
        return RandomizedState(spec, key, np.zeros(shape), np.zeros((*shape, spec.states)), np.zeros(shape))

    def plan(
        self, state: RandomizedState, release: Release, ask: Ask | None = None
    ) -> tuple[Plan, RandomizedState]:
        """Return the next users' policy and the new state. The policy is greedy for a new draw."""
        if release.number != state.number:
            state = self._read(state, release)
        spec, parts = state.spec, int(self.samples or 1)
        users = batch_size(release.users, None, float(self.replan_growth or 1.0), spec)
        sizes = kernels.part_sizes(users, np.zeros(0, np.int64), parts)
        part, last = sub_batch(release, spec, sizes, state.part)
        _, q = self.values(state, part)
        rows = np.empty((spec.horizon, spec.states), np.int64)
        ties = open_at(state.ties, ROLE_TIES, state.number, part)
        kernels.choose(self._kernel(), spec.layout.state_ptr, spec.horizon, q, ties, rows)
        plan = Plan(spec.layout.row_action[rows], sizes[part], last=last)
        return plan, replace(state, part=part + 1)

    def _read(self, state: RandomizedState, release: Release) -> RandomizedState:
        for name, estimate in release.estimates.items():
            if estimate.law.std() != 0.0:
                raise ValueError(
                    f"release.{name} has noise of standard deviation {estimate.law.std():g}: must be exact, "
                    f"{type(self).__name__} must be used with NoPrivacy()"
                )
        visits, transitions, reward_sums = release_rows(release, state.spec.layout)
        if visits.shape != state.visits.shape:
            raise ValueError(f"release has {visits.shape[0]} steps: must have {state.visits.shape[0]}")
        return replace(
            state, visits=visits, transitions=transitions, reward_sums=reward_sums,
            users=int(release.users), number=int(release.number), part=0,
        )  # fmt: skip

    @abstractmethod
    def draw(self, state: RandomizedState, coins: np.random.Generator) -> Draw:
        """Draw a model from the distribution that the sums in ``state`` determine.

        ``coins`` : generator of the public random stream.
        """

    def values(self, state: RandomizedState, part: int = 0) -> tuple[Floats, Floats]:
        """Return the drawn V (H + 1, S) and Q (H, R) of one sub-batch after the latest release of ``state``.

        ``part`` : number of the sub-batch, starting at 0. Repeated calls return the same values.
        """
        spec, rows = state.spec, state.spec.layout.rows
        drawn = self.draw(state, generator_at(state.ties, ROLE_SAMPLES, max(0, state.number), part))
        values, q = np.empty((spec.horizon + 1, spec.states)), np.empty((spec.horizon, rows))
        kernels.plan_step(
            self._kernel(), spec.layout.state_ptr, spec.horizon, state.users, max(0, state.number),
            drawn.denominators, drawn.transitions, np.zeros(drawn.denominators.shape),
            np.ascontiguousarray(drawn.rewards), np.zeros(kernels.ERRORS), np.zeros(0), values, q,
            np.zeros((spec.horizon, rows)),
            np.empty(kernels.work_size(drawn.denominators.shape[0], rows, spec.states)),
        )  # fmt: skip
        return values, q

    def _kernel(self) -> LearnerKernel:
        """Return constants for a kernel without a bonus."""
        flags = np.zeros(kernels.FLAGS, np.int64)
        flags[kernels.CAP], flags[kernels.RANDOM_TIES] = self._cap(), 1
        return LearnerKernel(kernels.VALUE_ITERATION, flags, np.zeros(kernels.KNOBS))

    def _cap(self) -> int:
        return self.CAP

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        if float(self.replan_growth or 1.0) > 1.0:
            yield "several users follow one policy (the theorem replans for each)"

    def summary(self) -> str:
        """Return a string that lists the options and states whether the regret theorem holds for them."""
        return f"{summary_of(self, self.heuristics())} There is no privacy guarantee."


#: Default values of the options that all randomised learners share.
SHARED: Mapping[str, Any] = {"stationary": False, "known_rewards": False}
