"""Compiled parts of the trusted kernel: contributions, and the nodes of a tree.

Sums are kept in one flat vector of cells (order and offsets: ``count_query.CountQuery``). Codes of families:
0 visits, 1 transitions, 2 rewards, 6 clipped rewards. Pooled transitions and rewards have codes 3 and 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_NOISE, LAPLACE, GAUSSIAN = 0, 1, 2


@inlined
def visited_before(states: Ints, step: int) -> bool:
    """Return whether the state of this step occurred at an earlier step."""
    before = step - 1
    while before >= 0 and states[before] != states[step]:
        before -= 1
    return before >= 0


@inlined
def add_records(
    states: Ints, rows: Ints, rewards: Floats, slots: int, all_rows: int, all_states: int,
    begins: Ints, reward_shift: float, cut: float, counts: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add one user's records to two flat vectors, counts (float or integer) and rewards; may be one vector.

    ``begins`` (7,): first cell of each family by its code, -1 if absent; entry 5 is 1 if only first visits
    are pooled, 2 if only first visits are counted at all. ``cut``: total up to which rewards are added to the
    family of code 6, uncentred, in the order of time. Steps with row -1 add nothing.
    """
    left = cut
    for h in range(rows.shape[0]):
        if rows[h] < 0:
            continue
        again = begins[5] > 0 and visited_before(states, h)
        if again and begins[5] == 2:
            continue
        row = rows[h] if slots == 1 else h * all_rows + rows[h]
        if begins[0] >= 0:
            counts[begins[0] + row] += 1
        counts[begins[1] + row * all_states + states[h + 1]] += 1
        if begins[2] >= 0:
            sums[begins[2] + row] += rewards[h] - reward_shift
        if begins[6] >= 0:
            counted = min(rewards[h], left)
            sums[begins[6] + rows[h]] += counted
            left -= counted
        if begins[3] >= 0 and not again:
            counts[begins[3] + rows[h] * all_states + states[h + 1]] += 1
            if begins[4] >= 0:
                sums[begins[4] + rows[h]] += rewards[h] - reward_shift


@kernel
def add_trajectory(
    states: Ints, rows: Ints, rewards: Floats, slots: int, all_rows: int, all_states: int,
    begins: Ints, reward_shift: float, cut: float, cells: Floats,
) -> None:  # fmt: skip
    """Call :func:`add_records` with one vector of cells."""
    add_records(states, rows, rewards, slots, all_rows, all_states, begins, reward_shift, cut, cells, cells)


# ------------------------------------------------------------------------ the binary tree
# A prefix of n users is a disjoint union of nodes. Removing the last node of prefix n gives the prefix
# parent(n). The noise of n is the noise of parent(n) plus that of the one removed node. That node is
# identified by its end n: it is the same node whenever it is active.


@inlined
def tree_parent(n: int, epochs: bool) -> int:
    """Return the prefix that remains when the last node of prefix n > 0 is removed.

    K known: n without its lowest bit. K unknown (``epochs``): users 2^e .. 2^(e+1) - 1 form epoch e with a
    separate tree; a closed epoch consists of its root alone.
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
    """Return the epoch of the node that ends at prefix n > 0; 0 if K is known."""
    if not epochs:
        return 0
    e = 0
    while (1 << (e + 1)) - 1 < n:
        e += 1
    return e


@inlined
def tree_slot(n: int, epochs: bool) -> int:
    """Return the slot of prefix n's running noise: 1 + level of its last node; 0 for closed epochs."""
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
    """Fill ``chain`` with the prefixes whose running noise prefix n needs, last first; return their number.

    ``ends[slot]`` is the prefix whose noise the slot holds (0: none). The chain stops at the first prefix
    whose noise is already held.
    """
    length = 0
    while n > 0 and ends[tree_slot(n, epochs)] != n:
        chain[length] = n
        length += 1
        n = tree_parent(n, epochs)
    return length
