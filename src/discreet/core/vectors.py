"""Sums of user-defined vectors: a vector is any function of one trajectory, projected onto a norm ball.

The module computes x = f(trajectory, context) and projects x onto the ball ||x||_p <= B. With exact noise it
also truncates each coordinate towards 0 to the grid, which does not increase a norm. Two vectors in the ball
differ by at most 2 B in the norm p. So the sensitivity bound holds for *every* function f of one user's
trajectory and public arrays. For Laplace noise on an l2 ball, the l1 change is at most 2 B sqrt(d), where d
is the number of coordinates. For Gaussian noise on an l1 ball, the l2 change is at most the l1 change. To
allow for rounding errors, the projected vector is multiplied by 1 - 2^-40. The factor reduces the vector by
more than the relative error of a norm of at most 2e8 coordinates.

The module cannot check that f depends only on its arguments. If f stored the data of other users and returned
these data, the bound on the effect of one user would not hold. A guarantee states that it depends on this
condition (:attr:`BoundedVector.rests_on`). f is called once for each record, never for a batch, and receives
copies. An error message would reveal data. Therefore the vector is zero if f raises an exception, or if its
result is not a real vector of the declared size with finite entries.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.exchange import Cost
from discreet.core.families import COMBINED, Context, OwnBound
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectory

Floats = NDArray[np.float64]
Function = Callable[[Trajectory, Context], ArrayLike]

MOST_SIZE = 2 * 10**8  # largest number of cells in a release
_MARGIN = 1.0 - 2.0**-40


@dataclass(frozen=True)
class BoundedVector(OwnBound):
    """Sum over users of a vector f(trajectory, context) that is clipped to a ball. The shape is (size,).

    Parameters
    ----------
    name : key of the family in releases.
    size : number d of coordinates, from 1 to 2e8.
    bound : radius B > 0 of the ball. A vector with a larger norm is scaled down to norm B.
    function : f, a function of one :class:`~discreet.core.trajectories.Trajectory` and of the plan's public
        arrays (``Plan.context``, a mapping), which returns d real numbers. It must not depend on other users.
    norm : the norm p of the ball, 1 or 2.

    Raises
    ------
    ValueError
        If a number is out of range, or ``function`` is not callable.
    """

    size: int
    bound: float
    function: Function
    norm: Literal[1, 2] = 2
    by_pair: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checks.integer("size", self.size, 1, MOST_SIZE))
        object.__setattr__(self, "bound", checks.positive("bound", self.bound))
        checks.choice("norm", self.norm, (1, 2))
        if not callable(self.function):
            raise ValueError(f"function = {self.function!r}: must be a function of (trajectory, context)")

    @property
    def rests_on(self) -> tuple[str, ...]:
        return (
            f"the vector {self.name!r} is a function of one user's trajectory and of public arrays only, and "
            "keeps nothing between users",
        )

    def shape(self, layout: Layout) -> tuple[int, ...]:
        return (self.size,)

    def most(self, layout: Layout) -> float:
        return self.bound

    def price(self, cost: Cost, layout: Layout, squares: bool) -> float:
        """Return the cost of a coordinate that changes by 2 B, or by 2 B sqrt(d) for l1 noise on an l2 ball.

        The result is valid only for homogeneous costs, because a vector changes many cells by small amounts.
        """
        return cost(2.0 * self.bound * (math.sqrt(self.size) if self.norm == 2 and not squares else 1.0))

    def add(
        self, record: Trajectory, layout: Layout, context: Context, grid: int | None, cells: Floats
    ) -> None:
        cells += self.of(record, context, grid)

    def of(self, trajectory: Trajectory, context: Context, grid: int | None) -> Floats:
        """Return the projected vector of one user, shape (size,). The vector is zero if the function fails.

        trajectory : checked trajectory. context : public arrays of the plan. grid : if given, coordinates are
            truncated to multiples of 1 / grid.
        """
        record = Trajectory(trajectory.states.copy(), trajectory.actions.copy(), trajectory.rewards.copy())
        public = {name: np.array(table) for name, table in context.items()}
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a warning would reveal data
            try:
                given = np.asarray(self.function(record, public))
                real = given.dtype.kind in "fiub" and given.shape == (self.size,)
                vector = given.astype(np.float64) if real else np.zeros(self.size)
            except KeyboardInterrupt:
                raise
            except BaseException:
                return np.zeros(self.size)
            most = float(np.abs(vector).max())
            if not 0.0 < most < math.inf:
                return np.zeros(self.size)
            parts = vector / most  # without overflow and underflow; sums of pairs keep the error below 2^-40
            length = most * float(np.abs(parts).sum() if self.norm == 1 else np.sqrt((parts * parts).sum()))
            if not length <= self.bound * _MARGIN:
                vector = parts * (self.bound / (length / most) * _MARGIN)
            return vector if grid is None else np.trunc(vector * grid) / grid


COMBINED.append(BoundedVector)
