r"""Sums of one vector per user with exact discrete Gaussian noise. The vector is a mean over the user's
steps.

Every step of a user is in one of k public cells (the nearest centre, or the bin of a fine public grid). A
public function y of the step's values has l2 norm at most B. The distance between two values of y in the same
cell is at most D. The vector of a user is the mean over the user's T steps,

    v = (1 / T) sum_t e_(cell_t) (x) y_t      in  R^(k p),

Each user therefore has the same weight, for any number of steps. Users' vectors are in the convex hull of 0
and the points e_j (x) y. The largest distance between two points of a convex hull is attained by two of its
corners. These two corners are in the same cell or in two cells. For a *replaced* user

    ||v - v'||_2 <= max(D, sqrt(2) B).

**Grid.** Coordinates are rounded to multiples of 1 / GRID, by at most half a grid step each. Let c = min(k,
L), where L is the largest number of steps that a user has. A user's steps are in at most c cells, so rounding
increases the distance between two users' vectors by at most sqrt(c p) / GRID. (In a cell that both users
visit, rounding changes the difference of a coordinate by at most a whole grid step. In a cell that only one
user visits, the change is at most half a step, but up to twice as many coordinates are affected.) The sums
are 64-bit integers.

The number of users is limited by public numbers, so that no sum with its noise exceeds 2^52
(:meth:`PersonSums.check_people`). If a sum overflowed, it would change by 2^64 when one user is replaced.

The noise on the sums is discrete Gaussian with an integer sigma. The noise is drawn exactly
(:mod:`discreet.core.noise.discrete_samplers`). Each sum has the zCDP loss rho = Delta^2 / (2 sigma^2), where
Delta is the sensitivity. If several sums are chosen adaptively, from earlier releases, their losses are added
(``levels`` of the record is the number of sums).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.core.events import Source
from discreet.core.guarantee import Guarantee, MechanismRecord, guarantee_of
from discreet.core.noise.discrete_samplers import discrete_gaussian
from discreet.core.rng import checked_on_grid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRID = 2**20
MOST_UNITS = 2**52  # Limit of a cell's sum over all users: far below 2^63 and exact in float64.
# Bound on the noise, in units of sigma. At least one of 10^10 draws exceeds it with probability at most
# 10^10 2 exp(-72) < 1.1e-21.
_TAIL = 12
_SLACK = 1e-9  # relative error of a norm from floating point


@dataclass(frozen=True)
class PersonSums:
    """Sum of one vector per user, described by public sizes and bounds. The module docstring defines them.

    Parameters
    ----------
    cells, width
        Number k of cells, and length p of the values y.
    bound, apart
        Bound B on the norm of y, and bound D on the distance of two values in one cell.
    touched
        Largest number c of cells that one user can visit.
    largest
        Bound on the absolute value of every coordinate of y. None: B.
    """

    cells: int
    width: int
    bound: float
    apart: float
    touched: int
    largest: float = math.inf

    @property
    def sensitivity(self) -> float:
        """l2 sensitivity to a replaced user, in units of the values, including rounding."""
        rounding = 1.01 * math.sqrt(min(self.touched, self.cells) * self.width) / GRID
        return max(self.apart, math.sqrt(2.0) * self.bound) + rounding

    def check_people(self, people: int, said: str = "", sigma: int = 0) -> None:
        """Raise ``ValueError`` unless sums over this number of users stay within 2^52 grid units.

        people : number of users.

        said : text that is added to the error message and suggests a remedy.

        sigma : standard deviation of the noise, in grid units. The limit also includes the tail of the noise
            and the rounding of users' contributions.

        Call this method before budget is reserved, because a noisy sum that is too large cannot be released
        (:func:`discreet.core.rng.checked_on_grid`).
        """
        largest = min(self.bound, self.largest)
        one, room = largest * GRID, MOST_UNITS - _TAIL * sigma
        if sigma:
            one = one * (1.0 + _SLACK) + 0.5
        if people * one > room:
            most, noisy = max(0, math.floor(room / one)), " with their noise" if sigma else ""
            raise ValueError(
                f"people = {people}: must be at most {most} where one of them adds up to {largest:.6g} to a "
                f"sum, for sums{noisy} to stay exact{said}"
            )

    def exact(self, owner: Ints, cell: Ints, payload: Floats) -> Ints:
        """Return the exact (k, p) sum over all users in grid units. The result is **raw data**.

        owner : (n,) user number of each step, in non-decreasing order.

        cell : (n,) cell of each step.

        payload : (n, p) value y of each step.

        Raises ``ValueError`` if a step, a user, or the number of users exceeds the public sizes.
        """
        out = np.zeros((self.cells, self.width), np.int64)
        if not len(owner):
            return out
        if (owner[1:] < owner[:-1]).any() or not 0 <= cell.min() <= cell.max() < self.cells:
            raise ValueError("owner, cell: must not fall, and be cells")
        if not (np.linalg.norm(payload, axis=1) <= self.bound * (1 + _SLACK)).all():
            raise ValueError(f"payload: must have norms of at most {self.bound:g}")
        starts = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
        self.check_people(len(starts))
        person = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(owner)))
        steps = np.bincount(person).astype(np.float64)
        key = person * self.cells + cell
        order = np.argsort(key, kind="stable")
        key = key[order]
        heads = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        at, whose = key[heads] % self.cells, key[heads] // self.cells
        if np.bincount(whose).max() > self.touched:
            raise ValueError(f"cell: a user is in more than {self.touched} cells")
        for column in range(self.width):
            own = np.add.reduceat(payload[order, column], heads) / steps[whose]
            np.add.at(out[:, column], at, np.rint(own * GRID).astype(np.int64))
        return out

    def record(self, name: str, sigma: int, times: int) -> MechanismRecord:
        """Return the privacy record of ``times`` such sums with noise of parameter ``sigma`` (grid units).

        name : start of the record's description.
        """
        scale = sigma / GRID
        return MechanismRecord(
            mechanism=f"{name}: sums over people of each one's mean",
            noise="discrete_gaussian",
            scales={"sums": scale},
            sensitivities={"sums": self.sensitivity},
            joint=self.sensitivity / scale,
            levels=times,
        )

    def sigma(self, rho: float, times: int) -> int:
        """Return the least integer sigma, in grid units, at which the loss of ``times`` sums is at most
        ``rho``.
        """
        return math.ceil(self.sensitivity * GRID * math.sqrt(times / (2.0 * rho)) * (1 + 1e-12))


def noisy(sums: Ints, sigma: int, source: Callable[[int], bytes]) -> Floats:
    """Add discrete Gaussian noise to the sums and return them in units of the values."""
    found = checked_on_grid(sums, 1) + discrete_gaussian(sigma, sums.shape, source)
    return checked_on_grid(found, 1).astype(np.float64) / GRID


def guaranteed(record: MechanismRecord, delta: float, randomness: Source) -> Guarantee:
    """Return the guarantee for the sums in ``record``. All these sums contain data of the same users."""
    return guarantee_of("central", [record], randomness=randomness, delta=delta)
