"""Is released noise of the size that its record says? Mean, mean square and sharing, to 5.5 standard errors.

A figure of an honest law is further off than 5.5 standard errors with probability 4e-8. Draws are fixed by
seeds where this is used, so that nothing fails by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST = 8_000  # independent values of each piece
ERRORS = 5.5  # standard errors


@dataclass(frozen=True)
class Law:
    """A centred law: its variance, and its fourth moment over the squared variance."""

    variance: float
    kurtosis: float

    def mixed(self, weights: Floats) -> Law:
        """Of a sum of independent variables of this law with these weights."""
        squares = np.asarray(weights, np.float64) ** 2
        total = float(squares.sum())
        excess = (self.kurtosis - 3.0) * float((squares**2).sum()) / total**2
        return Law(self.variance * total, 3.0 + excess)


@cache
def law_of(laplace: bool, scale: float, unit: float | None = None) -> Law:
    """Of one draw of a record's scale: continuous, or discrete on multiples of ``unit``, exactly."""
    if unit is None or scale / unit > 2_000:  # differs from the continuous law by less than 1e-7
        return Law(2.0 * scale**2, 6.0) if laplace else Law(scale**2, 3.0)
    x = np.arange(1, math.ceil(60 * scale / unit) + 1) * unit
    mass = np.exp(-x / scale) if laplace else np.exp(-0.5 * (x / scale) ** 2)
    mass = 2.0 * mass / (1.0 + 2.0 * mass.sum())
    variance = float(mass @ x**2)
    return Law(variance, float(mass @ x**4) / variance**2)


def flips_law(chances: Iterable[tuple[int, float]]) -> Law:
    """Of a sum of independent bits less its mean: so many of each chance."""
    variance = fourth = 0.0
    for number, p in chances:
        one = p * (1.0 - p)
        variance += number * one
        fourth += number * one * (1.0 - 6.0 * one)  # the fourth cumulant of a bit
    return Law(variance, 3.0 + fourth / variance**2)


@dataclass(frozen=True)
class Piece:
    """Independent noises of one law. name : what they are. values : (n,). law : as the record has it.

    grid : released values were multiples of 1 / grid; None: of no grid.
    """

    name: str
    values: Floats
    law: Law
    released: Floats = field(default_factory=lambda: np.zeros(0))
    grid: float | None = None


def off(piece: Piece) -> list[str]:
    """What of a piece is not as its record says; empty for an honest one."""
    z = piece.values.ravel() / math.sqrt(piece.law.variance)
    if z.size < LEAST:
        return [f"{piece.name}: {z.size} values only, must be {LEAST}"]
    root, found = math.sqrt(z.size), []
    mean = float(z.mean()) * root
    if abs(mean) > ERRORS:
        found.append(f"{piece.name}: mean {mean:.1f} standard errors from 0")
    square = float((z**2).mean()) - 1.0
    errors = square / math.sqrt((piece.law.kurtosis - 1.0) / z.size)
    if abs(errors) > ERRORS:
        found.append(f"{piece.name}: mean square {1.0 + square:.4f}, {errors:.1f} standard errors from 1")
    lag = float((z[1:] * z[:-1]).mean()) * math.sqrt(z.size - 1)  # neighbours share nothing
    if abs(lag) > ERRORS:
        found.append(f"{piece.name}: neighbours' product {lag:.1f} standard errors from 0")
    if piece.grid is not None:
        units = piece.released.ravel() * piece.grid
        if not (np.rint(units) == units).all():
            found.append(f"{piece.name}: released values are off the grid of 1 / {piece.grid:g}")
    return found
