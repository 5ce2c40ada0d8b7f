"""Compiled check of records for :mod:`discreet.core.trajectories`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@kernel
def first_broken(states: Ints, actions: Ints, rewards: Floats, row_index: Ints) -> tuple[int, int, int]:
    """Return (user, code, step) of the first invalid number, or (-1, 0, 0).

    Codes: 0 state out of range, 1 action out of range, 2 action not admissible in its state, 3 reward outside
    [0, 1]. Shapes: states (n, H + 1), actions and rewards (n, H). row_index (S, A) is -1 where inadmissible.
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
            if not 0.0 <= rewards[i, h] <= 1.0:  # rejects NaN too
                return i, 3, h
    return -1, 0, 0
