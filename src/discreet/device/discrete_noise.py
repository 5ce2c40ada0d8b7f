r"""Exact discrete noise on a device, computed only from integers and the operating system's random bytes.

Source: Canonne, Kamath and Steinke (2020), algorithms 1 to 3. A floating-point number is a rational number,
so scales are represented exactly. Distributions are neither truncated nor rounded, and no intermediate result
is a floating-point number. If the random integers are uniform, the draws are independent and have exactly the
distribution

    discrete Laplace  P(x) ~ e^{-|x| / b},      discrete Gaussian  P(x) ~ e^{-x^2 / (2 sigma^2)}.

The compiled samplers of the server (:mod:`discreet.core.noise.discrete_samplers`) draw from the same
distributions by another algorithm and are faster. With only NumPy, a device makes about 25 000 draws per
second with the samplers in this module. A message needs a few hundred to ten thousand draws. The running time
depends on the drawn values.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.device.message_envelope import WordCoins

Below = Callable[[int], int]
"""Function of n that draws a uniform integer in [0, n)."""

__all__ = [
    "Below", "ExactCoins", "NoiseCoins", "SealingCoins", "checked_on_grid", "discrete_gaussian",
    "discrete_laplace", "drawn",
]  # fmt: skip


def _minus_exp(numerator: int, denominator: int, below: Below) -> bool:
    """Return True with probability e^{-numerator / denominator}, by algorithm 1 of the source.

    The ratio can exceed 1.
    """
    while numerator > denominator:  # each full unit of the ratio contributes a factor e^{-1}
        if not _minus_exp(1, 1, below):
            return False
        numerator -= denominator
    k = 1
    while below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def _laplace(scale: Fraction, below: Below) -> int:
    """Draw a discrete Laplace variable with scale t / s by algorithm 2 of the source."""
    t, s = scale.numerator, scale.denominator
    while True:
        low = below(t)
        if not _minus_exp(low, t, below):
            continue
        high = 0
        while _minus_exp(1, 1, below):
            high += 1
        size, negative = (low + t * high) // s, below(2) == 1
        if size or not negative:
            return -size if negative else size


def _gaussian(sigma: Fraction, below: Below) -> int:
    """Draw a discrete Gaussian variable by algorithm 3 of the source.

    The algorithm is rejection sampling from the discrete Laplace distribution with scale floor(sigma) + 1.
    """
    t = sigma.numerator // sigma.denominator + 1
    n, d = sigma.numerator**2, sigma.denominator**2  # sigma^2 = n / d
    while True:
        x = _laplace(Fraction(t), below)
        # the exponent (|x| - sigma^2 / t)^2 / (2 sigma^2) as a fraction of integers
        if _minus_exp((abs(x) * d * t - n) ** 2, 2 * n * d * t * t, below):
            return x


def _scale(scale: float | Fraction) -> Fraction:
    found = Fraction(scale)
    if found <= 0:
        raise ValueError(f"scale = {scale!r}: must be above 0")
    return found


def discrete_laplace(
    scale: float | Fraction, size: int, below: Below = secrets.randbelow
) -> NDArray[np.int64]:
    """Return ``size`` independent draws x with probabilities proportional to e^{-|x| / scale}.

    Raises ``ValueError`` unless scale > 0.
    """
    own = _scale(scale)
    return np.array([_laplace(own, below) for _ in range(size)], np.int64)


def discrete_gaussian(
    sigma: float | Fraction, size: int, below: Below = secrets.randbelow
) -> NDArray[np.int64]:
    """Return ``size`` independent draws x with probabilities proportional to e^{-x^2 / (2 sigma^2)}.

    Raises ``ValueError`` unless sigma > 0.
    """
    own = _scale(sigma)
    return np.array([_gaussian(own, below) for _ in range(size)], np.int64)


class ExactCoins:
    """Random generator of a device, by default the operating system's. Same interface as ``SecureRng``.

    ``below`` is a function of n that draws a uniform integer in [0, n). The methods for noise return
    multiples of 1 / ``grid``, so ``grid`` must not be None.
    """

    exact = True

    def __init__(self, below: Below = secrets.randbelow) -> None:
        self._below = below

    def laplace(self, scale: float, size: int, grid: int | None = None) -> NDArray[np.float64]:
        """Return ``size`` independent discrete Laplace variables of this scale on multiples of 1 / grid."""
        units = _grid(grid)
        return discrete_laplace(Fraction(scale) * units, size, self._below) / units

    def normal(self, scale: float, size: int, grid: int | None = None) -> NDArray[np.float64]:
        """Return ``size`` independent discrete Gaussian variables with this scale on multiples of 1 / grid.

        The parameter sigma is ``scale``.
        """
        units = _grid(grid)
        return discrete_gaussian(Fraction(scale) * units, size, self._below) / units

    def rounded(self, rewards: NDArray[np.float64], grid: int | None) -> NDArray[np.float64]:
        """Round rewards in [0, 1] to multiples of 1 / ``grid``, at random and without bias."""
        units, found = _grid(grid), np.empty(np.shape(rewards))
        for at, reward in np.ndenumerate(rewards):
            exact = Fraction(float(reward)) * units
            whole = math.floor(exact)
            rest = exact - whole
            found[at] = (whole + (self._below(rest.denominator) < rest.numerator)) / units
        return found

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n)."""
        return self._below(n)

    def flip(self, numerator: int) -> bool:
        """Return True with probability numerator / 2^53."""
        return self._below(2**53) < numerator

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent uniform words of 64 bits."""
        return np.array([self._below(2**64) for _ in range(size)], np.uint64)


def _grid(grid: int | None) -> int:
    if grid is None:
        raise ValueError("grid = None: exact noise needs one; a seeded session takes its own coins")
    return int(grid)


def checked_on_grid(values: NDArray[np.float64], grid: ArrayLike) -> NDArray[np.float64]:
    """Check that all values are multiples of 1 / ``grid``, and return them unchanged.

    Raises ``RuntimeError`` if a value is not such a multiple, or if its absolute value exceeds 2^52 /
    ``grid``. Exact noise protects only multiples of 1 / ``grid``. Therefore a device checks each message
    before it is sent.

    ``grid`` is a power of two, or an array with one power of two per value. The server's version of this
    function is in :mod:`discreet.core.rng`.
    """
    units = values * np.asarray(grid)
    if not ((np.rint(units) == units) & (np.abs(units) <= 2.0**52)).all():
        raise RuntimeError(
            "a value is not a multiple of its grid, or too large, which exact noise would not hide: nothing "
            "was sent. This is a fault of the library, please report it"
        )
    return values


class NoiseCoins(Protocol):
    """Interface of generators of noise: :class:`ExactCoins` and the classes of :mod:`discreet.core.rng`."""

    def laplace(self, scale: float, size: int, grid: int | None = None) -> NDArray[np.float64]: ...
    def normal(self, scale: float, size: int, grid: int | None = None) -> NDArray[np.float64]: ...
    def rounded(self, rewards: NDArray[np.float64], grid: int | None) -> NDArray[np.float64]: ...


class SealingCoins(NoiseCoins, WordCoins, Protocol):
    """Interface of random generators for the noise of a message and for its nonce."""


def drawn(
    family: str,
    scales: ArrayLike,
    offsets: NDArray[np.int64],
    coins: NoiseCoins,
    grids: Sequence[int | None],
    factor: float = 1.0,
) -> NDArray[np.float64]:
    """Draw independent noise for every cell, and return the draws as one flat vector.

    The noise of block i has the scale factor * scales[i], on the grid grids[i].

    - family : "laplace" or "gaussian".
    - offsets : (blocks + 1,) array, the first cell of each block and the number of cells.
    """
    draw = coins.laplace if family == "laplace" else coins.normal
    numbers, sizes = np.asarray(scales, np.float64).tolist(), np.diff(offsets).tolist()
    return np.concatenate(
        [draw(factor * scale, size, grid) for scale, size, grid in zip(numbers, sizes, grids, strict=True)]
    )
