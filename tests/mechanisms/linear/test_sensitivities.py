"""Lemmas 1 to 5 by brute force over neighbours, and the law of the noise."""

import math

import numpy as np
import pytest

from discreet.core.rng import SecureRng, Seeded
from discreet.mechanisms.linear import sensitivities as gram
from discreet.mechanisms.seeded_rng import SeededRng

PAIRS = 40_000


def ball(rng, n, d, bound, nonneg):
    """Vectors in the ball, on its sphere, along axes, and opposite ones."""
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[n // 2 :: 4] = np.eye(d)[rng.integers(d, size=len(x[n // 2 :: 4]))]
    x[n // 2 + 1 :: 4] *= rng.uniform(size=(len(x[n // 2 + 1 :: 4]), 1))
    return bound * (np.abs(x) if nonneg else x)


def neighbours(seed, bound, target):
    """Random and adversarial (x, y), (x', y') inside the contract with range c = 2."""
    rng, d, c = np.random.default_rng(seed), 3, 2.0
    nonneg = target == "raw-nonneg"
    x, other = (ball(rng, PAIRS, d, bound, nonneg) for _ in range(2))
    # a pair at a chosen angle: where the lemmas' suprema are
    t = rng.uniform(0 if nonneg else -1, 1, PAIRS // 2)
    x[: PAIRS // 2] = bound * np.eye(d)[0]
    other[: PAIRS // 2] = bound * np.stack([t, np.sqrt(1 - t * t), 0 * t], axis=1)
    low, high = (-c / 2, c / 2) if target == "centred" else (0.0, c)
    y, y_other = rng.uniform(low, high, (2, PAIRS))
    ends = rng.choice([low, high], (2, PAIRS))
    keep = rng.uniform(size=PAIRS) < 0.8
    return x, other, np.where(keep, ends[0], y), np.where(keep, ends[1], y_other), c


def changes(x, other, y, y_other):
    """Frobenius norm of the Gram's change and Euclidean norm of the vector's, from the definitions."""
    matrices = x[:, :, None] * x[:, None, :] - other[:, :, None] * other[:, None, :]
    return np.linalg.norm(matrices, axis=(1, 2)), np.linalg.norm(
        x * y[:, None] - other * y_other[:, None], axis=1
    )


@pytest.mark.parametrize("target", gram.TARGETS)
@pytest.mark.parametrize(("ratio", "bound"), [(1.0, 1.0), (0.3, 1.0), (6.0, 0.5), (3.0, 2.0)])
def test_lemmas_1_2_3_by_brute_force(target, ratio, bound):
    x, other, y, y_other, c = neighbours(1, bound, target)
    matrix, vector = changes(x, other, y, y_other)
    for measured, declared in (
        (matrix.max() / (math.sqrt(2) * 0.7), gram.gram_mu(bound, 0.7)),
        (vector.max(), gram.vector_sensitivity(bound, c, target)),
        (
            np.sqrt((matrix / bound**2) ** 2 / 2 + ratio * (vector / (bound * c)) ** 2).max(),
            gram.pair_mu(1.0, ratio, target),
        ),
    ):
        assert measured <= declared * (1 + 1e-9)
        assert measured >= declared * 0.99


def test_published_values_of_lemma_3():
    """At alpha = beta = 1: 4, 3 and 1.5625 (specification, 1.1)."""
    squares = [gram.pair_mu(1.0, 1.0, t) ** 2 for t in ("raw", "raw-nonneg", "centred")]
    assert squares == pytest.approx([4.0, 3.0, 1.5625], abs=1e-12)
    scales = gram.pair_scales(1.0, 0.8, 0.5, "centred")
    assert scales.gram**-2 == pytest.approx(0.5 * 32 * 0.8**2 / 25, rel=1e-12)


@pytest.mark.parametrize("target", gram.TARGETS)
def test_pair_scales_spend_exactly_mu(target):
    bound, mu = 1.7, 0.3
    scales = gram.pair_scales(bound, mu, 0.35, target)
    alpha, beta = bound**4 / scales.gram**2, bound**2 / scales.vector**2
    assert gram.pair_mu(alpha, beta, target) == pytest.approx(mu, rel=1e-12)
    assert alpha / (alpha + beta) == pytest.approx(0.35, rel=1e-12)


@pytest.mark.parametrize("states", [2, 3, 6])
@pytest.mark.parametrize("nonneg", [False, True])
def test_lemmas_4_and_5_by_brute_force(states, nonneg):
    x, other, y, y_other, c = neighbours(2, 1.0, "raw-nonneg" if nonneg else "centred")
    rng = np.random.default_rng(3)
    if nonneg:
        y, y_other = y - c / 2, y_other - c / 2  # rewards are centred either way
    y, y_other = y / c, y_other / c
    e = np.eye(states) - 1 / states
    to = rng.integers(states, size=(2, PAIRS))
    to[1] = np.where(rng.uniform(size=PAIRS) < 0.5, to[0], to[1])
    m = np.linalg.norm(x[:, :, None] * e[to[0]][:, None] - other[:, :, None] * e[to[1]][:, None], axis=(1, 2))
    declared = gram.successor_sensitivity(1.0, states, nonneg)
    assert 0.99 * declared <= m.max() <= declared * (1 + 1e-9)
    g, r = changes(x, other, y, y_other)
    for alpha, beta, gamma in (
        (1.0, 1.0, 1.0),
        (0.4, 0.15, 0.3),
        (1.0, 3.0, 0.2),
        (0.1, 0.2, 2.0),
        (1.0, 0.5, 0.0),
    ):
        joint = np.sqrt(alpha * g**2 / 2 + beta * m**2 + gamma * r**2).max()
        bound = gram.model_mu(alpha, beta, gamma, states, nonneg)
        assert 0.985 * bound <= joint <= bound * (1 + 1e-9)


def test_joint_model_is_cheaper_than_its_parts():
    """At the shares .4/.3/.3 and S = 2 the joint mu^2 is 0.756 of the sum (specification, lemma 5)."""
    own = gram.successor_sensitivity(1.0, 2) ** 2
    assert gram.model_mu(0.4, 0.3 / own, 0.3, 2) ** 2 == pytest.approx(0.756, abs=5e-4)
    scales = gram.model_scales(1.3, 0.5, (0.4, 0.3, 0.3), 2)
    again = gram.model_mu(
        1.3**4 / scales.gram**2, 1.3**2 / scales.successors**2, 1.3**2 / scales.rewards**2, 2
    )
    assert again == pytest.approx(0.5, rel=1e-12)
    known = gram.model_scales(1.3, 0.5, (4 / 7, 3 / 7, 0.0), 2)
    assert known.rewards == math.inf
    assert known.gram < scales.gram
    assert known.successors < scales.successors


@pytest.mark.parametrize("target", gram.TARGETS)
def test_l1_sensitivities_are_bounds(target):
    x, other, y, y_other, c = neighbours(4, 1.0, target)
    l1 = max(np.abs(x).sum(axis=1).max(), np.abs(other).sum(axis=1).max())
    upper = np.triu_indices(3)
    a = x[:, upper[0]] * x[:, upper[1]] - other[:, upper[0]] * other[:, upper[1]]
    assert np.abs(a).sum(axis=1).max() <= gram.gram_l1(1.0, l1) * (1 + 1e-9)
    vector = np.abs(x * y[:, None] - other * y_other[:, None]).sum(axis=1)
    assert vector.max() <= gram.vector_l1(l1, c, target) * (1 + 1e-9)


def test_l1_sensitivity_of_next_states_is_attained():
    """Four corners of a simplex, S = 3: disjoint features, different successors."""
    e = np.eye(3) - 1 / 3
    x, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert np.abs(np.outer(x, e[0]) - np.outer(other, e[1])).sum() == pytest.approx(gram.successor_l1(1.0, 3))
    rng = np.random.default_rng(0)
    for _ in range(200):
        x, other = rng.dirichlet(np.ones(2), 2) * rng.choice([-1, 1], (2, 2))
        moved = np.outer(x, e[rng.integers(3)]) - np.outer(other, e[rng.integers(3)])
        assert np.abs(moved).sum() <= gram.successor_l1(1.0, 3) * (1 + 1e-12)


def test_symmetric_laplace_has_one_variance():
    """1000 matrices of d = 20; kurtosis 6: false alarms below 1e-6 (6 standard errors)."""
    coins = SeededRng(Seeded(1).keys.noise, 0)
    draws = np.stack([gram.symmetric_laplace(3.0, 20, coins) for _ in range(1000)])
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    for part in (draws[:, *np.triu_indices(20, 1)], draws[:, range(20), range(20)]):
        assert part.var() == pytest.approx(18.0, rel=6 * math.sqrt(5 / part.size))


def test_goe_has_its_variances():
    """1000 matrices of d = 20: 190 000 and 20 000 entries; false alarms below 1e-6 (6 standard errors)."""
    coins = SeededRng(Seeded(1).keys.noise, 0)
    draws = np.stack([gram.goe(3.0, 20, coins) for _ in range(1000)])
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    off, diagonal = draws[:, *np.triu_indices(20, 1)], draws[:, range(20), range(20)]
    assert off.var() == pytest.approx(9.0, rel=6 * math.sqrt(2 / off.size))
    assert diagonal.var() == pytest.approx(18.0, rel=6 * math.sqrt(2 / diagonal.size))


def test_exact_goe_lies_on_its_grid():
    noise = gram.goe(2.0, 4, SecureRng(), 256)
    np.testing.assert_array_equal(noise, noise.T)
    np.testing.assert_array_equal(noise * 256, np.rint(noise * 256))


@pytest.mark.parametrize(
    "call",
    [
        lambda: gram.gram_scale(1.0, 0.0),
        lambda: gram.pair_scales(1.0, 1.0, 1.0, "raw"),
        lambda: gram.pair_mu(1.0, math.nan, "raw"),
        lambda: gram.vector_sensitivity(1.0, 1.0, "other"),
        lambda: gram.model_scales(1.0, 1.0, (0.5, 0.5, 0.5), 2),
    ],
)
def test_bad_numbers_are_refused(call):
    with pytest.raises(ValueError, match="must be"):
        call()
