"""LSVI-UCB: a slow reference, the tabular case, both forms, schedules, isolation (specification, 12)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tables_as_linear import as_linear

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs import random_linear
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.planning import policy_value
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.build_run import prepare, resolved
from discreet.experiments.run_config import RunConfig
from discreet.experiments.simulate import Setup
from discreet.learners.estimation.linear_regression import model_rewards, model_values
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.mechanisms.features import Features, one_hot
from discreet.mechanisms.interfaces import Budget, ProblemSpec
from discreet.mechanisms.seeded_rng import SeededRng

JOINT = dr.Central(epsilon=5.0, delta=1e-5)
EVERY = {"replan_every": 1, "tie_break": "first"}
JIN = LSVIUCB(response="requery", centre=False, bonus_scale=0.2, **EVERY)


def play(learner, mdp, users, privatizer=None, *, seed=0, changed=None):
    """(plans, states, releases, lives) of the loop of the protocol; user ``changed`` lives otherwise."""
    setup = Setup(mdp, learner, privatizer or dr.NoPrivacy(), users)
    session, keys = setup.start(Seeded(seed, 0)), Seeded(seed, 0).keys
    state = learner.begin(setup.spec, keys.ties)
    plans, states, releases, lives = [], [], [], []
    while len(lives) < users:
        releases.append(session.release())
        plan, state = learner.plan(state, releases[-1], session.answer)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            life = rollout(mdp, plan.policy, keys.environment, len(lives))
            if len(lives) == changed:
                life = replace(life, actions=(life.actions + 1) % mdp.actions, rewards=1 - life.rewards)
            session.submit(encoder(life, plan, SeededRng(keys.noise, len(lives))))
            lives.append(life)
        plans.append(plan)
        states.append(state)
    session.close()
    return plans, states, releases, lives


def reference(mdp, lives, lam, beta):
    """Q (H, S, A) of LSVI-UCB as printed by Jin et al., user by user, with bounds b_h."""
    phi, horizon, d = mdp.features.table, mdp.horizon, mdp.features.dimension
    after, found = np.zeros(mdp.states), np.empty((horizon, mdp.states, mdp.actions))
    for h in reversed(range(horizon)):
        gram, response = lam * np.eye(d), np.zeros(d)
        for life in lives:
            x = phi[life.states[h], life.actions[h]]
            gram += np.outer(x, x)
            response += x * (life.rewards[h] + after[life.states[h + 1]])
        inverse = np.linalg.inv(gram)
        for s in range(mdp.states):
            for a in range(mdp.actions):
                x = phi[s, a]
                bonus = beta * (horizon - h) * math.sqrt(x @ inverse @ x)
                found[h, s, a] = min(max(x @ inverse @ response + bonus, 0.0), horizon - h)
        after = found[h].max(axis=1)
    return found


def test_without_privacy_it_is_lsvi_ucb():
    mdp = random_linear(states=4, actions=2, horizon=3, dimension=3, seed=1, rewards="bernoulli")
    plans, states, _, lives = play(JIN, mdp, 30)
    for k, (plan, state) in enumerate(zip(plans, states, strict=True)):
        q = reference(mdp, lives[:k], 1.0, 0.2)
        np.testing.assert_allclose(state.q.reshape(q.shape), q, atol=1e-12)
        np.testing.assert_array_equal(plan.policy, np.round(q, 11).argmax(axis=2))


def test_one_hot_features_are_tables():
    """Section 2.3: with phi = e_{(s, a)} all is counting, in both forms."""
    table = dr.make("random", states=3, actions=2, horizon=3, seed=2)
    mdp = as_linear(table).to_tabular()
    for learner in (JIN, LSVIUCB(project="none", bonus_scale=0.2, **EVERY)):
        _, states, _, lives = play(learner, mdp, 25)
        lives = lives[:-1]  # the last release saw 24 users
        after = np.zeros(3)
        for h in reversed(range(3)):
            n, moves, rewards = np.zeros((3, 2)), np.zeros((3, 2, 3)), np.zeros((3, 2))
            for life in lives:
                s, a = life.states[h], life.actions[h]
                n[s, a] += 1
                moves[s, a, life.states[h + 1]] += 1
                rewards[s, a] += life.rewards[h]
            if learner is JIN:
                estimate = (rewards + moves @ after) / (n + 1)
            else:  # both shrink to the uniform row and to 1/2
                estimate = (rewards + 0.5 + (moves + 1 / 3) @ after) / (n + 1)
            q = np.clip(estimate + 0.2 * (3 - h) / np.sqrt(n + 1), 0.0, 3 - h)
            np.testing.assert_allclose(states[-1].q[h].reshape(3, 2), q, atol=1e-10)
            after = q.max(axis=1)


def test_model_form_is_the_centred_response():
    """The same V and the same centre, without noise: one estimate."""
    rng = np.random.default_rng(0)
    phi, states, n = rng.dirichlet(np.ones(4), 15), 5, 300
    at, to = rng.integers(15, size=n), rng.integers(states, size=n)
    r, v = rng.uniform(0.3, 0.7, n), rng.uniform(0, 3, states)
    x = phi[at]
    inverse = np.linalg.inv(x.T @ x + np.eye(4))
    moved = x.T @ (np.eye(states)[to] - 1 / states)
    centre = 0.5 + v.mean()
    asked = centre + phi @ inverse @ (x.T @ (r + v[to] - centre))
    rewards = model_rewards(phi, inverse, x.T @ (r - 0.5))
    np.testing.assert_allclose(model_values(phi, inverse, moved, v, "none") + rewards, asked, atol=1e-12)
    for project in ("simplex", "range"):  # rows of a model of many users need no projection
        np.testing.assert_allclose(model_values(phi, inverse, moved, v, project) + rewards, asked, atol=1e-12)
    far = model_values(phi, inverse, 50 * moved, v, "range")
    assert v.min() <= far.min()
    assert far.max() <= v.max()


def test_forms_agree_as_the_ridge_vanishes():
    mdp = random_linear(states=4, actions=3, horizon=3, dimension=3, seed=3)
    found = []
    for form in ({"response": "model", "project": "none"}, {"response": "requery"}):
        learner = LSVIUCB(lam=1e-9, bonus_scale=0.0, replan_first=400, replan_growth=1.5, **form)
        found.append(play(learner, mdp, 401)[1][-1].q)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_known_rewards():
    mdp = random_linear(seed=4)
    for form in ("model", "requery"):
        learner = LSVIUCB(known_rewards=True, response=form)
        _, states, releases, _ = play(learner, mdp, 60)
        assert releases[-1].estimates["gram"].value.shape[0] == mdp.horizon - 1
        assert set(releases[-1].estimates) == {"gram"} | ({"successors"} if form == "model" else set())
        np.testing.assert_array_equal(states[-1].q[-1].reshape(mdp.states, mdp.actions), mdp.rewards[-1])


def test_releases_are_all_that_matters():
    """A user changes no plan before the next release; equal releases give equal bytes, whoever came."""
    mdp = random_linear(seed=5)
    for privatizer in (dr.NoPrivacy(), JOINT):
        learner = LSVIUCB(replan_every=10)
        plans, states, releases, _ = play(learner, mdp, 40, privatizer)
        others = play(learner, mdp, 40, privatizer, changed=19)
        for k in (0, 1):
            assert plans[k].policy.tobytes() == others[0][k].policy.tobytes()
        assert states[1].q.tobytes() == others[1][1].q.tobytes()
        assert states[2].q.tobytes() != others[1][2].q.tobytes()
        setup = Setup(mdp, learner, privatizer, 40)
        state = learner.begin(setup.spec, Seeded(0, 0).keys.ties)
        for release, was in zip(releases, states, strict=True):
            _, state = learner.plan(state, release)
            assert state.q.tobytes() == was.q.tobytes()


def test_equal_noise_vanishes_with_the_budget():
    """rho to infinity is no privacy, in both forms."""
    mdp = random_linear(seed=6)
    for form in ("model", "requery"):
        learner = LSVIUCB(response=form, replan_every=20, ridge=1.0, bonus_scale=0.1, project="none")
        exact, loud = (play(learner, mdp, 81, p)[1][-1].q for p in (dr.NoPrivacy(), dr.Central(rho=1e14)))
        np.testing.assert_allclose(loud, exact, atol=1e-4)


def test_batches_and_users_are_one_run_where_luck_has_no_part():
    """Deterministic transitions and rewards: a batch's flow and its users are the same numbers."""
    rng = np.random.default_rng(7)
    measures = np.eye(4)[rng.integers(4, size=(3, 8))]
    mdp = LinearMDP(one_hot(4, 2), measures, rng.uniform(size=(3, 8))).to_tabular()
    for learner in (LSVIUCB(), LSVIUCB(response="requery")):
        for privatizer in (dr.NoPrivacy(), JOINT):
            one, other = (
                Setup(mdp, replace(learner, replan_first=1), privatizer, 200, by=by)
                for by in ("episode", "batch")
            )
            assert one.run(3, 0).regret[-1] == pytest.approx(other.run(3, 0).regret[-1], abs=1e-9)


