"""Simulated environments with real-valued contexts: bandits with one decision for each user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.short_repr import brief
from discreet.envs.mdp.tabular import RewardMap
from discreet.mechanisms.features import FeatureMap

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ContextWorld:
    """Environment in which each user has a context, one decision and one reward in {0, 1}.

    Parameters
    ----------
    name : str
    features : FeatureMap
        Public feature map that learners use.
    draw : function (n, generator) -> contexts (n, *features.shape)
        Distribution of users' contexts.
    means : function contexts -> mean rewards (n, A) in [0, 1]

    Raises
    ------
    ValueError
        If ``features`` is not a FeatureMap, or if contexts or means have a wrong shape or range.
    """

    __repr__ = brief

    name: str
    features: FeatureMap
    draw: Callable[[int, Generator], Floats]
    means: Callable[[Floats], Floats]

    def __post_init__(self) -> None:
        checks.exactly("features", self.features, FeatureMap)
        contexts = np.asarray(self.draw(2, np.random.default_rng(0)))
        if contexts.shape != (2, *self.features.shape):
            raise ValueError(
                f"draw(2) has shape {contexts.shape}: must be {(2, *self.features.shape)}, that of contexts"
            )
        means = np.asarray(self.means(contexts))
        if means.shape != (2, self.actions) or not ((means >= 0) & (means <= 1)).all():
            raise ValueError(
                f"means of two contexts has shape {means.shape}: must be {(2, self.actions)}, in [0, 1]"
            )

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return self.features.actions

    @property
    def horizon(self) -> int:
        """Number of decisions per user, which is 1."""
        return 1

    @property
    def layout(self) -> Layout:
        """Layout with one state and one step."""
        return Layout(1, self.actions, 1)

    @property
    def reward_map(self) -> RewardMap:
        """Identity map of rewards."""
        return RewardMap()

    def with_features(self, features: FeatureMap) -> ContextWorld:
        """Return the same environment with other names and ranges of columns, basis and radius.

        The ranges of this environment are mapped linearly to those of ``features``. Mean rewards and the
        distribution of users stay the same. Raises ``ValueError`` if ``features`` has another form, number of
        actions or number of columns.
        """
        own = self.features
        for name, held, asked in (
            ("form", own.form, features.form),
            ("actions", own.actions, features.actions),
            ("number of columns", len(own.columns), len(features.columns)),
        ):
            if held != asked:
                raise ValueError(f"features has {name} = {asked!r}: must be {held!r}, as in {self.name!r}")
        if own.to_dict() == features.to_dict():
            return self
        change = _Ranges(own, features)
        return ContextWorld(self.name, features, _Drawn(self.draw, change), _Means(self.means, change))


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Linear map from the ranges of one feature map to those of another."""

    before: FeatureMap
    after: FeatureMap

    def __call__(self, x: Floats) -> Floats:
        (low, high), (least, most) = (
            np.array(list(one.ranges.values())).T for one in (self.before, self.after)
        )
        found: Floats = least + (x - low) / (high - low) * (most - least)
        return found


@dataclass(frozen=True, eq=False)
class _Drawn:
    draw: Callable[[int, Generator], Floats]
    change: _Ranges

    def __call__(self, n: int, rng: Generator) -> Floats:
        return self.change(self.draw(n, rng))


@dataclass(frozen=True, eq=False)
class _Means:
    means: Callable[[Floats], Floats]
    change: _Ranges

    def __call__(self, contexts: Floats) -> Floats:
        return self.means(_Ranges(self.change.after, self.change.before)(contexts))


@dataclass(frozen=True, eq=False)
class UnitVectors:
    """Contexts with an independent uniformly random unit vector (d,) for each user and action."""

    actions: int
    dimension: int

    def __call__(self, n: int, rng: Generator) -> Floats:
        """Return (n, A, d) contexts."""
        return _unit(rng.normal(size=(n, self.actions, self.dimension)))


@dataclass(frozen=True, eq=False)
class SameForAll:
    """Contexts that are equal for all users: ``arms`` (A, d)."""

    arms: Floats

    def __call__(self, n: int, rng: Generator) -> Floats:
        """Return (n, A, d) contexts. ``rng`` is not used."""
        return np.broadcast_to(self.arms, (n, *self.arms.shape))


