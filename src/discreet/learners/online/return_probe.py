r"""Exploration by measured returns: compare the learner's return with that of a repeated action.

The explorer has three stages.

1. *Probe*. In the first batch, n users follow each of the A policies "always action a". Most of the budget of
   this batch measures their returns, clipped at C = H / 20 (:class:`discreet.core.count_query.CountQuery`,
   groups). The policy with the largest mean return is the *anchor* if this mean is ``_FOUND`` standard
   deviations above 0. Without an anchor, the stage *Alone* follows.
2. *Watch*. Users follow the learner, and a share of the budget measures the total clipped return of these
   users. The debt of the learner is

       D = rho * (mean return of the anchor) * (number of users of the learner) - (their measured total),

   with rho = 1/4. Users follow the anchor while D is above an allowance B(k) = b (k / k_1)^alpha. Here k is
   the number of users, k_1 is its value at the start of this stage, and b is a few standard deviations of the
   measured total. The method is regret balancing (Abbasi-Yadkori, Pacchiano and Phan 2020).
3. *Alone*. When the return of the learner is clearly above rho times that of the anchor, the learner
   continues without the anchor and with the whole budget.

The privacy guarantee holds, because policies are functions of earlier releases. No regret theorem is known.
benchmarks/default_learner.md has measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.accounting import budget as budgets
from discreet.core.count_query import CountQuery
from discreet.core.families import GROUP_RETURNS
from discreet.core.short_repr import brief
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import LearnerState
from discreet.mechanisms.interfaces import Measurement, Plan, ProblemSpec, Release, Schedule

if TYPE_CHECKING:
    from discreet.learners.online.noise_aware import NoiseAwareUCBVI


# Indices of the two groups of users in the watch stage. In the probe, the groups are the actions.
ANCHOR, LEARNER = 0, 1

# These values were chosen on random MDPs, a switching chain, locks, and RiverSwim.
_CLIP = 0.05  # The ratio C / H. Returns above C count as C.
_PROBE_SHARE = 0.9  # Share of the budget for returns in the probe.
_WATCH_SHARE = 0.3  # Share of the budget for returns in the watch stage.
# Number of users per action in the probe, divided by (std of the noise in a group's return) / C.
_PROBE = 6.0
_LEAST_PROBE = 8  # Smallest number of users per action in the probe.
_MOST_OF_USERS = 0.05  # Largest share of all users in the probe; a larger probe is skipped.
_FOUND = 2.0  # An anchor's mean return is at least this number of standard deviations above 0.
_LEAST = 0.3  # Smallest mean return of an anchor, as a share of C.
_PART = 0.25  # The constant rho of the module.
_ALLOWANCE = 3.5  # The constant b, in standard deviations of the noise in a group's return sum.
_LEAST_ALLOWANCE = 20.0  # Smallest b, as a multiple of C; it applies without noise too.
_GROWTH = 0.15  # The exponent alpha of the module.
_LET_GO = 3.0  # Number of standard deviations at which the learner is clearly good enough.
# The same number for Laplace noise, which single batches can have. It is larger, because the tails of Laplace
# noise are heavier and there is one test at each release.
_LET_GO_LAPLACE = 6.0
_UNKNOWN_NOISE = 4.2247  # (std of the noise in a return) / C at (1, 1e-6), used if the budget is not known.


@dataclass(frozen=True)
class Mean:
    """Generalised least-squares estimate of the mean return m of one policy, stored as three sums.

    ``exposure`` is the weighted number of users, ``total`` is the weighted sum of measurements, and
    ``variance`` is the variance of ``total``.
    """

    exposure: float = 0.0
    total: float = 0.0
    variance: float = 0.0

    def add(self, value: float, users: float, variance: float) -> Mean:
        """Return the estimate after another measurement ``value``."""
        w = users / variance if variance > 0.0 else users * 1e12
        return Mean(self.exposure + w * users, self.total + w * value, self.variance + w * w * variance)

    @property
    def value(self) -> float:
        """Return the estimated mean return."""
        return self.total / self.exposure

    @property
    def std(self) -> float:
        """Return the standard deviation of the estimated mean return."""
        return math.sqrt(self.variance) / self.exposure


@dataclass(frozen=True, eq=False)
class ReturnsState:
    """Public state of the explorer.

    Attributes
    ----------
    inner : LearnerState
        State of the underlying learner.
    stage : "probe", "watch" or "alone"
    gain : float
        Gain of the measurements after the probe.
    anchor : int
        Action that the anchor repeats; -1 before there is an anchor.
    mean : Mean
        Estimate of the mean return of the anchor.
    behind, assigned : pairs of (ANCHOR, LEARNER)
        ``behind`` holds the number of users of each group in the latest measurement, where users of earlier
        batches are weighted by the decay. ``assigned`` holds their number in the current batch.
    users, debt : int and float
        Number of users who followed the learner in the watch stage, and the debt D of the module docstring.
    gap : float
        Largest amount by which one user of the learner can increase the debt.
    unit : float
        Standard deviation of the noise in the return sum of one group.
    fresh, noise : float
        Sum of the measurements of the learner's return, and sum of their noise variances.
    first : int
        Number of users at the start of the watch stage.
    queue : tuple of (group, users, number of the tie-break)
        Sub-batches without a policy.
    """

    __repr__ = brief

    inner: LearnerState
    stage: str = "probe"
    gain: float = 1.0
    anchor: int = -1
    mean: Mean = Mean()
    behind: tuple[float, float] = (0.0, 0.0)
    assigned: tuple[int, int] = (0, 0)
    users: int = 0
    debt: float = 0.0
    gap: float = 0.0
    unit: float = 0.0
    fresh: float = 0.0
    noise: float = 0.0
    first: int = 1
    queue: tuple[tuple[int, int, int], ...] = ()


def probe_users(spec: ProblemSpec) -> int:
    """Return the number of users per action in the probe; 0 means no probe."""
    budget: Any = getattr(spec, "budget", None)
    noise = _UNKNOWN_NOISE / math.sqrt(_PROBE_SHARE)
    if budget is not None:
        noise = 0.0
        if budget.mu is not None:
            noise = 1.0 / (budget.mu * math.sqrt(_PROBE_SHARE))
        elif budget.rho is not None:
            noise = 1.0 / math.sqrt(2.0 * budget.rho * _PROBE_SHARE)
        elif budget.epsilon is not None:
            noise = math.sqrt(2.0) / (budget.epsilon * _PROBE_SHARE)
            if budget.delta:
                gaussian = 1.0 / (budgets.gdp_mu(budget.epsilon, budget.delta) * math.sqrt(_PROBE_SHARE))
                noise = max(noise, gaussian)  # the privatizer may use Laplace or Gaussian noise
    users = max(_LEAST_PROBE, math.ceil(_PROBE * noise))
    if spec.users is None or users * spec.actions > _MOST_OF_USERS * spec.users:
        return 0
    return users


def schedule(learner: NoiseAwareUCBVI, spec: ProblemSpec, plain: Schedule) -> Schedule:
    """Return a schedule whose first release follows the probe.

    ``plain`` is the schedule of the underlying learner. Without a probe, ``plain`` is returned.
    """
    first = probe_users(spec) * spec.actions
    if not first or spec.users is None:
        return plain
    times, at = [0], first
    while at < spec.users:
        times.append(at)
        at += learner._batch(at, spec)
    return replace(plain, times=np.array(times, np.int64), growth=None)


def query(spec: ProblemSpec, plain: CountQuery) -> CountQuery:
    """Return the query ``plain`` of the underlying learner, extended with the returns of each group.

    Without a probe, ``plain`` is returned.
    """
    if not probe_users(spec):
        return plain
    clip = _CLIP * spec.horizon
    return replace(plain, groups=max(2, spec.actions), clip=clip, return_share=_WATCH_SHARE)


def begin(spec: ProblemSpec, inner: LearnerState) -> ReturnsState:
    """Return the state before the first measurement. ``inner`` is the state of the underlying learner."""
    return ReturnsState(inner, "probe" if probe_users(spec) else "alone")


def plan(learner: NoiseAwareUCBVI, state: ReturnsState, release: Release) -> tuple[Plan, ReturnsState]:
    """Return the next users' policy and the new state."""
    if release.number != state.inner.number:
        state = _read(learner, state, release)
    if not state.queue:
        raise ValueError(f"release.number = {release.number}: its last plan was handed out already")
    (group, users, part), queue = state.queue[0], state.queue[1:]
    inner, layout = state.inner, state.inner.spec.layout
    probing = state.stage == "probe"
    if probing or (group == ANCHOR and state.stage == "watch"):
        action = group if probing else state.anchor
        lowest = layout.row_action[layout.state_ptr[:-1]]
        row = np.where(layout.row_index[:, action] >= 0, action, lowest)
        policy = np.tile(row, (layout.horizon, 1))
    else:
        policy = learner._policy(inner, part)
    inner = learner._noted(inner, policy, users)
    out = Plan(policy, users, last=not queue)
    if probe_users(inner.spec):
        share = {"probe": _PROBE_SHARE, "watch": _WATCH_SHARE}.get(state.stage, 0.0)
        out = replace(out, group=group, return_share=share, forget=probing)
    assigned = list(state.assigned)
    if state.stage == "watch":
        assigned[group] += users
    return out, replace(state, inner=inner, queue=queue, assigned=(assigned[0], assigned[1]))


