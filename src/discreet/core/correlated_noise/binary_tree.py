"""Binary tree: every prefix of time steps is a sum of few dyadic nodes, each with noise drawn once.

Mechanism (Chan, Shi and Song 2011; used by Chowdhury and Zhou 2021, Qiao and Wang 2023). The noise of the sum
over the first n time steps is the sum of the noise of the nodes that partition (0, n], one for each bit of n
that is set. A time step (``leaf`` in code) is one user, as in the papers, or a whole batch of users between
two scheduled releases. Sums of parts of a batch are not needed, and fewer time steps mean fewer levels.

Privacy. Each user is in one time step. Only prefixes n <= N - 1 of N time steps are ever released. A node
therefore has at most 2^(L-1) time steps with L = bit_length(N - 1). A time step is in at most one released
node of each of the L levels (the first time step attains it). Replacing one user therefore moves at most L
node sums, each by one user's change. With independent noise in each node the losses of the nodes add up, l1
in pure epsilon (L times one user's), l2 in squares (mu^2 adds up). The time steps are fixed before data. Node
noise is addressed by the node's end and never drawn twice. Later users' data may depend on what was released
(Laplace and Gaussian noise compose adaptively, :mod:`discreet.core.correlated_noise`).

If the number of users is unknown, users 2^e .. 2^(e+1) - 1 form epoch e with a separate tree of e + 1 levels,
including its root. Each user is in one epoch, so each epoch spends the whole budget on its own levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from discreet.core import checks
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.factorization import Form, Walk
from discreet.core.short_repr import brief


@dataclass(frozen=True)
class Tree(Walk):
    """Binary tree (Chan, Shi and Song 2011): a prefix is a sum of few nodes, each with one noise.

    Parameters
    ----------
    leaves : N >= 1, batches of users or users; the last one is never released. None: unknown, and scales grow
        with the epochs. Raises ``ValueError`` below 1.
    gaussian : kind of noise; sets the growth of scales if N is unknown.
    """

    __repr__ = brief

    leaves: int | None
    gaussian: bool = False

    code: ClassVar[int] = walks.TREE

    def __post_init__(self) -> None:
        if self.leaves is not None:
            checks.integer("leaves", self.leaves, 1)

    @property
    def levels(self) -> int:
        """L: released nodes that one time step can be in (for epoch 0, if their number is unknown)."""
        return 1 if self.leaves is None else max(1, (self.leaves - 1).bit_length())

    @property
    def form(self) -> Form:
        """Registers: a running noise for each level, or for 63 epochs, and one more.

        Operations: at most the nodes of a prefix; two for each epoch if the length is unknown.
        Parameters: (epochs, gaussian).
        """
        known = self.leaves is not None
        return Form(
            1 + (self.levels if known else 63), self.levels if known else 128, (not known, self.gaussian)
        )
