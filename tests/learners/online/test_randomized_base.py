"""Learners that draw at random: exact sums only, public coins, sub-batches, and a whole plain algorithm."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import discreet as dr
from discreet.accounting.noise_distributions.distributions import NoNoise
from discreet.core.layout import Layout
from discreet.envs.mdp import planning
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup
from discreet.learners.online.psrl import PSRL
from discreet.learners.online.rlsvi import RLSVI
from discreet.mechanisms.interfaces import Budget, Estimate, ProblemSpec, Release
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import ROLE_SAMPLES, generator_at

TIES = np.array([5, 6], np.uint64)
BOTH = [PSRL, RLSVI]


def exact(problem, number=1, users=1000):
    """A release of exact sums."""
    return problem.release(number, users, quiet=True)


# ------------------------------------------------------------------------------ the plain algorithm
class Plain:
    """Counts in lists, draws and sums one number at a time; no mask, one draw a release."""

    def __init__(self, mdp, keys, stationary):
        self.mdp, self.keys, self.stationary = mdp, keys, stationary
        h, s, a = mdp.horizon, mdp.states, mdp.actions
        self.n = np.zeros((h, s, a, s))
        self.r = np.zeros((h, s, a))

    def see(self, trajectory):
        for h in range(self.mdp.horizon):
            s, a, t = trajectory.states[h], trajectory.actions[h], trajectory.states[h + 1]
            for step in range(self.mdp.horizon) if self.stationary else (h,):
                self.n[step, s, a, t] += 1
                self.r[step, s, a] += trajectory.rewards[h]

    def plan(self, q_of, number):
        """(H, S) greedy in Q_h(s, a) = q_of(h, s, a, V_{h+1}); and where the maximiser is unique."""
        mdp = self.mdp
        q_of = q_of(self, generator_at(self.keys.ties, ROLE_SAMPLES, number, 0))
        values, policy = [0.0] * mdp.states, np.zeros((mdp.horizon, mdp.states), np.int64)
        unique = np.zeros(policy.shape, bool)
        for h in reversed(range(mdp.horizon)):
            q = [[q_of(h, s, a, values) for a in range(mdp.actions)] for s in range(mdp.states)]
            policy[h] = [row.index(max(row)) for row in q]
            unique[h] = [row.count(max(row)) == 1 for row in q]
            values = [max(row) for row in q]
        return policy, unique


def plain_psrl(plain, coins):
    mdp, steps = plain.mdp, range(1 if plain.stationary else plain.mdp.horizon)
    pairs = [(h, s, a) for h in steps for s in range(mdp.states) for a in range(mdp.actions)]
    rows = {p: [coins.standard_gamma(0.25 + plain.n[p][t]) for t in range(mdp.states)] for p in pairs}
    rewards = {p: coins.beta(0.5 + plain.r[p], 0.5 + max(0.0, plain.n[p].sum() - plain.r[p])) for p in pairs}

    def q_of(h, s, a, values):
        pair = (0 if plain.stationary else h, s, a)
        row = rows[pair]
        return rewards[pair] + sum(g * v for g, v in zip(row, values, strict=True)) / sum(row)

    return q_of


def plain_rlsvi(plain, coins):
    mdp = plain.mdp
    h_s_a = (mdp.horizon, mdp.states, mdp.actions)
    noise = {pair: coins.standard_normal() for pair in np.ndindex(h_s_a)}

    def q_of(h, s, a, values):
        n, left = plain.n[h, s, a].sum(), mdp.horizon - h
        total = (
            plain.r[h, s, a] + 0.5 * left + sum(plain.n[h, s, a, t] * values[t] for t in range(mdp.states))
        )
        q = total / (n + 1) + 0.7 * left * noise[h, s, a] / math.sqrt(n + 1)
        return min(left, max(0.0, q))

    return q_of


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize(
    ("learner", "plain"),
    [
        (PSRL(prior_visits=1.0, prior_rewards=0.5, samples=1, replan_growth=1.3), plain_psrl),
        (RLSVI(noise_const=0.7, prior_value=0.5, samples=1, replan_growth=1.3), plain_rlsvi),
    ],
)
def test_a_run_is_the_plain_algorithm(learner, plain, stationary):
    """The whole run, user by user: equal policies, but where clipped values tie and a coin chooses."""
    mdp = dr.make("random", states=4, actions=2, horizon=4, seed=3, stationary=stationary)
    learner = replace(learner, stationary=stationary)
    setup = Setup(mdp, learner, dr.NoPrivacy(), 60, "episode")
    keys = dr.Seeded(8, 0).keys
    mine = Plain(mdp, keys, stationary)
    state = learner.begin(setup.spec, keys.ties)
    decided, user = [], 0
    with setup.start(dr.Seeded(8, 0)) as session:
        while user < 60:
            release = session.release()
            ours, state = learner.plan(state, release)
            theirs, unique = mine.plan(plain, release.number)
            np.testing.assert_array_equal(ours.policy[unique], theirs[unique])
            decided.append(unique.mean())
            encoder = session.begin(ours)
            for _ in range(ours.users):
                life = rollout(mdp, policy_rows(mdp.layout, ours.policy), keys.environment, user)
                session.submit(encoder(life, ours, None))
                mine.see(life)
                user += 1
    assert np.mean(decided) > (0.999 if plain is plain_psrl else 0.7)


# -------------------------------------------------------------------------------- exact sums only
@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize(
    "privatizer",
    [
        dr.Central(epsilon=1.0),
        dr.Central(epsilon=1.0, delta=1e-6),
        dr.Local(epsilon=1.0),
        dr.Shuffle(epsilon=1.0),
    ],
)
def test_private_budgets_are_refused_at_the_door(cls, privatizer):
    with pytest.raises(ValueError, match=rf"privacy: must be NoPrivacy.* learner {cls.__name__}"):
        Setup(dr.make("riverswim"), cls(), privatizer, 1000)


@pytest.mark.parametrize("cls", BOTH)
def test_noisy_releases_are_refused_where_no_budget_is_known(cls, problem):
    noisy = problem()
    spec = replace(noisy.spec, budget=None)
    learner = cls()
    with pytest.raises(ValueError, match=r"has noise of standard deviation .* must be exact"):
        learner.plan(learner.begin(spec, TIES), noisy.release())


@pytest.mark.parametrize("cls", BOTH)
def test_what_does_not_fit_is_refused(cls, problem):
    spec = ProblemSpec(Layout(4, 3, 4), 100, budget=Budget("none"))
    for options, message in (
        ({"stationary": True}, "stationary = True: must be false"),
        ({"known_rewards": True}, "known_rewards = True: must be false"),
    ):
        with pytest.raises(ValueError, match=message):
            cls(**options).query(spec)
    pooled = problem(slots=1)
    with pytest.raises(ValueError, match="release has 1 steps: must have 4"):
        cls().plan(cls().begin(pooled.spec, TIES), exact(pooled))


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize(
    "options",
    [
        {"preset": "paper"},
        {"stationary": 1},
        {"known_rewards": "yes"},
        {"replan_growth": 0.5},
        {"samples": 0},
    ],
)
def test_bad_options_are_named(cls, options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"{name} = {re.escape(repr(options[name]))}"):
        cls(**options)


# ---------------------------------------------------------------------------------- coins, batches
@pytest.mark.parametrize("cls", BOTH)
def test_sub_batches_have_draws_of_their_own_and_make_up_the_batch(cls, problem):
    release, spec = exact(problem(most=20.0), users=100), problem().spec
    learner = cls(samples=3, replan_growth=2.0)
    state = learner.begin(spec, TIES)
    plans, draws = [], []
    for _ in range(3):
        plan, state = learner.plan(state, release)
        plans.append(plan)
        draws.append(learner.values(state, state.part - 1)[1])
    assert [p.users for p in plans] == [33, 33, 34]
    assert [p.last for p in plans] == [False, False, True]
    assert (draws[0] != draws[1]).any()
    assert (draws[1] != draws[2]).any()
    with pytest.raises(ValueError, match="its last plan was handed out already"):
        learner.plan(state, release)
    again, _ = learner.plan(learner.begin(spec, TIES), release)
    assert (again.policy == plans[0].policy).all()


@pytest.mark.parametrize("cls", BOTH)
def test_public_coins_alone_change_the_draw(cls, problem):
    release, spec = exact(problem(most=20.0)), problem().spec
    learner = cls()
    seen = []
    for key, number in ((TIES, 1), (TIES + np.uint64(1), 1), (TIES, 2)):
        _, state = learner.plan(learner.begin(spec, key), replace(release, number=number))
        seen.append(learner.values(state)[1])
    assert (seen[0] != seen[1]).any()
    assert (seen[0] != seen[2]).any()


@pytest.mark.parametrize("cls", BOTH)
def test_inadmissible_actions_are_never_played(cls, problem, mask):
    given = problem(mask=mask)
    learner = cls()
    plan, _ = learner.plan(learner.begin(given.spec, TIES), exact(given))
    assert mask[np.arange(4)[None, :], plan.policy].all()


@pytest.mark.parametrize("cls", BOTH)
def test_many_visits_lead_to_the_best_policy(cls):
    """With 1e8 visits to every pair the draw is the truth within 1e-3: greedy loses nothing to speak of."""
    mdp = dr.make("random", states=5, actions=3, horizon=6, seed=9)
    visits = np.full((6, 5, 3), 1e8)
    tables = {
        "transition_counts": visits[..., None] * mdp.transitions,
        "reward_sums": visits * mdp.rewards,
    }
    estimates = {name: Estimate(table, NoNoise()) for name, table in tables.items()}
    release = Release(estimates, 10**9, 3, SimpleNamespace())
    learner = cls()
    plan, _ = learner.plan(learner.begin(ProblemSpec(mdp.layout), TIES), release)
    best = float(mdp.initial @ dr.envs.optimal_values(mdp)[0][0])
    assert best - planning.policy_value(mdp, plan.policy) < 1e-2


@pytest.mark.parametrize("cls", BOTH)
def test_known_rewards_are_used(cls, problem):
    given = problem(most=1e7)
    rewards = np.random.default_rng(4).random((4, 4, 3))
    spec = replace(given.spec, known_rewards=rewards)
    release = exact(given)
    only = {"transition_counts": release.estimates["transition_counts"]}
    learner = cls(known_rewards=True)
    assert "reward_sums" not in learner.query(spec).families
    _, state = learner.plan(learner.begin(spec, TIES), replace(release, estimates=only))
    q = learner.values(state)[1][-1].reshape(4, 3)
    seen = given.visits[-1] > 1e4
    assert seen.sum() > 5
    assert np.abs(q - rewards[-1])[seen].max() < (1e-15 if cls is PSRL else 0.05)


@pytest.mark.parametrize("cls", BOTH)
def test_it_says_that_there_is_no_privacy(cls):
    assert "There is no privacy guarantee." in cls().summary()
    assert "several users follow one policy" in cls().summary()
    assert "several users" not in cls(preset="theory").summary()
    setup = Setup(dr.make("riverswim"), cls(), dr.NoPrivacy(), 100)
    assert setup.guarantee.epsilon is None
    assert setup.guarantee.trust == "none"


@pytest.mark.parametrize("cls", BOTH)
def test_it_learns(cls):
    """8 000 users of a random world cost less than an eighth of what the uniform policy loses."""
    mdp = dr.make("random", states=6, seed=100)
    setup = Setup(mdp, cls(), dr.NoPrivacy(), 8000, "batch")
    uniform = 8000 * (setup.optimal_value - setup.uniform_value)
    assert setup.run(0, 0).regret[-1] < uniform / 8
