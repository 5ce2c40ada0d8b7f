r"""Joint privacy of binomial noise in many counters, and the least such noise that meets (epsilon, delta).

For each counter, the output of a batch is a sum: one user's bits, the bits of all other users, and noise Q.
The noises of different counters are independent, and their distribution is known. Replacing one user changes
some counters by known amounts (:data:`Move`). The table lists these changes at one step. In the worst case
they occur at every step of the horizon. The first column compares the user's step with the same step of the
replacement.

====================  ============  ==================  =============  ========================
case                  visits        transitions         rewards        centred rewards
====================  ============  ==================  =============  ========================
other (s, a)          +1 and -1     +1 and -1           +1 and -1      two counters by 1
same (s, a), other s' none          +1 and -1           one by 1       one counter by 2
same (s, a, s')       none          none                one by 1       one counter by 2
====================  ============  ==================  =============  ========================

(Rewards are rounded to bits. A centred reward has two bits: (0, 1) at pairs that the user did not visit and
(y, y) at pairs that the user visited.)

Let k be the number of the H steps at which both users are in the same pair (s, a). At the other H - k steps
they are in different pairs. At most min(k, H - k + 1) of the k steps belong to the second case, because users
who move to different states are in different pairs at the next step. The counters that change are independent
coordinates of the loss. A change of fewer counters never causes a larger loss. The noise of centred rewards
is symmetric, so the sign of a change in their counters does not matter. In the other families, the number of
counters that increase equals the number that decrease. Swapping the two neighbours does not change the loss.
Therefore there is one loss distribution for each k, and the guarantee uses the worst of these distributions.
For a query of one step (``CountQuery.step``), a device sends bits only for the counters of that step, and H
is 1 in all formulas of this module. In such a query, visits and transitions together make 4 unit changes.
Transitions without visits make 2 unit changes.

The loss distribution. Let x be the change of one counter. The loss of this coordinate takes the values ln P(Q
= z - x) / P(Q = z) with probabilities P(Q = z - x). Values z with P(Q = z) = 0 have an infinite loss. Each
value of the loss is split between the two adjacent points of a grid. The split preserves its probability
under both distributions. The split is a mean-preserving spread of the likelihood ratio. By Blackwell's
theorem, the split never decreases the privacy loss. The error is of second order in the grid step. The
distributions of the coordinates are convolved by FFT on a window. By Chernoff's bound, the probability of
losses outside the window is less than 2e-6 delta. This probability, the probabilities of infinite losses, and
1e-13 for rounding are added to delta, so the result is an upper bound. The package dp-accounting shares no
code with this module and verifies the result (:func:`discreet.accounting.pld.verify`).

Calibrations use the actual number n of honest users in a batch. Only honest users add noise, and privacy must
not depend on the other users. Each user adds m noise bits (flips) to a counter. Each bit is 1 with
probability p; a fair flip has p = 1/2. The calibrations differ in m and p:

- ``joint`` : the variance of one cell's estimate is inversely proportional to the budget share of its family.
  Let M be the number of fair flips in a counter that meets the budget. Then m = ceil(M / n), and p <= 1/2 is
  the least probability that meets the budget with N = n m flips;
- ``composed`` : M is the same for every counter. A user adds m = ceil(M / n) fair flips or, if n > M, one
  flip with the least p that meets the budget;
- ``basic`` : a user adds m = ceil(tau / n) fair flips or, if n > tau, one flip with p = tau / (2 n). Here
  ``tau = 96 ln(2 / delta') / epsilon'^2`` with ``epsilon' = epsilon / c``, ``delta' = delta / c`` for c unit
  changes;
- ``published`` : the same as ``basic``, but with ``epsilon' = epsilon / (3 H)`` and ``delta' = delta`` (Bai
  et al. 2024). A query of one step uses the same values, because the paper charges the whole horizon for its
  first-stage batches.

The calibration only chooses the flips. The guarantee is always computed from the chosen flips.

Source of the protocol: Bai, Talebi, Zhao and Cheng 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from discreet.accounting.pld_calibration import extremes
from discreet.accounting.user_shifts import shifts
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS
from discreet.device.shuffle_encoder import MOST_FLIPS
from discreet.device.shuffle_payload import COIN

Floats = NDArray[np.float64]
Calibration = Literal["joint", "composed", "basic", "published"]
CALIBRATIONS: tuple[Calibration, ...] = ("joint", "composed", "basic", "published")

LEAST_DELTA = 1e-10  # for smaller deltas, the rounding error of the Fourier transforms is too large
_ROUNDING = 1e-13
_OVERSHOOT = 1.005  # fair flips are not reduced if they exceed the least number by at most this factor


@dataclass(frozen=True)
class Flips:
    """Random bits (flips) that all users together add to one counter as noise.

    Parameters
    ----------
    users : number of honest users. Only honest users add noise.
    each : number of bits that each user adds.
    coin : integer. A bit is 1 with probability coin / 2^32.
    paired : if True, half of the bits are 1 with probability 1 - coin / 2^32 instead. The distribution of the
        sum is then symmetric.
    """

    users: int
    each: int
    coin: int
    paired: bool = False

    def __post_init__(self) -> None:
        checks.integer("users", self.users, 1)
        checks.integer("each", self.each, 1)
        checks.integer("coin", self.coin, 1, COIN // 2)
        if self.paired and self.each % 2:
            raise ValueError(f"each = {self.each}: must be even where bits are paired")

    @property
    def number(self) -> int:
        """Number N of flips that all users together add to the counter."""
        return self.users * self.each

    @property
    def chance(self) -> float:
        """Probability p = coin / 2^32 that a flip is 1."""
        return self.coin / COIN

    @property
    def variance(self) -> float:
        """Variance N p (1 - p) of the noise."""
        return self.number * self.chance * (1.0 - self.chance)


Move = tuple[str, int, int]
"""Change of several counters of one family: (family, signed change of each counter, number of counters)."""

Way = tuple[Move, ...]
"""All changes in counters that one way to replace a user causes."""


def ways(query: CountQuery) -> tuple[Way, ...]:
    """Return the ways to replace a user that can have the largest loss.

    The table in the module docstring describes them.

    Raises ``ValueError`` for queries in which a user adds more than one bit to a counter. Examples are
    queries with counts pooled over steps, and queries with group returns.
    """
    found = shifts(query)
    if found is None:
        raise ValueError(
            "query: the shuffle protocol counts bits, one a user, step and cell; counts pooled over steps "
            "(stationary, pooled) and group returns are not"
        )
    return tuple(
        tuple(
            move
            for name, shift, cells in sorted(way, key=lambda moved: moved[0] != TRANSITIONS)
            for move in _bits(name, shift, cells)
        )
        for way in found
    )


def _bits(name: str, shift: float, cells: int) -> tuple[Move, ...]:
    """Return the changes in the bit counters of a family if ``cells`` of its cells change by ``shift``.

    A centred reward is sent as two bits, so its counters change by twice the shift. Other values are sent as
    one bit. Half of their counters increase by 1, and the other half decrease by 1.
    """
    if name == CENTERED_REWARDS:
        return ((name, round(2 * shift), cells),)
    return (name, 1, cells // 2), (name, -1, cells // 2)


def unit_changes(query: CountQuery) -> int:
    """Return c, the largest sum of absolute changes in counters over all ways to replace one user."""
    return max(sum(abs(by) * count for _, by, count in way) for way in ways(query))


def is_paired(name: str) -> bool:
    """Return True if the noise of this family is symmetric."""
    return name == CENTERED_REWARDS


# ---------------------------------------------------------------------- one coordinate


@lru_cache(maxsize=512)
def pmf(flips: Flips) -> tuple[int, Floats, float]:
    """Return the probability mass function of one counter's noise, without tails below about 1e-25.

    The result is (smallest value, probabilities of this and the following integers, omitted probability).
    """
    if not flips.paired:
        return _binomial(flips.number, flips.chance)
    if flips.coin == COIN // 2:
        return _binomial(flips.number, 0.5)
    half = flips.number // 2
    first, mass, left = _binomial(half, flips.chance)
    # The sum of one half of the bits is B. The sum of the other half is half - B', with B' an independent
    # copy of B. The noise is therefore half + B - B'.
    return half + first - (first + mass.size - 1), np.convolve(mass, mass[::-1]), 2 * left


def _binomial(n: int, p: float) -> tuple[int, Floats, float]:
    from scipy import stats  # imported here because the import takes half a second

    mean, deviation = n * p, math.sqrt(n * p * (1 - p))
    low = max(0, math.floor(mean - 11 * deviation - 5))
    high = min(n, math.ceil(mean + 11 * deviation + 60))
    z = np.arange(low, high + 1)
    left = float(stats.binom.cdf(low - 1, n, p) + stats.binom.sf(high, n, p))
    return low, np.asarray(stats.binom.pmf(z, n, p)), left


@dataclass(frozen=True, eq=False)
class _Loss:
    """Privacy-loss distribution of one coordinate.

    The distribution has finite losses with their probabilities (``masses``), and the probability of an
    infinite loss.
    """

    losses: Floats
    masses: Floats
    infinite: float


@lru_cache(maxsize=512)
def _loss(flips: Flips, by: int) -> _Loss:
    """Return the distribution of the privacy loss if a counter with noise Q changes by ``by``.

    The loss compares Q + by with Q.
    """
    _, mass, left = pmf(flips)
    # P(Q = z - by) and P(Q = z), at the values z that both Q + by and Q can take
    here = mass[:-by] if by > 0 else mass[-by:]
    there = mass[by:] if by > 0 else mass[:by]
    cut = mass[-by:] if by > 0 else mass[:-by]
    alive = (here > 0) & (there > 0)
    infinite = float(cut.sum() + here[~alive].sum()) + left
    here, there = here[alive], there[alive]
    return _Loss(np.log(here / there), here, infinite)


# ---------------------------------------------------------------------- many coordinates


@dataclass(frozen=True, eq=False)
class Curve:
    """Upper bound on delta as a function of epsilon, computed from the loss distribution of one release."""

    losses: Floats  # Grid of losses in ascending order.
    above: Floats  # Probability of a loss at or above each grid point.
    weighed: Floats  # Sum of probability * exp(-loss) over the grid points at or above each grid point.
    # Probability of infinite losses and of losses outside the window, plus a margin for rounding.
    rest: float

    def delta(self, epsilon: float) -> float:
        """Return the bound on delta at this epsilon. The result is at most 1."""
        at = int(np.searchsorted(self.losses, epsilon, side="right"))
        if at == self.losses.size:
            return min(1.0, self.rest)
        return min(1.0, max(0.0, float(self.above[at] - math.exp(epsilon) * self.weighed[at])) + self.rest)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 whose bound is at most ``delta``, or infinity."""
        if self.rest >= delta:
            return math.inf
        start = int(np.searchsorted(self.losses, 0.0, side="right"))
        at_points = self.above[start:] - np.exp(self.losses[start:]) * self.weighed[start:] + self.rest
        # The bound decreases with epsilon. The solution is between the first grid point at which the bound is
        # at most delta and the grid point before it.
        i = start + int(np.argmax(at_points <= delta)) if (at_points <= delta).any() else self.losses.size - 1
        value = (self.above[i] + self.rest - delta) / self.weighed[i] if self.weighed[i] > 0 else 1.0
        return max(0.0, math.log(value)) if value > 0 else 0.0


