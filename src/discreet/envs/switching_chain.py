"""Switching chain: a chain in which transition probabilities and action labels change with the step."""

from __future__ import annotations

import numpy as np

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP
from discreet.utils.random_streams_kernels import ROLE_MODEL, generator_at, run_key


def switching_chain(*, states: int = 6, horizon: int = 20, seed: int = 0) -> TabularMDP:
    """Return a non-stationary chain on which learners fail if they pool the data of different steps.

    The chain is that of RiverSwim with two changes. The probability of advancing is drawn uniformly from
    [0.1, 0.7] for every step and every state except the last. The two actions are swapped at every third
    step. Rewards are Bernoulli. Their mean is 0.005 for the action left in state 0, 1 for the action right in
    state S - 1, and 0 elsewhere.

    Parameters
    ----------
    states : int
        S, at least 2.
    horizon : int
        H, at least 1.
    seed : int
        Seed of the probabilities, at least 0.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    s, h = checks.integer("states", states, 2), checks.integer("horizon", horizon, 1)
    draw = generator_at(run_key(checks.integer("seed", seed, 0)), ROLE_MODEL, 1)
    advance = draw.uniform(0.1, 0.7, (h, s))
    transitions, rewards = np.zeros((h, s, 2, s)), np.zeros((h, s, 2))
    for step in range(h):
        right = 0 if step % 3 == 2 else 1
        for state in range(s):
            transitions[step, state, 1 - right, max(0, state - 1)] = 1.0
            p = advance[step, state]
            if state == 0:
                transitions[step, state, right, [0, 1]] = 1 - p, p
            elif state == s - 1:
                transitions[step, state, right, [state - 1, state]] = 0.4, 0.6
            else:
                transitions[step, state, right, state - 1 : state + 2] = 0.05, 0.95 - p, p
        rewards[step, 0, 1 - right] = 0.005
        rewards[step, s - 1, right] = 1.0
    return TabularMDP(transitions, rewards, 0, reward_law="bernoulli", name=f"switching-chain-{seed}")
