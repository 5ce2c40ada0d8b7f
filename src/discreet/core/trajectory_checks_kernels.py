"""What a broken record is: the compiled check of :mod:`discreet.core.trajectories`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
