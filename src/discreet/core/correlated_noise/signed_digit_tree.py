r"""Signed-digit trees: a prefix is a sum and difference of few blocks, some of them ahead of the data.

Write the prefix n in base k with balanced digits, -(ceil(k/2) - 1) <= d_l <= floor(k/2), the top one
unbounded: n = sum_l d_l k^l, l < L. With p_l the time step n rounded level by level to multiples of k^l (p_0
= n, p_{l+1} = floor((p_l + ceil(k/2) - 1) / k), in units of k^l), the noise of n is

    noise(p_l) = noise(p_{l+1}) + sum of z over the d_l blocks after p_{l+1}          (d_l > 0),
                 noise(p_{l+1}) - sum of z over the |d_l| blocks that end at p_{l+1}  (d_l < 0),

There is one independent z for each block of k^l time steps that starts at a multiple of k^l. Blocks of the
second kind end after n: their z is used before their data exist. Variance: sum_l |d_l|, about k/4 a level,
while unsigned digits need k/2.

Privacy, pure epsilon only. The release is the exact prefix sum plus B z. With C the incidence of blocks and
time steps, B C = A by telescoping. For fixed outputs o the neighbouring streams are therefore hidden by noise
vectors z = z(o) and z + C (x - x') whose densities differ by at most exp(|C (x - x')|_1 / b). This is
pointwise in o and the map from noise to outputs has unit Jacobian. Later users' data may therefore depend on
o. The time steps are fixed before data. Epsilon = L * (one draw's), since a time step is in one block of each
level, and the first one in a used block of each (:mod:`discreet.core.correlated_noise`, a). Early noise is
correlated with what was released before a user came; (epsilon, delta) accounting draw by draw would be wrong,
and Gaussian noise is therefore rejected.

Every draw is used once. At a new base the registers of a level are filled with the noise of the prefixes
before it, and are then only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from discreet.core import checks
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.factorization import Form, Walk
from discreet.core.short_repr import brief

MOST_ARITY = 1024  # a level keeps k/2 noises


@dataclass(frozen=True)
class SignedDigits(Walk):
    """Tree in balanced digits: a prefix is a sum and difference of few blocks; pure epsilon only.

    Raises ``ValueError`` outside the ranges below, and if the blocks' noise could leave the exact integers of
    a double.

    Parameters
    ----------
    leaves : N >= 1, batches of users; the last one is never released.
    arity : k >= 2, the base of the digits.
    levels : L in [1, 64], of blocks of k^l time steps; a user is in one block of each.
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
        """Largest magnitude of a negative digit."""
        return (self.arity + 1) // 2 - 1

    @property
    def form(self) -> Form:
        """Registers: for each level the prefixes before a base, and the one after it.

        Operations: at most all of them are made again. Parameters: (arity, levels).
        """
        registers = self.levels * (self.below + 1)
        return Form(registers, registers, (self.arity, self.levels))
