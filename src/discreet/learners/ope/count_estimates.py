r"""Values of policies with intervals, estimated from one noisy release of counts.

All computations are post-processing of a :class:`~discreet.mechanisms.interfaces.StepwiseRelease`, which is
read twice, step by step. For a pair (s, a) at step h, let N^ be the visits, M the row of transition counts,
and C the sum of centred rewards, all with noise. Their noise has the standard deviations sigma_n, sigma_t and
sigma_r, which follow from the noise distributions of the release. N^ is the least-squares combination of the
released visits and the sum of the row M. Let b_h = min(H - h, bound of the return), and let c be the mean of
V_{h+1} over states with equal weights. The value of a fixed policy is estimated from the last step to the
first:

    q_h(s, a) = c + 1/2 + g(N^) Y,  Y = M (V_{h+1} - c) + C;  V_h(s) = sum_a pi(a | s) q_h(s, a).    (1)

Here g(N^) is the unbiased estimate of 1 / N. If rewards r are known, they replace 1/2, and C is 0. The
declared rules for returns (``ProblemSpec.returns``) are used: after an episode has ended, its remaining value
is known exactly. The largest possible remaining return is b_h, and values are at least the smallest possible
return. In (1), counts are not truncated or projected, and values are not clipped. Therefore (1) is unbiased.

* **The centre c.** Because V - c sums to 0, the noise of M (V - c) is not correlated with the noise of N^.
  This centre also minimises ||V - c||. The noise of M (V - c) has standard deviation sigma_t ||V - c||_2.
* **The reciprocal.** Let X ~ N(N, sigma^2) with N > 0, and m(x) = (1 - Phi(x)) / phi(x) the Mills ratio. Then
  E[m(X / sigma) / sigma] = 1 / N (Voinov and Nikulin 1993, Unbiased Estimators and Their Applications 1).
  Therefore g is the unbiased estimate m(N^ / sigma) / sigma, or 1 / N^ without noise. The simple reciprocal 1
  / N^ is too large by the relative error sigma^2 / N^2.
* **Independence.** V_{h+1} is a function of the released counts of steps > h. If a planner by backward
  induction chose the actions at later steps, they are functions of these counts too. The noise of step h is
  independent of these counts. Therefore the conditional variance of (1) that is due to noise is g^2
  (sigma_t^2 ||V - c||^2 + sigma_r^2 + (g Y)^2 sigma_n^2). The last term is from the delta method. Given the
  visited states, the next states are independent of the later part of the episodes, with variance Var(r + V)
  / N.
* **Variance of the value.** The variance is the sum over h, s of d_h(s)^2 times the variance at (h, s). Here
  d is the estimated occupancy of the policy, projected onto a simplex. The variance of the initial
  distribution, which is estimated from the visits of step 0, is added. The errors of the initial distribution
  and of step 0 can be correlated, so their standard deviations are summed.

**Support.** A pair is used if N^ > 4 sigma_n, N^ >= 1 and the standard deviation of q is at most b_h / 4. The
value of any other pair can be anywhere in [0, b_h], or in [r, min(r + b_{h+1}, b_h)] for known r. (1) is
computed three times. For pairs that are not used, the three computations use the low end of this range, a
value in the middle, and the high end.

**Bias at the threshold.** Among used pairs close to the threshold, pairs with positive noise in N^ are
over-represented, so g Y is biased towards 0. The low and high ends of these pairs are therefore moved apart
by 0.9 exp(4 - N^ / sigma_n) |g Y|. On average this exceeds the bias for every true N >= 3 sigma_n
(tests/learners/ope/test_count_estimates.py). If N is smaller, fewer than one pair in six passes the
threshold.

**Selection.** In each state, the learned policy takes the action that was best in the same release, so (1)
overestimates its value. Let s_a be the standard deviation of q_h(s, a), including the errors of all later
steps (the sum over s' of P^2 times the variance at s'). There are two bounds on the mean of this selection
bias at (h, s):

* For any selection rule, the error of the chosen action is at most the largest error among the competing
  actions. Actions whose values differ by more than 4 times the sum of their standard deviations do not
  compete. Both ends are moved apart by the bound

      E max_a N(0, s_a^2) <= min_t { t + sum_a s_a [phi(t / s_a) - (t / s_a) (1 - Phi(t / s_a))] }.   (2)

* If the scores that the policy maximised are known (``OfflinePolicy.q``), the selection is repeated with
  additional noise of the same distribution. Suppose that a score contains kappa xi_a, where xi_a ~ N(0,
  s_a^2) is the error of q. Let c' = argmax_a (score_a + kappa omega_a) with new noise omega_a ~ N(0, s_a^2).
  Because (xi, omega) and (omega, xi) have the same distribution,

      E xi_{c'} = E omega_{c'},                                                                      (3)

  and the right side can be computed from the release. The noise variance in the selection of c' is twice that
  in the true selection. With two actions, the selection bias of c' is at least 1 / sqrt(2) times that of the
  true selection, for any difference between the two values. Therefore the low end is lowered by sqrt(2) times
  (3), and the middle by (3). The high end does not change. The number kappa is the coefficient of a
  regression of the scores on q (:func:`response`). DP-APVI clips scores at a minimum. A score at the minimum
  does not depend on the noise, so kappa = 0. With exact counts, s_a is an overestimate, because reward and
  next state are released separately. (3) is then an overestimate too.

Selection errors of different states have the same sign. Therefore the errors are summed, not their squares.
Both bounds require that the planner uses backward induction over counts per step. In s_a, rewards and next
states are assumed to be uncorrelated. In the sampling variances of values, the worst correlation is assumed.

**Behaviour policy.** Its value v is estimated directly as the sum of mean rewards. This estimate is linear in
the release, so its noise variance is exact. Its sampling variance is the smaller of v (b - v) (Bhatia and
Davis 2000) and the variance in the model. At each (h, s) at which a candidate policy follows the behaviour
policy, (1) uses the sums of Y and N^ over actions.

The coverage of the intervals is measured, not proven (docs/report.md;
tests/statistics/test_value_intervals.py). The intervals use normal quantiles (with nine tenths of the failure
probability) and estimated variances. If a policy takes pairs that are not supported, the intervals are always
wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr, ndtri

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.estimation.linear_regression import simplex_rows
from discreet.mechanisms.interfaces import ProblemSpec, StepwiseRelease
from discreet.mechanisms.policy_rows import policy_rows

Bools = NDArray[np.bool_]

BEHAVIOUR = "behaviour"
_SUPPORT = 4.0  # A pair is used if its count exceeds this many standard deviations of its noise.
_NEAR = 0.9  # The ends of a pair at the support threshold are moved apart by this multiple of |g Y|.
_WORST = 0.25  # A pair is not used if the standard deviation of q exceeds this share of b_h.
_RACE = (
    4.0  # Actions do not compete if their values differ by more than this times the sum of their deviations.
)
_SHARE = 0.9  # Share of the failure probability for normal errors; the rest is for deviations from normality.
_MOST_DRAWS = 2**16  # Largest number of random draws for (3), over all pairs of a step.
_LOW, _MIDDLE, _HIGH = range(3)


@dataclass(frozen=True, eq=False)
class PolicyEstimate:
    """A policy to be evaluated.

    Attributes
    ----------
    policy : (H, S) int or (H, S, A)
        Actions, or action probabilities.
    behaviour : (H, S) bool, optional
        Mask of the steps and states at which the behaviour policy is followed instead of ``policy``.
    chosen : bool
        True if the policy was computed from this release. The interval then allows for the selection bias.
    scores : (H, S, A), optional
        Scores that the policy maximised (``OfflinePolicy.q``). With scores, the bound on the selection bias
        is tighter.
    """

    __repr__ = brief

    policy: ArrayLike
    behaviour: Bools | None = None
    chosen: bool = False
    scores: ArrayLike | None = None


@dataclass(frozen=True)
class ValueEstimate:
    """A value, or a difference of two values, with an interval.

    Attributes
    ----------
    estimate : float
        Estimate of the value. Unsupported pairs have the average value at their step.
    low, high : float
        Two-sided interval at confidence ``level``.
    lower : float
        One-sided lower bound at confidence ``level``.
    noise, sampling : float
        Standard deviation due to privacy noise, and standard deviation due to sampling of users.
    lack : float
        Part of high - low that is due to unsupported pairs.
    choice : float
        Part of high - low that is due to two biases: the selection of the policy from the same release, and
        the bias near the support threshold.
    """

    __repr__ = brief

    estimate: float
    low: float
    high: float
    lower: float
    level: float
    noise: float
    sampling: float
    lack: float
    choice: float

    @property
    def known(self) -> bool:
        """Return True if unsupported pairs cause at most half of the width of the interval.

        Otherwise the estimate is not informative.
        """
        return self.lack <= 0.5 * (self.high - self.low)

    def in_units(self, scale: float, offset: float) -> ValueEstimate:
        """Return the value in other units: ``offset + scale v`` for the value v."""
        moved = {name: offset + scale * getattr(self, name) for name in ("estimate", "low", "high", "lower")}
        spread = {name: scale * getattr(self, name) for name in ("noise", "sampling", "lack", "choice")}
        return replace(self, **moved, **spread)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as built-in types. The estimate is None if ``known`` is False."""
        return {**asdict(self), "estimate": self.estimate if self.known else None}


