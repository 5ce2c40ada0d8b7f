"""Sources of randomness: seeded streams for simulation, and the operating system for real users.

The streams of a seeded run are indexed by (seed, run, role, index), so equal seeds give equal results in any
order and with any number of workers. Seeded noise protects no user, because anyone who knows the seed can
subtract it. The guarantee of a seeded run states this. Secure noise is exact and discrete. It has no seed,
because it is drawn from the operating system's cryptographic source.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.noise import discrete_samplers as exact
from discreet.core.registry import parts

Floats = NDArray[np.float64]
Key = NDArray[np.uint64]

# Grid units. The sum of 64 draws of this size and of a value below 2^51 is exact in float64 (2^53).
_EXACT = 2**46
_MOST = 2**52  # Grid units. Up to this size float64 represents all multiples of 1/2.
_BLOCK = 2**15  # Number of values that are checked together. They fit into the processor cache.


@dataclass(frozen=True, eq=False)
class RunKeys:
    """Three 128-bit random keys of a run: for the environment, the noise and tie-breaking.

    A learner can see the tie-breaking key. This key reveals nothing about the noise. The keys of noise and
    tie-breaking are separate BLAKE2b digests of (seed, run). An attacker who has one key must guess the seed
    to compute the other key. (Words of one ``SeedSequence`` would not be enough, because each word is an
    invertible function of the same four words.)
    """

    environment: Key
    noise: Key
    ties: Key


@dataclass(frozen=True)
class Seeded:
    """Repeatable randomness for simulation.

    seed : non-negative integer.

    run : index of the repetition, a non-negative integer.

    batch : index of a batch of other users with separate noise (:meth:`of_batch`), or None.

    Two learners with the same (seed, run) have users with the same random outcomes. Two sessions with the
    same (seed, run) have the same noise, so anyone who sees both releases can remove the noise. A guarantee
    with a seed is therefore for simulation only. Raises ``ValueError`` for other values.
    """

    seed: int = 0
    run: int = 0
    batch: int | None = None
    kind: Literal["seeded"] = field(default="seeded", init=False)

    def __post_init__(self) -> None:
        checks.integer("seed", self.seed, 0)
        checks.integer("run", self.run, 0)
        if self.batch is not None:
            checks.integer("batch", self.batch, 0)

    def of_batch(self, batch: int) -> Seeded:
        """Return the same randomness with separate noise for one batch of users.

        The random keys of the environment and of tie-breaking do not change.
        """
        return Seeded(self.seed, self.run, batch)

    @cached_property
    def keys(self) -> RunKeys:
        """Random keys of the run, one for each role."""
        return parts().seeded.keys_of(self.seed, self.run, self.batch)


@dataclass(frozen=True)
class Secure:
    """Exact discrete noise from the operating system's cryptographic source. The draws cannot be repeated.

    reward_grid : rewards are rounded at random, without bias, to multiples of 1 / reward_grid. Every sum is
        then an integer in units of a public grid. (The last bits of floating-point noise would leak
        information.) Sums are exact in float64, because reward_grid is a power of two from 2 to 2^20. Other
        values raise ``ValueError``.
    """

    reward_grid: int = 1024
    kind: Literal["secure"] = field(default="secure", init=False)

    def __post_init__(self) -> None:
        grid = checks.integer("reward_grid", self.reward_grid, 2, 2**20)
        if grid & (grid - 1):
            raise ValueError(f"reward_grid = {grid}: must be a power of two")

    def of_batch(self, batch: int) -> Secure:
        """Return self, because the operating system's source gives new draws for every batch."""
        return self


Randomness = Seeded | Secure


def _grid(grid: int | None) -> int:
    if grid is None:
        raise ValueError(
            "grid = None: exact noise needs one (beside integers, the digits of a reward would be plain to "
            "see); coins of a seeded session are SeededRng"
        )
    return grid


def _units(draws: NDArray[np.int64], grid: int) -> Floats:
    """Return integer draws divided by ``grid``.

    Raises ``OverflowError`` if a draw is too large for exact sums.
    """
    if np.abs(draws).max(initial=0) > _EXACT:
        raise OverflowError("a noise value above 2^46 grid units was drawn: float64 sums would be rounded")
    return draws.astype(np.float64) / grid


def checked_on_grid(values: NDArray[Any], grid: int, most: int = _MOST) -> NDArray[Any]:
    """Return ``values``. Raise ``RuntimeError`` unless they are multiples of 1 / ``grid`` with exact sums.

    Exact noise protects only values on the grid: digits of a sum below the grid would be released unchanged.
    Every session calls this function on its sums before it draws noise, and on the values that it releases.

    Parameters
    ----------
    values : array of any shape, float64 or int64. Integers are already in units, so ``grid`` is 1 for them.
    grid : a power of two.
    most : largest allowed magnitude in units. It is above 2^52 only for sums in 64-bit integers.
    """
    flat = values.reshape(-1)
    for begin in range(0, flat.size, _BLOCK):
        units = flat[begin : begin + _BLOCK]
        inside = True
        if units.dtype.kind == "f":
            units = units * grid  # exact, because grid is a power of two
            inside = bool((np.rint(units) == units).all())
        if not (inside and -most <= units.min() and units.max() <= most):
            raise RuntimeError(
                f"a sum is not a multiple of 1 / {grid}, or above {most} of them, which exact noise would "
                "not hide: nothing was released. This is a fault of the library, please report it"
            )
    return values


class SecureRng:
    """Exact discrete noise and unbiased rounding from the operating system's cryptographic source.

    Values and noise are multiples of 1 / ``grid``. The noise is 1 / grid times a discrete Laplace or Gaussian
    variable of scale grid * b. For shifts on the grid it has the same privacy loss as continuous noise of
    scale b (Laplace: pure epsilon; Gaussian: zero-concentrated). Raises ``ValueError`` without a grid:
    integer noise added to rewards off the grid would protect nothing.
    """

    exact = True

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """Return ``size`` independent discrete Laplace variables of this scale, on multiples of 1 / grid."""
        units = _grid(grid)
        return _units(exact.discrete_laplace(Fraction(scale) * units, size), units)

    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """Return ``size`` independent discrete Gaussian variables of this sigma, on multiples of 1 / grid."""
        units = _grid(grid)
        return _units(exact.discrete_gaussian(Fraction(scale) * units, size), units)

    def rounded(self, rewards: Floats, grid: int | None) -> Floats:
        """Round rewards in [0, 1] randomly and without bias to multiples of 1 / grid.

        Any shape is allowed.
        """
        return exact.round_to_grid(rewards, _grid(grid))

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n), exactly."""
        return secrets.randbelow(n)

    def flip(self, numerator: int) -> bool:
        """Return True with probability exactly numerator / 2^53, from 53 random bits."""
        return secrets.randbits(53) < numerator

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent uniform words of 64 bits."""
        return np.frombuffer(secrets.token_bytes(8 * size), np.uint64)
