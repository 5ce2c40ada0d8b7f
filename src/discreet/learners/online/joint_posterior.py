r"""Learner for stationary environments: one model is fitted to all releases, and posterior samples explore.

- *Fit*. At each release, the model is fitted to the noisy counts of all releases
  (:mod:`discreet.learners.online.joint_posterior_kernels`).
- *Exploration*. A batch is split into sub-batches, and each sub-batch follows the optimal policy of one
  sampled model. A sampled model is fitted to perturbed measurements, with a perturbed prior mean.
- *Query*. The learner queries transition counts per step, and rewards that are summed over steps and clipped
  to a total of C per user. C starts at 3, and is later three times the released mean return. When C reaches
  H / 2, centred rewards per step replace the clipped sums.
- *Misfit test*. If the residuals of the transition counts show that the environment is not stationary, a
  :class:`~discreet.learners.online.noise_aware.NoiseAwareUCBVI` receives all measurements and plans all later
  policies.

The privacy guarantee holds, because policies and C are functions of releases. Regret has no bound.

Sources: Thompson 1933 and Osband, Russo and Van Roy 2013 (posterior sampling); Papandreou and Yuille 2010
(samples by fitting perturbed data).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import budget as budgets
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, CUT_REWARDS, TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.online import joint_posterior_kernels as kernels
from discreet.learners.online import noise_aware_kernels as noise_kernels
from discreet.learners.online.joint_posterior_kernels import Evidence, Scratch
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.summary import summary_of
from discreet.learners.online.tabular_base import LearnerState
from discreet.mechanisms.interfaces import Ask, Measurement, Plan, ProblemSpec, Release, Schedule
from discreet.utils.config import Knobs
from discreet.utils.random_streams_kernels import ROLE_SAMPLES, open_at

# A sub-batch: its policy as (H, S) rows (admissible pairs), and its number of users.
Part = tuple[Ints, int]

_FIRST_CUT = 3.0  # First value of C.
_CUT_OVER_RETURN = 3.0  # Later, C is this number times the released mean return.
# Centred rewards replace clipped sums when C is at least this share of H. At this C, the noise of a clipped
# sum is 0.7 times that of centred rewards that are summed over steps.
_CENTERED_FROM = 0.5
# Let the standard deviation of the noise equal the sensitivity (``noise_unit`` is 1). Then the first batch
# has this number times sqrt(pairs) users.
_FIRST_BATCH = 56.0 / 4.2247
# With ``noise_unit`` 1, the fit of a sample after this number of users starts halfway between the draw from
# the prior and the last fit.
_HALF_WAY = 50.0 / 4.2247
_LEAST_FIRST = 8  # Smallest number of users in the first batch.
# Normal prior of the logits. The logits of transitions and of the first state have mean 0 and std _ROW_STD.
# The logits of mean rewards have mean _REWARD_MEAN and std _REWARD_STD.
_ROW_STD, _REWARD_STD, _REWARD_MEAN = 3.0, 4.0, -1.0
_ALARM = 5.0  # Misfit threshold in std; see tests/learners/online/joint_posterior/test_misfit.py.
_ALARM_RELEASES = 3  # Number of releases before the first misfit test.
_STARTS = 2**20  # First index of the random streams of repeated fits; lower indices are for samples.
_CAREFUL = 0.1  # Factor of the learning rate in a second fit, if the first fit decreased the likelihood.
# After a failed misfit test, the model is fitted this number of times, with three times as many steps. The
# most likely fit is tested.
_AGAIN = 3
_UNKNOWN_NOISE = 4.2247  # Noise std / sensitivity at (1, 1e-6), used if the budget is not known.
_QUIET = 1.0  # If the noise unit is below this value, a fit has more steps.


def noise_unit(spec: ProblemSpec) -> float:
    """Return the standard deviation of the noise at the full budget, divided by the l2 sensitivity.

    Returns 0 without noise.
    """
    budget = spec.budget
    if budget is None:
        return _UNKNOWN_NOISE
    if budget.mu is not None:
        return 1.0 / budget.mu
    if budget.rho is not None:
        return 1.0 / math.sqrt(2.0 * budget.rho)
    if budget.epsilon is None:
        return 0.0
    if budget.delta:
        return 1.0 / budgets.gdp_mu(budget.epsilon, budget.delta)
    return 2.0 * math.sqrt(spec.horizon) / budget.epsilon


@dataclass(frozen=True, eq=False)
class JointState:
    """Public state of the learner between releases.

    Attributes
    ----------
    ties : (2,) words
        Key of the public random stream.
    evidence : Evidence
        All measurements, and the policies of all users in them.
    theta : (R S + R + S,) floats
        Logits of the model in the last fit.
    cut : float
        Clipping threshold C of the next batch.
    centered : bool
        True if centred rewards replace clipped sums.
    number : int
        Number of the last release that the learner has read; -1 before the first release.
    queue, open : tuples of parts
        ``queue`` holds the sub-batches without a policy. ``open`` holds the sub-batches that got a policy
        after the last release.
    misfit : float
        Misfit of the last fit, in standard deviations.
    inner : LearnerState, optional
        State of the noise-aware learner if it plans the policies; otherwise None.
    """

    __repr__ = brief

    spec: ProblemSpec
    ties: NDArray[np.uint64]
    evidence: Evidence
    theta: Floats
    cut: float
    centered: bool
    number: int = -1
    queue: tuple[Part, ...] = ()
    open: tuple[Part, ...] = ()
    misfit: float = 0.0
    inner: LearnerState | None = None


@dataclass(frozen=True, kw_only=True)
class JointPosterior(Knobs):
    """Learner that fits one stationary model to all releases jointly, and explores by posterior samples.

    The environment must be declared stationary (``Spec.stationary``). The privatizer must release clipped
    rewards: ``Central`` with release ``auto``, ``decaying`` or ``batches``, or ``NoPrivacy``. Simulations are
    not fused: a run of 20 000 users takes about 1 second with 6 states, and 3 seconds with 20 states.

    Parameters
    ----------
    samples : int
        Number of models that are sampled for each batch, at least 1.
    width : float
        Size of the perturbation of measurements, in standard deviations of a measurement. It applies to all
        samples except the last.
    wide, wide_share : float
        Width of the last sample, and its share of the batch, in [0, 1). All other samples have equal numbers
        of users. If ``samples`` is 1, ``wide`` and ``wide_share`` have no effect.
    replan_growth : float
        Factor by which the number of users grows from one release to the next, above 1.
    fit_steps : int
        Number of Adam steps in a fit. None: 60, or 120 if the standard deviation of the noise is below the
        sensitivity.
    rate : float
        Learning rate of the first Adam step, in logits.
    reward_share : float
        Share of the privacy budget for rewards, in (0, 1).
    hand_over : bool
        True: if the environment is clearly not stationary, a noise-aware learner plans the later policies.
        False: the learner keeps its stationary model.
    """

    samples: int | None = None
    width: float | None = None
    wide: float | None = None
    wide_share: float | None = None
    replan_growth: float | None = None
    fit_steps: int | None = None
    rate: float | None = None
    reward_share: float | None = None
    hand_over: bool | None = None

    needs_stationary: ClassVar[bool] = True
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "samples": 4, "width": 0.3, "wide": 1.0, "wide_share": 0.08, "replan_growth": 1.25,
            "fit_steps": None, "rate": 0.4, "reward_share": 0.25, "hand_over": True,
        },
        "committed": {"hand_over": False},
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "samples", checks.integer("samples", self.samples, 1, 1000))
        for name in ("width", "wide"):
            put(self, name, checks.real(name, getattr(self, name), 0.0))
        put(self, "wide_share", checks.real("wide_share", self.wide_share, 0.0, 1.0, open_high=True))
        growth = checks.real("replan_growth", self.replan_growth, 1.0, open_low=True)
        put(self, "replan_growth", growth)
        if self.fit_steps is not None:
            put(self, "fit_steps", checks.integer("fit_steps", self.fit_steps, 1))
        put(self, "rate", checks.real("rate", self.rate, 0.0, open_low=True))
        share = checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)
        put(self, "reward_share", share)
        put(self, "hand_over", checks.flag("hand_over", self.hand_over))

    # ---------------------------------------------------------------------- schedule and query
    def tuned(self, spec: ProblemSpec) -> JointPosterior:
        """Return this learner with ``fit_steps`` chosen from ``spec.budget`` if it is None."""
        if self.fit_steps is not None:
            return self
        return replace(self, fit_steps=120 if noise_unit(spec) < _QUIET else 60)

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule. Release times after the first batch are geometric."""
        self._check(spec)
        if spec.users is None:
            return Schedule(None, reads="measurements", plans="deterministic")
        times, at = [0], self._batch(0, spec)
        while at < spec.users:
            times.append(at)
            at += self._batch(at, spec)
        return Schedule(
            spec.users, times=np.array(times, np.int64), reads="measurements", plans="deterministic"
        )

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for transition counts per step and for clipped or centred rewards."""
        self._check(spec)
        return CountQuery(
            spec.layout,
            visits=False,
            center_rewards=True,
            reward_share=self.reward_share,
            cut=_first_cut(spec),
        )

    def _check(self, spec: ProblemSpec) -> None:
        if not spec.stationary:
            raise ValueError(
                "spec.stationary = False: must be true, this learner fits one model of all steps; "
                "use 'noise-aware'"
            )

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        """Return the number of users in the batch that follows the release after ``users`` users."""
        if users == 0:
            pairs = math.sqrt(spec.layout.rows)
            size = max(_LEAST_FIRST, math.ceil(_FIRST_BATCH * pairs * noise_unit(spec)))
        else:
            size = max(1, math.ceil((float(self.replan_growth or 1.0) - 1.0) * users))
        return size if spec.users is None else min(size, spec.users - users)

    # -------------------------------------------------------------- planning from a release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> JointState:
        """Return the state before the first release.

        ties : (2,) key of the public random stream that draws samples.
        """
        self._check(spec)
        cut = _first_cut(spec)
        return JointState(
            spec, np.array(ties, np.uint64), _nothing(spec), prior(spec.layout)[0], cut,
            cut >= _CENTERED_FROM * spec.horizon,
        )  # fmt: skip

    def plan(self, state: JointState, release: Release, ask: Ask | None = None) -> tuple[Plan, JointState]:
        """Return the policy of the next users, and the new state.

        Each call with the same release returns the next policy of the batch. Raises ``ValueError`` if the
        batch has no further policy. ``ask`` is not used.
        """
        if release.number != state.number:
            state = self._read(state, release)
        if not state.queue:
            raise ValueError(f"release.number = {release.number}: its last plan was handed out already")
        part, queue = state.queue[0], state.queue[1:]
        plan = Plan(
            state.spec.layout.row_action[part[0]], part[1], last=not queue,
            cut=math.inf if state.centered else state.cut,
        )  # fmt: skip
        return plan, replace(state, queue=queue, open=(*state.open, part))

    def _read(self, state: JointState, release: Release) -> JointState:
        spec = state.spec
        users = self._batch(release.users, spec)
        if users < 1:
            raise ValueError(f"release.users = {release.users}: must be below users = {spec.users}")
        if state.inner is not None:
            state = _into_inner(state, release.users, *_newest(state, release))
        elif release.number > 0:
            state = self._fitted(self._with(state, release), release.number)
        if state.inner is not None:
            queue = tuple(_inner_parts(state, release.users, users))
            return replace(state, number=release.number, queue=queue, open=())
        if release.number == 0:
            policies = _single_actions(spec.layout, int(self.samples or 1))
        else:
            policies = self._sampled(state, release)
        drawn = release.number > 0 and len(policies) > 1
        wide = round(float(self.wide_share or 0.0) * users) if drawn else 0
        equal, n = users - wide, len(policies) - drawn
        parts = [(p, equal * (j + 1) // n - equal * j // n) for j, p in enumerate(policies[:n])]
        parts += [(p, wide) for p in policies[n:]]
        return replace(state, number=release.number, queue=tuple(x for x in parts if x[1]), open=())

    def _with(self, state: JointState, release: Release) -> JointState:
        """Return the state that includes the new measurement and the value of C for the next batch."""
        old, (moves, rewards, sigmas, newest) = state.evidence, _newest(state, release)
        laplace = "laplace" in newest.estimates[TRANSITIONS].law.family
        centered = CENTERED_REWARDS in newest.estimates
        number, several = old.gain.size, len(state.open)
        evidence = Evidence(
            rows=np.concatenate([old.rows, np.array([rows for rows, _ in state.open])]),
            users=np.append(old.users, [float(users) for _, users in state.open]),
            batch=np.append(old.batch, np.full(several, number)),
            cut=np.append(old.cut, np.full(several, math.inf if state.centered else state.cut)),
            decay=np.append(old.decay, newest.decay),
            gain=np.append(old.gain, newest.gain),
            centered=np.append(old.centered, int(centered)),
            cuts=np.append(old.cuts, state.cut),
            sigma_moves=np.append(old.sigma_moves, sigmas[0]),
            sigma_rewards=np.append(old.sigma_rewards, sigmas[1]),
            tails=np.append(old.tails, 3.0 if laplace else 0.0),
            moves=np.concatenate([old.moves, moves[None]]),
            rewards=np.concatenate([old.rewards, rewards[None]]),
        )
        state = replace(state, evidence=evidence)
        return state if centered or state.centered else _next_cut(state)

    def _fitted(self, state: JointState, number: int) -> JointState:
        """Continue the last fit, then test if a stationary model explains the measurements."""
        mine, spec, evidence = self.tuned(state.spec), state.spec, state.evidence
        mean, std = prior(spec.layout)
        work, steps, rate = _scratch(state), int(mine.fit_steps or 1), float(mine.rate or 0.0)
        theta = _descended(state.theta, state.theta, mean, std**-2.0, evidence, work, steps, rate)
        off = _misfit(theta, evidence, work)
        if self.hand_over and off > _ALARM and number >= _ALARM_RELEASES:  # test better fits too
            best, slope = np.inf, np.zeros_like(theta)
            for k in range(_AGAIN):
                other = theta.copy()
                if k:
                    kernels.fill_normals(open_at(state.ties, ROLE_SAMPLES, number, _STARTS + k), other)
                    other = mean + std * other
                kernels.fit(other, mean, std**-2.0, evidence, work, 3 * steps, rate)
                found = kernels.loss(other, mean, std**-2.0, evidence, work, slope)
                if found < best:
                    best, theta = found, other
            off = _misfit(theta, evidence, work)
            if off > _ALARM:
                return _handed_over(replace(state, theta=theta, misfit=off), float(self.reward_share or 0.0))
        return replace(state, theta=theta, misfit=off)

    def _sampled(self, state: JointState, release: Release) -> list[Ints]:
        """Return the optimal policies of the sampled models, each as (H, S) rows."""
        spec, work, policies = state.spec, _scratch(state), []
        for theta in self.samples_of(state, release.number, release.users):
            kernels.decode(theta, work)
            policy = np.zeros((spec.horizon, spec.states), np.int64)
            kernels.best_policy(work.model, work.means, spec.layout.state_ptr, spec.horizon, policy)
            policies.append(policy)
        return policies

    def samples_of(self, state: JointState, number: int, users: int) -> Iterator[Floats]:
        """Yield the logits of each model that is sampled at release ``number``, after ``users`` users.

        ``state.theta`` is the last fit.
        """
        mine, evidence, coins_of = self.tuned(state.spec), state.evidence, state.ties
        mean, std = prior(state.spec.layout)
        work, fitted = _scratch(state), _scratch(state)
        kernels.decode(state.theta, fitted)
        kernels.predict(evidence, fitted)
        moved = evidence._replace(moves=evidence.moves.copy(), rewards=evidence.rewards.copy())
        weight = users / (users + _HALF_WAY * noise_unit(state.spec))
        for j in range(int(mine.samples or 1)):
            coins, draw = open_at(coins_of, ROLE_SAMPLES, number, j), np.empty_like(mean)
            kernels.fill_normals(coins, draw)
            draw = mean + std * draw
            width = float((self.wide if j == int(mine.samples or 1) - 1 > 0 else self.width) or 0.0)
            kernels.perturb(evidence, fitted, width, coins, moved.moves, moved.rewards)
            theta = weight * state.theta + (1.0 - weight) * draw
            yield _descended(
                theta,
                state.theta,
                draw,
                std**-2.0,
                moved,
                work,
                int(mine.fit_steps or 1),
                float(mine.rate or 0.0),
            )

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each part of the learner that no regret theorem covers."""
        yield "posterior samples of a local fit, narrower than the posterior, replace confidence bounds"
        if self.hand_over:
            yield "hand_over = True leaves the model by a test of residuals"

    def summary(self) -> str:
        """Return a string that lists the options."""
        return f"{summary_of(self, self.heuristics())} The privatizer prices them: its guarantee holds."


