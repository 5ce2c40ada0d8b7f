"""Gains read off transitions: the plug-in, its deviations, and that choosing does not flatter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from discreet.core.layout import Layout
from discreet.learners.ope import transition_gains as transitions
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.transition_gains import TransitionPath, path_of
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.pipeline.power_analysis import PublicMDP

from .test_deviation_gains import QUESTION, told, truth, world


def public(seed: int) -> PublicMDP:
    mdp, behaviour = world(seed)
    return PublicMDP(mdp, behaviour, ReturnBounds(terminal=(5, 6), outcomes={5: 1.0}))


@pytest.mark.parametrize("seed", range(3))
def test_with_endless_people_every_point_has_its_true_gain(seed: int) -> None:
    """Sums of 1e13 people at their expectation; what is left is the luck that splits them, of some 1e-6."""
    one = public(seed)
    each, moves, mean = one._expected
    visits = 1e13 * each
    path = path_of(
        one.question.sums_of(
            visits, visits[:, None] * moves, visits * (mean - 0.5), 0.0, 0.0, 0.0, people=1e13
        )
    )
    assert isinstance(path, TransitionPath)
    assert path.measured == "transitions"
    for count in path.points.tolist():
        assert path.gain(count).estimate == pytest.approx(one.gain(path, count), rel=1e-4)
        assert path.at_most(count) == count
    assert path.at_most(0) == 0
    assert path.gain(0).estimate == 0.0
    with pytest.raises(ValueError, match="count = 99: must be 0 or one of"):
        path.gain(99)


def test_deviations_are_the_slopes_of_the_gain() -> None:
    """The covariance by finite differences in every cell of the counts, of three points of a path."""
    release = told(truth(*world(1), 3e4), 3e4, (4.0, 4.0, 2.0), 3)
    key = np.array([3, 4], np.uint64)
    counts = transitions.halves(release, key)[1]
    chain = transitions.Chain(release, counts)
    order, action = np.array([2, 0, 4]), np.array([1, 2, 0, 1, 2, 0, 0, 0])
    points = np.array([1, 2, 3])
    plain, covariance, of_noise = chain.gains(order, action, points)

    def gains(moves: np.ndarray) -> np.ndarray:
        layout, start = release.layout, release.question.start
        pooled = release.per_state(moves)
        usual = pooled / pooled.sum(axis=1, keepdims=True)
        usual[[5, 6]] = 0.0
        paid = np.eye(8)[5]
        found = []
        for count in points:
            ours = usual.copy()
            for s in order[:count]:
                row = moves[layout.row_index[s, action[s]]]
                ours[s] = row / row.sum()
            values = []
            for matrix in (ours, usual):
                worth = np.zeros(8)
                for _ in range(layout.horizon):
                    worth = matrix @ (paid + worth)
                values.append(worth[start])
            found.append(values[0] - values[1])
        return np.array(found)

    np.testing.assert_allclose(gains(chain.moves), plain, rtol=1e-12)
    slopes = np.zeros((3, *chain.moves.shape))
    for cell in np.ndindex(*chain.moves.shape):
        step = np.zeros_like(chain.moves)
        step[cell] = 0.01
        slopes[(slice(None), *cell)] = (gains(chain.moves + step) - gains(chain.moves - step)) / 0.02
    rows = release.layout.row_index[order, action[order]]
    own = np.zeros((3, 3, 8))
    for i in range(3):  # in states that are changed a cell of the new action's row moves both policies
        for j in range(i + 1):
            other = release.layout.row_index[order[j], (action[order[j]] + 1) % 3]
            own[i, j] = slopes[i, rows[j]] - slopes[i, other]
    chain_luck = chain.luck.copy()
    chain_luck[rows] = chain.luck_of(order, rows, own[-1])
    covariance = covariance - chain.unseen(rows, own)
    for found, cells in ((covariance, chain.noise + chain_luck), (of_noise, chain.noise)):
        expected = np.einsum("irt,jrt,rt->ij", slopes, slopes, cells)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("noise", [(0.0, 0.0, 0.0), (15.0, 15.0, 6.0)], ids=["none", "gaussian"])
@pytest.mark.parametrize("heavy", [False, True])
def test_halves_have_the_stated_errors_and_no_correlation(
    noise: tuple[float, float, float], heavy: bool
) -> None:
    """The gain of one fixed policy by both halves of 300 releases. False alarm 1e-6: two means, two
    variances, one correlation, each at 1e-7.
    """
    one = public(4)
    each, moves, mean = one._expected
    moves = moves / moves.sum(axis=1, keepdims=True)
    draw = np.random.default_rng(17)
    order, action, points = np.array([3, 1]), np.array([0, 2, 1, 1, 0, 0, 0, 0]), np.array([2])
    policy = one.behaviour.copy()
    policy[:, [3, 1]] = np.eye(3)[action[[3, 1]]]
    true = one.gain(_Changes(order, action), 2)
    luck = draw.laplace if heavy else draw.normal
    scale = np.sqrt(0.5) if heavy else 1.0
    scores = []
    for i in range(300):
        visits = draw.poisson(20_000 * each).astype(float)
        successors = draw.multinomial(visits.astype(int), moves / moves.sum(axis=1, keepdims=True)).astype(
            float
        )
        tables = [visits, successors, visits * (mean - 0.5)]
        noisy = [
            t + (scale * luck(0.0, s, t.shape) if s else 0.0) for t, s in zip(tables, noise, strict=True)
        ]
        release = one.question.sums_of(*noisy, *noise, people=20_000, heavy=heavy)
        score = []
        for counts in transitions.halves(release, np.array([i, 7], np.uint64)):
            found, covariance, _ = transitions.Chain(release, counts).gains(order, action, points)
            score.append((found[0] - true) / np.sqrt(covariance[0, 0]))
        scores.append(score)
    table = np.array(scores)
    wrong = stats.norm.isf(5e-8)
    assert np.abs(table.mean(axis=0)).max() < wrong / np.sqrt(300)
    assert np.abs((table[:, 0] * table[:, 1]).mean()) < wrong * 1.2 / np.sqrt(300)
    variance = table.var(axis=0)
    assert variance.max() < stats.chi2.isf(1e-7, 299) / 299 * (1.1 if heavy else 1.0)
    assert variance.min() > 0.6


class _Changes:
    """States and actions that were not chosen by any data."""

    def __init__(self, order: np.ndarray, action: np.ndarray) -> None:
        self.order, self.action = order, action

    def changed(self, count: int) -> np.ndarray:
        found = np.zeros(8, bool)
        found[self.order[:count]] = True
        return found


def test_where_no_action_matters_nothing_is_flattered() -> None:
    """Twelve states in which all four actions are alike, 300 releases of 20 000 people: what is chosen by one
    half and judged by the other has mean 0 and its stated deviation. False alarm 1e-6: a mean of 300 at 5
    standard errors, and a variance at 1.45 (chi-square with 300).
    """
    size, actions = 12, 4
    returns = ReturnBounds(terminal=(size, size + 1), outcomes={size + 1: 1.0})
    question = FirstVisits(ProblemSpec(Layout(size + 2, actions, 15), stationary=True, returns=returns))
    layout, draw = question.layout, np.random.default_rng(8)
    p = np.zeros((layout.states, layout.states))
    p[:size, :size] = 0.8 * draw.dirichlet(np.ones(size), size)
    good = draw.uniform(0.2, 0.8, size)
    p[:size, size], p[:size, size + 1] = 0.2 * (1 - good), 0.2 * good
    p[size, size] = p[size + 1, size + 1] = 1.0
    p[-1, :size] = 1.0 / size
    share = np.r_[draw.dirichlet(np.full(actions, 3.0), size).ravel(), 1.0, 1.0, 1.0]
    many = np.r_[np.full(size, 8000.0), 9000.0, 9000.0, 20_000.0]
    found = []
    for _ in range(300):
        visits = draw.poisson(many[layout.row_state] * share).astype(float)
        visits[-1] = 20_000.0
        moves = draw.multinomial(visits.astype(int), p[layout.row_state]).astype(float)
        moves += 10.0 * draw.standard_normal(moves.shape)
        told_ = question.sums_of(
            visits + 10.0 * draw.standard_normal(layout.rows), moves,
            0.0 * visits + 4.0 * draw.standard_normal(layout.rows), 10.0, 10.0, 4.0, people=20_000,
        )  # fmt: skip
        path = path_of(told_)
        if isinstance(path, TransitionPath) and path.default:
            at = path.kept.tolist().index(path.default)
            found.append(path.estimate[at] / path.deviation[at])
    z = np.array(found)
    assert z.size > 250
    assert abs(z.mean()) < 5.0 / np.sqrt(z.size)
    assert z.var() < 1.45


def test_returns_are_kept_where_noise_drowns_transitions_and_where_no_rule_pays() -> None:
    few = told(truth(*world(0), 3e3), 3e3, (60.0, 60.0, 2.0), 1)
    assert path_of(few).measured == "returns"
    free = FirstVisits(ProblemSpec(Layout(7, 3, 25), stationary=True, returns=ReturnBounds(terminal=(5, 6))))
    sums = truth(*world(0), 1e5)
    unpaid: VisitSums = free.sums_of(
        sums["visits"], sums["moves"], sums["returns"], 0.0, 0.0, 0.0, people=1e5
    )
    assert path_of(unpaid).measured == "returns"
    assert path_of(told(sums, 1e5, (3.0, 3.0, 1.0), 1)).measured == "transitions"
    assert QUESTION.returns.outcomes is not None


def test_points_grow_and_hold_together() -> None:
    assert transitions._kept(1).tolist() == [1]
    assert transitions._kept(30).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 12, 18, 27, 30]
    key = np.array([1, 2], np.uint64)
    assert transitions._band(np.eye(1), 0.05, key) == pytest.approx(1.96, abs=0.12)
    alike = transitions._band(np.full((5, 5), 2.0), 0.05, key)
    assert alike == pytest.approx(1.96, abs=0.12)
    apart = transitions._band(np.diag([1.0, 4.0, 9.0, 16.0]), 0.05, key)
    assert apart == pytest.approx(stats.norm.isf((1 - 0.95**0.25) / 2), abs=0.12)


def test_a_law_that_was_projected_errs_by_its_range_at_most() -> None:
    """Two rows of two next states: a clear one keeps its variance, a projected one its range, squared."""
    slopes = np.array([[[0.5, -0.5], [0.5, -0.5]], [[0.2, -0.2], [0.0, 0.0]]])
    cells, seen = np.full((2, 2), 400.0), np.array([10.0, 10.0])  # variances 2 and 0.32, by point
    part = transitions.capped(slopes, cells, seen, np.array([True, False]))
    np.testing.assert_allclose(part, [[1.0], [0.5]])
    few = transitions.capped(slopes, np.full((2, 2), 1.0), seen, np.array([False, False]))
    np.testing.assert_allclose(few, 1.0)


def test_few_who_fared_alike_are_no_sure_thing() -> None:
    """Five states, twelve actions that are alike, 3 in 100 ends are bad: 300 releases of 2 000 people. Of the
    default points .025 may lie above the truth, 23 of 300 at a false alarm of 1e-6; by
    M alone 39 do.
    """
    size, actions, bad = 5, 12, 0.03
    returns = ReturnBounds(terminal=(size, size + 1), outcomes={size + 1: 1.0})
    question = FirstVisits(ProblemSpec(Layout(size + 2, actions, 20), stationary=True, returns=returns))
    layout, draw = question.layout, np.random.default_rng(5)
    p = np.zeros((layout.states, layout.states))
    p[:size, :size] = 0.8 * draw.dirichlet(np.ones(size), size)
    p[:size, size], p[:size, size + 1] = 0.2 * bad, 0.2 * (1.0 - bad)
    p[size, size] = p[size + 1, size + 1] = 1.0
    p[-1, :size] = 1.0 / size
    share = np.r_[draw.dirichlet(np.full(actions, 2.0), size).ravel(), 1.0, 1.0, 1.0]
    many = np.r_[np.full(size, 1200.0), 60.0, 1900.0, 2000.0]
    above = 0
    for _ in range(300):
        visits = draw.poisson(many[layout.row_state] * share).astype(float)
        visits[-1] = 2000.0
        moves = draw.multinomial(visits.astype(int), p[layout.row_state]).astype(float)
        earned = draw.binomial(visits.astype(int), 1.0 - bad) - visits / 2
        path = path_of(question.sums_of(visits, moves, earned, 0.0, 0.0, 0.0, people=2000))
        above += path.gain(path.default).shown
    assert above <= 23


def test_returns_beyond_the_bounds_count_as_the_bounds() -> None:
    """Outcomes of -4 and 9 between bounds of -1 and 2: as outcomes of -1 and 2."""
    gains = []
    for outcomes in ({5: 9.0, 6: -4.0}, {5: 2.0, 6: -1.0}):
        returns = ReturnBounds(terminal=(5, 6), outcomes=outcomes, least=-1.0, most=2.0)
        question = FirstVisits(ProblemSpec(Layout(7, 3, 25), stationary=True, returns=returns))
        sums = truth(*world(0), 1e5)
        path = path_of(
            question.sums_of(sums["visits"], sums["moves"], sums["returns"], 0.0, 0.0, 0.0, people=1e5)
        )
        assert path.measured == "transitions"
        gains.append(path.gain(path.default))
    assert gains[0] == gains[1]
    assert gains[0].estimate > 0.0
