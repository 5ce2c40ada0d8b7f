"""Compiled simulation of users one by one, which returns only sums over users: counts and returns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel
from discreet.core.count_kernels import add_records
from discreet.envs.mdp.tabular_kernels import World, simulate_episode
from discreet.utils.random_streams_kernels import ROLE_ENVIRONMENT, ROLE_POLICY, open_stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@kernel
def episode_sums(
    world: World, stochastic: bool, policy_rows: Ints, probabilities: Floats, key: Words, first: int, n: int,
    clip: float, cut: float, begins: Ints, starts: Floats, cells: Floats,
) -> float:  # fmt: skip
    """Simulate users ``first .. first + n - 1`` of a run, and return the sum of min(return, ``clip``).

    The counts of these users are added to ``cells``, separately for each step. ``begins`` (7,) has the index
    of the first cell of each family. The initial states of the users are added to ``starts`` (S,). ``cut`` is
    the clipping threshold C of the family of clipped rewards.
    """
    env_state, policy_state = np.empty(4, np.uint64), np.empty(4, np.uint64)
    states, rows = np.empty(world.horizon + 1, np.int64), np.empty(world.horizon, np.int64)
    rewards = np.empty(world.horizon)
    returns = 0.0
    for i in range(n):
        open_stream(key, ROLE_ENVIRONMENT, first + i, 0, env_state)
        if stochastic:
            open_stream(key, ROLE_POLICY, first + i, 0, policy_state)
        simulate_episode(
            world, stochastic, policy_rows, probabilities, env_state, policy_state, states, rows, rewards
        )
        starts[states[0]] += 1.0
        add_records(
            states, rows, rewards, world.horizon, world.rows, world.states, begins, 0.0, cut, cells, cells
        )
        total = 0.0
        for h in range(world.horizon):
            total += rewards[h]
        returns += min(total, clip)
    return returns