# --------------------------------------------------------------------------------- the model
def prior(layout: Layout) -> tuple[Floats, Floats]:
    """Return the means and the standard deviations of the normal prior of logits, each (R S + R + S,).

    The logits are those of R S transition probabilities, R mean rewards, and the distribution of the first
    state.
    """
    size, moves = kernels.parameters(layout.rows, layout.states), layout.rows * layout.states
    mean, std = np.zeros(size), np.full(size, _ROW_STD)
    mean[moves : moves + layout.rows] = _REWARD_MEAN
    std[moves : moves + layout.rows] = _REWARD_STD
    return mean, std


def _first_cut(spec: ProblemSpec) -> float:
    return min(_FIRST_CUT, float(spec.horizon))


def _nothing(spec: ProblemSpec) -> Evidence:
    horizon, rows, states = spec.horizon, spec.layout.rows, spec.states
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    return Evidence(
        rows=np.zeros((0, horizon, states), np.int64), users=none, batch=whole, cut=none, decay=none,
        gain=none, centered=whole, cuts=none, sigma_moves=none, sigma_rewards=none, tails=none,
        moves=np.zeros((0, horizon, rows, states)), rewards=np.zeros((0, horizon, rows)),
    )  # fmt: skip


def _scratch(state: JointState) -> Scratch:
    spec, evidence = state.spec, state.evidence
    return kernels.scratch(
        evidence.users.size, evidence.gain.size, spec.horizon, spec.layout.rows, spec.states
    )