# ---------------------------------------------------------------------- planning from a release
def _read(learner: NoiseAwareUCBVI, state: ReturnsState, release: Release) -> ReturnsState:
    """Return the state after a new release, with the next sub-batches."""
    spec, newest = state.inner.spec, release.measurement
    if newest is None:
        raise ValueError("release: contains no measurement with separate noise")
    first = probe_users(spec)
    if state.stage == "probe" or not first:  # the gain of the probe is 1, and later batches have another gain
        state = replace(state, gain=math.sqrt(1.0 - newest.decay**2) if first else newest.gain)
    inner = learner._read(state.inner, replace(release, measurement=_at_gain(newest, state.gain)))
    state = replace(state, inner=inner)
    if release.number == 0 and first:
        return replace(state, queue=tuple((action, first, 0) for action in range(spec.actions)))
    if state.stage == "probe":
        state = _after_probe(state, newest, release.users, first)
    elif state.stage == "watch":
        state = _after_watch(state, newest)
    users = learner._batch(release.users, spec)
    if users < 1:
        raise ValueError(f"release.users = {release.users}: must be below users = {spec.users}")
    mine = _learners_part(state, release.users, users)
    queue, parts = [(ANCHOR, users - mine, 0)], int(learner.tie_batches or 1)
    exploring = learner._exploring(release.users, users, spec)
    exploring = np.diff(np.minimum(mine, np.cumsum(exploring)), prepend=0)
    sizes = kernels.part_sizes(mine, exploring, parts)
    queue += [(LEARNER, size, j) for j, size in enumerate(sizes)]
    return replace(state, assigned=(0, 0), queue=tuple(item for item in queue if item[1] > 0))


