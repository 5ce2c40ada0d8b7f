"""What the public script of Chowdhury and Zhou (2021) computes, for replication only. Not private.

The script pools counts over steps, starts every pair with one reward observation of value 1 and
one transition to every state, does not count an episode's last transition, breaks ties towards
action 0 and does not clip Q in value iteration. Its noise has scale 1 / epsilon (no H, no number of
families, no log K): in local mode one draw per episode is shared by all pairs (differences of
cells are free of noise), in joint mode every episode draws afresh on a cumulative count (K-fold
composition). No differential privacy follows at any stated level.

Source: the public code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.envs.mdp.tabular_kernels import World, evaluate, simulate_episode
from discreet.utils.random_streams_kernels import (
    ROLE_ENVIRONMENT,
    ROLE_NOISE,
    ROLE_POLICY,
    laplace,
    laplace_sum,
    open_stream,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

NONE, JOINT, LOCAL = 0, 1, 2
_CONSTANT = 2.0 * 1.0986122886681098  # 2 ln 3


@inlined
def _noise(mode: int, k: int, scale: float, state: Words, noise: Floats, running: Floats) -> None:
    """(pairs, S + 2) noise of this episode: count, reward, successors."""
    pairs, width = noise.shape
    if mode == JOINT:
        terms = int(np.floor(np.log(np.float64(k)))) + 1
        for i in range(pairs):
            for j in range(width):
                noise[i, j] = laplace_sum(state, terms, scale)
    elif mode == LOCAL:
        for j in range(width):
            running[j] += laplace(state, scale)
        for i in range(pairs):
            for j in range(width):
                noise[i, j] = running[j]


@kernel
def run_published_code(
    world: World, start_values: Floats, gaps: Floats, optimize_policy: bool, mode: int, epsilon: float,
    eta: float, episodes: int, environment: Words, noise_key: Words, recorded: Ints, regret: Floats,
    gap_regret: Floats,
) -> None:  # fmt: skip
    """Play ``episodes`` users; write cumulative regrets at the recorded ones (as in ``SeedRun``)."""
    horizon, size, pairs = world.horizon, world.states, world.rows
    actions = pairs // size
    scale = 1.0 / epsilon
    reward_counts = np.ones(pairs)
    reward_sums = np.ones(pairs)
    successors = np.ones((pairs, size))
    transition_counts = np.full(pairs, np.float64(size))
    noise = np.zeros((pairs, size + 2))
    running = np.zeros(size + 2)
    bonus = np.zeros(pairs)
    spread = np.zeros(pairs)
    mean = np.zeros(pairs)
    model = np.zeros((pairs, size))
    values = np.zeros((horizon + 1, size))
    q = np.zeros((horizon, pairs))
    policy_rows = np.zeros((horizon, size), np.int64)
    logits = np.zeros((horizon, pairs))
    probabilities = np.full((horizon, pairs), 1.0 / actions)
    policy_values = np.zeros((horizon + 1, size))
    states = np.zeros(horizon + 1, np.int64)
    rows = np.zeros(horizon, np.int64)
    rewards = np.zeros(horizon)
    env_state, policy_state, noise_state = (
        np.empty(4, np.uint64),
        np.empty(4, np.uint64),
        np.empty(4, np.uint64),
    )
    total, gap_total, position = 0.0, 0.0, 0
    for k in range(1, episodes + 1):
        error = 0.0
        if mode != NONE:
            open_stream(noise_key, ROLE_NOISE, k, 0, noise_state)
            _noise(mode, k, scale, noise_state, noise, running)
            terms = np.float64(k) if mode == LOCAL else np.floor(np.log(np.float64(k))) + 1.0
            error = np.sqrt(terms) * scale
        for i in range(pairs):
            reward_base = reward_counts[i] + noise[i, 0] + error
            model_base = transition_counts[i] + noise[i, 0] + error
            if mode != NONE:
                reward_base, model_base = max(1.0, reward_base), max(1.0, model_base)
            mean[i] = (reward_sums[i] + noise[i, 1]) / reward_base
            bonus[i] = np.sqrt(_CONSTANT / reward_base) + size * error / reward_base
            spread[i] = np.sqrt(_CONSTANT / model_base)
            if mode == JOINT:
                spread[i] += size * error / model_base
            for s in range(size):
                model[i, s] = (successors[i, s] + noise[i, 2 + s]) / model_base
        for h in range(horizon - 1, -1, -1):
            for s in range(size):
                value = 0.0
                best = s * actions
                for i in range(s * actions, (s + 1) * actions):
                    x = mean[i] + bonus[i] + (horizon - h - 1) * spread[i]
                    for after in range(size):
                        x += model[i, after] * values[h + 1, after]
                    if optimize_policy:
                        x = min(max(x, 0.0), np.float64(horizon))
                        value += probabilities[h, i] * x
                    q[h, i] = x
                    if x > q[h, best]:
                        best = i
                policy_rows[h, s] = best
                values[h, s] = value if optimize_policy else q[h, best]
        evaluate(world, optimize_policy, policy_rows, probabilities, policy_values)
        open_stream(environment, ROLE_ENVIRONMENT, k - 1, 0, env_state)
        open_stream(environment, ROLE_POLICY, k - 1, 0, policy_state)
        simulate_episode(
            world, optimize_policy, policy_rows, probabilities, env_state, policy_state, states, rows, rewards
        )
        for h in range(horizon):
            i = rows[h]
            reward_counts[i] += 1.0
            reward_sums[i] += rewards[h]
            if h < horizon - 1:
                transition_counts[i] += 1.0
                successors[i, states[h + 1]] += 1.0
            gap_total += gaps[h, i]
        total += start_values[states[0]] - policy_values[0, states[0]]
        if optimize_policy:
            for h in range(horizon):
                for s in range(size):
                    top = -np.inf
                    for i in range(s * actions, (s + 1) * actions):
                        logits[h, i] += eta * q[h, i]
                        top = max(top, logits[h, i])
                    weight = 0.0
                    for i in range(s * actions, (s + 1) * actions):
                        probabilities[h, i] = np.exp(logits[h, i] - top)
                        weight += probabilities[h, i]
                    for i in range(s * actions, (s + 1) * actions):
                        probabilities[h, i] /= weight
        if position < recorded.shape[0] and recorded[position] == k:
            regret[position] = total
            gap_regret[position] = gap_total
            position += 1
