"""Private LSVI-UCB (Ngo et al. 2022): a slow reference, switches and their limit, the width, guarantees."""

import math
from dataclasses import replace

import numpy as np
import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.envs import random_linear
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup, simulate
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.private_lsvi_ucb import PrivateLSVIUCB
from discreet.mechanisms.interfaces import Budget, ProblemSpec
from discreet.mechanisms.seeded_rng import SeededRng

JOINT = dr.Central(epsilon=5.0, delta=1e-5)
WORLD = {"states": 4, "actions": 2, "horizon": 3, "dimension": 3, "seed": 1, "rewards": "bernoulli"}


def play(learner, mdp, users, privatizer):
    """(plan, state, release, users before) of every batch, the setup, the records, and the guarantee."""
    setup = Setup(mdp, learner, privatizer, users)
    session, keys = setup.start(Seeded(0, 0)), Seeded(0, 0).keys
    state, lives, found = learner.begin(setup.spec, keys.ties), [], []
    while len(lives) < users:
        release = session.release()
        plan, state = learner.plan(state, release, session.answer)
        found.append((plan, state, release, len(lives)))
        encoder = session.begin(plan)
        for _ in range(plan.users):
            lives.append(rollout(mdp, plan.policy, keys.environment, len(lives)))
            session.submit(encoder(lives[-1], plan, SeededRng(keys.noise, len(lives) - 1)))
    guarantee = session.guarantee
    session.close()
    return found, setup, lives, guarantee


def width(d, horizon, users, noise, p=0.05):
    """The width (2), at a bound lambda~ of the noise."""
    u = max(1.0, 1.0 + 2 * horizon * math.sqrt(d * users) / noise)
    chi = math.log(254 * 162 * users**4 * d * u * horizon / p)
    return 5 * horizon**2 * math.sqrt(d * noise) * chi + 6 * d * horizon * math.sqrt(chi)


def grams(mdp, lives):
    """(H, d, d) Gram matrices of records, without ridge."""
    phi, horizon, d = mdp.features.table, mdp.horizon, mdp.features.dimension
    found = np.zeros((horizon, d, d))
    for life in lives:
        for h in range(horizon):
            x = phi[life.states[h], life.actions[h]]
            found[h] += np.outer(x, x)
    return found


def planned(mdp, lives, beta):
    """Q (H, S, A) of LSVI-UCB with lambda = 1, user by user."""
    phi, horizon = mdp.features.table, mdp.horizon
    after, q, sums = np.zeros(mdp.states), np.zeros((horizon, mdp.states, mdp.actions)), grams(mdp, lives)
    for h in reversed(range(horizon)):
        inverse, u = np.linalg.inv(sums[h] + np.eye(len(sums[h]))), np.zeros(len(sums[h]))
        for life in lives:
            u += phi[life.states[h], life.actions[h]] * (life.rewards[h] + after[life.states[h + 1]])
        for s in range(mdp.states):
            for a in range(mdp.actions):
                x = phi[s, a]
                q[h, s, a] = min(max(x @ inverse @ u + beta * math.sqrt(x @ inverse @ x), 0.0), horizon - h)
        after = q[h].max(axis=1)
    return q


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_without_noise_it_is_lsvi_ucb_with_a_new_policy_at_doubled_determinants(scale):
    mdp, users = random_linear(**WORLD), 60
    learner = PrivateLSVIUCB(preset="paper", tie_break="first", bonus_scale=scale)
    found, _, lives, _ = play(learner, mdp, users, dr.NoPrivacy())
    old, switches = None, 0
    for plan, state, _, k in found:
        sums = grams(mdp, lives[:k]) + np.eye(3)
        if old is None or any(np.linalg.det(sums[h]) >= 2 * np.linalg.det(old[h]) for h in range(3)):
            q, switches = (
                planned(mdp, lives[:k], scale * width(3, 3, users, 1.0)),
                switches + (old is not None),
            )
            old = sums
        np.testing.assert_allclose(state.q.reshape(q.shape), q, atol=1e-9)
        np.testing.assert_array_equal(plan.policy, np.round(q, 9).argmax(axis=2))
        assert state.switches == switches
    assert 3 < switches <= math.ceil(9 * math.log2(1 + users / 3))
    assert (q < np.array([3, 2, 1])[:, None, None]).any() == (scale < 1)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_session_keeps_the_asked_guarantee_and_answers_the_planned_rounds(preset):
    mdp = random_linear(**WORLD)
    learner = PrivateLSVIUCB(preset=preset, bonus_scale=0.0)
    found, setup, _, guarantee = play(learner, mdp, 300, JOINT)
    assert repr(guarantee) == repr(setup.guarantee)
    assert guarantee.epsilon == pytest.approx(5.0, rel=1e-6)
    assert found[-1][1].switches <= setup.learner.tuned(setup.spec).switches
    assert setup.schedule.answers == min(setup.learner.tuned(setup.spec).switches, setup.schedule.releases)


