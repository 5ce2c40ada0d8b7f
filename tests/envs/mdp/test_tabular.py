"""The door of a tabular MDP: what it accepts, what it refuses, what it shows."""

import pickle

import numpy as np
import pytest

from discreet.envs.mdp.planning import evaluate_policy, optimal_values, uniform_policy
from discreet.envs.mdp.tabular import RewardMap, TabularMDP
from discreet.mechanisms.policy_rows import policy_rows

P = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]]])  # (S, A, S) = (2, 2, 2)
R = np.array([[0.1, 0.2], [0.3, 0.4]])


def build(transitions=P, rewards=R, **options):
    return TabularMDP(transitions, rewards, **{"horizon": 3, **options})


def test_views_are_the_input():
    mdp = build()
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.stationary) == (2, 2, 3, True)
    assert mdp.transitions.shape == (3, 2, 2, 2)
    assert np.array_equal(mdp.transitions, np.broadcast_to(P, (3, 2, 2, 2)))
    assert np.array_equal(mdp.rewards, np.broadcast_to(R, (3, 2, 2)))
    assert mdp.initial.tolist() == [1.0, 0.0]
    assert mdp.successor_rewards is None
    assert mdp.mask.all()
    assert "stationary" in repr(mdp)


def test_everything_is_read_only_and_apart_from_the_input():
    rewards, transitions = R.copy(), P.copy()
    mdp = build(transitions, rewards)
    rewards[:] = 0.9
    transitions[:] = 0.5
    assert np.array_equal(mdp.rewards[0], R)
    assert np.array_equal(mdp.transitions[0], P)
    for array in (mdp.transitions, mdp.rewards, mdp.initial, mdp.probability, mdp.row_rewards):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        mdp.name = "other"


@pytest.mark.parametrize("steps", [(True, True), (True, False), (False, True)])
def test_a_step_axis_makes_it_non_stationary(steps):
    transitions = np.repeat(P[None], 3, 0) if steps[0] else P
    rewards = np.repeat(R[None], 3, 0) if steps[1] else R
    mdp = TabularMDP(transitions, rewards)
    assert mdp.horizon == 3
    assert not mdp.stationary
    assert mdp.transition_slots == (3 if steps[0] else 1)
    assert np.array_equal(
        evaluate_policy(mdp, np.ones((3, 2), int)), evaluate_policy(build(), np.ones((3, 2), int))
    )


def test_one_slot_with_its_axis_is_stationary():
    assert build(P[None], R[None]).stationary


def test_successor_rewards_give_the_mean_of_the_pair():
    table = np.arange(8).reshape(2, 2, 2) / 8
    mdp = build(rewards=table)
    assert np.allclose(mdp.rewards[0], (P * table).sum(-1), rtol=0, atol=1e-15)
    assert np.array_equal(mdp.successor_rewards[0], np.where(P > 0, table, 0))
    assert mdp.stationary
    steps = np.stack([table, table / 2, table / 4])
    for mixed in (TabularMDP(P, steps), TabularMDP(np.repeat(P[None], 3, 0), steps)):
        assert np.allclose(mixed.rewards, (P * steps).sum(-1), rtol=0, atol=1e-15)
        assert np.array_equal(mixed.successor_rewards, np.where(P > 0, steps, 0))
    other = build(np.repeat(P[None], 3, 0), table)
    assert np.array_equal(other.successor_rewards[2], np.where(P > 0, table, 0))


def test_a_cube_of_rewards_is_read_by_step():
    """H = S = A = 2: a (2, 2, 2) table is (H, S, A); a leading axis makes it per successor."""
    table = np.arange(8).reshape(2, 2, 2) / 8
    assert np.array_equal(TabularMDP(P, table).rewards, table)
    assert TabularMDP(P, table[None], horizon=2).successor_rewards is not None


def test_discrete_rewards():
    law = np.array([[[0.5, 0.5, 0], [1, 0, 0]], [[0, 0, 1], [0.2, 0.3, 0.5]]])
    mdp = build(
        rewards=None, reward_law="discrete", reward_support=[0, 0.5, 1], reward_probabilities=law[None]
    )
    assert np.allclose(mdp.rewards[1], [[0.25, 0], [1, 0.65]], rtol=0, atol=1e-15)
    by_successor = np.repeat(law[:, :, None], 2, axis=2)[None]
    by_successor[0, 0, 1, 0] = 0  # an impossible successor needs no law
    same = build(
        rewards=None, reward_law="discrete", reward_support=[0, 0.5, 1], reward_probabilities=by_successor
    )
    assert np.allclose(same.rewards, mdp.rewards, rtol=0, atol=1e-15)
    by_successor[0, 0, 1, 1] = 0
    with pytest.raises(ValueError, match="reward_probabilities sums to 0"):
        build(
            rewards=None, reward_law="discrete", reward_support=[0, 0.5, 1], reward_probabilities=by_successor
        )


def test_masked_rows_are_not_read():
    transitions, rewards = P.copy(), R.copy()
    transitions[0, 1], rewards[0, 1] = np.nan, 7
    mask = np.array([[True, False], [True, True]])
    mdp = build(transitions, rewards, mask=mask)
    assert mdp.layout.rows == 3
    assert np.array_equal(mdp.mask, mask)
    assert mdp.transitions[0, 0, 1].tolist() == [0, 0]
    assert mdp.rewards[0, 0, 1] == 0
    _, q, policy = optimal_values(mdp)
    assert (q[:, 0, 1] == -np.inf).all()
    assert (policy[:, 0] == 0).all()
    assert uniform_policy(mdp)[0].tolist() == [[1, 0], [0.5, 0.5]]
    with pytest.raises(ValueError, match="not admissible in state 0"):
        policy_rows(mdp.layout, np.ones((3, 2), int))
    with pytest.raises(ValueError, match="not admissible in state 0"):
        policy_rows(mdp.layout, np.full((3, 2, 2), 0.5))


