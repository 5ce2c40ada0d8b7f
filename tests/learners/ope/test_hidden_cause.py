"""Bounds under a hidden cause: brute force over its strategies, Cornfield's ratio, slopes, invariances."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.learners.ope import hidden_cause
from discreet.learners.ope.consistency_test import ProjectedModel, consistency_of, model_of
from discreet.learners.ope.deviation_gains import Gain, Path
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.hidden_cause import LARGEST, loss_each_step, loss_one_decision
from discreet.learners.ope.transition_gains import path_of
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds

from .test_deviation_gains import told, truth, world


def small(seed: int) -> tuple[Path, ProjectedModel]:
    """Two live states, two ends, two actions, two steps: a release without noise, all of whose gains are
    real.
    """
    draw = np.random.default_rng(seed)
    question = FirstVisits(
        ProblemSpec(
            Layout(4, 2, 2), stationary=True, returns=ReturnBounds(terminal=(2, 3), outcomes={2: 1.0, 3: 0.0})
        )
    )
    rows = question.layout.rows
    moves = np.zeros((rows, 5))
    for s in range(2):
        for a in range(2):
            moves[question.layout.row_index[s, a], :4] = 1000.0 * draw.dirichlet(np.ones(4)) * (1 + a)
    for s in (2, 3):
        moves[question.layout.row_index[s].max(), s] = 500.0
    moves[question.layout.row_index[4, 0], :2] = 2000.0, 1500.0
    visits = moves.sum(axis=1)
    release = question.sums_of(visits, moves, visits * 0.1, 0.0, 0.0, 0.0, people=3500)
    plain = path_of(told(truth(*world(0), 1e6), 1e6, (0.0, 0.0, 0.0), 0))
    path = replace(
        plain, sums=release, order=np.array([0, 1]), action=np.array([*draw.integers(2, size=2), 0, 0, 0]),
        share=np.ones(rows), visits=np.ones(5),
    )  # fmt: skip
    return path, model_of(release)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [1, 2])
def test_the_loss_is_that_of_the_worst_cause_by_brute_force(seed: int, count: int) -> None:
    """All vertices of the set of h, at each step and changed state apart."""
    path, model = small(seed)
    strength, steps = 1.7, 3
    layout = path.sums.layout
    arrival = path.sums.question.arrival
    own = path.order[:count]
    rows = layout.row_index[own, path.action[own]]

    def vertices(law: np.ndarray) -> list[np.ndarray]:
        found = []
        for free in range(law.size):
            for ends in itertools.product((strength, 1.0 / strength), repeat=law.size - 1):
                h = np.insert(np.array(ends), free, 0.0)
                if law[free] > 0:
                    h[free] = (1.0 - h @ law) / law[free]
                    if 1.0 / strength - 1e-12 <= h[free] <= strength + 1e-12:
                        found.append(h)
        return found

    kernels = []
    for s, row in zip(own, rows, strict=True):
        e, law = model.share[row], model.moves[row]
        kernels.append([(s, e * law + (1.0 - e) * h * law) for h in vertices(law)])

    def value(chosen: list[tuple[tuple[int, np.ndarray], ...]]) -> float:
        worth = np.zeros(layout.states)
        for now in reversed(chosen):
            chain = model.usual.copy()
            for s, law in now:
                chain[s] = law
            worth = chain @ (arrival + worth)
        return float(worth[path.sums.question.start])

    # the set is rectangular: the worst choice is found backwards, state by state, by trying all of them
    worth = np.zeros(layout.states)
    for _ in range(steps):
        y = arrival + worth
        new = model.usual @ y
        for options in kernels:
            s = options[0][0]
            new[s] = min(float(law @ y) for _, law in options)
        worth = new
    policy = [(s, model.moves[row]) for s, row in zip(own, rows, strict=True)]
    plain = value([tuple(policy)] * steps)
    found = loss_each_step(path, count, strength, model)
    assert found.value == pytest.approx(plain - worth[path.sums.question.start], abs=1e-12)
    assert found.value > 0.0
    assert loss_each_step(path, count, 1.0, model).value == pytest.approx(0.0, abs=1e-12)


def test_the_worst_choice_sums_to_one_and_stays_within_its_bounds() -> None:
    draw = np.random.default_rng(3)
    y, laws = draw.normal(size=7), draw.dirichlet(np.ones(7), 20)
    for strength in (1.0, 1.3, 4.0, 50.0):
        h, border = hidden_cause.lowest(y, laws, strength)
        np.testing.assert_allclose((h * laws).sum(axis=1), 1.0, rtol=1e-12)
        assert h.min() >= 1.0 / strength - 1e-12
        assert h.max() <= strength + 1e-12
        assert np.isin(border, y).all()


@pytest.mark.parametrize("count", [1, 2])
def test_slopes_of_the_loss_are_finite_differences(count: int) -> None:
    """The standard deviation by the delta method against derivatives in every cell of the counts, without
    noise.
    """
    path, model = small(2)
    found = loss_each_step(path, count, 1.6, model)

    def loss(moves: np.ndarray) -> float:
        release = path.sums
        again = VisitSums(
            release.question,
            moves.sum(axis=1),
            moves,
            release.returns,
            release.noise,
            release.people,
            release.episodes,
        )
        return loss_each_step(replace(path, sums=again), count, 1.6, model_of(again)).value

    moves = path.sums.moves
    slopes = np.zeros_like(moves)
    for cell in zip(*np.nonzero(moves), strict=True):
        step = np.zeros_like(moves)
        step[cell] = 1e-3 * moves[cell]
        slopes[cell] = (loss(moves + step) - loss(moves - step)) / (2.0 * step[cell])
    # Poisson cells: the law of a row, of a state and the share are functions of them
    expected = float((slopes**2 * moves).sum())
    # the changed state's usual law is not used, and laws and shares are independent: equal up to rounding
    assert found.deviation**2 == pytest.approx(expected, rel=1e-4)


def test_one_decision_gives_the_ratio_of_cornfield() -> None:
    """One state, one decision, an outcome of 0 or 1, no noise: L* is max(q_a / q_rest, (1 - q_rest) / (1 -
    q_a)).
    """
    q_a, q_rest, e = 0.6, 0.5, 0.4
    question = FirstVisits(
        ProblemSpec(
            Layout(3, 2, 1), stationary=True, returns=ReturnBounds(terminal=(1, 2), outcomes={1: 1.0, 2: 0.0})
        )
    )
    layout = question.layout
    people = 1e12
    visits, moves, returns = (np.zeros(layout.rows), np.zeros((layout.rows, 4)), np.zeros(layout.rows))
    for a, (share, q) in enumerate([(1 - e, q_rest), (e, q_a)]):
        row = layout.row_index[0, a]
        visits[row], moves[row, 1], moves[row, 2] = (
            people * share,
            people * share * q,
            people * share * (1 - q),
        )
        returns[row] = people * share * (q - 0.5)
    good = e * q_a + (1 - e) * q_rest
    for s, share in ((1, good), (2, 1.0 - good)):
        row = layout.row_index[s].max()
        visits[row] = moves[row, s] = people * share
        returns[row] = -0.5 * people * share
    start = layout.row_index[3, 0]
    visits[start], moves[start, 0], returns[start] = people, people, people * (good - 0.5)
    release = question.sums_of(visits, moves, returns, 0.0, 0.0, 0.0, people=people)
    plain = path_of(told(truth(*world(0), 1e6), 1e6, (0.0, 0.0, 0.0), 0))
    whole = plain.whole._replace(q=np.where(visits > 0, returns / np.maximum(visits, 1) + 0.5, 0.0))
    path = replace(
        plain, sums=release, order=np.array([0]), action=np.array([1, 0, 0, 0]), whole=whole,
        share=np.array([1 - e, e, 1.0, 1.0, 1.0]), visits=np.array([1.0, 0.5, 0.5, 1.0]),
        supported=visits > 0,
    )  # fmt: skip
    gain = (1 - e) * (q_a - q_rest)
    exact = Gain(gain, gain, gain, 0.95, 0.0, 0.0, 1.0, 0.0)
    cornfield = max(q_a / q_rest, (1 - q_rest) / (1 - q_a))
    found = hidden_cause.hidden_cause(path, 1, exact, consistency_of(release))
    assert found.one_decision == pytest.approx(cornfield, rel=1e-4)
    assert found.one_decision <= cornfield
    # one decision drawn anew is sharper: h is the same at every outcome, so that the mass of the cut counts
    assert found.each_step >= found.one_decision * (1 - 1e-6)


def test_strength_falls_with_the_interval_and_does_not_depend_on_units() -> None:
    release = told(truth(*world(1), 1e6), 1e6, (4.0, 4.0, 2.0), 3)
    path = path_of(release)
    count, found = path.default, consistency_of(release)
    gain = path.gain(count)
    assert gain.shown
    whole = hidden_cause.hidden_cause(path, count, gain, found)
    assert 1.0 < whole.each_step < LARGEST
    assert 1.0 < whole.one_decision < LARGEST
    assert whole.recorded >= 1.0
    less = hidden_cause.hidden_cause(path, count, replace(gain, low=0.5 * gain.low), found)
    assert 1.0 < less.each_step < whole.each_step
    assert 1.0 < less.one_decision < whole.one_decision
    none = hidden_cause.hidden_cause(path, count, replace(gain, low=-0.01), found)
    assert (none.each_step, none.one_decision) == (1.0, 1.0)
    losses = [loss_each_step(path, count, s, found.model).value for s in (1.0, 1.1, 1.5, 3.0, 10.0)]
    assert losses == sorted(losses)
    losses = [loss_one_decision(path, count, s, 1.0).value for s in (1.0, 1.1, 1.5, 3.0, 10.0)]
    assert losses == sorted(losses)
    # the same release in other units of return: ten times the outcomes
    spec = release.question.spec
    wide = FirstVisits(replace(spec, returns=ReturnBounds(terminal=(5, 6), outcomes={5: 10.0})))
    other = wide.sums_of(
        release.visits, release.moves, release.returns, *release.noise, people=release.people
    )
    again = path_of(other)
    assert again.default == count
    assert again.gain(count).low == pytest.approx(10.0 * gain.low)
    scaled = hidden_cause.hidden_cause(again, count, again.gain(count), consistency_of(other))
    assert scaled.each_step == pytest.approx(whole.each_step, rel=1e-6)
    assert scaled.one_decision == pytest.approx(whole.one_decision, rel=1e-6)
