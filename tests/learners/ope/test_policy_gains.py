"""Gains of any policies: exact with endless users, slopes by finite differences, coverage, refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.layout import Layout
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope import policy_gains as gains
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.policy_comparison import judge, policy_of
from discreet.learners.ope.policy_gains import evaluate_policies
from discreet.learners.ope.release_split import split_release
from discreet.learners.ope.transition_gains import Chain, TransitionCounts
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.privatizers.central import Central

from .test_deviation_gains import QUESTION, told, truth, world

USED = np.ones(QUESTION.layout.rows, bool)


def drawn_policy(seed: int, horizon: int = 25) -> np.ndarray:
    """Other actions at each step, and as before in a third of the places."""
    return np.random.default_rng(seed).integers(-1, 3, size=(horizon, 7))


def true_gain(mdp: TabularMDP, behaviour: np.ndarray, policy: np.ndarray) -> float:
    table = behaviour.copy()
    h, s = np.nonzero(policy >= 0)
    table[h, s] = np.eye(table.shape[2])[policy[h, s]]
    return policy_value(mdp, table) - policy_value(mdp, behaviour)


def released(
    sums: dict[str, np.ndarray], people: float, noise: tuple[float, float, float], seed: int
) -> VisitSums:
    return told(sums, people, noise, seed)


def estimates(release: VisitSums, policies: dict[str, Any], level: float = 0.95) -> dict[str, Any]:
    tables = {name: gains.policy_steps(name, policy, QUESTION.spec) for name, policy in policies.items()}
    return dict(zip(tables, gains._first_visit_gains(release, tables, level), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_with_endless_users_gains_are_exact(seed: int) -> None:
    mdp, behaviour = world(seed)
    sums = truth(mdp, behaviour, 1e12)
    release = released(sums, 1e12, (0.0, 0.0, 0.0), 0)
    table = np.random.default_rng(seed).dirichlet(np.ones(3), (25, 7))
    found = estimates(release, {"steps": drawn_policy(seed), "mixed": table, "before": np.full(7, -1)})
    assert found["steps"].estimate == pytest.approx(true_gain(mdp, behaviour, drawn_policy(seed)), abs=1e-5)
    mixed = policy_value(mdp, table) - policy_value(mdp, behaviour)
    assert found["mixed"].estimate == pytest.approx(mixed, abs=1e-5)
    assert found["before"].estimate == pytest.approx(0.0, abs=1e-12)
    assert found["before"].high - found["before"].low < 1e-5
    assert all(one.lack == 0.0 for one in found.values())


def test_slopes_are_those_of_the_value() -> None:
    """Finite differences in cells of the counts."""
    sums = truth(*world(1), 3e4)
    release = released(sums, 3e4, (0.0, 0.0, 0.0), 0)
    table = gains.policy_steps("x", drawn_policy(4), QUESTION.spec)
    layout = release.layout
    before, weights = np.ones((26, 8), bool), np.zeros((26, layout.rows))
    several = np.diff(layout.state_ptr) > 1
    before[1:, :-1] = table.before | ~several[:-1]
    pick = layout.row_index[QUESTION.spec.layout.row_state, QUESTION.spec.layout.row_action]
    own = np.flatnonzero((pick >= 0) & several[QUESTION.spec.layout.row_state])
    weights[1:, pick[own]] = table.weights[:, own]

    def value(moves: np.ndarray) -> Any:
        chain = Chain(release, TransitionCounts(moves, moves.sum(axis=1)), 1.0)
        return gains._value(chain, weights, before, USED)

    base = value(release.moves)
    slopes = base.own + base.pooled[layout.row_state]
    live = np.flatnonzero(~np.isin(layout.row_state, (5, 6)))
    for row, cell in ((0, 0), (4, 3), (7, 5), (13, 6), (live[-1], 2)):
        moved = [release.moves.copy() for _ in range(2)]
        moved[0][row, cell] += 0.5
        moved[1][row, cell] -= 0.5
        difference = value(moved[0]).value - value(moved[1]).value
        assert slopes[row, cell] == pytest.approx(difference, rel=1e-4, abs=1e-10)


def test_a_stationary_policy_is_judged_as_in_a_comparison() -> None:
    """Rows well above the noise: the same estimate and the same deviations."""
    release = released(truth(*world(2), 1e5), 1e5, (4.0, 4.0, 2.0), 3)
    table = np.random.default_rng(0).dirichlet(np.ones(3), 7)
    named = np.ones(7, bool)
    other = judge(release, policy_of(QUESTION, table, named)).gain
    found = estimates(release, {"x": table})["x"]
    assert other is not None
    assert found.estimate == pytest.approx(other.estimate, abs=1e-12)
    assert found.low == pytest.approx(other.low, abs=1e-9)
    assert found.noise == pytest.approx(other.noise)
    assert found.sampling == pytest.approx(other.sampling)


def test_joint_intervals() -> None:
    """Wider than a single interval, no wider than a union bound; copies of a policy cost nothing."""
    release = released(truth(*world(2), 1e5), 1e5, (4.0, 4.0, 2.0), 3)
    one = estimates(release, {"a": drawn_policy(0)})["a"]
    same = estimates(release, {name: drawn_policy(0) for name in "abcdef"})["a"]
    many = estimates(release, {str(k): drawn_policy(k) for k in range(8)})["0"]
    union = estimates(release, {"a": drawn_policy(0)}, 1.0 - 0.05 / 8)["a"]
    assert one.high - one.low <= same.high - same.low < 1.06 * (one.high - one.low)
    assert 1.1 * (one.high - one.low) < many.high - many.low < 1.02 * (union.high - union.low)
    assert many.low < many.lower < many.estimate


def test_rows_within_the_noise_widen_the_interval() -> None:
    """An action that no user took: the ends are the lowest and highest returns, and nothing is shown."""
    sums = truth(*world(0), 3e4)
    row = QUESTION.layout.row_index[0, 1]
    for name in ("visits", "moves", "returns"):
        sums[name][row] = 0.0
    release = released(sums, 3e4, (4.0, 4.0, 2.0), 1)
    policy = np.full(7, -1)
    policy[0] = 1
    found = estimates(release, {"x": policy})["x"]
    assert found.lack > 0.1
    assert not found.known
    other = policy.copy()
    other[0] = 2
    assert estimates(release, {"x": other})["x"].lack == 0.0
    chosen = gains.PolicyGains({"x": found}, 0.95, {})
    assert not chosen.shown("x")


def spec_of(layout: Layout) -> ProblemSpec:
    return ProblemSpec(layout, stationary=True, returns=ReturnBounds(terminal=(5, 6), outcomes={5: 1.0}))


def kept(query: Any, records: Any, seed: int, epsilon: float = 3.0) -> Any:
    with Central(epsilon=epsilon, delta=1e-6).stored(query, dr.Seeded(seed)) as session:
        session.submit_many(records, np.arange(len(records)))
        return session.release().keep()


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_intervals_of_policies_from_the_training_part_hold_the_truth(epsilon: float) -> None:
    """60 releases of new users; at most 10 misses: a false alarm of 1e-3 at 95 % coverage, fixed seeds."""
    mdp, behaviour = world(3)
    question = FirstVisits(spec_of(mdp.layout))
    missed, signs = 0, []
    for draw in range(60):
        users = rollout_batch(mdp, policy_rows(mdp.layout, behaviour), 8000, 11, draw)
        release = kept(question.query(), question.to_records(users), draw, epsilon)
        policy = dr.learners.world_model(release, question.spec).plan()
        found = evaluate_policies(release, {"x": policy}, question.spec)
        gain, true = found.gains["x"], true_gain(mdp, behaviour, policy)
        missed += not gain.low <= true <= gain.high
        signs.append((gain.estimate - true) / max(np.hypot(gain.noise, gain.sampling), 1e-9))
        assert found.made_from["part"] == "held_out"
    assert missed <= 10
    assert stats.binom.sf(10, 60, 0.05) < 1e-3
    assert abs(np.mean(signs)) < 0.8


def test_counts_per_step_and_parts() -> None:
    mdp, behaviour = world(1)
    spec = ProblemSpec(mdp.layout, returns=ReturnBounds(terminal=(5, 6)))
    users = rollout_batch(mdp, policy_rows(mdp.layout, behaviour), 20_000, 4, 0)
    release = kept(dr.DPAPVI().query(spec), users, 1, 10.0)
    train, held_out = split_release(release)
    policies = {"x": np.full((25, 7), -1), "y": np.full(7, 1)}
    policies["x"][0] = 1
    whole = evaluate_policies(release, policies, spec, made="outside")
    half = evaluate_policies(release, policies, spec)
    assert whole.made_from["part"] == "whole"
    assert list(half.gains) == ["x", "y"]
    assert half.gains == evaluate_policies(held_out, policies, spec).gains
    true = true_gain(mdp, behaviour, policies["x"])
    for found in (whole, half):
        assert found.gains["x"].low <= true <= found.gains["x"].high
    assert whole.gains["x"].noise < half.gains["x"].noise
    single = evaluate_policies(release, {"x": policies["x"]}, spec, made="outside").gains["x"]
    assert single.high - single.low < whole.gains["x"].high - whole.gains["x"].low
    assert evaluate_policies(train, policies, spec, made="outside").made_from["part"] == "train"
    with pytest.raises(ValueError, match="release is the training part"):
        evaluate_policies(train, policies, spec)


@pytest.mark.parametrize("stationary", [True, False])
def test_as_before_everywhere_gains_exactly_nothing(stationary: bool) -> None:
    """A gain of 0 with the interval [0, 0]; it does not widen other intervals. One level for both kinds."""
    mdp, behaviour = world(1)
    users = rollout_batch(mdp, policy_rows(mdp.layout, behaviour), 3000, 4, 0)
    if stationary:
        question = FirstVisits(spec_of(mdp.layout))
        spec, release = question.spec, kept(question.query(), question.to_records(users), 1, 10.0)
    else:
        spec = ProblemSpec(mdp.layout, returns=ReturnBounds(terminal=(5, 6)))
        release = kept(dr.DPAPVI().query(spec), users, 1, 10.0)
    ends = np.full(7, -1)
    ends[5:] = 1  # no choice is left there
    other = drawn_policy(1)
    policies = {"steps": np.full((25, 7), -1), "ends": ends, "other": other, "copy": other}
    found = evaluate_policies(release, policies, spec, made="outside", level=0.9, against="other")
    for name in ("steps", "ends"):
        one = found.gains[name]
        assert (one.estimate, one.low, one.high, one.lower, one.lack) == (0.0,) * 5
        assert found.differences[name].estimate == pytest.approx(-found.gains["other"].estimate, abs=1e-12)
    assert (found.differences["copy"].low, found.differences["copy"].high) == (0.0, 0.0)
    assert "other" not in found.differences
    assert {one.level for one in (*found.gains.values(), *found.differences.values())} == {0.9}
    alone = evaluate_policies(release, {"other": other}, spec, made="outside", level=0.9)
    padded = evaluate_policies(release, {"other": other, "ends": ends}, spec, made="outside", level=0.9)
    assert padded.gains["other"] == alone.gains["other"]


def test_differences_of_two_policies() -> None:
    """With endless users exact; errors cancel where both act in the same way."""
    mdp, behaviour = world(2)
    one, other = drawn_policy(1), drawn_policy(1)
    other[:, 0] = np.where(one[:, 0] == 1, 2, 1)
    exact = released(truth(mdp, behaviour, 1e12), 1e12, (0.0, 0.0, 0.0), 0)
    tables = {
        name: gains.policy_steps(name, policy, QUESTION.spec)
        for name, policy in (("one", one), ("other", other))
    }
    asked = [gains._ValuePair("one", "other"), gains._ValuePair("one", None), gains._ValuePair("other", None)]
    found = gains._first_visit_gains(exact, tables, 0.95, asked)
    true = true_gain(mdp, behaviour, one) - true_gain(mdp, behaviour, other)
    assert found[0].estimate == pytest.approx(true, abs=1e-5)
    noisy = released(truth(mdp, behaviour, 1e5), 1e5, (4.0, 4.0, 2.0), 3)
    less, first, second = gains._first_visit_gains(noisy, tables, 0.95, asked)
    assert less.estimate == pytest.approx(first.estimate - second.estimate, abs=1e-12)
    apart = np.hypot(*(np.hypot(x.noise, x.sampling) for x in (first, second)))
    assert np.hypot(less.noise, less.sampling) < apart


def test_a_planner_per_step_is_corrected_for_its_choice() -> None:
    """Results of DPAPVI from the whole release: wider than for the same policy from outside."""
    mdp, behaviour = world(1)
    spec = ProblemSpec(mdp.layout, returns=ReturnBounds(terminal=(5, 6)))
    users = rollout_batch(mdp, policy_rows(mdp.layout, behaviour), 20_000, 4, 0)
    release = kept(dr.DPAPVI().query(spec), users, 1, 10.0)
    learned = dr.DPAPVI().learn(release, spec)
    chosen = evaluate_policies(release, {"x": learned}, spec, made="release").gains["x"]
    plain = evaluate_policies(release, {"x": learned}, spec, made="outside").gains["x"]
    array = np.where(learned.supported, learned.policy, -1)
    assert plain == evaluate_policies(release, {"x": array}, spec, made="outside").gains["x"]
    assert chosen.choice > plain.choice
    assert chosen.low < plain.low
    assert chosen.low <= true_gain(mdp, behaviour, array) <= chosen.high
    other = SimpleNamespace(policy=learned.policy, supported=learned.supported, q=learned.q)
    for policy in (array, other):  # results of other learners have scores, but did not choose by them
        with pytest.raises(ValueError, match="must be the result of DPAPVI"):
            evaluate_policies(release, {"x": policy}, spec, made="release")


def test_an_origin_that_contradicts_is_refused() -> None:
    mdp, behaviour = world(1)
    question = FirstVisits(spec_of(mdp.layout))
    users = rollout_batch(mdp, policy_rows(mdp.layout, behaviour), 5000, 4, 0)
    release = kept(question.query(), question.to_records(users), 1)
    spec = question.spec
    policy = dr.learners.world_model(release, spec, share=0.7).plan()
    assert evaluate_policies(release, {"x": policy}, spec, share=0.7).gains["x"].low > -1.0
    with pytest.raises(ValueError, match="share = 0.7"):
        evaluate_policies(release, {"x": policy}, spec)
    with pytest.raises(ValueError, match="made = 'train' and share = 0.7"):
        evaluate_policies(release, {"x": policy}, spec, made="outside")
    whole = dr.learners.world_model(release, spec, part="whole").plan()
    with pytest.raises(ValueError, match="all of this release"):
        evaluate_policies(release, {"x": whole}, spec)
    other = kept(question.query(), question.to_records(users), 2)
    assert evaluate_policies(other, {"x": policy}, spec, made="outside").level == 0.95


def test_bad_arguments_are_refused() -> None:
    mdp, behaviour = world(1)
    question = FirstVisits(spec_of(mdp.layout))
    users = rollout_batch(mdp, policy_rows(mdp.layout, behaviour), 100, 4, 0)
    release = kept(question.query(), question.to_records(users), 1)
    for policies, said in (
        ({}, "policies = "),
        (np.full(7, 1), "policies = .*: must map names other than 'behaviour' to policies"),
        ({"behaviour": np.full(7, 1)}, "policies = "),
        ({"x": np.full(7, 3)}, r"policies\['x'\]"),
        ({"x": np.full((3, 7), 1)}, r"policies\['x'\]"),
        ({"x": np.full((7, 3), 0.5)}, r"policies\['x'\]"),
    ):
        with pytest.raises(ValueError, match=said):
            evaluate_policies(release, policies, question.spec)
    with pytest.raises(ValueError, match="spec = .*: must be a ProblemSpec"):
        evaluate_policies(release, {"x": np.full(7, 1)}, mdp)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"policies\['x'\]: must be the result of DPAPVI"):
        evaluate_policies(release, {"x": np.full(7, 1)}, question.spec, made="release")
    with pytest.raises(ValueError, match="against = 'y'"):
        evaluate_policies(release, {"x": np.full(7, 1)}, question.spec, against="y")
    of_query = ProblemSpec(release.layout, stationary=True)
    for call in (evaluate_policies, lambda r, _, s: dr.learners.world_model(r, s)):
        with pytest.raises(ValueError, match=r"spec.layout: must be that of the environment"):
            call(release, {"x": np.full((26, 8), -1)}, of_query)  # type: ignore[operator]
    plain = FirstVisits(ProblemSpec(mdp.layout, stationary=True))
    other = kept(plain.query(), plain.to_records(users), 1)
    with pytest.raises(ValueError, match="outcomes"):
        evaluate_policies(other, {"x": np.full(7, 1)}, plain.spec)
