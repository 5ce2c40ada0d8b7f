"""Random MDPs: functions of their seed, and their options."""

import numpy as np
import pytest

from discreet.envs import random_mdp


def test_random_mdp_is_a_function_of_its_seed():
    one, again, other = random_mdp(seed=5), random_mdp(seed=5), random_mdp(seed=6)
    assert np.array_equal(one.transitions, again.transitions)
    assert np.array_equal(one.rewards, again.rewards)
    assert not np.array_equal(one.transitions, other.transitions)


@pytest.mark.parametrize("seed", range(5))
def test_random_mdp_of_the_spec(seed):
    mdp = random_mdp(seed=seed)
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.stationary) == (6, 2, 20, True)
    assert mdp.reward_law == "bernoulli"
    assert mdp.initial[0] == 1
    means = mdp.rewards[0][mdp.rewards[0] > 0]
    assert means.size == 2
    assert ((means >= 0.3) & (means <= 1)).all()


def test_random_mdp_options():
    mdp = random_mdp(states=8, actions=3, horizon=4, successors=2, rewarding=5, stationary=False, seed=1)
    assert mdp.transitions.shape == (4, 8, 3, 8)
    assert not mdp.stationary
    assert ((mdp.transitions > 0).sum(-1) == 2).all()
    assert ((mdp.rewards > 0).sum((1, 2)) == 5).all()
    assert (mdp.rewards[0] != mdp.rewards[1]).any()
    assert not np.array_equal(mdp.transitions[0], mdp.transitions[1])
    rows = random_mdp(states=50, actions=40, concentration=0.3, seed=0).transitions[0].reshape(-1, 50)
    # A Dirichlet(.3) row of 50: E sum p^2 = (.3 + 1) / (50 * .3 + 1) = .08125; 2000 rows.
    assert (rows**2).sum(-1).mean() == pytest.approx(0.08125, abs=0.005)
    for options, message in (
        ({"states": 0}, "states = 0"),
        ({"successors": 7}, r"successors = 7: must be an integer in \[1, 6\]"),
        ({"rewarding": 13}, r"rewarding = 13: must be an integer in \[0, 12\]"),
        ({"concentration": 0.0}, "concentration = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"rewards": "discrete"}, "rewards = 'discrete'"),
    ):
        with pytest.raises(ValueError, match=message):
            random_mdp(**options)
