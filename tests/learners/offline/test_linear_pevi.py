"""Linear offline learners: limits, tabular special case, budgets (specification, section 12)."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from discreet.accounting.budget import gdp_mu
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.envs import random_mdp, synthetic_linear_behaviour, synthetic_linear_mdp
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.planning import evaluate_policy, optimal_values, uniform_policy
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.linear_pevi import (
    DPPEVI,
    DPVAPVI,
    PEVI,
    VAPVI,
    learn_linear,
    replan_linear,
    schema_features,
)
from discreet.learners.offline.linear_query_log import LinearRelease
from discreet.mechanisms.features import Features, one_hot
from discreet.mechanisms.linear.adaptive_queries import ResponseSession


def world(seed=0, states=5, actions=3, horizon=4, d=4):
    rng = np.random.default_rng(seed)
    phi = Features(rng.dirichlet(np.full(d, 0.5), (states, actions)), l1=1.0, nonneg=True)
    mdp = LinearMDP(phi, rng.dirichlet(np.full(states, 0.5), (horizon, d)), rng.uniform(size=(horizon, d)))
    table = mdp.to_tabular()
    return mdp, table, rollout_batch(table, uniform_policy(table), 400, seed)


def exact(learner, mdp, data):
    """The learner on the same questions, answered without noise."""
    plan = [dataclasses.replace(q, mu=None) for q in learner.questions(mdp.layout, mdp.features)]
    session = ResponseSession(mdp.layout, mdp.features, plan, Seeded(0))
    session.submit_many(data)
    return learner.solve(mdp.layout, mdp.features, session)


def test_noise_off_dp_pevi_is_pevi():
    mdp, _, data = world()
    plain = learn_linear(PEVI(c=0.005), mdp.layout, mdp.features, data, Seeded(0))
    constant = 0.005 * math.sqrt(mdp.features.dimension) * mdp.horizon
    for joint in (True, False):
        for span in ("values", "declared"):
            private = DPPEVI(rho=1.0, centre=False, C=constant, joint=joint, range=span)
            np.testing.assert_allclose(exact(private, mdp, data).q, plain.q, atol=1e-12)
    limit = learn_linear(
        DPPEVI(rho=1e12, centre=False, C=constant), mdp.layout, mdp.features, data, Seeded(0)
    )
    np.testing.assert_allclose(limit.q, plain.q, atol=3e-4)
    np.testing.assert_array_equal(limit.policy, plain.policy)


@pytest.mark.parametrize("split", [False, True])
def test_noise_off_dp_vapvi_is_vapvi_bit_for_bit(split):
    mdp, _, data = world(1)
    plain = learn_linear(VAPVI(split=split), mdp.layout, mdp.features, data, Seeded(0))
    np.testing.assert_array_equal(
        exact(DPVAPVI(rho=1.0, preset="figure-1", split=split), mdp, data).q, plain.q
    )


def algorithm_2(mdp, data, C, D, lam):
    """Q of the paper's algorithm 2 without noise, one user at a time; users 0, 2, .. estimate variances."""
    d, horizon, phi = mdp.features.dimension, mdp.horizon, mdp.features.table
    q, values = np.zeros((horizon, *phi.shape[:2])), np.zeros((horizon + 1, len(phi)))
    for h in reversed(range(horizon)):
        sigma, square, first = lam * np.eye(d), np.zeros(d), np.zeros(d)
        for states, actions in zip(data.states[::2], data.actions[::2], strict=True):
            x, v = phi[states[h], actions[h]], values[h + 1, states[h + 1]]
            sigma, square, first = sigma + np.outer(x, x), square + x * v**2, first + x * v
        beta, theta = np.linalg.solve(sigma, square), np.linalg.solve(sigma, first)
        top = horizon - h
        variance = np.maximum(1.0, (phi @ beta).clip(0, top**2) - (phi @ theta).clip(0, top) ** 2)
        weighted, response = lam * np.eye(d), np.zeros(d)
        half = data.states[1::2], data.actions[1::2], data.rewards[1::2]
        for states, actions, rewards in zip(*half, strict=True):
            x, weight = phi[states[h], actions[h]], 1.0 / variance[states[h], actions[h]]
            weighted += weight * np.outer(x, x)
            response += weight * x * (rewards[h] + values[h + 1, states[h + 1]])
        inverse = np.linalg.inv(weighted)
        length = np.sqrt(np.einsum("sad,de,sae->sa", phi, inverse, phi))
        penalty = C * math.sqrt(d) * length + D / len(half[0])
        q[h] = (phi @ (inverse @ response) - penalty).clip(0, top)
        values[h] = q[h].max(axis=1)
    return q


