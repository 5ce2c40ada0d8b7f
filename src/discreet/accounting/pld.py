"""Numerical privacy-loss distributions (PLD), and verification of guarantees with independent code.

An epsilon is never verified by the code that computed it. Epsilons from closed forms
(:mod:`discreet.accounting.budget`, :mod:`discreet.core.guarantee`) are verified with Google's dp-accounting,
which has numerical privacy-loss distributions and a Renyi accountant. If the noise was calibrated by its
privacy-loss distribution, dp-accounting itself computes the stated epsilon (:func:`composed_epsilon`). The
convolution in :mod:`discreet.accounting.pld_convolution` then verifies this epsilon. :func:`verify` compares
the two values. Importing dp-accounting takes seconds, so it is imported inside functions.

This module avoids four problems of dp-accounting. First, the accountants of dp-accounting define the
replace-one relation differently, by a factor of 2. Therefore this library computes the sensitivity, and
passes shifts in units of the noise under the add-or-remove relation. Second, many compositions need a grid
that is much finer than one loss. Third, the truncated tails of dp-accounting give infinity at delta = 0.
Fourth, discrete Gaussian noise needs memory for every integer within 11.6 standard deviations
(:func:`_as_continuous`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from discreet.accounting import pld_convolution as convolution
from discreet.accounting.budget import check_delta, gdp_epsilon, zcdp_epsilon
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core import checks
from discreet.core.events import Coordinate, MechanismRecord
from discreet.core.guarantee import Guarantee
from discreet.core.protocols import Record

__all__ = [
    "Coordinate", "composed_epsilon", "gaussian_epsilon", "laplace_delta",
    "laplace_epsilon", "verify", "worst_epsilon", "zcdp_epsilon_numerically",
]  # fmt: skip

Shifts = Sequence[tuple[float, int]]

_PURE_SLACK = 1e-12  # largest probability with which a numerical PLD may exceed a pure epsilon
# relative tolerance. It is needed because losses are rounded up and only finitely many orders are used
_GRID_SLACK = 1e-3


def _interval(unit: float, count: int) -> float:
    """Return the step of the loss grid.

    ``unit`` is one loss and ``count`` the number of losses. The step is 1/2000 of one loss, but at most 1e-4
    and at least 1e-6 of the total loss.
    """
    return max(min(1e-4, unit / 2000), unit * count * 1e-6)


def _laplace_pld(shifts: Shifts) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if not shifts:
        raise ValueError("shifts is empty: must hold at least one (shift over scale, count)")
    units = [checks.positive("shift over scale", unit) for unit, _ in shifts]
    counts = [checks.integer("count", count, 1) for _, count in shifts]
    interval = min(_interval(unit, count) for unit, count in zip(units, counts, strict=True))
    total = None
    for unit, count in zip(units, counts, strict=True):
        one = pld.from_laplace_mechanism(1.0 / unit, 1.0, value_discretization_interval=interval)
        many = one.self_compose(count)
        total = many if total is None else total.compose(many)
    return total


def laplace_epsilon(shifts: Shifts, delta: float) -> float:
    """Return epsilon at delta in (0, 1) for adaptively composed independent Laplace noise of scale b.

    shifts : pairs (|shift| / b, count), where count is the number of coordinates with this shift.
    """
    return float(_laplace_pld(shifts).get_epsilon_for_delta(check_delta(delta)))


def laplace_delta(shifts: Shifts, epsilon: float) -> float:
    """Return delta at epsilon >= 0 for adaptively composed independent Laplace noise.

    At or above the pure epsilon, delta is 0 up to an error of 1e-12. ``shifts`` : as in
    :func:`laplace_epsilon`.
    """
    return float(_laplace_pld(shifts).get_delta_for_epsilon(checks.real("epsilon", epsilon, 0.0)))


def gaussian_epsilon(shifts: Shifts, delta: float) -> float:
    """Return epsilon at delta for independent Gaussian noise, by composing numerical PLDs.

    shifts : pairs (l2 shift / sigma, count), where count is the number of releases with this shift.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    total: Any = None
    # Use one grid for all distributions, because dp-accounting cannot compose different grids. Losses have a
    # density, so the error is of second order in the grid step: about 1e-6 of epsilon.
    interval = min(
        (10 * _interval(checks.positive("shift over sigma", u), 1) for u, _ in shifts), default=1e-4
    )
    for unit, count in shifts:
        one = pld.from_gaussian_mechanism(1.0 / unit, 1.0, value_discretization_interval=interval)
        many = one.self_compose(checks.integer("count", count, 1))
        total = many if total is None else total.compose(many)
    if total is None:
        raise ValueError("shifts is empty: must hold at least one (shift over sigma, count)")
    return float(total.get_epsilon_for_delta(check_delta(delta)))


