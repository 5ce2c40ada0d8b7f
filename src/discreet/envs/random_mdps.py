"""Random MDPs with Dirichlet transition rows, in which only a few pairs (s, a) have a reward."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP
from discreet.utils.random_streams_kernels import ROLE_MODEL, generator_at, run_key


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
    states, actions, horizon : S, A, H, each at least 1.
    seed : int
        Seed of NumPy's generator Philox, at least 0.
    concentration : float
        Parameter of the symmetric Dirichlet distribution of transition rows, above 0.
    successors : int, optional
        Number of possible successors of a pair (s, a), 1..S. The successors are drawn uniformly. None: all
        states.
    rewarding : int
        Number of pairs (s, a) with a reward, 0..SA. Their mean rewards are uniform on [0.3, 1]. All other
        pairs have reward 0.
    stationary : bool
        True: the transition rows and mean rewards are the same at all steps. False: they are drawn again at
        each step, but the same pairs have a reward.
    varies : "both", "rows" or "rewards"
        Part of a non-stationary MDP that is drawn again at each step. With ``stationary``, the value must be
        "both".
    terminal : int
        Number of terminal states, 0..S - 1. Terminal states are the last states; they are absorbing and have
        no reward.
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
    ends = range(s - checks.integer("terminal", terminal, 0, s - 1), s)
    draw = generator_at(run_key(checks.integer("seed", seed, 0)), ROLE_MODEL)
    transitions, table = _tables(draw, (slots, s, a), k, concentration, pairs, varies)
    for state in ends:
        transitions[:, state], table[:, state] = 0.0, 0.0
        transitions[:, state, :, state] = 1.0
    return TabularMDP(
        transitions, table, horizon=horizon, terminal=ends, reward_law=rewards, name=f"random-{seed}"
    )


def _tables(
    draw: np.random.Generator,
    shape: tuple[int, int, int],
    k: int,
    concentration: float,
    pairs: int,
    varies: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw transition probabilities of shape ``shape + (S,)`` and mean rewards of shape ``shape``.

    shape : (number of slots, S, A). k : number of successors of each pair. pairs : number of pairs with a
    reward.
    """
    slots, s, a = shape
    transitions = np.zeros((*shape, s))
    weights = _subsets(draw, shape, s, k), draw.dirichlet(np.full(k, concentration), shape)
    np.put_along_axis(transitions, *weights, axis=-1)
    means = np.zeros((slots, s * a))
    means[:, draw.choice(s * a, pairs, replace=False)] = draw.uniform(0.3, 1.0, (slots, pairs))
    if varies == "rows":
        means[:] = means[0]
    elif varies == "rewards":
        transitions[:] = transitions[0]
    return transitions, means.reshape(shape)


def _subsets(draw: np.random.Generator, shape: tuple[int, ...], n: int, k: int) -> NDArray[np.int64]:
    """Draw an array of independent uniform k-subsets of range(n), of shape ``shape + (k,)``."""
    if k == n:
        return np.broadcast_to(np.arange(n), (*shape, n))
    return draw.random((*shape, n)).argsort(axis=-1)[..., :k]
