"""Variances of the noise that each strategy adds to prefix sums, for bounds and comparisons.

Privacy does not depend on this module. The strategies and their privacy losses are defined in
:mod:`discreet.core.correlated_noise`. Tests compare the variances in this module with the noise that those
strategies produce.
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

_OPEN_ENDED = 2**20  # number of time steps at which trees of unknown length are compared
_TRIED = range(2, 65)  # arities that are searched; the best arity is 12 to 30 for 10^3 to 10^7 time steps


class WalkNoise(ABC):
    """Noise variances of the prefix sums of one factorization mechanism, in units of one draw's variance."""

    @abstractmethod
    def terms(self, leaf: int) -> float:
        """Return the variance of the noise in the prefix sum over the first ``leaf`` time steps.

        The unit is the variance of the largest draw in this noise.
        """

    @abstractmethod
    def most(self, leaf: int) -> float:
        """Return a bound on ``terms`` at this and all earlier time steps."""

    @abstractmethod
    def rms(self) -> float:
        """Return the root mean square of the noise over all releases.

        The unit is the standard deviation of one draw.
        """

    def scale(self, leaf: int) -> float:
        """Return the largest scale of a draw in the noise of this prefix, relative to the base scale."""
        return 1.0


def noise_of(walk: Walk) -> WalkNoise:
    """Return the noise object of a factorization mechanism, by its class or its matrix."""
    if walk.weights is not None:
        return _MatrixNoise(walk)
    for kind, noise in _NOISES.items():
        if isinstance(walk, kind):
            return noise(walk)
    raise ValueError(f"walk = {walk!r}: must be one of {', '.join(kind.__name__ for kind in _NOISES)}")


# ------------------------------------------------------------------------------ trees


def _bits_below(ends: int, levels: int) -> list[int]:
    """Return, for each bit l < levels, the number of integers in 0 .. ends - 1 that have this bit set."""
    return [
        ends // 2 ** (level + 1) * 2**level + max(0, ends % 2 ** (level + 1) - 2**level)
        for level in range(levels)
    ]


# these functions are plain Python, because Numba would compile helpers of kernels again in each process
_epoch, _parent = (getattr(helper, "py_func", helper) for helper in (kernels.tree_epoch, kernels.tree_parent))


def tree_nodes(tree: Tree, n: int) -> list[tuple[int, int]]:
    """Return the tree nodes whose time intervals partition the first n time steps, from last to first.

    Each node is (its last time step, its epoch).
    """
    epochs = tree.leaves is None
    out = []
    while n > 0:
        out.append((n, int(_epoch(n, epochs))))
        n = int(_parent(n, epochs))
    return out


@dataclass(frozen=True)
class _TreeNoise(WalkNoise):
    walk: Tree

    def _factor(self, epoch: int) -> float:
        """Return the noise scale of the nodes of an epoch, relative to the base scale.

        For Laplace noise the result is the number of levels of the epoch. For Gaussian noise it is the square
        root of this number. For a tree of known length it is 1.
        """
        if self.walk.leaves is not None:
            return 1.0
        return math.sqrt(epoch + 1) if self.walk.gaussian else float(epoch + 1)

    def scale(self, leaf: int) -> float:
        """Return the largest scale factor among the epochs of the prefix."""
        return max((self._factor(epoch) for _, epoch in tree_nodes(self.walk, leaf)), default=1.0)

    def terms(self, leaf: int) -> float:
        """Return the number of nodes in the prefix.

        A node of an earlier epoch has a smaller variance and counts as less than 1, in proportion to this
        variance.
        """
        largest = self.scale(leaf)
        return float(sum((self._factor(epoch) / largest) ** 2 for _, epoch in tree_nodes(self.walk, leaf)))

    def most(self, leaf: int) -> float:
        """Return a bound on the number of nodes in any prefix up to ``leaf``.

        If the number N of time steps is known, a prefix attains this bound.
        """
        if self.walk.leaves is not None:
            return float((leaf + 1).bit_length() - 1)
        if leaf == 0:
            return 0.0
        epoch = (leaf + 1).bit_length() - 1
        inside = leaf - (2**epoch - 1)
        return float(max(2 * (epoch - 1), epoch + (inside + 1).bit_length() - 1, 1))

    def rms(self) -> float:
        """Return the exact root mean square over the prefixes 1 .. N - 1.

        If N is unknown, return the standard deviation after 2^20 time steps, in units of the standard
        deviation of one draw in epoch 0.
        """
        leaves = self.walk.leaves
        if leaves is None:
            return self.scale(_OPEN_ENDED) * math.sqrt(self.terms(_OPEN_ENDED))
        return math.sqrt(sum(_bits_below(leaves, self.walk.levels)) / max(1, leaves - 1))


