"""Base of all tabular learners: options, schedule, query, and planning from a release.

The options ``stationary``, ``derive_visits``, ``center_rewards``, ``known_rewards`` and those of the schedule
affect the query. The privatizer sets the noise accordingly. All other options only affect the processing of a
release.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.estimation.tabular_model import POSTS, ErrorBounds, ErrorMode, Post, release_rows
from discreet.learners.online import bonuses
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.summary import summary_of
from discreet.learners.online.tabular_planning_kernels import LearnerKernel
from discreet.mechanisms.interfaces import Ask, NoiseDistribution, Plan, ProblemSpec, Release, Schedule
from discreet.utils.config import Knobs
from discreet.utils.random_streams_kernels import ROLE_TIES, open_at

Cap = Literal["H-h+1", "H", "none"]
Theory = Literal["theory"]

#: Factor by which the number of users grows from one release to the next, with privacy (``GROWTH``) and
#: without privacy (``PLAIN_GROWTH``). It applies if neither the preset nor an option sets the factor. With
#: privacy, fewer releases have less noise. Without privacy, rare releases only delay new policies.
GROWTH, PLAIN_GROWTH = 1.1, 1.02
#: Options of the papers: visits, transitions and rewards are three queried families with separate noise, and
#: there is a release after every user.
AS_PUBLISHED = {"derive_visits": False, "center_rewards": False, "replan_every": 1}

_CAPS = {"H-h+1": kernels.CAP_LEFT, "H": kernels.CAP_HORIZON, "none": kernels.CAP_NONE}


@dataclass(frozen=True, eq=False)
class LearnerState:
    """Public state that a learner keeps between releases.

    R is the number of admissible state-action pairs. E is the number of sub-batches whose users explore.

    Attributes
    ----------
    number : int
        Number of the last release that the learner has read; -1 before the first release.
    part : int
        Number of sub-batches to which the learner has assigned a policy since that release.
    values, q : (H + 1, S) and (H, R)
        Optimistic V and Q, computed from the last release.
    probabilities : (H, R)
        Action probabilities of a stochastic policy; 0 for deterministic policies.
    trials : (E, H, R)
        Q of each exploring policy.
    """

    __repr__ = brief

    spec: ProblemSpec
    ties: NDArray[np.uint64]
    kernel: LearnerKernel
    memory: Floats
    values: Floats
    q: Floats
    probabilities: Floats
    trials: Floats
    number: int = -1
    part: int = 0


def regular_schedule(
    every: int | None, growth: float | None, spec: ProblemSpec, plans: Literal["deterministic", "stochastic"]
) -> Schedule:
    """Return a schedule with a release after ``every`` users, or geometric with the factor ``growth``."""
    if growth is not None or every is None or every == 1:
        return Schedule(spec.users, growth=growth or 1.0, plans=plans)
    if spec.users is None:
        return Schedule(None, plans=plans)
    return Schedule(spec.users, times=np.arange(0, spec.users, every, dtype=np.int64), plans=plans)


def geometric_times(users: int, first: int, growth: float) -> Ints:
    """Return the release times 0, ``first``, and then growing by the factor ``growth``, below ``users``."""
    times, n = [0], first
    while n < users:
        times.append(n)
        n = max(n + 1, math.ceil(growth * n))
    return np.array(times, np.int64)


def batch_size(users: int, every: int | None, growth: float | None, spec: ProblemSpec) -> int:
    """Return the number of users in the batch that starts after ``users`` users.

    The total number of users grows by ``every``, or by the factor ``growth`` if it is given. The total never
    exceeds ``spec.users``.
    """
    later = users + (every or 1) if growth is None else max(users + 1, math.ceil(growth * users))
    return later - users if spec.users is None else min(later, spec.users) - users


def sub_batch(release: Release, spec: ProblemSpec, sizes: Sequence[int], part: int) -> tuple[int, bool]:
    """Return the index of the next sub-batch with users, and True if it is the last one.

    The search starts at ``part``. ``sizes`` holds the number of users of each sub-batch. Raises
    ``ValueError`` if none of the remaining sub-batches has users.
    """
    if sum(sizes) < 1:
        raise ValueError(f"release.users = {release.users}: must be below users = {spec.users}")
    left = [i for i in range(part, len(sizes)) if sizes[i]]
    if not left:
        raise ValueError(f"release.number = {release.number}: its last plan was handed out already")
    return left[0], len(left) == 1


@dataclass(frozen=True, kw_only=True)
class TabularLearner(Knobs, ABC):
    """Base class of the tabular learners. The preset sets each option that is None.

    Parameters
    ----------
    preset : str
        A key of ``PRESETS``: ``default`` (practical constants without a theorem), ``paper``, or another
        preset that the class lists.
    bonus_scale : float
        Factor of the whole bonus.
    stat_scale : float
        Factor of the sampling terms of the bonus, which are proportional to 1 / sqrt(D). D is the estimated
        number of visits.
    stat_const : float or "theory"
        Number that replaces the coefficient L of 1 / sqrt(D) in the bonus. The logarithm of L is also
        replaced in all other terms.
    constants : str
        Name of the set of constants in the bonus, see :mod:`discreet.learners.online.bonuses`.
    cap : "H-h+1", "H" or "none"
        Upper limit of Q at step h (h starts at 1).
    stationary : bool
        True: pool the counts of all steps. This is allowed only if the problem is declared stationary.
    replan_every : int
        Release and replan after this number of users, at least 1. The presets ``paper`` and ``theory`` use 1.
    replan_growth : float
        Alternative to ``replan_every``: release when the number of users has grown by this factor, which is
        at least 1.0. With 1.0, there is a release after every user. The default is 1.1 with privacy and 1.02
        without privacy.
    derive_visits : bool
        True: compute visits N as sums of the transition counts N3 over s', instead of querying N. The error
        of N is then the sum of S noise values.
    center_rewards : bool
        True: query sums of r - 1/2. If ``derive_visits`` is True too, one user changes all sums together by
        at most 3 H in l1 norm instead of 6 H. Both options are True by default.
    known_rewards : bool
        True: use the public rewards of the problem (``spec.known_rewards``), and do not query rewards.
    failure : float
        Probability that a concentration bound fails, in (0, 1).

    Raises
    ------
    ValueError
        If an option is out of its range. The methods ``schedule``, ``query`` and ``begin`` also raise it if
        the options do not fit the problem.
    """

    bonus_scale: float | None = None
    stat_scale: float | None = None
    stat_const: float | Theory | None = None
    constants: str | None = None
    cap: Cap | None = None
    stationary: bool | None = None
    replan_every: int | None = None
    replan_growth: float | None = None
    derive_visits: bool | None = None
    center_rewards: bool | None = None
    known_rewards: bool | None = None
    failure: float | None = None

    explorers: ClassVar[int] = 0  # number of sub-batches per batch that follow an exploring policy
    stochastic: ClassVar[bool] = False
    joined: ClassVar[bool] = False  # True if consecutive sub-batches with the same policy are one plan
    ignores_noise: ClassVar[bool] = False
    CONSTANTS: ClassVar[tuple[str, ...]] = ("tight", "published")

    def __post_init__(self) -> None:
        both = self.replan_every is not None and self.replan_growth is not None
        if both and self.replan_every != 1:
            raise ValueError(
                f"replan_growth = {self.replan_growth!r}: must not be given together with replan_every"
            )
        if self.replan_growth is not None:
            object.__setattr__(self, "replan_every", 1)
        if self.known_rewards and self.center_rewards is None:
            object.__setattr__(self, "center_rewards", False)  # no rewards are queried
        super().__post_init__()
        put = object.__setattr__
        for name in ("bonus_scale", "stat_scale"):
            put(self, name, checks.real(name, getattr(self, name), 0.0))
        if self.stat_const != "theory":
            put(self, "stat_const", checks.real("stat_const", self.stat_const, 0.0))
        checks.choice("constants", self.constants, self.CONSTANTS)
        checks.choice("cap", self.cap, _CAPS)
        for name in ("stationary", "derive_visits", "center_rewards", "known_rewards"):
            put(self, name, checks.flag(name, getattr(self, name)))
        if self.known_rewards and self.center_rewards:
            raise ValueError("center_rewards = True: must be false when known_rewards is true")
        if self.replan_every is not None:
            put(self, "replan_every", checks.integer("replan_every", self.replan_every, 1))
        if self.replan_growth is not None:
            put(self, "replan_growth", checks.real("replan_growth", self.replan_growth, 1.0))
        put(self, "failure", checks.real("failure", self.failure, 0.0, 1.0, open_low=True, open_high=True))

    # --------------------------------------------------------------------- schedule and query
    @property
    def tie_batches(self) -> int:
        """Return the number of sub-batches that break ties independently; 1 unless the learner is greedy."""
        return 1

    def _growth(self, spec: ProblemSpec) -> float | None:
        """Return the growth factor of the number of users between releases, or None.

        Returns None if ``replan_every`` sets the release times.
        """
        if self.replan_growth is self.replan_every is None:
            return PLAIN_GROWTH if spec.budget is not None and not spec.budget.private else GROWTH
        return self.replan_growth

    @property
    def scheduled(self) -> bool:
        """Return True if several users can follow one policy."""
        return self.replan_every != 1 or (self.replan_growth or 1.0) > 1.0

    def _exploring(self, before: int, batch: int, spec: ProblemSpec) -> Ints:
        """Return (E,) integers: the number of users of each exploring sub-batch in one batch."""
        return np.zeros(self.explorers, np.int64)

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule: a release after every user, every ``replan_every`` users, or geometric."""
        self._check(spec)
        plans: Literal["deterministic", "stochastic"] = "stochastic" if self.stochastic else "deterministic"
        return regular_schedule(self.replan_every, self._growth(spec), spec, plans)

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for the sums that this learner reads."""
        self._check(spec)
        return CountQuery(
            spec.layout,
            stationary=bool(self.stationary),
            visits=not self.derive_visits,
            center_rewards=bool(self.center_rewards),
            known_rewards=bool(self.known_rewards),
        )

    def _check(self, spec: ProblemSpec) -> None:
        if self.stationary and not spec.stationary:
            raise ValueError("stationary = True: must be false, the problem is not declared stationary")
        if self.known_rewards and spec.known_rewards is None:
            raise ValueError("known_rewards = True: must be false, the spec declares no rewards")

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        """Return the number of users in the batch that follows the release after ``users`` users."""
        return batch_size(users, self.replan_every, self._growth(spec), spec)

    # ------------------------------------------------------------- interface for compiled code
    @abstractmethod
    def kernel(self, spec: ProblemSpec) -> LearnerKernel:
        """Return the constants of this learner for this problem, as compiled code reads them."""

    def memory_size(self, spec: ProblemSpec) -> int:
        """Return the number of floats that the learner keeps in memory between releases."""
        return 0

    def begin_memory(self, spec: ProblemSpec) -> Floats:
        """Return the memory before the first release, (memory_size,) floats."""
        return np.zeros(self.memory_size(spec))

    def work_size(self, spec: ProblemSpec) -> int:
        """Return the number of floats of scratch memory that ``plan_step`` needs."""
        slots = 1 if self.stationary else spec.horizon
        return kernels.work_size(slots, spec.layout.rows, spec.states)

    def errors(self, laws: Mapping[str, NoiseDistribution], spec: ProblemSpec) -> Floats:
        """Return the (5,) bounds E1, E2, E3, E_row, 0 on the noise in a release; zeros for a baseline.

        ``laws`` maps the name of each released family of sums to its noise distribution. E1 bounds the noise
        of visits, E2 that of reward sums, E3 that of transition counts, and E_row that of the sum of one
        pair's transition counts.
        """
        return np.zeros(kernels.ERRORS)

    # -------------------------------------------------------------- planning from a release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> LearnerState:
        """Return the state before the first release.

        ties : (2,) key of the public random stream that breaks ties.
        """
        horizon, rows, states = spec.horizon, spec.layout.rows, spec.states
        return LearnerState(
            spec,
            np.array(ties, dtype=np.uint64),
            self.kernel(spec),
            self.begin_memory(spec),
            np.zeros((horizon + 1, states)),
            np.zeros((horizon, rows)),
            np.zeros((horizon, rows)),
            np.zeros((self.explorers, horizon, rows)),
        )

    def plan(
        self, state: LearnerState, release: Release, ask: Ask | None = None
    ) -> tuple[Plan, LearnerState]:
        """Return the policy of the next users and the new state.

        Each further call with the same release assigns a policy to the next sub-batch. If ``joined`` is True,
        a plan includes all following sub-batches that have the same policy. ``ask`` is not used.
        """
        if release.number != state.number:
            state = self._read(state, release)
        users = self._batch(release.users, state.spec)
        exploring = self._exploring(release.users, users, state.spec)
        sizes = kernels.part_sizes(users, exploring, self.tie_batches)
        first, _ = sub_batch(release, state.spec, sizes, state.part)
        policy, end = self._policy(state, first), first + 1
        while end < len(sizes) and self._follows(state, end, sizes[end], policy):
            end += 1
        return Plan(policy, sum(sizes[first:end]), last=not any(sizes[end:])), replace(state, part=end)

    def _follows(self, state: LearnerState, part: int, users: int, policy: NDArray[Any]) -> bool:
        """Return True if a sub-batch belongs to the plan of the previous one, which has this policy."""
        return self.joined and (not users or np.array_equal(self._policy(state, part), policy))

    def _read(self, state: LearnerState, release: Release) -> LearnerState:
        spec, layout = state.spec, state.spec.layout
        visits, transitions, reward_sums = self._tables(release, layout)
        if visits.shape[0] != (1 if self.stationary else layout.horizon):
            raise ValueError(
                f"release has {visits.shape[0]} steps: must have {1 if self.stationary else layout.horizon}"
            )
        known = np.zeros((0, 0))
        if self.known_rewards and spec.known_rewards is not None:
            known = layout.to_rows(spec.known_rewards)
        laws = {name: estimate.law for name, estimate in release.estimates.items()}
        new = replace(
            state, memory=state.memory.copy(), values=np.empty_like(state.values), q=np.empty_like(state.q),
            probabilities=np.zeros((layout.horizon, layout.rows)), number=release.number, part=0,
        )  # fmt: skip
        kernels.plan_step(
            state.kernel, layout.state_ptr, layout.horizon, int(release.users), int(release.number), visits,
            transitions, reward_sums, known, self.errors(laws, spec), new.memory, new.values, new.q,
            new.probabilities, np.empty(self.work_size(spec)),
        )  # fmt: skip
        return new

    def _tables(self, release: Release, layout: Layout) -> tuple[Floats, Floats, Floats]:
        """Return visits, transitions and reward sums of each admissible pair, in the learner's units."""
        return release_rows(release, layout)

    def _policy(self, state: LearnerState, part: int) -> NDArray[Any]:
        layout = state.spec.layout
        if self.stochastic:
            return layout.from_rows(state.probabilities)
        rows = np.empty((layout.horizon, layout.states), np.int64)
        ties = open_at(state.ties, ROLE_TIES, state.number, part)
        q = state.q if part < self.tie_batches else state.trials[part - self.tie_batches]
        kernels.choose(state.kernel, layout.state_ptr, layout.horizon, q, ties, rows)
        return layout.row_action[rows]

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        for name in ("bonus_scale", "stat_scale"):
            if getattr(self, name) < 1.0:
                yield f"{name} = {getattr(self, name):g} is below 1"
        if self.stat_const != "theory":
            yield f"stat_const = {self.stat_const:g} replaces the constant of the theory"
        if self.scheduled:
            default = f": growth {GROWTH:g}, without privacy {PLAIN_GROWTH:g}"
            when = default if self.replan_every is self.replan_growth is None else ""
            yield f"several users follow one policy{when} (the theorem replans for each)"

    def summary(self) -> str:
        """Return a string that lists the options and states whether the regret theorem holds for them."""
        return f"{summary_of(self, self.heuristics())} The privatizer prices them: its guarantee holds."


