"""Exploration by measured returns: schedule, stages, equality of the speeds, and what it gains."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.envs.rollouts.simulated_users import played_counts, simulate_users
from discreet.experiments.simulate import Setup
from discreet.learners.online import return_probe as returns
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils.random_streams_kernels import run_key

LEARNER = dr.NoiseAwareUCBVI(explore="returns")
GAUSSIAN = Central(epsilon=1.0, delta=1e-6)


def run_states(mdp, privatizer, users, seed=0, learner=LEARNER):
    """The learner's states after every plan of one run, and the plans."""
    setup = Setup(mdp, learner, privatizer, users)

    randomness, seen, at = Seeded(seed, 0), [], 0
    state = learner.begin(setup.spec, randomness.keys.ties)
    with setup.start(randomness) as session:
        while at < users:
            plan, state = learner.plan(state, session.release(), None)
            session.begin(plan)
            policy = policy_rows(mdp.layout, plan.policy)
            crowd = simulate_users(
                setup.mdp,
                session,
                setup.query,
                policy,
                plan.users,
                randomness.keys.environment,
                at,
                plan.group,
            )
            session.submit_sum(crowd.sums, plan.users)
            at += plan.users
            seen.append((plan, state))
    return seen


def test_schedule_begins_with_the_probe_and_small_samples_have_none():
    spec = ProblemSpec(Layout(6, 2, 20), 20_000)
    first = returns.probe_users(spec)
    times = LEARNER.schedule(spec).release_times
    assert times[1] == 2 * first == 54
    assert times[2] == np.ceil(1.1 * times[1])
    query = LEARNER.query(spec)
    assert query.groups == 2
    assert query.clip == 1.0
    small = replace(spec, users=1000)
    assert returns.probe_users(small) == 0
    assert LEARNER.query(small).groups == 0
    plain = dr.NoiseAwareUCBVI()
    np.testing.assert_array_equal(LEARNER.schedule(small).release_times, plain.schedule(small).release_times)


def test_the_probe_follows_the_public_budget():
    """Less noise, fewer users; whatever is known of the budget, never fewer than eight."""

    def users(**budget):
        terms = SimpleNamespace(**{"epsilon": None, "delta": 0.0, "rho": None, "mu": None} | budget)
        return returns.probe_users(SimpleNamespace(budget=terms, users=10**6, actions=2))

    assert users(epsilon=1.0, delta=1e-6) == 27  # 6 * 4.2247 / sqrt(.9)
    assert users(mu=1.0) == users(rho=0.5) == 8
    assert users(epsilon=0.1, delta=1e-6) > 200
    assert users(epsilon=1.0) == 10  # 6 sqrt(2) / .9
    assert users() == 8


def test_by_episode_and_by_batch_are_the_same_users_and_the_same_run():
    """Bernoulli rewards: sums are exact, so regret is equal to rounding."""
    mdp = dr.make("riverswim", rewards="bernoulli")
    setups = {by: Setup(mdp, LEARNER, GAUSSIAN, 1500, by) for by in ("episode", "batch")}
    regret = {by: dict(zip(s.recorded.tolist(), s.run(3, 1).regret, strict=True)) for by, s in setups.items()}
    shared = sorted(set(regret["episode"]) & set(regret["batch"]))
    assert len(shared) > 5
    for users in shared:
        assert regret["episode"][users] == pytest.approx(regret["batch"][users], rel=1e-9)


def test_too_few_users_is_the_plain_learner():
    mdp = dr.make("riverswim", rewards="bernoulli")
    mine = Setup(mdp, LEARNER, GAUSSIAN, 500, "episode", stepwise=True).run(0, 0).regret
    plain = Setup(mdp, dr.NoiseAwareUCBVI(), GAUSSIAN, 500, "episode", stepwise=True).run(0, 0).regret
    np.testing.assert_array_equal(mine, plain)


def test_played_counts_are_those_of_the_users():
    mdp = dr.make("random", seed=4)
    policy = np.zeros((20, 6), np.int64)
    counts, earned = played_counts(mdp, policy, 50, run_key(2, 1), 7, 1.5)
    people = rollout_batch(mdp, policy, 50, seed=2, run=1, first=7)
    moves = np.zeros((20, 6, 2, 6))
    for h in range(20):
        np.add.at(moves[h], (people.states[:, h], people.actions[:, h], people.states[:, h + 1]), 1.0)
    np.testing.assert_array_equal(counts["transition_counts"], moves)
    np.testing.assert_array_equal(counts["visits"], moves.sum(axis=-1))
    assert counts["reward_sums"].sum() == pytest.approx(people.rewards.sum())
    assert earned == pytest.approx(np.minimum(people.rewards.sum(axis=1), 1.5).sum())
    pooled, _ = played_counts(mdp, policy, 50, run_key(2, 1), 7, 1.5, pooled=True)
    np.testing.assert_array_equal(pooled["transition_counts"][0], moves.sum(axis=0))


