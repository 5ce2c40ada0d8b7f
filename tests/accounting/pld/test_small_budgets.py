"""Very small and very large budgets: bounded grids, and a stated epsilon that stays an upper bound."""

import math
from typing import Any

import numpy as np
import pytest

from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting import pld_convolution as convolution
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure
from discreet.mechanisms.privatizers.central import Central

DELTA = 1e-6
WIDE = numerical._MOST_INTEGERS


def exact_delta(sigma: float, shift: int, epsilon: float) -> float:
    """delta(epsilon) of one shifted discrete Gaussian variable, by the sum over its integers."""
    reach = math.ceil(12 * sigma) + shift
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    masses = np.exp(-0.5 * (z / sigma) ** 2)
    masses /= masses.sum()
    # the loss of z under the law that is not moved, against the one that is moved by -shift
    losses = shift * (shift + 2.0 * z) / (2.0 * sigma**2)
    over = losses > epsilon
    return math.fsum((masses[over] * -np.expm1(epsilon - losses[over])).tolist())


@pytest.mark.parametrize(("epsilon", "shift"), [(1e-3, 1), (1e-2, 1), (3e-2, 1), (1e-2, 512)])
def test_one_moved_coordinate_is_an_upper_bound_by_sums_over_integers(epsilon: float, shift: int) -> None:
    sigma = shift / budget.gdp_mu(epsilon, DELTA)
    found = numerical.composed_epsilon((("discrete_gaussian", sigma, float(shift), 1),), DELTA)
    assert exact_delta(sigma, shift, found) <= DELTA
    assert exact_delta(sigma, shift, found * (1 - 6e-3)) > DELTA


@pytest.mark.parametrize("sigma", [4.0, 11.5, 60.0])
def test_masses_of_integers_are_near_those_of_cells(sigma: float) -> None:
    """The two inequalities on which the closed form of discrete noise rests."""
    reach = min(math.sqrt(0.8) * sigma, 30.0)
    j = np.arange(-math.floor(reach * sigma), math.floor(reach * sigma) + 1, dtype=np.float64)
    far = np.arange(-50 * math.ceil(sigma), 50 * math.ceil(sigma) + 1, dtype=np.float64)
    own = np.exp(-0.5 * (j / sigma) ** 2) / np.exp(-0.5 * (far / sigma) ** 2).sum()
    ratio = np.log(own) - np.log(convolution._normal_mass((j - 0.5) / sigma, (j + 0.5) / sigma))
    below = ((j / sigma) ** 2 + 1) / (22 * sigma**2)
    assert (ratio <= 1 / (23 * sigma**2) + 1e-12).all()
    assert (ratio >= -below - 1e-12).all()
    assert ratio.min() < -0.7 * below.max()  # and they are not far from equality


@pytest.mark.parametrize(("sigma", "count"), [(40.0, 1), (40.0, 16), (300.0, 9)])
def test_slack_covers_what_integers_and_cells_differ_by(sigma: float, count: int) -> None:
    """Both sides of the proof: where P is above P' anywhere, and where Q is below Q' within reach."""
    reach = 1 / sigma + math.sqrt(2.0 * math.log(2e3 * count / DELTA))
    j = np.arange(-math.floor(reach * sigma), math.floor(reach * sigma) + 1, dtype=np.float64)
    far = np.arange(-50 * math.ceil(sigma), 50 * math.ceil(sigma) + 1, dtype=np.float64)
    own = np.exp(-0.5 * (j / sigma) ** 2) / np.exp(-0.5 * (far / sigma) ** 2).sum()
    ratio = np.log(own) - np.log(convolution._normal_mass((j - 0.5) / sigma, (j + 0.5) / sigma))
    near, slack = numerical._as_continuous([("discrete_gaussian", sigma, 1.0, count)], DELTA)
    assert count * (ratio.max() - ratio.min()) <= slack <= 4 * count * (ratio.max() - ratio.min())
    outside = 2 * count * math.exp(-0.5 * (reach - 1 / sigma) ** 2)
    assert near * math.exp(count * ratio.max()) + outside <= DELTA


@pytest.mark.parametrize("sigma", [40.0, 300.0])
def test_closed_form_of_wide_noise_is_the_sum_over_integers(
    monkeypatch: pytest.MonkeyPatch, sigma: float
) -> None:
    """The same noise with and without a grid: never less than the truth, by slack more at most."""
    way = [("discrete_gaussian", sigma, 1.0, 12), ("discrete_gaussian", 1.5 * sigma, 2.0, 4)]
    true = convolution.recomposed_epsilon(way, DELTA)
    monkeypatch.setattr(numerical, "_MOST_INTEGERS", 10.0)
    closed = numerical._composed(way, DELTA, None)
    _, slack = numerical._as_continuous(way, DELTA)
    assert true * (1 - 1e-4) <= closed
    assert closed <= true * (1 + 1e-3) + slack


