"""Numerical calibration: patterns by brute force, the spec's table, and an independent Monte Carlo delta."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from discreet.accounting import pld as numerical
from discreet.accounting import pld_calibration as calibration
from discreet.accounting import pld_convolution as convolution
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.privatizers.central import Central


def histories(layout, rewards):
    """Every trajectory of a tiny problem."""
    for states in itertools.product(range(layout.states), repeat=layout.horizon + 1):
        for actions in itertools.product(range(layout.actions), repeat=layout.horizon):
            for r in itertools.product(rewards, repeat=layout.horizon):
                yield Trajectory(np.array(states), np.array(actions), np.array(r))


@pytest.mark.parametrize("options", [{"visits": False, "center_rewards": True}, {"visits": True}])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_no_exchange_of_a_user_costs_more_than_the_patterns(options, noise):
    query = CountQuery(Layout(2, 2, 2, None), **options)
    scales = [(name, 6.0 + i, 1) for i, name in enumerate(query.row_families)]
    patterns = calibration.shift_patterns(query, 1)
    worst = numerical.worst_epsilon(calibration.exchanges(patterns, noise, scales), 1e-3, 20)
    by_name = {name: scale for name, scale, _ in scales}
    sums = [query.contribution(t) for t in histories(query.layout, (0.0, 0.5, 1.0))]
    rng = np.random.default_rng(5)
    seen = set()
    for i, j in rng.integers(len(sums), size=(4000, 2)).tolist():
        moved = []
        for name in query.families:
            change = np.abs(sums[i][name] - sums[j][name])
            for shift, count in zip(*np.unique(change[change > 0], return_counts=True), strict=True):
                moved.append((noise, by_name[name], float(shift), int(count)))
        seen.add(tuple(moved))
    assert len(seen) > 10
    power = 1 if noise == "laplace" else 2

    def size(moved):
        return sum(count * (shift / scale) ** power for _, scale, shift, count in moved)

    largest = sorted((moved for moved in seen if moved), key=size, reverse=True)[:6]
    found = max(numerical.composed_epsilon(m, 1e-3, 20) for m in largest)
    assert found <= worst * (1 + 1e-9)
    assert found >= worst * 0.9  # and the worst pattern is not far beyond what trajectories can do


@pytest.mark.parametrize(("horizon", "std"), [(1, 2.83), (5, 14.13), (10, 24.6), (20, 36.2), (50, 58.7)])
def test_laplace_at_delta_reproduces_the_table(horizon, std):
    pattern = ((TRANSITIONS, 1.0, 2 * horizon),)
    pure = 2.0 * horizon
    factor = calibration.least_factor((pattern,), "laplace", ((TRANSITIONS, pure, 1),), 1.0, 1e-6, 1.0, 1.0)
    assert math.sqrt(2) * factor * pure == pytest.approx(std, rel=6e-3)


def test_discrete_gaussian_needs_no_more_noise_than_the_continuous_one():
    pattern = ((TRANSITIONS, 1.0, 40),)
    factor = calibration.least_factor(
        (pattern,), "discrete_gaussian", ((TRANSITIONS, 28.66, 1),), 1.0, 1e-6, 1.0, 0.933
    )
    assert factor * 28.66 == pytest.approx(26.726, rel=4e-3)  # continuous: 26.719


def log_masses(sigma, half):
    x = np.arange(-half, half + 1)
    log_p = -0.5 * (x / sigma) ** 2
    return x, log_p - np.log(np.exp(log_p).sum())


def test_delta_agrees_with_importance_sampling():
    """delta(epsilon) of 40 unit shifts at sigma = 6, by sampling from the tilted loss: 5 standard errors."""
    sigma, count, delta = 6.0, 40, 1e-4
    epsilon = numerical.composed_epsilon((("discrete_gaussian", sigma, 1.0, count),), delta)
    x, log_p = log_masses(sigma, 80)
    loss = np.full(x.size, 50.0)
    loss[1:] = log_p[1:] - log_p[:-1]  # ln p(x) / p(x - 1): the upper world is x, the lower x + 1
    log_up, loss = log_p, -np.roll(loss, -1)
    loss[-1] = log_up[-1] - (-0.5 * ((x[-1] + 1) / sigma) ** 2)
    tilt = (epsilon - count * (np.exp(log_up) * loss).sum()) / (count * (1 / sigma**2))
    weight = log_up + tilt * loss
    normal = np.log(np.exp(weight - weight.max()).sum()) + weight.max()
    rng = np.random.default_rng(11)
    draws = rng.choice(x.size, p=np.exp(weight - normal), size=(200_000, count))
    total = loss[draws].sum(axis=1)
    values = np.exp(count * normal - tilt * total) * np.maximum(0.0, -np.expm1(epsilon - total))
    error = values.std() / math.sqrt(values.size)
    assert values.mean() == pytest.approx(delta, abs=5 * error + 0.02 * delta)  # losses are rounded up


WAYS = {
    "discrete_gaussian": [("visits", 5.4, 1), ("transitions", 5.4, 1), ("centered rewards", 3.8, 1024)],
    "discrete_laplace": [("visits", 6.0, 1), ("transitions", 6.0, 1), ("centered rewards", 3.0, 64)],
    "laplace": [("visits", 6.0, 1), ("transitions", 6.0, 1), ("centered rewards", 3.0, 1)],
}


@pytest.mark.parametrize("noise", sorted(WAYS))
def test_ways_that_are_left_out_cost_no_more(noise):
    """The worst of all ways, each on the fine grid, though only few are composed there."""
    query = CountQuery(Layout(3, 2, 6, None), center_rewards=True)
    by_name = {name.replace(" ", "_"): (scale, grid) for name, scale, grid in WAYS[noise]}
    scales = [(name, *by_name.get(name, (3.8, 64))) for name in query.row_families]
    ways = calibration.exchanges(calibration.shift_patterns(query, 1), noise, scales)
    most = max(sum(count for *_, count in way) for way in ways)
    fine = [numerical.composed_epsilon(way, 1e-6, most) for way in ways]
    numerical.composed_epsilon.cache_clear()
    assert numerical.worst_epsilon(ways, 1e-6) == max(fine)
    assert numerical.composed_epsilon.cache_info().misses < len(ways)
    for bound, way in zip(numerical.coarse_epsilons(ways, 1e-6), ways, strict=True):
        true = convolution.recomposed_epsilon(way, 1e-6)  # at most 1e-4 of itself too large
        few = sum(count for *_, count in way) < 10  # then a grid of losses is coarser beside their sum
        assert true * (1 - 1e-4) <= bound <= true * (1 + (1e-2 if few else 2e-3))


def shifts_of(moves):
    """By family, the shifts in descending order, from (family, shift, number)."""
    found = {}
    for name, shift, count in moves:
        found[name] = sorted(found.get(name, []) + [abs(shift)] * count, reverse=True)
    return found


@pytest.mark.parametrize("options", [{}, {"visits": False}, {"center_rewards": False}], ids=str)
def test_every_pair_of_users_moves_no_more_than_a_listed_way(options):
    """Three steps, two states and actions: a pattern has at least its shifts, one by one, in each family."""
    query = CountQuery(Layout(2, 2, 3), **{"center_rewards": True, **options})
    patterns = [shifts_of(pattern) for pattern in calibration.shift_patterns(query, 1)]
    bits = list(itertools.product((0, 1), repeat=3))
    users = [
        query.contribution(Trajectory(np.array((first, *after)), np.array(actions), np.array(rewards, float)))
        for first in (0, 1)
        for after in bits
        for actions in bits
        for rewards in bits
    ]
    counts = [np.array([one[name].ravel() for one in users]) for name in query.families]
    rows = set()
    for i in range(512):  # the other half is the mirror image
        moved = [-np.sort(-np.abs(held - held[i]), axis=1) for held in counts]
        rows |= {row.tobytes() for row in np.hstack(moved)}
    ends = np.cumsum([held.shape[1] for held in counts])[:-1]
    seen = set()
    for row in rows:
        parts = zip(query.families, np.split(np.frombuffer(row), ends), strict=True)
        seen.add(tuple((name, tuple(shifts[shifts > 0])) for name, shifts in parts))
    for moves in seen:
        assert any(
            all(
                len(shifts) <= len(pattern.get(name, []))
                and all(a <= b for a, b in zip(shifts, pattern[name], strict=False))
                for name, shifts in moves
                if shifts
            )
            for pattern in patterns
        )
    listed = {tuple((name, tuple(pattern.get(name, ()))) for name in query.families) for pattern in patterns}
    assert listed <= seen  # and each of them is a pair of users


@pytest.mark.parametrize("wrong", [0.5, 0.9, 1.1, 2.0])
def test_a_search_that_is_misled_ends_on_noise_that_meets_the_budget(monkeypatch, wrong):
    """The coarse search only proposes: whatever it says, the exact accountant allows the factor."""
    pattern = ((TRANSITIONS, 1.0, 40),)
    asked = ((pattern,), "discrete_gaussian", ((TRANSITIONS, 28.66, 1),), 1.0, 1e-6, 1.0, 0.933)
    calibration.least_factor.cache_clear()
    right = calibration.least_factor(*asked)
    calibration.least_factor.cache_clear()
    coarse = numerical.coarse_epsilons
    monkeypatch.setattr(numerical, "coarse_epsilons", lambda *a: [wrong * x for x in coarse(*a)])
    found = calibration.least_factor(*asked)
    calibration.least_factor.cache_clear()
    ways = calibration.exchanges((pattern,), "discrete_gaussian", asked[2], found)
    assert 0.995 < numerical.worst_epsilon(ways, 1e-6) <= 1.0
    assert found == pytest.approx(right, rel=6e-3)


def test_bad_input():
    with pytest.raises(ValueError, match="whole number of grid units"):
        numerical.composed_epsilon((("discrete_gaussian", 5.0, 0.5, 2),), 1e-6)
    with pytest.raises(ValueError, match="at least 1e-10"):
        numerical.composed_epsilon((("gaussian", 5.0, 1.0, 2),), 1e-12)
    with pytest.raises(ValueError, match="coordinates is empty"):
        numerical.composed_epsilon((), 1e-6)
    with pytest.raises(ValueError, match="exchanges is empty"):
        numerical.worst_epsilon((), 1e-6)
    assert calibration.shift_patterns(CountQuery(Layout(2, 2, 2, None), stationary=True), 1) is None


REFERENCE = CountQuery(Layout(6, 2, 20, None), visits=False, center_rewards=True, reward_share=0.1)


@pytest.mark.parametrize("release", ["batches", "tree"])
def test_secure_gaussian_noise_is_as_small_as_the_continuous_one(release):
    """7 % less than by zCDP; the session's guarantee is recomputed and is what was asked for."""
    schedule = Schedule(200, growth=1.5, reads="measurements" if release == "batches" else "sums")
    privatizer = Central(epsilon=1.0, delta=1e-6, release=release, noise="gaussian")
    secure, seeded = (privatizer.start(REFERENCE, schedule, source) for source in (Secure(), Seeded(0)))
    ratio = secure.mechanism.scales / seeded.mechanism.scales
    assert (ratio > 1).all()
    assert (ratio < 1.004).all()
    guarantee = secure.guarantee
    assert 0.995 < guarantee.epsilon <= 1.0
    assert guarantee.delta == 1e-6
    assert guarantee.mu is None  # not proved for discrete noise
    assert "privacy-loss distribution" in guarantee.composition[-1]
    assert type(guarantee).from_dict(guarantee.to_dict()) == guarantee


