"""Linear mixture MDPs: P_h(s' | s, a) = <phi(s' | s, a), w_h> with known features and unknown weights.

Sources: Jia et al. 2020 and Ayoub et al. 2020.
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
from discreet.envs.mdp.linear import starting
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import MixtureFeatures
from discreet.mechanisms.interfaces import probabilities

_TOLERANCE = 1e-9  # largest accepted rounding error of <phi, w>


@dataclass(frozen=True, eq=False, init=False)
class LinearMixtureMDP:
    """A finite linear mixture MDP with H steps.

    Parameters
    ----------
    features : MixtureFeatures
        The features phi (S, A, S, d), and the bound C_w on the norm of the weights.
    weights : (H, d)
        w_h, with ||w_h||_2 <= C_w.
    rewards : (H, S, A)
        Mean rewards in [0, 1].
    initial : int or (S,)
        The first state, or its distribution.
    reward_law : "deterministic" or "bernoulli"
    name : str
        Name in labels and files.

    Raises
    ------
    ValueError
        If a shape does not fit, a transition row is not a distribution, ||w_h|| exceeds C_w, or a mean reward
        is outside [0, 1]. If ``features.rewards`` is given, and rewards are not linear in these features, or
        their weights exceed the declared bound.
    """

    __repr__ = brief

    features: MixtureFeatures
    weights: Floats
    rewards: Floats
    initial: Floats
    reward_law: Literal["deterministic", "bernoulli"]
    name: str

    def __init__(
        self,
        features: MixtureFeatures,
        weights: ArrayLike,
        rewards: ArrayLike,
        initial: int | ArrayLike = 0,
        *,
        reward_law: Literal["deterministic", "bernoulli"] = "deterministic",
        name: str = "mixture",
    ) -> None:
        if not isinstance(features, MixtureFeatures):
            raise ValueError(
                f"features = {checks.said(features)}: must be MixtureFeatures(table, weight_bound)"
            )
        checks.choice("reward_law", reward_law, ("deterministic", "bernoulli"))
        shape = np.shape(weights)
        if len(shape) != 2 or shape[0] < 1:
            raise ValueError(f"weights has shape {shape}: must be (H, d), H at least 1")
        w = checks.floats("weights", weights, (shape[0], features.dimension))
        norms = np.linalg.norm(w, axis=1)
        if norms.max() > features.weight_bound * (1 + _TOLERANCE):
            raise ValueError(
                f"weights[{norms.argmax()}] has norm {norms.max()}: must be at most weight_bound = "
                f"{features.weight_bound}"
            )
        rows = _rows(features, w)
        if rows.min() < -_TOLERANCE:
            h, s, a, to = np.unravel_index(int(rows.argmin()), rows.shape)
            raise ValueError(
                f"weights: <phi[{s}, {a}, {to}], w[{h}]> = {rows.min()}: probabilities must be at least 0"
            )
        probabilities("<phi, w>", np.maximum(rows, 0.0), 10 * _TOLERANCE)
        means = checks.floats("rewards", rewards, (shape[0], features.states, features.actions))
        if means.min() < 0 or means.max() > 1:
            raise ValueError(f"rewards lie in [{means.min()}, {means.max()}]: must be in [0, 1]")
        _certify_rewards(features, means)
        start = starting(initial, features.states)
        for array in (w, means, start):
            array.flags.writeable = False
        self.__dict__.update(
            features=features, weights=w, rewards=means, initial=start, reward_law=reward_law, name=str(name)
        )

    @property
    def horizon(self) -> int:
        """Return H."""
        return int(self.weights.shape[0])

    @property
    def layout(self) -> Layout:
        """Return the layout with S, A and H."""
        return Layout(self.features.states, self.features.actions, self.horizon)

    def to_tabular(self) -> TabularMDP:
        """Return the same MDP as a :class:`TabularMDP` with features."""
        rows = np.maximum(_rows(self.features, self.weights), 0.0)
        return TabularMDP(
            rows / rows.sum(axis=-1, keepdims=True),
            self.rewards,
            self.initial,
            reward_law=self.reward_law,
            name=self.name,
            features=self.features,
        )


def _rows(features: MixtureFeatures, weights: Floats) -> Floats:
    """Return the (H, S, A, S) transition probabilities <phi(s' | s, a), w_h>."""
    return np.tensordot(weights, features.columns, axes=(1, 2))


def _certify_rewards(features: MixtureFeatures, means: Floats) -> None:
    """Raise ``ValueError`` unless there are theta_h with means = <psi, theta_h> and ||theta_h|| <= C_r.

    Here psi are the reward features ``features.rewards``, and C_r is their ``reward_weight_bound``.
    """
    psi = features.rewards
    if psi is None:
        return
    flat = means.reshape(len(means), -1).T  # (S A, H)
    theta = np.linalg.lstsq(psi.rows, flat, rcond=None)[0]
    error = np.abs(psi.rows @ theta - flat).max(axis=0)
    if error.max() > 10 * _TOLERANCE:
        raise ValueError(
            f"rewards[{error.argmax()}] are not linear in features.rewards: off by {error.max():.3g}"
        )
    norms = np.linalg.norm(theta, axis=0)
    assert features.reward_weight_bound is not None
    if norms.max() > features.reward_weight_bound * (1 + _TOLERANCE):
        raise ValueError(
            f"rewards[{norms.argmax()}] need weights of norm {norms.max()}: must be at most "
            f"reward_weight_bound = {features.reward_weight_bound}"
        )
