"""Common interface of factorization mechanisms: continual releases "exact prefix sum + correlated noise".

In code, ``Walk`` means factorization mechanism and ``leaf`` means time step. A time step is one user or all
users between two scheduled releases. Let x be the sums of the time steps, A the lower triangular matrix of
ones and z independent noise. The mechanism releases A x + B z, and A = B C for a matrix C, its strategy.
Replacing one user moves one entry of x, so an adversary sees z shifted by at most one column of C times the
user's own change. The largest norm of a column (:meth:`Walk.column_norm`) therefore prices a user: epsilon =
l1 norm
* (epsilon of one draw) for (discrete) Laplace noise, mu = l2 norm * (mu of one draw) for Gaussian noise.

The program that computes B z one draw at a time is in
:mod:`discreet.core.correlated_noise.factorization_kernels`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.correlated_noise import factorization_kernels as walks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Norm = Literal["l1", "l2"]


class Form(NamedTuple):
    """Description of a noise program by public numbers: its memory and its parameters."""

    registers: int  # number of noise arrays in memory
    operations: int  # largest number for one time step
    ints: Sequence[int] = ()
    floats: Sequence[float] | Floats = ()


class Walk(ABC):
    """Public constants of a factorization over ``leaves`` time steps. The last time step is never released.

    code : number of the kernel's noise program (-1: no program). weighted : True if B has entries other than
        -1, 0 and 1; sums are then not integers, so that noise cannot be exact. fresh : True if every draw is
        made after the records that it hides, and columns of C consist of zeros and ones: losses of single
        draws can then be composed numerically.
    """

    code: ClassVar[int] = -1
    weighted: ClassVar[bool] = False
    leaves: int | None

    @property
    @abstractmethod
    def levels(self) -> int:
        """Number of noisy sums that the records of one user count for: l1 norm, or squared l2 norm."""

    @abstractmethod
    def column_norm(self, norm: Norm) -> float:
        """Return the largest norm of a column of C; infinity if noise of this norm must not be used."""

    @property
    def fresh(self) -> bool:
        """True if losses of single draws can be composed numerically (class docstring)."""
        return False

    @property
    def spread(self) -> float:
        """Bound on the noise of a prefix in units of one draw, for the range of exact integers."""
        return 1.0

    @abstractmethod
    def text(self, leaf: str) -> str:
        """Describe the mechanism in a guarantee. ``leaf`` : "batch" or "user"."""

    @property
    @abstractmethod
    def form(self) -> Form:
        """Description of the program that makes the noise."""

    @property
    def row(self) -> Floats | None:
        """Weights of the draws in a prefix, newest first, for a Toeplitz factorization without a program."""
        return None

    @property
    def registers(self) -> int:
        """Number of noise arrays in memory."""
        return self.form.registers


def program(walk: Walk) -> walks.Program:
    """Return the arguments of the factorization's kernels, with arrays large enough for one time step."""
    form = walk.form
    links, weights = np.zeros((form.operations, 6), np.int64), np.zeros((form.operations, 4))
    ints, floats = np.array(form.ints, np.int64), np.array(form.floats, np.float64)
    return walks.Program(walk.code, ints, floats, links, weights)


def prefix_noise(
    walk: Walk,
    leaf: int,
    held: Ints,
    registers: Mapping[int, Floats],
    draw: Callable[[int, float, int], Floats],
) -> tuple[Floats, Ints, dict[int, Floats]]:
    """Return the noise of the sum over the first time steps, the labels of the registers, and the registers.

    held : (registers + 1,) labels of the registers, and the last computed time step.
    draw : maps ``(i, scale, j)`` to the draw at address (i, j).

    The program works on copies, which the caller assigns in one statement: an interrupt cannot leave the
    registers at different time steps. A draw that is lost in an interrupt was in no release.
    """
    code, ints, floats, links, weights = program(walk)
    held, made = held.copy(), dict(registers)
    while held[-1] < leaf:
        at, operations = walks.next_ops(code, ints, floats, held, leaf, links, weights)
        for (target, one, two, i, j, label), (c1, c2, cd, scale) in zip(
            links[:operations].tolist(), weights[:operations].tolist(), strict=True
        ):
            parts = [c * made[source] for c, source in ((c1, one), (c2, two)) if source >= 0]
            if cd != 0.0:
                parts.append(cd * draw(i, scale, j))
            made[target], held[target] = sum(parts[1:], parts[0]), label
        held[-1] = at
    return made[int(walks.register_of(code, ints, leaf))], held, made
