"""Linear MDPs and feature contracts: what is certified, and that tables are the same worlds."""

import numpy as np
import pytest
from tables_as_linear import as_linear

from discreet.envs import random_mdp
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.planning import optimal_values
from discreet.mechanisms.features import Features, one_hot


def simplex_world(seed=0, states=6, actions=3, horizon=4, d=4):
    rng = np.random.default_rng(seed)
    phi = Features(rng.dirichlet(np.full(d, 0.3), (states, actions)), l1=1.0, nonneg=True)
    mu = rng.dirichlet(np.full(states, 0.3), (horizon, d))
    return LinearMDP(phi, mu, rng.uniform(size=(horizon, d)))


def test_table_is_phi_mu_and_phi_theta():
    mdp = simplex_world()
    table = mdp.to_tabular()
    h, s, a = 2, 4, 1
    phi = mdp.features.table[s, a]
    np.testing.assert_allclose(table.transitions[h, s, a], phi @ mdp.measures[h], atol=1e-12)
    np.testing.assert_allclose(table.rewards[h, s, a], phi @ mdp.weights[h], atol=1e-12)
    assert mdp.features.constant
    assert mdp.features.dead == ()


def test_scaling_features_leaves_the_world():
    mdp = simplex_world(3)
    one, other = mdp.to_tabular(), mdp.scaled(0.25).to_tabular()
    np.testing.assert_allclose(one.transitions, other.transitions, atol=1e-12)
    assert mdp.scaled(0.25).features.bound == 0.25


def test_one_hot_is_the_table_and_back():
    table = random_mdp(states=4, actions=3, horizon=5, seed=1, stationary=False)
    linear = as_linear(table)
    assert linear.features.dimension == 12
    back = linear.to_tabular()
    np.testing.assert_allclose(back.transitions, table.transitions, atol=1e-14)
    np.testing.assert_allclose(optimal_values(back)[0], optimal_values(table)[0], atol=1e-12)
    np.testing.assert_array_equal(one_hot(4, 3).rows, np.eye(12))


def test_broken_models_are_refused():
    mdp = simplex_world()
    with pytest.raises(ValueError, match="must sum to 1"):
        LinearMDP(mdp.features, mdp.measures * 1.01, mdp.weights)
    with pytest.raises(ValueError, match="probabilities must be at least 0"):
        LinearMDP(mdp.features, -mdp.measures, mdp.weights)
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        LinearMDP(mdp.features, mdp.measures, mdp.weights + 2)


def test_one_slot_serves_every_step():
    mdp = simplex_world(horizon=1)
    still = LinearMDP(mdp.features, mdp.measures, mdp.weights, horizon=5)
    assert (still.horizon, still.to_tabular().stationary) == (5, True)
    assert still.scaled(2.0).horizon == 5
    spread = LinearMDP(mdp.features, np.repeat(mdp.measures, 5, 0), np.repeat(mdp.weights, 5, 0))
    np.testing.assert_allclose(
        optimal_values(still.to_tabular())[1], optimal_values(spread.to_tabular())[1], atol=1e-12
    )
    with pytest.raises(ValueError, match="weights has 4 slots: must be 1 or the horizon, 5"):
        LinearMDP(mdp.features, mdp.measures, np.repeat(mdp.weights, 4, 0), horizon=5)


def test_a_table_carries_its_features():
    mdp = simplex_world()
    assert mdp.to_tabular().features is mdp.features
