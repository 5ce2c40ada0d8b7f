"""Actions of users with contexts: greedy, exploring, at random, with a bonus."""

import math

import numpy as np
import pytest

from discreet.core.releases import Plan
from discreet.device.context_policy import chosen_actions


def taken(plan, phi, shared, rng):
    return chosen_actions(plan.policy, plan.context, phi, shared, rng)


def test_greedy_users_take_the_action_with_the_highest_mean():
    rng = np.random.default_rng(0)
    theta, phi = rng.normal(size=(3, 4)), rng.normal(size=(20, 4))
    plan = Plan(theta, 20, {"random": np.zeros(1)})
    assert np.array_equal(taken(plan, phi, False, rng), (phi @ theta.T).argmax(axis=1))
    shared = rng.normal(size=(20, 5, 4))
    plan = Plan(theta[:1], 20, {"random": np.zeros(1)})
    assert np.array_equal(taken(plan, shared, True, rng), (shared @ theta[0]).argmax(axis=1))


def test_explorers_choose_by_coefficients_of_the_stated_spread():
    """Two actions, one feature: the second is taken when a normal variable exceeds 1/2.

    20 000 users; the tolerance is six standard errors: 2e-9.
    """
    root = np.array([[[0.0]], [[2.0]]])
    plan = Plan(np.array([[1.0], [0.0]]), 20_000, {"random": np.zeros(1), "root": root})
    share = taken(plan, np.ones((20_000, 1)), False, np.random.default_rng(1)).mean()
    expected = 0.5 * math.erfc(0.5 / math.sqrt(2))
    assert share == pytest.approx(expected, abs=6 * math.sqrt(expected * (1 - expected) / 20_000))


def test_random_users_take_every_action_alike():
    """30 000 users; six standard errors: 2e-9 each."""
    plan = Plan(np.zeros((3, 4)), 30_000, {"random": np.ones(1)})
    found = taken(plan, np.zeros((30_000, 4)), False, np.random.default_rng(0))
    assert np.bincount(found) / 30_000 == pytest.approx(np.full(3, 1 / 3), abs=6 * 0.00273)


def test_a_bonus_is_added_to_scores_of_actions():
    rng = np.random.default_rng(3)
    theta, phi, root = rng.normal(size=(3, 4)), rng.normal(size=(20, 4)), rng.normal(size=(3, 4, 4))
    bonus = root @ np.swapaxes(root, 1, 2)
    context = {"random": np.zeros(1), "bonus": bonus}
    scores = phi @ theta.T + np.sqrt(np.einsum("ni,aij,nj->na", phi, bonus, phi))
    assert np.array_equal(chosen_actions(theta, context, phi, False, rng), scores.argmax(axis=1))
