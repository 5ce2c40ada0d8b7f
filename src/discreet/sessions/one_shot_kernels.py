"""Compiled passes over stored people's records: check and encode, add, and the order of users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Counts = NDArray[np.uint32]

_BLOCK = 256  # episodes turned over at once: their records stay in the cache

# kinds of what is wrong with users
FALLS, TOO_MANY = 1, 2
# what a check of records found
BROKEN, ON_GRID, OFF_GRID = 0, 1, 2


@kernel
def check_users(
    user: Ints, any_before: bool, last: int, episodes: int, most: int
) -> tuple[int, int, int, int]:
    """Follow the users of some episodes: (kind, index of the first broken; new users, episodes of the last).

    ``last``, ``episodes`` : the last user of the episodes before, if there are any, and how many of them are
    hers. kind 0 and index -1: nothing is wrong.
    """
    new = 0
    for i in range(user.shape[0]):
        if any_before and user[i] == last:
            episodes += 1
            if episodes > most:
                return TOO_MANY, i, new, episodes
        elif any_before and user[i] < last:
            return FALLS, i, new, episodes
        else:
            any_before, last, episodes = True, user[i], 1
            new += 1
    return 0, -1, new, episodes


@kernel
def encode(
    states: Ints, actions: Ints, rewards: Floats, row_index: Int32s, grid: float, nearest: bool,
    cells: Int32s, gains: Floats,
) -> int:  # fmt: skip
    """Check every record and write where it counts: BROKEN, or ON_GRID or OFF_GRID as all rewards are.

    states (n, H + 1), actions (n, H), rewards (n, H); row_index (S, A), -1 where inadmissible. cells (H, n) :
    row * S + next state; gains (H, n) : the reward, or (0, n): not wanted. ``nearest`` : they
    are rounded to the nearest multiple of 1 / grid, a power of two, and so are on the grid.
    """
    n, horizon = actions.shape
    all_states, all_actions = row_index.shape
    off = False
    for begin in range(0, n, _BLOCK):
        end = min(begin + _BLOCK, n)
        for h in range(horizon):
            for i in range(begin, end):
                s, a, z, r = states[i, h], actions[i, h], states[i, h + 1], rewards[i, h]
                row = -1
                if 0 <= s < all_states and 0 <= a < all_actions and 0 <= z < all_states:
                    row = row_index[s, a]
                if row < 0 or not 0.0 <= r <= 1.0:  # NaN is not
                    return BROKEN
                cells[h, i] = row * all_states + z
                if gains.shape[0] > 0:
                    units = np.rint(r * grid)
                    off |= units != r * grid
                    gains[h, i] = units / grid if nearest else r
    return OFF_GRID if off and not nearest else ON_GRID


@kernel
def add_step(cells: Int32s, gains: Floats, all_states: int, counts: Counts, sums: Floats) -> None:
    """Add one step's records: ``counts`` (R S,) and, unless there are no ``gains``, r - 1/2 to ``sums``."""
    for i in range(cells.shape[0]):
        counts[cells[i]] += np.uint32(1)
    for i in range(gains.shape[0]):
        sums[cells[i] // all_states] += gains[i] - 0.5
