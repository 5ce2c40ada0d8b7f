"""Exact planning: the spec's RiverSwim values, enumeration of all policies, occupancy measures."""

import itertools

import numpy as np
import pytest

from discreet.envs import random_mdp, riverswim
from discreet.envs.mdp.planning import (
    evaluate_policy,
    occupancy,
    optimal_values,
    policy_value,
    uniform_policy,
)
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.policy_rows import policy_rows

# spec/tabular.md, section 9.
RIVERSWIM_OPTIMAL = [3.39726396, 4.05265063, 5.3018679, 6.67836688, 8.09400027, 9.52144452]


def by_hand(mdp, policy):
    """V^pi by the definition, from the public tables and a stochastic policy."""
    values = np.zeros((mdp.horizon + 1, mdp.states))
    for h in reversed(range(mdp.horizon)):
        values[h] = (policy[h] * (mdp.rewards[h] + mdp.transitions[h] @ values[h + 1])).sum(-1)
    return values


def as_stochastic(mdp, policy):
    return np.eye(mdp.actions)[policy]


def random_policy(mdp, rng):
    weights = rng.random((mdp.horizon, mdp.states, mdp.actions)) * mdp.mask
    weights[..., 0] *= rng.random((mdp.horizon, mdp.states)) < 0.7
    weights += 1e-3 * mdp.mask
    return weights / weights.sum(-1, keepdims=True)


def masked_mdp(rng, states=4, actions=3, horizon=5):
    mask = rng.random((states, actions)) < 0.6
    mask[np.arange(states), rng.integers(actions, size=states)] = True
    return TabularMDP(
        rng.dirichlet(np.ones(states), (horizon, states, actions)),
        rng.random((horizon, states, actions)),
        rng.dirichlet(np.ones(states)),
        mask=mask,
    )


def test_riverswim_values():
    mdp = riverswim()
    values, _, _ = optimal_values(mdp)
    assert values[0] == pytest.approx(RIVERSWIM_OPTIMAL, abs=5e-9)
    right, left = np.ones((20, 6), int), np.zeros((20, 6), int)
    assert policy_value(mdp, right) == pytest.approx(3.39663698, abs=5e-9)
    assert policy_value(mdp, left) == pytest.approx(0.1, abs=1e-12)
    assert policy_value(mdp, uniform_policy(mdp)) == pytest.approx(0.04378902, abs=5e-9)
    assert policy_value(riverswim(rewards="bernoulli"), right) == policy_value(mdp, right)


@pytest.mark.parametrize("seed", range(6))
def test_optimal_among_all_deterministic_policies(seed):
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(2, 0.5), (3, 2, 2))
    mdp = TabularMDP(transitions, rng.random((3, 2, 2)), rng.dirichlet([1, 1]))
    values, q, policy = optimal_values(mdp)
    best = np.zeros((4, 2))
    for actions in itertools.product(range(2), repeat=6):
        each = np.array(actions).reshape(3, 2)
        found = evaluate_policy(mdp, each)
        assert np.allclose(found, by_hand(mdp, as_stochastic(mdp, each)), rtol=0, atol=1e-14)
        best = np.maximum(best, found)
    assert np.allclose(values, best, rtol=0, atol=1e-14)
    assert np.allclose(evaluate_policy(mdp, policy), values, rtol=0, atol=1e-14)
    assert np.array_equal(q.max(-1), values[:-1])
    assert np.array_equal(q.argmax(-1), policy)


@pytest.mark.parametrize("seed", range(4))
def test_stochastic_policies_with_a_mask(seed):
    rng = np.random.default_rng(seed)
    mdp = masked_mdp(rng)
    values, q, policy = optimal_values(mdp)
    assert (np.isneginf(q) == ~mdp.mask).all()
    assert mdp.mask[np.arange(mdp.states), policy].all()
    for _ in range(20):
        pi = random_policy(mdp, rng)
        found = evaluate_policy(mdp, pi)
        assert np.allclose(found, by_hand(mdp, pi), rtol=0, atol=1e-13)
        assert (found <= values + 1e-13).all()


@pytest.mark.parametrize("stochastic", [True, False])
def test_occupancy(stochastic):
    rng = np.random.default_rng(5)
    for mdp in (masked_mdp(rng), riverswim(), random_mdp(seed=3, stationary=False, horizon=7)):
        policy = random_policy(mdp, rng) if stochastic else optimal_values(mdp)[2]
        measure = occupancy(mdp, policy)
        assert measure.shape == (mdp.horizon, mdp.states, mdp.actions)
        assert (measure >= 0).all()
        assert not measure[:, ~mdp.mask].any()
        assert measure.sum((1, 2)) == pytest.approx(np.ones(mdp.horizon), abs=1e-13)
        assert (measure * mdp.rewards).sum() == pytest.approx(policy_value(mdp, policy), abs=1e-12)
        forward = np.einsum("hsa,hsat->ht", measure[:-1], mdp.transitions[:-1])
        assert np.allclose(measure[1:].sum(2), forward, rtol=0, atol=1e-14)


def test_equal_actions_tie_exactly_and_the_first_wins():
    rng = np.random.default_rng(1)
    transitions = np.repeat(rng.dirichlet(np.ones(5), (5, 1)), 3, axis=1)
    mdp = TabularMDP(transitions, np.repeat(rng.random((5, 1)), 3, axis=1), horizon=10)
    _, q, policy = optimal_values(mdp)
    assert (q == q[..., :1]).all()
    assert not policy.any()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.zeros((20, 5), int), r"policy has shape \(20, 5\)"),
        (np.zeros((20, 6)), "dtype float64: must be integers"),
        (np.full((20, 6), 2), r"policy\[0, 0\] = 2: must be an integer in \[0, 1\]"),
        (np.full((20, 6), -1), r"policy\[0, 0\] = -1"),
        (np.full((20, 6, 2), 0.6), r"policy\[0, 0\] sums to .*1.2"),
        (np.full((20, 6, 2), np.nan), "policy holds .*nan"),
        (np.stack([np.full((20, 6), 1.5), np.full((20, 6), -0.5)], -1), "policy holds .*-0.5"),
    ],
)
def test_bad_policies_are_named(policy, message):
    with pytest.raises(ValueError, match=message):
        evaluate_policy(riverswim(), policy)


def test_a_compiled_policy_is_taken_as_it_is():
    mdp = riverswim()
    compiled = policy_rows(mdp.layout, np.ones((20, 6), int))
    assert policy_rows(mdp.layout, compiled) is compiled
    assert policy_value(mdp, compiled) == policy_value(mdp, np.ones((20, 6), int))