def _descended(
    start: Floats,
    safe: Floats,
    prior_mean: Floats,
    precision: Floats,
    evidence: Evidence,
    work: Scratch,
    steps: int,
    rate: float,
) -> Floats:
    """Return the logits of a fit that starts at ``start`` and is at least as likely as ``safe``.

    If the fit is less likely than ``safe``, a second fit starts at ``safe`` with a tenth of the learning
    rate.
    """
    slope, found = np.zeros_like(start), start.copy()
    kernels.fit(found, prior_mean, precision, evidence, work, steps, rate)
    loss = kernels.loss(found, prior_mean, precision, evidence, work, slope)
    if loss <= kernels.loss(safe, prior_mean, precision, evidence, work, slope):
        return found
    careful = safe.copy()
    kernels.fit(careful, prior_mean, precision, evidence, work, steps, _CAREFUL * rate)
    best = kernels.loss(careful, prior_mean, precision, evidence, work, slope)
    return careful if best < kernels.loss(safe, prior_mean, precision, evidence, work, slope) else safe.copy()


def _misfit(theta: Floats, evidence: Evidence, work: Scratch) -> float:
    kernels.decode(theta, work)
    kernels.predict(evidence, work)
    return float(kernels.misfit(evidence, work))


def _single_actions(layout: Layout, samples: int) -> list[Ints]:
    """Return the policies of the first batch, (H, S) rows each. Each policy repeats one action."""
    policies = []
    for j in range(max(samples, layout.actions)):
        admissible = np.diff(layout.state_ptr)
        row = layout.state_ptr[:-1] + np.minimum(j % layout.actions, admissible - 1)
        policies.append(np.tile(row, (layout.horizon, 1)))
    return policies


