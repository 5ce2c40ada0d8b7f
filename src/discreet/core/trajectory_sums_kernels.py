"""Compiled sums over many users, for :meth:`ChannelSession.submit_many`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel
from discreet.core.count_kernels import add_records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.generic]  # array of integers or floats


@kernel
def add_trajectories(
    states: Ints, actions: Ints, rewards: Floats, row_index: Ints, first: int, steps: int, slots: int,
    all_rows: int, begins: Ints, reward_shift: float, cut: float, counts: Counts,
    sums: Floats,
) -> None:  # fmt: skip
    """Add the records of several checked users, one user after another.

    The same code adds the record of a single user.
    """
    rows, last = np.empty(steps, np.int64), first + steps
    for i in range(states.shape[0]):
        for h in range(steps):
            rows[h] = row_index[states[i, first + h], actions[i, first + h]]
        add_records(
            states[i, first : last + 1], rows, rewards[i, first:last], slots, all_rows, row_index.shape[0],
            begins, reward_shift, cut, counts, sums,
        )  # fmt: skip
