"""Exact noise of a device: the laws, against their probabilities, and what is refused."""

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.device.discrete_noise import ExactCoins, _minus_exp, discrete_gaussian, discrete_laplace


@pytest.mark.parametrize("scale", [0.4, 1.5, Fraction(7, 3), 20.0])
@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_draws_have_their_law(draw, scale):
    """Chi-squared over cells of at least 20 expected draws: a false alarm has probability 1e-7."""
    n, b = 6000, float(scale)
    found = draw(scale, n, random.Random(5).randrange)
    support = np.arange(-400, 401)
    weights = np.exp(-np.abs(support) / b if draw is discrete_laplace else -(support**2) / (2 * b * b))
    chances = weights / weights.sum()
    inner = n * chances >= 20
    expected = np.append(n * chances[inner], n * chances[~inner].sum())
    counts = np.array([np.count_nonzero(found == x) for x in support[inner]])
    counts = np.append(counts, n - counts.sum())
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, len(counts) - 1) > 1e-7


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_a_coin_of_probability_e_to_the_minus_gamma(gamma):
    below, n = random.Random(1).randrange, 8000
    found = sum(_minus_exp(gamma.numerator, gamma.denominator, below) for _ in range(n))
    chance = float(np.exp(-float(gamma)))
    assert stats.binomtest(found, n, chance).pvalue > 1e-7


def test_rewards_are_rounded_without_bias():
    coins = ExactCoins(random.Random(2).randrange)
    found = coins.rounded(np.full(8000, 0.3), 2)
    assert set(found) == {0.0, 0.5}
    assert stats.binomtest(int((found > 0).sum()), 8000, 0.6).pvalue > 1e-7
    on_the_grid = np.array([0.0, 0.25, 1.0])
    assert np.array_equal(coins.rounded(on_the_grid, 4), on_the_grid)


def test_what_hides_nothing_is_refused():
    for call in (lambda: ExactCoins().normal(1.0, 1), lambda: ExactCoins().rounded(np.zeros(1), None)):
        with pytest.raises(ValueError, match="grid"):
            call()
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match="scale"):
            discrete_gaussian(scale, 1)
    noise = ExactCoins().laplace(2.0, 50, 4) * 4
    assert np.array_equal(noise, np.round(noise))
    assert noise.any()