def _newest(state: JointState, release: Release) -> tuple[Floats, Floats, tuple[float, float], Measurement]:
    """Return the latest measurement as arrays.

    Returns transition counts (H, R, S), reward sums (H, R), noise deviations and the measurement.
    """
    layout, newest = state.spec.layout, release.measurement
    if newest is None:
        raise ValueError(
            "release: contains no measurement with separate noise; use release 'batches', 'decaying' or "
            "'auto'"
        )
    moves = layout.to_rows(newest.estimates[TRANSITIONS].value)
    family = newest.estimates[CENTERED_REWARDS if CENTERED_REWARDS in newest.estimates else CUT_REWARDS]
    found, rewards = layout.to_rows(family.value), np.zeros(moves.shape[:2])
    rewards[: found.shape[0]] = found
    return moves, rewards, (newest.estimates[TRANSITIONS].law.std(), family.law.std()), newest


def _next_cut(state: JointState) -> JointState:
    """Return the state with the value of C for the next batch.

    C is about three times the released mean return, is at most H, and never decreases.
    """
    evidence, horizon = state.evidence, float(state.spec.horizon)
    behind = 0.0
    for i, decay in enumerate(evidence.decay):
        behind = decay * behind + evidence.users[evidence.batch == i].sum()
    users = evidence.gain[-1] * behind
    error = evidence.sigma_rewards[-1] * math.sqrt(state.spec.layout.rows)
    mean = (float(evidence.rewards[-1, 0].sum()) - error) / users
    wanted = math.ceil(2.0 * _CUT_OVER_RETURN * mean) / 2.0  # reward grids contain multiples of 1/2
    cut = min(horizon, max(state.cut, wanted))
    return replace(state, cut=cut, centered=cut >= _CENTERED_FROM * horizon)


