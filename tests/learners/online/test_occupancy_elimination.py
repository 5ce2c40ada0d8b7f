"""Constrained visits against a solver; SDP-PE-OM."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from staged import batches

import discreet as dr
from discreet import envs
from discreet.core.layout import Layout
from discreet.envs.mdp import planning
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup
from discreet.learners.online.elimination_schedule import StageModel, value_widths
from discreet.learners.online.occupancy_elimination import SDPPEOM, KnownModel
from discreet.mechanisms.policy_rows import policy_rows
from discreet.utils.random_streams_kernels import open_at, run_key


def instance(seed):
    """A random model by rows, perhaps with a mask and with ties; coins; a pair."""
    g = np.random.default_rng(seed)
    states, actions, horizon = int(g.integers(1, 6)), int(g.integers(1, 4)), int(g.integers(1, 6))
    mask = g.random((states, actions)) < 0.8
    mask[np.arange(states), g.integers(0, actions, states)] = True
    layout = Layout(states, actions, horizon, mask)
    shape = (horizon, layout.rows)
    p = g.dirichlet(np.full(states, 0.4), size=shape)
    r = g.random(shape)
    if seed % 4 == 0:  # sparse and repeated: many ties
        p, r = np.eye(states)[g.integers(0, states, shape)], np.round(2 * r) / 2
    start = np.eye(states)[0] if seed % 2 else g.dirichlet(np.ones(states))
    coins = open_at(run_key(seed), 3, 0, 0)
    where = int(g.integers(horizon)), int(g.integers(layout.rows))
    return KnownModel.of(layout, start, p, r, coins), p, where, coins, g


def programme(model, p, h, row, level):
    """max q_h(row) over occupancy measures with <q, r> >= level, by HiGHS."""
    layout = model.layout
    horizon, rows, states = layout.horizon, layout.rows, layout.states
    flows = np.zeros((horizon, states, horizon, rows))
    for t in range(horizon):
        flows[t, layout.row_state, t, np.arange(rows)] = 1.0
        if t + 1 < horizon:
            flows[t + 1, :, t, :] -= p[t].T
    arrives = np.zeros((horizon, states))
    arrives[0] = model.initial
    cost = np.zeros((horizon, rows))
    cost[h, row] = -1.0
    found = linprog(
        cost.ravel(), A_ub=-model.rewards.reshape(1, -1), b_ub=[-level],
        A_eq=flows.reshape(horizon * states, -1), b_eq=arrives.ravel(), method="highs",
    )  # fmt: skip
    assert found.status == 0, found.message
    return -found.fun


def visit_and_value(model, p, rows, h, row):
    mass, value, visits = model.initial, 0.0, 0.0
    for t in range(len(rows)):
        value += float(mass @ model.rewards[t, rows[t]])
        if t == h:
            visits = float(mass[rows[t] == row].sum())
        mass = mass @ p[t, rows[t]]
    return visits, value


def test_equals_a_linear_programme():
    """300 random models, levels from a third of the best value to the best: to 1e-9, and few steps."""
    most = 0
    for seed in range(300):
        model, p, (h, row), coins, g = instance(seed)
        level = model.value * (1.0 - (g.random() ** 3) * 2 / 3)
        found = model.visit(h, row, level, coins)
        expected = programme(model, p, h, row, min(level, model.value - 1e-11))
        assert found.visits == pytest.approx(expected, abs=1e-9), seed
        ends = [visit_and_value(model, p, rows, h, row) for rows in (found.low, found.high)]
        assert 0.0 <= found.weight <= 1.0
        visits, value = np.array(ends).T @ [1.0 - found.weight, found.weight]
        assert visits == pytest.approx(found.visits, abs=1e-12)
        assert value >= level - 1e-10
        if found.weight > 0:  # the one that is played alone with `deterministic`
            assert ends[1][1] >= level - 1e-10
        most = max(most, found.steps)
    assert 3 <= most <= 30


def test_ends_of_the_level():
    """No constraint: the largest visit probability. The best value itself: an optimal policy."""
    for seed in range(100):
        model, p, (h, row), coins, _ = instance(seed)
        free = model.visit(h, row, -np.inf, coins)
        assert free.steps == 1
        reach = np.zeros(model.layout.states)
        reach[model.layout.row_state[row]] = 1.0
        for t in range(h - 1, -1, -1):
            best = np.full(model.layout.states, -np.inf)
            np.maximum.at(best, model.layout.row_state, p[t] @ reach)
            reach = best
        assert free.visits == pytest.approx(float(model.initial @ reach), abs=1e-12)
        bound = model.visit(h, row, model.value, coins)
        value = visit_and_value(model, p, bound.high, h, row)[1]
        assert value == pytest.approx(model.value, rel=2e-12, abs=2e-12)


def test_values_that_differ_by_rounding_are_equal():
    """All policies are worth 0.3 H: each is in the set, so that nothing is lost at the level of the best."""
    differ = 0
    for seed in range(60):
        g = np.random.default_rng(seed)
        layout = Layout(3, 2, 4)
        p = g.dirichlet(np.full(3, 0.4), size=(4, 6))
        coins = open_at(run_key(seed), 3, 0, 0)
        model = KnownModel.of(layout, g.dirichlet(np.ones(3)), p, np.full((4, 6), 0.3), coins)
        free, bound = (model.visit(3, 4, level, coins) for level in (-np.inf, model.value))
        assert bound.visits == pytest.approx(free.visits, abs=1e-12)
        differ += visit_and_value(model, p, free.low, 3, 4)[1] < model.value
    assert differ > 5


def test_ties_are_broken_by_coins():
    """A model in which all is equal: every action is played now and then."""
    layout = Layout(3, 3, 2)
    uniform = np.full((2, 9, 3), 1 / 3)
    plays = []
    for seed in range(60):
        coins = open_at(run_key(seed), 3, 0, 0)
        model = KnownModel.of(layout, np.eye(3)[0], uniform, np.zeros((2, 9)), coins)
        plays.append(model.visit(1, 4, -np.inf, coins).low)
    seen = np.array(plays)
    assert (seen[:, 1, 1] == 4).all()
    for h, s in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2)):
        assert set(seen[:, h, s]) == {3 * s, 3 * s + 1, 3 * s + 2}


def swim():
    return dr.make("riverswim", rewards="bernoulli")


@pytest.mark.parametrize("options", [{}, {"forget": True}, {"deterministic": True}, {"known_rewards": True}])
def test_everybody_is_sent_somewhere(options):
    mdp = envs.random_mdp(states=4, actions=3, horizon=5, seed=2, rewards="bernoulli")
    setup = Setup(mdp, SDPPEOM(initial=7, **options), dr.Central(epsilon=5.0, delta=1e-6), 20_000, "batch")
    sizes, seen = setup.learner.sizes(setup.spec), batches(setup, 1)
    assert len(seen) == len(sizes) + 1
    assert (setup.schedule.queries is not None) == bool(options.get("forget"))
    for size, one in zip(sizes, seen, strict=False):
        assert sum(plan.users for plan in one.plans) == size * 60
        assert one.memory.policies == len(one.plans)
        assert one.memory.level <= one.memory.top
        for plan in one.plans:
            policy_rows(mdp.layout, plan.policy)
    assert len(seen[-1].plans) == 1
    assert seen[0].memory.level == -np.inf
    assert np.isfinite(seen[1].memory.level)


def test_users_are_split_by_the_weight():
    """Of a mixture's users each policy gets a binomial share; deterministic: all follow the second."""
    setup = Setup(swim(), SDPPEOM(width_scale=0.001), dr.NoPrivacy(), 10**6, "batch")
    model, p, _, coins, _ = instance(1)
    del p
    found = [
        (h, row, model.visit(h, row, model.value * 0.97, coins))
        for h in range(model.layout.horizon)
        for row in range(model.layout.rows)
    ]
    mixed = [one for *_, one in found if 0.05 < one.weight < 0.95]
    assert mixed
    learner = setup.learner
    told, plans = learner._explore(model, model.value * 0.97, 10_000, coins)
    assert told.policies == len(plans)
    played = {plan.astype(np.int64).tobytes(): users for plan, users in plans}
    for one in mixed:  # 8 standard deviations, and others may play the same policy too: false alarm < 1e-13
        users = played[model.layout.row_action[one.high].tobytes()]
        assert users >= 10_000 * one.weight - 8 * np.sqrt(10_000 * one.weight * (1 - one.weight))
    alone = SDPPEOM(width_scale=0.001, deterministic=True)._explore(model, model.value * 0.97, 10, coins)[1]
    assert {users % 10 for _, users in alone} == {0}


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_an_optimal_policy_is_in_the_set(forget, epsilon):
    """Its upper bound is above the level at every stage, with widths that hold."""
    mdp = envs.random_mdp(states=3, actions=2, horizon=4, seed=6, rewards="bernoulli")
    privatizer = dr.NoPrivacy() if epsilon is None else dr.Central(epsilon=epsilon, delta=1e-6)
    setup = Setup(mdp, SDPPEOM(preset="theory", forget=forget), privatizer, 300_000, "batch")
    best = planning.optimal_values(mdp)[2]
    rows = mdp.layout.row_index[np.arange(3)[None, :], best]
    sizes = setup.learner.sizes(setup.spec)
    share = 1 / len(sizes) if forget else 1.0
    levels = []
    for one in batches(setup, 3)[1:-1]:
        model = StageModel.of(one.release, setup.spec, 0.05, False)
        w = value_widths(model, setup.spec, 0.05 * share, False, 1.0)
        v = np.zeros(3)
        for h in range(3, -1, -1):
            v = (model.rewards + w)[h, rows[h]] + model.completed()[h, rows[h]] @ v
        assert float(mdp.initial @ v) >= one.memory.level
        levels.append(one.memory.level)
    assert len(levels) >= 3
    if epsilon is None and not forget:
        assert levels[-1] > 0.0
        assert levels == sorted(levels)


