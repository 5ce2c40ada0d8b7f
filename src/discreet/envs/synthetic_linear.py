"""Synthetic linear MDP of Qiao and Wang (2023, "Offline RL with differential privacy"), appendix F.

The MDP has 2 states, 100 actions, d = 10 and H = 20. The features are ``phi(s, a) = (bits(a), delta, 1 -
delta)``, where bits(a) is the 8-bit code of the action. The indicator delta is 1 if the statements s = 0 and
a = 0 are both true or both false, and 0 otherwise. P_h(0 | s, a) is alpha_{h,1} if delta = 1, and alpha_{h,2}
if delta = 0.

The features are divided by sqrt(7), because the paper's algorithm and noise assume ||phi|| <= 1. The option
``raw_features`` keeps the features of the paper, with ||phi||^2 = popcount(a) + 1. One coordinate is 0
everywhere, so the feature covariance is singular (``Features.dead``).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import Features

STATES, ACTIONS, BITS = 2, 100, 8
LARGEST = 7.0  # largest ||phi||^2 of the paper's features: six bits (actions 63 and 95) and one indicator


def synthetic_linear_mdp(
    *,
    seed: int = 0,
    horizon: int = 20,
    bit_order: Literal["msb", "lsb"] = "msb",
    rewards: Literal["deterministic", "bernoulli"] = "deterministic",
    raw_features: bool = False,
) -> LinearMDP:
    """Return the synthetic linear MDP of a seed.

    ``default_rng(seed)`` draws alpha (H, 2) and then r (H,); all numbers are uniform on [0, 1].

    The reward weights are ``theta_h = (r/8, 0, r/8, 1/2 - r/2, r/8, 0, r/8, 0, r/2, 1/2 - r/2)`` with r =
    r_h. The first state is uniform. Source: Qiao and Wang (2023), section 6.

    Parameters
    ----------
    seed : int
        Seed of the draws, at least 0.
    horizon : int
        H, at least 1.
    bit_order : "msb" or "lsb"
        Order of the bits of an action's number in its feature vector: most or least significant first.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards. Bernoulli rewards are 0 or 1 and have the same means.
    raw_features : bool
        True: the features of the paper, with norms up to sqrt(7). False: these features divided by sqrt(7).

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    h = checks.integer("horizon", horizon, 1)
    checks.choice("bit_order", bit_order, ("msb", "lsb"))
    draw = np.random.default_rng(checks.integer("seed", seed, 0))
    alpha, r = draw.uniform(size=(h, 2)), draw.uniform(size=h)
    table = _features(bit_order)
    measures = np.zeros((h, BITS + 2, STATES))
    measures[:, BITS:, 0], measures[:, BITS:, 1] = alpha, 1.0 - alpha
    none, eighth, rest = np.zeros(h), r / 8, 0.5 - r / 2
    weights = np.stack([eighth, none, eighth, rest, eighth, none, eighth, none, r / 2, rest], axis=1)
    printed = LinearMDP(
        Features(table, LARGEST**0.5, l1=LARGEST, nonneg=True), measures, weights, np.full(STATES, 0.5),
        reward_law=rewards, name=f"synthetic-linear-{seed}",
    )  # fmt: skip
    return printed if checks.flag("raw_features", raw_features) else printed.scaled(LARGEST**-0.5)


def synthetic_linear(
    *,
    seed: int = 0,
    horizon: int = 20,
    bit_order: Literal["msb", "lsb"] = "msb",
    rewards: Literal["deterministic", "bernoulli"] = "deterministic",
) -> TabularMDP:
    """Return the MDP of :func:`synthetic_linear_mdp` as a table: 2 states, 100 actions.

    The optimal value is about 13.9 at H = 20. Source: Qiao and Wang (2023), section 6.

    Parameters
    ----------
    seed : int
        Seed of the draws, at least 0.
    horizon : int
        H, at least 1.
    bit_order : "msb" or "lsb"
        Order of the bits of an action's number in its feature vector: most or least significant first.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards. Bernoulli rewards are 0 or 1 and have the same means.

    Raises
    ------
    ValueError
        If a value is outside its range.

    Examples
    --------
    >>> synthetic_linear(seed=0)
    TabularMDP('synthetic-linear-0', S=2, A=100, H=20, non-stationary, deterministic rewards)
    """
    mdp = synthetic_linear_mdp(seed=seed, horizon=horizon, bit_order=bit_order, rewards=rewards)
    return mdp.to_tabular()


def synthetic_linear_behaviour(*, horizon: int = 20, first: float = 0.6) -> NDArray[np.float64]:
    """Return the (horizon, S, A) behaviour policy of the paper.

    Action 0 has probability ``first`` in [0, 1]. All other actions have equal probabilities. Raises
    ``ValueError`` if ``horizon`` is below 1 or ``first`` is not a probability.
    """
    p = checks.real("first", first, 0.0, 1.0)
    row = np.full(ACTIONS, (1.0 - p) / (ACTIONS - 1))
    row[0] = p
    return np.tile(row, (checks.integer("horizon", horizon, 1), STATES, 1))


def _features(bit_order: Literal["msb", "lsb"]) -> NDArray[np.float64]:
    actions = np.arange(ACTIONS)
    shifts = np.arange(BITS)[::-1] if bit_order == "msb" else np.arange(BITS)
    table = np.zeros((STATES, ACTIONS, BITS + 2))
    table[:, :, :BITS] = (actions[:, None] >> shifts) & 1
    delta = (np.arange(STATES)[:, None] == 0) == (actions == 0)
    table[:, :, BITS], table[:, :, BITS + 1] = delta, ~delta
    return table
