"""PSRL: the law of what it draws."""

import numpy as np
import pytest
from scipy import stats

from discreet.core.layout import Layout
from discreet.learners.online.psrl import PSRL, dirichlet_rows
from discreet.learners.online.randomized_base import RandomizedState
from discreet.mechanisms.interfaces import ProblemSpec

TIES = np.array([5, 6], np.uint64)
LAYOUT = Layout(3, 2, 2)
ALARM = 1e-6
DRAWS = 4000


def state_of(visits, transitions, rewards):
    return RandomizedState(ProblemSpec(LAYOUT, 1000), TIES, visits, transitions, rewards, 100, 3)


@pytest.mark.parametrize(("prior_visits", "each"), [("S", 1.0), (1.5, 0.5)])
def test_draws_follow_the_posterior(prior_visits, each):
    """Marginals of every cell by Kolmogorov-Smirnov; covariances in a row, between rows and rewards by z.

    False alarms: 1e-6, divided among all checks.
    """
    g = np.random.default_rng(1)
    transitions = g.integers(0, 6, (2, 6, 3)).astype(float)
    transitions[0, 0] = 0.0  # nobody was here: the prior
    visits = transitions.sum(axis=-1)
    rewards = visits * g.random((2, 6))
    learner = PSRL(prior_visits=prior_visits, prior_rewards=0.7)
    coins = np.random.default_rng(2)
    drawn = [learner.draw(state_of(visits, transitions, rewards), coins) for _ in range(DRAWS)]
    rows, paid = np.array([d.transitions for d in drawn]), np.array([d.rewards for d in drawn])
    assert np.abs(rows.sum(axis=-1) - 1.0).max() < 1e-12
    assert all((d.denominators == 1.0).all() for d in drawn)
    a = each + transitions
    total = a.sum(axis=-1)
    cells = rows.shape[1] * rows.shape[2]
    alarm = ALARM / (cells * (3 + 1 + 1 + 1))
    threshold = stats.norm.isf(alarm / 2) + 1.0  # + 1: for means of 4000 that are not quite normal
    for c in np.ndindex(2, 6):
        for s in range(3):
            law = stats.beta(a[c][s], total[c] - a[c][s])
            assert stats.kstest(rows[:, *c, s], law.cdf).pvalue > alarm
        law = stats.beta(0.7 + rewards[c], 0.7 + visits[c] - rewards[c])
        assert stats.kstest(paid[:, *c], law.cdf).pvalue > alarm
        mean = a[c] / total[c]
        product = (rows[:, *c, 0] - mean[0]) * (rows[:, *c, 1] - mean[1])
        expected = -mean[0] * mean[1] / (total[c] + 1.0)
        assert abs(product.mean() - expected) < threshold * product.std() / DRAWS**0.5
        other = ((c[0] + 1) % 2, c[1])
        for apart in (paid[:, *c], rows[:, *other, 0]):
            correlation = np.corrcoef(rows[:, *c, 0], apart)[0, 1]
            assert abs(correlation) < threshold / DRAWS**0.5


def test_the_posterior_draw_of_a_row_without_mass_is_the_limit():
    """Gammas of shape 1e-6 all underflow: one successor each, in proportion (false alarm below 1e-9)."""
    parameters = np.broadcast_to(1e-6 * np.array([1.0, 3.0, 6.0]), (20_000, 3))
    rows = dirichlet_rows(parameters, np.random.default_rng(0))
    assert (rows.max(axis=-1) == 1.0).mean() > 0.999
    means = rows.mean(axis=0)
    assert np.abs(means - [0.1, 0.3, 0.6]).max() < 6.2 * 0.5 / 20_000**0.5


def test_rounded_sums_of_rewards_do_no_harm():
    """R may exceed N by rounding, which is no negative count of missing rewards."""
    visits = np.full((2, 6), 0.3 * 10)
    transitions = np.full((2, 6, 3), 1.0)
    rewards = np.full((2, 6), np.nextafter(3.0, 4.0))
    drawn = PSRL(prior_rewards=1e-3).draw(state_of(visits, transitions, rewards), np.random.default_rng(0))
    assert np.isfinite(drawn.rewards).all()
    assert drawn.rewards.max() <= 1.0


def test_pooled_counts_give_one_row_for_all_steps():
    state = state_of(np.full((1, 6), 3.0), np.ones((1, 6, 3)), np.ones((1, 6)))
    drawn = PSRL(stationary=True).draw(state, np.random.default_rng(0))
    assert drawn.transitions.shape == (1, 6, 3)
    assert drawn.rewards.shape == (2, 6)
    assert (drawn.rewards[0] == drawn.rewards[1]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior_visits": 0.0}, "prior_visits = 0.0"),
        ({"prior_visits": "s"}, "prior_visits = 's': must be a number above 0, or 'S'"),
        ({"prior_rewards": -1.0}, "prior_rewards = -1.0"),
    ],
)
def test_bad_priors_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PSRL(**options)
