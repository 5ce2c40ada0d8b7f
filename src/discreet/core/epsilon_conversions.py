"""Exact conversions from mu and rho to epsilon, for guarantees of Gaussian noise.

Gaussian noise of standard deviation sigma on a sum of l2 sensitivity Delta is exactly (Delta / sigma)-GDP.
The statement also holds under adaptive composition, where the values of mu^2 are summed. The exact curve of
mu-GDP gives (epsilon, delta) (Balle and Wang 2018, theorem 8)::

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)              (1)

For rho-zCDP, the best Renyi order gives (epsilon, delta) (Canonne, Kamath and Steinke 2020, proposition 12).
The curve has the parametric form (t = alpha - 1; derivation in :mod:`discreet.accounting.budget`)::

    ln(1/delta) = rho t^2 + ln(1 + t),      epsilon = (2 t + 1) rho - ln(1 + 1/t)            (3)

Each conversion finds the only root of a monotone function, with a relative error of about 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from discreet.core import checks


def check_epsilon(value: Any, name: str = "epsilon") -> float:
    """Return ``value`` as a finite float above 0, or raise ``ValueError``.

    For infinity, the error message names the alternative.
    """
    if isinstance(value, Real) and value == math.inf:
        raise ValueError(
            f'{name} = inf: must be finite and above 0; to learn without privacy, use privatizer "none"'
        )
    return checks.positive(name, value)


def check_delta(value: Any, name: str = "delta") -> float:
    """Return ``value`` as a float inside (0, 1), or raise ``ValueError``."""
    return checks.real(name, value, 0.0, 1.0, open_low=True, open_high=True)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a monotone function between ``low`` and ``high``.

    The error is at most 4e-16 relative or 1e-300 absolute.
    """
    # imported here because SciPy takes a fifth of a run's import time and most runs need no root
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps, maxiter=500))


def log_gdp_delta(mu: float, epsilon: float) -> float:
    """Return ln delta(epsilon) by (1) in the module docstring, without cancellation of large numbers.

    With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2 and Mills' ratio R(x) = Phi(-x) / phi(x),
    e^epsilon phi(b) = phi(a), therefore delta = phi(a) (R(a) - R(b)).
    """
    from scipy.special import erfcx, log_ndtr, ndtr

    a, b = (ratio := epsilon / mu) - 0.5 * mu, ratio + 0.5 * mu
    if a < -4.0:  # R(a) would overflow; delta is near 1, so no digits cancel
        return math.log(float(ndtr(-a)) - math.exp(epsilon + float(log_ndtr(-b))))
    difference = float(erfcx(a / math.sqrt(2))) - float(erfcx(b / math.sqrt(2)))  # sqrt(2/pi) (R(a)-R(b))
    if difference <= 0 or mu < 1e-4 * max(1.0, a):
        # the difference R(a) - R(b) is not accurate: integrate -R'(x) = 1 - x R(x) by the two-point Gauss
        # rule
        slopes = sum(_mills_slope(ratio + x * mu / math.sqrt(12)) for x in (-1, 1))
        difference = mu / math.sqrt(2 * math.pi) * slopes
    return -0.5 * a * a - math.log(2.0) + math.log(difference)


def _mills_slope(x: float) -> float:
    """Return 1 - x R(x) for x >= -1, where R is Mills' ratio.

    A continued fraction is used if the direct formula would lose digits.
    """
    from scipy.special import erfcx

    if x < 10.0:
        return 1.0 - x * math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))
    # R(x) = 1/(x + 1/(x + 2/(x + 3/(x + ...)))), so 1 - x R(x) = f/(x + f), f = 1/(x + 2/(x + ...))
    tail = 0.0
    for k in range(60, 1, -1):
        tail = k / (x + tail)
    f = 1.0 / (x + tail)
    return f / (x + f)


@lru_cache(maxsize=1024)
def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which mu-GDP implies (epsilon, delta)-DP.

    The function inverts equation (1) in the module docstring.
    """
    from scipy.special import ndtri

    mu, delta = checks.positive("mu", mu), check_delta(delta)
    target = math.log(delta)
    if log_gdp_delta(mu, 0.0) <= target:
        return 0.0
    if mu > 1e6:  # e^epsilon Phi(-b) is negligible beside mu^2 / 2 and exceeds the range of floats
        return mu * (0.5 * mu - float(ndtri(delta)))
    # delta <= Phi(-a) <= exp(-a^2/2) for a >= 0 gives the upper end
    high = mu * (0.5 * mu + math.sqrt(-2.0 * target)) * (1 + 1e-9)
    return root(lambda epsilon: log_gdp_delta(mu, epsilon) - target, 0.0, high)


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 that the best Renyi order gives for rho-zCDP at this delta.

    The function uses equation (3) in the module docstring.
    """
    rho, delta = checks.positive("rho", rho), check_delta(delta)
    target = -math.log(delta)
    # rho t^2 <= target and ln(1 + t) <= target bound the root from above
    high = min(math.sqrt(target / rho), math.expm1(min(target, 700.0))) * (1 + 1e-9)
    t = root(lambda t: rho * t * t + math.log1p(t) - target, 0.0, high)
    return max(0.0, (2 * t + 1) * rho - math.log1p(1 / t))
