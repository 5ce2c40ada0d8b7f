"""From mu and rho to epsilon, against the curves themselves in decimal arithmetic of 160 digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from discreet.core import epsilon_conversions as conversions
from discreet.core.epsilon_conversions import gdp_epsilon, log_gdp_delta, zcdp_epsilon

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")


def normal_cdf(x: Decimal) -> Decimal:
    """Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/(3 5) + ...): all terms of one sign."""
    term, total, k = x, x, 1
    while abs(term) > Decimal("1e-158"):
        k += 2
        term *= x * x / k
        total += term
    return Decimal("0.5") + (-x * x / 2).exp() / (2 * PI).sqrt() * total


def gaussian_curve(mu: float, epsilon: float) -> Decimal:
    """delta(epsilon) of mu-GDP: equation (1), as it stands."""
    m, e = Decimal(mu), Decimal(epsilon)
    return normal_cdf(m / 2 - e / m) - e.exp() * normal_cdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.5, 1.0, 3.0, 8.5, 12.0])
@pytest.mark.parametrize("at", [0.0, 0.1, 0.9, 1.0, 3.5, 6.0, 11.0])
def test_the_gaussian_curve(mu: float, at: float) -> None:
    """From epsilon = 0, where delta of much loss is near 1, to the far tail."""
    epsilon = mu * at
    with localcontext(prec=160):
        exact = float(gaussian_curve(mu, epsilon).ln())
    assert log_gdp_delta(mu, epsilon) == pytest.approx(exact, rel=1e-11, abs=1e-11)
    if exact < math.log(0.999):
        assert gdp_epsilon(mu, math.exp(exact)) == pytest.approx(epsilon, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("mu", [1e-9, 3e-5])
@pytest.mark.parametrize("a", [0.0, 1.0, 9.0, 30.0])
def test_the_gaussian_curve_under_very_much_noise(mu: float, a: float) -> None:
    """delta = mu phi(a) (1 - a R(a)) up to a relative mu, R Mills' ratio: the derivative of (1) in mu."""
    from scipy.special import log_ndtr

    mills = math.exp(float(log_ndtr(-a)) + a * a / 2) * math.sqrt(2 * math.pi)
    slope = 1 - a * mills if a < 10 else 1 / a**2 - 3 / a**4 + 15 / a**6 - 105 / a**8 + 945 / a**10
    exact = math.log(mu * slope) - a * a / 2 - math.log(2 * math.pi) / 2
    assert log_gdp_delta(mu, mu * a) == pytest.approx(exact, abs=2e-9 + 40 * (1 + a) * mu)


@pytest.mark.parametrize("rho", [1e-4, 0.0175, 1.0, 25.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.01, 0.5, 0.99])
def test_zcdp_is_the_best_renyi_order(rho: float, delta: float) -> None:
    """A brute-force minimum over alpha: Canonne, Kamath and Steinke 2020, proposition 12."""
    t = np.logspace(-8, 8, 200_001)
    orders = (1 + t) * rho - (math.log(delta) + np.log1p(t)) / t - np.log1p(1 / t)
    assert zcdp_epsilon(rho, delta) == pytest.approx(max(0.0, float(orders.min())), rel=1e-6, abs=1e-12)


def test_hardly_any_noise_and_hardly_any_loss() -> None:
    from scipy.special import ndtri

    for mu in (9.9e5, 1e6, 1.01e6, 1e9):
        assert gdp_epsilon(mu, 1e-6) == pytest.approx(mu * (mu / 2 - float(ndtri(1e-6))), rel=1e-9)
    total_variation = math.erf(0.01 / math.sqrt(8))  # at epsilon = 0
    assert gdp_epsilon(0.01, total_variation * (1 + 1e-9)) == 0.0
    assert 0.0 < gdp_epsilon(0.01, total_variation * (1 - 1e-9)) < 1e-8


@pytest.mark.parametrize("convert", [gdp_epsilon, zcdp_epsilon])
def test_losses_and_deltas_out_of_range_are_refused(convert: object) -> None:
    name = "mu" if convert is gdp_epsilon else "rho"
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"{name} = "):
            convert(bad, 1e-6)  # type: ignore[operator]
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"delta = .*\(0, 1\)"):
            convert(1.0, bad)  # type: ignore[operator]
    with pytest.raises(ValueError, match='x = inf: .* privatizer "none"'):
        conversions.check_epsilon(math.inf, "x")
    with pytest.raises(ValueError, match="epsilon = -inf: must be a finite number above 0"):
        conversions.check_epsilon(-math.inf)


@pytest.mark.parametrize("x", [-1.0, 0.0, 3.0, 9.999, 10.0, 10.001, 11.5, 40.0, 1e3])
def test_the_slope_of_mills_ratio(x: float) -> None:
    """1 - x R(x), from the normal law's own series; far out 1/x^2 - 3/x^4 + ..., above and below by turns."""
    if x < 12:
        with localcontext(prec=160):
            big = Decimal(x)
            density = (-big * big / 2).exp() / (2 * PI).sqrt()
            exact = float(1 - big * normal_cdf(-big) / density)
        assert conversions._mills_slope(x) == pytest.approx(exact, rel=1e-11)
        return
    terms, term = [], 1.0
    for k in range(1, 8):
        term *= -(2 * k - 1) / x**2
        terms.append(-term)
    below, above = sorted((math.fsum(terms), math.fsum(terms[:-1])))
    assert below * (1 - 1e-12) <= conversions._mills_slope(x) <= above * (1 + 1e-12)