class BonusLearner(TabularLearner):
    """Learner with an exploration bonus that ``bonus_scale`` and ``stat_scale`` multiply."""

    def kernel(self, spec: ProblemSpec) -> LearnerKernel:
        """Return the constants of this learner for this problem, as compiled code reads them."""
        self._check(spec)
        flags = np.zeros(kernels.FLAGS, np.int64)
        knobs = np.zeros(kernels.KNOBS)
        flags[kernels.CAP] = _CAPS[self.cap or "H-h+1"]
        flags[kernels.CLIP_NEGATIVE] = 1
        knobs[kernels.PRIVACY] = 1.0
        code = self._fill(spec, flags, knobs)
        bonus, stat = float(self.bonus_scale or 0.0), float(self.stat_scale or 0.0)
        for knob in (kernels.OUTER, kernels.INNER, kernels.VARIANCE, kernels.LOWER_FLOOR):
            knobs[knob] *= bonus * stat
        for knob in (kernels.PRIVACY, kernels.LOWER_NOISE, kernels.CORRECTION):
            knobs[knob] *= bonus
        return LearnerKernel(code, flags, knobs)

    @abstractmethod
    def _fill(self, spec: ProblemSpec, flags: Ints, knobs: Floats) -> int:
        """Write the learner's flags and unscaled constants into the arrays. Returns the planning method."""