def test_the_ridge_never_falls_and_is_twice_the_bound_of_the_noise():
    """In a tree the noise terms of a release are the ones of its number; the ridge is that of the most."""
    mdp = random_linear(**WORLD)
    learner = PrivateLSVIUCB(preset="paper", bonus_scale=0.0)
    found, setup, _, _ = play(learner, mdp, 40, dr.Central(epsilon=5.0, delta=1e-5, release="tree"))
    releases, scales = setup.schedule.releases, setup.mechanism.scales["gram"]
    for _, state, release, k in found[1:]:
        most = max(bin(i).count("1") for i in range(k + 1))
        each = 0.05 / (3 * releases)
        noise = scales * math.sqrt(most) * (2 * math.sqrt(3) + 2 * math.sqrt(math.log(2 / each)))
        np.testing.assert_allclose(learner._added(state, release), 2 * noise, rtol=1e-9)
        wanted = replace(learner, bonus_scale=2.0)._width(state, release, 1)
        assert wanted == pytest.approx(2 * width(3, 3, 40, noise[1]))


def test_the_limit_of_rounds():
    spec = ProblemSpec(random_linear().layout, 10**5, features=random_linear().features)
    assert PrivateLSVIUCB().tuned(spec).switches == math.ceil(16 * math.log2(1 + 10**5 / 4))
    loud = replace(spec, budget=Budget("joint", 1.0, 1e-5))
    learner = PrivateLSVIUCB(preset="paper")
    limit = learner.tuned(loud).switches
    law = learner._noise_of_one_sum(loud)
    levels = [1 + 2 * law.operator_norm_bound(0.05 / 4, h) for h in range(4)]
    assert limit == math.ceil(sum(4 * math.log2(1 + 10**5 / (4 * level)) for level in levels))
    assert limit < PrivateLSVIUCB().tuned(spec).switches / 2
    assert learner.schedule(loud).answers == limit
    assert replace(learner, switches=7).schedule(loud).answers == 7
    assert PrivateLSVIUCB(switching="release").tuned(loud).switches is None
    assert replace(learner, ridge=1.0).tuned(loud).switches > limit


def test_a_run_is_one_run_however_it_is_made():
    mdp = random_linear(**WORLD)
    for learner in (PrivateLSVIUCB(), PrivateLSVIUCB(preset="paper", bonus_scale=1e-4)):
        for by in ("episode", "batch"):
            one = simulate(mdp, learner, JOINT, 60, seeds=2, by=by, workers=1)
            slow = simulate(mdp, learner, JOINT, 60, seeds=2, by=by, workers=1, stepwise=True)
            assert one.regret.tobytes() == slow.regret.tobytes()


def test_options_and_summary():
    assert "quoted from public code" in PrivateLSVIUCB(preset="paper").summary()
    assert "quoted" not in PrivateLSVIUCB().summary()
    assert isinstance(PrivateLSVIUCB(), LSVIUCB)
    mdp, spec = random_linear(**WORLD), ProblemSpec(random_linear(**WORLD).layout, 10)
    with pytest.raises(ValueError, match="Features"):
        PrivateLSVIUCB().tuned(spec)
    assert Setup(mdp, PrivateLSVIUCB(beta="range"), JOINT, 100).learner.beta == "range"
