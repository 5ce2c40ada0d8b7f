"""RiverSwim: the table of the specification, and its options."""

import numpy as np
import pytest

from discreet.envs import riverswim


def test_riverswim_is_the_table_of_the_spec():
    mdp = riverswim()
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.stationary) == (6, 2, 20, True)
    assert mdp.reward_law == "deterministic"
    p = mdp.transitions[0]
    assert np.abs(p.sum(-1) - 1).max() < 1e-15
    for s in range(6):
        assert p[s, 0, max(0, s - 1)] == 1
    assert p[0, 1].tolist() == [0.4, 0.6, 0, 0, 0, 0]
    for s in range(1, 5):
        assert p[s, 1, s - 1 : s + 2].tolist() == [0.05, 0.6, 0.35]
    assert p[5, 1].tolist() == [0, 0, 0, 0, 0.4, 0.6]
    expected = np.zeros((6, 2))
    expected[0, 0], expected[5, 1] = 0.005, 1
    assert np.array_equal(mdp.rewards[7], expected)
    assert mdp.initial.tolist() == [1, 0, 0, 0, 0, 0]


def test_riverswim_options():
    assert riverswim(states=2).transitions[0, 1, 1].tolist() == [0.4, 0.6]
    assert riverswim(horizon=7).horizon == 7
    assert riverswim(rewards="bernoulli").reward_law == "bernoulli"
    for options, message in (
        ({"states": 1}, "states = 1"),
        ({"horizon": 0}, "horizon = 0"),
        ({"rewards": "normal"}, "rewards = 'normal': must be one of 'deterministic', 'bernoulli'"),
    ):
        with pytest.raises(ValueError, match=message):
            riverswim(**options)
