"""Compiled parts of the trusted core: contributions, the noise of tree nodes, local messages.

Sums live in one flat vector of cells (order and offsets: ``counts.CountQuery``). Families are told
apart by codes: 0 visits, 1 transitions, 2 rewards; 3, 4 pooled transitions and rewards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.numerics.compile import inlined, kernel
from discreet.numerics.streams_kernels import (
    ROLE_NOISE,
    laplace_range,
    laplace_sum,
    normal,
    normal_range,
    open_stream,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

NO_NOISE, LAPLACE, GAUSSIAN = 0, 1, 2


@inlined
def add_records(
    states: Ints, rows: Ints, rewards: Floats, slots: int, all_rows: int, all_states: int,
    begins: Ints, reward_shift: float, cells: Floats,
) -> None:  # fmt: skip
    """Add one user's records to a flat vector.

    ``begins`` (6,): first cell of each family, -1 if absent; then 1 if only first visits are pooled.
    """
    for h in range(rows.shape[0]):
        row = rows[h] if slots == 1 else h * all_rows + rows[h]
        if begins[0] >= 0:
            cells[begins[0] + row] += 1.0
        cells[begins[1] + row * all_states + states[h + 1]] += 1.0
        if begins[2] >= 0:
            cells[begins[2] + row] += rewards[h] - reward_shift
        if begins[3] < 0:
            continue
        again = False
        if begins[5] > 0:
            for before in range(h - 1, -1, -1):
                if states[before] == states[h]:
                    again = True
                    break
        if not again:
            cells[begins[3] + rows[h] * all_states + states[h + 1]] += 1.0
            if begins[4] >= 0:
                cells[begins[4] + rows[h]] += rewards[h] - reward_shift


@kernel
def add_trajectory(
    states: Ints, rows: Ints, rewards: Floats, slots: int, all_rows: int, all_states: int,
    begins: Ints, reward_shift: float, cells: Floats,
) -> None:  # fmt: skip
    """Door to :func:`add_records`."""
    add_records(states, rows, rewards, slots, all_rows, all_states, begins, reward_shift, cells)


@inlined
def draw_noise(
    family: int, key: Words, i: int, j: int, factor: float, offsets: Ints, scales: Floats,
    state: Words, out: Floats,
) -> None:  # fmt: skip
    """Independent noise in every cell from stream (noise, i, j); family f has scale factor * scales[f]."""
    open_stream(key, ROLE_NOISE, i, j, state)
    for f in range(scales.shape[0]):
        scale = factor * scales[f]
        if family == LAPLACE:
            laplace_range(state, scale, out, offsets[f], offsets[f + 1])
        else:
            normal_range(state, scale, out, offsets[f], offsets[f + 1])


@kernel
def fill_noise(
    family: int, key: Words, i: int, j: int, factor: float, offsets: Ints, scales: Floats, out: Floats
) -> None:
    """Door to :func:`draw_noise`."""
    draw_noise(family, key, i, j, factor, offsets, scales, np.empty(4, np.uint64), out)


@inlined
def draw_noise_sum(
    family: int, key: Words, i: int, users: int, offsets: Ints, scales: Floats, state: Words, out: Floats
) -> None:
    """The sum of ``users`` local users' noise in every cell, from its exact law, stream (noise, i, 1)."""
    open_stream(key, ROLE_NOISE, i, 1, state)
    root = np.sqrt(np.float64(users))
    for f in range(scales.shape[0]):
        for c in range(offsets[f], offsets[f + 1]):
            if family == LAPLACE:
                out[c] = laplace_sum(state, users, scales[f])
            else:
                out[c] = scales[f] * root * normal(state)


@kernel
def fill_noise_sum(
    family: int, key: Words, i: int, users: int, offsets: Ints, scales: Floats, out: Floats
) -> None:
    """Door to :func:`draw_noise_sum`."""
    draw_noise_sum(family, key, i, users, offsets, scales, np.empty(4, np.uint64), out)


# ------------------------------------------------------------------------ the binary tree
# A prefix of n users is a disjoint union of nodes. Stripping the last node of the prefix n gives the
# prefix parent(n); the noise of n is the noise of parent(n) plus that of the one node in between,
# which is addressed by its end n: it is one and the same whenever it is active.


@inlined
def tree_parent(n: int, epochs: bool) -> int:
    """The prefix that remains when the last node of prefix n > 0 is taken away.

    K known: n without its lowest bit. K unknown (``epochs``): users 2^e .. 2^(e+1) - 1 form epoch e with
    a tree of its own; a closed epoch is its root alone.
    """
    if not epochs:
        return n & (n - 1)
    base = 1
    while 2 * base <= n + 1:
        base *= 2
    inside = n - (base - 1)
    if inside > 0:
        return base - 1 + (inside & (inside - 1))
    return base // 2 - 1


@inlined
def tree_epoch(n: int, epochs: bool) -> int:
    """Epoch of the node that ends at prefix n > 0; 0 when K is known."""
    if not epochs:
        return 0
    e = 0
    while (1 << (e + 1)) - 1 < n:
        e += 1
    return e


@inlined
def tree_slot(n: int, epochs: bool) -> int:
    """Where the running noise of prefix n is kept: 1 + level of its last node; 0 for closed epochs."""
    inside = n
    if epochs:
        base = 1
        while 2 * base <= n + 1:
            base *= 2
        inside = n - (base - 1)
        if inside == 0:
            return 0
    level = 0
    while inside & 1 == 0:
        inside >>= 1
        level += 1
    return level + 1


@inlined
def tree_chain(n: int, epochs: bool, ends: Ints, chain: Ints) -> int:
    """Prefixes whose running noise must be made for prefix n, the last first; their number.

    ``ends[slot]`` is the prefix whose noise the slot holds (0: none). The walk stops at the first
    prefix that is held already.
    """
    length = 0
    while n > 0 and ends[tree_slot(n, epochs)] != n:
        chain[length] = n
        length += 1
        n = tree_parent(n, epochs)
    return length


@kernel
def chain_of(n: int, epochs: bool, ends: Ints) -> Ints:
    """Door to :func:`tree_chain`: rows (end, slot, parent's slot or -1, epoch) in the order of making."""
    chain = np.empty(128, np.int64)
    length = tree_chain(n, epochs, ends, chain)
    out = np.empty((length, 4), np.int64)
    for i in range(length):
        end = chain[length - 1 - i]
        parent = tree_parent(end, epochs)
        out[i, 0] = end
        out[i, 1] = tree_slot(end, epochs)
        out[i, 2] = tree_slot(parent, epochs) if parent > 0 else -1
        out[i, 3] = tree_epoch(end, epochs)
    return out


@inlined
def tree_advance(
    n: int, family: int, key: Words, offsets: Ints, scales: Floats, ends: Ints, stack: Floats,
    chain: Ints, state: Words, noise: Floats,
) -> int:  # fmt: skip
    """Make the running noise of prefix n (K known) in ``stack``; returns its slot."""
    length = tree_chain(n, False, ends, chain)
    for i in range(length - 1, -1, -1):
        end = chain[i]
        draw_noise(family, key, end, 0, 1.0, offsets, scales, state, noise)
        slot = tree_slot(end, False)
        parent = tree_parent(end, False)
        if parent > 0:
            before = tree_slot(parent, False)
            for c in range(noise.shape[0]):
                stack[slot, c] = stack[before, c] + noise[c]
        else:
            for c in range(noise.shape[0]):
                stack[slot, c] = noise[c]
        ends[slot] = end
    return tree_slot(n, False)
