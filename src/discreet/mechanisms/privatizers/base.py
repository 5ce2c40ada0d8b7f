"""Base class of the central and local privatizers: budget, noise family and calibration of the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.accounting import budget as budgets
from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.core import checks
from discreet.core.count_mechanism import FINEST_ACCOUNTED, Stated, grid_of
from discreet.core.count_query import CountQuery
from discreet.core.families import (
    CENTERED_REWARDS,
    COUNTS,
    POOLED_REWARDS,
    POOLED_TRANSITIONS,
    REWARDS,
    TRANSITIONS,
)
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.query import FamilyQuery, SumQuery
from discreet.core.releases import Floats, Norm
from discreet.core.rng import Randomness, Secure
from discreet.mechanisms.interfaces import Budget
from discreet.utils.config import Knobs

Noise = Literal["laplace", "gaussian", "auto"]
Calibration = Literal["exact", "published"]


_STATED_DELTA = 1e-6  # delta at which the guarantee states epsilon if the budget is given as rho or mu


@dataclass(frozen=True, kw_only=True)
class Budgeted(Knobs):
    """Base class of the central and local privatizers: budget, noise family and calibration."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    noise: Noise | None = None
    calibration: Calibration | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'epsilon'}: exactly one of epsilon, rho and mu must be given"
            )
        if self.epsilon is not None:
            put(self, "epsilon", budgets.check_epsilon(self.epsilon))
        else:
            put(self, given[0], checks.positive(given[0], getattr(self, given[0])))
        if self.delta is not None and self.delta != 0:
            put(self, "delta", budgets.check_delta(self.delta))
        elif self.delta == 0:
            put(self, "delta", None)
        checks.choice("noise", self.noise, ("laplace", "gaussian", "auto"))
        checks.choice("calibration", self.calibration, ("exact", "published"))
        put(self, "weights", checked_weights(self.weights))
        if self.epsilon is None and self.noise == "laplace":
            raise ValueError(f"noise = 'laplace': a budget in {given[0]} is met by Gaussian noise")
        if self.epsilon is not None and self.delta is None and self.noise == "gaussian":
            raise ValueError("delta = 0: Gaussian noise needs delta in (0, 1)")
        if self.calibration == "published" and (self.noise == "gaussian" or self.epsilon is None):
            raise ValueError(
                "calibration = 'published': the papers' noise is Laplace at a pure epsilon; "
                "give epsilon, and noise 'laplace' or 'auto'"
            )

    trust: ClassVar[Any]  # each subclass defines it as a property

    @property
    def budget(self) -> Budget:
        """Stated budget. The budget is public, so learners can adapt their choices to it."""
        return Budget(self.trust, self.epsilon, self.delta or 0.0, self.rho, self.mu)

    # ------------------------------------------------------------------------- calibration
    def _shares(self, query: SumQuery) -> tuple[float, ...]:
        if self.weights is not None and query.cut:
            raise ValueError(
                f"weights = {self.weights}: must be None for a query with a cut, whose reward families take "
                "turns at the query's reward_share"
            )
        return shares_of(query, self.weights)

    def _unit_scales(self, query: SumQuery, norm: Norm) -> Floats:
        """Return the noise scale of each family, up to a common factor.

        With these scales, every family uses its share of the privacy loss of one sum.
        """
        own = [_sensitivity(query, norm, ((name, 1.0),)) for name in query.row_families]
        power = 1.0 if norm == "l1" else 0.5
        return np.array([d / w**power for d, w in zip(own, self._shares(query), strict=True)])

    def _loss(self, query: SumQuery, norm: Norm, scales: Floats) -> float:
        """Return the privacy loss of one noisy sum: its sensitivity in units of the noise scales."""
        weights = zip(query.row_families, (1.0 / scales).tolist(), strict=True)
        return _sensitivity(query, norm, tuple(weights))

    def _laplace(self, query: SumQuery, levels: float) -> Floats:
        assert self.epsilon is not None
        scales = self._unit_scales(query, "l1")
        return scales * (levels * self._loss(query, "l1", scales) / self.epsilon)

    def _target_mu(self, discrete: bool) -> float | None:
        """Return the mu of Gaussian DP that the budget allows, or None if the budget is a pure epsilon.

        If the budget is (epsilon, delta), mu is computed from the exact privacy curve. For discrete noise, mu
        is computed from zCDP.
        """
        if self.mu is not None:
            return self.mu
        if self.rho is not None:
            return math.sqrt(2 * self.rho)
        if self.delta is None or self.epsilon is None:
            return None
        if discrete:
            return math.sqrt(2 * budgets.zcdp_rho(self.epsilon, self.delta))
        return budgets.gdp_mu(self.epsilon, self.delta)

    def _gaussian(self, query: SumQuery, levels: float, mu: float) -> Floats:
        scales = self._unit_scales(query, "l2")
        return scales * (math.sqrt(levels) * self._loss(query, "l2", scales) / mu)

    def _options(
        self,
        query: CountQuery,
        levels: float,
        discrete: bool,
        laplace: bool = True,
        gaussian: bool = True,
        fresh: bool = True,
    ) -> list[tuple[AdditiveNoise, Floats, float]]:
        """Return (noise, scales, std) for each kind of noise that meets the budget.

        ``scales`` has one entry for each family of the query. ``std`` is the standard deviation of the noise
        in one transition count of one noisy sum. If there is only one state, ``std`` is for a reward sum,
        because transitions then have no information.

        levels : number of noisy sums that contain one user, or the factor of mu^2 if the user's records reach
            the same sums.

        discrete : True for discrete noise, which is exact.

        laplace, gaussian : False excludes this kind of noise.

        fresh : True if every draw of noise is made after the records that it protects. Numerical accounting
            requires this.
        """
        mu = self._target_mu(discrete)
        options: list[tuple[AdditiveNoise, Floats, float]] = []
        family = TRANSITIONS
        if query.layout.states == 1 and not query.known_rewards:
            family = CENTERED_REWARDS if query.center_rewards else REWARDS
        at = list(query.row_families).index(family)
        if laplace and self.noise in ("laplace", "auto") and self.epsilon is not None:
            scales = self._laplace(query, levels)
            if not discrete and self._numerical(query, LAPLACE, discrete, fresh):
                scales = scales * self._least(query, int(levels), LAPLACE, scales, None, 1.0)
            options.append((LAPLACE, scales, math.sqrt(2) * float(scales[at])))
        if gaussian and self.noise in ("gaussian", "auto") and mu is not None:
            scales = self._gaussian(query, levels, mu)
            options.append((GAUSSIAN, scales, float(scales[at])))
        return options

    def _numerical(self, query: CountQuery, noise: AdditiveNoise, discrete: bool, fresh: bool) -> bool:
        """Return True if a privacy-loss distribution calibrates the noise, False for a closed form.

        Numerical calibration is used for noise whose closed form is not tight. Numerical calibration requires
        exact calibration, an epsilon, a delta that is not too small, ``fresh`` noise (:meth:`_options`), and
        a query for which the worst replacement of one user is known.
        """
        wanted = discrete if noise == GAUSSIAN else self.noise == "laplace"
        # Noise for a smaller delta is calibrated by a closed form.
        known = self.delta is not None and self.delta >= numerical.LEAST_DELTA
        asked = self.epsilon is not None and known and self.calibration == "exact"
        return wanted and asked and fresh and calibration.shift_patterns(query, 1) is not None

    def _least(
        self,
        query: CountQuery,
        levels: int,
        noise: AdditiveNoise,
        scales: Floats,
        grid: int | None,
        guess: float,
    ) -> float:
        """Return the least factor for which ``scales`` times this factor still meet the budget.

        levels : number of noisy sums that contain one user. grid : number of grid steps per unit of reward if
            the noise is discrete, otherwise None. guess : first guess of the factor.
        """
        patterns = calibration.shift_patterns(query, levels)
        assert patterns is not None and self.epsilon is not None and self.delta is not None
        named = calibration.named(query, scales, grid)
        return calibration.least_factor(
            patterns, noise.record_name(grid), named, self.epsilon, self.delta, 1.0, guess
        )

    @property
    def stated_delta(self) -> float:
        """Delta at which epsilon is stated if the noise has no pure epsilon."""
        return self.delta or _STATED_DELTA

    def _stated(self, query: CountQuery, noise: AdditiveNoise, randomness: Randomness, fresh: bool) -> Stated:
        """Return the options of the guarantee: delta, nominal epsilon and kind of accounting."""
        numerical = self._numerical(query, noise, isinstance(randomness, Secure), fresh)
        numerical = numerical and (grid_of(randomness) or 1) <= FINEST_ACCOUNTED
        return Stated(self.stated_delta, self.epsilon, numerical)

    def _least_scales(
        self,
        query: CountQuery,
        noise: AdditiveNoise,
        scales: Floats,
        levels: int,
        stated: Stated,
        randomness: Randomness,
    ) -> Floats:
        """Return the scales, or smaller scales if numerical accounting shows that these meet the budget."""
        if not (stated.numerical and isinstance(randomness, Secure)):
            return scales
        assert self.epsilon is not None and self.delta is not None
        guess = 1.0
        if noise == GAUSSIAN:  # the first guess is the scale of continuous noise
            guess = math.sqrt(2 * budgets.zcdp_rho(self.epsilon, self.delta)) * 1.001
            guess /= budgets.gdp_mu(self.epsilon, self.delta)
        return scales * self._least(query, levels, noise, scales, randomness.reward_grid, guess)


