"""Verdicts on any policy: brute force over hidden causes, visits by enumeration, kinds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from discreet.learners.ope.consistency_test import ProjectedModel, consistency_of
from discreet.learners.ope.count_estimates import ValueEstimate
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.learners.ope.hidden_cause import loss_each_step
from discreet.learners.ope.policy_gains import PolicySteps, _first_visit_gains, policy_steps
from discreet.learners.ope.policy_verdict import loss_of_policy, policy_verdict, visited_rows
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import KINDS, verdict_of

from .test_deviation_gains import QUESTION, told, truth, world
from .test_hidden_cause import small


def mixed(seed: int, model_of_release: tuple[VisitSums, ProjectedModel]) -> PolicySteps:
    """Action probabilities that differ between steps, and as before in one state at one step."""
    spec = model_of_release[0].question.spec
    table = np.random.default_rng(seed).dirichlet(np.ones(2), (2, 4))
    steps = policy_steps("x", table, spec)
    before = steps.before.copy()
    before[0, 1] = True
    weights = steps.weights.copy()
    weights[0, spec.layout.row_state == 1] = 0.0
    return PolicySteps(weights, before)


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_that_of_the_worst_cause_by_brute_force(seed: int) -> None:
    """All vertices of the set of g, at each step, state and action apart."""
    path, model = small(seed)
    release, strength = path.sums, 1.7
    table = mixed(seed, (release, model))
    layout, question = release.layout, release.question
    arrival = question.arrival

    def worst(row: int, y: np.ndarray) -> float:
        law, least = model.moves[row], np.inf
        for free in range(law.size):
            for ends in itertools.product((strength, 1.0 / strength), repeat=law.size - 1):
                g = np.insert(np.array(ends), free, 0.0)
                if law[free] > 0:
                    g[free] = (1.0 - g @ law) / law[free]
                    if 1.0 / strength - 1e-12 <= g[free] <= strength + 1e-12:
                        least = min(least, float((g * law) @ y))
        return least

    value, low = np.zeros((2, layout.states))
    for h in (1, 0):
        y, y_low = arrival + value, arrival + low
        value, low = model.usual @ y, model.usual @ y_low
        for s in (0, 1):
            if table.before[h, s]:
                continue
            value[s] = low[s] = 0.0
            for a in range(2):
                row, share = layout.row_index[s, a], table.weights[h, question.spec.layout.row_index[s, a]]
                e = model.share[row]
                value[s] += share * float(model.moves[row] @ y)
                low[s] += share * (e * float(model.moves[row] @ y_low) + (1.0 - e) * worst(row, y_low))
    start = model.usual[question.start]
    expected = float(start @ (arrival + value) - start @ (arrival + low))
    assert loss_of_policy(release, model, table, strength) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.0
    assert loss_of_policy(release, model, table, 1.0) == pytest.approx(0.0, abs=1e-12)


def test_decisions_are_counted_as_by_enumeration() -> None:
    path, model = small(2)
    release = path.sums
    table = mixed(5, (release, model))
    layout, own = release.layout, release.question.spec.layout
    found, here = np.zeros(layout.rows), model.usual[release.question.start].copy()
    for h in range(2):
        after = np.zeros(layout.states)
        for s in range(4):
            if table.before[h, s]:
                after += here[s] * model.usual[s]
                continue
            for a in range(2):
                row, share = layout.row_index[s, a], table.weights[h, own.row_index[s, a]]
                found[row] += here[s] * share
                after += here[s] * share * model.moves[row]
        here = after
    np.testing.assert_allclose(visited_rows(release, model, table), found, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_a_policy_of_the_path_has_its_loss(count: int) -> None:
    path, model = small(1)
    policy = np.full(4, -1)
    policy[path.order[:count]] = path.action[path.order[:count]]
    table = policy_steps("x", policy, path.sums.question.spec)
    expected = loss_each_step(path, count, 2.0, model).value
    assert loss_of_policy(path.sums, model, table, 2.0) == pytest.approx(expected, abs=1e-12)


def judged(release: VisitSums, policy: np.ndarray, asked: float = 1.1) -> tuple[ValueEstimate, str, float]:
    table = policy_steps("x", policy, QUESTION.spec)
    (gain,) = _first_visit_gains(release, {"x": table}, 0.95)
    found = policy_verdict(release, table, gain, consistency_of(release), asked)
    return gain, found.kind, found.cause.each_step


def test_kinds() -> None:
    """Many users of a valid world: shown up to a factor; the behaviour is unchanged; a bad policy is not."""
    release = told(truth(*world(0), 1e6), 1e6, (4.0, 4.0, 2.0), 0)
    path = path_of(release)
    policy = np.where(path.changed(path.default)[:7], path.action[:7], -1)
    gain, kind, strength = judged(release, policy)
    learned = verdict_of(path, path.default)
    assert kind == learned.kind == "shown"
    assert strength == pytest.approx(learned.cause.each_step, rel=0.05)
    assert judged(release, policy, 1.01 * strength)[1] == "fragile"
    assert judged(release, np.full(7, -1))[1] == "unchanged"
    worst = np.where(policy >= 0, (policy + 1) % 3, -1)
    gain, kind, strength = judged(release, worst)
    assert (kind == "not shown") == (gain.low <= 0.0)
    assert strength >= 1.0
    assert kind in KINDS
    with pytest.raises(ValueError, match="hidden_cause = 0.5"):
        judged(release, policy, 0.5)


def test_a_release_that_contradicts_itself_shows_nothing() -> None:
    """Returns that do not follow from where users went next, by much more than the gain."""
    sums = truth(*world(0), 1e6)
    sums["returns"] = sums["returns"].copy()
    sums["returns"][QUESTION.layout.row_index[0, 1]] += 0.2 * sums["visits"][QUESTION.layout.row_index[0, 1]]
    release = told(sums, 1e6, (4.0, 4.0, 2.0), 0)
    assert consistency_of(release).contrasts.rejects
    good = np.full(7, -1)
    good[1] = int(np.argmax(sums["q"][1]))
    gain, kind, _ = judged(release, good)
    assert kind == ("contradicted" if gain.low > 0.0 else "not shown")
