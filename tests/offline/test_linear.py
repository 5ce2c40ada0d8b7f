"""Linear offline learners: limits, tabular special case, budgets (specification, section 12)."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

from discreet.envs import random_mdp, synthetic_linear_behaviour, synthetic_linear_mdp
from discreet.mdp.features import Features, one_hot
from discreet.mdp.layout import Layout
from discreet.mdp.linear import LinearMDP
from discreet.mdp.planning import evaluate, optimal_values, uniform_policy
from discreet.mdp.simulation import rollouts
from discreet.offline.linear import DPPEVI, DPVAPVI, PEVI, VAPVI, learn
from discreet.privacy.budget import gdp_mu
from discreet.privacy.randomness import Secure, Seeded
from discreet.privacy.responses import ResponseSession


def world(seed=0, states=5, actions=3, horizon=4, d=4):
    rng = np.random.default_rng(seed)
    phi = Features(rng.dirichlet(np.full(d, 0.5), (states, actions)), l1=1.0, nonneg=True)
    mdp = LinearMDP(phi, rng.dirichlet(np.full(states, 0.5), (horizon, d)), rng.uniform(size=(horizon, d)))
    table = mdp.to_tabular()
    return mdp, table, rollouts(table, uniform_policy(table), 400, seed)


def exact(learner, mdp, data):
    """The learner on the same questions, answered without noise."""
    plan = [dataclasses.replace(q, mu=None) for q in learner.questions(mdp.layout, mdp.features)]
    session = ResponseSession(mdp.layout, mdp.features, plan, Seeded(0))
    session.submit_many(data)
    return learner.solve(mdp.layout, mdp.features, session)


def test_noise_off_dp_pevi_is_pevi():
    mdp, _, data = world()
    plain = learn(PEVI(c=0.005), mdp.layout, mdp.features, data, Seeded(0))
    constant = 0.005 * math.sqrt(mdp.features.dimension) * mdp.horizon
    for joint in (True, False):
        for span in ("values", "declared"):
            private = DPPEVI(rho=1.0, centre=False, C=constant, joint=joint, range=span)
            np.testing.assert_allclose(exact(private, mdp, data).q, plain.q, atol=1e-12)
    limit = learn(DPPEVI(rho=1e12, centre=False, C=constant), mdp.layout, mdp.features, data, Seeded(0))
    np.testing.assert_allclose(limit.q, plain.q, atol=3e-4)
    np.testing.assert_array_equal(limit.policy, plain.policy)


@pytest.mark.parametrize("split", [False, True])
def test_noise_off_dp_vapvi_is_vapvi_bit_for_bit(split):
    mdp, _, data = world(1)
    plain = learn(VAPVI(split=split), mdp.layout, mdp.features, data, Seeded(0))
    np.testing.assert_array_equal(exact(DPVAPVI(rho=1.0, preset="paper", split=split), mdp, data).q, plain.q)


def test_equal_weights_make_vapvi_a_pevi():
    mdp, _, data = world(2)
    constant = 0.01 * math.sqrt(mdp.features.dimension) * mdp.horizon
    flat = learn(VAPVI(C=constant, var_max=1.0), mdp.layout, mdp.features, data, Seeded(0))
    plain = learn(PEVI(c=0.01), mdp.layout, mdp.features, data, Seeded(0))
    np.testing.assert_allclose(flat.q, plain.q, atol=1e-12)


def test_one_hot_is_the_tabular_ridge_form():
    """PEVI: sum(r + V) / (n + lam) - beta / sqrt(n + lam); VAPVI: the same with n / sigma^2 (section 2.3)."""
    table = random_mdp(states=3, actions=2, horizon=4, seed=3)
    data, s_n, a_n, lam = rollouts(table, uniform_policy(table), 300, 5), 3, 2, 0.1
    phi, layout = one_hot(s_n, a_n), Layout(s_n, a_n, 4)
    pevi = learn(PEVI(c=0.01), layout, phi, data, Seeded(0))
    vapvi = learn(VAPVI(C=0.1), layout, phi, data, Seeded(0))
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
        one = learn(DPPEVI(rho=3.0, response=response), mdp.layout, mdp.features, data, Seeded(1))
        other = learn(
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
    learner = DPVAPVI(rho=1.0, preset="paper")
    plan = learner.questions(Layout(2, 3, horizon), features)
    assert len(plan) == 5 * horizon - 2
    guarantee = ResponseSession(Layout(2, 3, horizon), features, plan, Seeded(0)).guarantee
    assert guarantee.rho == pytest.approx(expected, abs=6e-3 if bound > 1 else 6e-4)


def test_printed_noise_is_drawn():
    mdp, _, data = world(5)
    rho0, h = 2.0 / (5 * mdp.horizon), mdp.horizon
    plan = DPVAPVI(rho=2.0, preset="paper").questions(mdp.layout, mdp.features)
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
    found = learn(learner(rho=0.5), mdp.layout, mdp.features, data, Seeded(0))
    assert found.guarantee.rho == pytest.approx(0.5, rel=1e-9)
    found = learn(learner(epsilon=2.0, delta=1e-5), mdp.layout, mdp.features, data, Seeded(0))
    assert found.guarantee.mu == pytest.approx(gdp_mu(2.0, 1e-5), rel=1e-9)
    assert found.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    secure = learn(learner(epsilon=2.0, delta=1e-5), mdp.layout, mdp.features, data, Secure())
    assert secure.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    assert secure.guarantee.randomness == "secure"
    assert secure.policy.shape == (4, 5)


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
    data = rollouts(table, uniform_policy(table), 20_000, 1)
    for learner in (PEVI(c=0.2), VAPVI(C=2.0)):
        found = learn(learner, mdp.layout, mdp.features, data, Seeded(0))
        own, best = evaluate(table, found.policy)[0], optimal_values(table)[0][0]
        assert (found.values[0] <= own + 1e-9).all()
        assert (own <= best + 1e-9).all()
        assert found.values[0].max() > 0.3 * best.max()


def test_masked_actions_are_never_chosen():
    _, _, data = world(9)
    mask = np.ones((5, 3), bool)
    mask[:, 2] = False
    keep = (data.actions != 2).all(axis=1)
    kept = type(data)(data.states[keep], data.actions[keep], data.rewards[keep])
    found = learn(PEVI(), Layout(5, 3, 4, mask), one_hot(5, 3), kept, Seeded(0))
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
        (lambda: DPVAPVI(mu=1.0, preset="paper"), "rho = None"),
        (lambda: DPVAPVI(rho=1.0, var_max=0.5), "var_max"),
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
    data = rollouts(table, synthetic_linear_behaviour(), 500, 1)
    found = learn(DPPEVI(epsilon=5.0, delta=1e-5), mdp.layout, mdp.features, data, Seeded(1))
    assert found.policy.shape == (20, 2)
    assert "40 planned questions" not in found.guarantee.statement
    assert "20 planned questions" in found.guarantee.statement


def test_the_page_runs(capsys):
    page = Path(__file__).parents[2] / "docs" / "linear.md"
    shared: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(block, shared)
    assert capsys.readouterr().out.startswith("Joint differential privacy")