@dataclass(frozen=True, kw_only=True)
class GreedyLearner(TabularLearner):
    """Learner whose users take the greedy action of an optimistic Q.

    Parameters
    ----------
    monotone : bool
        True: Q never increases from one release to the next.
    tie_break : "random" or "first"
        Choice among actions with exactly the same maximal Q. ``random``: a uniform draw from the public
        random stream. ``first``: the action with the lowest index.
    tie_batches : int
        Number of sub-batches into which a batch is split; each sub-batch breaks ties independently. The
        default is 4 if several users can follow one policy and ``tie_break`` is ``random``, else 1.
    """

    monotone: bool | None = None
    tie_break: Literal["random", "first"] | None = None
    tie_batches: int | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "monotone", checks.flag("monotone", self.monotone))
        checks.choice("tie_break", self.tie_break, ("random", "first"))
        if self.tie_batches is None:
            put(self, "tie_batches", 4 if self.scheduled and self.tie_break == "random" else 1)
        put(self, "tie_batches", checks.integer("tie_batches", self.tie_batches, 1))

    def memory_size(self, spec: ProblemSpec) -> int:
        """Return H R, the number of floats in the last Q, if the learner is monotone. Otherwise return 0."""
        return spec.horizon * spec.layout.rows if self.monotone else 0

    def begin_memory(self, spec: ProblemSpec) -> Floats:
        """Return (memory_size,) infinities, because no earlier Q limits the first Q."""
        return np.full(self.memory_size(spec), np.inf)

    def _greedy_flags(self, flags: Ints) -> int:
        flags[kernels.MONOTONE] = int(bool(self.monotone))
        flags[kernels.RANDOM_TIES] = int(self.tie_break == "random")
        return kernels.VALUE_ITERATION


