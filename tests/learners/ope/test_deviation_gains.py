"""Gains of changed decisions: estimates, their errors, the independence of choosing and judging, the path."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.core.layout import Layout
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope import deviation_gains as deviations
from discreet.learners.ope.deviation_gains import path_of
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.pipeline.power_analysis import PublicMDP


def world(seed: int = 0) -> tuple[TabularMDP, np.ndarray]:
    """Five states, a good end and a bad one; three actions; most episodes end before the last step."""
    draw = np.random.default_rng(seed)
    moves = np.zeros((7, 3, 7))
    for s in range(5):
        for a in range(3):
            moves[s, a, :5] = 0.55 * draw.dirichlet(np.ones(5))
            good = draw.uniform(0.1, 0.9)
            moves[s, a, 5:] = 0.45 * np.array([good, 1.0 - good])
    moves[5, :, 5] = moves[6, :, 6] = 1.0
    paid = np.zeros_like(moves)
    paid[:5, :, 5] = 1.0
    mdp = TabularMDP(moves, paid, np.r_[np.full(5, 0.2), 0.0, 0.0], horizon=25, terminal=(5, 6))
    return mdp, np.repeat(draw.dirichlet(np.full(3, 3.0), 7)[None], 25, axis=0)


QUESTION = FirstVisits(
    ProblemSpec(Layout(7, 3, 25), stationary=True, returns=ReturnBounds(terminal=(5, 6), outcomes={5: 1.0}))
)


def truth(mdp: TabularMDP, behaviour: np.ndarray, people: float) -> dict[str, np.ndarray]:
    """Expected sums of so many people, and the true one-decision gains, by exact dynamic programming."""
    layout, p = QUESTION.layout, mdp.transitions[0]
    b = behaviour[0]
    v, q = np.zeros((26, 7)), np.zeros((25, 7, 3))
    for h in range(24, -1, -1):
        q[h] = np.einsum("sat,t->sa", p, v[h + 1] + np.eye(7)[5])
        q[h, 5:] = 0.0
        v[h] = (b * q[h]).sum(axis=1)
        v[h, 5:] = 0.0
    usual = np.einsum("sa,sat->st", b, p)
    visits, moves, returns = np.zeros((8, 3)), np.zeros((8, 3, 8)), np.zeros((8, 3))
    visits[7, 0], moves[7, 0, :7], returns[7, 0] = 1.0, mdp.initial, mdp.initial @ v[0] - 0.5
    for s in range(7):
        fresh = mdp.initial.copy()
        for h in range(25):
            share = b[s] if s < 5 else np.eye(3)[0]
            visits[s] += fresh[s] * share
            moves[s, :, :7] += (fresh[s] * share)[:, None] * p[s]
            returns[s] += fresh[s] * share * ((q[h, s] if s < 5 else 0.0) - 0.5)
            fresh[s] = 0.0
            fresh = fresh @ usual
    rows = layout.to_rows
    return {
        "visits": people * rows(visits[None])[0], "moves": people * rows(moves[None])[0],
        "returns": people * rows(returns[None])[0], "q": q[0], "v": v[0],
    }  # fmt: skip


def told(
    sums: dict[str, np.ndarray], people: float, noise: tuple[float, float, float], seed: int
) -> VisitSums:
    draw = np.random.default_rng(seed)
    names = ("visits", "moves", "returns")
    tables = [sums[n] + s * draw.standard_normal(sums[n].shape) for n, s in zip(names, noise, strict=True)]
    return QUESTION.sums_of(*tables, *noise, people=people)


def test_without_errors_the_gain_is_the_true_one() -> None:
    """Sums at their expectation: one decision's gains are exact, and r gives the value of the policy."""
    for seed in range(4):
        mdp, behaviour = world(seed)
        sums = truth(mdp, behaviour, 1e9)
        path = path_of(told(sums, 1e9, (0.0, 0.0, 0.0), 0))
        gains = QUESTION.layout.from_rows(path.whole.gain[None])[0]
        # Q of the earliest steps stands for all: the end is far
        np.testing.assert_allclose(gains[:5], sums["q"][:5] - sums["v"][:5, None], atol=2e-5)
        count = path.default
        policy = behaviour.copy()
        changed = path.changed(count)[:7]
        policy[:, changed] = np.eye(3)[path.action[:7][changed]]
        true = policy_value(mdp, policy) - policy_value(mdp, behaviour)
        assert count >= 1
        assert true > 0.05
        assert path.gain(count).estimate == pytest.approx(true, rel=0.02)
        best = [s for s in range(5) if gains[s].max() > 0.01]
        assert {s for s in best if changed[s]} == set(best)