def test_wide_noise_beside_laplace_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A composition of both, as of several releases: wide coordinates become continuous on the grid."""
    way = [("discrete_gaussian", 300.0, 1.0, 12), ("discrete_laplace", 100.0, 1.0, 4)]
    on_grid = numerical._composed(way, DELTA, None)
    monkeypatch.setattr(numerical, "_MOST_INTEGERS", 10.0)
    found = numerical._composed(way, DELTA, None)
    assert convolution.recomposed_epsilon(way, DELTA) * (1 - 1e-4) <= found
    assert found == pytest.approx(on_grid, rel=5e-3)


def test_small_sigma_has_no_closed_form_but_zcdp() -> None:
    """Where the proof does not hold, the bound by zCDP stands."""
    way = [("discrete_gaussian", 1.0, 1.0, 1), ("discrete_gaussian", 4.0 * WIDE, 1.0, 1)]
    assert numerical._as_continuous(way, DELTA)[1] == math.inf
    rho = 0.5 * sum((shift / scale) ** 2 for _, scale, shift, _ in way)
    assert numerical._composed(way, DELTA, None) == budget.zcdp_epsilon(rho, DELTA)


CASES = [
    (noise, epsilon, horizon)
    for noise in ("gaussian", "laplace")
    for epsilon in (1e-6, 1e-3, 1e-2, 3e-2)
    for horizon in (3, 8)
] + [("gaussian", 50.0, 4), ("gaussian", 100.0, 4)]


@pytest.mark.parametrize(("noise", "epsilon", "horizon"), CASES)
def test_secure_release_at_any_epsilon(
    monkeypatch: pytest.MonkeyPatch, noise: Any, epsilon: float, horizon: int
) -> None:
    """At most the budget that was asked for, never below an independent computation, on bounded grids."""
    points, integers = [], [0.0]
    on_grid, summed = numerical._on_grid, numerical._discrete_gaussian_pld

    def seen(kept: Any, delta: float, interval: float, coarse: bool) -> float:
        together = math.sqrt(math.fsum(count * (shift / scale) ** 2 for _, scale, shift, count in kept))
        points.append(together * (together + 24.0) / interval)
        return on_grid(kept, delta, interval, coarse)

    def told(sigma: float, shift: int, interval: float) -> Any:
        integers.append(sigma)
        return summed(sigma, shift, interval)

    monkeypatch.setattr(numerical, "_on_grid", seen)
    monkeypatch.setattr(numerical, "_discrete_gaussian_pld", told)
    query = CountQuery(Layout(2, 2, horizon), visits=False, center_rewards=True)
    with Central(epsilon=epsilon, delta=DELTA, noise=noise).stored(query, Secure()) as session:
        guarantee, records = session.guarantee, session.records
    assert guarantee.epsilon is not None
    assert guarantee.epsilon <= epsilon * (1 + 1e-9)
    assert guarantee.epsilon >= 0.98 * epsilon
    found = max(convolution.recomposed_epsilon(way, DELTA) for way in records[0].exchanges)
    assert found * (1 - 2e-4) <= guarantee.epsilon
    assert max(points, default=0.0) <= numerical._MOST_POINTS * (1 + 1e-9)
    assert max(integers) <= WIDE


def test_delta_below_the_least_one_is_closed() -> None:
    """1e-15: no numbers, zCDP."""
    query = CountQuery(Layout(2, 2, 3), visits=False, center_rewards=True)
    with Central(epsilon=1.0, delta=1e-15, noise="gaussian").stored(query, Secure()) as session:
        guarantee, records = session.guarantee, session.records
    assert not records[0].exchanges
    assert guarantee.epsilon == pytest.approx(1.0)
    assert guarantee.delta == 1e-15


def test_long_grids_are_shortened_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large epsilon over many coordinates: a shorter grid, on which epsilon is the same to 1e-5."""
    way = [("discrete_gaussian", 1.0, 1.0, 60)]
    whole = numerical._composed(way, DELTA, None)
    monkeypatch.setattr(numerical, "_MOST_POINTS", 40_000)
    assert numerical._grid(way, None)[0] > numerical._usual(way, None)
    short = numerical._composed(way, DELTA, None)
    assert convolution.recomposed_epsilon(way, DELTA) * (1 - 1e-4) <= short
    assert short == pytest.approx(whole, rel=1e-5)
