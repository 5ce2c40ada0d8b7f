"""Compiled parts of the trusted kernel: the contribution of a user to the sums, and the nodes of a tree.

Sums are stored in one flat vector of cells. ``count_query.CountQuery`` defines the order of the cells and the
offsets of the families. Visits have code 0, transitions 1, rewards 2, and clipped rewards 6. Pooled
transitions and pooled rewards have codes 3 and 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_NOISE, LAPLACE, GAUSSIAN = 0, 1, 2


@inlined
def visited_before(states: Ints, step: int) -> bool:
    """Return True if the state at this step occurred at an earlier step."""
    before = step - 1
    while before >= 0 and states[before] != states[step]:
        before -= 1
    return before >= 0


@inlined
def add_records(
    states: Ints, rows: Ints, rewards: Floats, slots: int, all_rows: int, all_states: int,
    begins: Ints, reward_shift: float, cut: float, counts: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add one user's records to two flat vectors: ``counts`` (float or integer) and ``sums`` (rewards).

    The two vectors can be the same array. Steps with row -1 add nothing.

    begins : (7,), index of the first cell of each family, by the code of the family, or -1 if the query does
        not have the family. Entry 5 is 1 if only first visits are pooled, and 2 if only first visits are
        counted at all.
    cut : clipping threshold of the family with code 6. Uncentred rewards are added in the order of time until
        their total reaches ``cut``.
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


# ------------------------------------------------------------------------ the binary tree
# A prefix of n users is a disjoint union of tree nodes. Removing the last node of prefix n gives the prefix
# parent(n). The noise of prefix n is the noise of prefix parent(n) plus the noise of the removed node. This
# node is identified by its end n.


@inlined
def tree_parent(n: int, epochs: bool) -> int:
    """Return the prefix that remains when the last node of prefix n > 0 is removed.

    If the number of users K is known, the result is n without its lowest set bit. If K is unknown
    (``epochs``), users 2^e .. 2^(e+1) - 1 form epoch e with a separate tree. A closed epoch consists only of
    its root.
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
    """Return the epoch of the node that ends at prefix n > 0, or 0 if K is known."""
    if not epochs:
        return 0
    e = 0
    while (1 << (e + 1)) - 1 < n:
        e += 1
    return e


@inlined
def tree_slot(n: int, epochs: bool) -> int:
    """Return the slot that stores the noise of prefix n.

    It is 1 plus the level of the last node of the prefix, or 0 for closed epochs.
    """
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
    """Fill ``chain`` with the prefixes whose noise is needed to compute that of prefix n.

    The chain starts with n and ends before the first prefix whose noise is already in a slot. ``ends[slot]``
    is the prefix whose noise is in the slot, or 0 if the slot is empty. Returns the length of the chain.
    """
    length = 0
    while n > 0 and ends[tree_slot(n, epochs)] != n:
        chain[length] = n
        length += 1
        n = tree_parent(n, epochs)
    return length
