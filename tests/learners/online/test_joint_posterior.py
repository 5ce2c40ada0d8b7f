"""The joint learner: what it asks, and when; a pure function of releases; what it learns."""

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from joint_runs import CENTRAL, DeclaredStationary, lived

import discreet as dr
from discreet.core.families import CUT_REWARDS
from discreet.envs import random_mdp, switching_chain
from discreet.experiments.simulate import Setup
from discreet.learners.online import joint_posterior as joint
from discreet.learners.online import joint_posterior_kernels as joint_kernels
from discreet.learners.online import noise_aware_kernels as noise_kernels
from discreet.mechanisms.interfaces import ProblemSpec


def test_a_world_not_declared_stationary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"spec\.stationary = False: must be true"):
        Setup(switching_chain(), dr.JointPosterior(), CENTRAL, 1000)


@pytest.mark.parametrize("privatizer", [dr.Local(epsilon=1.0), dr.Shuffle(epsilon=1.0, delta=1e-6)])
def test_who_cannot_release_cut_rewards_says_so(privatizer: Any) -> None:
    with pytest.raises(ValueError, match="cut"):
        Setup(random_mdp(seed=100), dr.JointPosterior(), privatizer, 20_000)


@pytest.mark.parametrize(
    ("option", "value"),
    [("samples", 0), ("width", -1.0), ("wide_share", 1.0), ("replan_growth", 1.0), ("fit_steps", 0),
     ("rate", 0.0), ("reward_share", 1.0), ("hand_over", 2)],
)  # fmt: skip
def test_bad_options_are_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        dr.JointPosterior(**{option: value})


def test_the_first_batch_follows_the_noise() -> None:
    """56 sqrt(S A) m / 4.22 users, then a quarter of those so far."""
    world = random_mdp(states=6, seed=100)
    sizes = {}
    for name, privatizer in {
        "1": CENTRAL, "10": dr.Central(epsilon=10.0, delta=1e-6), "pure": dr.Central(epsilon=1.0),
        "none": dr.NoPrivacy(),
    }.items():  # fmt: skip
        times = Setup(world, dr.JointPosterior(), privatizer, 20_000).schedule.release_times
        sizes[name] = int(times[1])
        np.testing.assert_array_equal(np.diff(times)[1:], np.ceil(0.25 * times[1:-1]))
    assert sizes == {"1": 194, "10": 25, "pure": 411, "none": 8}
    budgets = (joint.noise_unit(ProblemSpec(world.layout, budget=b)) for b in (None, CENTRAL.budget))
    np.testing.assert_allclose(*map(float, budgets), rtol=1e-3)


def test_few_users_and_small_horizons_run() -> None:
    for users in (1, 3, 9):
        assert np.isfinite(
            Setup(random_mdp(seed=100), dr.JointPosterior(), CENTRAL, users).run(0, 0).regret
        ).all()
    short = random_mdp(states=3, horizon=1, seed=100)
    assert np.isfinite(Setup(short, dr.JointPosterior(), dr.Central(epsilon=1.0), 200).run(0, 0).regret).all()


def test_plans_are_a_function_of_releases_and_ties() -> None:
    setup = Setup(random_mdp(states=4, seed=100), dr.JointPosterior(), CENTRAL, 400)
    plans, releases, states = lived(setup)
    again, _, _ = lived(setup)
    for mine, other in zip(plans, again, strict=True):
        np.testing.assert_array_equal(mine.policy, other.policy)
    assert any((a.policy != b.policy).any() for a, b in zip(plans, lived(setup, 1)[0], strict=True))
    k = len(plans) - 1
    before = pickle.dumps(states[k - 1])
    plan, _ = setup.learner.plan(states[k - 1], releases[k])
    np.testing.assert_array_equal(plan.policy, plans[k].policy)
    assert pickle.dumps(states[k - 1]) == before
    with pytest.raises(ValueError, match="its last plan was handed out already"):
        setup.learner.plan(replace(states[k], queue=()), releases[k])


