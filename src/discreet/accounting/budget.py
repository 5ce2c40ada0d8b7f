"""Privacy notions as validated objects, and exact conversions between them.

There are four notions. Each one is defined for a release process M and neighbouring inputs x, x':

- :class:`Pure` epsilon: P(M(x) in E) <= e^epsilon P(M(x') in E) for every event E;
- :class:`Approx` (epsilon, delta): the right side is increased by delta;
- :class:`ZCDP` rho: the Renyi divergence of every order alpha > 1 is at most rho * alpha
  (Bun and Steinke 2016);
- :class:`GDP` mu: distinguishing x from x' is at least as hard as distinguishing N(0, 1) from N(mu, 1)
  (Dong, Roth and Su 2022).

Gaussian noise of standard deviation sigma on a sum of l2 sensitivity Delta is exactly (Delta / sigma)-GDP.
The statement also holds under adaptive composition, where the values of mu^2 are summed. The exact curve of
mu-GDP gives (epsilon, delta) (Balle and Wang 2018, theorem 8)::

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)              (1)

For rho-zCDP, the best Renyi order gives (epsilon, delta) (Canonne, Kamath and Steinke 2020, proposition 12)::

    delta(epsilon) = min over alpha > 1 of
        e^{(alpha-1)(alpha rho - epsilon)} (1 - 1/alpha)^alpha / (alpha - 1)                 (2)

The derivative of the logarithm of (2) with respect to alpha is (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha).
The derivative increases from -inf to +inf, so the best alpha is its only root. Let t = alpha - 1.
Substituting the root into (2) gives the whole curve as a function of t, without a minimum::

    ln(1/delta) = rho t^2 + ln(1 + t),      epsilon = (2 t + 1) rho - ln(1 + 1/t)            (3)

Both expressions in (3) are monotone in t, so each conversion finds the only root of a monotone function.
Roots have a relative error of about 1e-12. Two conversions are in :mod:`discreet.core.epsilon_conversions`,
because guarantees need them: from mu to epsilon, and from rho to epsilon. The conversions in this module are
used to choose the noise for a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.epsilon_conversions import (
    check_delta,
    check_epsilon,
    gdp_epsilon,
    log_gdp_delta,
    root,
    zcdp_epsilon,
)

__all__ = [
    "GDP", "ZCDP", "Approx", "Notion", "Pure", "check_delta", "check_epsilon", "gdp_delta",
    "gdp_epsilon", "gdp_mu", "group", "stated", "zcdp_delta", "zcdp_epsilon", "zcdp_rho",
]  # fmt: skip


# ------------------------------------------------------------------------------ budgets


@dataclass(frozen=True)
class Pure:
    """Pure epsilon-DP with epsilon > 0."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))


@dataclass(frozen=True)
class Approx:
    """(epsilon, delta)-DP with epsilon > 0 and 0 < delta < 1."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))


@dataclass(frozen=True)
class ZCDP:
    """rho-zero-concentrated DP with rho > 0."""

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_epsilon(self.rho, "rho"))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at this delta, by (3) in the module docstring."""
        return zcdp_epsilon(self.rho, delta)


