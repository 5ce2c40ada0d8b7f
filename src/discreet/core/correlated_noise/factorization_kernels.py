"""Noise of factorization mechanisms, computed by a public program of linear operations on registers.

A factorization mechanism (``walk`` in code) adds correlated noise to exact prefix sums in a continual
release. Its program defines the independent draws, and how the noise of each prefix is computed from these
draws. A register is an array with one number for each cell. One operation of the program is

    register[target] = c1 register[source1] + c2 register[source2] + cd draw(i, j; scale),      (1)

where register[-1] is zero, and nothing is drawn if cd = 0. A draw fills every cell with independent noise of
``scale`` times the base scales. Each address (i, j) is drawn at most once in a stream, because a value that
is needed later stays in a register. Therefore draws from a source that cannot be repeated can replace seeded
draws. The program depends only on public numbers (code, parameters, time step). The stepwise session and the
fused driver both use it and evaluate (1) in the same order for each cell, so their results are equal bit for
bit.

``held``, shape (registers + 1,), contains a label for each register and the last time step that was computed.
The label of a register in the binary tree is the prefix whose noise is in the register. The programs have
these codes, integer parameters and float parameters:

- ``TREE`` (epochs, gaussian): the binary tree. Time steps can be skipped.
- ``OPTIMAL_TREE`` (levels,), (v_0, v_1, ...): the same nodes with the least-squares estimate.
- ``SIGNED_DIGITS`` (arity, levels): the signed-digit tree.
- ``TOEPLITZ`` (buffers,), (b_0, then lambda_k, then w_k): a buffered linear Toeplitz matrix.

Derivations are in the modules of :mod:`discreet.core.correlated_noise`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.core.count_kernels import tree_chain, tree_epoch, tree_parent, tree_slot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TREE, OPTIMAL_TREE, SIGNED_DIGITS, TOEPLITZ = 0, 1, 2, 3
TARGET, SOURCE1, SOURCE2, DRAW, LEVEL, LABEL = range(6)  # columns of `links`
C1, C2, CD, SCALE = range(4)  # columns of `weights`


class Program(NamedTuple):
    """Code and parameters of a factorization, and arrays for the operations of one time step."""

    code: int
    ints: Ints
    floats: Floats
    links: Ints  # (operations, 6)
    weights: Floats  # (operations, 4)


@inlined
def _put(
    links: Ints, weights: Floats, at: int, target: int, source1: int, source2: int, i: int, j: int,
    label: int, c1: float, c2: float, cd: float, scale: float,
) -> int:  # fmt: skip
    links[at, TARGET], links[at, SOURCE1], links[at, SOURCE2] = target, source1, source2
    links[at, DRAW], links[at, LEVEL], links[at, LABEL] = i, j, label
    weights[at, C1], weights[at, C2], weights[at, CD], weights[at, SCALE] = c1, c2, cd, scale
    return at + 1


# ------------------------------------------------------------------------ the binary tree
@inlined
def _tree_ops(ints: Ints, held: Ints, leaf: int, links: Ints, weights: Floats) -> int:
    """Write operations that compute the noise of every required prefix that is not in a register.

    The noise of a prefix is the noise of its parent prefix plus the noise of one node.
    """
    epochs, gaussian = ints[0] != 0, ints[1] != 0
    length = tree_chain(leaf, epochs, held, links[:, DRAW])
    for first in range(length // 2):  # reverse the chain: operations start at the first prefix
        last = length - 1 - first
        links[first, DRAW], links[last, DRAW] = links[last, DRAW], links[first, DRAW]
    for at in range(length):
        end = links[at, DRAW]
        parent = tree_parent(end, epochs)
        scale = np.float64(tree_epoch(end, epochs) + 1) if epochs else 1.0
        _put(
            links, weights, at, tree_slot(end, epochs), tree_slot(parent, epochs) if parent > 0 else -1, -1,
            end, 0, end, 1.0, 0.0, 1.0, np.sqrt(scale) if gaussian else scale,
        )  # fmt: skip
    return length


@inlined
def _zeros(n: int) -> int:
    """Return the number of trailing zero bits of n > 0."""
    level = 0
    while n & 1 == 0:
        n >>= 1
        level += 1
    return level


@inlined
def _optimal_ops(ints: Ints, floats: Floats, leaf: int, links: Ints, weights: Floats) -> int:
    """Write the operations of the optimal tree at one time step.

    Registers 0..L-1 contain node estimates, registers L..2L-1 the noise of prefixes by the level of their
    last node, and register 2L the current node.
    """
    levels, top = ints[0], _zeros(leaf)
    at = _put(links, weights, 0, 0 if top == 0 else 2 * levels, -1, -1, leaf, 0, leaf, 0.0, 0.0, 1.0, 1.0)
    for level in range(1, top + 1):
        own = floats[level]
        target = level if level == top else 2 * levels
        at = _put(
            links, weights, at, target, level - 1, 2 * levels, leaf, level, leaf, 1.0 - own, 1.0 - own, own,
            1.0,
        )  # fmt: skip
    before = leaf & (leaf - 1)
    if before > 0:
        at = _put(
            links, weights, at, levels + top, _optimal_register(ints, before), top, 0, 0, leaf, 1.0, 1.0, 0.0,
            1.0,
        )  # fmt: skip
    return at


@inlined
def _optimal_register(ints: Ints, leaf: int) -> int:
    level = _zeros(leaf)
    return level if leaf & (leaf - 1) == 0 else ints[0] + level


# ------------------------------------------------------------------------- signed digits
# Each level has below + 1 registers. Registers 0 .. below-1 contain the noise of the prefixes that end 1 ..
# below blocks before the base. The last register contains the noise of the current prefix after the base. The
# base itself (digit 0) is a prefix of the level above.


@inlined
def digit_position(arity: int, level: int, leaf: int) -> int:
    """Return p_level, which is ``leaf`` rounded level by level to a multiple of arity^level.

    The result is in units of arity^level.
    """
    below = (arity + 1) // 2 - 1
    for _ in range(level):
        leaf = (leaf + below) // arity
    return leaf


@inlined
def _digit_register(arity: int, levels: int, level: int, leaf: int) -> int:
    """Return the register with the noise of the prefix p_level, or -1 for prefix 0, which has no noise."""
    below = (arity + 1) // 2 - 1
    position = digit_position(arity, level, leaf)
    while level < levels - 1:
        above = (position + below) // arity
        digit = position - arity * above
        if digit != 0:
            return level * (below + 1) + (below if digit > 0 else -digit - 1)
        level, position = level + 1, above
    return level * (below + 1) + below if position > 0 else -1


@inlined
def _digit_ops(ints: Ints, leaf: int, links: Ints, weights: Floats) -> int:
    arity, levels = ints[0], ints[1]
    below = (arity + 1) // 2 - 1
    moved = 0  # all levels below this number have a new position
    while moved < levels and digit_position(arity, moved, leaf) != digit_position(arity, moved, leaf - 1):
        moved += 1
    at = 0
    for level in range(moved - 1, -1, -1):
        position, first = digit_position(arity, level, leaf), level * (below + 1)
        top = level == levels - 1
        if not top and level + 1 < moved:  # the new base is after ``leaf``: draw the blocks before it now
            base = arity * ((position + below) // arity)
            source = _digit_register(arity, levels, level + 1, leaf)
            for block in range(below):
                at = _put(
                    links, weights, at, first + block, source, -1, base - block, level, leaf, 1.0, 0.0, -1.0,
                    1.0,
                )  # fmt: skip
                source = first + block
            continue
        digit = position if top else position - arity * ((position + below) // arity)
        if digit > 0:
            source = first + below
            if digit == 1:
                source = -1 if top else _digit_register(arity, levels, level + 1, leaf)
            at = _put(
                links, weights, at, first + below, source, -1, position, level, leaf, 1.0, 0.0, 1.0, 1.0
            )
    return at


# ------------------------------------------------------------------- buffered linear Toeplitz
@inlined
def _toeplitz_ops(ints: Ints, floats: Floats, leaf: int, links: Ints, weights: Floats) -> int:
    """Write the operations of the Toeplitz program at time step n.

    Registers 0..m-1 contain S_k = sum_{j >= 1} lambda_k^j z_{n-j}, register m contains z_n, and register m +
    1 contains the noise of the prefix.
    """
    buffers, at = ints[0], 0
    drawn, out = buffers, buffers + 1
    if leaf > 1:
        for k in range(buffers):
            rate = floats[1 + k]
            at = _put(links, weights, at, k, k if leaf > 2 else -1, drawn, 0, 0, leaf, rate, rate, 0.0, 1.0)
    at = _put(links, weights, at, drawn, -1, -1, leaf, 0, leaf, 0.0, 0.0, 1.0, 1.0)
    at = _put(links, weights, at, out, drawn, -1, 0, 0, leaf, floats[0], 0.0, 0.0, 1.0)
    if leaf > 1:
        for k in range(buffers):
            at = _put(links, weights, at, out, out, k, 0, 0, leaf, 1.0, floats[1 + buffers + k], 0.0, 1.0)
    return at


# ------------------------------------------------------------------------------ any factorization
@inlined
def walk_ops(
    code: int, ints: Ints, floats: Floats, held: Ints, leaf: int, links: Ints, weights: Floats
) -> int:
    """Write the operations that compute the noise of prefix ``leaf``, in order. Return their number."""
    if code == TREE:
        return _tree_ops(ints, held, leaf, links, weights)
    if code == OPTIMAL_TREE:
        return _optimal_ops(ints, floats, leaf, links, weights)
    if code == SIGNED_DIGITS:
        return _digit_ops(ints, leaf, links, weights)
    return _toeplitz_ops(ints, floats, leaf, links, weights)


@inlined
def walk_next(code: int, held: Ints, leaf: int) -> int:
    """Return the next time step to compute, which is at most ``leaf``.

    Only the binary tree can skip time steps.
    """
    return leaf if code == TREE else held[held.shape[0] - 1] + 1


@inlined
def walk_register(code: int, ints: Ints, leaf: int) -> int:
    """Return the register that contains the noise of prefix ``leaf`` > 0 after it was computed."""
    if code == TREE:
        return tree_slot(leaf, ints[0] != 0)
    if code == OPTIMAL_TREE:
        return _optimal_register(ints, leaf)
    if code == SIGNED_DIGITS:
        return _digit_register(ints[0], ints[1], 0, leaf)
    return ints[0] + 1


@kernel
def next_ops(
    code: int, ints: Ints, floats: Floats, held: Ints, leaf: int, links: Ints, weights: Floats
) -> tuple[int, int]:
    """Return the next time step to compute, which is at most ``leaf``, and the number of its operations."""
    at = walk_next(code, held, leaf)
    return at, walk_ops(code, ints, floats, held, at, links, weights)


@kernel
def register_of(code: int, ints: Ints, leaf: int) -> int:
    """Call :func:`walk_register` from Python."""
    return walk_register(code, ints, leaf)


# ------------------------------------------------------------------- columns of a Toeplitz strategy
@kernel
def inverse_column(floats: Floats, buffers: int, releases: int) -> Floats:
    """Return the column c_0, ..., c_{releases-1} of the strategy C = B^{-1} A of a ``TOEPLITZ`` program.

    It satisfies sum_{j<=n} b_j c_{n-j} = 1 for all n, where b is the column of B.
    """
    out = np.empty(releases)
    state = np.zeros(buffers)
    for n in range(releases):
        rest = 1.0
        for k in range(buffers):
            rest -= floats[1 + buffers + k] * state[k]
        out[n] = rest / floats[0]
        for k in range(buffers):
            state[k] = floats[1 + k] * (state[k] + out[n])
    return out
