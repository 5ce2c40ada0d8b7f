"""Compiled steps of many environments at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel
from discreet.utils.random_streams_kernels import ROLE_ENVIRONMENT, below, open_stream, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]


class WorldTables(NamedTuple):
    """Transition rows of an ensemble of K members over the same E possible entries, as flat arrays.

    - action_row : (T, S, A') row of each action.
    - row_ptr : (rows + 1,) first entry of each row.
    - slot_rows : number of rows of a slot, or 0 if T = 1.
    - successor : (E,) next states.
    - cumulative : (K E,) cumulative probabilities within each row. The last entry of a row is 1.
    - row_reward : (T', rows of a slot) rewards of rows.
    - arrival_reward : (S,) rewards of an arrival in a state.
    - ended : (S,) mask of the terminal states.
    - start : (S,) cumulative initial distribution. The last entry is 1.
    """

    action_row: Ints
    row_ptr: Ints
    successor: Ints
    cumulative: Floats
    row_reward: Floats
    arrival_reward: Floats
    ended: Bools
    start: Floats
    slot_rows: int
    horizon: int


class WorldState(NamedTuple):
    """State of n environments."""

    state: Ints
    step: Ints
    member: Ints
    stream: Words  # (n, 4)
    reward: Floats
    terminated: Bools
    truncated: Bools
    final: Ints  # state in which the last episode ended


@kernel
def seed_environments(key: Words, now: WorldState) -> None:
    """Open the random stream of every environment. key : (2,) words."""
    for i in range(now.state.shape[0]):
        open_stream(key, ROLE_ENVIRONMENT, i, 0, now.stream[i])


@kernel
def begin_episodes(tables: WorldTables, now: WorldState) -> None:
    """Begin an episode in every environment."""
    members = tables.cumulative.shape[0] // tables.successor.shape[0]
    for i in range(now.state.shape[0]):
        now.member[i] = below(now.stream[i], members)
        now.state[i] = np.searchsorted(tables.start, uniform(now.stream[i]), side="right")
        now.step[i] = 0


@kernel
def step_environments(tables: WorldTables, actions: Ints, timed: bool, now: WorldState) -> int:
    """Take one action in every environment; where an episode ends, begin the next one.

    timed : True if the horizon terminates episodes, False if it truncates them.

    Returns -1, or the index of the first environment whose action does not exist.
    """
    n, entries = now.state.shape[0], tables.successor.shape[0]
    for i in range(n):
        if actions[i] < 0 or actions[i] >= tables.action_row.shape[2]:
            return i
    members = tables.cumulative.shape[0] // entries
    slots, reward_slots = tables.action_row.shape[0], tables.row_reward.shape[0]
    for i in range(n):
        h = now.step[i]
        row = tables.action_row[h if slots > 1 else 0, now.state[i], actions[i]]
        at = row + (h * tables.slot_rows if slots > 1 else 0)
        low, high, base = tables.row_ptr[at], tables.row_ptr[at + 1] - 1, now.member[i] * entries
        u = uniform(now.stream[i])
        while low < high:
            middle = (low + high) >> 1
            if u < tables.cumulative[base + middle]:
                high = middle
            else:
                low = middle + 1
        following = tables.successor[low]
        now.reward[i] = (
            tables.row_reward[h if reward_slots > 1 else 0, row] + tables.arrival_reward[following]
        )
        ended, over = tables.ended[following], h + 1 >= tables.horizon
        now.terminated[i] = ended or (over and timed)
        now.truncated[i] = over and not now.terminated[i]
        now.final[i] = following
        now.step[i] = h + 1
        if ended or over:
            now.member[i] = below(now.stream[i], members)
            following = np.searchsorted(tables.start, uniform(now.stream[i]), side="right")
            now.step[i] = 0
        now.state[i] = following
    return -1
