"""Compiled code that sums many stored records in one call, for :meth:`PartialAggregate.add`."""

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
    """Add the records of ``steps`` steps, starting at step ``first``, to tables of counts and of rewards.

    The sums are equal to those of :func:`discreet.core.trajectory_sums_kernels.add_trajectories`, which adds
    the records in another order. Therefore the sums of rewards must be exact in any order. ``counts`` (R S,)
    has the number of transitions. ``sums`` (R,) has the sums of rewards, or the shape (0,) if rewards are not
    summed. If ``first_visits`` is True, only the first visit of each episode to each state is counted; this
    needs all steps.

    The indices of all cells of a step are computed before a cell is changed. The indices are unsigned, so the
    compiler adds no test for negative indices. This is several times faster than a loop over single records.
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
