r"""Exploration by measured returns: compare the learner's return with that of one repeated action.

An optimistic learner must try every pair of a model before it stops exploring, and under privacy noise each
pair needs hundreds of users. The return of a policy is a much cheaper statistic: one scalar per user. This
explorer has three stages.

1. *Probe*. In the first batch, n users follow each of the A policies "always action a". It spends most of its
   budget on their clipped returns (:class:`discreet.core.count_query.CountQuery`, groups). The batch has its
   own noise and is not added to later batches (``Plan.forget``). The best of these policies is the *anchor*
   if its mean is ``_FOUND`` standard deviations above 0. If no mean is, the underlying learner continues with
   the whole budget, and only the users of the probe were spent.
2. *Watch*. Users follow the learner, and a share of the budget measures the *total* return of these users.
   The error of this total does not grow with the number of users (it is the prefix sum of a decaying stream).
   The learner's debt is

       D = rho * (anchor's mean) * (learner's users) - (their measured total),      rho = 1/4.

   While D is above an allowance B(k) = b (k / k_1)^alpha of some standard deviations of that measurement,
   users follow the anchor. This is regret balancing (Abbasi-Yadkori, Pacchiano and Phan 2020) between a
   fixed policy and a learner. A learner with almost no return is stopped at the cost B. A learner that
   only learns slowly is not stopped, because rho is small and C is small too: all returns above C = H / 20
   count as C. The data of the anchor's users enter the model like all other data.
3. *Alone*. Once the learner's return is clearly above rho times the anchor's, no more returns are released.
   The learner continues without the anchor and with the whole budget.

Regret falls in environments where repeating some action gives a reward that the learner without this explorer
would find only late (RiverSwim). Regret rises in environments where a repeated action has a small return, and
the learner's return is less than a quarter of it for the first thousand users. In these environments the
learner is slowed down. The measurements are in benchmarks/default_learner.md. No regret theorem is claimed.

Privacy does not depend on the explorer: groups, shares and policies are functions of earlier releases.

Group returns, the single probe, the debt and the last stage are not from the cited papers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import budget as budgets
from discreet.core.count_query import CountQuery
from discreet.core.families import GROUP_RETURNS
from discreet.core.short_repr import brief
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import LearnerState
from discreet.mechanisms.interfaces import Measurement, Plan, ProblemSpec, Release, Schedule

if TYPE_CHECKING:
    from discreet.learners.online.noise_aware import NoiseAwareUCBVI

Floats = NDArray[np.float64]

ANCHOR, LEARNER = 0, 1  # groups of the watch stage; the groups of the probe are the actions

# Chosen on random MDPs (dense, sparse, S = 12), a switching chain and locks, plus RiverSwim.
_CLIP = 0.05  # C / H
_PROBE_SHARE = 0.9
_WATCH_SHARE = 0.3
_PROBE = 6.0  # users per action in the probe: std of a group's return at the full budget, divided by C
_LEAST_PROBE = 8
_MOST_OF_USERS = 0.05  # largest share of all users in the probe; a larger probe is skipped
_FOUND = 2.0
_LEAST = 0.3  # least mean of an anchor, as a share of C
_PART = 0.25  # rho
_ALLOWANCE = 3.5  # b, in standard deviations of a group's sum in the watch
_LEAST_ALLOWANCE = 20.0  # least b, in clipped returns; applies without noise too
_GROWTH = 0.15  # alpha
_LET_GO = 3.0
_LET_GO_LAPLACE = 6.0  # for single batches: heavier tails, one test per release
_UNKNOWN_NOISE = 4.2247  # std of a return over C at (1, 1e-6), used if the budget is not known


@dataclass(frozen=True)
class Mean:
    """Generalised least-squares estimate of an arm's mean, stored as sums of weights and measurements."""

    exposure: float = 0.0
    total: float = 0.0
    variance: float = 0.0

    def add(self, value: float, users: float, variance: float) -> Mean:
        """Return the estimate after one more measurement, which has mean users * m and this variance."""
        w = users / variance if variance > 0.0 else users * 1e12
        return Mean(self.exposure + w * users, self.total + w * value, self.variance + w * w * variance)

    @property
    def value(self) -> float:
        """Return the estimate."""
        return self.total / self.exposure

    @property
    def std(self) -> float:
        """Return the standard deviation of the estimate."""
        return math.sqrt(self.variance) / self.exposure


