"""Noise laws: exact tails, bounds that hold, standard deviations that are right."""

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.accounting.noise_distributions import distributions as laws
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, LaplaceSumLaw, NoNoise

REFERENCE = [  # spec/tabular.md, 4.1
    (1, 1e-6, 13.815511), (2, 1e-6, 16.013484), (4, 1e-6, 19.265758), (7, 1e-9, 31.523248),
    (14, 1e-9, 39.523370), (15, 1e-9, 40.510834), (100, 1e-6, 70.907064), (1000, 1e-6, 219.330199),
    (20000, 1e-9, 1222.144067),
]  # fmt: skip


def laplace_tail_in_fractions(m, y):
    """P(|sum of m Laplace| > y) by the finite sum of section 4.1, rational but for one exponential."""
    y = Fraction(y)
    power, poisson = Fraction(1), []  # sum of y^i / i! for i < j
    total = Fraction(0)
    for j in range(1, m + 1):
        total += power
        poisson.append(total)
        power *= y / j
    weights = [Fraction(math.comb(2 * m - j - 1, m - 1), 2 ** (2 * m - j)) for j in range(1, m + 1)]
    return float(2 * sum(a * q for a, q in zip(weights, poisson, strict=True))) * math.exp(-y)


@pytest.mark.parametrize(("m", "p", "expected"), REFERENCE)
def test_reference_quantiles(m, p, expected):
    assert laws.laplace_quantile(m, p) == pytest.approx(expected, abs=6e-7)


@pytest.mark.parametrize("m", [1, 2, 3, 10, 60, 200])
@pytest.mark.parametrize("p", [0.9, 0.5, 0.05, 1e-6, 1e-30, 1e-200])
def test_quantile_is_exact(m, p):
    q = laws.laplace_quantile(m, p)
    assert laplace_tail_in_fractions(m, q) == pytest.approx(p, rel=1e-10)


@pytest.mark.parametrize("m", [4_000_000, 10_000_000])
@pytest.mark.parametrize("p", [0.7, 0.05, 1e-6, 1e-12, 1e-100])
def test_expansion_for_very_many_terms_is_not_below_the_exact_quantile(m, p, monkeypatch):
    exact = laws._exact_quantile(m, p)
    monkeypatch.setattr(laws, "_LARGE", 10**6)
    laws._laplace_quantile.cache_clear()
    expanded = laws.laplace_quantile(m, p)
    laws._laplace_quantile.cache_clear()
    assert exact * (1 - 1e-10) <= expanded <= exact * (1 + 1e-6)


def test_quantile_grows_with_terms_and_falls_with_probability():
    m = sorted({*range(1, 60), *np.unique(np.logspace(1.8, 7, 60).astype(int)).tolist()})
    grown = [laws.laplace_quantile(k, 1e-7) for k in m]
    assert (np.diff(grown) > 0).all()
    fallen = [laws.laplace_quantile(15, p) for p in np.logspace(-250, -0.01, 200)]
    assert (np.diff(fallen) < 0).all()


@pytest.mark.parametrize("m", [1, 2, 4, 14, 100, 20_000])
@pytest.mark.parametrize("p", [0.2, 1e-3, 1e-9])
def test_closed_forms_are_above_the_exact_quantile(m, p):
    exact = laws.laplace_quantile(m, p)
    chernoff = laws.chernoff_bound(m, p)
    assert exact < chernoff
    assert exact < laws.chan_bound(m, p) < 5 * exact
    assert chernoff < (1.31 if p == 1e-9 else 1.5 if p == 1e-3 else 2.6) * exact


@pytest.mark.parametrize("m", [1, 3, 14, 300])
@pytest.mark.parametrize("p", [1e-2, 1e-3])
def test_quantile_by_simulation(m, p):
    """400 000 sums; false alarm below 1e-6 (5 standard errors)."""
    rng = np.random.default_rng(m)
    n = 400_000
    sums = rng.gamma(m, size=n) - rng.gamma(m, size=n)
    hits = np.mean(np.abs(sums) > laws.laplace_quantile(m, p))
    assert abs(hits - p) < 5 * math.sqrt(p / n)