def test_noise_failure_is_shared_once():
    """Forgetting: the widths are those of quantiles at noise_failure / B, which the batches' laws hold."""
    mdp = envs.random_mdp(states=2, actions=2, horizon=3, seed=1, rewards="bernoulli")
    learner = SDPPEOM(preset="theory", forget=True, width_scale=1e-6)
    setup = Setup(mdp, learner, dr.Central(epsilon=5.0, delta=1e-6), 200_000, "batch")
    seen, stages = batches(setup, 1), len(learner.sizes(setup.spec))
    for one in seen[1:-1]:
        laws = {name: replace(found.law, share=1.0) for name, found in one.release.estimates.items()}
        alone = {n: replace(found, law=laws[n]) for n, found in one.release.estimates.items()}
        model = StageModel.of(replace(one.release, estimates=alone), setup.spec, 0.05 / stages, False)
        w = value_widths(model, setup.spec, 0.05 / stages, False, 1e-6)
        lower = KnownModel.of(
            mdp.layout, mdp.initial, model.completed(), model.rewards - w, open_at(run_key(0), 3, 0, 0)
        )
        assert one.memory.level == pytest.approx(lower.value, rel=1e-12)


def test_it_learns_where_policies_cannot_be_listed():
    """RiverSwim, 2^120 policies: below a tenth of the uniform policy's regret (measured: 4 to 7 %)."""
    result = dr.simulate(swim(), SDPPEOM(), dr.NoPrivacy(), 100_000, seeds=2, by="batch", workers=1)
    setup = Setup(swim(), SDPPEOM(), dr.NoPrivacy(), 100_000)
    uniform = 100_000 * (setup.optimal_value - setup.uniform_value)
    assert result.regret[:, -1].max() < 0.1 * uniform


def test_summary_and_bad_options():
    assert "not nested" in SDPPEOM(preset="theory").summary()
    with pytest.raises(ValueError, match="forget = 'no'"):
        SDPPEOM(forget="no")
    with pytest.raises(ValueError, match="spec.initial = None"):
        SDPPEOM().schedule(dr.mechanisms.ProblemSpec(Layout(2, 2, 2), 1000))


def test_one_state_one_action():
    mdp = TabularMDP(np.ones((1, 1, 1)), np.full((1, 1), 0.5), horizon=2)
    assert dr.simulate(mdp, SDPPEOM(), dr.NoPrivacy(), 200, seeds=1).regret.max() == pytest.approx(
        0, abs=1e-9
    )
