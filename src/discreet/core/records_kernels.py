"""Compiled sums of many users' records at once: of a session's users, and of stored ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel
from discreet.core.kernels import add_records, visited_before

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.generic]  # integers or floats


@kernel
def add_trajectories(
    states: Ints, actions: Ints, rewards: Floats, row_index: Ints, first: int, steps: int, slots: int,
    all_rows: int, begins: Ints, reward_shift: float, cut: float, played: Floats,
    counts: Counts, sums: Floats,
) -> None:  # fmt: skip
    """Add some steps of checked users one after the other, by the very sums of one user.

    played (steps, R) : 0 where the public policy cannot act and nothing is added; (0, R): no such
    restriction.
    """
    rows, last = np.empty(steps, np.int64), first + steps
    for i in range(states.shape[0]):
        for h in range(steps):
            rows[h] = row_index[states[i, first + h], actions[i, first + h]]
            if played.shape[0] > 0 and played[h, rows[h]] == 0.0:
                rows[h] = -1
        add_records(
            states[i, first : last + 1], rows, rewards[i, first:last], slots, all_rows, row_index.shape[0],
            begins, reward_shift, cut, counts, sums,
        )  # fmt: skip


@kernel
def add_stored(
    states: Ints, actions: Ints, rewards: Floats, row_index: Ints, first: int, steps: int,
    first_visits: bool, reward_shift: float, counts: Counts, sums: Floats,
) -> None:  # fmt: skip
    """Add some steps of checked users to one table of transitions, and of rewards: step after step.

    The sums of :func:`add_trajectories`, in another order: for rewards that add up exactly in any. ``counts``
    (R S,); ``sums`` (R,), or (0,): no rewards. ``first_visits``: only of a user's first visit to each state,
    which takes all steps. All cells of a step are found before any is added to, and by unsigned numbers,
    which are never looked at as places from the end: several times faster than one record after the other.
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
