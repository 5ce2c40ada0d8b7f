r"""Recompute epsilon of independent noise by a separate convolution, as an independent check.

A guarantee must not be verified by the code that computed it. If noise was calibrated by its privacy-loss
distribution, :func:`discreet.accounting.pld.composed_epsilon` states its epsilon, and
:func:`discreet.accounting.pld.verify` verifies this epsilon with this module. The module imports only NumPy,
SciPy (normal distribution function and linear filter) and the argument checks.

One coordinate. Let z be noise with a symmetric distribution, Q the distribution of z, and P the distribution
of z + shift. The privacy loss of an outcome is l = ln P/Q. The outcomes are grouped into cells by their loss,
with cell i the interval [ih, (i+1)h). Let p and q be the probabilities of a cell under P and Q. The outcomes
of the cell are replaced by two outcomes with losses ih and (i+1)h, whose probabilities under P are p - b and
b. The probability of the cell under Q must not change: q = (p - b) e^{-ih} + b e^{-(i+1)h}. Therefore

    b = (p - q e^{ih}) / (1 - e^{-h}).

Proof that the resulting epsilon is at least the true one. A single outcome with loss l in the cell is split
in this way with 0 <= b <= p, and merging its two parts restores the outcome. The true pair (P, Q) is
therefore a post-processing of the split pair. The statement holds for every coordinate, and therefore for the
products of all coordinates. The split increases the variance of a loss by at most h^2 / 4. The step h is a
hundredth of the root mean square deviation of the losses, so epsilon changes by a relative amount below 1e-4.

Composition. The Fourier transform of the sum of n independent losses is the n-th power of the transform of
the P-probabilities of one coordinate. Transforms of different kinds of coordinates are multiplied. The sum is
outside the window of the transform with probability at most e^{-36}. The bound follows from Bernstein's
inequality: if the losses are within b of their means and their variances sum to v, the sum is within 25 b + 9
sqrt(v) of its mean. Then epsilon is the solution of

    delta(epsilon) = sum over l > epsilon of P(l) (1 - e^{epsilon - l})

Rounding errors change delta by about 1e-14, so deltas of at least 1e-10 are resolved.

Discrete Gaussian noise is summed integer by integer for sigma up to 20 000. For larger sigma it is treated as
a normal distribution: the probability of an integer is that of the interval between the adjacent
half-integers. By the Euler-Maclaurin formula, the relative error of this probability at x standard deviations
is at most (1 + x^2) / (24 sigma^2), here below 2e-8 (the normalisers differ by e^{-2 pi^2 sigma^2}). A shift
by half an integer changes a loss by at most 1 / (2 sigma) of its standard deviation, which is below 3e-5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks

Floats = NDArray[np.float64]
Coordinates = Sequence[tuple[str, float, float, int]]
"""Kinds of coordinates (noise, scale, shift, count), like :data:`discreet.accounting.pld.Coordinate`."""

_NOISES = ("laplace", "gaussian", "pure", "discrete_laplace", "discrete_gaussian")
_BOUNDED = ("laplace", "pure", "discrete_laplace")  # losses are at most shift / scale
# Standard deviations. Gaussian noise outside this range (probability 4e-33) counts as infinite loss.
_REACH = 12.0
_FINE = 2e4  # Above this sigma, discrete Gaussian noise is treated as continuous.
_PARTS = 100  # The root mean square loss is at least this number of grid steps.
_MOST = 1 << 25  # largest number of points of a transform


def _normal_mass(low: Floats, high: Floats) -> Floats:
    """Return P(low < z <= high) of a standard normal variable z, computed from the nearer tail."""
    from scipy.special import ndtr  # imported here because the import is slow and most runs do not need it

    sign = np.where(low > 0, -1.0, 1.0)
    ends = np.where(sign > 0, high, -low), np.where(sign > 0, low, -high)
    return np.asarray(ndtr(ends[0]) - ndtr(ends[1]))


def _atoms(noise: str, scale: float, shift: float) -> tuple[Floats, Floats] | None:
    """Return the losses of all outcomes and their probabilities under P, or None for continuous noise."""
    if noise == "pure":
        own = shift / scale
        return np.array([own, -own]), np.array([1.0, math.exp(-own)]) / (1.0 + math.exp(-own))
    if noise == "discrete_laplace":
        k, rate = int(shift), math.exp(-1.0 / scale)
        inside = np.arange(1, k)  # outcomes strictly between 0 (centre of Q) and k (centre of P)
        peak = (1 - rate) / (1 + rate)
        ends = np.array([1.0, rate**k]) / (1 + rate)  # probabilities of outcomes >= k and <= 0
        losses = np.concatenate([[k / scale, -k / scale], (2.0 * inside - k) / scale])
        return losses, np.concatenate([ends, peak * np.exp((inside - k) / scale)])
    if noise == "discrete_gaussian" and scale <= _FINE:
        most = math.ceil(_REACH * scale) + 1
        z = np.arange(-most, most + 1, dtype=np.float64)
        weights = np.exp(-0.5 * (z / scale) ** 2)
        return shift * (shift + 2.0 * z) / (2.0 * scale**2), weights / weights.sum()
    return None


def _cells(noise: str, scale: float, shift: float, h: float) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return (i, p, q): the cells [ih, (i+1)h) of the loss and their masses under P and Q."""
    atoms = _atoms(noise, scale, shift)
    if atoms is not None:
        losses, p = atoms
        return np.floor(losses / h).astype(np.int64), p, p * np.exp(-losses)
    unit = shift / scale
    if noise == "laplace":
        i = np.arange(math.floor(-unit / h), math.floor(unit / h) + 1)
        # Between the two centres, the loss l belongs to the outcome (l + unit) / 2, in units of the scale.
        # All outcomes outside this interval belong to the first and the last cell.
        low, high = np.maximum(i * h, -unit), np.minimum((i + 1) * h, unit)
        p = 0.5 * (np.exp(0.5 * (high - unit)) - np.exp(0.5 * (low - unit)))
        q = 0.5 * (np.exp(-0.5 * (low + unit)) - np.exp(-0.5 * (high + unit)))
        p[0], q[0] = p[0] + 0.5 * math.exp(-unit), q[0] + 0.5
        p[-1], q[-1] = p[-1] + 0.5, q[-1] + 0.5 * math.exp(-unit)
        return i, p, q
    half = 0.5 * unit**2
    i = np.arange(math.floor((half - _REACH * unit) / h), math.floor((half + _REACH * unit) / h) + 1)
    edges = np.append(i, i[-1] + 1) * h
    # values of the noise under P; under Q the same outcomes are higher by ``unit``
    ends = (edges - half) / unit
    return i, _normal_mass(ends[:-1], ends[1:]), _normal_mass(ends[:-1] + unit, ends[1:] + unit)