@dataclass(frozen=True, eq=False)
class ClippedNormals:
    """Contexts with independent columns N(0, 0.4^2), clipped to [-1, 1]."""

    columns: int

    def __call__(self, n: int, rng: Generator) -> Floats:
        """Return (n, q) contexts."""
        return np.clip(rng.normal(size=(n, self.columns)) * 0.4, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class SharedMeans:
    """Mean rewards 1/2 + x theta of contexts x (n, A, d), clipped to [0, 1]."""

    theta: Floats

    def __call__(self, contexts: Floats) -> Floats:
        """Return (n, A) mean rewards."""
        return np.clip(0.5 + contexts @ self.theta, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class ActionMeans:
    """Mean rewards of contexts x (n, q) with coefficients theta (A, q + 1).

    The last coefficient is the intercept. With m = theta (x, 1), the ``link`` "linear" gives 1/2 + m, clipped
    to [0.02, 0.98]. The link "logit" gives the logistic function of 6 m.
    """

    theta: Floats
    link: str

    def __call__(self, contexts: Floats) -> Floats:
        """Return (n, A) mean rewards."""
        m = contexts @ self.theta[:, :-1].T + self.theta[:, -1]
        return np.clip(0.5 + m, 0.02, 0.98) if self.link == "linear" else 1.0 / (1.0 + np.exp(-6.0 * m))


def shared_contexts(
    dimension: int = 10, actions: int = 5, scale: float = 0.45, seed: int = 0
) -> ContextWorld:
    """Return an environment in which each action has features, and all actions have common coefficients.

    For each action of each user, the features are a uniformly random unit vector x of length ``dimension``.
    The mean reward of the action is 1/2 + theta x, with ||theta|| = ``scale`` (at most 1/2).

    dimension : length of x, at least 1. actions : number of actions, at least 2. seed : seed of theta. Raises
    ``ValueError`` for other values.
    """
    d, a = checks.integer("dimension", dimension, 1), checks.integer("actions", actions, 2)
    theta = _direction(d, scale, np.random.default_rng([checks.integer("seed", seed, 0), 1]))
    return ContextWorld(
        f"shared d{d} A{a}", _linear_map(d, a, True, 1.0), UnitVectors(a, d), SharedMeans(theta)
    )


def fixed_arms(dimension: int = 10, actions: int = 20, scale: float = 0.45, seed: int = 0) -> ContextWorld:
    """Return an environment like :func:`shared_contexts`, in which the features are the same for all users.

    dimension, actions, scale, seed : see :func:`shared_contexts`. Raises ``ValueError`` for other values.
    """
    d, a = checks.integer("dimension", dimension, 1), checks.integer("actions", actions, 2)
    rng = np.random.default_rng([checks.integer("seed", seed, 0), 2])
    theta, arms = _direction(d, scale, rng), _unit(rng.normal(size=(a, d)))
    return ContextWorld(
        f"fixed arms d{d} A{a}", _linear_map(d, a, True, 1.0), SameForAll(arms), SharedMeans(theta)
    )


def per_action_contexts(
    columns: int = 9,
    actions: int = 5,
    scale: float = 0.5,
    link: str = "linear",
    radius: float | None = None,
    seed: int = 0,
) -> ContextWorld:
    """Return an environment in which each action has separate coefficients of the user's columns.

    The columns are independent N(0, 0.4^2), clipped to [-1, 1].

    columns : number of columns, at least 1. actions : number of actions, at least 2.

    scale : norm of each action's coefficients without the intercept, at most 1/2.

    link : "linear" or "logit"; see :class:`ActionMeans`.

    radius : R of the feature map. None: the default R.

    seed : seed of the coefficients.

    Raises ``ValueError`` for other values.
    """
    q, a = checks.integer("columns", columns, 1), checks.integer("actions", actions, 2)
    checks.choice("link", link, ("linear", "logit"))
    scale = checks.real("scale", scale, 0.0, 0.5)
    rng = np.random.default_rng([checks.integer("seed", seed, 0), 3])
    theta = np.concatenate([_unit(rng.normal(size=(a, q))) * scale, 0.05 * rng.normal(size=(a, 1))], axis=1)
    name = f"per action p{q + 1} A{a}" + (" logit" if link == "logit" else "")
    return ContextWorld(name, _linear_map(q, a, False, radius), ClippedNormals(q), ActionMeans(theta, link))


def _linear_map(columns: int, actions: int, shared: bool, radius: float | None) -> FeatureMap:
    ranges = {f"x{i}": (-1.0, 1.0) for i in range(columns)}
    if shared:
        return FeatureMap(ranges, actions, "shared", radius=radius, intercept=False)
    return FeatureMap(ranges, actions, radius=radius)


def _direction(d: int, scale: float, rng: Generator) -> Floats:
    scale = checks.real("scale", scale, 0.0, 0.5)
    found: Floats = _unit(rng.normal(size=(1, d)))[0] * scale
    return found


def _unit(x: Floats) -> Floats:
    found: Floats = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return found