Noise = tuple[tuple[str, Flips], ...]
"""For each family: its name, and the noise of each of its counters."""

_TILTS = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])


def _power(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Return ``base`` to the power ``count`` elementwise, by repeated squaring.

    NumPy's power function is slower, because it computes a complex logarithm for each entry.
    """
    result: NDArray[np.complex128] | None = None
    while True:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if not count:
            return np.ones_like(base) if result is None else result
        base = base * base


def _gridded(loss: _Loss, step: float, size: int) -> NDArray[np.complex128]:
    """Return the Fourier transform of the loss distribution on a grid of ``size`` points.

    The probability of every loss is split between the two adjacent grid points.
    """
    at = np.floor(loss.losses / step)
    up = -np.expm1(at * step - loss.losses) / -math.expm1(-step)
    place = at.astype(np.int64)
    grid = np.bincount(place % size, loss.masses * (1.0 - up), size)
    grid += np.bincount((place + 1) % size, loss.masses * up, size)
    return np.asarray(fft.rfft(grid))


def curves(noise: Noise, found: tuple[Way, ...], delta: float) -> list[Curve]:
    """Return the bound on delta as a function of epsilon, for each way to replace a user.

    noise : noise of every family. found : ways to replace a user. delta : value of delta at which the result
        must be accurate. This value determines the window of the convolution.
    """
    by_name = dict(noise)
    moves = sorted({(name, by) for way in found for name, by, _ in way})
    losses = [_loss(by_name[name], by) for name, by in moves]
    counts = np.array([[sum(c for *key, c in way if tuple(key) == move) for move in moves] for way in found])
    squares = np.array([float(loss.masses @ loss.losses**2) for loss in losses])
    # By Chernoff's bound, the probability of a loss outside this window is at most 2e-6 delta. The bound is
    # the smallest over several tilts.
    tilts = _TILTS / math.sqrt(max(float((counts @ squares).max()), 1e-12))
    ends = []
    with np.errstate(over="ignore"):
        for sign in (-1.0, 1.0):
            moments = np.log(
                np.array([[loss.masses @ np.exp(sign * t * loss.losses) for t in tilts] for loss in losses])
            )
            moments = np.minimum(moments, 1e200)  # avoids the product of an infinite moment and 0 counters
            ends.append(float(((counts @ moments - math.log(1e-6 * delta)) / tilts).min(axis=1).max()))
    low, high = ends
    step = max(min(math.sqrt(squares.min()) / 24, 0.05), (low + high) / 2**20)
    below = math.ceil(low / step) + 2
    size = fft.next_fast_len(below + math.ceil(high / step) + 3, real=True)
    transforms = [_gridded(loss, step, size) for loss in losses]
    infinite = np.array([math.log1p(-min(loss.infinite, 1.0 - 1e-16)) for loss in losses])
    points = (np.arange(size) - below) * step
    ratios = np.exp(-points)
    composed = []
    for row in counts:
        product = _power(transforms[0], int(row[0]))
        for transform, count in zip(transforms[1:], row[1:].tolist(), strict=True):
            if count:
                product = product * _power(transform, count)
        mass = np.maximum(np.roll(fft.irfft(product, size), below), 0.0)[::-1]
        above, weighed = np.cumsum(mass)[::-1], np.cumsum(mass * ratios[::-1])[::-1]
        rest = -math.expm1(float(row @ infinite)) + 2e-6 * delta + _ROUNDING
        composed.append(Curve(points, above, weighed, rest))
    return composed


@lru_cache(maxsize=4096)
def epsilon_of(noise: Noise, found: tuple[Way, ...], delta: float) -> float:
    """Return an epsilon that is valid at this delta for every way to replace a user.

    The result is infinity if no epsilon is valid. ``delta`` must be in [1e-10, 1).
    """
    return max(one.epsilon(delta) for one in curves(noise, found, delta))


# -------------------------------------------------------------------------- calibration


def weights_of(query: CountQuery, shares: tuple[float, ...], calibration: Calibration) -> dict[str, float]:
    """Return the noise variance in a counter of each family, relative to that in a transition counter.

    For ``joint`` the variances of the estimates (not of the counters) are proportional to 1 / share. The
    estimate of a centred reward is half the value of its counter. The variance in the counter is therefore
    four times that of the estimate. For other calibrations every relative variance is 1.
    """
    names = list(query.row_families)
    if calibration != "joint":
        return dict.fromkeys(names, 1.0)
    own = dict(zip(names, shares, strict=True))
    return {name: own[TRANSITIONS] / own[name] * (4.0 if is_paired(name) else 1.0) for name in names}


def _fair(total: float, users: int, paired: bool) -> Flips:
    """Return noise with the fewest fair flips per user such that all users together add ``total`` or more."""
    each = max(1, math.ceil(total / users - 1e-12))
    return Flips(users, each + (paired and each % 2), COIN // 2, paired)


def misses(noise: Noise, found: tuple[Way, ...], epsilon: float, delta: float) -> bool:
    """Return True if the probability of one event proves that fair flips are too few for the budget.

    Suppose that c counters of a family change by s in total, and that each counter has N flips. Reverse the
    sign of counters that decrease, so that all of them increase. Then the noise in their sum is B,
    distributed as Bin(c N, 1/2), and replacing the user changes the sum from B to B + s. For every t

        delta(epsilon) >= P(B + s >= t) - exp(epsilon) P(B >= t).

    The function uses the t that would give the largest difference if B were normal. If the result is False,
    the number of flips can still be too small. The test compares the difference with 2 delta, so that
    rounding errors of the incomplete beta function do not matter.
    """
    flips = dict(noise)
    for name in flips:
        for way in found:
            own = [(abs(by), count) for family, by, count in way if family == name]
            moved = sum(by * count for by, count in own)
            if not moved:
                continue
            n = flips[name].number * sum(count for _, count in own)
            t = math.ceil(n / 2 + n / 4 * epsilon / moved + moved / 2)
            if not moved < t <= n:
                continue
            after, before = special.betainc([t - moved, t], [n - t + moved + 1, n - t + 1], 0.5)
            if after - math.exp(epsilon) * before > 2.0 * delta:
                return True
    return False


@lru_cache(maxsize=256)
def fair_flips(
    weights: tuple[tuple[str, float], ...],
    found: tuple[Way, ...],
    epsilon: float,
    delta: float,
    users: int = 2**22,
) -> int:
    """Return M, the least number of fair flips in a transition counter that meets the budget.

    A counter of another family has weight * M flips, where the weight is that of the family.

    Raises ``ValueError`` if ``users`` devices cannot draw as many flips as are needed. In most cases
    :func:`misses` detects this without computing the privacy-loss distribution.
    """

    def meets(number: int, over: tuple[Way, ...]) -> bool:
        noise = tuple((name, _fair(w * number, 1, is_paired(name))) for name, w in weights)
        return not misses(noise, over, epsilon, delta) and epsilon_of(noise, over, delta) <= epsilon

    low, high = 0, 64
    while not meets(high, extremes(found)):
        low, high = high, 2 * high
        if low > MOST_FLIPS * users:
            raise ValueError(
                f"epsilon = {epsilon:g}: needs more than {MOST_FLIPS} coins of one device in a batch of "
                f"{users} honest users; must be larger, or batches must be"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle, extremes(found)) else (middle, high)
    while not meets(high, found):
        high += 1 + high // 1000
    return high


def _coined(variance: float, users: int, each: int, paired: bool) -> Flips:
    """Return flips with the least ``coin`` such that the sum over all users has at least this variance.

    If even fair flips have a smaller variance, the result is fair flips.
    """
    quarter = variance / (users * each)
    if quarter >= 0.25:
        return Flips(users, each, COIN // 2, paired)
    p = 0.5 * (1.0 - math.sqrt(1.0 - 4.0 * quarter))
    return Flips(users, each, min(COIN // 2, max(1, math.ceil(p * COIN))), paired)


@lru_cache(maxsize=8192)
def calibrated(
    weights: tuple[tuple[str, float], ...],
    found: tuple[Way, ...],
    epsilon: float,
    delta: float,
    users: int,
    several: bool,
) -> Noise:
    """Return the least noise that meets (epsilon, delta) with ``users`` honest users.

    several : if True, flips can have a probability below 1/2 even if each user adds several flips to a
        counter (calibration ``joint``). If False, flips have such a probability only if each user adds one
        flip. If each user adds several flips, the flips are fair (calibration ``composed``).
    """
    number = fair_flips(weights, found, epsilon, delta, users)
    fair = {name: _fair(w * number, users, is_paired(name)) for name, w in weights}
    noise: Noise = tuple(fair.items())
    most = {name: 2 if is_paired(name) else 1 for name, _ in weights}

    def coined(variance: float) -> Noise:
        return tuple(
            (
                name,
                _coined(w * variance, users, fair[name].each, is_paired(name))
                if several or fair[name].each == most[name]
                else fair[name],
            )
            for name, w in weights
        )

    least = 0.25 * number
    few = all(fair[name].number <= _OVERSHOOT * w * number for name, w in weights)
    if few or coined(least) == noise:  # no improvement possible
        return noise
    ends = extremes(found)
    # Epsilon is approximately proportional to 1 / standard deviation. Therefore each step multiplies the
    # variance by (epsilon reached / epsilon wanted)^2, with a small margin upwards.
    low, high, variance = 0.0, math.inf, least
    for _ in range(30):
        now = coined(variance)
        gap = epsilon_of(now, ends, delta) / epsilon
        if gap <= 1.0:
            high, noise = variance, now
            if gap >= 1.0 - 1e-4:
                break
        else:
            low = variance
        if math.isinf(gap):
            variance = 2.0 * variance if math.isinf(high) else 0.5 * (low + high)
            continue
        closer = variance * gap**2 * (1.0 + 4e-5)
        variance = closer if low < closer < high else (0.5 * (low + high) if high < math.inf else 2.0 * low)
        if high - low <= 1e-5 * low:
            break
    while epsilon_of(noise, found, delta) > epsilon:
        high *= 1.0 + 1e-3
        noise = coined(high)
    return noise


def closed_form(calibration: Calibration, query: CountQuery, epsilon: float, delta: float) -> float:
    """Return tau of the published lemma, for the calibrations ``basic`` and ``published``.

    Raises ``ValueError`` if the lemma does not apply (epsilon' > 1).
    """
    parts = 3 * query.layout.horizon if calibration == "published" else unit_changes(query)
    each = epsilon / parts
    if each > 1.0:
        raise ValueError(
            f"epsilon = {epsilon:g}: must be at most {parts} with calibration = {calibration!r}, whose lemma "
            "needs an epsilon of at most 1 for each counter"
        )
    share = delta if calibration == "published" else delta / parts
    return 96.0 * math.log(2.0 / share) / each**2


def noise_of(
    query: CountQuery,
    shares: tuple[float, ...],
    calibration: Calibration,
    epsilon: float,
    delta: float,
    users: int,
) -> Noise:
    """Return the noise of a batch in which ``users`` honest users add flips.

    Raises ``ValueError`` for a delta below 1e-10, and for queries in which a user's contribution to a counter
    is not a bit.
    """
    checks.choice("calibration", calibration, CALIBRATIONS)
    epsilon = checks.positive("epsilon", epsilon)
    delta = checks.real("delta", delta, LEAST_DELTA, 1.0, open_high=True)
    users = checks.integer("users", users, 1)
    found = ways(query)
    if calibration in ("joint", "composed"):
        weights = weights_of(query, shares, calibration)
        return calibrated(tuple(weights.items()), found, epsilon, delta, users, calibration == "joint")
    tau = closed_form(calibration, query, epsilon, delta)
    noise = []
    for name in query.row_families:
        paired = is_paired(name)
        if users <= tau:
            noise.append((name, _fair(math.ceil(tau), users, paired)))
        else:
            coin = min(COIN // 2, math.ceil(tau / (2 * users) * COIN))
            noise.append((name, Flips(users, 2 if paired else 1, coin, paired)))
    return tuple(noise)
