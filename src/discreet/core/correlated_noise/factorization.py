"""The common face of walks: continual releases of the form "exact prefix sum + correlated noise".

With x the leaves' sums (a leaf: the users between two scheduled releases, or one user), A the lower
triangular matrix of ones and z independent noise, a walk releases A x + B z, and A = B C for a matrix C
that is the walk's strategy. Exchanging one user moves one entry of x, so that an adversary sees z
shifted by a column of C at most, times the user's own change. ``levels`` is the largest l1 norm of a
column: epsilon = levels * (one draw's) for (discrete) Laplace noise. Its square root is the largest l2 norm
(columns of zeros and ones; or both are 1, where the strategy is scaled to that), so that
mu = sqrt(levels) * (one draw's) for Gaussian noise.

How B z is made, draw by draw, is a program: :mod:`discreet.core.correlated_noise.factorization_kernels`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.correlated_noise import factorization_kernels as walks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Form(NamedTuple):
    """A program of noise in public numbers: how much room it takes, and its parameters."""

    registers: int  # noises kept at a time
    operations: int  # the most that one leaf takes
    ints: Sequence[int] = ()
    floats: Sequence[float] | Floats = ()


class Walk(ABC):
    """Public constants of a walk over ``leaves`` leaves, the last of which is never released.

    code : of its program (-1: it has none). weighted : B's entries are not all -1, 0 and 1; sums are then not
    integers.
    """

    code: ClassVar[int] = -1
    weighted: ClassVar[bool] = False
    leaves: int | None

    @property
    @abstractmethod
    def levels(self) -> int:
        """The largest l1 norm of a column of C; its root is the largest l2 norm."""

    @property
    @abstractmethod
    def form(self) -> Form:
        """The program of its noise."""

    @property
    def row(self) -> Floats | None:
        """Of a Toeplitz walk without a program: weights of the draws in a prefix, the newest first."""
        return None

    @property
    def registers(self) -> int:
        """Noises kept at a time."""
        return self.form.registers


def program(walk: Walk) -> walks.Program:
    """What the walk's kernels take, with room for the operations of a leaf."""
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
    """The noise of the first leaves' sum; then what the registers hold, and the registers.

    held : (registers + 1,) labels of what they hold, and the last leaf made. draw : (i, scale, j) to the draw
    at address (i, j). The walk goes on in copies, which the caller puts in the place of the old ones in one
    statement: an interrupt leaves no register half a step ahead of the others. A draw that it loses was in
    no release.
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
