"""Common interface of factorization mechanisms, which release exact prefix sums plus correlated noise.

In code, ``Walk`` means factorization mechanism and ``leaf`` means time step. A time step is one user or all
users between two scheduled releases. Let x be the sums of the time steps, A the lower triangular matrix of
ones and z independent noise. The mechanism releases A x + B z, and A = B C for a matrix C, its strategy.
Replacing one user changes one entry of x. The release then has the same distribution as if z were shifted by
one column of C times the change of that entry. The largest norm of a column (:meth:`Walk.column_norm`)
therefore determines the privacy loss of a user. For (discrete) Laplace noise, epsilon is the l1 norm times
the epsilon of one draw. For Gaussian noise, mu is the l2 norm times the mu of one draw.

The program that computes B z one draw at a time is in
:mod:`discreet.core.correlated_noise.factorization_kernels`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.correlated_noise import factorization_kernels as walks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Norm = Literal["l1", "l2"]


class Form(NamedTuple):
    """Public numbers of the recurrence that computes the noise: size of its memory, and coefficients."""

    registers: int  # number of noise arrays in memory
    operations: int  # largest number of operations for one time step
    ints: Sequence[int] = ()
    floats: Sequence[float] | Floats = ()


class Walk(ABC):
    """Public constants of a factorization A = B C over ``leaves`` time steps.

    The last time step is never released.

    code
        Number of the noise program in the kernel, or -1 without a program.
    weighted
            True if B has entries other than -1, 0 and 1. Exact noise is then possible only if ``integral`` is
            True.
    fresh
        True if every draw is made after the records that it protects, and all entries of C are 0 or 1. The
        losses of single draws can then be composed numerically.
    weights
        (M, M) matrix B, or None with a program. Without a program, all draws are kept.
    draw_scale
        Scale of a draw without a program, in units of the base scale.
    integral
        True if B and C are integer matrices, although B has other entries.
    """

    code: ClassVar[int] = -1
    weighted: ClassVar[bool] = False
    leaves: int | None
    integral: bool = False
    weights: Floats | None = None
    draw_scale: float = 1.0

    @property
    @abstractmethod
    def levels(self) -> int:
        """Number of noisy sums that contain the records of one user.

        The value is the l1 norm of a column of C (Laplace noise) or its squared l2 norm (Gaussian noise).
        """

    @abstractmethod
    def column_norm(self, norm: Norm) -> float:
        """Return the largest norm of a column of C.

        The result is infinity if the guarantee does not allow noise of this norm.
        """

    @property
    def fresh(self) -> bool:
        """True if the losses of single draws can be composed numerically; see the class docstring."""
        return False

    @property
    def spread(self) -> float:
        """Bound on the noise of a prefix, in units of one draw.

        The bound is used to check that the noise is within the range of exact integers.
        """
        return 1.0

    @abstractmethod
    def text(self, leaf: str) -> str:
        """Return text that describes the mechanism in a guarantee.

        ``leaf`` : unit of a time step, "batch" or "user".
        """

    @property
    @abstractmethod
    def form(self) -> Form:
        """Public numbers of the program that computes the noise."""

    @property
    def row(self) -> Floats | None:
        """Weights of the draws in the noise of a prefix, starting with the newest draw.

        The value is None unless the factorization is Toeplitz and has no program.
        """
        return None

    @property
    def registers(self) -> int:
        """Number of noise arrays that the program keeps in memory."""
        return self.form.registers


def program(walk: Walk) -> walks.Program:
    """Return the noise program of the factorization, with arrays large enough for one time step."""
    form = walk.form
    links, weights = np.zeros((form.operations, 6), np.int64), np.zeros((form.operations, 4))
    ints, floats = np.array(form.ints, np.int64), np.array(form.floats, np.float64)
    return walks.Program(walk.code, ints, floats, links, weights)


def check_registers(
    walk: Walk, held: Ints, registers: Mapping[int, Floats], cells: int, released: int
) -> None:
    """Raise ``ValueError`` unless labels and registers of a file can be those of a factorization.

    held, registers : as for :func:`prefix_noise`. cells : number of cells of a register. released : number of
        time steps in the last release. The noise of these steps must not be drawn again.
    """
    made = int(held[-1]) if walk.weights is None else len(registers)
    if made < released or (made > 0) != bool(registers):
        raise ValueError(f"registers: contain noise of {made} time steps: must be at least {released}")
    if walk.weights is not None and set(registers) != set(range(made)):
        raise ValueError(f"registers: must contain the {made} draws so far")
    for label, noise in registers.items():
        checks.integer("registers", label, 0, walk.registers - 1)
        checks.floats(f"registers[{label}]", noise, (cells,))


def prefix_noise(
    walk: Walk,
    leaf: int,
    held: Ints,
    registers: Mapping[int, Floats],
    draw: Callable[[int, float, int], Floats],
) -> tuple[Floats, Ints, dict[int, Floats]]:
    """Return the noise of the prefix sum, the new labels of the registers, and the new registers.

    held : (registers + 1,) labels of the registers, followed by the last computed time step.
    draw : function that maps ``(i, scale, j)`` to the draw at address (i, j).

    The program works on copies, and the caller assigns all results in one statement. Therefore an interrupt
    cannot leave the registers at different time steps. If an interrupt discards a draw, no release contains
    that draw.
    """
    held, made = held.copy(), dict(registers)
    if walk.weights is not None:
        for i in range(len(made), leaf):
            made[i] = draw(i + 1, walk.draw_scale, 0)
        terms = (
            weight * made[i] for i, weight in enumerate(walk.weights[leaf - 1, :leaf].tolist()) if weight
        )
        return sum(terms, np.zeros_like(made[0])), held, made
    code, ints, floats, links, weights = program(walk)
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
