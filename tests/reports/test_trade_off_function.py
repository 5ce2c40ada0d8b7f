"""Bounds on tests: each against an exact curve, or a mechanism whose best test is known."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from discreet.accounting import budget
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import MechanismRecord, guarantee_of, no_guarantee
from discreet.core.layout import Layout
from discreet.reports.trade_off_function import TradeOff

RATES = (0.001, 0.01, 0.05, 0.1, 0.5, 0.9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05])
def test_randomized_response_attains_the_bounds(epsilon, delta):
    """(epsilon, delta): a coin with odds e^epsilon that is revealed outright with probability delta."""
    curve = TradeOff(((epsilon, delta),))
    heads = math.exp(epsilon) / (1 + math.exp(epsilon))
    p = np.array([delta, (1 - delta) * heads, (1 - delta) * (1 - heads), 0.0])
    q = p[::-1]
    # Neyman and Pearson: take outcomes in the order of their ratios
    f, t = np.append(0.0, np.cumsum(q)), np.append(0.0, np.cumsum(p))
    for rate in RATES:
        assert curve.power(rate) == pytest.approx(np.interp(rate, f[1:], t[1:]), rel=1e-12)
    assert curve.advantage == pytest.approx(0.5 * abs(p - q).sum(), rel=1e-12)
    for prior in (0.5, 0.3, 0.1, 0.01, 0.99):
        right = np.maximum(prior * p, (1 - prior) * q).sum()
        assert curve.right_guess(prior) == pytest.approx(right, rel=1e-12)
    for prior in (0.5, 0.1):
        worst = prior * p[1] / (prior * p[1] + (1 - prior) * q[1])
        assert curve.posterior(prior) == (pytest.approx(worst) if delta == 0 else None)


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_gaussian_curve(mu):
    """N(0, 1) against N(mu, 1): thresholds are the best tests."""
    curve = TradeOff(mu=mu)
    at = np.linspace(-8, 8 + mu, 20_001)
    f, t = ndtr(-at), ndtr(mu - at)
    for rate in RATES:
        assert curve.power(rate) == pytest.approx(np.interp(rate, f[::-1], t[::-1]), rel=1e-5)
    assert curve.advantage == pytest.approx((t - f).max(), rel=1e-6)
    for prior in (0.5, 0.2, 0.9):
        right = (prior * t + (1 - prior) * (1 - f)).max()
        assert curve.right_guess(prior) == pytest.approx(max(prior, 1 - prior, right), rel=1e-6)
    assert curve.posterior(0.5, 0.01) == pytest.approx(curve.power(0.01) / (curve.power(0.01) + 0.01))
    assert curve.posterior(0.5) is None


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 5.0, 40.0])
def test_concentrated_bounds_hold_for_a_gaussian(rho):
    """rho-zCDP allows the Gaussian with mu = sqrt(2 rho): never less, and not twice its advantage."""
    mu = math.sqrt(2 * rho)
    curve = TradeOff(rho=rho)
    for rate in RATES:
        assert ndtr(mu + ndtri(rate)) <= curve.power(rate) <= 1.0
    exact = TradeOff(mu=mu).advantage
    assert exact <= curve.advantage <= min(1.0, math.sqrt(rho / 2) * (1 + 1e-6), 1.3 * exact)
    assert curve.advantage <= budget.zcdp_delta(rho, 0.0)


def test_concentrated_bounds_hold_for_coins():
    """A coin is rho-zCDP with the rho of its divergences; then its own test is allowed by the bound."""
    for f, t in ((0.1, 0.3), (0.01, 0.02), (0.4, 0.9)):
        orders = 1 + np.geomspace(1e-3, 1e4, 2000)
        rho = 0.0
        for p, q in ((t, f), (f, t)):
            inside = np.logaddexp(
                orders * math.log(p) + (1 - orders) * math.log(q),
                orders * math.log1p(-p) + (1 - orders) * math.log1p(-q),
            )
            rho = max(rho, float((inside / (orders - 1) / orders).max()))
        curve = TradeOff(rho=rho * (1 + 1e-6))
        assert t <= curve.power(f)
        assert t - f <= curve.advantage


def test_groups():
    curve = TradeOff(((1.0, 1e-6), (3.0, 0.0)), mu=0.2, rho=0.02)
    five = curve.group(5)
    assert (five.mu, five.rho) == (1.0, 0.5)
    assert five.pure == 15.0
    assert five.epsilon(1e-6) == pytest.approx(budget.gdp_epsilon(1.0, 1e-6))
    assert five.epsilon(0.0) == 15.0
    assert (5.0, pytest.approx(1e-6 * math.expm1(5) / math.expm1(1))) in five.points
    assert TradeOff(((1.0, 1e-6),)).group(30).points == ()  # delta would be above 1
    assert TradeOff(((0.0, 0.1),)).group(3).points == ((0.0, pytest.approx(0.3)),)


def test_the_least_of_what_is_known():
    both = TradeOff(((1.0, 0.0),), mu=0.5)
    for rate in RATES:
        assert both.power(rate) == min(TradeOff(((1.0, 0.0),)).power(rate), TradeOff(mu=0.5).power(rate))
    nothing = TradeOff()
    assert (nothing.power(0.1), nothing.advantage, nothing.epsilon(0.1)) == (1.0, 1.0, None)
    assert nothing.right_guess(0.3) == 1.0


def test_from_a_guarantee():
    query = CountQuery(Layout(3, 2, 4))
    record = MechanismRecord.of(query, "sum", "gaussian", dict.fromkeys(query.families, 50.0))
    curve = TradeOff.of(guarantee_of("joint", [record], randomness="seeded", delta=1e-6), [record])
    assert curve.mu == pytest.approx(record.loss)
    assert curve.pure is None
    assert TradeOff.of(no_guarantee("seeded")) == TradeOff()
    ways = ((("laplace", 50.0, 1.0, 8),) * 3,)  # 2 H cells of each family
    noise = MechanismRecord.of(query, "sum", "laplace", dict.fromkeys(query.families, 50.0), 1, ways)
    numerical = guarantee_of("joint", [noise], randomness="seeded", delta=1e-6)
    assert TradeOff.of(numerical, [noise]).pure == noise.loss
    with pytest.raises(ValueError, match="false_positives"):
        curve.power(0.0)
    with pytest.raises(ValueError, match="prior"):
        curve.right_guess(1.0)
    with pytest.raises(ValueError, match="people"):
        curve.group(0)
