"""Gymnasium's tables in, and TabularMDP out through Gymnasium's own checker."""

import warnings
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.envs import from_gymnasium, to_gymnasium
from discreet.envs.mdp.planning import optimal_values, policy_value, uniform_policy
from discreet.envs.rollouts.rollout import rollout_batch

gymnasium = pytest.importorskip("gymnasium")


def make(name, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(name, **options)


def original_value(env, policy, horizon):
    """The undiscounted return of a policy over the environment's own table, ended episodes worth 0."""
    inner = env.unwrapped
    values = np.zeros(len(inner.P))
    for h in reversed(range(horizon)):
        values = np.array(
            [
                sum(
                    p * (r + (0 if done else values[after])) for p, after, r, done in inner.P[s][policy[h, s]]
                )
                for s in range(len(inner.P))
            ]
        )
    return inner.initial_state_distrib @ values


@pytest.mark.parametrize(
    ("name", "horizon", "options", "added"),
    [
        ("FrozenLake-v1", 30, {}, 0),
        ("FrozenLake-v1", 30, {"is_slippery": False, "map_name": "8x8"}, 0),
        ("Taxi-v4", 25, {}, 1),
        ("CliffWalking-v1", 20, {}, 1),
        ("CliffWalking-v1", 20, {"is_slippery": True}, 1),
    ],
)
def test_values_map_affinely(name, horizon, options, added):
    """The optimal policy and random ones have the environment's own returns after the map back."""
    mdp, env = from_gymnasium(name, horizon=horizon, **options), make(name, **options)
    size = len(env.unwrapped.P)
    assert mdp.states == size + added
    assert (mdp.horizon, mdp.stationary) == (horizon, True)
    assert (mdp.rewards >= 0).all()
    assert (mdp.rewards <= 1).all()
    assert mdp.terminal
    optimal = optimal_values(mdp)[2]
    rng = np.random.default_rng(0)
    found = []
    for policy in (optimal, rng.integers(mdp.actions, size=optimal.shape), np.zeros_like(optimal)):
        back = mdp.reward_map.original_return(policy_value(mdp, policy), horizon)
        assert back == pytest.approx(original_value(env, policy, horizon), abs=1e-9)
        found.append(back)
    assert found[0] == max(found)
    mixed = 0.3 * uniform_policy(mdp) + 0.7 * np.eye(mdp.actions)[optimal]
    returns = rollout_batch(mdp, mixed, 4000).rewards.sum(1)
    assert abs(returns.mean() - policy_value(mdp, mixed)) < 5 * returns.std() / np.sqrt(4000)


def test_known_optima():
    """CliffWalking: 13 steps of -1. Taxi: mean best return 7.93. FrozenLake 4x4 in 100 steps: .744."""
    cliff = from_gymnasium("CliffWalking-v1", horizon=30)
    best = cliff.initial @ optimal_values(cliff)[0][0]
    assert cliff.reward_map.original_return(best, 30) == pytest.approx(-13, abs=1e-9)
    taxi = from_gymnasium("Taxi-v4")
    assert taxi.horizon == 200
    best = taxi.initial @ optimal_values(taxi)[0][0]
    assert taxi.reward_map.original_return(best, 200) == pytest.approx(7.93, abs=5e-3)
    lake = from_gymnasium("FrozenLake-v1")
    assert lake.horizon == 100
    assert (lake.reward_map.scale, lake.reward_map.offset) == (1, 0)
    assert lake.initial @ optimal_values(lake)[0][0] == pytest.approx(0.744, abs=5e-4)


def test_rewards_that_differ_for_one_successor_keep_their_law():
    """A slippery cliff reaches the start from above at -1 or from the cliff at -100."""
    mdp = from_gymnasium("CliffWalking-v1", horizon=20, is_slippery=True)
    assert mdp.reward_law == "discrete"
    assert mdp.reward_support.tolist() == [0.0, 0.99, 1.0]
    played = rollout_batch(mdp, uniform_policy(mdp), 500)
    assert set(np.unique(played.rewards)) <= {0.0, 0.99, 1.0}


def test_an_environment_of_ones_own():
    class Coin(gymnasium.Env):
        """Two states; the second action of the first state ends with reward 3 or -1."""

        def __init__(self):
            self.P = {
                0: {0: [(1.0, 0, 0, False)], 1: [(0.5, 1, 3, True), (0.5, 1, -1, True)]},
                1: {0: [(1.0, 1, 0, True)], 1: [(1.0, 1, 0, True), (0.0, 0, 9, False)]},
            }
            self.initial_state_distrib = np.array([1.0, 0.0])

    mdp = from_gymnasium(Coin(), horizon=2)
    assert (mdp.states, mdp.terminal, mdp.name) == (2, (1,), "gym:Coin")
    assert (mdp.reward_map.scale, mdp.reward_map.offset) == (0.25, 0.25)
    assert optimal_values(mdp)[0][0, 0] == pytest.approx(2 * 0.25 + 0.25 * 1, abs=1e-15)
    with pytest.raises(ValueError, match="horizon = None: must be given, since Coin has no limit"):
        from_gymnasium(Coin())
    with pytest.raises(ValueError, match="is_slippery: must be left out unless env_id is a name"):
        from_gymnasium(Coin(), horizon=2, is_slippery=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("Blackjack-v1", {"horizon": 5}, "env_id = 'Blackjack-v1': must be a tabular .* no attribute 'P'"),
        ("Taxi-v3", {}, "env_id = 'Taxi-v3'"),
        ("NoSuchLake-v1", {}, "env_id = 'NoSuchLake-v1'"),
        ("Taxi-v4", {"map_name": "4x4"}, "env_id = 'Taxi-v4' with map_name = '4x4': must be"),
        ("CliffWalking-v1", {}, "horizon = None: must be given"),
        ("FrozenLake-v1", {"horizon": 0}, "horizon = 0"),
        (7, {}, "env_id = 7: must be the name"),
    ],
)
def test_bad_environments_are_named(env_id, options, message):
    with pytest.raises(ValueError, match=message):
        from_gymnasium(env_id, **options)


