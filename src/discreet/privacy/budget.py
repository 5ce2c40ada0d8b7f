"""Notions of privacy, validated, and the exact conversions between them.

Four notions, all for one release process M and neighbouring inputs x, x':

- :class:`Pure` epsilon: P(M(x) in E) <= e^epsilon P(M(x') in E) for every event E;
- :class:`Approx` (epsilon, delta): the same plus delta;
- :class:`ZCDP` rho: the Renyi divergence of every order alpha > 1 is at most rho * alpha
  (Bun and Steinke 2016);
- :class:`GDP` mu: telling x from x' is at least as hard as telling N(0, 1) from N(mu, 1)
  (Dong, Roth and Su 2022).

Gaussian noise of standard deviation sigma on a sum of l2 sensitivity Delta is exactly
(Delta / sigma)-GDP, also under adaptive composition, where mu^2 adds. (epsilon, delta) is read off
mu by the exact curve (Balle and Wang 2018, theorem 8)::

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)              (1)

and off rho by the best Renyi order (Canonne, Kamath and Steinke 2020, proposition 12)::

    delta(epsilon) = min over alpha > 1 of
        e^{(alpha-1)(alpha rho - epsilon)} (1 - 1/alpha)^alpha / (alpha - 1)                 (2)

The derivative of the logarithm of (2) in alpha is (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha),
which rises from -inf to +inf, so the best alpha is its only root. Put back, with t = alpha - 1,
the whole curve has a parametric form without any minimum left::

    ln(1/delta) = rho t^2 + ln(1 + t),      epsilon = (2 t + 1) rho - ln(1 + 1/t)            (3)

Both sides are monotone in t, so each conversion below is one root of one monotone function.
Roots are accurate to about 1e-12, relative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from discreet.numerics import checks

__all__ = [
    "GDP", "ZCDP", "Approx", "Notion", "Pure", "check_delta", "check_epsilon", "gdp_delta",
    "gdp_epsilon", "gdp_mu", "group", "stated", "zcdp_delta", "zcdp_epsilon", "zcdp_rho", "zcdp_simple",
]  # fmt: skip


# ------------------------------------------------------------------------------ at the door


def check_epsilon(value: Any, name: str = "epsilon") -> float:
    """Return a finite epsilon above 0, or raise ``ValueError``; infinity is told what to say instead."""
    if isinstance(value, Real | np.number) and float(value) == math.inf:
        raise ValueError(
            f'{name} = inf: must be finite and above 0; to learn without privacy, use privatizer "none"'
        )
    return checks.positive(name, value)


def check_delta(value: Any, name: str = "delta") -> float:
    """Return a delta inside (0, 1), or raise ``ValueError``."""
    return checks.real(name, value, 0.0, 1.0, open_low=True, open_high=True)


@dataclass(frozen=True)
class Pure:
    """Pure epsilon-DP, epsilon > 0."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))


@dataclass(frozen=True)
class Approx:
    """(epsilon, delta)-DP, epsilon > 0, 0 < delta < 1."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))


@dataclass(frozen=True)
class ZCDP:
    """rho-zero-concentrated DP, rho > 0."""

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_epsilon(self.rho, "rho"))

    def epsilon(self, delta: float) -> float:
        """The epsilon at this delta, by (3)."""
        return zcdp_epsilon(self.rho, delta)


@dataclass(frozen=True)
class GDP:
    """mu-Gaussian DP, mu > 0."""

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_epsilon(self.mu, "mu"))

    @property
    def rho(self) -> float:
        """The zCDP that it implies: mu^2 / 2."""
        return 0.5 * self.mu * self.mu

    def epsilon(self, delta: float) -> float:
        """The exact epsilon at this delta, by (1)."""
        return gdp_epsilon(self.mu, delta)


Notion = Pure | Approx | ZCDP | GDP


def stated(epsilon: Any, delta: Any = None) -> Pure | Approx:
    """The budget that a user types: pure without ``delta`` (None or 0), approximate with it."""
    if delta is None or (isinstance(delta, Real | np.number) and float(delta) == 0.0):
        return Pure(epsilon)
    return Approx(epsilon, delta)


def group(budget: Notion, people: int) -> Notion:
    """What protects ``people`` episodes together: one person who takes part that often, or a household.

    m epsilon (pure), m mu (GDP), m^2 rho (zCDP), and (m epsilon, delta (e^{m epsilon} - 1) /
    (e^epsilon - 1)) for (epsilon, delta). Raises ``ValueError`` where that delta reaches 1, as
    nothing is then guaranteed.
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
            "size has delta >= 1, which guarantees nothing; use fewer people, or account in mu or rho"
        )
    return Approx(m * budget.epsilon, math.exp(log_delta))


# ------------------------------------------------------------------------------ roots


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of a monotone function inside a bracket, to relative 4e-16 or absolute 1e-300."""
    return float(brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps, maxiter=500))


def _widen(function: Callable[[float], float], start: float, factor: float) -> float:
    """Multiply ``start`` by ``factor`` until the function's sign differs from the one at ``start``."""
    sign = function(start) > 0
    x = start
    while (function(x) > 0) == sign:
        x *= factor
    return x


# ------------------------------------------------------------------------------ Gaussian


