"""The synthetic linear MDP: regression values of the specification (linear-and-offline, 2.1)."""

import numpy as np
import pytest

from discreet.envs import synthetic_linear, synthetic_linear_behaviour, synthetic_linear_mdp
from discreet.envs.mdp.planning import optimal_values, policy_value


def best(mdp):
    return float(mdp.initial @ optimal_values(mdp)[0][0])


@pytest.mark.parametrize(("order", "expected"), [("msb", 14.15086622268771), ("lsb", 15.099056762182745)])
def test_optimal_value_of_seed_0(order, expected):
    assert best(synthetic_linear(bit_order=order)) == pytest.approx(expected, abs=1e-10)


def test_values_over_seeds():
    """Over seeds 0 to 199: v* mean 13.88, min 12.97, max 14.92; behaviour 6.65; always action 0: gap 8.85."""
    behaviour = synthetic_linear_behaviour()
    always = np.zeros((20, 2), np.int64)
    worlds = [synthetic_linear(seed=seed) for seed in range(200)]
    stars = np.array([best(mdp) for mdp in worlds])
    played = np.array([policy_value(mdp, behaviour) for mdp in worlds])
    still = np.array([policy_value(mdp, always) for mdp in worlds])
    assert [round(float(x), 2) for x in (stars.mean(), stars.min(), stars.max())] == [13.88, 12.97, 14.92]
    assert round(float(played.mean()), 2) == 6.65
    assert (stars - still).mean() == pytest.approx(8.85, abs=0.05)


def test_contracts_of_the_features():
    mdp, raw = synthetic_linear_mdp(), synthetic_linear_mdp(raw_features=True)
    assert np.linalg.norm(mdp.features.table, axis=2).max() == pytest.approx(1.0, abs=1e-15)
    assert mdp.features.bound == pytest.approx(1.0, abs=1e-15)
    squares = (raw.features.table**2).sum(axis=2)
    assert squares.max() == 7
    assert set(np.argwhere(squares == 7)[:, 1]) == {63, 95}
    assert mdp.features.dead == (0,)
    assert synthetic_linear_mdp(bit_order="lsb").features.dead == (7,)
    assert mdp.features.constant
    np.testing.assert_allclose(mdp.to_tabular().transitions, raw.to_tabular().transitions, atol=1e-12)


def test_transitions_follow_delta():
    mdp = synthetic_linear(seed=5)
    alpha = np.random.default_rng(5).uniform(size=(20, 2))
    np.testing.assert_allclose(mdp.transitions[:, 0, 0, 0], alpha[:, 0], atol=1e-12)
    np.testing.assert_allclose(mdp.transitions[:, 1, 0, 0], alpha[:, 1], atol=1e-12)
    np.testing.assert_allclose(mdp.transitions[:, 1, 7, 0], alpha[:, 0], atol=1e-12)