def test_noise_off_the_paper_preset_is_algorithm_2():
    """At rho = 1e12 and kappa = 1, the printed D is near H^3 sqrt(d) = 128, and no user is counted twice."""
    mdp, table, _ = world(1)
    data = rollout_batch(table, uniform_policy(table), 2000, 1)
    learner = DPVAPVI(rho=1e12, preset="paper", C=0.1, kappa=1.0)
    ridge, twice = learner._constants(mdp.layout, mdp.features)
    assert ridge == pytest.approx(1 + (math.log(20 / 0.05) / 4) ** (2 / 3) / 2)
    assert twice == pytest.approx(2 * 128.0, rel=0.01)
    expected = algorithm_2(mdp, data, 0.1, twice / 2, 0.1)
    assert (expected[0] > 0).any()
    np.testing.assert_allclose(exact(learner, mdp, data).q, expected, atol=1e-9)


def test_printed_constants():
    """Lemma D.2 and theorem 4.1 at H = 20, d = 10, rho = 1: kappa is at most 1 / d, so D exceeds 1.4e9."""
    mdp = synthetic_linear_mdp(seed=0)
    learner = DPVAPVI(rho=1.0, preset="paper", split=False)
    rho0, kappa, p = 0.01, mdp.features.bound**2 / 10, 0.05
    vector = 2 * 20 * math.sqrt(10 / rho0 * math.log(10 * 20 * 10 / p))
    matrix = math.sqrt(10 / rho0) * (2 + (math.log(5 * 20 / p) / 10) ** (2 / 3))
    lower = 20**2 * vector / kappa + 20**4 * matrix * math.sqrt(10) / kappa**1.5 + 20**3 * math.sqrt(10)
    ridge, found = learner._constants(mdp.layout, mdp.features)
    assert found == pytest.approx(lower, rel=1e-12)
    assert ridge * math.sqrt(10 / rho0) == pytest.approx(matrix / 2, rel=1e-12)
    assert found > 1.4e9
    assert dataclasses.replace(learner, ridge="bound")._constants(mdp.layout, mdp.features)[0] == "bound"
    guarantee = learner.open(mdp.layout, mdp.features, Seeded(0)).guarantee
    halves = DPVAPVI(rho=1.0, preset="paper").open(mdp.layout, mdp.features, Seeded(0)).guarantee
    assert halves.rho < guarantee.rho < 1.0
    assert "no value" in " ".join(learner.heuristics())


def test_equal_weights_make_vapvi_a_pevi():
    mdp, _, data = world(2)
    constant = 0.01 * math.sqrt(mdp.features.dimension) * mdp.horizon
    flat = learn_linear(VAPVI(C=constant, var_max=1.0), mdp.layout, mdp.features, data, Seeded(0))
    plain = learn_linear(PEVI(c=0.01), mdp.layout, mdp.features, data, Seeded(0))
    np.testing.assert_allclose(flat.q, plain.q, atol=1e-12)


