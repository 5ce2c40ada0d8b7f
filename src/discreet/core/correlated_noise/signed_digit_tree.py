r"""Signed-digit trees: a prefix is computed by adding and subtracting a few blocks of time steps.

Some of these blocks end after the prefix.

Write the prefix n in base k with balanced digits, -(ceil(k/2) - 1) <= d_l <= floor(k/2), where the top digit
is unbounded: n = sum_l d_l k^l, l < L. Let p_l be the time step n rounded level by level to multiples of k^l,
in units of k^l: p_0 = n, p_{l+1} = floor((p_l + ceil(k/2) - 1) / k). The noise of n is

    noise(p_l) = noise(p_{l+1}) + sum of z over the d_l blocks after p_{l+1}          (d_l > 0),
                 noise(p_{l+1}) - sum of z over the |d_l| blocks that end at p_{l+1}  (d_l < 0),

There is one independent z for each block of k^l time steps that starts at a multiple of k^l. Blocks that are
subtracted (d_l < 0) end after n, so their z is used before the data of these blocks exist. The variance is
sum_l |d_l|, about k/4 for each level. Unsigned digits have about k/2.

Privacy, pure epsilon only. The release is the exact prefix sum plus B z. Let C be the incidence matrix of
blocks and time steps. Then B C = A by telescoping. Compare two neighbouring streams for fixed outputs o. The
noise vectors of the two streams are z = z(o) and z + C (x - x'). The densities at these two vectors differ by
a factor of at most exp(|C (x - x')|_1 / b). This bound is valid for every o, and the map from noise to
outputs has unit Jacobian. Later users' data may therefore depend on o. The time steps are fixed before data
are read. Epsilon = L * (epsilon of one draw), since a time step is in one block of each level, and the first
time step is in a used block of each level (:mod:`discreet.core.correlated_noise`, a). Noise that is used
early is correlated with earlier releases. Therefore (epsilon, delta) accounting of single draws would be
wrong, and Gaussian noise is rejected.

Every draw is used once. When a block starts at a new base, the registers of a level are filled with the noise
of the prefixes before that base. Until the next base the registers are only read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from discreet.core import checks
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.factorization import Form, Norm, Walk
from discreet.core.short_repr import brief

MOST_ARITY = 1024  # larger arities would need too much memory: a level stores k/2 noise arrays


@dataclass(frozen=True)
class SignedDigits(Walk):
    """Tree with balanced digits, for pure epsilon only.

    A prefix is computed by adding and subtracting a few blocks. Raises ``ValueError`` if a value is outside
    the ranges below, or if the noise of the blocks could exceed the integers that a double represents
    exactly.

    Parameters
    ----------
    leaves : number N >= 1 of batches of users. The last batch is never released.
    arity : base k >= 2 of the digits.
    levels : number L of levels, in [1, 64]. Level l has blocks of k^l time steps. A user is in one block of
        each level.
    """

    __repr__ = brief

    leaves: int
    arity: int
    levels: int = 1

    code: ClassVar[int] = walks.SIGNED_DIGITS

    def __post_init__(self) -> None:
        checks.integer("leaves", self.leaves, 1)
        checks.integer("arity", self.arity, 2, MOST_ARITY)
        checks.integer("levels", self.levels, 1, 64)

    @property
    def below(self) -> int:
        """Largest absolute value of a negative digit."""
        return (self.arity + 1) // 2 - 1

    def column_norm(self, norm: Norm) -> float:
        """Return L for the l1 norm and infinity for the l2 norm.

        Some draws are used before the records that they protect exist, so the guarantee is valid for pure
        epsilon only.
        """
        return float(self.levels) if norm == "l1" else math.inf

    @property
    def spread(self) -> float:
        return math.sqrt(self.leaves)

    def text(self, leaf: str) -> str:
        return (
            f"signed-digit trees of arity {self.arity}, a leaf is a {leaf} (noise of blocks ahead of "
            "their data, which a pure epsilon allows)"
        )

    @property
    def form(self) -> Form:
        """Program of the noise.

        Registers: for each level, the noise of the prefixes before a base and of the prefix after that base.

        Operations: at most one for each register. Parameters: (arity, levels).
        """
        registers = self.levels * (self.below + 1)
        return Form(registers, registers, (self.arity, self.levels))
