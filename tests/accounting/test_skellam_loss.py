"""Bound of the Renyi divergence of Skellam noise against divergences summed over the integers."""

import math

import numpy as np
import pytest
from mpmath import mp
from scipy import special

from discreet.accounting.skellam_loss import SkellamLoss
from discreet.core import epsilon_conversions as conversions


def log_masses(v: float, reach: int) -> np.ndarray:
    k = np.abs(np.arange(-reach, reach + 1))
    with np.errstate(divide="ignore"):
        return np.log(special.ive(k, v))  # e^-v I_k(v)


def reach_of(v: float, d: int) -> int:
    return int(12 * math.sqrt(v) + d + 20)


def renyi(v: float, d: int, order: float) -> float:
    reach = reach_of(v, d)
    p = log_masses(v, reach + d)
    shifted, plain = p[: -d or None][d:], p[2 * d :]
    terms = order * shifted + (1 - order) * plain
    terms = terms[np.isfinite(terms)]
    return float(special.logsumexp(terms)) / (order - 1)


def loss(pairs) -> SkellamLoss:
    mu = math.sqrt(sum(d * d / v for v, d in pairs))
    l1, step = sum(d / v for v, d in pairs), max(d / v for v, d in pairs)
    return SkellamLoss(mu, l1, step, max(d for _, d in pairs), min(v for v, _ in pairs))


@pytest.mark.parametrize("v", [2.0, 10.0, 200.0, 5000.0])
@pytest.mark.parametrize("d", [1, 2, 7, 30])
@pytest.mark.parametrize("order", [1.1, 1.7, 3.0, 12.0, 40.0])
def test_bound_of_one_coordinate(v, d, order):
    if order * d / math.sqrt(v) > 12:
        pytest.skip("the sum over integers would need more of them")
    true = renyi(v, d, order)
    bound = loss([(v, d)]).renyi(order)
    assert true <= bound * (1 + 1e-9)
    if v >= 5000 and order > 2:
        assert bound <= true * 1.01 + order * d / v  # the bound is near


@pytest.mark.parametrize("pairs", [((50.0, 3), (80.0, 5)), ((400.0, 20), (4000.0, 30)), ((20.0, 1), (30.0, 1))])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_epsilon_of_products_holds_in_the_hockey_stick(pairs, delta):
    """The two-dimensional hockey-stick divergence at the stated epsilon is at most delta, in both directions."""
    epsilon = loss(pairs).epsilon(delta)
    if not math.isfinite(epsilon):
        pytest.skip("no epsilon")
    masses = []
    for v, d in pairs:
        reach = reach_of(v, d)
        p = log_masses(v, reach + d)
        masses.append((p[d:-d], p[: -2 * d]))
    plain = masses[0][0][:, None] + masses[1][0][None]
    for signs in ((1, 1), (1, -1)):
        second = masses[1][1] if signs[1] == 1 else masses[1][1][::-1]
        base = masses[1][0] if signs[1] == 1 else masses[1][0][::-1]
        shifted = masses[0][1][:, None] + second[None]
        plain = masses[0][0][:, None] + base[None]
        for one, other in ((shifted, plain), (plain, shifted)):
            found = np.maximum(np.exp(one) - np.exp(np.minimum(epsilon + other, 700.0)), 0.0).sum()
            assert found <= delta
            assert found > delta * 1e-3  # and the stated epsilon is no trivial one


def test_bounds_of_amos_that_the_proof_uses():
    mp.dps = 40
    for v in (0.5, 2, 30, 1000):
        for i in (0, 1, 5, 40, 300):
            e = mp.log(mp.besseli(i, v) / mp.besseli(i + 1, v))
            assert mp.asinh((i + mp.mpf(1) / 2) / v) <= e <= mp.asinh((i + 1) / mp.mpf(v))


def test_large_variance_gives_the_epsilon_of_zcdp():
    found = SkellamLoss(0.25, 1e-9, 1e-9, 1.0, 1e9).epsilon(1e-6)
    assert found == pytest.approx(conversions.zcdp_epsilon(0.5 * 0.25**2, 1e-6), rel=1e-5)
    assert found >= conversions.zcdp_epsilon(0.5 * 0.25**2, 1e-6)


def test_published_theorem_at_integer_orders():
    """Theorem 3.5 of arXiv 2110.04995 is another proved bound; both exceed a mu^2 / 2 by little."""
    pairs = [(9e9, 16000)] * 40
    own = loss(pairs)
    for order in (2, 8, 30):
        published = sum(
            order * d * d / (2 * v) + min(((2 * order - 1) * d * d + 6 * d) / (4 * v * v), 1.5 * d / v)
            for v, d in pairs
        )
        assert own.renyi(order) == pytest.approx(published, rel=1e-3)


def test_numbers_that_are_refused():
    with pytest.raises(ValueError, match="mu = 0"):
        SkellamLoss(0.0, 1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="delta"):
        SkellamLoss(1.0, 1.0, 1.0, 1.0, 1.0).epsilon(0.0)
    assert SkellamLoss(1e3, 1.0, 1.0, 1.0, 1.0).epsilon(1e-6) == math.inf