def test_one_hot_is_the_tabular_ridge_form():
    """PEVI: sum(r + V) / (n + lam) - beta / sqrt(n + lam); VAPVI: the same with n / sigma^2 (section 2.3)."""
    table = random_mdp(states=3, actions=2, horizon=4, seed=3)
    data, s_n, a_n, lam = rollout_batch(table, uniform_policy(table), 300, 5), 3, 2, 0.1
    phi, layout = one_hot(s_n, a_n), Layout(s_n, a_n, 4)
    pevi = learn_linear(PEVI(c=0.01), layout, phi, data, Seeded(0))
    vapvi = learn_linear(VAPVI(C=0.1), layout, phi, data, Seeded(0))
    for h in range(4):
        pair = data.states[:, h] * a_n + data.actions[:, h]
        n = np.bincount(pair, minlength=6)

        def sums(y, pair=pair):
            return np.bincount(pair, y, minlength=6)

        to, r, b = data.states[:, h + 1], data.rewards[:, h], 4.0 - h
        v = pevi.values[h + 1]
        q = sums(r + v[to]) / (n + lam) - 0.01 * 6 * 4 / np.sqrt(n + lam)
        np.testing.assert_allclose(pevi.q[h].ravel(), np.clip(q, 0, b), atol=1e-10)
        v = vapvi.values[h + 1]
        second, first = sums(v[to] ** 2) / (n + lam), sums(v[to]) / (n + lam)
        variance = np.maximum(1, np.clip(second, 0, b * b) - np.clip(first, 0, b) ** 2)
        weight = n / variance + lam
        q = sums(r + v[to]) / variance / weight - 0.1 * math.sqrt(6) / np.sqrt(weight)
        np.testing.assert_allclose(vapvi.q[h].ravel(), np.clip(q, 0, b), atol=1e-10)


def test_model_form_is_requery_and_centring_costs_nothing_at_small_ridge():
    mdp, _, data = world(3)
    forms = [
        exact(learner, mdp, data).q
        for learner in (
            DPPEVI(rho=1.0, C=0.01, lam=1e-9, centre=False),
            DPPEVI(rho=1.0, C=0.01, lam=1e-9),
            DPPEVI(rho=1.0, C=0.01, lam=1e-9, response="model", simplex=False),
        )
    ]
    np.testing.assert_allclose(forms[1], forms[0], atol=1e-5)
    inside = forms[0] > 0  # the model form clips rewards, the others do not
    assert np.abs(forms[2] - forms[0])[inside].max() < 1e-5


def test_scaled_features_give_the_same_policy():
    """phi -> c phi with lam -> c^2 lam; noise follows the bound (test 15)."""
    mdp, _, data = world(4)
    for response in ("requery", "model"):
        one = learn_linear(DPPEVI(rho=3.0, response=response), mdp.layout, mdp.features, data, Seeded(1))
        other = learn_linear(
            DPPEVI(rho=3.0, response=response, lam=0.1 * 0.25),
            mdp.layout,
            mdp.features.scaled(0.5),
            data,
            Seeded(1),
        )
        np.testing.assert_allclose(one.q, other.q, atol=1e-9)
        np.testing.assert_array_equal(one.policy, other.policy)


@pytest.mark.parametrize(
    ("horizon", "bound", "expected"), [(1, 1.0, 1.0), (20, 1.0, 0.969), (20, 7**0.5, 40.38)]
)
def test_true_rho_of_the_printed_noise(horizon, bound, expected):
    """Section 9: 1, .969 (H = 20) and 40.38 (features of norm sqrt(7)) times rho, from the contract."""
    features = Features(np.full((2, 3, 1), bound), bound)
    learner = DPVAPVI(rho=1.0, preset="figure-1")
    plan = learner.questions(Layout(2, 3, horizon), features)
    assert len(plan) == 5 * horizon - 2
    guarantee = ResponseSession(Layout(2, 3, horizon), features, plan, Seeded(0)).guarantee
    assert guarantee.rho == pytest.approx(expected, abs=6e-3 if bound > 1 else 6e-4)