def test_the_ratio_is_that_of_a_slow_reference() -> None:
    """r by enumeration of visits: full gain over gains at first visits, in the fitted model; and the mean of
    a decision's gain over first visits is the shrunk one.
    """
    mdp, behaviour = world(1)
    path = path_of(told(truth(mdp, behaviour, 1e5), 1e5, (5.0, 5.0, 2.0), 3))
    moves = path.sums.consistent()
    layout, k = QUESTION.layout, path.order.size
    usual, begin = path._usual(moves)
    taken = moves[layout.row_index[path.order, path.action[path.order]]]
    many = taken.sum(axis=1)
    first = deviations.first_visits(usual, begin, path.order, 26)
    by_step, _ = path._by_step(usual, taken / many[:, None], many, first, path.order)
    np.testing.assert_allclose(
        (first * by_step).sum(axis=0), first.sum(axis=0) * path.shrunk[path.order], rtol=1e-9
    )
    gains = np.zeros((26, 8))
    gains[:, path.order] = by_step
    for count in (1, k):
        changed = path.changed(count)
        whole = path.sums.per_state(moves)
        p = whole / np.maximum(whole.sum(axis=1), 1e-9)[:, None]
        ours = p.copy()
        for s in np.flatnonzero(changed):
            row = moves[layout.row_index[s, path.action[s]]]
            ours[s] = row / row.sum()
        p[[5, 6]] = ours[[5, 6]] = 0.0
        start = np.eye(8)[7]
        full, once, x = 0.0, 0.0, start
        for gain in gains:
            full += x[changed] @ gain[changed]
            x = x @ ours
        for s in np.flatnonzero(changed):
            x = start
            for gain in gains:
                once += x[s] * gain[s]
                x = np.where(np.arange(8) == s, 0.0, x) @ p
        assert path._in_model(moves, np.array([count]))[0][0] == pytest.approx(full / once, rel=1e-9)


@pytest.mark.parametrize("paid", ["at the end", "by step"])
@pytest.mark.parametrize("ending", [0.02, 0.3])
def test_with_endless_people_the_gain_is_the_true_one_however_many_are_cut_off(
    paid: str, ending: float
) -> None:
    """Eight states, six steps: sums of 10^13 people at their expectation, and the exact value of a policy.

    Where episodes end (0.02 or 0.3 of those that are left, a step) gains depend on the steps that are left;
    what is left of an error is the luck that is drawn to split the release, of some 1e-6.
    """
    draw = np.random.default_rng(5)
    moves = np.zeros((10, 3, 10))
    for s in range(8):
        for a in range(3):
            good = draw.uniform(0.1, 0.9)
            moves[s, a, :8] = (1.0 - ending) * draw.dirichlet(np.full(8, 0.5))
            moves[s, a, 8:] = ending * (1.0 - good), ending * good
    moves[8, :, 8] = moves[9, :, 9] = 1.0
    rewards = np.zeros_like(moves)
    if paid == "at the end":
        rewards[:8, :, 9] = 1.0
    else:
        rewards[:8] = draw.uniform(0.0, 1.0, (8, 3, 1))
    returns = ReturnBounds(terminal=(8, 9), outcomes={9: 1.0} if paid == "at the end" else None)
    mdp = TabularMDP(moves, rewards, np.r_[np.full(8, 0.125), 0.0, 0.0], horizon=6, terminal=(8, 9))
    public = PublicMDP(mdp, np.repeat(draw.dirichlet(np.full(3, 3.0), 10)[None], 6, axis=0), returns)
    each, successors, mean = public._expected
    people = 1e13
    visits = people * each
    release = public.question.sums_of(
        visits, visits[:, None] * successors, visits * (mean - 0.5), 0.0, 0.0, 0.0, people=people
    )
    path = path_of(release)
    assert path.order.size == 8
    for count in (1, 4, 8):
        assert path.gain(count).estimate == pytest.approx(public.gain(path, count), rel=2e-4)


