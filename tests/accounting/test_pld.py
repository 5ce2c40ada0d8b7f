"""Closed forms against numerical privacy-loss distributions."""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from discreet.accounting import budget
from discreet.accounting import pld as numerical


@pytest.mark.parametrize(("horizon", "std"), [(1, 2.83), (5, 14.13), (20, 36.2), (50, 58.7)])
def test_laplace_compositions_of_the_specification(horizon, std):
    """privacy-mechanisms, section 1: std at which 2H unit shifts are (1, 1e-6)-DP."""
    unit = math.sqrt(2) / std
    assert numerical.laplace_epsilon([(unit, 2 * horizon)], 1e-6) == pytest.approx(1.0, rel=3e-3)


def test_one_laplace_shift_is_the_closed_form():
    """delta(epsilon) = 1 - e^{(epsilon - shift/b)/2}."""
    for epsilon in (0.0, 0.3, 0.9):
        expected = 1 - math.exp((epsilon - 1.0) / 2)
        assert numerical.laplace_delta([(1.0, 1)], epsilon) == pytest.approx(expected, abs=1e-6)
    assert numerical.laplace_delta([(0.25, 2), (0.5, 1)], 1.0 + 1e-9) < 1e-12
    assert numerical.laplace_delta([(0.25, 2), (0.5, 1)], 0.9) > 1e-4


def test_very_many_small_shifts_do_not_drown_in_the_grid():
    """1e5 shifts of 1e-4: nearly Gaussian with mu = 1e-4 sqrt(1e5)."""
    found = numerical.laplace_epsilon([(1e-4, 100_000)], 1e-6)
    assert found == pytest.approx(budget.gdp_epsilon(1e-4 * math.sqrt(1e5), 1e-6), rel=1e-3)


def test_gaussian_curve_and_composition():
    mu = budget.gdp_mu(1.0, 1e-6)
    assert numerical.gaussian_epsilon([(mu, 1)], 1e-6) == pytest.approx(1.0, rel=1e-5)
    assert numerical.gaussian_epsilon([(mu, 9), (mu, 6)], 1e-6) == pytest.approx(
        budget.gdp_epsilon(math.sqrt(15) * mu, 1e-6), rel=1e-4
    )


@pytest.mark.parametrize("rho", [0.0175, 0.5])
def test_zcdp_through_the_renyi_accountant(rho):
    assert numerical.zcdp_epsilon_numerically(rho, 1e-6) == pytest.approx(
        budget.zcdp_epsilon(rho, 1e-6), rel=1e-4
    )


def test_discrete_gaussian_by_its_own_loss_is_nearly_the_continuous_one():
    """privacy-mechanisms, section 8: sigma = 26.726 for 40 unit shifts at (1, 1e-6)."""
    epsilon = numerical.composed_epsilon((("discrete_gaussian", 26.726, 1.0, 40),), 1e-6)
    assert epsilon == pytest.approx(1.0, rel=1e-3)
    assert epsilon < budget.zcdp_epsilon(20 / 26.726**2, 1e-6)


def test_bad_input_is_refused():
    for function in (numerical.laplace_epsilon, numerical.gaussian_epsilon):
        with pytest.raises(ValueError, match="shifts is empty"):
            function([], 1e-6)
        with pytest.raises(ValueError, match="delta"):
            function([(0.1, 1)], 0.0)
        with pytest.raises(ValueError, match="count"):
            function([(0.1, 0)], 1e-6)


def test_unlike_gaussian_mechanisms_compose_on_one_grid():
    shifts = [(0.021, 5), (0.1715, 1), (0.2, 2)]
    mu = sum(count * unit**2 for unit, count in shifts) ** 0.5
    assert numerical.gaussian_epsilon(shifts, 1e-5) == pytest.approx(budget.gdp_epsilon(mu, 1e-5), rel=2e-3)


@pytest.mark.parametrize(
    ("sigma", "shift", "interval"), [(5.0, 1, 1e-4), (40.0, 3, 2e-3), (3000.0, 128, 5e-5)]
)
def test_losses_of_fine_grids_are_those_of_the_library(sigma: float, shift: int, interval: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    own = numerical._discrete_gaussian_pld(sigma, shift, interval).self_compose(20)
    slow = pld.from_discrete_gaussian_mechanism(
        sigma, shift, value_discretization_interval=interval, use_connect_dots=True
    ).self_compose(20)
    for delta in (1e-9, 1e-6, 1e-2):
        assert own.get_epsilon_for_delta(delta) == slow.get_epsilon_for_delta(delta)


@pytest.mark.parametrize(
    "delta", [1e-10, *(pytest.param(d, marks=pytest.mark.statistics) for d in (3e-10, 1e-8))]
)
def test_rounding_of_transforms_is_on_the_safe_side(delta: float) -> None:
    """300 coordinates that move by 1: their sum alone tells, and is a discrete Gaussian of 300 times the
    variance (to 1e-90 at this sigma). Its curve, summed exactly, is below what is stated.
    """
    sigma, count = 5.7735, 300
    variance = count * sigma**2
    most = math.ceil(14 * math.sqrt(variance))
    noise = np.arange(-most, most + 1.0)
    weight = np.exp(-0.5 * noise**2 / variance)
    weight /= math.fsum(weight)
    loss = count * (count + 2.0 * noise) / (2.0 * variance)

    def beyond(epsilon: float) -> float:
        over = loss > epsilon
        return math.fsum((weight[over] * -np.expm1(epsilon - loss[over])).tolist()) - delta

    true = brentq(beyond, 0.0, 60.0, xtol=1e-13)
    stated = numerical.composed_epsilon((("discrete_gaussian", sigma, 1.0, count),), delta)
    assert true <= stated <= true + 0.003


def test_cited_files_are_there() -> None:
    """What the accountant's page cites is in the repository."""
    root = Path(__file__).parents[2]
    for name in re.findall(r"[\w/.-]+\.md\b", inspect.getsource(numerical)):
        assert list(root.rglob(name)), name
