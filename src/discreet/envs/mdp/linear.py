"""Linear MDPs: P_h(s' | s, a) = phi(s, a)^T mu_h(s') and r_h(s, a) = phi(s, a)^T theta_h.

Source: Jin, Yang, Wang and Jordan 2020, assumption A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import probabilities

_TOLERANCE = 1e-9  # largest accepted rounding error of phi^T mu and phi^T theta


@dataclass(frozen=True, eq=False, init=False)
class LinearMDP:
    """A finite linear MDP with H steps.

    Parameters
    ----------
    features : Features
        phi (S, A, d).
    measures : (H, d, S), or (1, d, S) for all steps
        mu_h: entry [h, i, s'] is the weight of successor s' in coordinate i.
    weights : (H, d), or (1, d) for all steps
        theta_h, the weights of the mean rewards.
    initial : int or (S,)
        The first state, or its distribution.
    reward_law : "deterministic" or "bernoulli"
    horizon : int, optional
        H; required if neither measures nor weights have H slots.
    name : str
        Name in labels and files.

    Raises
    ------
    ValueError
        If a shape does not fit, a row is not a distribution, or a mean reward is outside [0, 1] by more than
        1e-9.
    """

    __repr__ = brief

    features: Features
    measures: Floats
    weights: Floats
    initial: Floats
    horizon: int
    reward_law: Literal["deterministic", "bernoulli"]
    name: str

    def __init__(
        self,
        features: Features,
        measures: ArrayLike,
        weights: ArrayLike,
        initial: int | ArrayLike = 0,
        *,
        reward_law: Literal["deterministic", "bernoulli"] = "deterministic",
        horizon: int | None = None,
        name: str = "linear",
    ) -> None:
        if not isinstance(features, Features):
            raise ValueError(f"features = {checks.said(features)}: must be Features(table, bound)")
        checks.choice("reward_law", reward_law, ("deterministic", "bernoulli"))
        shape, slots = np.shape(measures), np.shape(weights)
        if len(shape) != 3 or shape[0] < 1:
            raise ValueError(f"measures has shape {shape}: must be (H, d, S), H at least 1")
        if len(slots) != 2 or slots[0] < 1:
            raise ValueError(f"weights has shape {slots}: must be (H, d), H at least 1")
        mu = checks.floats("measures", measures, (shape[0], features.dimension, features.states))
        theta = checks.floats("weights", weights, (slots[0], features.dimension))
        steps = max(len(mu), len(theta)) if horizon is None else checks.integer("horizon", horizon, 1)
        for label, array in (("measures", mu), ("weights", theta)):
            if len(array) not in (1, steps):
                raise ValueError(f"{label} has {len(array)} slots: must be 1 or the horizon, {steps}")
        rows, means = _rows(features, mu), _means(features, theta)
        if rows.min() < -_TOLERANCE:
            h, s, a, to = np.unravel_index(int(rows.argmin()), rows.shape)
            raise ValueError(
                f"measures: phi[{s}, {a}]^T mu[{h}, :, {to}] = {rows.min()}: probabilities must be at least 0"
            )
        probabilities("phi^T mu", np.maximum(rows, 0.0), 10 * _TOLERANCE)
        if means.min() < -_TOLERANCE or means.max() > 1 + _TOLERANCE:
            raise ValueError(
                f"weights: mean rewards phi^T theta lie in [{means.min()}, {means.max()}]: must be in [0, 1]"
            )
        start = starting(initial, features.states)
        for array in (mu, theta, start):
            array.flags.writeable = False
        self.__dict__.update(
            features=features,
            measures=mu,
            weights=theta,
            initial=start,
            horizon=steps,
            reward_law=reward_law,
            name=str(name),
        )

    @property
    def layout(self) -> Layout:
        """Return the layout with S, A and H."""
        return Layout(self.features.states, self.features.actions, self.horizon)

    def to_tabular(self) -> TabularMDP:
        """Return the same MDP as a :class:`TabularMDP`."""
        rows = _rows(self.features, self.measures)  # changed in place below, because the array can be large
        np.maximum(rows, 0.0, out=rows)
        rows /= rows.sum(axis=-1, keepdims=True)
        return TabularMDP(
            rows,
            np.clip(_means(self.features, self.weights), 0.0, 1.0),
            self.initial,
            horizon=self.horizon,
            reward_law=self.reward_law,
            name=self.name,
            features=self.features,
        )

    def scaled(self, factor: float) -> LinearMDP:
        """Return the same MDP with features multiplied by ``factor``.

        Measures and weights are divided by ``factor``.
        """
        features = self.features.scaled(factor)
        return LinearMDP(
            features, self.measures / factor, self.weights / factor, self.initial,
            reward_law=self.reward_law, horizon=self.horizon, name=self.name,
        )  # fmt: skip


def starting(initial: int | ArrayLike, states: int) -> Floats:
    """Return the (S,) distribution of the first state.

    initial : the first state, or its (S,) distribution. Raises ``ValueError`` if it is invalid.
    """
    if np.ndim(initial):
        return probabilities("initial", checks.floats("initial", initial, (states,)))
    start = np.zeros(states)
    start[checks.integer("initial", initial, 0, states - 1)] = 1.0
    return start


def _rows(features: Features, measures: Floats) -> Floats:
    """Return the (T, S, A, S) transition probabilities phi^T mu_h, where T = 1 or H."""
    flat = features.rows @ measures
    return flat.reshape(len(measures), features.states, features.actions, features.states)


def _means(features: Features, weights: Floats) -> Floats:
    """Return the (T, S, A) mean rewards phi^T theta_h, where T = 1 or H."""
    return (weights @ features.rows.T).reshape(len(weights), features.states, features.actions)