def test_printed_noise_is_drawn():
    mdp, _, data = world(5)
    rho0, h = 2.0 / (5 * mdp.horizon), mdp.horizon
    plan = DPVAPVI(rho=2.0, preset="figure-1").questions(mdp.layout, mdp.features)
    session = ResponseSession(mdp.layout, mdp.features, plan, Seeded(0))
    session.submit_many(data)
    session.gram(h - 1)
    assert session.gram(h - 1).gram_scale == pytest.approx(0.5 / math.sqrt(rho0), rel=1e-12)
    assert session.response(h - 1, np.zeros(5)).vector_scale == pytest.approx(h * math.sqrt(2 / rho0))
    session.gram(h - 2)
    second = session.response(h - 2, np.linspace(0, 1, 5) ** 2)
    assert second.vector_scale == pytest.approx(h**2 * math.sqrt(2 / rho0))


@pytest.mark.parametrize(
    "learner",
    [DPPEVI, DPVAPVI, lambda **b: DPPEVI(response="model", **b), lambda **b: DPVAPVI(split=True, **b)],
)
def test_budgets_are_spent_exactly(learner):
    mdp, _, data = world(6)
    found = learn_linear(learner(rho=0.5), mdp.layout, mdp.features, data, Seeded(0))
    assert found.guarantee.rho == pytest.approx(0.5, rel=1e-9)
    found = learn_linear(learner(epsilon=2.0, delta=1e-5), mdp.layout, mdp.features, data, Seeded(0))
    assert found.guarantee.mu == pytest.approx(gdp_mu(2.0, 1e-5), rel=1e-9)
    assert found.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    secure = learn_linear(learner(epsilon=2.0, delta=1e-5), mdp.layout, mdp.features, data, Secure())
    assert secure.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    assert secure.guarantee.randomness == "secure"
    assert secure.policy.shape == (4, 5)


@pytest.mark.parametrize("response", ["model", "requery"])
@pytest.mark.parametrize("joint", [True, False])
def test_pure_budgets_are_spent_exactly_and_vanish_in_the_limit(response, joint):
    mdp, _, data = world(17)
    learner = DPPEVI(epsilon=2.0, noise="laplace", response=response, joint=joint)
    for randomness in (Seeded(0), Secure()):
        guarantee = learn_linear(learner, mdp.layout, mdp.features, data, randomness).guarantee
        assert (guarantee.epsilon, guarantee.delta) == (pytest.approx(2.0), 0.0)
    quiet = dataclasses.replace(learner, epsilon=1e9)
    gauss = dataclasses.replace(learner, epsilon=None, rho=1e15, noise="gaussian")
    found = [learn_linear(x, mdp.layout, mdp.features, data, Seeded(0)).q for x in (quiet, gauss)]
    np.testing.assert_allclose(*found, atol=1e-3)


class Replay:
    """Answers from a recording: no data behind them."""

    def __init__(self, inner, users):
        self.inner, self.users, self.tape, self.at = inner, users, [], 0

    def _ask(self, name, *args):
        if self.inner is not None:
            self.tape.append(getattr(self.inner, name)(*args))
        self.at += 1
        return self.tape[self.at - 1]

    def __getattr__(self, name):
        return lambda *args: self._ask(name, *args)


@pytest.mark.parametrize("learner", [DPPEVI(rho=1.0), DPPEVI(rho=1.0, response="model"), DPVAPVI(rho=1.0)])
def test_learning_is_a_function_of_releases(learner):
    """Same releases, no data at all: the same bytes (test 5)."""
    mdp, _, data = world(7)
    session = ResponseSession(
        mdp.layout, mdp.features, learner.questions(mdp.layout, mdp.features), Seeded(2)
    )
    session.submit_many(data)
    tape = Replay(session, session.users)
    first = learner.solve(mdp.layout, mdp.features, tape)
    assert session.budget_left() == 0.0
    tape.inner, tape.at = None, 0
    again = learner.solve(mdp.layout, mdp.features, tape)
    np.testing.assert_array_equal(first.q, again.q)


