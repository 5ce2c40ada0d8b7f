"""The consistency test: exact sums agree, its covariance is that of played releases, contradictions are
seen.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.studies.decision_points import Study
from benchmarks.studies.decision_points import cut_off as cut_off_world
from benchmarks.studies.hidden_causes import PERSISTENT, Releases
from discreet.learners.ope import consistency_test as consistency
from discreet.learners.ope.consistency_test import consistency_of
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.mechanisms.interfaces import ReturnBounds
from discreet.pipeline.power_analysis import PublicMDP

from .test_deviation_gains import QUESTION, told, truth, world


def exact(public: PublicMDP, people: float) -> VisitSums:
    each, moves, mean = public._expected
    visits = people * each
    tables = visits, visits[:, None] * moves, visits * (mean - 0.5)
    return public.question.sums_of(*tables, 0.0, 0.0, 0.0, people=people)


@pytest.mark.parametrize("seed", range(3))
def test_exact_sums_agree_where_nothing_is_cut_off(seed: int) -> None:
    mdp, behaviour = world(seed)
    release = exact(PublicMDP(mdp, behaviour, ReturnBounds(terminal=(5, 6), outcomes={5: 1.0})), 1e9)
    found = consistency_of(release)
    assert found.contrasts.where.size == 15
    assert found.levels.where.size == 6  # five states and the start
    # 0.55 ** 25 of the episodes are cut off, which is 3e-7
    assert np.abs(found.contrasts.value).max() < 1e-6
    assert np.abs(found.levels.value).max() < 1e-6
    assert not found.contrasts.rejects
    assert not found.levels.rejects


def test_exact_sums_agree_where_most_episodes_are_cut_off() -> None:
    one = cut_off_world(False, 0)
    release = exact(PublicMDP(one.mdp, one.behaviour, one.returns), 1e9)
    found = consistency_of(release)
    assert found.contrasts.where.size == 24
    assert np.abs(found.contrasts.value).max() < 1e-3
    assert np.abs(found.levels.value).max() < 1e-3
    # without the correction for the time that is left the levels are off by a hundredth and more
    test = consistency._Test(release, found.model)
    later = test._later(test._reconciled(release.moves, release.visits), found.model.usual)
    assert np.abs(later[:8, :8]).max() > 0.01


def test_chances_that_noise_makes_negative_do_not_inflate_the_time_correction() -> None:
    """A correction is a difference of two means of values, so it is no larger than their range. Dividing by
    a state's total chance, which noise can bring close to 0, made it 14 in ICU-Sepsis.
    """
    one = cut_off_world(False, 0)
    release = exact(PublicMDP(one.mdp, one.behaviour, one.returns), 1e5)
    test = consistency._Test(release, consistency.model_of(release))
    later_rows = test.row_state != release.question.start
    for part in np.linspace(0.05, 0.1, 401):
        moves = release.moves.copy()
        moves[later_rows, 3] *= -part  # users begin in the state, and noise hides those who come back
        later = test._later(test._reconciled(moves, release.visits), test.model.usual)
        assert np.abs(later).max() <= 1.0


def test_the_noise_of_a_release_moves_discrepancies_as_stated() -> None:
    """The covariance by noise alone, against noise that is drawn: variances of 1 500 draws within 15 % of the
    stated ones. A variance of 1 500 normal draws is off by 15 % with probability 4e-5 at most; the draws are
    seeded.
    """
    sums = truth(*world(1), 60_000)
    noise = (12.0, 12.0, 5.0)
    plain = told(sums, 60_000, (0.0, 0.0, 0.0), 0)
    values, stated = [], []
    for seed in range(1500):
        release = told(sums, 60_000, noise, seed)
        found = _values(release)
        values.append(found[0])
        if seed < 20:
            stated.append(found[1])
    assert plain.visits.shape == release.visits.shape
    ratio = np.var(values, axis=0) / np.mean(stated, axis=0)
    assert ratio.min() > 0.85
    assert ratio.max() < 1.15


def _values(release: VisitSums) -> tuple[np.ndarray, np.ndarray]:
    """Discrepancies (1) and (2), and their variance by noise alone, recomputed in plain loops."""
    model = consistency.model_of(release)
    test = consistency._Test(release, model)
    counts = test._reconciled(release.moves, release.visits)
    layout, state = release.layout, release.layout.row_state
    visits = release.per_state(counts.visits)
    arrivals, returns = release.per_state(counts.moves), release.per_state(release.returns)
    live = ~model.terminal
    v = returns / visits
    worth = np.where(model.terminal, release.question.arrival, v + 0.5)  # nothing is cut off in this world
    centred = worth - (model.usual * worth).sum(axis=1)[:, None]
    rows = np.flatnonzero(np.diff(layout.state_ptr)[state] > 1)
    q = release.returns / counts.visits
    step_row = (counts.moves * centred[state]).sum(axis=1) / counts.visits
    step = (arrivals * centred).sum(axis=1) / visits
    contrast = (q - v[state]) - (step_row - step[state])
    level = v + 0.5 - (model.usual * worth).sum(axis=1) - step
    value = np.concatenate([contrast[rows], level[live]])
    # slopes by finite differences of the same formulas in every cell
    names = [
        ("visits", release.noise.visits),
        ("moves", release.noise.moves),
        ("returns", release.noise.returns),
    ]
    del names
    slopes = consistency._Slopes(
        1.0 / counts.visits,
        1.0 / visits,
        q - step_row,
        v - step,
        np.where(live, 1.0 / visits, 0.0),
        v,
        centred,
    )
    onward = np.concatenate([model.moves[rows] - model.usual[state[rows]], model.usual[np.flatnonzero(live)]])
    covariance = test._covariance(rows, np.flatnonzero(live), onward, test._noise(slopes).toarray())
    return value, np.diag(covariance)


@pytest.mark.statistics
def test_the_covariance_is_that_of_played_releases() -> None:
    """Standardised discrepancies of 120 played releases of a world whose state suffices. Their mean square
    has the chi-square law with at least 300 degrees of freedom a discrepancy; 0.7 and 1.35 are 5 standard
    errors.
    """
    study = Releases("ward", _ward(), 5)
    scores = []
    for draw in range(120):
        found = consistency_of(study.draw_release(8_000, 6.0, draw, draw))
        size = found.contrasts.where.size
        assert size >= 8
        scores.append(np.r_[np.square(found.contrasts.value / found.contrasts.deviation).mean(),
                            np.square(found.levels.value / found.levels.deviation).mean()])  # fmt: skip
    mean = np.mean(scores, axis=0)
    assert ((mean > 0.7) & (mean < 1.35)).all(), mean


def _ward() -> object:
    from benchmarks.studies.decision_points import ward

    return ward()


@pytest.mark.parametrize(
    "name", ["sick treated more", "healthy treated more", "constant rate", "after the action"]
)
def test_a_lasting_hidden_cause_is_seen(name: str) -> None:
    study = Releases(name, PERSISTENT[name], 11)
    for draw in range(3):
        found = consistency_of(study.draw_release(20_000, 3.0, draw, draw))
        assert found.contrasts.rejects
        assert found.contrasts.largest_z > 8.0
        assert found.contrasts.size > 0.01


def test_the_same_release_gives_the_same_answer_and_is_not_changed() -> None:
    study = Releases("frail", PERSISTENT["frail"], 3)
    release = study.draw_release(5_000, 1.0, 0, 0)
    before = [table.copy() for table in (release.visits, release.moves, release.returns)]
    one, other = consistency_of(release), consistency_of(release)
    np.testing.assert_array_equal(one.contrasts.value, other.contrasts.value)
    np.testing.assert_array_equal(one.contrasts.deviation, other.contrasts.deviation)
    assert one.levels.squares == other.levels.squares
    for table, kept in zip((release.visits, release.moves, release.returns), before, strict=True):
        np.testing.assert_array_equal(table, kept)


def test_rewards_that_no_rule_gives_are_not_tested() -> None:
    one = cut_off_world(True, 2)
    found = consistency_of(Study(one).released(5_000, 3.0, 0, 0))
    assert not found.tested
    assert found.contrasts.where.size == found.levels.where.size == 0
    assert not found.contrasts.rejects
    assert found.covered(np.ones(2), np.array([0, 1])) == 0.0


def test_two_few_users_leave_nothing_to_test() -> None:
    release = told(truth(*world(0), 300), 300, (30.0, 30.0, 12.0), 1)
    found = consistency_of(release)
    assert found.contrasts.where.size == 0
    assert found.contrasts.largest == found.contrasts.squares == 1.0
    assert found.contrasts.size == 0.0
    assert found.contrasts.largest_z == 0.0


def test_the_law_of_the_sum_of_squares_is_that_of_drawn_normals() -> None:
    """Satterthwaite's approximation at p = 1e-3 and correlated scores: 20 000 draws, rejected between 0.3 and
    3 times as often as stated. Chance of an alarm with 20 expected: below 1e-6 for more than 60, or fewer
    than 6.
    """
    draw = np.random.default_rng(2)
    root = draw.normal(size=(12, 5)) + 0.3
    covariance = root @ root.T + 0.2 * np.eye(12)
    sample = draw.multivariate_normal(np.zeros(12), covariance, 20_000)
    found = [
        consistency._judged(np.arange(12), one, np.zeros(12), covariance, np.ones(12)).squares < 1e-3
        for one in sample
    ]
    assert stats.binom.sf(60, 20_000, 1e-3) < 1e-6
    assert 6 <= sum(found) <= 60


def test_question() -> None:
    assert isinstance(QUESTION, FirstVisits)
