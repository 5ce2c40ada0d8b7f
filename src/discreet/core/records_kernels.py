"""Compiled checks and sums of many users' records at once: :meth:`CountSession.submit_many`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel
from discreet.core.kernels import add_records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.generic]  # integers or floats


@kernel
def first_broken(states: Ints, actions: Ints, rewards: Floats, row_index: Ints) -> tuple[int, int, int]:
    """(user, code, step) of the first number that is broken, or (-1, 0, 0).

    Codes: 0 a state out of range, 1 an action out of range, 2 an action that is not admissible in its state,
    3 a reward outside of [0, 1]. states (n, H + 1), actions (n, H), rewards (n, H); row_index (S, A), -1
    where inadmissible.
    """
    all_states, all_actions = row_index.shape
    for i in range(states.shape[0]):
        for h in range(states.shape[1]):
            if not 0 <= states[i, h] < all_states:
                return i, 0, h
        for h in range(actions.shape[1]):
            if not 0 <= actions[i, h] < all_actions:
                return i, 1, h
            if row_index[states[i, h], actions[i, h]] < 0:
                return i, 2, h
            if not 0.0 <= rewards[i, h] <= 1.0:  # also NaN
                return i, 3, h
    return -1, 0, 0


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