def test_values_are_pessimistic_at_large_constants():
    """V_hat_1 <= V^pi_1 <= V*_1, and not vacuous (test 18)."""
    mdp, table, _ = world(8)
    data = rollout_batch(table, uniform_policy(table), 20_000, 1)
    for learner in (PEVI(c=0.2), VAPVI(C=2.0)):
        found = learn_linear(learner, mdp.layout, mdp.features, data, Seeded(0))
        own, best = evaluate_policy(table, found.policy)[0], optimal_values(table)[0][0]
        assert (found.values[0] <= own + 1e-9).all()
        assert (own <= best + 1e-9).all()
        assert found.values[0].max() > 0.3 * best.max()


def test_masked_actions_are_never_chosen():
    _, _, data = world(9)
    mask = np.ones((5, 3), bool)
    mask[:, 2] = False
    keep = (data.actions != 2).all(axis=1)
    kept = type(data)(data.states[keep], data.actions[keep], data.rewards[keep])
    found = learn_linear(PEVI(), Layout(5, 3, 4, mask), one_hot(5, 3), kept, Seeded(0))
    assert (found.policy != 2).all()
    assert np.isneginf(found.q[:, :, 2]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPPEVI(), "exactly one of epsilon, rho and mu"),
        (lambda: DPPEVI(rho=1.0, mu=1.0), "exactly one of epsilon, rho and mu"),
        (lambda: DPPEVI(epsilon=1.0), "delta"),
        (lambda: DPPEVI(rho=1.0, response="other"), "response = 'other'"),
        (lambda: DPPEVI(rho=1.0, ridge=-1.0), "ridge"),
        (lambda: DPPEVI(rho=1.0, noise="laplace"), "needs epsilon, and no delta"),
        (lambda: DPPEVI(epsilon=1.0, delta=1e-6, noise="laplace"), "needs epsilon, and no delta"),
        (lambda: DPPEVI(epsilon=1.0, noise="laplace", ridge="bound"), "ridge = 'bound'"),
        (lambda: DPVAPVI(mu=1.0, preset="figure-1"), "rho = None"),
        (lambda: DPVAPVI(rho=1.0, var_max=0.5), "var_max"),
        (lambda: DPVAPVI(rho=1.0, D="printed"), "D = 'printed'"),
        (lambda: DPVAPVI(rho=1.0, preset="paper", kappa=0.0), "kappa"),
        (lambda: DPVAPVI(rho=1.0, preset="paper", failure=1.0), "failure"),
        (lambda: VAPVI(D="printed"), "D = 'printed'"),
        (lambda: PEVI(lam=0.0), "lam"),
    ],
)
def test_bad_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_centring_needs_a_constant_in_the_span():
    features = Features(np.random.default_rng(0).normal(size=(3, 4, 2)) / 10)
    for learner in (DPPEVI(rho=1.0, centre=True), DPPEVI(rho=1.0, response="model")):
        with pytest.raises(ValueError, match="needs 1 in the span"):
            learner.questions(Layout(3, 4, 2), features)
    assert not any(q.centre for q in DPPEVI(rho=1.0).questions(Layout(3, 4, 2), features))


def test_synthetic_world_end_to_end():
    mdp = synthetic_linear_mdp(seed=1)
    table = mdp.to_tabular()
    data = rollout_batch(table, synthetic_linear_behaviour(), 500, 1)
    found = learn_linear(DPPEVI(epsilon=5.0, delta=1e-5), mdp.layout, mdp.features, data, Seeded(1))
    assert found.policy.shape == (20, 2)
    assert "40 planned questions" not in found.guarantee.statement
    assert "20 planned questions" in found.guarantee.statement


# ------------------------------------------------------------------------- known rewards, releases


def known_of(table):
    return np.broadcast_to(table.rewards, (table.horizon, table.states, table.actions)).copy()


