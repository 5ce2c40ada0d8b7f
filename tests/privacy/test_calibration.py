"""Numerical calibration: patterns by brute force, the spec's table, and an independent Monte Carlo delta."""

import itertools
import math

import numpy as np
import pytest

from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectory
from discreet.privacy import accounting, calibration
from discreet.privacy.counts import TRANSITIONS, CountQuery


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
    worst = accounting.worst_epsilon(calibration.exchanges(patterns, noise, scales), 1e-3, 20)
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
    found = max(accounting.composed_epsilon(m, 1e-3, 20) for m in largest)
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
    assert factor * 28.66 == pytest.approx(26.726, rel=2e-3)  # continuous: 26.719


def log_masses(sigma, half):
    x = np.arange(-half, half + 1)
    log_p = -0.5 * (x / sigma) ** 2
    return x, log_p - np.log(np.exp(log_p).sum())


def test_delta_agrees_with_importance_sampling():
    """delta(epsilon) of 40 unit shifts at sigma = 6, by sampling from the tilted loss: 5 standard errors."""
    sigma, count, delta = 6.0, 40, 1e-4
    epsilon = accounting.composed_epsilon((("discrete_gaussian", sigma, 1.0, count),), delta)
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


def test_bad_input():
    with pytest.raises(ValueError, match="whole number of grid units"):
        accounting.composed_epsilon((("discrete_gaussian", 5.0, 0.5, 2),), 1e-6)
    with pytest.raises(ValueError, match="at least 1e-10"):
        accounting.composed_epsilon((("gaussian", 5.0, 1.0, 2),), 1e-12)
    with pytest.raises(ValueError, match="coordinates is empty"):
        accounting.composed_epsilon((), 1e-6)
    with pytest.raises(ValueError, match="exchanges is empty"):
        accounting.worst_epsilon((), 1e-6)
    assert calibration.shift_patterns(CountQuery(Layout(2, 2, 2, None), stationary=True), 1) is None
