"""Cohorts of a small ward: counts, sensitivities, plans, traps, and a tiny study that is not repeated."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from discreet.accounting import budget
from discreet.core.count_query import CountQuery
from discreet.core.families import POOLED_TRANSITIONS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.envs.mdp.planning import occupancy, optimal_values, policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from papers.qiao_wang_2023_offline import icu
from papers.study import Job

S, A, H = 7, 3, 6
DEATH, SURVIVAL = 5, 6


def ward(seed: int = 3) -> icu.Ward:
    """Five states, then death and survival; some actions are not admissible."""
    draw = np.random.default_rng(seed)
    moves = draw.dirichlet(np.full(S, 0.5), (S, A))
    rewards = np.zeros((S, A, S))
    rewards[:, :, SURVIVAL] = 1.0
    for end in (DEATH, SURVIVAL):
        moves[end] = 0.0
        moves[end, :, end] = 1.0
        rewards[end] = 0.0
    mask = np.ones((S, A), dtype=bool)
    mask[1, 0] = mask[2, 2] = False
    moves[~mask] = rewards[~mask] = 0.0
    mdp = TabularMDP(
        moves, rewards, np.array([0.5, 0.5, 0, 0, 0, 0, 0]), horizon=H, mask=mask,
        terminal=[DEATH, SURVIVAL], name="ward",
    )  # fmt: skip
    behaviour = draw.dirichlet(np.ones(A), S) * mask
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    arrival = np.zeros(S)
    arrival[SURVIVAL] = 1.0
    return icu.Ward(mdp, np.repeat(behaviour[None], H, axis=0), (DEATH, SURVIVAL), arrival)


WARD = ward()
TIES = np.random.default_rng(0)


def test_first_visits_are_counted_once() -> None:
    counts = icu.first_visits(WARD, 200, seed=4)
    layout = WARD.mdp.layout
    visits, moves = np.zeros(layout.rows), np.zeros((layout.rows, S))
    for person in rollout_batch(WARD.mdp, WARD.rows, 200, 4, 0):
        seen = {DEATH, SURVIVAL}
        for h in range(H):
            state = person.states[h]
            if state not in seen:
                row = layout.row_index[state, person.actions[h]]
                visits[row] += 1
                moves[row, person.states[h + 1]] += 1
            seen.add(state)
    assert np.array_equal(counts.visits[0], visits)
    assert np.array_equal(counts.moves[0], moves)


@pytest.mark.parametrize(("states", "horizon"), [(3, 5), (9, 4)])
def test_scales_are_those_of_the_query_of_counts(states: int, horizon: int) -> None:
    """First visits: as CountQuery(pooled="first") derives it, for a family of visits beside the moves."""
    layout, mu = Layout(states, 2, horizon), budget.gdp_mu(1.0, icu.DELTA)
    first = CountQuery(layout, known_rewards=True, pooled="first")
    moves = first.sensitivity("l2", {POOLED_TRANSITIONS: 1.0})
    assert mu * icu.pooled_scale("first visits", horizon, states, 1.0) == pytest.approx(math.sqrt(2) * moves)
    both = {VISITS: 1.0, TRANSITIONS: 1.0}
    pooled = CountQuery(layout, known_rewards=True, stationary=True).sensitivity("l2", both)
    each = CountQuery(layout, known_rewards=True).sensitivity("l2", both)
    summed = mu * icu.pooled_scale("sum of the released steps", horizon, states, 1.0)
    assert summed == pytest.approx(pooled) == pytest.approx(math.sqrt(horizon) * each)


def test_no_two_people_differ_by_more_in_first_visits() -> None:
    """All pairs of trajectories of 2 states, 2 actions, 3 steps; the bound 4 min(S, H) = 8 is attained."""
    paths = []
    for states in itertools.product(range(2), repeat=4):
        for actions in itertools.product(range(2), repeat=3):
            table, seen = np.zeros(4 + 8), set()
            for h in range(3):
                if states[h] not in seen:
                    pair = 2 * states[h] + actions[h]
                    table[pair] += 1
                    table[4 + 2 * pair + states[h + 1]] += 1
                seen.add(states[h])
            paths.append(table)
    all_paths = np.array(paths)
    squares = ((all_paths[:, None] - all_paths[None]) ** 2).sum(axis=-1)
    assert squares.max() == 8


def test_plans_of_the_true_model_are_optimal() -> None:
    mdp, layout = WARD.mdp, WARD.mdp.layout
    rows = layout.to_rows(occupancy(mdp, WARD.rows)).sum(axis=0)
    dense = np.zeros((layout.rows, S))
    for row in range(layout.rows):
        entries = slice(mdp.row_ptr[row], mdp.row_ptr[row + 1])
        dense[row, mdp.successor[entries]] = mdp.probability[entries]
    moves = 1e6 * rows[:, None] * dense
    plans = icu.plan_pooled(WARD, moves, 0.0, 0.0, 0.0, TIES)
    best = float(mdp.initial @ optimal_values(mdp)[0][0])
    assert policy_value(mdp, plans["policy"]) == pytest.approx(best)
    assert policy_value(mdp, plans["behaviour"]) == pytest.approx(best)


def test_without_data_the_clinicians_go_on() -> None:
    layout = WARD.mdp.layout
    plans = icu.plan_pooled(WARD, np.zeros((layout.rows, S)), 5.0, 0.0, 1.0, TIES)
    assert np.array_equal(plans["behaviour"], WARD.behaviour)
    again = icu.plan_pooled(WARD, np.zeros((layout.rows, S)), 5.0, 0.0, 1.0, TIES)
    assert (plans["policy"] != again["policy"]).any()  # no order of actions decides


def test_a_release_per_step_is_centrals() -> None:
    counts = icu.cohort(WARD, 1000, seed=1)
    quiet, _ = icu.step_release(WARD, counts, 1000, None, known=False, noise=TIES)
    assert quiet.guarantee.epsilon is None
    assert np.array_equal(quiet.estimates[TRANSITIONS].value, counts.moves)
    noisy, spec = icu.step_release(WARD, counts, 1000, 1.0, known=True, noise=np.random.default_rng(2))
    assert spec.known_rewards is not None
    assert noisy.guarantee.epsilon == pytest.approx(1.0)
    assert noisy.guarantee.delta == icu.DELTA
    law = noisy.estimates[TRANSITIONS].law
    assert law.std() == pytest.approx(math.sqrt(4 * H) / budget.gdp_mu(1.0, icu.DELTA), rel=1e-3)
    noise = noisy.estimates[TRANSITIONS].value - counts.moves
    assert noise.std() == pytest.approx(law.std(), rel=6 / math.sqrt(2 * noise.size))


def test_consistent_counts() -> None:
    draw = np.random.default_rng(5)
    visits, moves = np.array([100.0, 0.0]), np.array([[60.0, 40.0, 0.0], [0.0, 0.0, 0.0]])
    noisy = moves + draw.normal(0, 3, moves.shape)
    found = icu.consistent(visits, noisy, 3.0)
    assert (found >= 0).all()
    assert abs(found[0].sum() - 100) < 20
    assert icu.consistent(visits, moves, 0.0) is moves


def test_a_tiny_study_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icu, "icu", ward)
    size = icu.Size(users=(500,), epsilons=(1.0, None), seeds=2)
    job = Job(tmp_path, say=lambda _: None)
    first = icu.run(job, size)
    assert len(first["rows"]) == 2 * 2 * len(icu.METHODS)
    assert all(len(row["values"]) == 2 for row in first["rows"])
    best = first["references"]["optimal"]
    assert all(0 <= v <= best + 1e-12 for row in first["rows"] for v in row["values"])

    def no(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(icu, "policies", no)
    assert icu.run(job, size) == first