def _log_gdp_delta(mu: float, epsilon: float) -> float:
    """Logarithm of (1), without cancellation of large numbers.

    With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2 and Mills' ratio R(x) = Phi(-x) / phi(x),
    e^epsilon phi(b) = phi(a), hence delta = phi(a) (R(a) - R(b)).
    """
    ratio = epsilon / mu
    a, b = ratio - 0.5 * mu, ratio + 0.5 * mu
    if a < -4.0:  # R(a) would overflow, and there is nothing to cancel: delta is near 1
        return math.log(float(ndtr(-a)) - math.exp(epsilon + float(log_ndtr(-b))))
    difference = float(erfcx(a / math.sqrt(2))) - float(erfcx(b / math.sqrt(2)))  # sqrt(2/pi) (R(a)-R(b))
    if difference <= 0 or mu < 1e-4 * max(1.0, a):
        # R(a) - R(b) lost its digits: integrate -R'(x) = 1 - x R(x) over the short interval instead
        difference = math.sqrt(2 / math.pi) * mu * _mills_slope(ratio)
    return -0.5 * a * a - math.log(2.0) + math.log(difference)


def _mills_slope(x: float) -> float:
    """1 - x R(x) for x >= -1, by its continued fraction where the direct form cancels."""
    if x < 10.0:
        return 1.0 - x * math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))
    # R(x) = 1/(x + 1/(x + 2/(x + 3/(x + ...)))), hence 1 - x R(x) = f/(x + f), f = 1/(x + 2/(x + ...))
    tail = 0.0
    for k in range(60, 1, -1):
        tail = k / (x + tail)
    f = 1.0 / (x + tail)
    return f / (x + f)


def gdp_delta(mu: float, epsilon: float) -> float:
    """The exact delta of mu-GDP at this epsilon >= 0: equation (1)."""
    mu = checks.positive("mu", mu)
    epsilon = checks.real("epsilon", epsilon, 0.0)
    return min(1.0, math.exp(_log_gdp_delta(mu, epsilon)))


@lru_cache(maxsize=1024)
def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 at which mu-GDP implies (epsilon, delta)-DP: equation (1) inverted."""
    mu, delta = checks.positive("mu", mu), check_delta(delta)
    target = math.log(delta)
    if _log_gdp_delta(mu, 0.0) <= target:
        return 0.0
    if mu > 1e6:  # e^epsilon Phi(-b) is nothing beside mu^2 / 2, and leaves the range of floats
        return mu * (0.5 * mu - float(ndtri(delta)))
    # delta <= Phi(-a) <= exp(-a^2/2) for a >= 0 gives the upper end
    high = mu * (0.5 * mu + math.sqrt(-2.0 * target)) * (1 + 1e-9)
    return _root(lambda epsilon: _log_gdp_delta(mu, epsilon) - target, 0.0, high)


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest mu with mu-GDP => (epsilon, delta)-DP; sigma = sensitivity / mu is the least noise."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    target = math.log(delta)

    def excess(mu: float) -> float:
        return _log_gdp_delta(mu, epsilon) - target

    # at this mu the bound of gdp_epsilon equals epsilon, so that the truth is at most epsilon
    tail = math.sqrt(-2.0 * target)
    low = 2.0 * epsilon / (tail + math.sqrt(tail * tail + 2.0 * epsilon)) * (1 - 1e-9)
    return _root(excess, low, _widen(excess, low, 2.0))


# ------------------------------------------------------------------------------ concentrated


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The delta of rho-zCDP at this epsilon >= 0, by the best Renyi order: equation (2)."""
    rho = checks.positive("rho", rho)
    epsilon = checks.real("epsilon", epsilon, 0.0)

    def slope(t: float) -> float:
        return (2 * t + 1) * rho - epsilon - math.log1p(1 / t)

    if slope(1e-300) >= 0:
        return 1.0  # the best order is 1 but for less than 1e-300: delta = 1 to all digits
    high = _widen(slope, 1.0, 2.0) if slope(1.0) < 0 else 1.0
    low = _widen(slope, 1.0, 0.5) if slope(1.0) >= 0 else 1.0
    t = low if low == high else _root(slope, low, high)
    # the logarithm of (2) itself rather than (3): valid for any t, so that rounding of t costs nothing
    log_delta = t * ((t + 1) * rho - epsilon) - (t + 1) * math.log1p(1 / t) - math.log(t)
    return min(1.0, math.exp(log_delta))


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """The smallest epsilon >= 0 that the best Renyi order gives for rho-zCDP at this delta: (3)."""
    rho, delta = checks.positive("rho", rho), check_delta(delta)
    target = -math.log(delta)
    # rho t^2 <= target and ln(1 + t) <= target bound the root from above
    high = min(math.sqrt(target / rho), math.expm1(min(target, 700.0))) * (1 + 1e-9)
    t = _root(lambda t: rho * t * t + math.log1p(t) - target, 0.0, high)
    return max(0.0, (2 * t + 1) * rho - math.log1p(1 / t))


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho with rho-zCDP => (epsilon, delta)-DP by the best Renyi order: (3) inverted."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    target = -math.log(delta)

    def rho_at(t: float) -> float:
        return (target - math.log1p(t)) / (t * t)

    def excess(t: float) -> float:
        return (2 * t + 1) * rho_at(t) - math.log1p(1 / t) - epsilon

    # epsilon falls in t, from +inf at t = 0 to a negative number where rho_at reaches 0
    low = _widen(excess, 1.0, 0.5) if excess(1.0) <= 0 else 1.0
    high = _widen(excess, low, 2.0)
    return rho_at(_root(excess, low, high))


def zcdp_simple(epsilon: float, delta: float) -> float:
    """rho = (sqrt(ln(1/delta) + epsilon) - sqrt(ln(1/delta)))^2, as printed in spec/tabular.md, 3.3.

    From epsilon = rho + 2 sqrt(rho ln(1/delta)) (Bun and Steinke 2016, proposition 1.3): true, and
    looser than :func:`zcdp_rho`. For replication.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    tail = -math.log(delta)
    return (epsilon / (math.sqrt(tail + epsilon) + math.sqrt(tail))) ** 2