LEARNERS = [
    PEVI(), VAPVI(), VAPVI(split=True), DPPEVI(rho=1.0), DPPEVI(rho=1.0, joint=False),
    DPPEVI(rho=1.0, response="model"), DPVAPVI(rho=1.0), DPVAPVI(rho=1.0, split=True),
    DPVAPVI(rho=1.0, preset="figure-1"), DPVAPVI(rho=1.0, preset="paper"),
]  # fmt: skip


@pytest.mark.parametrize("learner", LEARNERS)
def test_known_rewards_are_never_asked_for(learner):
    """No question has rewards, none is of the last step, ranges shrink by 1, rewards move no answer."""
    mdp, table, data = world(10)
    plan = learner.questions(mdp.layout, mdp.features, known_rewards=True)
    assert not any(q.reward for q in plan if q.kind != "gram")
    assert max(q.step for q in plan) == mdp.horizon - 2
    assert max((q.high for q in plan if q.step == 0 and q.kind == "pair"), default=3.0) == mdp.horizon - 1
    other = type(data)(data.states, data.actions, 1.0 - data.rewards)
    found = [
        learn_linear(learner, mdp.layout, mdp.features, x, Seeded(0), known_of(table)) for x in (data, other)
    ]
    np.testing.assert_array_equal(found[0].q, found[1].q)
    np.testing.assert_array_equal(found[0].q[-1], known_of(table)[-1])
    assert (found[0].q >= known_of(table) - 1e-12).all()
    assert (found[0].values[0] <= mdp.horizon).all()
    if found[0].guarantee.rho is not None and getattr(learner, "noise", "") != "published":
        assert found[0].guarantee.rho == pytest.approx(1.0, rel=1e-9)


def test_one_hot_with_known_rewards_is_the_tabular_form():
    """Q = r + clip(sum V / (n + lam) - beta / sqrt(n + lam), 0, b): the tabular ridge form, noise off."""
    table = random_mdp(states=3, actions=2, horizon=4, seed=3)
    data, lam, known = rollout_batch(table, uniform_policy(table), 300, 5), 0.1, known_of(table)
    found = learn_linear(PEVI(c=0.01), Layout(3, 2, 4), one_hot(3, 2), data, Seeded(0), known)
    for h in range(4):
        pair, v = data.states[:, h] * 2 + data.actions[:, h], found.values[h + 1]
        n = np.bincount(pair, minlength=6)
        q = np.bincount(pair, v[data.states[:, h + 1]], minlength=6) / (n + lam) - 0.24 / np.sqrt(n + lam)
        ahead = np.clip(q, 0, 3.0 - h) if h < 3 else 0.0
        np.testing.assert_allclose(found.q[h].ravel(), known[h].ravel() + ahead, atol=1e-10)


def test_noise_off_private_learners_with_known_rewards_are_the_plain_ones():
    mdp, table, data = world(11)
    known = known_of(table)
    plain = learn_linear(VAPVI(), mdp.layout, mdp.features, data, Seeded(0), known)
    learner = DPVAPVI(rho=1.0, preset="figure-1")
    plan = learner.questions(mdp.layout, mdp.features, known_rewards=True)
    session = ResponseSession(
        mdp.layout, mdp.features, [dataclasses.replace(q, mu=None) for q in plan], Seeded(0)
    )
    session.submit_many(data)
    np.testing.assert_array_equal(learner.solve(mdp.layout, mdp.features, session, known).q, plain.q)
    with pytest.raises(ValueError, match="known_rewards: every entry"):
        learner.solve(mdp.layout, mdp.features, session, known + 1)


def learn_stored(learner, layout, features, chunks, randomness, known_rewards=None):
    """(release, policy, records) from chunks of (episodes, the person of each): both stages at once."""
    known = known_rewards is not None
    with learner.open(layout, features, randomness, known_rewards=known) as session:
        for trajectories, user in chunks:
            session.submit_many(trajectories, user)
        return *learner.ask(session, known_rewards), session.records


def stored_again(release):
    """Through plain parts and JSON, as a file does."""
    query = json.loads(json.dumps(release.query()))
    tables = {(name, step): array.copy() for name, step, array in release.tables()}
    return LinearRelease.of(release.layout, release.users, release.guarantee, query, tables)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("known", [False, True])