@dataclass(frozen=True, eq=False)
class ReturnsState:
    """State of the explorer. It is public, as a function of releases only.

    Attributes
    ----------
    inner : LearnerState
        The learner's state.
    stage : "probe", "watch" or "alone"
    gain : float
        Gain of the stream's later measurements.
    anchor : int
        Action of the anchor.
    mean : Mean
        Mean of the anchor.
    behind, assigned : pairs
        Users of each group in the newest measurement, and in the current batch.
    users, debt : int and float
        Number of the learner's users, and the learner's debt (module docstring).
    gap : float
        Largest increase of the debt due to one more user.
    unit : float
        Standard deviation of the noise in one group's sum.
    fresh, noise : float
        Sums of the learner's measurements and of their variances.
    first : int
        Number of users at the start of the watch stage.
    queue : tuple of (group, users, number of the tie-break)
        Sub-batches not yet assigned.
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
    """Return the number of users per action in the probe; 0 if there are too few users for a probe."""
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
                noise = max(noise, gaussian)  # the privatizer uses either noise
    users = max(_LEAST_PROBE, math.ceil(_PROBE * noise))
    if spec.users is None or users * spec.actions > _MOST_OF_USERS * spec.users:
        return 0
    return users


def schedule(learner: NoiseAwareUCBVI, spec: ProblemSpec, plain: Schedule) -> Schedule:
    """Return a schedule: a first release after the probe, then the underlying learner's frequency."""
    first = probe_users(spec) * spec.actions
    if not first or spec.users is None:
        return plain
    times, at = [0], first
    while at < spec.users:
        times.append(at)
        at += learner._batch(at, spec)
    return replace(plain, times=np.array(times, np.int64), growth=None)


def query(spec: ProblemSpec, plain: CountQuery) -> CountQuery:
    """Return the underlying learner's query, extended with the returns of all groups."""
    if not probe_users(spec):
        return plain
    clip = _CLIP * spec.horizon
    return replace(plain, groups=max(2, spec.actions), clip=clip, return_share=_WATCH_SHARE)


def begin(spec: ProblemSpec, inner: LearnerState) -> ReturnsState:
    """Return the state before any measurement; without a probe the first stage is "alone"."""
    return ReturnsState(inner, "probe" if probe_users(spec) else "alone")


def plan(learner: NoiseAwareUCBVI, state: ReturnsState, release: Release) -> tuple[Plan, ReturnsState]:
    """Return the next users' policy, and the new state."""
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


# ---------------------------------------------------------------------------------- one release
def _read(learner: NoiseAwareUCBVI, state: ReturnsState, release: Release) -> ReturnsState:
    """Return the state after model and returns of a release are read, with the next sub-batches."""
    spec, newest = state.inner.spec, release.measurement
    if newest is None:
        raise ValueError("release: carries no measurement with noise of its own")
    first = probe_users(spec)
    if state.stage == "probe" or not first:  # the probe itself is measured at gain 1
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
        raise ValueError(f"release.users = {release.users}: nobody is left of {spec.users} users")
    mine = _learners_part(state, release.users, users)
    queue, parts = [(ANCHOR, users - mine, 0)], int(learner.tie_batches or 1)
    exploring = learner._exploring(release.users, users, spec)
    exploring = np.diff(np.minimum(mine, np.cumsum(exploring)), prepend=0)
    sizes = kernels.part_sizes(mine, exploring, parts)
    queue += [(LEARNER, size, j) for j, size in enumerate(sizes)]
    return replace(state, assigned=(0, 0), queue=tuple(item for item in queue if item[1] > 0))


def _at_gain(newest: Measurement, gain: float) -> Measurement:
    """Return the measurement rescaled to the stream's usual gain; the learner's weights need one gain."""
    if newest.gain == gain:
        return newest
    ratio = gain / newest.gain
    estimates = {
        name: replace(e, value=ratio * e.value, law=_scaled(e.law, ratio))
        for name, e in newest.estimates.items()
    }
    return replace(newest, estimates=estimates, gain=gain)


def _scaled(law: Any, ratio: float) -> Any:
    """Return the distribution of ratio times the noise."""
    return replace(law, scale=law.scale * ratio) if hasattr(law, "scale") else law


def _after_probe(state: ReturnsState, newest: Measurement, users: int, first: int) -> ReturnsState:
    """Return the state after the probe; the best action is the anchor if its mean is clearly above 0."""
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
    """Return the state with the learner's new debt, and in stage "alone" if the learner is good enough."""
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
    rest = 1.0 - math.sqrt(1.0 - state.gain**2)  # 1 - decay of the stream
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
    """Return the number of users in the next batch that follow the learner.

    These are all users, unless the debt approaches the allowance.
    """
    if state.stage == "alone" or state.debt <= 0.0:
        return batch
    clip = _CLIP * state.inner.spec.horizon
    allowance = max(_ALLOWANCE * state.unit, _LEAST_ALLOWANCE * clip)
    allowance *= ((users + batch) / state.first) ** _GROWTH
    return int(
        min(batch, max(0.0, (allowance - state.debt) / max(state.gap, 0.05 * _PART * state.mean.value)))
    )