def test_what_noise_hides_of_later_visits_is_part_of_the_interval() -> None:
    """Visits and returns are known, transitions drown in noise: the model alone has people come back too
    often. What is said of r reaches down to 1 as far as the model is not believed, holds r of the true
    transitions, and errs less than the model. Seeds are fixed; nothing here is a matter of chance.
    """
    off = []
    for seed, size in itertools.product(range(3), (300.0, 3000.0)):
        mdp, behaviour = world(seed)
        sums = truth(mdp, behaviour, 1e5)
        for i in range(3):
            noise = size * np.random.default_rng(i).standard_normal(sums["moves"].shape)
            release = QUESTION.sums_of(
                sums["visits"], sums["moves"] + noise, sums["returns"], 1e-3, size, 1e-3, people=1e5
            )
            path = deviations.path_of(release)
            count = np.array([path.order.size])
            true = path._in_model(sums["moves"], count)[0][0]
            model, weights, believed = (float(one[0]) for one in path._in_model(release.consistent(), count))
            gain = path.gain(int(count[0]))
            error = np.sqrt(gain.revisits_error**2 - weights)
            assert believed > 0.85 if size == 300.0 else believed < 0.4
            assert gain.revisits == pytest.approx(model - 0.5 * (1.0 - believed) * (model - 1.0))
            assert gain.revisits - 2.0 * error < 1.0 + believed * (model - 1.0)
            assert gain.revisits + 2.0 * error > model
            assert abs(gain.revisits - true) < 2.0 * error
            off.append((abs(model - true), abs(gain.revisits - true)))
    of_model, of_gain = np.mean(off, axis=0)
    assert of_gain < 0.6 * of_model


def test_rewards_by_rule_beyond_the_bounds_count_as_the_bounds() -> None:
    """In the model of returns, too: outcomes of -4 and 9 between -1 and 2, as outcomes of -1 and 2."""
    gains = []
    for outcomes in ({5: 9.0, 6: -4.0}, {5: 2.0, 6: -1.0}):
        returns = ReturnBounds(terminal=(5, 6), outcomes=outcomes, least=-1.0, most=2.0)
        question = FirstVisits(ProblemSpec(Layout(7, 3, 25), stationary=True, returns=returns))
        assert question.arrival.tolist() == [0.0] * 5 + [2.0 / 3.0, -1.0 / 3.0, 0.0]
        sums = truth(*world(0), 1e5)
        tables = (sums[name] for name in ("visits", "moves", "returns"))
        path = path_of(question.sums_of(*tables, 20.0, 20.0, 10.0, people=1e5))
        gains.append(path.gain(path.order.size))
    assert gains[0] == gains[1]