def test_central_magnitudes_of_the_specification():
    """spec/tabular.md 4.5: H=20, S=6, A=2, K=20 000, epsilon 1, beta_fail 0.01, a third per family."""
    visits, moves, users = 240, 1440, 20_000
    central = {"scale": 1800.0, "terms": 14, "terms_bound": 14, "share": 1 / users}
    third = 0.01 / 3
    assert LaplaceSumLaw(**central, cells=visits, rows=visits).bound(third) == pytest.approx(72_035, rel=1e-5)
    n3 = LaplaceSumLaw(**central, cells=moves, rows=visits, row_size=6)
    assert n3.bound(third) == pytest.approx(76_380, rel=1e-5)
    assert n3.std() == pytest.approx(9_525, rel=1e-4)
    local = LaplaceSumLaw(120.0, users - 1, users - 1, visits, visits, share=1 / users)
    assert local.bound(third) == pytest.approx(148_045, rel=1e-5)
    assert local.std() == pytest.approx(23_999, rel=1e-4)
    gaussian = GaussianSumLaw(226.98, 14, 14, moves, visits, 6, share=1 / users)
    assert gaussian.bound(third) == pytest.approx(5_473, rel=1e-3)
    assert gaussian.std() == pytest.approx(849, rel=1e-3)


def tail_of_sum(mass, terms):
    """P(|sum| > k) for k = 0, 1, .. of ``terms`` independent copies of a symmetric law on integers."""
    law = np.ones(1)
    for _ in range(terms):
        law = np.convolve(law, mass)
    half = law.size // 2
    right = np.cumsum(law[half + 1 :][::-1])[::-1]  # P(sum > k)
    return 2 * np.append(right, 0.0)


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 4.0, 15.0])
@pytest.mark.parametrize("terms", [1, 2, 3, 8, 20])
def test_discrete_laplace_bound_holds_and_is_tight(scale, terms):
    x = np.arange(-int(60 * scale) - 8, int(60 * scale) + 9)
    mass = np.exp(-np.abs(x) / scale) * math.tanh(0.5 / scale)
    tail = tail_of_sum(mass, terms)
    for p in (0.3, 1e-2, 1e-5, 1e-9):
        law = LaplaceSumLaw(scale / 4, terms, terms, 1, 1, unit=0.25)
        bound = law.bound(p) * 4
        assert bound == round(bound)
        smallest = int(np.argmax(tail <= p))
        assert tail[int(bound)] <= p * (1 + 1e-9)
        assert bound <= smallest + 2 + math.ceil(0.35 * math.sqrt(terms) * (scale < 1))
    assert law.std() * 4 == pytest.approx(math.sqrt(terms * (mass * x * x).sum()), rel=1e-6)
    assert law.family == "discrete_laplace"


@pytest.mark.parametrize("sigma", [0.03, 0.2, 0.5, 1.0, 2.5, 9.0])
@pytest.mark.parametrize("terms", [1, 2, 5, 20])
def test_discrete_gaussian_bound_holds_and_is_tight(sigma, terms):
    x = np.arange(-int(14 * sigma) - 6, int(14 * sigma) + 7)
    mass = np.exp(-0.5 * (x / sigma) ** 2)
    mass /= mass.sum()
    tail = tail_of_sum(mass, terms)
    for p in (0.3, 1e-2, 1e-5, 1e-9):
        law = GaussianSumLaw(2 * sigma, terms, terms, 1, 1, unit=2.0)
        bound = law.bound(p) / 2
        smallest = int(np.argmax(tail <= p))
        assert tail[int(bound)] <= p * (1 + 1e-9)
        assert bound <= smallest + (1 if sigma >= 1 else 5)
    assert law.std() / 2 == pytest.approx(math.sqrt(terms * (mass * x * x).sum()), rel=1e-9, abs=1e-12)
    assert law.family == "discrete_gaussian"


@pytest.mark.parametrize(("m", "sigma"), [(1, 28.0), (15, 200.0), (10**6, 3.0), (10**6, 0.4), (7, 1e6)])
def test_discrete_gaussian_bound_is_about_the_gaussian_quantile(m, sigma):
    variance = laws.discrete_gaussian_variance(sigma)
    bound = laws.discrete_gaussian_bound(m, sigma, 1e-9)
    plain = math.sqrt(m * variance) * laws.gaussian_quantile(1e-9)
    assert plain * (1 - 1e-9) <= bound
    if sigma >= 1:  # below, the bound keeps sigma^2 where the variance is smaller
        assert bound <= plain * (1 + 1e-4) + 1