def _spread(noise: str, scale: float, shift: float, h: float) -> tuple[int, Floats]:
    """Return the loss distribution on the grid: (index of the first point, probabilities under P).

    The probability of every cell is split between the two ends of the cell.
    """
    i, p, q = _cells(noise, scale, shift, h)
    upper = np.clip((p - q * np.exp(i * h)) / -math.expm1(-h), 0.0, p)
    first = int(i.min())
    masses = np.zeros(int(i.max()) - first + 2)
    np.add.at(masses, i - first, p - upper)
    np.add.at(masses, i - first + 1, upper)
    return first, masses


def _moments(noise: str, scale: float, shift: float) -> tuple[float, float]:
    """Return the variance of the loss under P, and its largest deviation from the mean.

    Gaussian noise outside :data:`_REACH` standard deviations is ignored.
    """
    atoms = _atoms(noise, scale, shift)
    if atoms is not None:
        losses, p = atoms
        mean = float(losses @ p)
        return float((losses - mean) ** 2 @ p), float(np.abs(losses - mean).max())
    unit = shift / scale
    if noise == "laplace":
        # The variable ``unit - loss`` is 0 with probability 1/2. Otherwise it is an exponential variable of
        # mean 2, truncated at 2 * unit.
        square = 4.0 * (1.0 - (1.0 + unit) * math.exp(-unit))
        variance = max(square - math.expm1(-unit) ** 2, 0.5 * unit**2 * math.exp(-unit))
        return variance, 2.0 * unit
    return unit**2, _REACH * unit


def _step(coordinates: Coordinates, most: float) -> float:
    """Return a grid step <= ``most`` such that the possible losses are almost multiples of this step.

    Otherwise losses would be rounded up by up to one step per coordinate. With few coordinates this would
    change epsilon noticeably.
    """
    multiples: list[tuple[float, int]] = []
    for noise, scale, shift, count in coordinates:
        unit = shift / (2.0 * scale**2) if noise == "discrete_gaussian" else 1.0 / scale
        # if losses are much finer than the grid or are not on a lattice, only the largest loss is a single
        # atom
        if unit <= most or not noise.startswith("discrete"):
            unit = shift / scale if noise in _BOUNDED else 0.0
        if unit:
            multiples.append((unit, count))
    if not multiples:
        return most
    units, counts = (np.array(each) for each in zip(*multiples, strict=True))
    parts = math.ceil(units[0] / most) + np.arange(_PARTS)
    steps = np.multiply.outer(units / units[0], parts)
    over = counts @ (np.ceil(steps - 1e-9) - steps) / parts
    return float(units[0] / parts[int(over.argmin())])