# --------------------------------------------------------------------------- the reverse


def returns(mdp, policy, episodes, seed):
    env = to_gymnasium(mdp, seed=seed)
    out = np.zeros(episodes)
    for i in range(episodes):
        state, info = env.reset()
        done = False
        while not done:
            assert info["action_mask"].tolist() == mdp.mask[state].tolist()
            state, reward, terminated, truncated, info = env.step(policy[info["step"], state])
            out[i] += reward
            done = terminated or truncated
    return out


class Clinic(gymnasium.Env):
    """An environment of one's own: who is discharged (2) or dies has no action; 1 cannot wait."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)
    initial_state_distrib = (1.0, 0.0, 0.0, 0.0)
    P = {  # noqa: RUF012
        0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 0.0, False)], 1: [(1.0, 2, 2.0, True)]},
        1: {1: [(0.75, 0, -1.0, False), (0.25, 3, -6.0, True)]},
        2: {},
    }


def test_an_environment_of_ones_own_as_an_object() -> None:
    mdp = dr.make(Clinic(), horizon=3)
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.terminal) == (4, 2, 3, (2, 3))
    np.testing.assert_array_equal(mdp.mask, [[True, True], [False, True], [True, True], [True, True]])
    # At once: 2. To wait pays at most .5 * 2 + .5 * (-1 + .75 * 2 - .25 * 5) < 1.
    best = mdp.initial @ optimal_values(mdp)[0][0]
    assert mdp.reward_map.original_return(best, 3) == pytest.approx(2.0)
    dr.simulate(mdp, dr.NoiseAwareUCBVI(), dr.Central(epsilon=1.0, delta=1e-6), 200)
    with pytest.raises(ValueError, match="horizon = None: must be given, since Clinic has no limit of steps"):
        dr.make(Clinic())


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([[[(0.5, 0, 0.0, False)]]], r"P\[0\]\[0\]: probabilities sum to 0.5: must sum to 1"),
        ([[[(1.0, 0, 0.0)]]], r"P\[0\]\[0\] holds \(1.0, 0, 0.0\): must be \(probability"),
        ({0: {0: [(1.0, 1, 0.0, False)]}, 1: {}}, r"P\[1\]: must have an action, because 0 can lead there"),
        ([{}], "P: must have an action"),
    ],
)
def test_tables_that_are_none_are_refused(table: Any, said: str) -> None:
    env = Clinic()
    env.P = table
    with pytest.raises(ValueError, match=said):
        dr.make(env, horizon=2)


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(ValueError, match="env_id = 3: must be the name of a Gymnasium environment or an"):
        dr.make(3)
