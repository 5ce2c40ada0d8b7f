"""Conversions between privacy notions, against formulas written down another way."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from discreet.accounting import budget
from discreet.accounting.budget import GDP, ZCDP, Approx, Pure


def simple_rho(epsilon, delta):
    """From epsilon = rho + 2 sqrt(rho ln(1/delta)): Bun and Steinke 2016, proposition 1.3."""
    tail = -math.log(delta)
    return (epsilon / (math.sqrt(tail + epsilon) + math.sqrt(tail))) ** 2


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, "1", True, None, -math.inf])
@pytest.mark.parametrize("kind", [Pure, ZCDP, GDP])
def test_a_budget_that_is_not_a_positive_number_is_refused(kind, bad):
    with pytest.raises(ValueError, match=r"must be a finite number"):
        kind(bad)


@pytest.mark.parametrize("kind", [Pure, ZCDP, GDP, lambda e: Approx(e, 1e-6)])
def test_infinite_epsilon_is_told_to_say_none(kind):
    with pytest.raises(ValueError, match='privatizer "none"'):
        kind(math.inf)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-6, 2.0, math.nan, "x"])
def test_delta_outside_the_open_unit_interval_is_refused(bad):
    with pytest.raises(ValueError, match=r"delta = .*\(0, 1\)"):
        Approx(1.0, bad)


def test_stated_budget_is_pure_without_delta():
    assert budget.stated(1) == Pure(1.0)
    assert budget.stated(1.0, 0) == Pure(1.0)
    assert budget.stated(1.0, 1e-6) == Approx(1.0, 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "exact", "renyi", "simple"),
    [(0.1, 36.305, 39.464, 52.66), (1.0, 4.2247, 4.5309, 5.350), (10.0, 0.5411, 0.5699, 0.6079)],
)
def test_gaussian_multipliers(epsilon, exact, renyi, simple):
    """sigma / sensitivity at delta = 1e-6: privacy-mechanisms, section 1."""
    assert 1 / budget.gdp_mu(epsilon, 1e-6) == pytest.approx(exact, rel=1e-4)
    assert 1 / math.sqrt(2 * budget.zcdp_rho(epsilon, 1e-6)) == pytest.approx(renyi, rel=1e-4)
    assert 1 / math.sqrt(2 * simple_rho(epsilon, 1e-6)) == pytest.approx(simple, rel=1e-4)


def test_numbers_of_the_tree_at_the_reference_setting():
    """spec/tabular.md 3.3 and 3.4: H = 20, L = 15, (1, 1e-6)."""
    rho, mu = simple_rho(1.0, 1e-6), budget.gdp_mu(1.0, 1e-6)
    assert rho == pytest.approx(0.017469, rel=1e-4)
    assert math.sqrt(3 * 20 * 15 / rho) == pytest.approx(226.98, rel=1e-4)
    assert 20 * math.sqrt(3 * 15 / rho) == pytest.approx(1015, rel=1e-3)
    assert math.sqrt(3 * 20 / rho) == pytest.approx(58.6, rel=1e-3)
    assert math.sqrt(6 * 20 * 15) / mu == pytest.approx(179.2, rel=1e-3)


@pytest.mark.parametrize("mu", [0.05, 0.2, 1.0, 3.0, 7.9, 8.1, 30.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.3, 1.0, 4.0, 30.0])
def test_gdp_delta_is_the_textbook_formula_where_that_is_stable(mu, epsilon):
    direct = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    if direct > 1e-8:
        assert budget.gdp_delta(mu, epsilon) == pytest.approx(direct, rel=1e-6)


@pytest.mark.parametrize("mu", [1e-7, 1e-4, 1.01e-4, 0.01, 1.0, 50.0])
def test_gdp_delta_at_zero_epsilon_is_total_variation(mu):
    assert budget.gdp_delta(mu, 0.0) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-9)


def test_gdp_delta_where_the_textbook_formula_cancels():
    """The derivative of (1) in epsilon is -e^epsilon Phi(-epsilon/mu - mu/2); integrate it numerically."""
    for mu, epsilon in [(0.01, 0.05), (1e-3, 3e-3), (1e-5, 3e-5), (0.2, 1.5)]:
        nodes, weights = np.polynomial.legendre.leggauss(60)
        width = 12 * mu
        at = epsilon + width * (nodes + 1) / 2
        integral = width / 2 * np.sum(weights * np.exp(at) * ndtr(-at / mu - mu / 2))
        assert budget.gdp_delta(mu, epsilon) == pytest.approx(integral, rel=1e-8)


@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-6, 0.1, 0.9])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6, 1e12])
def test_conversions_invert_each_other(epsilon, delta):
    mu, rho = budget.gdp_mu(epsilon, delta), budget.zcdp_rho(epsilon, delta)
    assert budget.gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-8)
    assert budget.zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-8)
    # 0.5 mu^2-zCDP is what mu-GDP implies: reading (epsilon, delta) off it can only lose
    assert rho <= mu * mu / 2 * (1 + 1e-9)
    if epsilon < 1e5:
        assert simple_rho(epsilon, delta) <= rho * (1 + 1e-9)


@pytest.mark.parametrize("rho", [1e-4, 0.0175, 1.0, 25.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_zcdp_is_the_best_renyi_order(rho, delta):
    """Against a brute-force minimum over alpha, Canonne, Kamath and Steinke 2020, proposition 12."""
    alpha = 1 + np.logspace(-6, 6, 400_001)
    by_order = alpha * rho + np.log(1 / (alpha * delta)) / (alpha - 1) + np.log1p(-1 / alpha)
    epsilon = budget.zcdp_epsilon(rho, delta)
    assert epsilon == pytest.approx(max(0.0, by_order.min()), rel=1e-7)
    log_delta = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    assert budget.zcdp_delta(rho, epsilon) == pytest.approx(math.exp(log_delta.min()), rel=1e-7)


def test_a_budget_too_small_to_matter_costs_no_epsilon():
    assert budget.gdp_epsilon(1e-7, 1e-6) == 0.0


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),  # to 17 digits, in arithmetic of 60
    [
        (4.1871545418432674e-05, 1.566898926031546e-05, 2.1132547164054609e-6),
        (9.902765355149543e-05, 2.51550813323761e-05, 3.3068082443982841e-5),
        (0.0002953446068806014, 8.29704658060868e-08, 0.00091152689047685246),
    ],
)
def test_gaussian_epsilon_of_very_much_noise_is_not_below_the_truth(
    mu: float, delta: float, epsilon: float
) -> None:
    assert budget.gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=2e-12)


def test_gaussian_epsilon_of_hardly_any_noise() -> None:
    for mu in (1e5, 9.9e5, 1.01e6, 1e9, 1.4e13):  # both branches agree where they meet
        below = mu * (mu / 2 - ndtri(1e-6))
        assert budget.gdp_epsilon(mu, 1e-6) == pytest.approx(below, rel=1e-9)
    assert budget.zcdp_epsilon(1e-3, 0.5) == 0.0
    assert budget.zcdp_delta(1e4, 0.0) == 1.0
    assert GDP(0.5).rho == 0.125
    assert GDP(1 / 4.2247).epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)
    assert ZCDP(1 / (2 * 4.5309**2)).epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)


def test_group_privacy():
    assert budget.group(Pure(0.5), 3) == Pure(1.5)
    assert budget.group(GDP(0.5), 3) == GDP(1.5)
    assert budget.group(ZCDP(0.5), 3) == ZCDP(4.5)
    approx = budget.group(Approx(0.5, 1e-6), 3)
    assert approx.epsilon == 1.5
    assert approx.delta == pytest.approx(1e-6 * (math.exp(1.5) - 1) / (math.exp(0.5) - 1))
    assert budget.group(Approx(0.5, 1e-6), 1).delta == pytest.approx(1e-6)
    with pytest.raises(ValueError, match=r"people = 1000: .*delta >= 1"):
        budget.group(Approx(0.5, 1e-6), 1000)
    with pytest.raises(ValueError, match="people = 0"):
        budget.group(Pure(1.0), 0)
