"""The binary tree: every prefix of leaves is a sum of few dyadic nodes, each with noise drawn once.

Mechanism (Chan, Shi and Song 2011; used by Chowdhury and Zhou 2021, Qiao and Wang 2023): the
noise of the sum over the first n leaves is the sum of the noise of the nodes that partition
(0, n], one for each bit of n that is set. A leaf is a user, as in the papers, or a whole batch of
users between two scheduled releases: nobody needs sums of parts of a batch, and fewer leaves mean
fewer levels.

Privacy. Each user lies in one leaf. Only prefixes n <= N - 1 of N leaves are ever released, so a
node has at most 2^(L-1) leaves with L = bit_length(N - 1), and a leaf lies in at most one released
node of each of the L levels (the first leaf attains it). Exchanging one user therefore moves at
most L node sums, each by one user's change: with independent noise in each node the losses of the
nodes add, l1 in pure epsilon (L times one user's), l2 in squares (mu^2 adds). The boundaries of
the leaves are fixed before data. Node noise is addressed by the node's end and never drawn twice;
later users' data may depend on what was released (Laplace and Gaussian noise compose adaptively,
:mod:`discreet.core.correlated_noise`).

With the number of users unknown, users 2^e .. 2^(e+1) - 1 form epoch e with a tree of its own, of
e + 1 levels with its root; each user lies in one epoch, so each epoch spends the whole budget on
its own levels.
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
    """The binary tree (Chan, Shi and Song 2011): a prefix is a sum of few nodes, each with one noise.

    leaves : N >= 1, batches of users or users; the last one is never released. None: unknown, and scales
        grow with the epochs. Raises ``ValueError`` for less.
    gaussian : of the noise; sets the growth of scales where N is unknown.
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
        """L: released nodes that one leaf can be in (of epoch 0, if their number is not known)."""
        return 1 if self.leaves is None else max(1, (self.leaves - 1).bit_length())

    @property
    def form(self) -> Form:
        """Registers: a running noise for each level, or for 63 epochs, and one more.

        Operations: the nodes of a prefix, at most; of unknown length it has two for each of its epochs.
        Parameters: (epochs, gaussian).
        """
        known = self.leaves is not None
        return Form(
            1 + (self.levels if known else 63), self.levels if known else 128, (not known, self.gaussian)
        )
