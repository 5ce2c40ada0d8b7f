"""Priors of offline planners: added visits, their limit, and refusals."""

import numpy as np
import pytest

import discreet as dr
from discreet import envs
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, NoNoise
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import batch_counts
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.learners.offline.prior_counts import PriorVisits
from discreet.mechanisms.interfaces import Plan, ProblemSpec
from discreet.utils.random_streams_kernels import run_key

WORLD = envs.random_mdp(states=5, actions=3, horizon=6, seed=8)
SPEC = ProblemSpec(WORLD.layout, 400, True)


def release_of(learner, users=400, privatizer=None):
    query, policy = learner.query(SPEC), envs.uniform_policy(WORLD)
    chosen = privatizer or dr.Central(epsilon=1.0, delta=1e-6)
    session = chosen.start(query, learner.schedule(users), Seeded(2, 0))
    session.release()
    session.begin(Plan(policy, users))
    counts = batch_counts(WORLD, policy, users, run_key(4))
    counts["centered_reward_sums"] = counts["reward_sums"] - 0.5 * counts["visits"]
    session.submit_sum({name: counts[name] for name in query.families}, users)
    return session.release()


def loss(learned):
    best = float(WORLD.initial @ envs.optimal_values(WORLD)[0][0])
    return best - envs.policy_value(WORLD, learned.policy)


def test_added_visits_are_sums_and_mixtures():
    rows, means = np.array([[[0.25, 0.75]], [[1.0, 0.0]]]), np.array([[0.5], [1.0]])
    prior = PriorVisits.of(dr.Prior((rows, means), np.array([[4.0], [0.0]])), Layout(2, 1, 3))
    moves, visits, rewards = prior.added(
        np.array([[2.0, 2.0], [3.0, 0.0]]), np.array([4.0, 3.0]), np.array([0.0, 0.2])
    )
    assert moves.tolist() == [[3.0, 5.0], [3.0, 0.0]]
    assert visits.tolist() == [8.0, 3.0]
    assert rewards == pytest.approx([0.25, 0.2])


def test_the_limit_is_about_the_visits_that_the_error_of_the_prior_is_worth():
    # Fixed seed. 40 pairs with 1e6 visits and noise 5: the error of the prior is known almost exactly.
    draw = np.random.default_rng(3)
    layout = Layout(20, 2, 1)
    true = draw.dirichlet(np.ones(20), 40)
    given = 0.8 * true + 0.2 * draw.dirichlet(np.ones(20), 40)
    n = np.full(40, 1e6)
    moves = n[:, None] * true + draw.normal(0.0, 5.0, true.shape)
    table = (layout.from_rows(given[None])[0], np.full((20, 2), 0.5))
    prior = PriorVisits.of(dr.Prior(table, 1000.0), layout)
    law = GaussianSumLaw(5.0, 1.0, 1, cells=800, rows=40, row_size=20)
    laws = {"transition_counts": law, "centered_reward_sums": law}
    found = prior.limited((n, moves, n / 2), laws)
    error = ((true - given) ** 2).sum(axis=1).mean()
    assert found.strength == pytest.approx(np.full(40, (1 - (given**2).sum(axis=1)).mean() / error), rel=0.2)
    assert (found.reward_strength == 1000.0).all()
    wrong = prior.limited((n, moves, n * 0.9), laws)
    assert wrong.reward_strength == pytest.approx(np.full(40, 0.25 / 0.16), rel=0.05)
    empty = prior.limited((0 * n, draw.normal(0.0, 5.0, true.shape), 0 * n), laws)
    assert (empty.strength == 1000.0).all()


@pytest.mark.parametrize("learner", [DPAPVI(), APVI(), DPAPVI(stationary=True)])
def test_a_true_prior_helps_and_is_no_proven_bound(learner):
    release = release_of(learner)
    plain, told = learner.learn(release, SPEC), learner.learn(release, SPEC, dr.Prior(WORLD, 1000.0))
    assert loss(told) < 0.7 * loss(plain)
    assert told.heuristics == (*plain.heuristics, "a prior (a public model) counts as visits")
    assert told.guarantee is plain.guarantee
    assert (plain.privacy_note, told.privacy_note) == (None, dr.Prior(WORLD, 1000.0).statement)
    assert (told.behaviour == plain.behaviour).all()


def test_known_rewards_are_kept_and_no_prior_changes_nothing():
    learner = DPAPVI()
    spec = ProblemSpec(WORLD.layout, 400, True, WORLD.rewards)
    release = release_of(learner)
    off = dr.Prior((WORLD.transitions[0], 1.0 - WORLD.rewards[0]), 100.0)
    assert (learner.learn(release, spec, off).q[-1] >= WORLD.rewards[-1] - 1e-12).all()
    again = learner.learn(release, SPEC, None)
    assert (again.q == learner.learn(release, SPEC).q).all()


def test_exact_counts_leave_a_wrong_prior_little_weight():
    learner = APVI()
    release = release_of(learner, 20_000, dr.NoPrivacy())
    assert isinstance(release.estimates["transition_counts"].law, NoNoise)
    wrong = dr.Prior((WORLD.transitions[0][::-1], WORLD.rewards[0][::-1]), 1000.0)
    assert loss(learner.learn(release, SPEC, wrong)) == pytest.approx(
        loss(learner.learn(release, SPEC)), abs=0.01
    )


def test_refusals():
    learner = DPAPVI()
    release = release_of(learner)
    changing = ProblemSpec(WORLD.layout, 400, False)
    with pytest.raises(ValueError, match="prior: must be None, the problem is not declared stationary"):
        learner.learn(release, changing, dr.Prior(WORLD))
    with pytest.raises(ValueError, match=r"prior has \(6, 2\) states and actions"):
        learner.learn(release, SPEC, dr.Prior(dr.make("riverswim")))
