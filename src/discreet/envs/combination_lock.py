"""Combination locks: random MDPs in which only one sequence of actions leads to the reward."""

from __future__ import annotations

from typing import Literal

import numpy as np

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP
from discreet.utils.random_streams_kernels import ROLE_MODEL, generator_at, run_key


def combination_lock(
    *,
    states: int = 8,
    actions: int = 2,
    horizon: int = 20,
    seed: int = 0,
    depth: int | None = None,
    rewards: Literal["bernoulli", "deterministic"] = "bernoulli",
) -> TabularMDP:
    """Return a seeded stationary random MDP for deep exploration, with start state 0.

    States 0 to depth - 1 are the lock states. In each of them, one randomly drawn action is right. The right
    action leads to the next lock state with a probability p drawn uniformly from [0.5, 0.9]. Otherwise the
    state does not change. Each wrong action leads to a fixed state, which is drawn uniformly from the traps,
    this lock state and all earlier lock states. In the last lock state, the right action has a mean reward
    drawn uniformly from [0.7, 1]. This action stays with probability p and otherwise goes back to the
    previous lock state.

    All other states are traps. Their transition rows are drawn from Dirichlet(0.3) over the traps and state
    0. Every action in a trap, and every wrong action in state 0, has a mean reward drawn uniformly from [0,
    0.02]. All other mean rewards are 0.

    Parameters
    ----------
    states, actions : int
        S and A, each at least 2.
    horizon : int
        H, at least 1.
    seed : int
        Seed of NumPy's generator Philox, at least 0.
    depth : int, optional
        Number of lock states, 2..S. None: all states are lock states, and there are no traps.
    rewards : "bernoulli" or "deterministic"
        Distribution of the rewards.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    s, a = checks.integer("states", states, 2), checks.integer("actions", actions, 2)
    deep = s if depth is None else checks.integer("depth", depth, 2, s)
    checks.choice("rewards", rewards, ("bernoulli", "deterministic"))
    draw = generator_at(run_key(checks.integer("seed", seed, 0)), ROLE_MODEL, 2)
    right = draw.integers(a, size=deep)
    advance = draw.uniform(0.5, 0.9, deep)
    transitions, means = np.zeros((s, a, s)), np.zeros((s, a))
    for i in range(deep):
        behind = [*range(i + 1), *range(deep, s)]
        for action in range(a):
            if action != right[i]:
                transitions[i, action, behind[draw.integers(len(behind))]] = 1.0
        last = i == deep - 1
        transitions[i, right[i], i - 1 if last else i + 1] = 1 - advance[i] if last else advance[i]
        transitions[i, right[i], i] = advance[i] if last else 1 - advance[i]
    homes = [0, *range(deep, s)]
    for trap in range(deep, s):
        transitions[trap][:, homes] = draw.dirichlet(np.full(len(homes), 0.3), a)
    lures = draw.uniform(0.0, 0.02, (s, a))
    means[deep:] = lures[deep:]
    means[0] = lures[0]
    means[0, right[0]] = 0.0
    means[deep - 1, right[deep - 1]] = draw.uniform(0.7, 1.0)
    return TabularMDP(transitions, means, 0, horizon=horizon, reward_law=rewards, name=f"lock-{seed}")
