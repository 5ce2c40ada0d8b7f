"""Variances of the noise that each strategy adds to prefix sums, for bounds and comparisons.

Privacy does not depend on this module. The strategies, with their privacy loss, are defined in
:mod:`discreet.core.correlated_noise`; tests compare these variances with the noise that those strategies
produce.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core import count_kernels as kernels
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.factorization import Floats, Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree, node_variances
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import Toeplitz

__all__ = ["WalkNoise", "best_digits", "digits", "noise_of", "rate_std", "sum_terms", "tree_nodes"]

_OPEN_ENDED = 2**20  # users at which trees of unknown length are compared.
_TRIED = range(2, 65)  # Arities that are searched. The best are 12 to 30 at 10^3 to 10^7 time steps.


class WalkNoise(ABC):
    """Noise of the prefix sums of one factorization mechanism, in units of one draw's noise."""

    @abstractmethod
    def terms(self, leaf: int) -> float:
        """Return the noise variance of the first ``leaf`` time steps, relative to its largest draw."""

    @abstractmethod
    def most(self, leaf: int) -> float:
        """Return a bound on ``terms`` up to this time step.

        The bound does not decrease with the time step.
        """

    @abstractmethod
    def rms(self) -> float:
        """Return the root mean square of the noise std over all releases, in units of one draw's std."""

    def scale(self, leaf: int) -> float:
        """Return the largest scale of a draw in the noise of this prefix, in units of the base scale."""
        return 1.0


def noise_of(walk: Walk) -> WalkNoise:
    """Return the noise object for a factorization mechanism, chosen by its class."""
    for kind, noise in _NOISES.items():
        if isinstance(walk, kind):
            return noise(walk)
    raise ValueError(f"walk = {walk!r}: must be one of {', '.join(kind.__name__ for kind in _NOISES)}")


# ------------------------------------------------------------------------------ trees


def _bits_below(ends: int, levels: int) -> list[int]:
    """For each l < levels, return how many of the numbers 0 .. ends - 1 have bit l set."""
    return [
        ends // 2 ** (level + 1) * 2**level + max(0, ends % 2 ** (level + 1) - 2**level)
        for level in range(levels)
    ]


def tree_nodes(tree: Tree, n: int) -> list[tuple[int, int]]:
    """Return (end, epoch) of the nodes that partition the first n time steps, from the last to the first."""
    epochs = tree.leaves is None
    out = []
    while n > 0:
        out.append((n, int(kernels.tree_epoch(n, epochs))))
        n = int(kernels.tree_parent(n, epochs))
    return out


@dataclass(frozen=True)
class _TreeNoise(WalkNoise):
    walk: Tree

    def _factor(self, epoch: int) -> float:
        """Return the scale of an epoch's nodes in units of the base scale.

        For Laplace noise the factor is the number of levels of the epoch, for Gaussian noise its square root.
        """
        if self.walk.leaves is not None:
            return 1.0
        return math.sqrt(epoch + 1) if self.walk.gaussian else float(epoch + 1)

    def scale(self, leaf: int) -> float:
        """Return the largest factor among the epochs of the prefix."""
        return max((self._factor(epoch) for _, epoch in tree_nodes(self.walk, leaf)), default=1.0)

    def terms(self, leaf: int) -> float:
        """Return the number of nodes. Nodes of earlier epochs are weighted by their smaller variance."""
        largest = self.scale(leaf)
        return float(sum((self._factor(epoch) / largest) ** 2 for _, epoch in tree_nodes(self.walk, leaf)))

    def most(self, leaf: int) -> float:
        """Return a bound on the number of nodes of any prefix up to ``leaf``, attained when N is known."""
        if self.walk.leaves is not None:
            return float((leaf + 1).bit_length() - 1)
        if leaf == 0:
            return 0.0
        epoch = (leaf + 1).bit_length() - 1
        inside = leaf - (2**epoch - 1)
        return float(max(2 * (epoch - 1), epoch + (inside + 1).bit_length() - 1, 1))

    def rms(self) -> float:
        """Return the rms, exact over the prefixes 1 .. N - 1.

        If N is unknown, return the std after 2^20 time steps, in units of the std of one draw in epoch 0.
        """
        leaves = self.walk.leaves
        if leaves is None:
            return self.scale(_OPEN_ENDED) * math.sqrt(self.terms(_OPEN_ENDED))
        return math.sqrt(sum(_bits_below(leaves, self.walk.levels)) / max(1, leaves - 1))


@dataclass(frozen=True)
class _OptimalTreeNoise(WalkNoise):
    walk: OptimalTree

    def terms(self, leaf: int) -> float:
        """Return the sum of v_l over the set bits of ``leaf``."""
        return sum(v for level, v in enumerate(node_variances(self.walk.levels)) if leaf >> level & 1)

    def most(self, leaf: int) -> float:
        """Return an attained bound. The candidates clear one bit of ``leaf`` and set all lower bits."""
        lower, high, best = 0.0, self.terms(leaf), 0.0
        for level, v in enumerate(node_variances(self.walk.levels)):
            if leaf >> level & 1:
                high -= v
                best = max(best, high + lower)
            lower += v
        return max(best, self.terms(leaf))

    def rms(self) -> float:
        """Return the rms, exact over the prefixes 1 .. N - 1."""
        leaves, levels = self.walk.leaves, self.walk.levels
        counts = _bits_below(leaves, levels)
        total = sum(v * n for v, n in zip(node_variances(levels), counts, strict=True))
        return math.sqrt(total / max(1, leaves - 1))


# ------------------------------------------------------------------------------ signed digits


