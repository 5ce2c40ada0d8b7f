"""RiverSwim (Strehl and Littman 2008), with the numbers in the public code of Chowdhury and Zhou (2021).

The states form a chain. Action 0 moves left and always succeeds; action 1 moves right against the current and
can fail. The leftmost state has a small reward. The rightmost state has a large reward that is reached only
after many successful steps. A learner that stops exploring early stays at the left end.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP


def riverswim(
    *,
    states: int = 6,
    horizon: int = 20,
    rewards: Literal["deterministic", "bernoulli"] = "deterministic",
) -> TabularMDP:
    """Return the RiverSwim chain with ``states >= 2`` states and start state 0.

    Rewards are 0.005 at (0, left), 1 at (last, right), and 0 elsewhere.

    Action 1 has these probabilities. From state 0: stay 0.4, up 0.6. Inside the chain: down 0.05, stay 0.6,
    up 0.35. From the last state: down 0.4, stay 0.6. Defaults: S = 6, A = 2, H = 20, deterministic rewards;
    ``rewards="bernoulli"`` draws 0/1 rewards of the same means.

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