def test_c_never_falls_and_gives_way_to_centred_rewards_for_good() -> None:
    setup = Setup(random_mdp(states=4, rewarding=8, seed=101), dr.JointPosterior(), dr.NoPrivacy(), 600)
    plans, releases, states = lived(setup)
    cuts = [plan.cut for plan in plans]
    assert cuts[0] == 3.0
    assert math.isinf(cuts[-1])
    assert (np.diff([c for c in cuts if math.isfinite(c)]) >= 0).all()
    assert cuts == sorted(cuts)
    held = [CUT_REWARDS in release.measurement.estimates for release in releases if release.number]
    assert held == sorted(held, reverse=True)
    assert not held[-1]
    assert states[-1].evidence.centered[-1] == 1
    assert states[-1].inner is None


def test_without_noise_the_model_is_recovered() -> None:
    """20 000 users, no noise: rows that hold 2000 visits or more are right to 5 standard errors or .02."""
    setup = Setup(random_mdp(states=4, seed=100), dr.JointPosterior(), dr.NoPrivacy(), 20_000)
    _, _, states = lived(setup)
    last, mdp = states[-1], setup.mdp
    work = joint._scratch(last)
    joint_kernels.decode(last.theta, work)
    joint_kernels.predict(last.evidence, work)
    visits = work.seen.sum(axis=(0, 1))
    often = np.flatnonzero(visits > 2000)
    assert often.size >= 4
    rows = mdp.layout.to_rows(np.ascontiguousarray(mdp.transitions[:1]))[0]
    means = mdp.layout.to_rows(np.ascontiguousarray(mdp.rewards[:1]))[0]
    allowed = 0.02 + 5 * 0.5 / np.sqrt(visits[often])
    assert (np.abs(work.model[often] - rows[often]) < allowed[:, None]).all()
    assert (np.abs(work.means[often] - means[often]) < allowed).all()


def test_summary_and_presets_say_what_is_missing() -> None:
    learner = dr.JointPosterior()
    assert "hand_over = True" in learner.summary()
    assert not any("hand_over" in line for line in dr.JointPosterior(preset="committed").heuristics())
    spec = ProblemSpec(random_mdp(seed=100).layout, 1000, stationary=True, budget=dr.NoPrivacy().budget)
    assert learner.tuned(spec).fit_steps == 120
    assert learner.tuned(replace(spec, budget=CENTRAL.budget)).fit_steps == 60


def test_a_world_that_varies_is_handed_over_and_learned_on() -> None:
    """The switching chain, declared stationary: the noise-aware learner takes over and has read all of it."""
    setup = DeclaredStationary(switching_chain(seed=101), dr.JointPosterior(), CENTRAL, 4000)
    plans, releases, states = lived(setup)
    handed = [state.inner is not None for state in states]
    assert not handed[0]
    assert handed[-1]
    assert all(math.isinf(plan.cut) for plan, after in zip(plans, handed, strict=True) if after)
    last = states[-1]
    assert last.inner.number == releases[-1].number
    layout, assigned = setup.mdp.layout, np.zeros(setup.mdp.layout.horizon * setup.mdp.layout.rows)
    for plan, release in zip(plans, releases, strict=True):
        if release.number < releases[-1].number:
            rows = layout.row_index[np.arange(layout.states)[None, :], plan.policy]
            np.add.at(assigned, (rows + layout.rows * np.arange(layout.horizon)[:, None]).ravel(), plan.users)
    expected = noise_kernels._sums(last.inner.memory, assigned.size, layout.states).total
    np.testing.assert_array_equal(expected > 0.0, assigned > 0.0)
    each = [array.reshape(layout.horizon, -1).sum(axis=1) for array in (expected, assigned)]
    np.testing.assert_allclose(each[0], each[1] / layout.states, rtol=1e-9)  # everybody, at each step
