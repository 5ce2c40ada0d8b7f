"""Combination locks: random MDPs in which only one sequence of actions leads to the reward."""

from __future__ import annotations

from typing import Literal

import numpy as np

from discreet.core import checks
from discreet.core.noise.random_streams_kernels import ROLE_MODEL, generator_at, run_key
from discreet.envs.mdp.tabular import TabularMDP


def combination_lock(
    *,
    states: int = 8,
    actions: int = 2,
    horizon: int = 20,
    seed: int = 0,
    depth: int | None = None,
    rewards: Literal["bernoulli", "deterministic"] = "bernoulli",
) -> TabularMDP:
    """Return a seeded random MDP for deep exploration, start state 0, the same rows at every step.

    States 0 .. depth - 1 are the lock. Each has one right action, drawn at random, which advances with a
    probability uniform on [0.5, 0.9] and else stays. Every other action falls to one random state behind
    it or to a trap. At the last lock state the right action has a mean reward uniform on [0.7, 1]; it stays
    with its probability, else falls back by one. The other states are traps: Dirichlet(0.3) rows over the
    traps and the start. Lures: every action of a trap and the wrong actions of the start have a mean reward
    uniform on [0, 0.02]. Uniform play observes almost no other rewards.

    Parameters
    ----------
    states, actions : int
        S and A, each at least 2.
    horizon : int
        H, at least 1.
    seed : int
        At least 0. The MDP is a function of this and the other options (drawn by NumPy's Philox).
    depth : int, optional
        States of the lock, 2..S; None: all states, so no traps.
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