@lru_cache(maxsize=32)
def _sensitivity(query: SumQuery, norm: Norm, weights: tuple[tuple[str, float], ...]) -> float:
    """Return ``query.sensitivity(norm, dict(weights))`` from a cache, because it is needed several times.

    Guarantees do not use the cached values: the mechanism computes its loss again.
    """
    return query.sensitivity(norm, dict(weights))


# ------------------------------------------------------------------------------ shares of the budget


def checked_weights(weights: Any) -> tuple[float, ...] | None:
    """Check that the shares are positive and sum to 1, and return them as a tuple. None returns None.

    Raises ``ValueError`` for other shares.
    """
    if weights is None:
        return None
    if not isinstance(weights, Iterable):
        raise ValueError(f"weights = {weights!r}: must be positive numbers that sum to 1")
    found = tuple(checks.positive("weights", w) for w in weights)
    if abs(sum(found) - 1) > 1e-9:
        raise ValueError(f"weights = {weights}: must sum to 1")
    return found


def shares_of(query: SumQuery, weights: tuple[float, ...] | None = None) -> tuple[float, ...]:
    """Return the share of the budget of each family, in the query's order. The shares sum to 1.

    If rewards are clipped, each of the two reward families has the whole share of rewards by default. (A
    release contains only one of the two families.)

    weights : shares that replace the default shares. Raises ``ValueError`` unless there is one share for each
        family.
    """
    names = list(query.row_families)
    if weights is None and isinstance(query, FamilyQuery):
        return (1.0 / len(names),) * len(names)
    if weights is not None:
        if len(weights) != len(names):
            raise ValueError(
                f"weights has {len(weights)} entries: must have {len(names)}, one for each of "
                f"{', '.join(names)}"
            )
        return weights
    if not isinstance(query, CountQuery):
        raise ValueError(f"query = {query!r}: must be a CountQuery or a FamilyQuery")
    if query.cut:
        share = _split(query, names[:-1])
        return (*share, share[-1])
    if query.groups:
        counts = shares_of(replace(query, groups=0, clip=0.0))
        return (*((1.0 - query.return_share) * share for share in counts), query.return_share)
    per_step = [name for name in names if name not in (POOLED_TRANSITIONS, POOLED_REWARDS)]
    if query.pooled == "none":
        return _split(query, per_step)
    pooled = 0.5 if query.pooled_share is None else query.pooled_share
    parts = _split(query, per_step), _split(query, names[len(per_step) :])
    return tuple(share * x for part, share in zip(parts, (1.0 - pooled, pooled), strict=True) for x in part)


def _split(query: CountQuery, names: list[str]) -> tuple[float, ...]:
    if query.reward_share is None or query.known_rewards:
        return (1.0 / len(names),) * len(names)
    others = (1.0 - query.reward_share) / (len(names) - 1)
    return tuple(others if name in COUNTS else query.reward_share for name in names)
