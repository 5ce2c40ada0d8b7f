"""Random MDPs: Dirichlet rows and a few rewarding pairs."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.noise.random_streams_kernels import ROLE_MODEL, generator_at, run_key
from discreet.envs.mdp.tabular import TabularMDP


def random_mdp(
    *,
    states: int = 6,
    actions: int = 2,
    horizon: int = 20,
    seed: int = 0,
    concentration: float = 0.3,
    successors: int | None = None,
    rewarding: int = 2,
    stationary: bool = True,
    varies: Literal["both", "rows", "rewards"] = "both",
    terminal: int = 0,
    rewards: Literal["bernoulli", "deterministic"] = "bernoulli",
) -> TabularMDP:
    """Return a seeded random MDP with start state 0.

    Parameters
    ----------
    states, actions, horizon : int
        S, A, H, each at least 1.
    seed : int
        At least 0. The MDP is a function of this and the other options (drawn by NumPy's Philox).
    concentration : float
        Above 0; rows are Dirichlet with this parameter for every possible successor.
    successors : int, optional
        Number of possible successors of a pair, 1..S; they are chosen uniformly. None: all states.
    rewarding : int
        Number of (s, a) with a reward, 0..SA; its mean is uniform on [0.3, 1]. The others have reward 0.
    stationary : bool
        True: the same transition rows and mean rewards at all steps. False: new ones at each step, with the
        same rewarding pairs.
    varies : "both", "rows" or "rewards"
        Part that a non-stationary MDP draws again at each step; the other part is that of the first step.
        Must be "both" if ``stationary``.
    terminal : int
        Number of terminal states, 0..S - 1. They are the last states, absorbing and without reward.
    rewards : "bernoulli" or "deterministic"
        Distribution of the rewards.

    Raises
    ------
    ValueError
        If a value is outside its range, or ``varies`` is given for a stationary MDP.
    """
    s, a = checks.integer("states", states, 1), checks.integer("actions", actions, 1)
    slots = 1 if checks.flag("stationary", stationary) else checks.integer("horizon", horizon, 1)
    concentration = checks.positive("concentration", concentration)
    k = s if successors is None else checks.integer("successors", successors, 1, s)
    pairs = checks.integer("rewarding", rewarding, 0, s * a)
    checks.choice("rewards", rewards, ("bernoulli", "deterministic"))
    checks.choice("varies", varies, ("both", "rows", "rewards"))
    if slots == 1 and varies != "both":
        raise ValueError(f"varies = {varies!r}: must be 'both' (the default) in a stationary MDP")
    ends = checks.integer("terminal", terminal, 0, s - 1)
    draw = generator_at(run_key(checks.integer("seed", seed, 0)), ROLE_MODEL)
    transitions, table = _tables(draw, (slots, s, a), k, concentration, pairs)
    if varies == "rows":
        table[:] = table[0]
    elif varies == "rewards":
        transitions[:] = transitions[0]
    for state in range(s - ends, s):
        transitions[:, state], table[:, state] = 0.0, 0.0
        transitions[:, state, :, state] = 1.0
    return TabularMDP(
        transitions, table, horizon=horizon, terminal=range(s - ends, s), reward_law=rewards,
        name=f"random-{seed}",
    )  # fmt: skip


def _tables(
    draw: np.random.Generator, shape: tuple[int, int, int], k: int, concentration: float, pairs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw transitions of ``shape + (S,)`` to k successors, and mean rewards of ``shape`` for some pairs."""
    slots, s, a = shape
    transitions = np.zeros((*shape, s))
    weights = _subsets(draw, shape, s, k), draw.dirichlet(np.full(k, concentration), shape)
    np.put_along_axis(transitions, *weights, axis=-1)
    means = np.zeros((slots, s * a))
    means[:, draw.choice(s * a, pairs, replace=False)] = draw.uniform(0.3, 1.0, (slots, pairs))
    return transitions, means.reshape(shape)


def _subsets(draw: np.random.Generator, shape: tuple[int, ...], n: int, k: int) -> NDArray[np.int64]:
    """Return uniform random k-subsets of range(n); if k = n, every subset is range(n)."""
    if k == n:
        return np.broadcast_to(np.arange(n), (*shape, n))
    return draw.random((*shape, n)).argsort(axis=-1)[..., :k]
