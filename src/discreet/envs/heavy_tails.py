"""Environments with heavy-tailed rewards that devices clip at a threshold before the learner reads them.

A device clips a reward X to [-B, B] and sends X_B / (2 B) + 1/2, which is in [0, 1]. The function
:func:`heavy_tailed` returns an MDP with these mapped rewards. Regret is computed from the mapped means of X
without clipping (``true_rewards``), so regret includes the loss due to clipping.

The distribution of X_B is replaced by a distribution on 65 values with the same mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.envs.mdp.tabular import RewardMap, TabularMDP
from discreet.envs.riverswim import riverswim

Tail = Literal["student", "pareto"]

_VALUES = 65


def heavy_tailed(
    mdp: TabularMDP, *, threshold: float, tail: Tail = "student", index: float = 2.5, scale: float = 1.0
) -> TabularMDP:
    """Return an MDP with the transitions and mean rewards of ``mdp``, and rewards with heavy tails.

    Parameters
    ----------
    mdp : TabularMDP
        Environment with rewards in [0, 1] that do not depend on the successor.
    threshold : float
        B, at least 1. Devices clip rewards to [-B, B].
    tail : "student" or "pareto"
        Distribution of a reward with mean m. ``student``: m plus ``scale`` times Student's t. ``pareto``: m
        times a Pareto variable (type II) with mean 1.
    index : float
        Tail index, above 1. Moments of lower order are finite.
    scale : float
        Factor of Student's t, above 0; not used with ``pareto``.

    Raises
    ------
    ValueError
        If a value is outside its range, or rewards depend on the successor.
    """
    bound = checks.real("threshold", threshold, 1.0)
    checks.choice("tail", tail, ("student", "pareto"))
    nu = checks.real("index", index, 1.0, open_low=True)
    size = checks.positive("scale", scale)
    if mdp.entry_rewards is not None:
        raise ValueError("mdp: must have rewards that do not depend on the successor")
    means = mdp.layout.from_rows(mdp.row_rewards)
    grid = bound * np.sinh(np.linspace(-1.0, 1.0, _VALUES) * math.asinh(4.0 * bound)) / (4.0 * bound)
    grid[[0, _VALUES // 2, -1]] = -bound, 0.0, bound
    beyond = _student if tail == "student" else _pareto
    table = np.stack([_probabilities(beyond(nu, m, size), grid) for m in means.ravel().tolist()])
    back = RewardMap(1.0 / (2.0 * bound), 0.5)
    return TabularMDP(
        mdp._compact_transitions, None, mdp.initial, horizon=mdp.horizon, mask=mdp.mask,
        reward_law="discrete", reward_support=grid * back.scale + back.offset,
        reward_probabilities=table.reshape(*means.shape, _VALUES), name=f"{mdp.name}-{tail}", reward_map=back,
        true_rewards=means * back.scale + back.offset,
    )  # fmt: skip


def heavy_riverswim(
    *,
    states: int = 6,
    horizon: int = 20,
    threshold: float = 8.0,
    tail: Tail = "student",
    index: float = 2.5,
    scale: float = 1.0,
) -> TabularMDP:
    """Return RiverSwim with heavy-tailed rewards that devices clip at a public threshold.

    Parameters
    ----------
    states, horizon : int
        S and H; see :func:`~discreet.envs.riverswim`.
    threshold : float
        B, at least 1.
    tail : "student" or "pareto"
        Distribution of the rewards; see :func:`~discreet.envs.heavy_tailed`.
    index : float
        Tail index, above 1.
    scale : float
        Factor of Student's t, above 0.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    return heavy_tailed(
        riverswim(states=states, horizon=horizon), threshold=threshold, tail=tail, index=index, scale=scale
    )


def _student(nu: float, mean: float, scale: float) -> Callable[[Floats], Floats]:
    """Return C(k) = E max(X - k, 0) for X = ``mean`` + ``scale`` * Student's t with index ``nu``."""
    from scipy.special import gammaln, stdtr

    log_density = gammaln((nu + 1.0) / 2.0) - gammaln(nu / 2.0) - 0.5 * math.log(nu * math.pi)

    def beyond(k: Floats) -> Floats:
        x = (k - mean) / scale
        density = np.exp(log_density - 0.5 * (nu + 1.0) * np.log1p(x * x / nu))
        return np.asarray(scale * ((nu + x * x) / (nu - 1.0) * density - x * stdtr(nu, -x)))

    return beyond


def _pareto(nu: float, mean: float, scale: float) -> Callable[[Floats], Floats]:
    """Return C(k) = E max(X - k, 0) for X = ``mean`` times a Pareto variable with mean 1."""

    def beyond(k: Floats) -> Floats:
        if mean == 0.0:
            return np.maximum(-k, 0.0)
        x = k / mean
        above = (1.0 + np.maximum(x, 0.0) / (nu - 1.0)) ** (1.0 - nu)
        return np.asarray(mean * np.where(x < 0.0, 1.0 - x, above))

    return beyond


def _probabilities(beyond: Callable[[Floats], Floats], grid: Floats) -> Floats:
    """Return the probabilities of the values in ``grid`` after clipping and random rounding."""
    slopes = np.diff(beyond(grid)) / np.diff(grid)
    out = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
    return np.asarray(out / out.sum())