@dataclass(frozen=True, kw_only=True)
class ErrorAware(BonusLearner):
    """Learner whose bonus depends on the noise distribution of the releases.

    The privacy terms of the bonus are Lambda / D. Lambda is computed from bounds E on the noise, and D is the
    estimated number of visits.

    Parameters
    ----------
    priv_scale : float
        Factor of the privacy terms of the bonus.
    E_mode : "quantile", "sd" or "published"
        Rule that computes the bounds E from the noise distribution; see
        :class:`discreet.learners.estimation.tabular_model.ErrorBounds`.
    E_z : float
        Bound E in standard deviations of the noise, with ``E_mode="sd"``.
    noise_failure : float
        Probability that any noise exceeds its bound E, in (0, 1).
    """

    priv_scale: float | None = None
    E_mode: ErrorMode | None = None
    E_z: float | None = None
    noise_failure: float | None = None

    reads_row_sums: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "priv_scale", checks.real("priv_scale", self.priv_scale, 0.0))
        _ = self._bounds

    @property
    def _bounds(self) -> ErrorBounds:
        return ErrorBounds(
            self.E_mode or "quantile",
            0.05 if self.noise_failure is None else self.noise_failure,
            1.0 if self.E_z is None else self.E_z,
            self.reads_row_sums,
        )

    def errors(self, laws: Mapping[str, NoiseDistribution], spec: ProblemSpec) -> Floats:
        """Return the (5,) bounds E1, E2, E3, E_row, 0 on noise with the distributions ``laws``."""
        return self._bounds.of(laws, spec.layout, bonuses.users(spec))

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.priv_scale is not None and self.priv_scale < 1.0:
            yield f"priv_scale = {self.priv_scale:g} is below 1"
        if self.E_mode == "sd":
            yield "E_mode = 'sd' is no uniform bound of the noise"
        if self.E_mode == "published":
            yield "E_mode = 'published' is below the quantile of sums of few noises"