def _at_gain(newest: Measurement, gain: float) -> Measurement:
    """Return the measurement rescaled to ``gain``."""
    if newest.gain == gain:
        return newest
    ratio = gain / newest.gain
    estimates = {
        name: replace(e, value=ratio * e.value, law=_scaled(e.law, ratio))
        for name, e in newest.estimates.items()
    }
    return replace(newest, estimates=estimates, gain=gain)


def _scaled(law: Any, ratio: float) -> Any:
    """Return the noise distribution ``law`` with its scale multiplied by ``ratio``, if it has a scale."""
    return replace(law, scale=law.scale * ratio) if hasattr(law, "scale") else law


def _after_probe(state: ReturnsState, newest: Measurement, users: int, first: int) -> ReturnsState:
    """Return the state after the probe: stage "watch" if there is an anchor, else "alone"."""
    returns = newest.estimates[GROUP_RETURNS]
    clip = _CLIP * state.inner.spec.horizon
    sums = returns.value[: state.inner.spec.actions] / newest.gain
    variance = (returns.law.std() / newest.gain) ** 2 + 0.25 * clip * clip * first
    best = int(np.argmax(sums))
    mean = Mean().add(float(sums[best]), float(first), variance)
    if mean.value <= _FOUND * mean.std:
        return replace(state, stage="alone")
    return replace(state, stage="watch", anchor=best, mean=mean, gap=_PART * mean.value, first=users)


def _after_watch(state: ReturnsState, newest: Measurement) -> ReturnsState:
    """Return the state with the new debt of the learner, computed from the latest measurement."""
    returns, gain = newest.estimates[GROUP_RETURNS], newest.gain
    clip, sigma = _CLIP * state.inner.spec.horizon, returns.law.std()
    behind = (
        state.assigned[ANCHOR] + newest.decay * state.behind[ANCHOR],
        state.assigned[LEARNER] + newest.decay * state.behind[LEARNER],
    )
    mean, spread = state.mean, 0.25 * clip * clip
    if behind[ANCHOR] > 0.0:
        at = gain * behind[ANCHOR]
        mean = mean.add(float(returns.value[ANCHOR]), at, sigma * sigma + spread * at)
    y, users = float(returns.value[LEARNER]), state.users + state.assigned[LEARNER]
    rest = 1.0 - math.sqrt(1.0 - state.gain**2)  # 1 - decay, with the decay of later measurements
    earned = (y + rest * state.fresh) / gain
    error = math.sqrt((sigma * sigma + rest * rest * state.noise) / gain**2 + spread * users)
    target = _PART * mean.value
    debt = users * target - earned
    debt_std = math.hypot(error, users * _PART * mean.std)
    gap, better = target, False
    if behind[LEARNER] > 0.0:
        recent = y / (gain * behind[LEARNER])
        recent_std = math.sqrt(sigma * sigma + spread * behind[LEARNER]) / (gain * behind[LEARNER])
        gap = max(0.0, target - max(recent - recent_std, 0.0))
        clearly = _LET_GO_LAPLACE if "laplace" in returns.law.family else _LET_GO
        better = recent - target > clearly * math.hypot(recent_std, _PART * mean.std)
    weak = mean.value < max(mean.std, _LEAST * clip)
    alone = better or weak or debt < -_LET_GO * debt_std
    return replace(
        state, stage="alone" if alone else "watch", mean=mean, behind=behind, users=users, debt=debt, gap=gap,
        unit=sigma, fresh=state.fresh + y, noise=state.noise + sigma * sigma,
    )  # fmt: skip


def _learners_part(state: ReturnsState, users: int, batch: int) -> int:
    """Return how many of the next ``batch`` users follow the learner."""
    if state.stage == "alone" or state.debt <= 0.0:
        return batch
    clip = _CLIP * state.inner.spec.horizon
    allowance = max(_ALLOWANCE * state.unit, _LEAST_ALLOWANCE * clip)
    allowance *= ((users + batch) / state.first) ** _GROWTH
    return int(
        min(batch, max(0.0, (allowance - state.debt) / max(state.gap, 0.05 * _PART * state.mean.value)))
    )
