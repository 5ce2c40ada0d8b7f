"""Staircase noise, checked by `discreet check-noise staircase:Staircase --grid 16` in this folder.

The continuous staircase (Geng & Viswanath 2014, arXiv 1212.1186) has the least mean absolute value of all
pure-epsilon noises for one coordinate that moves by at most `width`. Its discrete form on multiples of 1 /
grid is

    P(k) = p b^j if |k| = j D + i with 0 <= i < r,  p b^(j + 1) if r <= i < D,    b = exp(-1 / scale),

where D = width * grid. A shift by at most n D moves k over at most n steps, so it costs n / scale.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

import discreet as dr


@dataclass(frozen=True)
class Staircase(dr.mechanisms.AdditiveNoise):
    """Staircase noise; scale : 1 / epsilon of a coordinate that moves by at most ``width``.

    The sampler is exact: every decision is one integer below another. So the distribution has no error if
    ``coins.below`` is uniform, as for secure noise. A seeded generator has a bias of up to n 2^-64. A draw
    needs about ten integers if scale >= 1. For smaller scales rejections are frequent (at most D / r tries on
    average).
    """

    name: ClassVar[str] = "staircase"
    norm: ClassVar[Any] = "l1"
    homogeneous: ClassVar[bool] = False
    width: float = 1.0

    def cost(self, shift: float, scale: float) -> float:
        return math.ceil(shift / self.width - 1e-12) / scale

    def steps(self, scale: float, grid: int) -> tuple[int, int]:
        """Return D and r.

        With r = D / (1 + exp(1 / (2 scale))), the noise has the least mean absolute value.
        """
        wide = self.width * grid
        if wide < 1 or wide != round(wide):
            raise ValueError(f"width = {self.width}: must be a multiple of 1 / {grid}")
        return round(wide), max(1, round(wide / (1 + math.exp(min(0.5 / scale, 700.0)))))

    def log_mass(self, values: Any, scale: float, grid: int) -> Any:
        wide, low = self.steps(scale, grid)
        block, rest = np.divmod(np.abs(values), wide)
        half = (low + (wide - low) * math.exp(-1 / scale)) / -math.expm1(-1 / scale)  # the sum over k >= 0
        return -(block + (rest >= low)) / scale - math.log(2 * half - 1)

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        units = 2**20 if grid is None else grid  # a simulation without a grid has a fine one
        wide, low = self.steps(scale, units)
        loss = 1 / Fraction(scale)
        return np.array([one(coins, wide, low, loss) for _ in range(size)], float) / units


def one(coins: Any, wide: int, low: int, loss: Fraction) -> int:
    """Return one draw in units, by rejection from a geometric block, a uniform rest and a fair sign."""
    while True:
        rest = coins.below(wide)
        if rest >= low and not happens(coins, loss):
            continue
        k = wide * geometric(coins, loss) + rest
        if coins.below(2):
            return k
        if k:  # zero has one sign only
            return -k


def happens(coins: Any, x: Fraction) -> bool:
    """Return True with probability exp(-x), exactly (Canonne, Kamath & Steinke 2020, algorithm 1)."""
    while x > 1:
        if not happens(coins, Fraction(1)):
            return False
        x -= 1
    k = 1
    while coins.below(x.denominator * k) < x.numerator:
        k += 1
    return k % 2 == 1


def geometric(coins: Any, loss: Fraction) -> int:
    """Return j with probability proportional to exp(-j loss), exactly (the same, algorithm 2)."""
    while True:
        rest = coins.below(loss.denominator)
        if happens(coins, Fraction(rest, loss.denominator)):
            break
    whole = 0
    while happens(coins, Fraction(1)):
        whole += 1
    return (rest + loss.denominator * whole) // loss.numerator