def test_a_stored_release_plans_the_same_policy_again(learner, known):
    mdp, table, data = world(12)
    rewards = known_of(table) if known else None
    halves = [
        (type(data)(data.states[x], data.actions[x], data.rewards[x]), None)
        for x in np.split(np.arange(400), 4)
    ]
    release, learned, records = learn_stored(
        learner, mdp.layout, mdp.features, halves, Seeded(3), known_rewards=rewards
    )
    direct = learn_linear(learner, mdp.layout, mdp.features, data, Seeded(3), rewards)
    np.testing.assert_array_equal(learned.q, direct.q)
    again = replan_linear(learner, stored_again(release), mdp.features, rewards)
    np.testing.assert_array_equal(again.q, learned.q)
    np.testing.assert_array_equal(again.supported, learned.supported)
    assert again.guarantee == learned.guarantee
    assert len(records) == (0 if learned.guarantee.epsilon is None else 1)
    assert release.users == 400


def test_a_model_plans_with_any_knob_and_any_rewards():
    mdp, table, data = world(13)
    learner = DPPEVI(rho=1.0, response="model")
    release, _, _ = learn_stored(learner, mdp.layout, mdp.features, [(data, None)], Seeded(3))
    release = stored_again(release)
    for knobs in ({"C": 0.3}, {"ridge": 3.0}, {"simplex": False}, {"lam": 1.0, "support": 1.0}):
        replan_linear(dataclasses.replace(learner, **knobs), release, mdp.features)
    for rewards in (known_of(table), np.zeros_like(known_of(table))):
        found = replan_linear(learner, release, mdp.features, rewards)
        assert (found.q >= rewards).all()
    np.testing.assert_array_equal(found.q, 0.0)
    told, _, _ = learn_stored(
        learner, mdp.layout, mdp.features, [(data, None)], Seeded(3), known_rewards=known_of(table)
    )
    replan_linear(learner, told, mdp.features, 1.0 - known_of(table))
    with pytest.raises(ValueError, match="holds no answer to 'pair' of step 3, with rewards"):
        replan_linear(learner, told, mdp.features)


@pytest.mark.parametrize("learner", [DPPEVI(rho=1.0), DPVAPVI(rho=1.0)])
def test_other_questions_than_were_asked_are_refused(learner):
    mdp, table, data = world(14)
    release, learned, _ = learn_stored(learner, mdp.layout, mdp.features, [(data, None)], Seeded(3))
    with pytest.raises(ValueError, match="was asked with other (values|weights) than these options"):
        replan_linear(dataclasses.replace(learner, C=0.05), release, mdp.features)
    with pytest.raises(ValueError, match="holds no answer to 'pair' of step|asked with other"):
        replan_linear(learner, release, mdp.features, known_of(table))
    with pytest.raises(ValueError, match="features: must be those of the release"):
        replan_linear(learner, release, mdp.features.scaled(0.5))
    wider = replan_linear(dataclasses.replace(learner, support=0.0), release, mdp.features)
    assert (wider.supported >= learned.supported).all()


def test_broken_stores_are_refused():
    mdp, _, data = world(15)
    release, _, _ = learn_stored(DPPEVI(rho=1.0), mdp.layout, mdp.features, [(data, None)], Seeded(3))
    tables = {(name, step): array for name, step, array in release.tables()}
    query = release.query()

    def read(query=query, tables=tables):
        return LinearRelease.of(release.layout, release.users, release.guarantee, query, tables)

    first = next(iter(tables))
    with pytest.raises(ValueError, match="is missing"):
        read(tables={k: v for k, v in tables.items() if k != first})
    with pytest.raises(ValueError, match="has shape"):
        read(tables=tables | {first: np.zeros(3)})
    with pytest.raises(ValueError, match="must be finite"):
        read(tables=tables | {first: tables[first] * math.nan})
    for broken in ({}, {"features": query["features"]}, query | {"questions": [{"question": {}}]}):
        with pytest.raises(ValueError, match="quer"):
            read(query=broken)