def test_terminal_states():
    transitions, rewards = P.copy(), R.copy()
    transitions[1], rewards[1] = [0, 1], 0.0
    assert build(transitions, rewards, terminal=[1]).terminal == (1,)
    rewards[1] = 0.25
    assert build(transitions, rewards, terminal={1}).terminal == (1,)
    with pytest.raises(ValueError, match="terminal state 1: must be absorbing, with one constant reward"):
        build(transitions, rewards, terminal=[1], reward_law="bernoulli")
    with pytest.raises(ValueError, match="terminal state 0"):
        build(transitions, rewards, terminal=[0])
    rewards[1, 0] = 0.0
    with pytest.raises(ValueError, match="terminal state 1"):
        build(transitions, rewards, terminal=[1])
    law = np.zeros((1, 2, 2, 2))
    law[..., 0] = 1
    discrete = {"rewards": None, "reward_law": "discrete", "reward_support": [0, 1], "terminal": [1]}
    assert build(transitions, reward_probabilities=law, **discrete).terminal == (1,)
    law[0, 1] = 0.5
    with pytest.raises(ValueError, match="terminal state 1"):
        build(transitions, reward_probabilities=law, **discrete)


def test_rows_off_by_rounding_are_normalised():
    rows = P * (1 + 5e-10)
    assert np.abs(build(rows).transitions.sum(-1) - 1).max() < 1e-15


def test_pickle_carries_no_copies_per_step():
    mdp = build(horizon=1000)
    assert mdp.transitions.shape[0] == 1000
    assert mdp.world.horizon == 1000
    data = pickle.dumps(mdp)
    assert len(data) < 5000
    back = pickle.loads(data)
    assert np.array_equal(back.transitions, mdp.transitions)
    assert not back.probability.flags.writeable
    assert back.layout == mdp.layout


def test_reward_map():
    assert RewardMap(scale=0.5, offset=0.25).original_return(2.0, 4) == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transitions": P[0]}, r"transitions has shape \(2, 2\)"),
        ({"transitions": np.ones((2, 2, 3)) / 3}, r"transitions has shape \(2, 2, 3\)"),
        ({"transitions": np.empty((0, 2, 0))}, "none empty"),
        ({"transitions": "abc"}, "transitions: must be an array of numbers"),
        ({"transitions": P + 0.1}, r"transitions\[0, \d, \d\] sums to 1.2"),
        ({"transitions": P * np.nan}, r"transitions\[0, 0, 0\] holds nan"),
        ({"transitions": P - [[[0, 0], [0, 0]], [[0, 0.5], [0, 0]]]}, r"transitions\[0, 1, 0\] holds -0.5"),
        ({"rewards": R + 1}, r"rewards\[0, 0, 0\] holds 1.1: must be in \[0, 1\]"),
        ({"rewards": -R}, r"rewards\[0, 0, 0\] holds -0.1"),
        ({"rewards": R * np.nan}, "holds nan"),
        ({"rewards": R[0]}, r"rewards has shape \(2,\)"),
        ({"rewards": np.zeros((4, 2, 2))}, "rewards has 4 slots: must be 1 or the horizon, 3"),
        ({"rewards": None}, "rewards = None: must be given"),
        ({"horizon": None}, "horizon = None: must be given"),
        ({"horizon": 0}, "horizon = 0: must be an integer of at least 1"),
        ({"horizon": 2.5}, "horizon = 2.5"),
        ({"initial": 2}, r"initial = 2: must be an integer in \[0, 1\]"),
        ({"initial": [0.5, 0.6]}, "initial sums to 1.1"),
        ({"initial": [1.5, -0.5]}, "initial holds -0.5"),
        ({"initial": [1.0]}, r"initial has shape \(1,\): must be \(2,\)"),
        ({"mask": np.ones((2, 3), bool)}, r"mask has shape \(2, 3\)"),
        ({"mask": [[True, True], [False, False]]}, r"mask\[1\] admits no action"),
        ({"mask": R}, "mask holds values other than true and false"),
        ({"reward_law": "gaussian"}, "reward_law = 'gaussian': must be one of 'deterministic'"),
        ({"reward_law": "discrete"}, "rewards: must be None with reward_law='discrete'"),
        ({"reward_law": "discrete", "rewards": None}, "both are needed"),
        ({"reward_support": [0, 1]}, "must be None with reward_law='deterministic'"),
        ({"terminal": [2]}, "terminal = 2"),
        ({"terminal": [1]}, "terminal state 1: must be absorbing"),
        (
            {
                "rewards": None,
                "reward_law": "discrete",
                "reward_support": [0, 2],
                "reward_probabilities": [0],
            },
            r"reward_support = \[0. 2.\]",
        ),
        (
            {"rewards": None, "reward_law": "discrete", "reward_support": [0, 1], "reward_probabilities": P},
            r"reward_probabilities has shape \(2, 2, 2\)",
        ),
        (
            {
                "rewards": None,
                "reward_law": "discrete",
                "reward_support": [0, 1],
                "reward_probabilities": P[None] / 2,
            },
            "reward_probabilities sums to 0.5",
        ),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
