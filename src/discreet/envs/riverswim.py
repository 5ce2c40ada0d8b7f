"""RiverSwim (Strehl and Littman 2008), with the numbers in the code of Chowdhury and Zhou (2021)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP


def riverswim(
    *, states: int = 6, horizon: int = 20, rewards: Literal["deterministic", "bernoulli"] = "deterministic"
) -> TabularMDP:
    """Return RiverSwim: a chain with start state 0 and two actions, left (0) and right (1).

    The mean reward is 0.005 at (0, left), 1 at (S - 1, right), and 0 elsewhere. The action left moves down by
    one state with probability 1; in state 0 it stays. The action right has these probabilities:

    - In state 0, it stays with 0.4 and moves up with 0.6.
    - Inside the chain, it moves down with 0.05, stays with 0.6 and moves up with 0.35.
    - In state S - 1, it moves down with 0.4 and stays with 0.6.

    Source: Strehl and Littman (2008); the numbers are those in the public code of Chowdhury and Zhou (2021).

    Parameters
    ----------
    states : int
        S, at least 2.
    horizon : int
        H, at least 1.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards. Bernoulli rewards are 0 or 1 and have the same means.

    Raises
    ------
    ValueError
        If a value is outside its range.

    Examples
    --------
    >>> riverswim().transitions[0, 2, 1]
    array([0.  , 0.05, 0.6 , 0.35, 0.  , 0.  ])
    """
    n = checks.integer("states", states, 2)
    checks.choice("rewards", rewards, ("deterministic", "bernoulli"))
    transitions = np.zeros((n, 2, n))
    transitions[np.arange(n), 0, np.maximum(np.arange(n) - 1, 0)] = 1.0
    transitions[0, 1, :2] = 0.4, 0.6
    for s in range(1, n - 1):
        transitions[s, 1, s - 1 : s + 2] = 0.05, 0.6, 0.35
    transitions[n - 1, 1, n - 2 :] = 0.4, 0.6
    means = np.zeros((n, 2))
    means[0, 0], means[n - 1, 1] = 0.005, 1.0
    return TabularMDP(transitions, means, 0, horizon=horizon, reward_law=rewards, name="riverswim")
