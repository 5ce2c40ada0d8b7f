r"""Joint privacy of binomial noise in many counters, and the least such noise that meets (epsilon, delta).

The output of a batch is, in each counter, (a user's own bits) + (all others') + Q, with independent noise Q
of known distribution. Replacing one user moves some counters by known amounts (:data:`Move`), in the worst
case at every step of the horizon

====================  ============  ==================  =============  ========================
case                  visits        transitions         rewards        centred rewards
====================  ============  ==================  =============  ========================
other (s, a)          +1 and -1     +1 and -1           +1 and -1      two counters by 1
same (s, a), other s' none          +1 and -1           one by 1       one counter by 2
same (s, a, s')       none          none                one by 1       one counter by 2
====================  ============  ==================  =============  ========================

(Rewards are rounded to bits. A centred reward has two bits: (0, 1) at pairs that the user did not visit and
(y, y) at pairs that they visited.) Let k = 0 .. H steps be in the same pair and H - k in others. At most
min(k, H - k + 1) of these k steps are of the second case: users who went to different states are in different
pairs next. The counters that move are independent coordinates; fewer moves never cost more. Noise of centred
rewards is symmetric, so the sign of their moves does not matter. In the other families as many counters rise
as fall, so the loss is the same in both orders of two neighbours. Therefore there is one loss distribution
for each k, and the guarantee uses the worst of them. For a query of one step (``CountQuery.step``) a device
sends bits for the counters of that step only, and H is 1 everywhere here. Visits and transitions make 4 unit
changes, a query of transitions only makes 2.

The loss distribution. One coordinate has atoms at ln P(Q = z - x) / P(Q = z) with masses P(Q = z - x). Mass
where P(Q = z) = 0 is at infinity. Each atom is split between the two neighbours on a grid so that its mass
and its mass under the other distribution stay the same. This is a mean-preserving spread of the likelihood
ratio, so the loss never decreases (Blackwell), and the error is of second order in the grid step. Coordinates
are convolved by FFT on a window. By Chernoff's bound, less than 2e-6 delta is outside the window. That mass,
the masses at infinity, and 1e-13 for rounding are added to delta. The result is an upper bound.
dp-accounting, which shares no code with this module, checks it (:func:`discreet.accounting.pld.verify`).

Calibrations use the actual number n of honest users in a batch. Only honest users add noise, and privacy must
not depend on the other users. Each user adds m noise bits to a counter, each 1 with probability p:

- ``joint`` : the variance of one cell's estimate is in inverse proportion to its family's share. Let M be the
  number of fair flips with which a counter meets the budget. Then m = ceil(M / n), and p <= 1/2 is the least
  probability that meets the budget with N = n m flips;
- ``composed`` : every counter has the same M. A user adds m = ceil(M / n) fair flips or, for n > M, one flip
  with the least sufficient p;
- ``basic`` : a user adds m = ceil(tau / n) fair flips, or one flip with p = tau / (2 n). Here ``tau = 96 ln(2
  / delta') / epsilon'^2`` with ``epsilon' = epsilon / c``, ``delta' = delta / c`` for c unit changes;
- ``published`` : as ``basic``, with ``epsilon' = epsilon / (3 H)`` and ``delta' = delta`` (Bai et al. 2024).
  A query of one step uses the same values, because the paper charges the whole horizon for its first-stage
  batches.

For every calibration, the guarantee is what accounting computes for the flips.

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
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS
from discreet.device.shuffle_encoder import MOST_FLIPS
from discreet.device.shuffle_payload import COIN

Floats = NDArray[np.float64]
Calibration = Literal["joint", "composed", "basic", "published"]
CALIBRATIONS: tuple[Calibration, ...] = ("joint", "composed", "basic", "published")

LEAST_DELTA = 1e-10  # smaller deltas are below the precision of double Fourier transforms
_ROUNDING = 1e-13
_OVERSHOOT = 1.005  # fair flips are kept if their number exceeds the least one by at most this factor


@dataclass(frozen=True)
class Flips:
    """Noise of one counter, summed over users.

    Parameters
    ----------
    users : number of honest users, who add noise.
    each : noise bits of one user.
    coin : integer; a bit is 1 with probability coin / 2^32.
    paired : half of the bits have the probability of the complement, so that the sum is symmetric.
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
        """N, the number of flips of the counter."""
        return self.users * self.each

    @property
    def chance(self) -> float:
        """Probability p that a flip is 1."""
        return self.coin / COIN

    @property
    def variance(self) -> float:
        """Variance N p (1 - p)."""
        return self.number * self.chance * (1.0 - self.chance)


