r"""Recompute epsilon of independent noise by a separate convolution, as an independent check.

The code that makes a guarantee must not be the code that checks it.
:func:`discreet.accounting.pld.composed_epsilon` states the epsilon of noise that was set by its privacy loss,
and :func:`discreet.accounting.pld.verify` checks it with this module. It imports only NumPy, SciPy (normal
distribution function and linear filter) and the argument checks.

One coordinate. Noise z of a symmetric distribution is moved by ``shift``: Q is the distribution of z, P that
of z + shift, and the privacy loss of an outcome is l = ln P/Q. Outcomes are sorted into cells [ih, (i+1)h) of
the loss. With masses p, q of P and Q in a cell, its outcomes are replaced by two outcomes with losses ih and
(i+1)h and P-masses p - b and b. P and Q keep their masses there: q = (p - b) e^{-ih} + b e^{-(i+1)h}, so

    b = (p - q e^{ih}) / (1 - e^{-h}).

Proof that the epsilon found is at least the true one. A single outcome of loss l in the cell is split in this
way with 0 <= b <= p, and merging its two parts restores the outcome. The true pair (P, Q) is therefore a
post-processing of the split pair in every coordinate, so the same holds for the products. The split adds at
most h^2 / 4 to the variance of a loss. h is a hundredth of the losses' root mean square deviation, which
changes epsilon by less than 1e-4 of itself.

Composition. The Fourier transform of the sum of n independent losses is the n-th power of the transform of
one coordinate's P-masses. Transforms of different kinds of coordinates are multiplied. The window of the
transform contains the sum except for a probability of e^{-36} (Bernstein: losses within b of their mean, of
variances that sum to v, stay within 25 b + 9 sqrt(v)). Then

    delta(epsilon) = sum over l > epsilon of P(l) (1 - e^{epsilon - l}),

which is solved for epsilon. Rounding adds about 1e-14 to delta, so deltas of at least 1e-10 are resolved.

Discrete Gaussian noise is summed integer by integer up to a sigma of 20 000. Above that it is treated as
normal. By Euler and Maclaurin an integer has the mass of the normal distribution between the adjacent
half-integers. At x standard deviations the relative error of this mass is at most (1 + x^2) / (24 sigma^2),
here below 2e-8 (the normalisers differ by e^{-2 pi^2 sigma^2}). A shift by half an integer changes a loss by
at most 1 / (2 sigma) of its standard deviation, which is below 3e-5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks

__all__ = ["Coordinates", "loss_norm", "recomposed_epsilon"]

Floats = NDArray[np.float64]
Coordinates = Sequence[tuple[str, float, float, int]]
"""(noise, scale, shift, count), as :data:`discreet.accounting.pld.Coordinate`."""

_NOISES = ("laplace", "gaussian", "pure", "discrete_laplace", "discrete_gaussian")
_BOUNDED = ("laplace", "pure", "discrete_laplace")  # losses are at most shift / scale, often equal.
_REACH = 12.0  # Standard deviations of Gaussian noise; the mass of 4e-33 beyond has infinite loss.
_FINE = 2e4  # sigma above which integers are treated as continuous.
_PARTS = 100  # The root mean square loss is at least this number of grid steps.
_MOST = 1 << 25  # points of a transform


def _normal_mass(low: Floats, high: Floats) -> Floats:
    """Return P(low < z <= high) of a standard normal variable, from the nearer tail."""
    from scipy.special import ndtr  # slow to import; most runs do not need it

    sign = np.where(low > 0, -1.0, 1.0)
    ends = np.where(sign > 0, high, -low), np.where(sign > 0, low, -high)
    return np.asarray(ndtr(ends[0]) - ndtr(ends[1]))


def _atoms(noise: str, scale: float, shift: float) -> tuple[Floats, Floats] | None:
    """Return (losses, P-masses) of noise with finitely many outcomes, or None if it is continuous."""
    if noise == "pure":
        own = shift / scale
        return np.array([own, -own]), np.array([1.0, math.exp(-own)]) / (1.0 + math.exp(-own))
    if noise == "discrete_laplace":
        k, rate = int(shift), math.exp(-1.0 / scale)
        inside = np.arange(1, k)  # outcomes strictly between the two centres, 0 of Q and k of P
        peak = (1 - rate) / (1 + rate)
        ends = np.array([1.0, rate**k]) / (1 + rate)  # all outcomes >= k, all outcomes <= 0
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
        # at a loss l the outcome is at (l + unit) / 2 between the centres; all outcomes beyond the centres
        # belong to the two end cells
        low, high = np.maximum(i * h, -unit), np.minimum((i + 1) * h, unit)
        p = 0.5 * (np.exp(0.5 * (high - unit)) - np.exp(0.5 * (low - unit)))
        q = 0.5 * (np.exp(-0.5 * (low + unit)) - np.exp(-0.5 * (high + unit)))
        p[0], q[0] = p[0] + 0.5 * math.exp(-unit), q[0] + 0.5
        p[-1], q[-1] = p[-1] + 0.5, q[-1] + 0.5 * math.exp(-unit)
        return i, p, q
    half = 0.5 * unit**2
    i = np.arange(math.floor((half - _REACH * unit) / h), math.floor((half + _REACH * unit) / h) + 1)
    edges = np.append(i, i[-1] + 1) * h
    ends = (edges - half) / unit  # values of the noise under P; under Q the same outcomes are ``unit`` higher
    return i, _normal_mass(ends[:-1], ends[1:]), _normal_mass(ends[:-1] + unit, ends[1:] + unit)


def _spread(noise: str, scale: float, shift: float, h: float) -> tuple[int, Floats]:
    """Return (first index, P-masses of the losses on the grid): every cell is split between its two ends."""
    i, p, q = _cells(noise, scale, shift, h)
    upper = np.clip((p - q * np.exp(i * h)) / -math.expm1(-h), 0.0, p)
    first = int(i.min())
    masses = np.zeros(int(i.max()) - first + 2)
    np.add.at(masses, i - first, p - upper)
    np.add.at(masses, i - first + 1, upper)
    return first, masses


def _moments(noise: str, scale: float, shift: float) -> tuple[float, float]:
    """Return (variance of the loss under P, its largest deviation from the mean), within :data:`_REACH`."""
    atoms = _atoms(noise, scale, shift)
    if atoms is not None:
        losses, p = atoms
        mean = float(losses @ p)
        return float((losses - mean) ** 2 @ p), float(np.abs(losses - mean).max())
    unit = shift / scale
    if noise == "laplace":
        # unit - loss is 0 with probability 1/2, otherwise an exponential variable of mean 2 truncated at 2 *
        # unit
        square = 4.0 * (1.0 - (1.0 + unit) * math.exp(-unit))
        variance = max(square - math.expm1(-unit) ** 2, 0.5 * unit**2 * math.exp(-unit))
        return variance, 2.0 * unit
    return unit**2, _REACH * unit


def _step(coordinates: Coordinates, most: float) -> float:
    """Return a grid step, at most ``most``, of which the possible losses are nearly multiples.

    Losses are rounded up by less than a step per coordinate. With few coordinates this would change epsilon
    visibly.
    """
    multiples: list[tuple[float, int]] = []
    for noise, scale, shift, count in coordinates:
        unit = shift / (2.0 * scale**2) if noise == "discrete_gaussian" else 1.0 / scale
        if unit <= most or not noise.startswith("discrete"):  # far finer than the grid, or no lattice;
            unit = shift / scale if noise in _BOUNDED else 0.0  # only the largest loss is one atom
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
    """Return epsilon at delta of independent noises with known shifts.

    It is too large by at most 1e-4 of itself.

    Parameters
    ----------
    coordinates : (noise, scale, shift, count) of each kind. Scale and shift of discrete noise are in units of
        its grid. The noise "pure" stands for any mechanism that is (shift / scale)-DP.
    delta : in [1e-10, 1); below 1e-10, rounding errors would be visible.

    Raises ``ValueError`` on unknown noise, if no coordinate moves, and on values out of range.
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
    """Return the least epsilon >= 0 with sum over l > epsilon of masses (1 - e^{epsilon - l}) <= delta.

    masses : probabilities of the losses h first, h (first + 1), ...
    """
    from scipy import signal  # loads longer than most runs take

    if first < 0:
        masses, first = masses[-first:], 0
    masses = np.concatenate([np.zeros(first), masses])  # masses at the losses 0, h, 2h, ...
    seen = np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)  # P(loss > l)
    # sum over the losses above l of P e^{l - loss}: other[i] = e^{-h} (masses[i + 1] + other[i + 1])
    fall = math.exp(-h)
    other = signal.lfilter([0.0, fall], [1.0, -fall], masses[::-1])[::-1]
    over = np.flatnonzero(seen - other > delta)
    if not over.size:
        return 0.0
    at = int(over[-1])  # epsilon is above this loss and at most the next one
    return at * h + math.log((seen[at] - delta) / other[at])


def loss_norm(coordinates: Coordinates, power: int) -> float:
    """Return (sum of (shift / scale)^power)^(1 / power); power 1 for Laplace, 2 for Gaussian noise."""
    return math.fsum(c * (abs(x) / s) ** power for _, s, x, c in coordinates) ** (1.0 / power)
