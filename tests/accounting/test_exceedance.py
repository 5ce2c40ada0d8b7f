"""How often a loss is above epsilon: bounds against laws that are known exactly."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import binom

import discreet as dr
from discreet.accounting import budget
from discreet.accounting import exceedance as exceeding
from discreet.accounting.binomial_noise import Flips
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.core.guarantee import MechanismRecord, guarantee_of, no_guarantee, parallel

POINTS = [(1.0, 1e-6), (1.0, 1e-5), (3.0, 1e-5), (0.1, 1e-6), (5.0, 1e-3), (0.01, 1e-8)]


def one_sum(noise, scale, delta=None, shift=1.0, exchanges=()):
    record = MechanismRecord("a sum", noise, {"v": scale}, {"v": shift}, shift / scale, 1, exchanges)
    secure = "secure" if noise.startswith("discrete") else "seeded"
    return guarantee_of("central", [record], randomness=secure, delta=delta)


@pytest.mark.parametrize(("epsilon", "delta"), POINTS)
def test_gaussian_noise(epsilon, delta):
    """The truth in closed form; the least of the bound over all orders, found by a minimiser."""
    mu = budget.gdp_mu(epsilon, delta)
    found = one_sum("gaussian", 1 / mu, delta).exceeds
    assert found["epsilon"] == pytest.approx(epsilon, rel=1e-9)
    true = float(ndtr(0.5 * mu - epsilon / mu))
    assert true <= found["at_most"] <= 3 * true
    best = minimize_scalar(
        lambda e: budget.gdp_delta(mu, e) / -math.expm1(e - epsilon), bounds=(0.0, epsilon * (1 - 1e-9)),
        method="bounded", options={"xatol": 1e-12},
    ).fun  # fmt: skip
    assert best * (1 - 1e-6) <= found["at_most"] <= 1.02 * best  # three digits, and a step of 0.1 delta


def test_the_numbers_that_pages_name():
    mu = budget.gdp_mu(1.0, 1e-6)
    assert one_sum("gaussian", 1 / mu, 1e-6).exceeds["at_most"] == 5.21e-5
    listed = dr.Central(epsilon=1.0, delta=1e-6).stored(
        dr.mechanisms.CountQuery(dr.Layout(2, 2, 2), center_rewards=True), dr.Secure()
    )
    assert listed.guarantee.exceeds["at_most"] == pytest.approx(5.2e-5, rel=0.02)
    rho, epsilon = listed.guarantee.rho, listed.guarantee.epsilon
    assert math.exp(-((epsilon - rho) ** 2) / (4 * rho)) == pytest.approx(2.2e-4, rel=0.02)


@pytest.mark.parametrize(("epsilon", "delta"), POINTS)
def test_rho_has_a_closed_form(epsilon, delta):
    """Chernoff's bound is the least of the general one over orders e and alpha."""
    rho = budget.zcdp_rho(epsilon, delta)
    closed = math.exp(-((epsilon - rho) ** 2) / (4 * rho))
    curve = exceeding.bound(
        lambda at: budget.zcdp_epsilon(rho, at), epsilon, delta, tuple(np.linspace(1.01, 6, 2000))
    )
    assert closed * (1 - 1e-9) <= curve <= closed * 1.01


@pytest.mark.parametrize(("sigma", "delta"), [(30.0, 1e-6), (8.0, 1e-6), (2.0, 1e-4)])
def test_discrete_gaussian_noise(sigma, delta):
    """By its rho, and by its listed exchange, against the exact sum of masses."""
    shift = 4
    x = np.arange(-math.ceil(14 * sigma), math.ceil(14 * sigma) + 1)
    p = np.exp(-0.5 * (x / sigma) ** 2)
    p /= p.sum()
    losses = (2 * x * shift + shift**2) / (2 * sigma**2)  # of outcomes x + shift under either law
    way = (("discrete_gaussian", sigma, float(shift), 1),)
    plain = one_sum("discrete_gaussian", sigma, delta, float(shift))
    for made in (plain, one_sum("discrete_gaussian", sigma, delta, float(shift), (way,))):
        true = float(p[losses > made.exceeds["epsilon"]].sum())
        assert 0.0 < true <= made.exceeds["at_most"]
    assert made.exceeds["at_most"] <= (4 if sigma > 2 else 16) * true  # of few integers, one mass is much
    assert made.exceeds["at_most"] <= plain.exceeds["at_most"] or made.epsilon < plain.epsilon


def test_laplace_noise_at_a_delta():
    """A pure epsilon that is at most the one at delta is never passed; else the curve's bound."""
    coordinates = (("discrete_laplace", 10.0, 1.0, 40),)
    record = MechanismRecord("sums", "discrete_laplace", {"v": 10.0}, {"v": 40.0}, 4.0, 1, (coordinates,))
    made = guarantee_of("central", [record], randomness="secure", delta=1e-6)
    up = np.arange(41)  # one coordinate's loss is 0.1 where its noise is at least 0, else -0.1
    masses = binom.pmf(up, 40, 1 / (1 + math.exp(-0.1)))
    true = float(masses[0.1 * (2 * up - 40) > made.epsilon].sum())
    assert made.epsilon < record.loss
    assert 0.0 < true <= made.exceeds["at_most"] <= 10 * true
    pure = guarantee_of("central", [dataclasses.replace(record, exchanges=())], randomness="secure")
    assert pure.exceeds == {"epsilon": pure.epsilon, "at_most": 0.0}


def test_shuffled_flips():
    """One counter of n fair flips that one person moves by one: exact binomial masses."""
    n = 4000
    record = BinomialRecord("bits", ((("visits", Flips(n, 1, 2**31)),),), ((("visits", 1, 1),),))
    made = guarantee_of("shuffle", [record], randomness="seeded", delta=1e-6)
    seen = np.arange(1, n + 1)  # with the person's own bit; without it, each has the mass of one flip more
    losses = np.log(seen / (n - seen + 1.0))
    true = float(binom.pmf(seen - 1, n, 0.5)[losses > made.epsilon].sum())
    assert true <= made.exceeds["at_most"] <= 6 * true


def test_kinds_have_the_worst():
    mu = budget.gdp_mu(1.0, 1e-6)
    worst, less = one_sum("gaussian", 1 / mu, 1e-6), one_sum("gaussian", 2 / mu, 1e-6)
    pure = one_sum("laplace", 2.0)
    both = parallel([("a", less), ("b", worst)])
    assert both.exceeds == worst.exceeds
    mixed = parallel([("a", less), ("b", pure)])  # at 0.5, that of the pure kind
    assert mixed.exceeds["epsilon"] == pure.epsilon
    true = float(ndtr(0.25 * mu - pure.epsilon / (0.5 * mu)))
    assert true <= mixed.exceeds["at_most"] < less.exceeds["at_most"]


def test_nothing_is_said_where_nothing_is_promised():
    assert no_guarantee("seeded").exceeds is None
    assert one_sum("laplace", 2.0).exceeds == {"epsilon": 0.5, "at_most": 0.0}


def test_a_curve_that_is_of_no_use_gives_one():
    assert exceeding.bound(lambda _: 1.0, 1.0, 1e-6) == 1.0
    assert exceeding.bound(lambda _: 0.0, 1.0, 0.9) == 1.0
