"""The law of coin flips: quantiles against exact sums of probabilities."""

import numpy as np
import pytest
from scipy.stats import binom

from discreet.accounting.noise_distributions.binomial import BinomialLaw, binomial_quantile, merged


def exact_tail(components, x):
    mass, mean = np.ones(1), 0.0
    for n, p in components:
        mass, mean = np.convolve(mass, binom.pmf(np.arange(n + 1), n, p)), mean + n * p
    away = np.abs(np.arange(mass.size) - mean)
    return mass[away > x + 1e-9].sum(), np.sort(away[away < x - 1e-9])


@pytest.mark.parametrize(
    "components",
    [
        ((10, 0.5),),
        ((2857, 0.5),),
        ((4000, 0.007),),
        ((300, 0.5), (900, 0.1)),
        ((40, 0.2), (40, 0.8)),
        ((7, 0.1),),
    ],
)
@pytest.mark.parametrize("p", [0.3, 1e-3, 1e-6, 3e-9, 1e-11])
def test_quantile_is_never_too_small_and_hardly_too_large(components, p):
    x = binomial_quantile(components, p)
    tail, nearer = exact_tail(components, x)
    assert tail <= p
    if p > 1e-9 and nearer.size:
        assert exact_tail(components, nearer[-1])[0] > p * (1 - 1e-3)  # the next smaller value is too small
    deviation = np.sqrt(sum(n * q * (1 - q) for n, q in components))
    assert x < 12 * deviation + 8


def test_equal_flips_are_counted_together():
    assert merged(((3, 0.5), (4, 0.25), (5, 0.5))) == ((8, 0.5), (4, 0.25))
    assert binomial_quantile(((3, 0.5), (5, 0.5)), 1e-2) == binomial_quantile(((8, 0.5),), 1e-2)


def test_law_of_a_release():
    law = BinomialLaw(((2857, 0.5),), 1.0, 1440, 240, 6, 0.01)
    assert law.std() == law.std_bound() == pytest.approx(np.sqrt(2857) / 2)
    assert law.bound(0.05) == binomial_quantile(((2857, 0.5),), 0.05 * 0.01 / 1440)
    assert law.bound(0.05, rows=True) == binomial_quantile(((6 * 2857, 0.5),), 0.05 * 0.01 / 240)
    half = BinomialLaw(law.components, 0.5, 240, 240)
    assert half.std() == law.std() / 2
    nobody = BinomialLaw((), 1.0, 10, 10)
    assert nobody.std() == nobody.bound(0.1) == 0.0
    for wrong in (((0, 0.5),), ((5, 1.0),)):
        with pytest.raises(ValueError, match="components"):
            BinomialLaw(wrong, 1.0, 10, 10)
    with pytest.raises(ValueError, match="failure"):
        law.bound(0.0)
