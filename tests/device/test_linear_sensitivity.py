"""What replacing one user moves in linear statistics, against seeded pairs of users and the worst pair."""

import math

import numpy as np
import pytest

from discreet.device import linear_sensitivity as formulas

A, B, D = 1.5, 1.0, 4  # bounds of the l1 and l2 norm, features


def features(rng: np.random.Generator) -> np.ndarray:
    """Return features whose norms are at most A and B."""
    phi = rng.normal(size=D) * (rng.random(D) < 0.6)
    return phi * min(A / max(np.abs(phi).sum(), 1e-9), B / max(np.linalg.norm(phi), 1e-9))


def test_no_pair_of_users_moves_l1_norms_by_more() -> None:
    rng, states = np.random.default_rng(3), 5
    centred = np.eye(states) - 1.0 / states
    for _ in range(500):
        one, two = features(rng), features(rng)
        triangle = np.abs(np.triu(np.outer(one, one) - np.outer(two, two))).sum()
        assert triangle <= formulas.gram_l1(B, A) + 1e-9
        low, high = rng.random(2)
        assert np.abs(one * low - two * high).sum() <= formulas.vector_l1(A, 1.0, "raw") + 1e-9
        moved = np.abs(one * (low - 0.5) - two * (high - 0.5)).sum()
        assert moved <= formulas.vector_l1(A, 1.0, "centred") + 1e-9
        first, second = rng.integers(states, size=2)
        sums = np.outer(one, centred[first]) - np.outer(two, centred[second])
        assert np.abs(sums).sum() <= formulas.successor_l1(A, states) + 1e-9


def test_the_worst_pair_reaches_the_bounds() -> None:
    one, two = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert np.abs(np.triu(np.outer(one, one) - np.outer(two, two))).sum() == formulas.gram_l1(1.0, 1.0)
    assert np.abs(one - two).sum() == formulas.vector_l1(1.0, 1.0, "raw")
    assert np.abs(one * 0.5 + two * 0.5).sum() == formulas.vector_l1(1.0, 1.0, "centred")


@pytest.mark.parametrize("laplace", [True, False])
def test_the_loss_of_tables_is_the_largest_over_both_kinds_of_pairs(laplace: bool) -> None:
    for visits, rewards in ((1.0, 1.0), (3.0, 0.5), (0.2, 9.0)):
        losses = []
        for moves in ([1 / visits, 1 / visits, 0.5 / rewards, 0.5 / rewards], [1 / rewards]):
            losses.append(sum(moves) if laplace else math.hypot(*moves))
        assert formulas.tabular_loss(visits, rewards, laplace) == pytest.approx(max(losses))


@pytest.mark.parametrize("nonneg", [True, False])
def test_mu_of_the_model_is_the_largest_on_a_fine_grid(nonneg: bool) -> None:
    alpha, beta, gamma, states = 0.7, 1.3, 0.4, 6
    t = np.linspace(0.0 if nonneg else -1.0, 1.0, 20_001)
    rest = 1.0 - 1.0 / states
    squares = alpha * (1 - t**2) + gamma * (1 + np.abs(t)) / 2
    same, other = squares + 2 * beta * rest * (1 - t), squares + 2 * beta * (rest + t / states)
    assert formulas.model_mu(alpha, beta, gamma, states, nonneg) == pytest.approx(
        math.sqrt(max(same.max(), other.max())), rel=1e-7
    )