def test_errors_are_those_that_are_stated_and_halves_are_independent() -> None:
    """Over 400 releases of people who are drawn anew: deviations of both halves, and no correlation.

    False alarm 1e-6: chi-square of variances of 15 decisions, one test; a correlation of about 6 000 pairs.
    """
    mdp, behaviour = world(2)
    expected = truth(mdp, behaviour, 20_000.0)
    draw = np.random.default_rng(11)
    mean = expected["returns"] / np.maximum(expected["visits"], 1e-9) + 0.5
    scaled: dict[str, list[Any]] = {"choose": [], "judge": []}
    for seed in range(400):
        visits = draw.poisson(expected["visits"]).astype(float)
        returns = draw.binomial(visits.astype(int), np.clip(mean, 0.0, 1.0)) - 0.5 * visits
        noisy = [visits + 20.0 * draw.standard_normal(visits.size), expected["moves"]]
        noisy.append(returns + 10.0 * draw.standard_normal(visits.size))
        release = QUESTION.sums_of(*noisy, 20.0, 20.0, 10.0, people=20_000)
        key = np.array([seed, 5], np.uint64)
        _, choosing, judging = deviations._halves(release, key)
        rows = slice(0, 15)  # of states where there is a choice
        share = QUESTION.layout.from_rows(expected["visits"][None])[0][:5]
        q = QUESTION.layout.from_rows(mean[None])[0][:5]
        true = (q - (share * q).sum(axis=1, keepdims=True) / share.sum(axis=1, keepdims=True)).ravel()
        for name, half in (("choose", choosing), ("judge", judging)):
            scaled[name].append((half.gain[rows] - true) / np.sqrt(half.variance[rows]))
    tables = {name: np.array(found) for name, found in scaled.items()}
    for table in tables.values():
        variance = (table**2).mean(axis=0)
        # stated variances are upper bounds of what returns vary by, and tight for outcomes of 0 and 1
        most = stats.chi2.ppf(1 - 1e-6 / 30, 400) / 400
        assert variance.max() < most
        assert variance.mean() > 0.85
        assert np.abs(table.mean(axis=0)).max() < 6.0 / np.sqrt(400)
    for one, other in itertools.product(range(15), repeat=2):
        product = (tables["choose"][:, one] * tables["judge"][:, other]).mean()
        assert abs(product) < 6.0 / np.sqrt(400)


@pytest.mark.parametrize(
    ("value_of_all", "noise", "heavy"),
    [(0.03, (0.0, 0.0), False), (0.03, (25.0, 12.0), False), (0.9, (25.0, 12.0), True)],
    ids=["rare outcomes", "gaussian", "laplace"],
)
def test_where_no_action_matters_choosing_does_not_flatter(
    value_of_all: float, noise: tuple[float, float], heavy: bool
) -> None:
    """58 states, 300 releases: the sum that judges what was chosen has mean 0 and its stated deviation.

    False alarm 1e-6: the mean of 300 at 5 standard errors, a variance at 1.5 (chi-square with 300).
    """
    size, actions, each = 58, 4, 1250
    returns = ReturnBounds(terminal=(size, size + 1), outcomes={size + 1: 1.0})
    question = FirstVisits(ProblemSpec(Layout(size + 2, actions, 30), stationary=True, returns=returns))
    layout, draw = question.layout, np.random.default_rng(1)
    inside = layout.row_state < size
    share = draw.dirichlet(np.full(actions, 2.0), size).ravel()
    luck = draw.laplace if heavy else draw.normal
    per_sd = np.sqrt(0.5) if heavy else 1.0
    found = []
    for i in range(300):
        visits = np.full(layout.rows, each * actions * 20.0)
        visits[inside] = draw.poisson(each * actions * share)
        earned = (value_of_all - 0.5) * visits
        earned[inside] = draw.binomial(visits[inside].astype(int), value_of_all) - 0.5 * visits[inside]
        moves = np.zeros((layout.rows, layout.states))
        told = question.sums_of(
            visits + per_sd * luck(0.0, noise[0] or 1e-300, layout.rows), moves,
            earned + per_sd * luck(0.0, noise[1] or 1e-300, layout.rows), noise[0], noise[0], noise[1],
            people=each * actions * 20.0, heavy=heavy,
        )  # fmt: skip
        _, choosing, judging = deviations._halves(told, np.array([i, 9], np.uint64))
        gains = np.full((layout.states, actions), -9.0)
        offered = choosing.used & inside & (choosing.share > 0.03)
        gains[layout.row_state, layout.row_action] = np.where(offered, choosing.gain, -9.0)
        best = gains[:size].argmax(axis=1)
        rows = layout.row_index[np.arange(size), best][gains[:size].max(axis=1) > 0.0]
        weight = choosing.visits[layout.row_state[rows]]
        found.append(weight @ judging.gain[rows] / np.sqrt(weight**2 @ judging.variance[rows]))
    z = np.array(found)
    assert abs(z.mean()) < 5.0 / np.sqrt(300)
    assert z.var() < 1.5


