"""Compiled sums over many stored records at once: :meth:`PartialAggregate.add`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel
from discreet.core.count_kernels import visited_before

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.generic]


@kernel
def add_stored(
    states: Ints, actions: Ints, rewards: Floats, row_index: Ints, first: int, steps: int,
    first_visits: bool, reward_shift: float, counts: Counts, sums: Floats,
) -> None:  # fmt: skip
    """Add some steps of checked users to one table of transitions and one of rewards, step after step.

    The sums are those of :func:`discreet.core.trajectory_sums_kernels.add_trajectories` in another order, for
    rewards whose sums are exact in any order. ``counts`` (R S,); ``sums`` (R,), or (0,): no rewards.
    ``first_visits``: only a user's first visit to each state, which needs all steps.

    All cells of a step are found before any is added to. Cell indices are unsigned, and no index is tested
    for counting from the end. This is several times faster than one record after the other.
    """
    users, to = states.shape[0], np.uint64(row_index.shape[0])
    rows, cells = np.empty(users, np.uint64), np.empty(users, np.uint64)
    for h in range(first, first + steps):
        for i in range(users):
            row = np.uint64(row_index[np.uint64(states[i, h]), np.uint64(actions[i, h])])
            rows[i], cells[i] = row, row * to + np.uint64(states[i, h + 1])
        if first_visits:
            for i in range(users):
                if not visited_before(states[i], h):
                    counts[cells[i]] += 1
                    if sums.shape[0] > 0:
                        sums[rows[i]] += rewards[i, h] - reward_shift
            continue
        for i in range(users):
            counts[cells[i]] += 1
        if sums.shape[0] > 0:
            for i in range(users):
                sums[rows[i]] += rewards[i, h] - reward_shift
