"""Where randomness comes from: a fast seeded tree for simulations, the operating system for people.

Seeded streams are addressed by (seed, run, role, index), so equal seeds give equal results in any
order and with any number of workers; their noise protects nobody, since whoever knows the seed
subtracts it, and every guarantee says so. Secure noise is exact, discrete, and drawn from the
operating system's cryptographic source; no seed exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discreet.numerics import checks
from discreet.privacy.protocol import Floats

Key = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class RunKeys:
    """Three unrelated 128-bit keys: tie coins that a learner may see tell nothing of the noise."""

    environment: Key
    noise: Key
    ties: Key


@dataclass(frozen=True)
class Seeded:
    """Repeatable randomness for simulation.

    seed : non-negative integer; run : index of the repetition. Two learners under one (seed, run)
    meet the same users' luck.
    """

    seed: int = 0
    run: int = 0
    kind: Literal["seeded"] = "seeded"

    def __post_init__(self) -> None:
        checks.integer("seed", self.seed, 0)
        checks.integer("run", self.run, 0)

    @cached_property
    def keys(self) -> RunKeys:
        """The run's keys, one per door."""
        words = np.random.SeedSequence(self.seed, spawn_key=(self.run,)).generate_state(6, np.uint64)
        return RunKeys(words[0:2].copy(), words[2:4].copy(), words[4:6].copy())


@dataclass(frozen=True)
class Secure:
    """Exact discrete noise from the operating system's cryptographic source; not repeatable.

    reward_grid : rewards are rounded at random, without bias, to multiples of 1 / reward_grid, so
    that every sum is an integer on a public grid (noise in floating point would leak through its
    last bits). A power of two from 2 on, so that sums are exact in float64.
    """

    reward_grid: int = 1024
    kind: Literal["secure"] = "secure"

    def __post_init__(self) -> None:
        grid = checks.integer("reward_grid", self.reward_grid, 2, 2**20)
        if grid & (grid - 1):
            raise ValueError(f"reward_grid = {grid}: must be a power of two")


Randomness = Seeded | Secure


class SeededCoins:
    """The draws of one simulated person's device: the stream (noise, user, 0) of a run."""

    def __init__(self, key: Key, user: int) -> None:
        from discreet.numerics import streams_kernels as streams

        self._streams = streams
        self._state = streams.open_at(key, streams.ROLE_NOISE, user, 0)

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """``size`` independent centred Laplace variables of this scale; there is no grid."""
        out = np.empty(size)
        self._streams.fill_laplace(self._state, scale, out)
        return out

    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """``size`` independent centred normals of this standard deviation; there is no grid."""
        out = np.empty(size)
        self._streams.fill_normal(self._state, scale, out)
        return out

    def rounded(self, rewards: Floats, grid: int | None) -> Floats:
        """The rewards as they are."""
        return rewards


class SecureCoins:
    """Exact discrete noise and unbiased rounding from the operating system's cryptographic source.

    Values lie on multiples of 1 / ``grid``, and so does the noise: 1 / grid times a discrete Laplace
    or Gaussian variable of scale grid * b, which has the same privacy loss as continuous noise
    of scale b (Laplace: pure epsilon; Gaussian: zero-concentrated) at shifts on the grid.
    """

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """``size`` independent discrete Laplace variables of this scale, on multiples of 1 / grid."""
        from discreet.privacy.noise import exact

        units = 1 if grid is None else grid
        return exact.discrete_laplace(Fraction(scale) * units, size).astype(np.float64) / units

    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """``size`` independent discrete Gaussian variables of this sigma, on multiples of 1 / grid."""
        from discreet.privacy.noise import exact

        units = 1 if grid is None else grid
        return exact.discrete_gaussian(Fraction(scale) * units, size).astype(np.float64) / units

    def rounded(self, rewards: Floats, grid: int | None) -> Floats:
        """Rewards in [0, 1] rounded at random, without bias, to multiples of 1 / grid."""
        from discreet.privacy.noise import exact

        units = 1 if grid is None else grid
        return np.array([exact.stochastic_round(float(r), units) for r in rewards], np.float64) / units