def test_moments_of_discrete_laws():
    assert laws.discrete_laplace_variance(46.0) == pytest.approx(2 * 46**2 - 1 / 6, rel=1e-7)
    assert laws.discrete_laplace_variance(1e-3) == 0.0
    assert laws.discrete_gaussian_variance(28.0) == 784.0
    assert laws.discrete_gaussian_variance(2.5) == pytest.approx(6.25, rel=1e-12)


def test_rows_and_cells_and_shares():
    law = LaplaceSumLaw(2.0, terms=5, terms_bound=8, cells=600, rows=100, row_size=6, share=0.01)
    assert law.bound(0.1) == 2 * laws.laplace_quantile(8, 0.1 * 0.01 / 600)
    assert law.bound(0.1, rows=True) == 2 * laws.laplace_quantile(48, 0.1 * 0.01 / 100)
    assert law.std() == 2 * math.sqrt(10)
    assert law.std_bound() == 2 * math.sqrt(16)
    gaussian = GaussianSumLaw(2.0, 5, 8, 600, 100, 6, 0.01)
    assert gaussian.bound(0.1, rows=True) == 2 * math.sqrt(48) * laws.gaussian_quantile(1e-5)
    assert (law.family, gaussian.family, law.exact) == ("laplace", "gaussian", True)


def test_nothing_released_yet_is_exact_zero():
    for law in (LaplaceSumLaw(2.0, 0, 0, 10, 10), GaussianSumLaw(2.0, 0, 0, 10, 10, unit=1.0), NoNoise()):
        assert law.std() == law.std_bound() == law.bound(0.05) == law.bound(0.05, rows=True) == 0.0
    assert NoNoise().family == "none"


def test_open_shares_sum_to_one():
    assert sum(laws.open_share(n) for n in range(1, 10_000)) == pytest.approx(1 - 1 / 10_000)


def test_a_term_of_smaller_scale_is_covered():
    """Two terms of scale b and one of b/2 against the bound for three of scale b."""
    law = LaplaceSumLaw(8.0, terms=2.25, terms_bound=3, cells=1, rows=1)
    rng = np.random.default_rng(5)
    sums = rng.laplace(0, 8, (400_000, 2)).sum(axis=1) + rng.laplace(0, 4, 400_000)
    assert np.mean(np.abs(sums) > law.bound(1e-3)) < 1e-3
    assert sums.std() == pytest.approx(law.std(), rel=5 * math.sqrt(2 / 400_000))


def test_bounds_fail_as_seldom_as_they_say():
    """2 000 trees of 8 users with 20 cells: any cell at any release beyond its bound, failure 0.2."""
    rng = np.random.default_rng(11)
    bad = 0
    for _ in range(2000):
        nodes = rng.laplace(0, 3.0, (8, 20))
        for n in range(1, 8):
            members, left = [], n
            while left:
                members.append(left)
                left &= left - 1
            law = LaplaceSumLaw(3.0, len(members), (n + 1).bit_length() - 1, 20, 20, share=1 / 7)
            if (np.abs(nodes[members].sum(axis=0)) > law.bound(0.2)).any():
                bad += 1
                break
    assert bad / 2000 <= 0.2 + 5 * math.sqrt(0.2 * 0.8 / 2000)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"scale": 0.0}, "scale"), ({"scale": math.nan}, "scale"), ({"terms": -1}, "terms"),
        ({"terms": 9}, "terms_bound"), ({"terms_bound": 2.5}, "terms_bound"), ({"cells": 0}, "cells"),
        ({"rows": 11}, "rows"), ({"row_size": 0}, "row_size"), ({"share": 0.0}, "share"),
        ({"share": 1.1}, "share"), ({"unit": 0.0}, "unit"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(change, name):
    good = {"scale": 1.0, "terms": 2, "terms_bound": 4, "cells": 10, "rows": 10}
    for law in (LaplaceSumLaw, GaussianSumLaw):
        with pytest.raises(ValueError, match=f"^{name} = "):
            law(**{**good, **change})


@pytest.mark.parametrize("failure", [0.0, 1.0, -0.1, math.nan])
def test_bad_failure_is_refused(failure):
    for law in (LaplaceSumLaw(1.0, 1, 1, 1, 1), GaussianSumLaw(1.0, 1, 1, 1, 1), NoNoise()):
        with pytest.raises(ValueError, match="failure"):
            law.bound(failure)
    with pytest.raises(ValueError, match="p = "):
        laws.laplace_quantile(3, failure)