# ------------------------------------------------------- any independent noise, numerically
# Losses are rounded up to a grid, so the composed epsilon is an upper bound. It is too large by at most one
# grid step for each coordinate. The noise of each coordinate must be independent and drawn after the user's
# record was added (condition c in core.correlated_noise). This holds for trees with fresh nodes, for batches,
# and for the messages of one user.

_COARSE = 32  # Number of steps of a coarse grid in the root mean square of a loss.
# Least such number on the stated grid for Gaussian noise. Its losses are split between grid points.
_LEAST_POINTS = 4
_MOST_POINTS = 6_000_000  # Largest number of grid points. Composition needs about 100 bytes for each point.
_MOST_INTEGERS = 2.0**19  # Largest sigma for which discrete Gaussian noise is summed integer by integer.
LEAST_DELTA = 1e-10  # Smaller deltas are not resolved because of rounding in Fourier transforms.
_ROUNDING = 1e-13  # several times the largest observed error of a probability because of this rounding


@lru_cache(maxsize=256)
def _coordinate_pld(noise: str, scale: float, shift: float, interval: float, coarse: bool = False) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if noise == "laplace":
        return pld.from_laplace_mechanism(scale / shift, 1.0, value_discretization_interval=interval)
    if noise == "gaussian" or _is_wide(noise, scale):
        return pld.from_gaussian_mechanism(scale / shift, 1.0, value_discretization_interval=interval)
    if noise == "pure":
        from dp_accounting.pld import common

        epsilon = common.DifferentialPrivacyParameters(shift / scale, 0.0)
        return pld.from_privacy_parameters(epsilon, value_discretization_interval=interval)
    if shift != int(shift):
        raise ValueError(f"shift = {shift!r}: must be a whole number of grid units for {noise} noise")
    whole = int(shift)
    if noise == "discrete_laplace":
        return pld.from_discrete_laplace_mechanism(
            1.0 / scale, whole, value_discretization_interval=interval, use_connect_dots=coarse
        )
    checks.choice("noise", noise, ("laplace", "gaussian", "discrete_laplace", "discrete_gaussian"))
    return _discrete_gaussian_pld(scale, whole, interval)


