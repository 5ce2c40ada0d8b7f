"""Simulated users with contexts: regret, modes that agree, learning, refusals."""

import math

import numpy as np
import pytest

import discreet as dr
from discreet.device.linear_forms import GRAM
from discreet.envs.context_worlds import fixed_arms, per_action_contexts, shared_contexts
from discreet.experiments.context_runs import ContextSetup
from discreet.learners.online.linear_bandit import LinearBandit

WORLD = per_action_contexts(2, 3, seed=4)
CENTRAL = dr.Central(epsilon=10.0, delta=1e-6)


@pytest.mark.parametrize("privatizer", [dr.NoPrivacy(), CENTRAL], ids=["none", "central"])
def test_users_one_by_one_or_in_chunks_have_the_same_run(privatizer):
    """Sums differ in their last bits only, so no action of these runs does."""
    runs = [
        ContextSetup(WORLD, LinearBandit(), privatizer, 600, stepwise=one).run(3, 0) for one in (True, False)
    ]
    assert runs[0].episodes.tolist() == runs[1].episodes.tolist()
    assert runs[0].regret == pytest.approx(runs[1].regret, rel=1e-9)


def test_a_seed_repeats_its_run_and_others_differ():
    setup = ContextSetup(WORLD, LinearBandit(), CENTRAL, 500)
    assert setup.run(1, 0).agrees(setup.run(1, 0))
    assert not setup.run(1, 0).agrees(setup.run(1, 1))


def test_devices_and_their_sum_have_noise_of_the_same_size():
    """Mean square noise of Gram matrices, 40 runs each of 20 users: 1 680 cells, six standard errors."""
    privatizer, found = dr.Local(epsilon=4.0, delta=1e-6), []
    for by in ("batch", "episode"):
        setup = ContextSetup(WORLD, LinearBandit(first=20), privatizer, 40, by=by)
        plain = ContextSetup(WORLD, LinearBandit(first=20), dr.NoPrivacy(), 40)
        squares = []
        for run in range(40):
            own, exact = (first_release(one, run) for one in (setup, plain))
            above = np.triu_indices(3, 1)
            squares.append(((own - exact)[:, above[0], above[1]] ** 2).ravel())
        found.append(np.concatenate(squares))
    law = found[0].mean(), found[1].mean()
    error = math.sqrt(sum(one.var() / one.size for one in found))
    assert abs(law[0] - law[1]) < 6 * error
    scale = setup.mechanism.scales[GRAM][0]
    assert law[1] == pytest.approx(20 * scale**2, rel=6 * math.sqrt(2 / found[1].size))


def first_release(setup, run):
    """Gram matrices after the first 20 users."""
    seen = []

    class Watch(LinearBandit):
        def plan(self, state, release, ask=None):
            seen.append(release)
            return super().plan(state, release, ask)

    watch = Watch(first=20)
    ContextSetup(setup.mdp, watch, setup.privatizer, 40, by=setup.by).run(7, run)
    return next(one for one in seen if one.users == 20).estimates[GRAM].value


@pytest.mark.parametrize(
    ("world", "most"),
    [
        (shared_contexts(5, 5, seed=9), 0.05),
        (per_action_contexts(4, 5, seed=9), 0.3),
        (fixed_arms(5, 8, seed=9), 0.3),
    ],
    ids=["shared", "per action", "fixed arms"],
)
def test_regret_is_far_below_that_of_random_actions(world, most):
    """Fixed seeds. At epsilon = 10 and 10 000 users; measured .02, .1 and .1."""
    result = dr.simulate(world, LinearBandit(), CENTRAL, 10_000, seeds=2, workers=1)
    uniform = (result.optimal_value - result.uniform_value) * 10_000
    assert result.regret[:, -1].mean() < most * uniform
    assert result.guarantee.epsilon == pytest.approx(10.0, abs=1e-6)
    assert (np.diff(result.regret, axis=1) >= 0).all()


def test_regret_without_learning_is_that_of_random_actions():
    """Everybody in the first batch: 4 000 users, six standard errors of .3 a user."""
    setup = ContextSetup(WORLD, LinearBandit(first=4000), CENTRAL, 4000)
    regret = setup.run(0, 0).regret[-1] / 4000
    assert regret == pytest.approx(setup.optimal_value - setup.uniform_value, abs=6 * 0.3 / math.sqrt(4000))


def test_other_learners_and_worlds_are_refused():
    with pytest.raises(ValueError, match="learner = DPUCBVI: must read contexts"):
        ContextSetup(WORLD, dr.DPUCBVI(), CENTRAL, 100)
    with pytest.raises(ValueError, match="spec.features"):
        dr.simulate(dr.make("riverswim"), LinearBandit(), CENTRAL, 100)
    with pytest.raises(ValueError, match="learner"):
        ContextSetup(WORLD, CENTRAL, LinearBandit(), 100)
    with pytest.raises(ValueError, match="must be .* for sums over contexts"):
        dr.simulate(WORLD, LinearBandit(), dr.Shuffle(epsilon=1.0, calibration="basic"), 1000)