@dataclass(frozen=True, kw_only=True)
class PostProcessed(ErrorAware):
    """Learner that uses noisy counts, either raw or projected.

    Parameters
    ----------
    post : "raw" or "lp"
        ``raw``: use the noisy counts without change. ``lp``: project them onto consistent counts
        (:mod:`discreet.learners.estimation.model_kernels`).
    form : "reward" or "cost"
        Form of the estimates for raw counts. In ``cost``, the form of the papers, missing probability mass
        has cost 0, and the estimated reward is r~ = 1 - (N - R) / D. For projected counts, both forms give
        the same result.
    missing_mass : "none" or "optimistic"
        Value of the missing probability mass, for raw counts in reward form. ``none``: 0. ``optimistic``: the
        largest possible value of the later steps.
    clip_negative : bool
        True: replace negative raw counts by 0. If False, the proof of optimism does not hold.
    """

    post: Post | None = None
    form: Literal["reward", "cost"] | None = None
    missing_mass: Literal["none", "optimistic"] | None = None
    clip_negative: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("post", self.post, ("raw", "lp"))
        checks.choice("form", self.form, ("reward", "cost"))
        checks.choice("missing_mass", self.missing_mass, ("none", "optimistic"))
        object.__setattr__(self, "clip_negative", checks.flag("clip_negative", self.clip_negative))

    def _post_flags(self, flags: Ints, knobs: Floats) -> None:
        flags[kernels.POST] = POSTS[self.post or "lp"]
        flags[kernels.COST_FORM] = int(self.form == "cost")
        flags[kernels.MASS_OPTIMISTIC] = int(self.missing_mass == "optimistic")
        flags[kernels.CLIP_NEGATIVE] = int(bool(self.clip_negative))
        knobs[kernels.PRIVACY] = 1.0 if self.priv_scale is None else self.priv_scale
        knobs[kernels.LOWER_NOISE] *= knobs[kernels.PRIVACY]

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.post == "raw" and not self.clip_negative:
            yield "clip_negative = False leaves a gap in the proof of optimism"