@dataclass(frozen=True)
class _OptimalTreeNoise(WalkNoise):
    walk: OptimalTree

    def terms(self, leaf: int) -> float:
        """Return the sum of the node variances v_l over the bits l that are set in ``leaf``."""
        return sum(v for level, v in enumerate(node_variances(self.walk.levels)) if leaf >> level & 1)

    def most(self, leaf: int) -> float:
        """Return the largest ``terms`` of any prefix up to ``leaf``.

        The candidates are ``leaf`` and all numbers that arise from it by clearing one bit and setting all
        lower bits.
        """
        lower, high, best = 0.0, self.terms(leaf), 0.0
        for level, v in enumerate(node_variances(self.walk.levels)):
            if leaf >> level & 1:
                high -= v
                best = max(best, high + lower)
            lower += v
        return max(best, self.terms(leaf))

    def rms(self) -> float:
        """Return the exact root mean square over the prefixes 1 .. N - 1."""
        leaves, levels = self.walk.leaves, self.walk.levels
        counts = _bits_below(leaves, levels)
        total = sum(v * n for v, n in zip(node_variances(levels), counts, strict=True))
        return math.sqrt(total / max(1, leaves - 1))


# ------------------------------------------------------------------------------ signed digits


def digits(walk: SignedDigits, leaf: int) -> list[int]:
    """Return the signed digits d_0, ..., d_{L-1} of the prefix of length ``leaf``."""
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
        """Return the number of blocks that are added or subtracted, which is sum |d_l|."""
        return float(sum(map(abs, digits(self.walk, leaf))))

    def most(self, leaf: int) -> float:
        """Return the largest ``terms`` of any prefix up to ``leaf``.

        The digits of a shorter prefix agree with those of ``leaf`` above some place. The digit at this place
        is smaller, and the digits below it are arbitrary.
        """
        walk = self.walk
        found, free = digits(walk, leaf), walk.arity // 2
        best = above = abs(found[-1])
        if found[-1] > 0:
            best = max(best, found[-1] - 1 + (walk.levels - 1) * free)
        base = found[-1]  # the number that the digits above the current level represent
        for level in range(walk.levels - 2, -1, -1):
            digit, low = found[level], -walk.below if base > 0 else 0
            if digit > low:
                best = max(best, above + max(abs(low), abs(digit - 1)) + level * free)
            above += abs(digit)
            base = base * walk.arity + digit
        return float(max(best, above))

    def rms(self) -> float:
        """Return the exact root mean square over the prefixes 1 .. N - 1."""
        walk, total, shift = self.walk, 0, 0
        for level in range(walk.levels):
            block = walk.arity**level
            if level == walk.levels - 1:  # the sum of floor((n + shift) / block) over all n < N
                whole, rest = divmod(walk.leaves + shift, block)
                total += whole * (whole - 1) // 2 * block + whole * rest
            else:
                shift += walk.below * block
                # at this place, the base-k digit of n + shift is the signed digit plus ``below``
                total += self._digit_sum(walk.leaves + shift, block) - self._digit_sum(shift, block)
        return math.sqrt(total / max(1, walk.leaves - 1))

    def _digit_sum(self, end: int, block: int) -> int:
        """Return the sum of |digit - below| over the numbers 0 .. end - 1.

        ``digit`` is the digit of the number at the place of value ``block``.
        """
        arity, below = self.walk.arity, self.walk.below
        whole, rest = divmod(end, arity * block)
        full, part = divmod(rest, block)
        sizes = [abs(digit - below) for digit in range(arity)]
        return (whole * sum(sizes) + sum(sizes[:full])) * block + (sizes[full] * part if part else 0)


def best_digits(leaves: int, arity: int | None = None) -> SignedDigits:
    """Return the signed-digit tree whose noise has the least root mean square at a given epsilon.

    ``leaves`` is the number of time steps N. If ``arity`` is None, the best arity is found too.
    """
    return _best(checks.integer("leaves", leaves, 1), arity)


