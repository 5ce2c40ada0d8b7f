"""Bandits with or without contexts, and an environment whose best policy takes a risky action."""

from __future__ import annotations

import numpy as np

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP
from discreet.utils.random_streams_kernels import ROLE_MODEL, generator_at, run_key


def bandit(
    *, contexts: int = 1, actions: int = 10, horizon: int = 10, spread: float = 1.0, seed: int = 0
) -> TabularMDP:
    """Return a contextual bandit over H steps. Each step has a uniform context, independent of the actions.

    Parameters
    ----------
    contexts : int
        S, at least 1. With one context, each user has a multi-armed bandit with H rounds.
    actions, horizon : int
        A and H, each at least 1.
    spread : float
        Width of the range of mean rewards, in (0, 1]. Mean rewards are drawn uniformly from [1/2 - spread/2,
        1/2 + spread/2].
    seed : int
        Seed of the mean rewards, at least 0. Rewards are Bernoulli.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    s, a = checks.integer("contexts", contexts, 1), checks.integer("actions", actions, 1)
    width = checks.real("spread", spread, 0.0, 1.0, open_low=True)
    draw = generator_at(run_key(checks.integer("seed", seed, 0)), ROLE_MODEL, 20)
    means = 0.5 + width * (draw.random((s, a)) - 0.5)
    return TabularMDP(
        np.full((s, a, s), 1.0 / s), means, np.full(s, 1.0 / s),
        horizon=checks.integer("horizon", horizon, 1), reward_law="bernoulli", name=f"bandit-{seed}",
    )  # fmt: skip


def gamble(
    *, chance: float = 0.05, safe: float = 0.3, actions: int = 3, horizon: int = 10, seed: int = 0
) -> TabularMDP:
    """Return an environment with one safe action that has a small reward, and several risky actions.

    The states are *choosing*, *won* and *lost*, and the first state is *choosing*. In *choosing*, the safe
    action has mean reward ``safe`` and does not change the state. Every risky action has reward 0 and leads
    to *won* or *lost*, which are absorbing. At every step, the reward is 1 in *won* and 0 in *lost*.

    The best risky action wins with probability safe H / (H - 1) + ``chance``; with the first term alone, its
    return equals that of H safe actions. All other risky actions win with half of the best probability.

    Parameters
    ----------
    chance : float
        Excess of the best risky action's probability of winning, above 0. The sum safe H / (H - 1) + chance
        must be at most 1.
    safe : float
        Mean reward of the safe action, in (0, 1).
    actions, horizon : int
        A and H, each at least 2.
    seed : int
        Seed of the random order of the actions, at least 0. Rewards are Bernoulli.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    a, h = checks.integer("actions", actions, 2), checks.integer("horizon", horizon, 2)
    safe = checks.real("safe", safe, 0.0, 1.0, open_low=True, open_high=True)
    even = safe * h / (h - 1)  # break-even probability of a gamble at step 0: even x (H - 1) = safe x H
    best = even + checks.real("chance", chance, 0.0, open_low=True)
    if best > 1.0:
        raise ValueError(f"chance = {chance:g}: must be at most {1.0 - even:.4g} with this safe and horizon")
    order = generator_at(run_key(checks.integer("seed", seed, 0)), ROLE_MODEL, 21).permutation(a)
    transitions, rewards = np.zeros((3, a, 3)), np.zeros((3, a))
    choosing, won, lost = 0, 1, 2
    for place, action in enumerate(order.tolist()):
        if place == 0:
            transitions[choosing, action, choosing], rewards[choosing, action] = 1.0, safe
        else:
            wins = best if place == 1 else 0.5 * best
            transitions[choosing, action, [won, lost]] = wins, 1.0 - wins
    transitions[won, :, won] = transitions[lost, :, lost] = 1.0
    rewards[won] = 1.0
    return TabularMDP(
        transitions, rewards, choosing, horizon=h, reward_law="bernoulli", name=f"gamble-{seed}"
    )  # fmt: skip