def test_two_stages_spend_nothing_before_the_second():
    mdp, table, data = world(16)
    learner = DPPEVI(rho=1.0)
    session = learner.open(mdp.layout, mdp.features, Seeded(0), episodes=2)
    session.submit_many(data, np.repeat(np.arange(200), 2))
    before = session.guarantee, session.records
    assert session.asked == 0
    for other, known in ((DPPEVI(rho=1.1), None), (learner, known_of(table)), (DPVAPVI(rho=1.0), None)):
        with pytest.raises(ValueError, match="must be a new one, opened by this learner"):
            other.ask(session, known)
    assert session.asked == 0
    release, learned = learner.ask(session)
    assert (session.guarantee, session.records) == before
    assert release.users == learned.users == 200
    single = learner.open(mdp.layout, mdp.features, Seeded(0))
    single.submit_many(data)
    one = single.pair(3, np.zeros(5))
    assert release.asked[0].answer.gram_scale == pytest.approx(2 * one.gram_scale)
    with pytest.raises(ValueError, match="must be a new one"):
        learner.ask(session)
    with pytest.raises(ValueError, match="must be at least 1"):
        learner.ask(learner.open(mdp.layout, mdp.features, Seeded(0)))
    printed = DPVAPVI(rho=1.0, preset="figure-1")  # its noise is printed: m episodes cost m^2 times the rho
    rho = [printed.open(mdp.layout, mdp.features, Seeded(0), episodes=m).guarantee.rho for m in (1, 3)]
    assert rho[1] == pytest.approx(9 * rho[0])


def test_support_is_visits_in_the_tabular_case():
    """One-hot, noise off: n_eff = n, supported where anybody was. With noise: above two of its deviations."""
    table = random_mdp(states=4, actions=3, horizon=3, seed=3)
    data, layout, phi = rollout_batch(table, uniform_policy(table), 40, 5), Layout(4, 3, 3), one_hot(4, 3)
    found = learn_linear(PEVI(), layout, phi, data, Seeded(0))
    weighted = learn_linear(VAPVI(), layout, phi, data, Seeded(0))
    for h in range(3):
        n = np.bincount(data.states[:, h] * 3 + data.actions[:, h], minlength=12).reshape(4, 3)
        np.testing.assert_allclose(found.effective[h], n, atol=1e-9)
        np.testing.assert_allclose(weighted.effective[h], n, atol=1e-9)
        np.testing.assert_array_equal(found.supported[h], n[range(4), found.policy[h]] > 0)
    noisy = learn_linear(DPPEVI(rho=0.01), layout, phi, data, Seeded(0))
    assert noisy.supported.mean() < 0.2
    many = learn_linear(
        DPPEVI(rho=10.0), layout, phi, rollout_batch(table, uniform_policy(table), 20_000, 5), Seeded(0)
    )
    start = table.initial > 0.02
    assert many.supported[0][start].all()
    assert many.lower_bound(table.initial) > 0


def test_features_of_a_schema():
    assert schema_features(Layout(3, 2, 4)).dimension == 6
    table = np.random.default_rng(0).dirichlet(np.ones(2), (3, 2))
    assert schema_features(Layout(3, 2, 4), table, l1=1.0, nonneg=True).constant
    with pytest.raises(ValueError, match="S A = 17900 dimensions, must have at most 1000; .* use dp-apvi"):
        schema_features(Layout(716, 25, 20))
    with pytest.raises(ValueError, match="must be of 4 and 2"):
        schema_features(Layout(4, 2, 4), table)


def test_the_page_runs(capsys):
    page = Path(__file__).parents[3] / "docs" / "linear.md"
    shared: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(block, shared)
    assert capsys.readouterr().out.startswith("Differential privacy with a trusted keeper")