def digits(walk: SignedDigits, leaf: int) -> list[int]:
    """Return d_0, ..., d_{L-1} of a prefix."""
    out = []
    for _ in range(walk.levels - 1):
        above = (leaf + walk.below) // walk.arity
        out.append(leaf - walk.arity * above)
        leaf = above
    return [*out, leaf]


@dataclass(frozen=True)
class _DigitsNoise(WalkNoise):
    walk: SignedDigits

    def terms(self, leaf: int) -> float:
        """Return the number of blocks: sum |d_l|."""
        return float(sum(map(abs, digits(self.walk, leaf))))

    def most(self, leaf: int) -> float:
        """Return an attained bound.

        A smaller prefix has one smaller digit and arbitrary digits below that one.
        """
        walk = self.walk
        found, free = digits(walk, leaf), walk.arity // 2
        best = above = abs(found[-1])
        if found[-1] > 0:
            best = max(best, found[-1] - 1 + (walk.levels - 1) * free)
        base = found[-1]  # p_{l+1}
        for level in range(walk.levels - 2, -1, -1):
            digit, low = found[level], -walk.below if base > 0 else 0
            if digit > low:
                best = max(best, above + max(abs(low), abs(digit - 1)) + level * free)
            above += abs(digit)
            base = base * walk.arity + digit
        return float(max(best, above))

    def rms(self) -> float:
        """Return the rms, exact over the prefixes 1 .. N - 1."""
        walk, total, shift = self.walk, 0, 0
        for level in range(walk.levels):
            block = walk.arity**level
            if level == walk.levels - 1:  # this is the sum of floor((n + shift) / block)
                whole, rest = divmod(walk.leaves + shift, block)
                total += whole * (whole - 1) // 2 * block + whole * rest
            else:
                shift += walk.below * block
                # n + shift has the digit d + below at this place
                total += self._digit_sum(walk.leaves + shift, block) - self._digit_sum(shift, block)
        return math.sqrt(total / max(1, walk.leaves - 1))

    def _digit_sum(self, end: int, block: int) -> int:
        """Return the sum of |digit - below| over 0 .. end - 1, for the digit of place value ``block``."""
        arity, below = self.walk.arity, self.walk.below
        whole, rest = divmod(end, arity * block)
        full, part = divmod(rest, block)
        sizes = [abs(digit - below) for digit in range(arity)]
        return (whole * sum(sizes) + sum(sizes[:full])) * block + (sizes[full] * part if part else 0)


def best_digits(leaves: int, arity: int | None = None) -> SignedDigits:
    """Return the tree with the least rms error at a given epsilon, exactly.

    ``arity`` None: search for it too.
    """
    return _best(checks.integer("leaves", leaves, 1), arity)


@lru_cache(maxsize=256)
def _best(leaves: int, arity: int | None) -> SignedDigits:
    found, least = None, math.inf
    for k in _TRIED if arity is None else (arity,):
        levels = 1
        while levels == 1 or k ** (levels - 1) < 2 * leaves:  # one more: top digit 0
            walk = SignedDigits(leaves, k, levels)
            error = walk.levels * noise_of(walk).rms()
            if found is None or error < least:
                found, least = walk, error
            levels += 1
    assert found is not None
    return found


# ------------------------------------------------------------------------------ Toeplitz matrices


@lru_cache(maxsize=16)
def _variances(walk: Toeplitz) -> Floats:
    """Return (M,) variances at releases 1, 2, ...: sums of squares of the first weights of the row."""
    if walk.row is not None:
        return np.asarray(np.cumsum(walk.row**2))
    powers, row = np.ones(walk.releases), np.full(walk.releases, 0.0)
    first, *rest = np.asarray(walk.form.floats).tolist()  # then the rates, then the weights
    row[0] = first
    for rate, weight in zip(rest[: len(rest) // 2], rest[len(rest) // 2 :], strict=True):
        powers[1:] = rate
        row[1:] += weight * np.cumprod(powers)[1:]
    return np.asarray(np.cumsum(row**2))


@dataclass(frozen=True)
class _ToeplitzNoise(WalkNoise):
    walk: Toeplitz

    def terms(self, leaf: int) -> float:
        """Return the variance at this release."""
        return float(_variances(self.walk)[leaf - 1]) if leaf > 0 else 0.0

    def most(self, leaf: int) -> float:
        """Return the variance at this release.

        It bounds all earlier ones, because the variance never decreases.
        """
        return self.terms(leaf)

    def rms(self) -> float:
        """Return the rms, exact over the prefixes 1 .. N - 1."""
        return math.sqrt(float(np.mean(_variances(self.walk))))


_NOISES: dict[Any, type[Any]] = {
    Tree: _TreeNoise, OptimalTree: _OptimalTreeNoise, SignedDigits: _DigitsNoise, Toeplitz: _ToeplitzNoise,
}  # fmt: skip


# ------------------------------------------------------------------------------ decaying sums


def sum_terms(stream: Decaying, release: int) -> float:
    """Return the variance of the prefix sum's noise at release i, in units of one noise term's variance."""
    if release == 0:
        return 0.0
    return (1.0 + (1.0 - stream.decay) ** 2 * (release - 1)) / stream.gain**2


def rate_std(stream: Decaying, sizes: Sequence[int] | NDArray[np.int64]) -> float:
    """Return the noise std of the equivalent count after batches of these sizes, in units of one draw's."""
    behind, squares, users = 0.0, 0.0, 0.0
    for size in np.asarray(sizes, np.float64).tolist():
        behind = size + stream.decay * behind
        squares += behind * behind
        users += size
    return users / (stream.gain * math.sqrt(squares)) if squares > 0 else math.inf