@dataclass(frozen=True)
class GDP:
    """mu-Gaussian DP with mu > 0."""

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_epsilon(self.mu, "mu"))

    @property
    def rho(self) -> float:
        """Parameter rho of the zero-concentrated DP that mu-GDP implies: rho = mu^2 / 2."""
        return 0.5 * self.mu * self.mu

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon at this delta, by (1) in the module docstring."""
        return gdp_epsilon(self.mu, delta)


Notion = Pure | Approx | ZCDP | GDP


def stated(epsilon: Any, delta: Any = None) -> Pure | Approx:
    """Return the budget for the given numbers: pure if ``delta`` is None or 0, otherwise approximate."""
    if delta is None or (isinstance(delta, Real | np.number) and float(delta) == 0.0):
        return Pure(epsilon)
    return Approx(epsilon, delta)


def group(budget: Notion, people: int) -> Notion:
    """Return the group-privacy guarantee for ``people`` episodes, of one user or of a household.

    ``budget`` is the guarantee for one episode. With m = ``people``, the guarantee for all of them is m
    epsilon (pure), m mu (GDP) or m^2 rho (zCDP). For (epsilon, delta) it is (m epsilon, delta (e^{m epsilon}
    - 1) / (e^epsilon - 1)). Raises ``ValueError`` if this delta is at least 1, because there is then no
    guarantee.
    """
    m = checks.integer("people", people, 1)
    if isinstance(budget, Pure):
        return Pure(m * budget.epsilon)
    if isinstance(budget, GDP):
        return GDP(m * budget.mu)
    if isinstance(budget, ZCDP):
        return ZCDP(m * m * budget.rho)
    # ln of (e^{m eps} - 1)/(e^eps - 1), without overflow
    log_factor = (m - 1) * budget.epsilon + math.log(
        math.expm1(-m * budget.epsilon) / math.expm1(-budget.epsilon)
    )
    log_delta = math.log(budget.delta) + log_factor
    if log_delta >= 0:
        raise ValueError(
            f"people = {m}: at (epsilon, delta) = ({budget.epsilon:g}, {budget.delta:g}) a group of this "
            "size has delta >= 1, which guarantees nothing; use a smaller group, or account in mu or rho"
        )
    return Approx(m * budget.epsilon, math.exp(log_delta))


# ------------------------------------------------------------------------------ roots


def _widen(function: Callable[[float], float], start: float, factor: float) -> float:
    """Multiply ``start`` by ``factor`` until the function changes its sign, and return the product."""
    sign = function(start) > 0
    x = start
    while (function(x) > 0) == sign:
        x *= factor
    return x


# ------------------------------------------------------------------------------ Gaussian


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta of mu-GDP at this epsilon >= 0, by equation (1) in the module docstring."""
    mu = checks.positive("mu", mu)
    epsilon = checks.real("epsilon", epsilon, 0.0)
    return min(1.0, math.exp(log_gdp_delta(mu, epsilon)))


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu such that mu-GDP implies (epsilon, delta)-DP.

    The least standard deviation of Gaussian noise that meets (epsilon, delta) is sensitivity / mu.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    target = math.log(delta)

    def excess(mu: float) -> float:
        return log_gdp_delta(mu, epsilon) - target

    # At this mu the upper bound in gdp_epsilon equals epsilon, so the exact epsilon is at most this bound.
    tail = math.sqrt(-2.0 * target)
    low = 2.0 * epsilon / (tail + math.sqrt(tail * tail + 2.0 * epsilon)) * (1 - 1e-9)
    return root(excess, low, _widen(excess, low, 2.0))


# ------------------------------------------------------------------------------ concentrated


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the delta of rho-zCDP at this epsilon >= 0, by the best Renyi order.

    The function uses equation (2) in the module docstring.
    """
    rho = checks.positive("rho", rho)
    epsilon = checks.real("epsilon", epsilon, 0.0)

    def slope(t: float) -> float:
        return (2 * t + 1) * rho - epsilon - math.log1p(1 / t)

    if slope(1e-300) >= 0:
        return 1.0  # the best order exceeds 1 by less than 1e-300, so delta is 1 within double precision
    high = _widen(slope, 1.0, 2.0) if slope(1.0) < 0 else 1.0
    low = _widen(slope, 1.0, 0.5) if slope(1.0) >= 0 else 1.0
    t = low if low == high else root(slope, low, high)
    # Use the logarithm of (2) instead of (3): (2) is valid for any t, so a rounding error in t cannot make
    # the bound invalid.
    log_delta = t * ((t + 1) * rho - epsilon) - (t + 1) * math.log1p(1 / t) - math.log(t)
    return min(1.0, math.exp(log_delta))


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho such that rho-zCDP implies (epsilon, delta)-DP by the best Renyi order.

    The function inverts (3) in the module docstring.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    target = -math.log(delta)

    def rho_at(t: float) -> float:
        return (target - math.log1p(t)) / (t * t)

    def excess(t: float) -> float:
        return (2 * t + 1) * rho_at(t) - math.log1p(1 / t) - epsilon

    # The function decreases in t, from +inf at t = 0 to a negative number at the t where rho_at is 0.
    low = _widen(excess, 1.0, 0.5) if excess(1.0) <= 0 else 1.0
    high = _widen(excess, low, 2.0)
    return rho_at(root(excess, low, high))