@lru_cache(maxsize=256)
def _best(leaves: int, arity: int | None) -> SignedDigits:
    found, least = None, math.inf
    for k in _TRIED if arity is None else (arity,):
        levels = 1
        while levels == 1 or k ** (levels - 1) < 2 * leaves:  # includes one more level; its top digit is 0
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
    """Return the noise variances at releases 1 .. M, shape (M,).

    The variance at release m is the sum of the squares of the first m weights in the row of the matrix.
    """
    if walk.row is not None:
        return np.asarray(np.cumsum(walk.row**2))
    powers, row = np.ones(walk.releases), np.full(walk.releases, 0.0)
    # the list holds the first entry of the row, then the rates, then the weights
    first, *rest = np.asarray(walk.form.floats).tolist()
    row[0] = first
    for rate, weight in zip(rest[: len(rest) // 2], rest[len(rest) // 2 :], strict=True):
        powers[1:] = rate
        row[1:] += weight * np.cumprod(powers)[1:]
    return np.asarray(np.cumsum(row**2))


@dataclass(frozen=True)
class _ToeplitzNoise(WalkNoise):
    walk: Toeplitz

    def terms(self, leaf: int) -> float:
        """Return the noise variance at this release."""
        return float(_variances(self.walk)[leaf - 1]) if leaf > 0 else 0.0

    def most(self, leaf: int) -> float:
        """Return the noise variance at this release.

        The result is a bound for all earlier releases too, because the variance never decreases.
        """
        return self.terms(leaf)

    def rms(self) -> float:
        """Return the exact root mean square over all releases."""
        return math.sqrt(float(np.mean(_variances(self.walk))))


# ------------------------------------------------------------------------------ matrices


@lru_cache(maxsize=16)
def _row_variances(walk: Walk) -> tuple[Floats, Floats, float]:
    """Return the noise variances at releases 0 .. M, their running maxima, and the largest scale.

    The unit is the variance of a term with the largest scale. The largest scale is the largest weight times
    the scale of a draw.
    """
    assert walk.weights is not None
    largest = float(np.abs(walk.weights).max())
    variances = np.append(0.0, ((walk.weights / largest) ** 2).sum(axis=1))
    return variances, np.maximum.accumulate(variances), largest * walk.draw_scale


@dataclass(frozen=True)
class _MatrixNoise(WalkNoise):
    walk: Walk

    def scale(self, leaf: int) -> float:
        """Return the largest scale of a term in any release, relative to the base scale."""
        return _row_variances(self.walk)[2]

    def terms(self, leaf: int) -> float:
        """Return the noise variance at this release, in units of that of the largest term."""
        return float(_row_variances(self.walk)[0][leaf])

    def most(self, leaf: int) -> float:
        """Return the largest noise variance at this and all earlier releases, in the same unit."""
        return float(_row_variances(self.walk)[1][leaf])

    def rms(self) -> float:
        """Return the exact root mean square over all releases."""
        return self.scale(0) * math.sqrt(float(np.mean(_row_variances(self.walk)[0][1:])))


_NOISES: dict[Any, type[Any]] = {
    Tree: _TreeNoise, OptimalTree: _OptimalTreeNoise, SignedDigits: _DigitsNoise, Toeplitz: _ToeplitzNoise,
}  # fmt: skip


# ------------------------------------------------------------------------------ decaying sums


def sum_terms(stream: Decaying, release: int) -> float:
    """Return the variance of the noise in the prefix sum at a release.

    The unit is the variance of one noise term.
    """
    if release == 0:
        return 0.0
    return (1.0 + (1.0 - stream.decay) ** 2 * (release - 1)) / stream.gain**2


def rate_std(stream: Decaying, sizes: Sequence[int] | NDArray[np.int64]) -> float:
    """Return the noise standard deviation of the equivalent count after batches of these sizes.

    The unit is the standard deviation of one draw.
    """
    behind, squares, users = 0.0, 0.0, 0.0
    for size in np.asarray(sizes, np.float64).tolist():
        behind = size + stream.decay * behind
        squares += behind * behind
        users += size
    return users / (stream.gain * math.sqrt(squares)) if squares > 0 else math.inf