def test_determinant_switches_are_few_and_planned_from_releases():
    mdp = random_linear(seed=8)
    d, users = 4, 150
    often, seldom = (LSVIUCB(switching=s, **EVERY) for s in ("release", "determinant"))
    _, states, _, _ = play(seldom, mdp, users)
    assert 2 <= states[-1].switches <= d * mdp.horizon * math.log2(1 + users / d)
    assert len({state.q.tobytes() for state in states}) == states[-1].switches + 1
    assert len({state.q.tobytes() for state in play(often, mdp, users)[1]}) > states[-1].switches + 1
    _, states, _, _ = play(replace(seldom, switches=2), mdp, users)
    assert states[-1].switches == 2
    asked = replace(seldom, response="requery", switches=3)  # three rounds of questions are planned, no more
    setup = Setup(mdp, asked, JOINT, users)
    assert setup.schedule.answers == 3
    assert setup.guarantee.epsilon == pytest.approx(5.0)
    assert play(asked, mdp, users, JOINT)[1][-1].switches == 3


def test_schedule_and_first_batch():
    layout = Layout(6, 3, 4)
    phi = random_linear().features
    plain = ProblemSpec(layout, 1000, features=phi)
    private = replace(plain, budget=Budget("joint", 1.0, 1e-5))
    assert LSVIUCB().tuned(plain).replan_growth == 1.5
    assert LSVIUCB().schedule(plain).release_times[:5].tolist() == [0, 1, 2, 3, 5]
    assert LSVIUCB().schedule(private).release_times[:4].tolist() == [0, 32, 48, 72]
    assert LSVIUCB(replan_every=300).schedule(private).release_times.tolist() == [0, 300, 600, 900]
    plans, _, _, _ = play(LSVIUCB(), random_linear(), 100, JOINT)
    assert plans[0].users == 4
    assert plans[0].policy.shape == (4, 6, 3)
    np.testing.assert_allclose(plans[0].policy, 1 / 3)
    assert plans[1].policy.shape == (4, 6)
    wide = ProblemSpec(
        Layout(60, 3, 4), 1000, features=random_linear(states=60).features, budget=private.budget
    )
    assert LSVIUCB().tuned(wide).response == "requery"
    assert LSVIUCB().tuned(private).response == "model"