def test_laplace_at_delta_beats_the_pure_one_and_says_delta():
    schedule = Schedule(200, growth=1.5)
    pure = Central(epsilon=1.0, noise="laplace", release="batches").start(REFERENCE, schedule, Seeded(0))
    for source, noise in ((Seeded(0), "Laplace"), (Secure(), "discrete Laplace")):
        privatizer = Central(epsilon=1.0, delta=1e-6, noise="laplace", release="batches")
        session = privatizer.start(REFERENCE, schedule, source)
        assert (session.mechanism.scales < 0.65 * pure.mechanism.scales).all()
        assert 0.99 < session.guarantee.epsilon <= 1.0
        assert session.guarantee.delta == 1e-6
        assert f"Noise: {noise} noise" in session.guarantee.statement or noise in session.guarantee.statement


@pytest.mark.parametrize("release", ["signed-digits", "decaying"])
def test_noise_that_is_not_fresh_keeps_its_closed_form(release):
    """Early noise (signed digits) and sums that remember (decaying) are outside the proof."""
    schedule = Schedule(200, growth=1.5)
    if release == "signed-digits":
        session = Central(epsilon=1.0, delta=1e-6, noise="laplace", release=release).start(
            REFERENCE, schedule, Seeded(0)
        )
        assert session.guarantee.delta == 0.0
        assert session.guarantee.epsilon == pytest.approx(1.0)
    else:
        session = Central(epsilon=1.0, delta=1e-6, release=release).start(REFERENCE, schedule, Seeded(0))
        assert session.guarantee.mu is not None


def test_a_number_that_no_accounting_gives_is_refused():
    schedule = Schedule(200, growth=1.5)
    privatizer = Central(epsilon=1.0, delta=1e-6, noise="laplace", release="batches")
    guarantee = privatizer.start(REFERENCE, schedule, Seeded(0)).guarantee
    with pytest.raises(ValueError, match="which the mechanisms give"):
        dataclasses.replace(guarantee, epsilon=2.0)
    with pytest.raises(ValueError, match="which the mechanisms give"):
        dataclasses.replace(guarantee, epsilon=0.5)