@dataclass(frozen=True, eq=False)
class VisitCounts:
    """Unbiased estimates of visits, computed from the release for a report.

    visits : (H, R) estimates N^. episodes : number of episodes in the counts. sigma : standard deviation of
    the noise in one N^.
    """

    visits: Floats
    episodes: float
    sigma: float


class _Ends(NamedTuple):
    """Low end, middle and high end of a value, and their standard deviations."""

    centre: Floats  # Low end, middle and high end, (3,).
    choice: float  # Part of high end - low end that is due to selection and to the bias near the threshold.
    noise: Floats  # Standard deviations due to privacy noise, (3,).
    sampling: Floats  # Standard deviations due to sampling of users, (3,).


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values of several policies from one release.

    Attributes
    ----------
    values : mapping of name to ValueEstimate
        Values of all candidates and of the behaviour policy.
    counts : VisitCounts
        Estimated visits of the users.
    used : mapping of candidate to (H, R) bool
        True for pairs whose counts were used.
    gains : mapping of candidate to (H, S)
        Estimated value of following the candidate at step h minus that of following the behaviour policy at
        step h. In both cases, the candidate is followed at later steps. NaN if either value is not supported.
    gain_errors : mapping of candidate to (H, S)
        Standard deviations of the gains.
    """

    __repr__ = brief

    values: Mapping[str, ValueEstimate]
    counts: VisitCounts
    used: Mapping[str, Bools]
    gains: Mapping[str, Floats]
    gain_errors: Mapping[str, Floats]
    least: float
    bound: float
    level: float
    ends: Mapping[str, _Ends] = field(repr=False)

    def difference(self, name: str, other: str) -> ValueEstimate:
        """Return the value of the policy ``name`` minus that of the policy ``other``.

        Both values are estimated from one release, so their errors can have any correlation. Therefore their
        standard deviations are summed.
        """
        for argument, asked in (("name", name), ("other", other)):
            checks.choice(argument, asked, self.ends)
        mine, theirs = self.ends[name], self.ends[other]
        ends = _Ends(
            mine.centre - theirs.centre[::-1],
            mine.choice + theirs.choice,
            mine.noise + theirs.noise[::-1],
            mine.sampling + theirs.sampling[::-1],
        )
        width = self.bound - self.least
        return _value(ends, self.level, -width, width)


def uniform(layout: Layout) -> Floats:
    """Return the (H, S, A) policy that takes every admissible action with equal probability."""
    mask = (layout.row_index >= 0).astype(np.float64)
    row: Floats = mask / mask.sum(axis=1, keepdims=True)
    return np.broadcast_to(row, (layout.horizon, *row.shape))


def _value(ends: _Ends, level: float, least: float, most: float) -> ValueEstimate:
    deviation = np.hypot(ends.noise, ends.sampling)
    failure = _SHARE * (1.0 - level)
    two, one = -float(ndtri(failure / 2)), -float(ndtri(failure))
    low, high = ends.centre[_LOW] - two * deviation[_LOW], ends.centre[_HIGH] + two * deviation[_HIGH]
    lower = ends.centre[_LOW] - one * deviation[_LOW]
    low, high, lower, estimate = np.clip([low, high, lower, ends.centre[_MIDDLE]], least, most).tolist()
    lack = max(0.0, float(ends.centre[_HIGH] - ends.centre[_LOW]) - ends.choice)
    return ValueEstimate(
        min(max(estimate, low), high), low, high, lower, level,
        float(ends.noise[_MIDDLE]), float(ends.sampling[_MIDDLE]),
        min(lack, most - least), min(ends.choice, most - least),
    )  # fmt: skip


# ------------------------------------------------------------------------------ the release
class _CountDeviations(NamedTuple):
    """Standard deviations of the noise in one N^, in one cell of transitions, and in one sum of rewards."""

    visits: float
    moves: float
    rewards: float


@dataclass(frozen=True, eq=False)
class _Declared:
    """Public bounds on the remaining return, in units in which the reward of a step is in [0, 1].

    - floor, ceiling : (H + 1,) bounds at each step.
    - ended : (S,) mask of the terminal states whose value is known.
    - after : (H + 1,) value of these terminal states at each step.
    """

    floor: Floats
    ceiling: Floats
    ended: Bools
    after: Floats

    @classmethod
    def of(cls, spec: ProblemSpec, bound: float | None) -> _Declared:
        horizon = spec.layout.horizon
        left: Floats = np.arange(horizon, -1, -1, dtype=np.float64)
        floor: Floats = np.zeros(horizon + 1)
        ceiling, pay = left, 0.0
        ended = np.zeros(spec.layout.states, bool)
        if spec.returns is not None and spec.known_rewards is None:
            given = spec.returns
            width = given.high - given.low
            pay = -given.low / width
            least, most = given.bounds(horizon)
            if given.terminal and 0.0 <= pay <= 1.0:
                ended[list(given.terminal)] = True
            if given.outcomes is not None:  # an episode has at most one outcome and no other reward
                floor, ceiling = left * pay + min(0.0, least) / width, left * pay + max(0.0, most) / width
            else:
                floor = (least - horizon * given.low) / width - (horizon - left)
                ceiling = 0.0 * left + (most - horizon * given.low) / width
            floor = np.minimum(np.maximum(floor, 0.0), left)
            ceiling = np.minimum(np.maximum(ceiling, 0.0), left)
        if bound is not None:
            ceiling = np.minimum(ceiling, bound)
        return cls(np.minimum(floor, ceiling), ceiling, ended, left * pay)


class _ReleasedStep(NamedTuple):
    """Counts of one step of the release."""

    visits: Floats  # (R,) combined visits N^
    moves: Floats  # (R, S) transitions M
    rewards: Floats | None  # (R,) sums C of rewards r - 1/2; None if rewards are known


class _StepReader:
    """Reader that returns the steps of a release and combines visits with row sums of transitions."""

    def __init__(self, release: StepwiseRelease, spec: ProblemSpec) -> None:
        if release.layout != spec.layout:
            raise ValueError("release.layout: must be spec.layout")
        laws = release.laws
        reward = next((laws[name] for name in (CENTERED_REWARDS, REWARDS) if name in laws), None)
        self.known = None if spec.known_rewards is None else spec.layout.to_rows(spec.known_rewards)
        if self.known is None and reward is None:
            raise ValueError("release holds no rewards: must hold them, or spec.known_rewards must be given")
        self.release, self.layout = release, spec.layout
        self._own = laws[VISITS].std() if VISITS in laws else math.inf
        moves = laws[TRANSITIONS].std()
        derived = math.sqrt(self.layout.states) * moves
        self._share = 0.0  # weight of the row sum of transitions in N^
        if math.isinf(self._own):
            self._share = 1.0
        elif self._own > 0.0:
            self._share = self._own**2 / (self._own**2 + derived**2)
        own = (1.0 - self._share) * self._own if self._share < 1.0 else 0.0
        visits = math.hypot(own, self._share * derived)
        self.noise = _CountDeviations(
            visits, moves, 0.0 if reward is None or self.known is not None else reward.std()
        )

    def known_at(self, h: int) -> Floats:
        """Return the (R,) known rewards of step h."""
        if self.known is None:
            raise ValueError("spec.known_rewards = None: must be given with a release without rewards")
        return np.asarray(self.known[h])

    def step(self, h: int) -> _ReleasedStep:
        """Return the counts of step h, with the combined visits N^."""
        sums = self.release.step(h)
        visits = sums.visits
        if visits is None or self._share > 0.0:
            whole = sums.transitions.sum(axis=1)
            visits = whole if visits is None else visits + self._share * (whole - visits)
        rewards = None if self.known is not None else sums.rewards
        if self.known is None and rewards is None:
            raise ValueError(f"release.step({h}) holds no rewards though its laws name them")
        return _ReleasedStep(visits, sums.transitions, rewards)


def reciprocal(visits: Floats, sigma: float | Floats) -> Floats:
    """Return g(N^), the unbiased estimate of 1 / N (see the module). Without noise, return 1 / max(N^, 1).

    visits : noisy counts N^. sigma : standard deviation of their noise, either one number or one number per
    count. All must be above 0, or all must be 0.
    """
    if not np.any(sigma):
        return np.asarray(1.0 / np.maximum(visits, 1.0))
    scaled = np.maximum(visits / sigma, 0.0)  # callers do not use the results for negative counts
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(scaled / math.sqrt(2)) / sigma)


def expected_maximum(deviations: Floats, pointer: Ints) -> Floats:
    """Return the bound (2) on the expected maximum of normal variables with mean 0, for each group of rows.

    deviations : (R,) standard deviations of the variables; rows with 0 are ignored. pointer : the rows of
    group i are pointer[i] .. pointer[i + 1] - 1. If a group has only one variable, the bound is 0.
    """
    starts = pointer[:-1]
    largest = np.maximum.reduceat(deviations, starts)
    racing = np.add.reduceat((deviations > 0.0).astype(np.float64), starts)
    length = np.diff(pointer)
    safe = np.maximum(deviations, 1e-300)
    best = np.full(largest.size, np.inf)
    for t in np.linspace(0.0, 4.0, 17):
        level = np.repeat(t * largest, length)
        at = np.minimum(level / safe, 40.0)
        above = deviations * (np.exp(-0.5 * at * at) / math.sqrt(2 * math.pi) - at * ndtr(-at))
        best = np.minimum(best, t * largest + np.add.reduceat(above, starts))
    return np.where(racing > 1.5, best, 0.0)


def response(
    scores: Floats, q: Floats, deviations: Floats, visits: Floats, used: Bools, pointer: Ints
) -> Floats:
    """Return the (R,) coefficients kappa of (3): the dependence of the scores on the noise of q.

    Each coefficient kappa is in [0, 1]. The value is 1 unless the release indicates a smaller value. Its
    estimate is the slope of a weighted regression of scores on q within states, plus 2 standard errors. There
    is one regression for each class of at least 40 pairs with similar numbers of visits. Because q also
    contains signal, the slope is between kappa and the coefficient with which the scores depend on the
    signal.

    - scores, visits : (R,) scores and visits of the rows.
    - q, deviations : (R,) values of the rows, and their standard deviations.
    - used : (R,) mask of the rows to use.
    - pointer : the rows of state i are pointer[i] .. pointer[i + 1] - 1.
    """
    found = np.ones_like(q)
    used = used & np.isfinite(scores) & (deviations > 0.0)
    weight = np.where(used, 1.0 / np.maximum(deviations, 1e-12) ** 2, 0.0)
    group = np.repeat(np.arange(pointer.size - 1), np.diff(pointer))
    total = np.add.reduceat(weight, pointer[:-1])
    racing = np.add.reduceat(used.astype(np.float64), pointer[:-1])

    def inner(table: Floats) -> Floats:
        mean = np.add.reduceat(weight * np.where(used, table, 0.0), pointer[:-1]) / np.maximum(total, 1e-300)
        return np.where(used, table - mean[group], 0.0)

    x, y = inner(q), inner(scores)
    rows = np.flatnonzero(used & (racing[group] > 1.5))
    rows = rows[np.argsort(visits[rows], kind="stable")]
    for part in np.array_split(rows, max(1, min(8, rows.size // 40))):
        square = float(weight[part] @ x[part] ** 2)
        if part.size < 10 or square == 0.0:
            continue
        slope = float(weight[part] @ (x[part] * y[part])) / square
        rest = weight[part] * (y[part] - slope * x[part])
        error = math.sqrt(float((rest**2 * x[part] ** 2).sum())) / square
        found[part] = min(max(slope, 0.0) + 2.0 * error, 1.0)
    return found


def selection_bias(scores: Floats, deviations: Floats, kappa: Floats, pointer: Ints, stream: int) -> Floats:
    """Return E omega_{c'} of (3) for each state, estimated by antithetic draws.

    - scores, deviations, kappa : (R,) scores, standard deviations s_a, and coefficients kappa.
    - pointer : the rows of state i are pointer[i] .. pointer[i + 1] - 1.
    - stream : index of the random stream.
    """
    starts = pointer[:-1]
    draws = max(8, min(256, _MOST_DRAWS // deviations.size))
    random = np.random.default_rng([draws, stream])  # the seed is fixed and does not depend on the data
    total = np.zeros(starts.size)
    length = np.diff(pointer)
    for _ in range(draws):
        omega = deviations * random.standard_normal(deviations.size)
        for fresh in (omega, -omega):
            tried = scores + kappa * fresh
            best = tried >= np.repeat(np.maximum.reduceat(tried, starts), length)
            winners = np.add.reduceat(best.astype(np.float64), starts)
            total += np.add.reduceat(np.where(best, fresh, 0.0), starts) / winners
    return np.maximum(total / (2 * draws), 0.0)


# --------------------------------------------------------------------------- one candidate
class _Sums(NamedTuple):
    """Sums that (1) uses, for n rows or for n states. Sums of states are over actions.

    An axis of length 3 is for the low end, the middle and the high end.
    """

    visits: Floats  # (n,) visits N^.
    cells: Floats  # (n,) number of rows that were summed.
    target: Floats  # (n, 3) sums Y of (1).
    constant: Floats  # (n, 3) constant that is added to g Y.
    offset: Floats  # (n,) sum of x over rows, where x is a public reward; Y contains x times the visits.
    offset_square: Floats  # (n,) sum of x^2 over rows.
    first: Floats  # (n, 3) sum of x + V - c over visits, for the sampling variance.
    second: Floats  # (n, 3) sum of (x + V - c)^2 over visits.
    rewards: Floats | None  # (n,) sums of centred rewards; None if rewards are known.


class _Pairs(NamedTuple):
    """Values by (1) with their variances, for n rows or for n states.

    An axis of length 3 is for the low end, the middle and the high end.
    """

    q: Floats  # (n, 3) values.
    noise: Floats  # (n, 3) variances due to privacy noise.
    sampling: Floats  # (n, 3) variances due to sampling of users.
    bias: (
        Floats  # (n, 3) distance by which the ends are moved because of the bias near the support threshold.
    )
    used: Bools  # (n,) True if the counts are used.
    spread: Floats  # (n,) Var(r + V) for the middle.
    error: Floats  # (n,) variance of q for (2) and (3), if rewards and next states are uncorrelated.


def _pairs(sums: _Sums, noise: _CountDeviations, norm: Floats, bound: float, clusters: int) -> _Pairs:
    """Return the values (1) with their variances.

    The caller must replace the values q of unsupported entries.

    - norm : (3,) ||V - c||^2.
    - bound : range of the remaining return.
    - clusters : largest number of episodes per user.
    """
    visits, cells = sums.visits, sums.cells[:, None]
    sigma = noise.visits * np.sqrt(sums.cells)
    enough = (visits > _SUPPORT * sigma) & (visits >= 1.0)
    g = np.zeros_like(visits)
    for count in np.unique(sums.cells):
        same = sums.cells == count
        g[same] = reciprocal(visits[same], noise.visits * math.sqrt(count))
    part = g[:, None] * sums.target
    of_moves = noise.moves**2 * norm * cells
    of_rewards = noise.rewards**2 * cells if sums.rewards is not None else 0.0
    of_visits = noise.visits**2 * (
        sums.offset_square[:, None] - 2.0 * part * sums.offset[:, None] + cells * part**2
    )
    private = g[:, None] ** 2 * (of_moves + of_rewards + of_visits)
    spread, plain = _spread(sums, of_moves, bound)
    people = np.maximum(visits, 1.0)[:, None]
    sampling = clusters * spread / people
    bias = np.zeros_like(part)
    if noise.visits > 0.0:
        scaled = visits / sigma
        bias = _NEAR * np.exp(np.minimum(_SUPPORT - scaled, 0.0))[:, None] * np.abs(part)
    used = enough & ((private + sampling).max(axis=1) <= (_WORST * bound) ** 2)
    keep = used[:, None]
    return _Pairs(
        sums.constant + part, np.where(keep, private, 0.0), np.where(keep, sampling, 0.0),
        np.where(keep, bias, 0.0), used, np.where(used, spread[:, _MIDDLE], bound**2 / 4),
        np.where(used, (private + clusters * plain / people).max(axis=1), 0.0),
    )  # fmt: skip


def _spread(sums: _Sums, of_moves: Floats, bound: float) -> tuple[Floats, Floats]:
    """Return two (n, 3) estimates of Var(r + V): for the worst correlation of r and V, and for correlation 0.

    One visit of a pair gives no information about the variance. Therefore one visit with the largest possible
    variance, bound^2 / 4, is added.

    of_moves : variance of ``sums.first`` that is due to noise. bound : range of the remaining return.
    """
    count = np.maximum(sums.visits, 1.0)[:, None]
    square = np.maximum(sums.first**2 - of_moves, 0.0)  # subtract the mean of the squared noise
    most = bound**2 / 4
    spread = np.clip((sums.second - square / count) / count, 0.0, most) + most / count
    plain = spread
    if sums.rewards is not None:
        rate = np.clip(0.5 + sums.rewards[:, None] / count, 0.0, 1.0)
        own = rate * (1.0 - rate) + 0.25 / count
        spread, plain = (np.sqrt(spread) + np.sqrt(own)) ** 2, spread + own
    return np.minimum(spread, most), np.minimum(plain, most)


class _Walk:
    """Evaluation of one candidate policy, in a backward and a forward pass over the steps."""

    def __init__(
        self, reader: _StepReader, candidate: PolicyEstimate, declared: _Declared, clusters: int
    ) -> None:
        layout = reader.layout
        self.reader, self.layout, self.clusters, self.declared = reader, layout, clusters, declared
        checked = policy_rows(layout, candidate.policy)
        if checked.stochastic:
            self.weights = checked.probabilities.copy()
        else:
            self.weights = np.zeros((layout.horizon, layout.rows))
            np.put_along_axis(self.weights, checked.rows, 1.0, axis=1)
        shape = (layout.horizon, layout.states)
        self.goes_on = np.zeros(shape, bool)
        if candidate.behaviour is not None:
            self.goes_on = np.array(candidate.behaviour, bool)
            if self.goes_on.shape != shape:
                raise ValueError(f"behaviour has shape {self.goes_on.shape}: must be {shape}")
        self.weights[self.goes_on[:, layout.row_state]] = 0.0
        self.chosen = checks.flag("chosen", candidate.chosen)
        self.scores: Floats | None = None
        if candidate.scores is not None:
            scores = np.asarray(candidate.scores, np.float64)
            if scores.shape != (*shape, layout.actions) or np.isnan(scores).any():
                raise ValueError(
                    f"scores has shape {scores.shape}: must be {(*shape, layout.actions)}, no NaN"
                )
            self.scores = layout.to_rows(scores)
        self.values = np.zeros((3, layout.states))  # V_{h+1}
        self.later = np.zeros(layout.states)  # variance of ``values``, for the selection bias
        self.used = np.zeros((layout.horizon, layout.rows), bool)
        self.whole = np.zeros(shape, bool)  # True if the sums over a state's actions are supported
        self.margins = np.zeros(shape)
        self.noise, self.sampling = np.zeros((*shape, 3)), np.zeros((*shape, 3))
        self.spread = np.zeros(shape)
        self.gains, self.gain_errors = np.full(shape, np.nan), np.full(shape, np.nan)
        self.reached = np.zeros(layout.states)

    def _per_state(self, table: Floats) -> Floats:
        """Return the (S, ...) sums of a table (R, ...) over the actions of each state."""
        return np.asarray(np.add.reduceat(table, self.layout.state_ptr[:-1], axis=0))

    def _mixed(self, h: int, table: Floats, power: int = 1) -> Floats:
        """Return the (S, n) sums over actions of ``table`` (R, n) times the candidate's probabilities.

        power : exponent of the probabilities; 2 for variances.
        """
        return self._per_state(self.weights[h][:, None] ** power * table)

    # ------------------------------------------------------------------------- backward
    def back(self, h: int, step: _ReleasedStep) -> None:
        """Compute V_h from V_{h+1}."""
        rows, whole = self._rows_and_states(h, step)
        self.used[h], self.whole[h], self.spread[h] = rows.used, whole.used, whole.spread
        on = self.goes_on[h][:, None]
        q, behaviour = self._mixed(h, rows.q), whole.q
        bias = np.where(on, whole.bias, self._mixed(h, rows.bias))
        self.noise[h] = np.where(on, whole.noise, self._mixed(h, rows.noise, 2))
        self.sampling[h] = np.where(on, whole.sampling, self._mixed(h, rows.sampling, 2))
        played = self._mixed(h, rows.used[:, None].astype(np.float64))[:, 0]
        both = (played > 1.0 - 1e-9) & whole.used & ~self.goes_on[h]
        self.gains[h, both] = (q - behaviour)[both, _MIDDLE]
        errors = np.sqrt(self.noise[h] + self.sampling[h]) + np.sqrt(whole.noise + whole.sampling)
        self.gain_errors[h, both] = errors[both, _MIDDLE]
        values = np.where(on, behaviour, q)
        values[:, _LOW] -= bias[:, _LOW]
        values[:, _HIGH] += bias[:, _HIGH]
        self.margins[h] = bias[:, _LOW] + bias[:, _HIGH]
        if self.chosen:
            race = self._race(h, step, rows, whole)
            values -= race
            self.margins[h] += race[:, _LOW] - race[:, _HIGH]
        ended = self.declared.ended
        if ended.any():  # terminal states have known values
            values[ended] = self.declared.after[h]
            for table in (self.noise, self.sampling, self.margins, self.spread):
                table[h, ended] = 0.0
            self.later[ended], self.gains[h, ended] = 0.0, np.nan
            self.used[h] |= ended[self.layout.row_state]
            self.whole[h] |= ended
        self.values = np.ascontiguousarray(values.T)

    def _rows_and_states(self, h: int, step: _ReleasedStep) -> tuple[_Pairs, _Pairs]:
        """Return the values (1) of all rows, and the values (1) of all states under the behaviour policy.

        The values of states are computed from sums over the actions of each state.
        """
        layout, noise, known_of = self.layout, self.reader.noise, self.declared
        least, bound = float(known_of.floor[h]), float(known_of.ceiling[h])
        centre = self.values.mean(axis=1)
        ahead = self.values - centre[:, None]
        square = ahead**2
        level, norm = square.mean(axis=1), square.sum(axis=1)
        visits, each = step.visits, step.visits[:, None]
        first = step.moves @ ahead.T
        second = step.moves @ (square - level[:, None]).T + each * level
        zero, ones = np.zeros(layout.rows), np.ones(layout.rows)
        if step.rewards is None:
            known = self.reader.known_at(h)
            middle = float(known.mean())
            x = known - middle
            target, held = first, known
            mixture = first + x[:, None] * each
            moments = second + 2.0 * x[:, None] * first + x[:, None] ** 2 * each
        else:
            middle, x, held = 0.5, zero, np.full(layout.rows, 0.5)
            target = first + step.rewards[:, None]
            mixture, moments = target, second
        rows = _Sums(
            visits, ones, target, centre + held[:, None], zero, zero, first, second, step.rewards
        )  # fmt: skip
        add = self._per_state
        states = _Sums(
            add(visits), add(ones), add(mixture), np.broadcast_to(centre + middle, (layout.states, 3)),
            add(x), add(x * x), add(mixture if step.rewards is None else first), add(moments),
            None if step.rewards is None else add(step.rewards),
        )  # fmt: skip
        found = []
        for sums in (rows, states):
            pairs = _pairs(sums, noise, norm, bound - least, self.clusters)
            # An unsupported pair can have any value in the range. The middle is the average at this step.
            floor = held if sums is rows and step.rewards is None else np.full(sums.visits.size, least)
            most = np.full(sums.visits.size, bound)
            if sums is rows and step.rewards is None and floor.any():
                most = np.minimum(floor + known_of.ceiling[h + 1], bound)
            average = sums.target[:, _MIDDLE].sum() / max(float(visits.sum()), 1.0)
            middle_end = np.clip(sums.constant[:, _MIDDLE] + average, floor, np.maximum(most, floor))
            worst = np.stack([floor, middle_end, np.maximum(most, floor)], axis=1)
            found.append(pairs._replace(q=np.where(pairs.used[:, None], pairs.q, worst)))
        return found[0], found[1]

    def _race(self, h: int, step: _ReleasedStep, rows: _Pairs, whole: _Pairs) -> Floats:
        """Return the (S, 3) corrections for selection bias.

        The caller subtracts them from the values of the ends. This method also stores the variance of the
        values of step h for use at step h - 1.
        """
        layout, noise, states = self.layout, self.reader.noise, self.layout.row_state
        g = reciprocal(step.visits, noise.visits)
        variance = rows.error.copy()
        if self.later.any():
            squares = (step.moves * (step.moves - 1.0)) @ self.later - noise.moves**2 * self.later.sum()
            variance += np.where(rows.used, g * g * np.maximum(squares, 0.0), 0.0)
        deviation = np.sqrt(variance)
        if self.scores is None:
            taken = self._mixed(h, np.stack([rows.q[:, _MIDDLE], deviation], axis=1))
            gap = taken[states, 0] - rows.q[:, _MIDDLE]
            near = rows.used & (gap <= _RACE * (deviation + taken[states, 1]))
            most = expected_maximum(np.where(near, deviation, 0.0), layout.state_ptr)
            race = most[:, None] * np.array([1.0, 0.0, -1.0])
        else:
            scores, pointer = self.scores[h], layout.state_ptr
            # A score at its minimum does not depend on the noise. Neither does the choice among equal scores.
            floor = 0.0 if self.reader.known is None else self.reader.known_at(h)
            moves = scores > floor + 1e-12
            live = rows.used & moves
            kappa = moves * response(scores, rows.q[:, _MIDDLE], deviation, step.visits, live, pointer)
            won = selection_bias(scores, np.where(rows.used, deviation, 0.0), kappa, pointer, h)
            race = won[:, None] * np.array([math.sqrt(2.0), 1.0, 0.0])
        on = self.goes_on[h]
        played = self._mixed(h, rows.used[:, None].astype(np.float64))[:, 0]
        later = self._mixed(h, variance[:, None], 2)[:, 0]
        if on.any():
            own = whole.error.copy()
            merged = self._per_state(step.moves)[on]
            cells = np.diff(layout.state_ptr)[on]
            squares = (merged * (merged - 1.0)) @ self.later - cells * noise.moves**2 * self.later.sum()
            total = np.maximum(self._per_state(step.visits)[on], 1.0)
            own[on] += np.where(whole.used[on], np.maximum(squares, 0.0) / total**2, 0.0)
            later = np.where(on, own, later)
        self.later = later
        return np.where(on, 0.0, played)[:, None] * race

    # -------------------------------------------------------------------------- forward
    def start(self, reached: Floats) -> None:
        """Start the forward pass with the (S,) distribution of the first state."""
        self.reached = reached
        self.total = _Totals(np.zeros(3), np.zeros(3), 0.0, np.zeros(3))

    def forward(self, h: int, step: _ReleasedStep) -> None:
        """Add the contribution of step h to the variances, and compute the occupancy of step h + 1."""
        d, total, layout = self.reached, self.total, self.layout
        noise = (d * d) @ self.noise[h]
        self.total = _Totals(
            total.noise + (noise if h else 0.0), total.sampling + (d * d) @ self.sampling[h],
            total.choice + float(d @ self.margins[h]), total.first if h else noise,
        )  # fmt: skip
        if h + 1 == layout.horizon:
            return
        on, states = self.goes_on[h], layout.row_state
        stays = np.where(self.declared.ended, d, 0.0)
        d = d - stays
        own = self.weights[h] * self.used[h]
        played = np.where(on, self.whole[h], self._per_state(own))
        whole = (on & self.whole[h]) / np.maximum(self._per_state(step.visits), 1.0)
        ratio = own * reciprocal(step.visits, self.reader.noise.visits) + whole[states]
        mass = float(d @ played)
        raw = (d[states] * ratio) @ step.moves
        self.reached = stays + (mass * simplex_rows((raw / mass)[None])[0] if mass > 1e-12 else 0.0)

    def ends(self, start: Floats, cells: Floats, people: float) -> _Ends:
        """Return the low end, the middle and the high end of the candidate's value.

        - start : (S,) noisy numbers of visits at step 0.
        - cells : (S,) number of noisy cells that were summed for each entry of ``start``.
        - people : number of episodes.
        """
        centre = self.values @ cells / cells.sum()
        ahead = self.values - centre[:, None]
        value = centre + ahead @ start / people
        first = self.reader.noise.visits**2 * (ahead**2 @ cells) / people**2
        spread = np.maximum((ahead**2) @ start / people - (value - centre) ** 2, 0.0)
        cap = float(self.declared.ceiling[0] - self.declared.floor[0]) ** 2 / 4
        sampling = self.total.sampling + self.clusters * np.minimum(spread, cap) / people
        noise = self.total.noise + (np.sqrt(first) + np.sqrt(self.total.first)) ** 2
        return _Ends(value, self.total.choice, np.sqrt(noise), np.sqrt(sampling))


class _Totals(NamedTuple):
    """Sums over steps for the standard deviations of a value."""

    noise: Floats  # Variances due to the noise of all steps except step 0, (3,).
    sampling: Floats  # Variances due to sampling of users, (3,).
    choice: float  # Part of high end - low end that is due to selection and to the bias near the threshold.
    first: Floats  # Variances due to the noise of step 0, (3,).


# ------------------------------------------------------------------------------ the whole
def evaluate(
    release: StepwiseRelease,
    spec: ProblemSpec,
    candidates: Mapping[str, PolicyEstimate],
    *,
    level: float = 0.95,
    return_bound: float | None = None,
    episodes_per_user: int = 1,
) -> Evaluation:
    """Estimate the values of the behaviour policy and of ``candidates`` from one release of counts.

    Parameters
    ----------
    release : StepwiseRelease. Release of counts per step, which is read twice.
    spec : ProblemSpec
        Problem with its layout, and with the known rewards if rewards are public.
    candidates : mapping of name to PolicyEstimate
        Policies to evaluate. Every name except "behaviour" is allowed.
    level : float. Confidence level of the intervals, in (0, 1).
    return_bound : float, optional
        Public upper bound on the return of one episode, in (0, H]. None: H. It limits the values of
        unsupported pairs.
    episodes_per_user : int
        Largest number of episodes of one user. Sampling variances are multiplied by this number. If it is
        above 1, the number of episodes is estimated from the noisy visits of step 0.

    Raises
    ------
    ValueError
        If the release does not fit the layout or covers no user. If the release has no rewards and rewards
        are not known, or if the policy of a candidate is invalid.
    """
    reader, layout = _StepReader(release, spec), spec.layout
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    if return_bound is not None:
        return_bound = checks.real("return_bound", return_bound, 0.0, float(layout.horizon), open_low=True)
    declared = _Declared.of(spec, return_bound)
    least, bound = float(declared.floor[0]), float(declared.ceiling[0])
    clusters = checks.integer("episodes_per_user", episodes_per_user, 1)
    users = checks.integer("release.users", release.users, 1)
    if BEHAVIOUR in candidates:
        raise ValueError(f"candidates has {BEHAVIOUR!r}: is evaluated anyway")
    walks = {name: _Walk(reader, candidate, declared, clusters) for name, candidate in candidates.items()}
    everywhere = np.ones((layout.horizon, layout.states), bool)
    behaviour = _Walk(reader, PolicyEstimate(uniform(layout), everywhere), declared, clusters)
    visits, direct = _read_backward(reader, (behaviour, *walks.values()))
    people = float(users) if clusters == 1 else max(float(visits[0].sum()), 1.0)
    start = np.add.reduceat(visits[0], layout.state_ptr[:-1])
    first = simplex_rows((start / people)[None])[0]
    if walks:
        _read_forward(reader, tuple(walks.values()), first)
    cells = np.diff(layout.state_ptr).astype(np.float64)
    ends = {BEHAVIOUR: _behaviour_ends(behaviour, visits, people, direct)}
    ends.update({name: walk.ends(start, cells, people) for name, walk in walks.items()})
    return Evaluation(
        values={name: _value(found, level, least, bound) for name, found in ends.items()},
        counts=VisitCounts(visits, people, reader.noise.visits),
        used={name: walk.used for name, walk in walks.items()},
        gains={name: walk.gains for name, walk in walks.items()},
        gain_errors={name: walk.gain_errors for name, walk in walks.items()},
        least=least, bound=bound, level=level, ends=ends,
    )  # fmt: skip


def _read_backward(reader: _StepReader, walks: Sequence[_Walk]) -> tuple[Floats, Floats]:
    """Read the release from the last step to the first, and run the backward pass of all evaluations.

    Returns the (H, R) visits, and a (2,) array with the sum of all users' rewards and the variance of its
    noise. A constant is subtracted from the sum (see :func:`_rewards`).
    """
    layout = reader.layout
    visits, direct = np.empty((layout.horizon, layout.rows)), np.zeros(2)
    for h in reversed(range(layout.horizon)):
        step = reader.step(h)
        visits[h] = step.visits
        direct += _rewards(reader, h, step)
        for walk in walks:
            walk.back(h, step)
    return visits, direct


def _read_forward(reader: _StepReader, walks: Sequence[_Walk], first: Floats) -> None:
    """Read the release from the first step to the last, and run the forward pass of all evaluations.

    first : (S,) distribution of the first state.
    """
    for walk in walks:
        walk.start(first)
    for h in range(reader.layout.horizon):
        step = reader.step(h)
        for walk in walks:
            walk.forward(h, step)


def _rewards(reader: _StepReader, h: int, step: _ReleasedStep) -> Floats:
    """Return an array (2,) with the sum of all users' rewards at step h and the variance of its noise.

    A constant is subtracted from the reward of every episode; :func:`_behaviour_ends` adds it again.
    """
    if step.rewards is not None:
        return np.array([step.rewards.sum(), reader.noise.rewards**2 * step.rewards.size])
    x = reader.known_at(h)
    x = x - x.mean()  # the subtracted mean is the same constant for every episode
    return np.array([x @ step.visits, reader.noise.visits**2 * (x @ x)])


def _behaviour_ends(walk: _Walk, visits: Floats, people: float, direct: Floats) -> _Ends:
    """Return the low end, the middle and the high end of the behaviour policy's value. All three are equal.

    - ``walk`` : evaluation of the behaviour policy, after its backward pass.
    - visits : (H, R) noisy visits.
    - people : number of episodes.
    - direct : (2,) sum of rewards and the variance of its noise, from :func:`_read_backward`.
    """
    reader, layout = walk.reader, walk.layout
    if reader.known is None:
        constant = 0.5 * layout.horizon
    else:
        constant = float(reader.known.mean(axis=1).sum())
    value, noise = constant + direct[0] / people, math.sqrt(direct[1]) / people
    if walk.clusters > 1:  # users can have several episodes, so the number of episodes is a noisy estimate
        noise += abs(value - constant) * reader.noise.visits * math.sqrt(layout.rows) / people
    # Bhatia and Davis: Var <= (v - a) (b - v). The bound uses the v with the largest value within 3
    # deviations of the noise.
    least, most = float(walk.declared.floor[0]), float(walk.declared.ceiling[0])
    middle = 0.5 * (least + most)
    worst = float(np.clip(np.clip(middle, value - 3 * noise, value + 3 * noise), least, most))
    occupied = simplex_rows(np.add.reduceat(visits, layout.state_ptr[:-1], axis=1) / people)
    model = float((occupied * walk.spread).sum()) + float(np.var(walk.values[_MIDDLE]))
    spread = max(min((worst - least) * (most - worst), model), 0.25 / people)
    sampling = math.sqrt(walk.clusters * spread / people)
    return _Ends(np.full(3, value), 0.0, np.full(3, noise), np.full(3, sampling))