# ------------------------------------------------------- change to the noise-aware learner
_INNER = NoiseAwareUCBVI(pooled="none")


def _handed_over(state: JointState, share: float) -> JointState:
    """Pass all measurements to a noise-aware learner, and return the state with this learner.

    Clipped reward sums are replaced by the reward sums per step that the fitted model predicts.
    """
    spec, evidence, work = state.spec, state.evidence, _scratch(state)
    kernels.decode(state.theta, work)
    kernels.predict(evidence, work)
    inner = _INNER.begin(spec, state.ties)
    assert isinstance(inner, LearnerState)
    zeros = np.zeros(evidence.rewards.shape[1:])
    inner = _step(inner, 0, np.zeros(evidence.moves.shape[1:]), zeros, (0.0, 0.0), 0.0, 1.0)
    state = replace(state, inner=inner, centered=True)
    users = 0
    for i in range(evidence.gain.size):
        mine = np.flatnonzero(evidence.batch == i)
        state = replace(state, open=tuple((evidence.rows[p], int(evidence.users[p])) for p in mine))
        rewards, sigma = evidence.rewards[i], evidence.sigma_rewards[i]
        if not evidence.centered[i]:
            rewards = evidence.gain[i] * work.seen[i] * (work.means - 0.5)
            sigma = evidence.sigma_moves[i] * math.sqrt((1.0 - share) / (2.0 * share))
        inner = _noted(state)
        users += int(evidence.users[mine].sum())
        inner = _step(
            inner, users, evidence.moves[i], rewards, (evidence.sigma_moves[i], sigma), evidence.decay[i],
            evidence.gain[i],
        )  # fmt: skip
        state = replace(state, inner=inner)
    return replace(state, evidence=_nothing(spec), open=())