def recomposed_epsilon(coordinates: Coordinates, delta: float) -> float:
    """Return epsilon at delta for independent noises with known shifts.

    The result is too large by a relative amount of at most 1e-4.

    Parameters
    ----------
    coordinates : (noise, scale, shift, count) for each kind of coordinate. For discrete noise, scale and
        shift are in units of its grid. The noise "pure" is any mechanism that is (shift / scale)-DP.
    delta : in [1e-10, 1). Below 1e-10, rounding errors would affect the result.

    Raises ``ValueError`` for unknown noise, for values out of range, and if every shift or count is 0.
    """
    delta = checks.real("delta", delta, 1e-10, 1.0, open_high=True)
    kept = []
    for noise, scale, moved, number in coordinates:
        checks.choice("noise", noise, _NOISES)
        shift, count = abs(float(moved)), checks.integer("count", number, 0)
        if noise.startswith("discrete") and shift != int(shift):
            raise ValueError(f"shift = {moved!r}: must be a whole number of grid units for {noise} noise")
        if count and shift:
            kept.append((noise, checks.positive("scale", scale), shift, count))
    if not kept:
        raise ValueError("coordinates is empty: must hold at least one that moves")
    moments = [_moments(noise, scale, shift) for noise, scale, shift, _ in kept]
    variance = math.fsum(count * one[0] for (*_, count), one in zip(kept, moments, strict=True))
    number = sum(count for *_, count in kept)
    h = _step(kept, math.sqrt(variance / number) / _PARTS)
    spread = [(_spread(noise, scale, shift, h), count) for noise, scale, shift, count in kept]
    mean = lost = 0.0
    for (first, masses), count in spread:
        mean += count * h * float((first + np.arange(masses.size)) @ masses)
        lost += count * max(0.0, 1.0 - float(masses.sum()))
    reach = 25.0 * max(one[1] for one in moments) + 9.0 * math.sqrt(variance)
    ends = (
        sum(count * first for (first, _), count in spread),
        sum(count * (first + masses.size - 1) for (first, masses), count in spread),
    )
    low, high = max(ends[0], math.floor((mean - reach) / h)), min(ends[1], math.ceil((mean + reach) / h))
    size = 1 << max(4, (high - low + 1).bit_length())
    if size > _MOST:
        raise ValueError(f"coordinates: would need {size} points of a transform, at most {_MOST} are taken")
    total = np.ones(size // 2 + 1, np.complex128)
    for (_, masses), count in spread:
        padded = np.zeros(size)
        np.add.at(padded, np.arange(masses.size) % size, masses)
        total *= np.fft.rfft(padded) ** count
    composed = np.roll(np.fft.irfft(total, size), (ends[0] - low) % size)[: high - low + 1]
    return _solved(np.maximum(composed, 0.0), low, h, delta - lost)


def _solved(masses: Floats, first: int, h: float, delta: float) -> float:
    """Return the least epsilon >= 0 with sum over l > epsilon of P(l) (1 - e^{epsilon - l}) <= delta.

    masses : probabilities P(l) of the losses l = h * first, h * (first + 1), ...
    """
    from scipy import signal  # imported here because the import takes longer than most runs

    if first < 0:
        masses, first = masses[-first:], 0
    masses = np.concatenate([np.zeros(first), masses])  # masses at the losses 0, h, 2h, ...
    seen = np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)  # P(loss > l)
    # other[i] is the sum of P(loss) e^{l - loss} over all losses above l = h i. It satisfies
    # other[i] = e^{-h} (masses[i + 1] + other[i + 1]).
    fall = math.exp(-h)
    other = signal.lfilter([0.0, fall], [1.0, -fall], masses[::-1])[::-1]
    over = np.flatnonzero(seen - other > delta)
    if not over.size:
        return 0.0
    at = int(over[-1])  # epsilon is above this loss and at most the next loss
    return at * h + math.log((seen[at] - delta) / other[at])


def loss_norm(coordinates: Coordinates, power: int) -> float:
    """Return the norm of all shifts in units of the noise scale: (sum of (shift / scale)^power)^(1 / power).

    ``power`` is 1 for Laplace noise and 2 for Gaussian noise.
    """
    return math.fsum(c * (abs(x) / s) ** power for _, s, x, c in coordinates) ** (1.0 / power)
