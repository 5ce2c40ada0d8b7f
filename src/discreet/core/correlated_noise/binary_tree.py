"""Binary tree mechanism: noise is drawn once per dyadic node, and a prefix sum uses a few nodes.

Mechanism (Chan, Shi and Song 2011; used by Chowdhury and Zhou 2021, Qiao and Wang 2023). The nodes partition
(0, n], with one node for each set bit of n. The noise of the sum over the first n time steps is the sum of
the noise of these nodes. A time step (``leaf`` in code) is one user, as in the papers, or a whole batch of
users between two scheduled releases. No release needs the sum over only some users of a batch. Batches give
fewer time steps and therefore fewer levels.

Privacy. Each user is in one time step. Only prefixes n <= N - 1 of N time steps are ever released. A node
therefore has at most 2^(L-1) time steps with L = bit_length(N - 1). A time step is in at most one released
node of each of the L levels (the first time step attains it). Replacing one user therefore moves at most L
node sums, each by one user's change. Each node has independent noise, so the losses of the nodes are summed:
l1 losses for pure epsilon (L times the loss of one node), mu^2 for Gaussian noise. The time steps are fixed
before data are read. The index of a node's noise is the end of the node, and the noise is never drawn twice.
Later users' data may depend on earlier releases (Laplace and Gaussian noise compose adaptively,
:mod:`discreet.core.correlated_noise`).

If the number of users is unknown, users 2^e .. 2^(e+1) - 1 form epoch e with a separate tree of e + 1 levels,
including its root. Each user is in one epoch, so each epoch uses the whole budget for its levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from discreet.core import checks
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.factorization import Form, Norm, Walk
from discreet.core.short_repr import brief


@dataclass(frozen=True)
class Tree(Walk):
    """Binary tree mechanism (Chan, Shi and Song 2011).

    The sum over a prefix of time steps is a sum of a few nodes. The noise of each node is drawn once.

    Parameters
    ----------
    leaves : number N >= 1 of time steps (batches of users, or single users), or None if N is unknown. The
        last time step is never released. If N is unknown, noise scales grow with the epochs. Raises
        ``ValueError`` below 1.
    gaussian : True for Gaussian noise, False for Laplace noise. If N is unknown, it determines how fast the
        scales grow.
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
        """Largest number L of released nodes that one time step can be in.

        If N is unknown, the value is the number for epoch 0.
        """
        return 1 if self.leaves is None else max(1, (self.leaves - 1).bit_length())

    def column_norm(self, norm: Norm) -> float:
        """Return L for the l1 norm and sqrt(L) for the l2 norm.

        If N is unknown, the noise scales already grow with the number of levels. The result is then 1 for the
        norm of the noise, and infinity for the other norm.
        """
        if self.leaves is None:
            return 1.0 if self.gaussian == (norm == "l2") else math.inf
        return float(self.levels) if norm == "l1" else math.sqrt(self.levels)

    @property
    def fresh(self) -> bool:
        return self.leaves is not None

    def text(self, leaf: str) -> str:
        if self.leaves is not None:
            return f"binary tree, a leaf is a {leaf}"
        growth = "sqrt(e + 1)" if self.gaussian else "e + 1"
        return (
            "binary trees over epochs of 1, 2, 4, ... users, a leaf is a user; in epoch e = 0, 1, ... "
            f"with e + 1 levels and {growth} times the scales of epoch 0, which are given here"
        )

    @property
    def form(self) -> Form:
        """Program of the noise.

        Registers: one array for each level, with the noise of one prefix (63 arrays if N is unknown), and one
        more.

        Operations: at most the number of nodes in a prefix; if N is unknown, two for each epoch. Parameters:
        (epochs, gaussian).
        """
        known = self.leaves is not None
        return Form(
            1 + (self.levels if known else 63), self.levels if known else 128, (not known, self.gaussian)
        )