def test_the_band_holds_for_all_points_together() -> None:
    """Against normal partial sums drawn by another route; one point is a normal quantile."""
    key = np.array([1, 2], np.uint64)
    assert deviations._band(np.ones(1), 0.05, key) == pytest.approx(1.96, abs=0.12)
    variances = np.linspace(1.0, 3.0, 30)
    band = deviations._band(variances, 0.05, key)
    draw = np.random.default_rng(3)
    steps = draw.standard_normal((20_000, 30)) * np.sqrt(variances)
    most = np.abs(steps.cumsum(axis=1) / np.sqrt(variances.cumsum())).max(axis=1)
    assert (most > band).mean() == pytest.approx(0.05, abs=0.015)
    assert deviations._band(np.zeros(0), 0.05, key) == np.inf


def test_a_release_has_one_path_however_often_it_is_read() -> None:
    mdp, behaviour = world(3)
    release = told(truth(mdp, behaviour, 1e4), 1e4, (5.0, 5.0, 2.0), 1)
    one, again = path_of(release), path_of(release)
    assert np.array_equal(one.order, again.order)
    assert [one.gain(k) for k in range(one.order.size + 1)] == [
        again.gain(k) for k in range(one.order.size + 1)
    ]
    wide, narrow = one.gain(one.order.size), one.gain(one.default)
    assert one.point(50.0) <= one.default <= one.point(0.0) == one.order.size
    if one.order.size != one.default:
        assert wide.high - wide.low > 0.0 < narrow.high - narrow.low
    nothing = one.gain(0)
    assert (nothing.estimate, nothing.low, nothing.high, nothing.shown) == (0.0, 0.0, 0.0, False)
    with pytest.raises(ValueError, match="count = 99"):
        one.gain(99)


def test_gains_are_in_the_units_of_the_return() -> None:
    """The same people with outcomes ten times as large gain ten times as much, in the same states."""
    mdp, behaviour = world(0)
    sums = truth(mdp, behaviour, 1e4)
    small = told(sums, 1e4, (5.0, 5.0, 2.0), 1)
    returns = ReturnBounds(terminal=(5, 6), outcomes={5: 10.0})
    big = FirstVisits(ProblemSpec(Layout(7, 3, 25), stationary=True, returns=returns)).sums_of(
        small.visits, small.moves, small.returns, 5.0, 5.0, 2.0, people=1e4
    )
    one, other = path_of(small), path_of(big)
    assert np.array_equal(one.order, other.order)
    k = one.default
    assert other.gain(k).estimate == pytest.approx(10 * one.gain(k).estimate)
    assert other.behaviour().estimate == pytest.approx(10 * one.behaviour().estimate)
    assert other.behaviour().low == pytest.approx(10 * one.behaviour().low)


def test_policies_that_need_no_outcomes_are_estimated_where_people_did_as_they_do() -> None:
    mdp, behaviour = world(0)
    sums = truth(mdp, behaviour, 1e6)
    path = path_of(told(sums, 1e6, (5.0, 5.0, 2.0), 1))
    layout = QUESTION.layout
    uniform = (1.0 / np.diff(layout.state_ptr))[layout.row_state]
    gain, lacking = path.plain(uniform)
    assert lacking == 0.0
    assert gain is not None
    exact = layout.to_rows((np.r_[sums["q"], np.zeros((1, 3))] - np.r_[sums["v"], 0.0][:, None])[None])[0]
    free = layout.row_state < 5
    wanted = float((path.visits[layout.row_state] * uniform * exact)[free].sum())
    assert gain.low < wanted < gain.high
    scarce = path_of(told(truth(mdp, behaviour, 200.0), 200.0, (60.0, 60.0, 30.0), 1))
    assert scarce.plain(uniform) == (None, pytest.approx(1.0))
    assert scarce.default == 0
