"""Combination of a prior with estimates: against plain NumPy, and on drawn priors."""

from __future__ import annotations

import numpy as np
import pytest
from kept_kernels import kept

from discreet.learners.online import prior_kernels as kernels

STATES = 4
# As kernels, which are kept on disk: helpers of kernels are compiled again in every process.
measure_rows, fit_shares = kept(kernels.measure_rows), kept(kernels.fit_shares)
posterior, weigh_row = kept(kernels.posterior), kept(kernels.weigh_row)
measure_rewards, believe_reward = kept(kernels.measure_rewards), kept(kernels.believe_reward)
read_prior, count_hypotheses = kept(kernels.read_prior), kept(kernels.count_hypotheses)


def combined(
    strength: np.ndarray, misfit: np.ndarray, near: np.ndarray, error: np.ndarray, states: int = STATES
) -> tuple[np.ndarray, list[kernels.Weight]]:
    """Shares of the hypotheses, and the weight of the data of each pair, as the learner computes them."""
    table = measure_rows(strength, misfit, near, error, states, np.empty(strength.size * 13))
    shares, found = np.empty(table.shape[1]), np.empty(table.shape[1])
    fit_shares(table, error, shares)
    weights = []
    for r in range(strength.size):
        found[:] = shares
        if error[r] < np.inf:
            posterior(table[r], shares, found)
        weights.append(weigh_row(strength[r], error[r], found))
    return shares, weights


@pytest.mark.compiles
def test_three_rows_against_a_plain_em() -> None:
    """Shares, posterior probabilities and weights of three rows, one of them without data."""
    strength, misfit = np.array([100.0, 20.0, 100.0]), np.array([0.02, 0.3, 0.0])
    near, error = np.array([0.6, 0.1, 0.0]), np.array([0.01, 0.05, np.inf])
    shares, weights = combined(strength, misfit, near, error)
    scales = np.minimum(0.5, 4.0 ** np.arange(4) / strength[:, None])  # 1/100, 4/100, 16/100, then 1/2
    assert shares.size == 5
    first = np.concatenate([[0.3], 0.7 * 0.6 ** np.arange(4) / (0.6 ** np.arange(4)).sum()])
    spread = error[:2, None] + np.concatenate([np.full((2, 1), 0.5), scales[:2]], axis=1)
    square = np.concatenate([near[:2, None], np.repeat(misfit[:2, None], 4, axis=1)], axis=1)
    density = (np.exp(-square / spread) / spread) ** 1.5  # nu = S - 1 = 3
    mine = first.copy()
    for _ in range(20):
        chances = mine * density
        chances /= chances.sum(axis=1, keepdims=True)
        mine = (2.0 * first + chances.sum(axis=0)) / 4.0
    chances = np.vstack([mine * density, mine])
    chances /= chances.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, mine, rtol=1e-12)
    for r, weight in enumerate(weights):
        own = np.append(1.0, scales[r] / (scales[r] + error[r]))
        mean = chances[r] @ own
        np.testing.assert_allclose(weight.data, mean, rtol=1e-12)
        np.testing.assert_allclose(weight.between, chances[r] @ (own - mean) ** 2, rtol=1e-9)
        np.testing.assert_allclose(weight.variance, chances[r][1:] @ ((1.0 - own[1:]) ** 2 * scales[r]))
        np.testing.assert_allclose(weight.empty, chances[r][0], rtol=1e-12)


@pytest.mark.parametrize("strength", [2.0, 10.0, 100.0, 1e3, 1e5, 1e7])
@pytest.mark.parametrize("distance", [1e-3, 0.02, 0.3, 1.5])
def test_a_wrong_prior_fades(strength: float, distance: float) -> None:
    """Whatever the strength and the distance, the weight of the data tends to 1 as their error tends to 0."""
    errors, before = np.array([1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12]), 0.0
    for error in errors:
        one = np.array([strength]), np.array([distance]), np.array([0.5]), np.array([error])
        _, (weight,) = combined(*one)
        assert weight.data >= before - 1e-9
        before = weight.data
    assert before > 1.0 - 1e-3
    assert weight.variance + weight.between < 1e-3