def test_a_world_without_reward_leaves_the_learner_alone():
    mdp = TabularMDP(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 0, horizon=4, reward_law="bernoulli")
    seen = run_states(mdp, GAUSSIAN, 3000)
    assert [plan.group for plan, _ in seen[:2]] == [0, 1]
    assert seen[0][0].return_share == 0.9
    assert [plan.forget for plan, _ in seen[:3]] == [True, True, False]
    assert all(state.stage == "alone" for _, state in seen[2:])
    assert all(plan.return_share == 0.0 for plan, _ in seen[2:])


def test_an_anchor_is_found_played_and_let_go_of():
    """RiverSwim: the anchor is right; with next to no noise the learner soon goes on alone."""
    mdp = dr.make("riverswim", rewards="bernoulli")
    watched = run_states(mdp, GAUSSIAN, 20_000, seed=1)
    assert watched[2][1].anchor == 1
    played = [plan for plan, state in watched[2:] if plan.group == 0 and state.stage == "watch"]
    assert played
    assert all((plan.policy == 1).all() for plan in played)
    assert {plan.return_share for plan, state in watched[2:] if state.stage == "watch"} == {0.3}
    free = run_states(mdp, Central(epsilon=1000.0, delta=1e-6), 5000)
    assert free[-1][1].stage == "alone"


def test_state_is_public_and_pickles():
    mdp = dr.make("riverswim", rewards="bernoulli")
    state = run_states(mdp, GAUSSIAN, 1500)[-1][1]
    again = pickle.loads(pickle.dumps(state))
    np.testing.assert_array_equal(again.inner.memory, state.inner.memory)


def test_without_privacy_and_refusals():
    mdp = dr.make("random", seed=0)
    regret = Setup(mdp, LEARNER, NoPrivacy(), 3000).run(0, 0).regret
    assert np.isfinite(regret).all()
    with pytest.raises(ValueError, match="groups"):
        Setup(mdp, LEARNER, Local(epsilon=1.0), 3000)
    with pytest.raises(ValueError, match="explore"):
        dr.NoiseAwareUCBVI(explore="curiosity")
    assert any("measured" in reason for reason in LEARNER.heuristics())


def test_probe_plays_the_lowest_action_where_its_own_is_inadmissible():
    mask = np.array([[True, True], [False, True], [True, False]])
    transitions = np.where(mask[:, :, None], [0.5, 0.25, 0.25], 0.0)
    rewards = np.where(mask, 0.5, 0.0)
    mdp = TabularMDP(transitions, rewards, 0, horizon=4, mask=mask)
    plans = [plan for plan, _ in run_states(mdp, GAUSSIAN, 2000)]
    np.testing.assert_array_equal(plans[0].policy[0], [0, 1, 0])
    np.testing.assert_array_equal(plans[1].policy[0], [1, 1, 0])


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("delta", [None, 1e-6])
@pytest.mark.parametrize("stationary", [False, True])
def test_every_budget_of_a_curator_fits(epsilon, delta, stationary):
    """Also where the pooled counts take a share that moves, beside the returns' own."""
    privatizer = Central(epsilon=epsilon, **({} if delta is None else {"delta": delta}))
    learner = replace(LEARNER, stationary=stationary)
    setup = Setup(dr.make("riverswim", rewards="bernoulli"), learner, privatizer, 2000)
    assert setup.query.groups
    assert setup.mechanism.guarantee.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert np.isfinite(setup.run(0, 0).regret).all()


@pytest.mark.statistics
def test_riverswim_costs_much_less():
    """Eight fixed seeds: the plain learner's mean is near 10 900, this one's 3 500 (standard error 630)."""
    setup = Setup(dr.make("riverswim", rewards="bernoulli"), LEARNER, GAUSSIAN, 20_000, "batch")
    assert np.mean([setup.run(11, run).regret[-1] for run in range(8)]) < 7000