Move = tuple[str, int, int]
"""(family, change of each counter: +x or -x, number of such counters)."""

Way = tuple[Move, ...]
"""One way to replace a user."""


def ways(query: CountQuery) -> tuple[Way, ...]:
    """Return the undominated ways to replace a user (module docstring, table).

    Raises ``ValueError`` for queries in which a user adds more than one bit to a counter: pooled steps, group
    returns.
    """
    found = query.shifts()
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
    """Return the moved counters of a family: a centred reward has two bits, other values have one bit."""
    if name == CENTERED_REWARDS:
        return ((name, round(2 * shift), cells),)
    return (name, 1, cells // 2), (name, -1, cells // 2)


def unit_changes(query: CountQuery) -> int:
    """Return c: the largest sum of absolute changes, over all ways to replace one user."""
    return max(sum(abs(by) * count for _, by, count in way) for way in ways(query))


def is_paired(name: str) -> bool:
    """Return whether the noise of this family is symmetric."""
    return name == CENTERED_REWARDS


# ---------------------------------------------------------------------- one coordinate


@lru_cache(maxsize=512)
def pmf(flips: Flips) -> tuple[int, Floats, float]:
    """Return (first value, probabilities, omitted mass) of one counter's noise.

    Tails below about 1e-25 are omitted.
    """
    if not flips.paired:
        return _binomial(flips.number, flips.chance)
    if flips.coin == COIN // 2:
        return _binomial(flips.number, 0.5)
    half = flips.number // 2
    first, mass, left = _binomial(half, flips.chance)
    # half of the bits sum to B, the other bits to half - B'; the total is half + B - B'
    return half + first - (first + mass.size - 1), np.convolve(mass, mass[::-1]), 2 * left


def _binomial(n: int, p: float) -> tuple[int, Floats, float]:
    from scipy import stats  # half a second to import

    mean, deviation = n * p, math.sqrt(n * p * (1 - p))
    low = max(0, math.floor(mean - 11 * deviation - 5))
    high = min(n, math.ceil(mean + 11 * deviation + 60))
    z = np.arange(low, high + 1)
    left = float(stats.binom.cdf(low - 1, n, p) + stats.binom.sf(high, n, p))
    return low, np.asarray(stats.binom.pmf(z, n, p)), left


@dataclass(frozen=True, eq=False)
class _Loss:
    """Privacy-loss distribution of one coordinate: finite atoms, and the mass at infinity."""

    losses: Floats
    masses: Floats
    infinite: float


@lru_cache(maxsize=512)
def _loss(flips: Flips, by: int) -> _Loss:
    """Return the privacy-loss distribution of Q + by against Q."""
    _, mass, left = pmf(flips)
    here = mass[:-by] if by > 0 else mass[-by:]  # P(Q = z - by) at values z that both distributions can take
    there = mass[by:] if by > 0 else mass[:by]
    cut = mass[-by:] if by > 0 else mass[:-by]
    alive = (here > 0) & (there > 0)
    infinite = float(cut.sum() + here[~alive].sum()) + left
    here, there = here[alive], there[alive]
    return _Loss(np.log(here / there), here, infinite)


# ---------------------------------------------------------------------- many coordinates


@dataclass(frozen=True, eq=False)
class Curve:
    """Upper bound on delta as a function of epsilon, from a composed loss distribution."""

    losses: Floats  # ascending grid
    above: Floats  # mass at and above each grid point
    weighed: Floats  # sum of mass * exp(-loss) at and above each grid point
    rest: float  # mass at infinity, outside the window, and for rounding

    def delta(self, epsilon: float) -> float:
        """Return delta at this epsilon, at most 1."""
        at = int(np.searchsorted(self.losses, epsilon, side="right"))
        if at == self.losses.size:
            return min(1.0, self.rest)
        return min(1.0, max(0.0, float(self.above[at] - math.exp(epsilon) * self.weighed[at])) + self.rest)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 with delta(epsilon) <= delta; infinity if there is none."""
        if self.rest >= delta:
            return math.inf
        start = int(np.searchsorted(self.losses, 0.0, side="right"))
        at_points = self.above[start:] - np.exp(self.losses[start:]) * self.weighed[start:] + self.rest
        # delta decreases with epsilon: take the cell that ends at the first grid point whose delta is small
        # enough
        i = start + int(np.argmax(at_points <= delta)) if (at_points <= delta).any() else self.losses.size - 1
        value = (self.above[i] + self.rest - delta) / self.weighed[i] if self.weighed[i] > 0 else 1.0
        return max(0.0, math.log(value)) if value > 0 else 0.0


Noise = tuple[tuple[str, Flips], ...]
"""(family, noise of each of its counters)."""

_TILTS = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])


def _power(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Return a power by repeated squaring. NumPy's power would compute a complex logarithm for each entry."""
    result: NDArray[np.complex128] | None = None
    while True:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if not count:
            return np.ones_like(base) if result is None else result
        base = base * base


def _gridded(loss: _Loss, step: float, size: int) -> NDArray[np.complex128]:
    """Return the Fourier transform of the loss distribution on the grid.

    Every atom is split between adjacent points.
    """
    at = np.floor(loss.losses / step)
    up = -np.expm1(at * step - loss.losses) / -math.expm1(-step)
    place = at.astype(np.int64)
    grid = np.bincount(place % size, loss.masses * (1.0 - up), size)
    grid += np.bincount((place + 1) % size, loss.masses * up, size)
    return np.asarray(fft.rfft(grid))


def curves(noise: Noise, found: tuple[Way, ...], delta: float) -> list[Curve]:
    """Return the composed loss distribution of each way to replace a user, accurate at this delta."""
    by_name = dict(noise)
    moves = sorted({(name, by) for way in found for name, by, _ in way})
    losses = [_loss(by_name[name], by) for name, by in moves]
    counts = np.array([[sum(c for *key, c in way if tuple(key) == move) for move in moves] for way in found])
    squares = np.array([float(loss.masses @ loss.losses**2) for loss in losses])
    # a window with at most 2e-6 delta outside, by Chernoff's bound at several tilts
    tilts = _TILTS / math.sqrt(max(float((counts @ squares).max()), 1e-12))
    ends = []
    with np.errstate(over="ignore"):
        for sign in (-1.0, 1.0):
            moments = np.log(
                np.array([[loss.masses @ np.exp(sign * t * loss.losses) for t in tilts] for loss in losses])
            )
            moments = np.minimum(moments, 1e200)  # avoids infinite moments times 0 moves
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
    """Return an epsilon that holds for every way at this delta in [1e-10, 1). Infinity if there is none."""
    return max(one.epsilon(delta) for one in curves(noise, found, delta))


# -------------------------------------------------------------------------- calibration


def weights_of(query: CountQuery, shares: tuple[float, ...], calibration: Calibration) -> dict[str, float]:
    """Return the variance of the number of ones in each family's counters, relative to that of transitions.

    ``joint`` : the variances of the estimates (not of the numbers of ones) are proportional to 1 / share. The
        estimate of a centred reward is half its number of ones.
    """
    names = list(query.row_families)
    if calibration != "joint":
        return dict.fromkeys(names, 1.0)
    own = dict(zip(names, shares, strict=True))
    return {name: own[TRANSITIONS] / own[name] * (4.0 if is_paired(name) else 1.0) for name in names}


def _fair(total: float, users: int, paired: bool) -> Flips:
    """Return the fewest fair flips per user whose number over all users is at least ``total``."""
    each = max(1, math.ceil(total / users - 1e-12))
    return Flips(users, each + (paired and each % 2), COIN // 2, paired)


def misses(noise: Noise, found: tuple[Way, ...], epsilon: float, delta: float) -> bool:
    """Return True if the probability of one event shows that fair flips are too few for the budget.

    Let c counters of a family, of N flips each, move by s in all. Signed so that each rises, their sum is B +
    s against B, with B distributed as Bin(c N, 1/2). For every t

        delta(epsilon) >= P(B + s >= t) - exp(epsilon) P(B >= t).

    The value of t gives the largest difference for normal B. A result of False proves nothing. The test
    compares with twice delta, so that the last digit of an incomplete beta function does not matter.
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
    """Return M, the fewest fair flips in a transition counter that meet the budget.

    Other families have weight * M.

    Raises ``ValueError`` if the devices of ``users`` users could not draw them. In most cases :func:`misses`
    shows this without the privacy-loss distribution.
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
    """Return flips with the least ``coin`` for which the sum over users has at least this variance."""
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

    several : allow probabilities below 1/2 also if a user adds more than one flip to a counter (``joint``).
        If False, they are allowed only with one flip per user, and smaller batches use fair bits
        (``composed``).
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
    # epsilon falls approximately as 1 / deviation: apply secant steps to a factor of the variance, starting
    # slightly too large
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
    """Return tau of the published lemma. Raises ``ValueError`` where it does not apply (epsilon' > 1)."""
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
    """Return the flips of a batch in which ``users`` honest users add noise.

    Raises ``ValueError`` for a delta below 1e-10 and for queries whose contributions are not bits.
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