def test_a_right_prior_keeps_its_weight() -> None:
    many = 50
    _, weights = combined(np.full(many, 1e3), np.full(many, 0.01), np.full(many, 0.5), np.full(many, 0.01))
    assert max(weight.data for weight in weights) < 0.4


def test_the_order_of_pairs_does_not_matter() -> None:
    draw = np.random.default_rng(1)
    given = [draw.uniform(2.0, 500.0, 9), *(draw.uniform(0.0, 0.5, 9) for _ in range(3))]
    order = draw.permutation(9)
    shares, weights = combined(*given)
    permuted, moved = combined(*(one[order] for one in given))
    np.testing.assert_allclose(permuted, shares, rtol=1e-12)
    np.testing.assert_allclose(moved, np.array(weights)[order], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [0.01, 0.04, 0.16])
@pytest.mark.parametrize("error", [0.001, 0.02, 0.2])
def test_the_stated_error_is_the_error(scale: float, error: float) -> None:
    """Mean squared error of combined rows on drawn priors, of 400 pairs.

    The ratio to what the learner states has a standard deviation of 2 to 3.5 % over draws, and 16 % for the
    largest error, at which shares are learned only roughly. Bounds at six standard deviations: a false alarm
    has probability below 1e-6. The seed is fixed.
    """
    many, draw = 400, np.random.default_rng([int(1e3 * scale), int(1e4 * error)])
    public = draw.dirichlet(np.ones(STATES), many)
    true = public + draw.normal(0.0, np.sqrt(scale / STATES), (many, STATES))
    seen = true + draw.normal(0.0, np.sqrt(error / STATES), (many, STATES))
    misfit, near = ((seen - public) ** 2).sum(axis=1), ((seen - 1.0 / STATES) ** 2).sum(axis=1)
    _, weights = combined(np.full(many, 100.0), misfit, near, np.full(many, error))
    data = np.array([weight.data for weight in weights])
    stated = data**2 * error + np.array([weight.variance for weight in weights])
    stated += np.array([weight.between for weight in weights]) * misfit
    row = data[:, None] * seen + (1.0 - data[:, None]) * public
    ratio = ((row - true) ** 2).sum(axis=1).mean() / stated.mean()
    assert (1 / 1.25 < ratio < 1.25) if error < 0.1 else (0.35 < ratio < 2.3)
    assert ((row - true) ** 2).sum() < 1.02 * ((seen - true) ** 2).sum()  # never much worse than the data


@pytest.mark.compiles
def test_mean_rewards_are_mixtures() -> None:
    """Mean and variance of a mean reward against the moments of a mixture of normal distributions."""
    chances = np.array([0.2, 0.5, 0.3])
    for error in (0.01, np.inf):
        estimate = 0.6 if error < np.inf else 0.0
        mean, variance = believe_reward(100.0, 0.3, estimate, error, 0.5, 0.02, chances)
        scales = np.array([1 / 400, 4 / 400])
        own = scales / (scales + error)
        means = np.append(0.5, 0.3 + own * (estimate - 0.3))
        spreads = np.append(0.02, (1.0 - own) * scales)
        assert mean == pytest.approx(chances @ means)
        assert variance == pytest.approx(chances @ (spreads + (means - mean) ** 2))


@pytest.mark.compiles
def test_densities_of_mean_rewards() -> None:
    table = measure_rewards(
        np.array([100.0, 0.0]), np.array([0.04, 0.0]), np.array([-1.5, 0.0]), np.array([0.01, np.inf]),
        np.zeros(26),
    )  # fmt: skip
    scales = np.minimum(1 / 16, 4.0 ** np.arange(table.shape[1] - 1) / 400)
    assert scales[-1] == 1 / 16 > scales[-2]
    expected = -0.5 * (np.log(0.01 + scales) + 0.04 / (0.01 + scales))
    np.testing.assert_allclose(table[0], np.append(-1.5, expected))


@pytest.mark.compiles
def test_sizes() -> None:
    packed = np.arange(15.0)
    prior = read_prior(packed, 3, 2)
    np.testing.assert_array_equal(np.concatenate([np.ravel(part) for part in prior]), packed)
    assert kernels.work_size(3, 2) >= 18 * 3 + 2 - 9
    assert count_hypotheses(np.array([2.0]), 0.5) == 2
    assert count_hypotheses(np.array([0.0, 1e12]), 0.5) == 13