def _into_inner(
    state: JointState,
    users: int,
    moves: Floats,
    rewards: Floats,
    sigmas: tuple[float, float],
    newest: Measurement,
) -> JointState:
    """Return the state after the noise-aware learner has read another measurement."""
    return replace(
        state, inner=_step(_noted(state), users, moves, rewards, sigmas, newest.decay, newest.gain)
    )


def _noted(state: JointState) -> LearnerState:
    """Return a state of the noise-aware learner that includes the users since the last release."""
    assert state.inner is not None
    memory, layout = state.inner.memory.copy(), state.spec.layout
    for rows, users in state.open:
        noise_kernels.note_assignments(
            memory, layout.horizon, layout.rows, False, np.ascontiguousarray(rows), users
        )
    return replace(state.inner, memory=memory)


def _step(
    inner: LearnerState,
    users: int,
    moves: Floats,
    rewards: Floats,
    sigmas: tuple[float, float],
    decay: float,
    gain: float,
) -> LearnerState:
    errors = np.zeros(noise_kernels.ERRORS)
    errors[noise_kernels.SIGMA_T], errors[noise_kernels.SIGMA_R] = sigmas
    errors[noise_kernels.DECAY], errors[noise_kernels.GAIN] = decay, gain
    return _INNER.stepped(inner, users, inner.number + 1, moves, rewards, errors)


def _inner_parts(state: JointState, users: int, batch: int) -> list[Part]:
    """Return the policies of the noise-aware learner as (H, S) rows, with their numbers of users.

    ``users`` is the number of users before the batch, and ``batch`` is the number of users in it.
    """
    assert state.inner is not None
    index, states = state.spec.layout.row_index, np.arange(state.spec.states)[None, :]
    return [(index[states, policy], n) for policy, n in _INNER.policies(state.inner, users, batch)]