def _discrete_gaussian_pld(sigma: float, shift: int, interval: float) -> Any:
    """Return the loss distribution that dp-accounting computes by its connect-the-dots method.

    The loss of the noise value x is (shift^2 - 2 shift x) / (2 sigma^2), which is linear in x. The method
    uses every grid point that is adjacent to a loss. If adjacent losses are at most one grid step apart,
    these are all grid points between the smallest and the largest loss. The package dp-accounting finds the
    points, and the noise value of each point, in a Python loop. The loop takes seconds for the millions of
    integers of fine grids. This function computes them with NumPy, which is faster.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_mechanism
    from dp_accounting.pld import privacy_loss_distribution as pld

    law = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(sigma, sensitivity=shift)
    ends = law.connect_dots_bounds()
    if shift / sigma**2 > interval:
        losses = shift * (-0.5 * shift - np.arange(ends.upper_x, ends.lower_x - 1, -1)) / sigma**2 / interval
        points = np.unique(np.concatenate([np.floor(losses), np.ceil(losses)])).astype(np.int64)
    else:
        low, high = (law.privacy_loss(x) / interval for x in (ends.upper_x, ends.lower_x))
        points = np.arange(math.floor(low), math.ceil(high) + 1)
    epsilons = points * interval
    most = np.floor(np.clip(-0.5 * shift - epsilons * sigma**2 / shift, ends.lower_x - 1, ends.upper_x))
    deltas = np.clip(law.mu_upper_cdf(most) - np.exp(epsilons + law.mu_lower_log_cdf(most)), 0.0, 1.0)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, deltas))


@lru_cache(maxsize=1024)
def composed_epsilon(coordinates: tuple[Coordinate, ...], delta: float, most: int | None = None) -> float:
    """Return an upper bound on epsilon at this delta for independent noises, each with a known shift.

    Parameters
    ----------
    coordinates : all coordinates that change if one user is replaced.
    delta : in [1e-10, 1). Smaller values cannot be resolved in double precision.
    most : largest number of coordinates in any composition that is compared with this one. By default it is
        the number of coordinates of this composition. Compositions that are compared must use the same grid.

    The usual step of the grid is 0.002 / most, which adds at most 0.002 to epsilon. :func:`_grid` selects
    another step if the usual step is too coarse relative to the losses, or if the grid would be too long. In
    these cases, and if sigma exceeds 2^19, epsilon of Gaussian noise is computed without a grid
    (:func:`_closed`).
    """
    kept, delta = _moving(coordinates, delta)
    return _composed(kept, delta, most)


def _moving(coordinates: tuple[Coordinate, ...], delta: float) -> tuple[list[Coordinate], float]:
    """Check the arguments. Return the coordinates with a nonzero shift, and delta.

    Coordinates that differ only in their count are merged, and their counts are added. Raises ``ValueError``
    if no coordinate has a nonzero shift.
    """
    delta = check_delta(delta)
    if delta < LEAST_DELTA:
        raise ValueError(f"delta = {delta:g}: must be at least {LEAST_DELTA:g} for numerical accounting")
    kinds: Counter[tuple[str, float, float]] = Counter()
    for noise, scale, shift, number in coordinates:
        if number > 0 and shift != 0:
            count = checks.integer("count", number, 1)
            kinds[noise, checks.positive("scale", scale), abs(shift)] += count
    if not kinds:
        raise ValueError("coordinates is empty: must hold at least one that moves")
    return [(*kind, count) for kind, count in kinds.items()], delta


def _usual(kept: Sequence[Coordinate], most: int | None) -> float:
    """Return the usual step of the grid: 0.002 divided by the number of coordinates.

    If ``most`` is larger than this number, ``most`` is used instead.
    """
    return 2e-3 / max(sum(count for *_, count in kept), most or 0)


def _grid(kept: Sequence[Coordinate], most: int | None) -> tuple[float, bool]:
    """Return the step of the grid for a stated epsilon, and True if Laplace losses are split between points.

    The usual step is 0.002 divided by the number of coordinates, and losses are rounded up. The step differs
    in two cases:

    - Let r be the root mean square of the losses. A step above r / 32 would change epsilon noticeably, and
      could even be larger than epsilon. The step is therefore at most r / 32, unless all noise is Gaussian.
      Losses of Gaussian noise are split between points on every grid. If the usual step is above r / 4,
      epsilon is computed in closed form (:func:`_closed`).
    - The total loss has a mean of about mu^2 / 2 and a standard deviation of about mu, where mu^2 is the sum
      of r^2. A grid over 12 standard deviations on both sides must have at most 6 million points.

    In both cases losses are split between two grid points, as in :func:`coarse_epsilons`. The result is then
    never below the true value, and the variance of a loss increases by at most a quarter of the squared step.
    """
    usual, mean = _usual(kept, most), math.sqrt(_mean_square(kept))
    if mean < (_LEAST_POINTS if _all_gaussian(kept) else _COARSE) * usual:
        return mean / _COARSE, True
    together = mean * math.sqrt(sum(count for *_, count in kept))
    shortest = together * (together + 24.0) / _MOST_POINTS
    return (shortest, True) if shortest > usual else (usual, False)


def _all_gaussian(kept: Sequence[Coordinate]) -> bool:
    return all(noise.endswith("gaussian") for noise, *_ in kept)


def _is_wide(noise: str, scale: float) -> bool:
    """Return True for discrete Gaussian noise whose scale is too large to sum over all its integers."""
    return noise == "discrete_gaussian" and scale > _MOST_INTEGERS


def _as_continuous(kept: Sequence[Coordinate], delta: float) -> tuple[float, float]:
    r"""Return (delta', slack), which bound the epsilon of discrete Gaussian noise.

    The epsilon of discrete Gaussian noise at delta is at most the epsilon of continuous Gaussian noise at
    delta', plus slack.

    Proof. Let f(y) = e^{-y^2 / 2 sigma^2} and P(j) = f(j) / Z the distribution on integers. Let P'(j) be the
    mass of the normal distribution in [j - 1/2, j + 1/2]. Let Q and Q' be P and P' shifted by ``shift``. The
    pair (P', Q') is a post-processing (rounding) of the continuous pair. With x = j / sigma::

        P'(j) sigma sqrt(2 pi) / f(j) = 2 int_0^{1/2} cosh(j u / sigma^2) e^{-u^2 / 2 sigma^2} du.

    This quotient is at least 1 - 1 / (24 sigma^2), because cosh >= 1 and e^{-v} >= 1 - v. The quotient is at
    most 1 + (e^w - 1) / 3 with w = x^2 / (8 sigma^2), because cosh v <= e^{v^2 / 2} and e^v is convex. This
    upper bound is below e^{x^2 / 22 sigma^2} for w <= 0.1. By Poisson's summation formula 1 <= Z / (sigma
    sqrt(2 pi)) <= 1 + 3 e^{-2 pi^2 sigma^2}. For sigma >= 4, two inequalities follow, with a = 1 / (23
    sigma^2) and b = (r^2 + 1) / (22 sigma^2)::

        P <= e^a P' everywhere,     Q >= e^{-b} Q' within r sigma of the centre of Q.

    Now take n independent coordinates. Let B be the set of outcomes whose coordinates are all within r sigma
    of the centres of Q. Let A be the sum of all a, and B' the sum of all b. For every event E::

        P(E) - e^eps Q(E) <= e^A (P'(E) - e^{eps - A - B'} Q'(E)) + P(not B),

    Therefore delta(eps) <= e^A delta'(eps - A - B') + P(not B). Discrete Gaussian noise is sub-Gaussian
    (Canonne, Kamath and Steinke 2020), so P(not B) <= sum of 2 e^{-(r - shift / sigma)^2 / 2}. The function
    chooses r such that this sum is at most a thousandth of delta. If sigma is too small for the proof, slack
    is infinite.
    """
    discrete = [
        (scale, shift / scale, count) for noise, scale, shift, count in kept if noise == "discrete_gaussian"
    ]
    if not discrete:
        return delta, 0.0
    number = sum(count for *_, count in discrete)
    reach = max(unit for _, unit, _ in discrete) + math.sqrt(2.0 * math.log(2e3 * number / delta))
    least = min(scale for scale, *_ in discrete)
    if least < 4.0 or reach**2 > 0.8 * least**2:
        return delta, math.inf
    above = math.fsum(count / (23.0 * scale**2) for scale, _, count in discrete)
    below = math.fsum(count * (reach**2 + 1.0) / (22.0 * scale**2) for scale, _, count in discrete)
    return 0.999 * delta * math.exp(-above), above + below


def _closed(kept: Sequence[Coordinate], delta: float) -> float:
    """Return an upper bound on epsilon for continuous or discrete Gaussian noise, without a grid.

    The result is the smaller of two upper bounds. The first is the exact curve of continuous noise, with the
    correction of :func:`_as_continuous` for discrete noise. The second follows from zCDP.
    """
    squared = math.fsum(count * (shift / scale) ** 2 for _, scale, shift, count in kept)
    near, slack = _as_continuous(kept, delta)
    return min(gdp_epsilon(math.sqrt(squared), near) + slack, zcdp_epsilon(0.5 * squared, delta))


def _composed(
    kept: Sequence[Coordinate], delta: float, most: int | None, coarse: float | None = None
) -> float:
    """Return epsilon on the grid for stated epsilons, or on a grid of step ``coarse`` if it is given."""
    wide = [one for one in kept if _is_wide(*one[:2])]
    if _all_gaussian(kept) and (wide or math.sqrt(_mean_square(kept)) < _LEAST_POINTS * _usual(kept, most)):
        return _closed(kept, delta)
    step, split = _grid(kept, most) if coarse is None else (coarse, True)
    near, slack = _as_continuous(wide, delta)
    found = slack + _on_grid(kept, near, step, split)
    if any(noise.endswith("gaussian") for noise, *_ in kept):
        return found
    return min(found, math.fsum(count * shift / scale for _, scale, shift, count in kept))  # the pure epsilon


def _on_grid(kept: Sequence[Coordinate], delta: float, interval: float, coarse: bool) -> float:
    total: Any = None
    for noise, scale, shift, count in kept:
        one = _coordinate_pld(noise, scale, shift, interval, coarse)
        many = one.self_compose(count) if count > 1 else one
        total = many if total is None else total.compose(many)
    return float(total.get_epsilon_for_delta(delta - _ROUNDING))


def coarse_epsilons(
    exchanges: Sequence[tuple[Coordinate, ...]], delta: float, most: int | None = None
) -> list[float]:
    """Return an upper bound on the epsilon of each way to replace a user.

    Each bound is too large by about 1e-4. Its computation takes milliseconds. The grid of losses is coarser
    than that of :func:`composed_epsilon`. A loss between two grid points is split between them, so that
    merging the two parts restores the loss. The result is therefore never below the true value. The step of
    the grid is 1/32 of the root mean square of the losses, so the variance of the losses increases by at most
    1 / 4096 of itself.
    """
    ways = [_moving(tuple(way), delta) for way in exchanges]
    fine = min(_grid(kept, most)[0] for kept, _ in ways)
    mean = min(_mean_square(kept) for kept, _ in ways)
    step = fine * max(1, math.floor(math.sqrt(mean) / _COARSE / fine))
    return [_coarse(tuple(kept), delta, most, step) for kept, delta in ways]


def _mean_square(kept: Sequence[Coordinate]) -> float:
    """Return the approximate mean square of the losses of the coordinates in one way to replace a user."""
    squares = math.fsum(count * (shift / scale) ** 2 for _, scale, shift, count in kept)
    return squares / sum(count for *_, count in kept)


@lru_cache(maxsize=1024)
def _coarse(kept: tuple[Coordinate, ...], delta: float, most: int | None, step: float) -> float:
    return _composed(kept, delta, most, step)


def worst_epsilon(
    exchanges: Sequence[tuple[Coordinate, ...]], delta: float, most: int | None = None
) -> float:
    """Return the largest :func:`composed_epsilon` over the ways to replace a user.

    The losses of all ways are rounded to a grid with the same usual step. A way is composed on the fine grid
    only if its upper bound on a coarse grid is at least the largest epsilon found so far.
    """
    if not exchanges:
        raise ValueError("exchanges is empty: must hold at least one way to exchange a user")
    ways = list(dict.fromkeys(map(tuple, exchanges)))
    number = max(most or 0, *(sum(count for *_, count in way) for way in ways))
    if len(ways) == 1:
        return composed_epsilon(ways[0], delta, number)
    worst = -math.inf
    for bound, way in sorted(zip(coarse_epsilons(ways, delta, number), ways, strict=True), reverse=True):
        if bound <= worst:
            break
        worst = max(worst, composed_epsilon(way, delta, number))
    return worst


def zcdp_epsilon_numerically(rho: float, delta: float) -> float:
    """Return epsilon at delta for rho-zCDP by dp-accounting's Renyi accountant, on a grid of orders."""
    from dp_accounting import dp_event, rdp

    rho, delta = checks.positive("rho", rho), check_delta(delta)
    best = max(1.001, 1 + math.sqrt(-math.log(delta) / rho))
    # alpha - 1 is 1/4 to 4 times that of the best order
    orders = [1 + (best - 1) * 2 ** (k / 50 - 2) for k in range(201)]
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(dp_event.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


def report_outcomes(record: ReportRecord, name: str) -> tuple[list[float], list[float]]:
    """Return the probabilities of the two bits in a response that belong to two given elements.

    There are four outcomes: no bit is set, only the first bit is set, only the second bit is set, or both
    bits are set. The first list is for a user with the first element, the second list for a user with the
    second element. Given these two bits, the rest of the response has the same distribution for both users.
    Therefore the best test of the two users uses only these two bits.
    """
    kind, elements, size, own, other = record.alphabets[name]
    p, q = own / 2**53, other / 2**53
    if elements == 1:
        return [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]
    if kind == "unary":
        first = [(1 - p) * (1 - q), p * (1 - q), (1 - p) * q, p * q]
    else:
        taken, free = (size - 1) / (elements - 1), size / (elements - 1)
        first = [(1 - p) * (1 - free), p * (1 - taken), (1 - p) * free, p * taken]
    return first, [first[0], first[2], first[1], first[3]]


def _reports_pld(records: Sequence[ReportRecord]) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    total: Any = None
    for record in records:
        worst = max(record.alphabets, key=record.ratio)
        pmfs = [
            {i: math.log(x) for i, x in enumerate(pmf) if x > 0.0} for pmf in report_outcomes(record, worst)
        ]
        one = pld.from_two_probability_mass_functions(
            *pmfs,
            value_discretization_interval=_interval(max(record.loss / record.reports, 1e-6), record.reports),
        )
        many = one.self_compose(record.reports)
        total = many if total is None else total.compose(many)
    return total


def _of_exchanges(record: MechanismRecord, delta: float) -> float:
    """Return the epsilon of the worst way to replace a user, by :mod:`discreet.accounting.pld_convolution`.

    Raises ``ValueError`` if all ways have a smaller norm than the joint sensitivity. The joint sensitivity is
    a maximum over pairs of trajectories, and other code computes it (``query.sensitivity``).
    """
    power = 1 if record.norm == "l1" else 2
    moved = max(convolution.loss_norm(way, power) for way in record.exchanges)
    if moved < record.loss * (1 - 1e-9):
        raise ValueError(
            f"record: exchanges move {moved:g} in units of the noise, must be {record.loss:g}, by the joint "
            "sensitivity of the worst"
        )
    return max(_recomposed(tuple(way), delta) for way in record.exchanges)


@lru_cache(maxsize=1024)
def _recomposed(way: tuple[Coordinate, ...], delta: float) -> float:
    return convolution.recomposed_epsilon(way, delta)


class _Shuffled(Protocol):
    """Record of shuffled batches that recomputes its epsilon with independent code."""

    def recomputed(self, delta: float) -> float: ...


def verify(guarantee: Guarantee, records: Sequence[Record]) -> float:
    """Recompute the epsilon of a guarantee from its records with independent code, and return it.

    The method depends on the mechanism:

    * Random bits of the shuffle protocol: PLDs of two probability mass functions are composed. The tolerance
      is 0.002.
    * Shuffled responses of a local randomizer: the PLD of the numbers of clones is used. The tolerance is
      0.002.
    * Noise that was calibrated by its privacy-loss distribution: :mod:`discreet.accounting.pld_convolution`
      convolves the worst way to replace a user. The tolerance is 0.1 %. The norm of at least one way must be
      equal to the joint sensitivity in the record.
    * Randomized response: PLDs of the response to two elements are composed. The result must be at most the
      stated epsilon.
    * Laplace noise: the probability of a loss above the stated epsilon must be 0, with a tolerance of 1e-12
      for the probability and 0.1 % for epsilon. The function then returns an epsilon that the loss exceeds
      with probability at most 1e-12. If there are many small equal losses, this epsilon is far below the pure
      epsilon, because a total loss close to the pure epsilon is very unlikely.
    * Gaussian noise: PLDs are composed.
    * Discrete Gaussian noise: the Renyi accountant is applied to the total rho of the records.

    Raises
    ------
    ValueError
        If the stated epsilon is below the recomputed epsilon, or the guarantee contains nothing to verify.
    """
    if guarantee.epsilon is None or not records:
        raise ValueError("guarantee: states no epsilon, or has no records to recompute it from")
    if guarantee.rests_on:
        raise ValueError(
            f"records rest on a declaration, which nothing here can check: {guarantee.rests_on[0]}"
        )
    reports = [record for record in records if isinstance(record, ReportRecord)]
    noisy = [record for record in records if isinstance(record, MechanismRecord)]
    kinds = {record.noise.removeprefix("discrete_") for record in records}
    if not reports and not noisy:
        found = cast(_Shuffled, records[0]).recomputed(guarantee.delta)
        # dp-accounting rounds every loss up to a grid: at most 0.002 in total
        wrong = len(records) > 1 or found > guarantee.epsilon * (1 + _GRID_SLACK) + 2e-3
    elif any(record.exchanges for record in noisy):
        found = _of_exchanges(noisy[0], guarantee.delta)
        wrong = len(records) > 1 or found > guarantee.epsilon * (1 + _GRID_SLACK)
    elif reports and not noisy:
        found = float(_reports_pld(reports).get_epsilon_for_delta(_PURE_SLACK))
        wrong = found > guarantee.epsilon * (1 + _GRID_SLACK) + 1e-9
    elif kinds == {"laplace"}:
        shifts = [(record.joint, record.levels) for record in noisy]
        beyond = laplace_delta(shifts, guarantee.epsilon * (1 + _GRID_SLACK))
        found = laplace_epsilon(shifts, _PURE_SLACK)
        wrong = beyond > _PURE_SLACK
    elif all(record.noise == "gaussian" for record in noisy):
        found = gaussian_epsilon([(record.joint, record.levels) for record in noisy], guarantee.delta)
        wrong = found > guarantee.epsilon * (1 + _GRID_SLACK) + 1e-9
    elif kinds == {"gaussian"}:
        rho = 0.5 * math.fsum(record.levels * record.joint**2 for record in noisy)
        found = zcdp_epsilon_numerically(rho, guarantee.delta)
        wrong = found > guarantee.epsilon * (1 + _GRID_SLACK) + 1e-9
    else:
        raise ValueError(f"records hold noise {sorted(kinds)}: must be all Laplace or all Gaussian")
    if wrong:
        raise ValueError(
            f"epsilon = {guarantee.epsilon:g} is not what the noise gives: recomputed {found:g} at delta "
            f"{guarantee.delta:g}"
        )
    return found
