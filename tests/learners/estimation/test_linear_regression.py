"""Repair of noisy Gram matrices, tails and widths (linear-and-offline, 1.4 and 1.5; tests 16 and 17)."""

import math

import numpy as np
import pytest

from discreet.core.rng import Seeded
from discreet.learners.estimation import linear_regression as linear
from discreet.mechanisms.linear.sensitivities import goe
from discreet.mechanisms.seeded_rng import SeededRng


def test_repaired_matrices_are_positive_definite():
    coins = SeededRng(Seeded(2).keys.noise, 0)
    for _ in range(50):
        fixed = linear.repaired(goe(5.0, 6, coins), 1.0, 0.3)
        assert np.linalg.eigvalsh(fixed.matrix).min() >= 0.3 - 1e-9
        np.testing.assert_allclose(fixed.matrix @ fixed.inverse, np.eye(6), atol=1e-9)
        assert fixed.floored > 0
    sound = linear.repaired(np.diag([1.0, 2.0]), 0.5, 0.1)
    assert sound.floored == 0
    np.testing.assert_array_equal(sound.matrix, np.diag([1.5, 2.5]))


def test_ridge_bound_leaves_the_floor_idle():
    """p = 0.01 and 400 matrices: at most 4 floors on average; more than 18 has chance < 1e-6."""
    coins = SeededRng(Seeded(3).keys.noise, 0)
    ridge = linear.ridge_level(2.0, 10, "bound", 1.0)
    acted = sum(linear.repaired(goe(2.0, 10, coins), ridge, 1.0).floored > 0 for _ in range(400))
    assert acted <= 18
    assert linear.goe_tail(1.0, 10, 0.01) == pytest.approx(10.9, abs=0.05)  # specification, 1.4
    assert linear.ridge_level(2.0, 9, 1.5, 0.1) == pytest.approx(0.1 + 1.5 * 2 * 2.0 * 3)


def test_width_covers():
    """300 noisy regressions, p = 0.05: expected misses below 15, more than 40 has chance < 1e-6."""
    rng, d, n, scale, p = np.random.default_rng(0), 4, 80, 1.0, 0.05
    coins, missed = SeededRng(Seeded(4).keys.noise, 0), 0
    for _ in range(300):
        w = rng.normal(size=d)
        w /= np.linalg.norm(w)
        x = rng.normal(size=(n, d)) / math.sqrt(d)
        y = x @ w + rng.choice([-0.5, 0.5], n)
        ridge = linear.ridge_level(scale, d, "bound", 1.0)
        tail = linear.goe_tail(scale, d, p / 3)
        fixed = linear.repaired(x.T @ x + goe(scale, d, coins), ridge, 1.0)
        estimate = fixed.inverse @ (x.T @ y + coins.normal(scale, d))
        # the width (1.5): a martingale, the ridge times the weights, the noise of the response (its tail)
        log_det = float(np.linalg.slogdet(np.eye(d) + x.T @ x)[1])
        noise_norm = scale * (math.sqrt(d) + math.sqrt(2 * math.log(3 / p)))
        low, high = max(1.0, ridge - tail), ridge + tail
        martingale = 0.5 * math.sqrt(2 * math.log(3 / p) + log_det)
        width = martingale + math.sqrt(high) + noise_norm / math.sqrt(low)
        missed += float((w - estimate) @ fixed.matrix @ (w - estimate)) > width**2
    assert missed <= 40


def test_simplex_rows_are_projections():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 5)) * 2
    found = linear.simplex_rows(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert found.min() >= 0
    # optimality: no other point of the simplex is closer
    for other in rng.dirichlet(np.ones(5), 50):
        assert (np.linalg.norm(rows - other, axis=1) >= np.linalg.norm(rows - found, axis=1) - 1e-12).all()
    two = linear.simplex_rows(np.array([[0.7, 0.3], [1.4, -0.4]]))
    np.testing.assert_allclose(two, [[0.7, 0.3], [1.0, 0.0]], atol=1e-15)


def test_bad_ridge_is_refused():
    for ridge in (-1.0, "edge", math.nan):
        with pytest.raises(ValueError, match="ridge"):
            linear.ridge_level(1.0, 2, ridge, 1.0)
