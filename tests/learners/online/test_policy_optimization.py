"""Policy optimization: full support, and no step without a difference."""

from dataclasses import replace

import numpy as np
import pytest

from discreet.learners.online.policy_optimization import OPPO, PrivateUCBPO

TIES = np.array([5, 6], np.uint64)


@pytest.mark.parametrize("cls", [OPPO, PrivateUCBPO])
def test_policies_are_distributions_with_full_support(cls, problem, mask):
    setting = problem(seed=6, mask=mask)
    learner = cls(eta=50.0)
    state = learner.begin(setting.spec, TIES)
    for number in range(60):
        plan, state = learner.plan(state, setting.release(number=number, users=number))
        np.testing.assert_allclose(plan.policy.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
        assert (plan.policy[:, mask] > 0).all()
        assert (plan.policy[:, ~mask] == 0).all()
    best = state.q.reshape(4, -1)
    assert np.isfinite(best).all()
    assert plan.policy.max() > 0.99


@pytest.mark.parametrize("cls", [OPPO, PrivateUCBPO])
def test_policy_stays_uniform_without_a_step_or_a_difference(cls, problem):
    setting = problem(seed=6)
    for learner, release in (
        (cls(eta=0.0), setting.release()),
        (cls(bonus_scale=1e6), setting.release()),  # Q is the cap everywhere
    ):
        state = learner.begin(setting.spec, TIES)
        for number in range(5):
            release = replace(release, number=number, users=number)
            plan, state = learner.plan(state, release)
            np.testing.assert_array_equal(plan.policy, np.full((4, 4, 3), 1 / 3))


def test_several_users_on_one_release_are_several_steps(problem):
    setting = problem(seed=7)
    learner = OPPO(replan_every=10, eta=0.01)
    quiet = setting.release(quiet=True)
    plan, state = learner.plan(learner.begin(setting.spec, TIES), replace(quiet, number=0, users=0))
    assert plan.users == 10
    later, _ = learner.plan(state, replace(quiet, number=1, users=10))
    q = state.q.reshape(4, 4, 3)
    expected = np.exp(0.1 * q)
    np.testing.assert_allclose(later.policy, expected / expected.sum(axis=-1, keepdims=True), rtol=1e-12)
