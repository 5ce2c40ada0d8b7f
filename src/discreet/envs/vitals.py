"""Simulated intensive-care stays with real-valued vital signs, for offline learners.

Each stay has a hidden severity u and a hidden type v, which determines whether treatment 1 or treatment 2
helps. Every hour, noisy vital signs are read, one of three treatments is given, and the severity changes. A
stay ends with discharge (u <= 0, return 1), with death (u >= 1, return 0) or after ``horizon`` hours, with
return 1 if u < 1/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.short_repr import brief
from discreet.mechanisms.features import FeatureMap

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Policy = Callable[[Floats], Ints]

ACTIONS = 3


@dataclass(frozen=True, eq=False)
class Stays:
    """Simulated stays, one row for each hour of a stay, ordered by stay and hour.

    stay, step : (n,) number of the stay, and hour from 0.

    vitals : (n, q) readings.

    actions : (n,) treatments.

    propensities : (n,) probability of the treatment that was given, in the current state.

    returns : (stays,) return of each stay.
    """

    __repr__ = brief

    stay: Ints
    step: Ints
    vitals: Floats
    actions: Ints
    propensities: Floats
    returns: Floats


@dataclass(frozen=True)
class VitalsWorld:
    """Environment of simulated stays.

    Parameters
    ----------
    readings : "linear" or "nonlinear"
        ``linear``: vitals are linear in (u, v), with noise. ``nonlinear``: vitals saturate and contain
        products and squares, and the effects of treatments depend on severity.
    effect : float
        Size of the treatments' effects on severity for each hour, at least 0. With 0, treatments have no
        effect.
    skill : float in [0, 1)
        Share of decisions in which clinicians, who see (u, v), give the best treatment.
    swayed : float in [0, 1)
        Share of decisions in which clinicians instead choose the treatment by the first vitals that they
        read.
    vitals, horizon : int
        Number of vital signs, and of hours, at least 1.
    seed : int
        Seed that determines the dependence of vitals on (u, v).

    Raises
    ------
    ValueError
        If a value is out of its range.
    """

    readings: Literal["linear", "nonlinear"] = "linear"
    effect: float = 0.07
    skill: float = 0.25
    swayed: float = 0.0
    vitals: int = 40
    horizon: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        checks.choice("readings", self.readings, ("linear", "nonlinear"))
        checks.real("effect", self.effect, 0.0)
        checks.real("skill", self.skill, 0.0, 1.0, open_high=True)
        checks.real("swayed", self.swayed, 0.0, 1.0 - self.skill)
        checks.integer("vitals", self.vitals, 2)
        checks.integer("horizon", self.horizon, 1)
        checks.integer("seed", self.seed, 0)

    @cached_property
    def features(self) -> FeatureMap:
        """Public feature map: every vital sign has the declared range -4 to 4."""
        return FeatureMap({f"vital {i}": (-4.0, 4.0) for i in range(self.vitals)}, ACTIONS)

    @cached_property
    def _readout(self) -> tuple[Floats, Floats, Floats]:
        rng = np.random.default_rng([self.seed, 11])
        weights = rng.normal(size=(self.vitals, 2)) * np.array([0.35, 0.30])
        return weights, rng.normal(size=self.vitals), 0.25 * rng.normal(size=(self.vitals, 3))

    def _read(self, u: Floats, v: Floats, rng: Generator) -> Floats:
        weights, centre, bent = self._readout
        hidden = np.stack([2.0 * u - 1.0, v], axis=1)
        x = hidden @ weights.T
        if self.readings == "nonlinear":
            more = [2.0 * hidden[:, 0], 2.0 * hidden[:, 0] * hidden[:, 1], hidden[:, 1] ** 2 - 1.0]
            x = 0.8 * np.tanh(x) + np.tanh(np.stack(more, axis=1)) @ bent.T
        return x + centre + rng.normal(size=x.shape)

    def _drift(self, u: Floats, v: Floats) -> Floats:
        """Return (n, A) changes of severity by each treatment."""
        first = np.tanh(2.0 * v)
        if self.readings == "linear":
            one, two = -first, first
        else:
            one, two = -first * np.where(u > 0.5, 1.0, 0.3), np.tanh(2.0 * (np.abs(v) - 0.8))
        return self.effect * np.stack([np.zeros_like(u), one, two], axis=1)

    def play(
        self, stays: int, seed: int, policy: Policy | None = None, *, once: bool = False, best: bool = False
    ) -> Stays:
        """Simulate stays.

        Parameters
        ----------
        stays : number of stays, at least 1.
        seed : seed of the random numbers.
        policy : function of vitals (n, q) that returns treatments (n,). None: clinicians.
        once : True if the policy decides only in one random hour of each stay, and clinicians decide in all
        other
            hours.
        best : True to always give the treatment with the best immediate effect, which depends on the hidden
            (u, v).

        Raises
        ------
        ValueError
            If a number is out of its range.
        """
        n = checks.integer("stays", stays, 1)
        rng = np.random.default_rng([self.seed, checks.integer("seed", seed, 0)])
        u, v, alive = rng.uniform(0.3, 0.7, n), rng.normal(size=n), np.arange(n)
        returns, rows = np.zeros(n), []
        changed = rng.integers(0, self.horizon, n) if once else np.full(n, -1)
        for hour in range(self.horizon):
            now_u, now_v = u[alive], v[alive]
            x, drift = self._read(now_u, now_v, rng), self._drift(now_u, now_v)
            good = drift.argmin(axis=1)
            led = (x[:, 0] > self._readout[1][0]).astype(np.int64) + (x[:, 1] > self._readout[1][1])
            coin, free = rng.random(len(alive)), rng.integers(0, ACTIONS, len(alive))
            usual = np.where(coin < self.skill, good, np.where(coin < self.skill + self.swayed, led, free))
            actions = good if best else usual
            if policy is not None:
                mine = changed[alive] == hour if once else np.ones(len(alive), bool)
                actions = np.where(mine, policy(x), actions)
            chance = (1.0 - self.skill - self.swayed) / ACTIONS
            p = chance + self.skill * (actions == good) + self.swayed * (actions == led)
            rows.append((alive.copy(), np.full(len(alive), hour), x, actions, p))
            moved = drift[np.arange(len(alive)), actions]
            u[alive] = now_u + 0.015 + moved + 0.09 * rng.normal(size=len(alive))
            v[alive] = 0.95 * now_v + 0.31 * rng.normal(size=len(alive))
            ended = (u[alive] <= 0.0) | (u[alive] >= 1.0)
            done = ended if hour + 1 < self.horizon else np.ones_like(ended)
            returns[alive[done]] = u[alive[done]] < 0.5
            alive = alive[~done]
        stay, step, x, actions, p = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        order = np.lexsort((step, stay))
        return Stays(stay[order], step[order], x[order], actions[order], p[order], returns)