def alike(horizon, seed=0):
    """Return a stationary linear MDP."""
    mdp = random_linear(horizon=horizon, seed=seed, rewards="bernoulli")
    linear = LinearMDP(
        mdp.features,
        np.random.default_rng(seed).dirichlet(np.ones(6), (1, 4)),
        np.random.default_rng(seed + 1).uniform(size=(1, 4)),
        reward_law="bernoulli",
        horizon=horizon,
    )
    return linear.to_tabular()


@pytest.mark.parametrize("response", ["model", "requery"])
@pytest.mark.parametrize(
    "privatizer", [JOINT, dr.Central(epsilon=2.0), dr.Central(mu=0.5), dr.Central(rho=0.1)]
)
def test_first_batch_follows_the_noise_and_changes_no_guarantee(privatizer, response):
    mdp = random_linear()
    phi = mdp.features.table.reshape(-1, 4)
    firsts = []
    for users in (3200, 10**7, 10**8):
        setup = Setup(mdp, LSVIUCB(response=response), privatizer, users, by="batch")
        first = setup.learner.tuned(setup.spec).replan_first
        assert first == setup.schedule.release_times[1]
        firsts.append(first)
        other = Setup(
            mdp, LSVIUCB(response=response, replan_first=users // 32), privatizer, users, by="batch"
        )
        assert repr(setup.query) == repr(other.query)
        assert setup.guarantee.epsilon == pytest.approx(other.guarantee.epsilon, rel=1e-9)
        assert setup.guarantee.delta == other.guarantee.delta
    # At m users the mean eigenvalue of a Gram matrix is 2.4 edges of the noise of one sum.
    setup = Setup(mdp, LSVIUCB(response=response, replan_every=10**7), privatizer, 10**7 + 1, by="batch")
    edge = np.mean([setup.mechanism.laws_at(10**7)["gram"].edge(h) for h in range(4)])
    least = 2.4 * edge * 4 / (phi**2).sum(axis=1).mean()
    least *= 2 if response == "requery" else 1
    for users, first in zip((3200, 10**7, 10**8), firsts, strict=True):
        assert first == math.ceil(min(users / 32, max(least, math.sqrt(least * users) / 32)))
    assert firsts[2] < 5 * firsts[1] < 10**7 / 32


def test_local_first_batch():
    spec = ProblemSpec(random_linear().layout, 10**5, features=random_linear().features)
    loud, quiet = (
        LSVIUCB().tuned(replace(spec, budget=Budget("local", mu=mu))).replan_first for mu in (10.0, 20.0)
    )
    assert loud == pytest.approx(4 * quiet, abs=4)  # The noise of messages adds up.
    assert LSVIUCB().tuned(replace(spec, users=320, budget=Budget("local", mu=1.0))).replan_first == 10
    assert LSVIUCB().tuned(replace(spec, budget=Budget("none"))).replan_first == 1
    assert LSVIUCB().tuned(replace(spec, users=None, budget=Budget("joint", mu=1.0))).replan_first == 1


@pytest.mark.parametrize("known", [False, True])
def test_steps_share_one_regression(known):
    """Without noise, all steps use the transitions of the steps 0 .. H - 2 of all users."""
    mdp = alike(4)
    learner = LSVIUCB(stationary=True, known_rewards=known, project="none", bonus_scale=0.2, **EVERY)
    _, states, _, lives = play(learner, mdp, 30)
    phi = mdp.features.table
    gram, moves, rewards = np.eye(4), np.zeros((4, 6)), np.zeros(4)
    for life in lives[:-1]:
        for h in range(3):
            x = phi[life.states[h], life.actions[h]]
            gram += np.outer(x, x)
            moves += np.outer(x, np.eye(6)[life.states[h + 1]] - 1 / 6)
            rewards += x * (life.rewards[h] - 0.5)
    inverse, after = np.linalg.inv(gram), np.zeros(6)
    width = np.sqrt(np.einsum("sai,ij,saj->sa", phi, inverse, phi))
    for h in reversed(range(4)):
        moved = after.mean() + phi @ inverse @ (moves @ (after - after.mean()))
        if known:
            bonus = 0.2 * (4 - h) * width
            q = mdp.rewards[h] + (np.clip(moved + bonus, 0.0, 3.0 - h) if h < 3 else 0.0)
        else:
            reward = np.clip(0.5 + phi @ inverse @ rewards, 0.0, 1.0)
            q = np.clip(reward + moved + 0.2 * (4 - h) * width, 0.0, 4.0 - h)
        np.testing.assert_allclose(states[-1].q[h].reshape(6, 3), q, atol=1e-9)
        after = q.max(axis=1)


def test_shared_steps_have_the_edge_of_the_summed_noise():
    mdp = alike(4)
    for ridge in (1.5, "bound"):
        learner = LSVIUCB(stationary=True, ridge=ridge, replan_every=20, bonus_scale=0.0)
        _, states, releases, _ = play(learner, mdp, 41, JOINT)
        gram = releases[-1].estimates["gram"]
        if ridge == "bound":
            each = 0.05 / (4 * len(releases[1:]))
            levels = [2 * gram.law.operator_norm_bound(each, h) for h in range(3)]
        else:
            levels = [1.5 * gram.law.edge(h) for h in range(3)]
        factor = states[-1].fit.factor
        assert factor.shape == (1, 4, 4)
        wanted = gram.value[:3].sum(axis=0) + (1 + math.hypot(*levels)) * np.eye(4)
        np.testing.assert_allclose(factor[0] @ factor[0].T @ wanted, np.eye(4), atol=1e-8)


def test_shared_steps_change_no_query_and_no_guarantee():
    mdp = alike(4)
    for privatizer in (JOINT, dr.Local(epsilon=2.0, delta=1e-5), dr.NoPrivacy()):
        told, untold = (
            Setup(mdp, LSVIUCB(stationary=s, replan_first=50), privatizer, 1000) for s in (True, False)
        )
        assert repr(told.query) == repr(untold.query)
        assert repr(told.guarantee) == repr(untold.guarantee)
        assert told.mechanism.laws_at(50) == untold.mechanism.laws_at(50)
    one = alike(1)  # One step has nothing to share.
    told, untold = (play(LSVIUCB(stationary=s), one, 200, JOINT)[1][-1].q for s in (True, False))
    np.testing.assert_array_equal(told, untold)


@pytest.mark.parametrize("privatizer", ["none", "central", "local"])
@pytest.mark.parametrize("by", ["episode", "batch"])
def test_by_name_through_simulate(privatizer, by):
    config = RunConfig(
        env="linear-mdp",
        learner="lsvi-ucb",
        privatizer=privatizer,
        episodes=60,
        by=by,
        epsilon=2.0,
        delta=1e-5,
    )
    setup = prepare(resolved(config))
    first, again = setup.run(1, 0), setup.run(1, 0)
    assert first.regret.tobytes() == again.regret.tobytes()
    assert setup.guarantee.trust == {"none": "none", "central": "joint", "local": "local"}[privatizer]
    if privatizer != "none":
        assert setup.guarantee.epsilon == pytest.approx(2.0, abs=1e-6)


def test_learns():
    """Regret of 8 worlds at K = 1000, as a share of uniform play's.

    Over 160 other worlds the share is .046 (standard deviation .047) and .123 (.062): the thresholds are 9
    and 8 standard errors of a mean of 8 away, a false alarm below 1e-6 by far.
    """
    shares = {"none": [], "private": []}
    for seed in range(8):
        mdp = random_linear(seed=200 + seed)
        for name, privatizer in (("none", dr.NoPrivacy()), ("private", dr.Central(epsilon=20.0, delta=1e-5))):
            setup = Setup(mdp, LSVIUCB(), privatizer, 1000, by="batch")
            lost = 1000 * (setup.optimal_value - setup.uniform_value)
            shares[name].append(setup.run(seed, 0).regret[-1] / lost)
    assert np.mean(shares["none"]) < 0.2
    assert np.mean(shares["private"]) < 0.3


def test_bad_input_is_refused():
    for options, said in (
        ({"lam": 0.0}, "lam"),
        ({"ridge": -1.0}, "ridge"),
        ({"bonus_scale": -1.0}, "bonus_scale"),
        ({"beta": "loud"}, "beta"),
        ({"response": "maybe"}, "response"),
        ({"project": "cube"}, "project"),
        ({"span": "visited"}, "span"),
        ({"answer_share": 1.0}, "answer_share"),
        ({"replan_first": 0}, "replan_first"),
        ({"replan_every": 5, "replan_growth": 1.5}, "replan_growth"),
    ):
        with pytest.raises(ValueError, match=said):
            LSVIUCB(**options)
    with pytest.raises(ValueError, match="response"):
        LSVIUCB(stationary=True, response="requery")
    with pytest.raises(ValueError, match="stationary"):
        LSVIUCB(stationary="yes")
    with pytest.raises(ValueError, match="not declared stationary"):
        Setup(random_linear(), LSVIUCB(stationary=True), dr.NoPrivacy(), 10)
    with pytest.raises(ValueError, match="Features"):
        Setup(dr.make("random"), LSVIUCB(), dr.NoPrivacy(), 10)
    phi = Features(np.random.default_rng(0).normal(size=(6, 3, 2)) / 9)
    with pytest.raises(ValueError, match="1 in the span"):
        LSVIUCB().query(ProblemSpec(Layout(6, 3, 4), 10, features=phi))
    assert not LSVIUCB(response="requery").query(ProblemSpec(Layout(6, 3, 4), 10, features=phi)).centre
    with pytest.raises(ValueError, match="replan_first"):
        LSVIUCB(replan_first=5).schedule(ProblemSpec(Layout(6, 3, 4), features=random_linear().features))
    with pytest.raises(ValueError, match="local user"):
        Setup(random_linear(), LSVIUCB(response="requery"), dr.Local(epsilon=1.0, delta=1e-5), 10)
    assert policy_value(random_linear(), np.zeros((4, 6), int)) >= 0


def test_words():
    assert "heuristic" not in LSVIUCB().summary()
    assert "beta = 'range'" in LSVIUCB().summary()
    assert "options are those of the regret theorem" in LSVIUCB(preset="paper").summary()
