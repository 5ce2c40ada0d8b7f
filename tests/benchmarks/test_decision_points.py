"""The study of decision points: what its rows count."""

from benchmarks.studies.decision_points import Study, none_better, table, ward
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import verdict_of, would_show


def test_what_is_shown_has_an_interval_above_0() -> None:
    """Noise and people are of fixed seeds, so that counts are always these."""
    row = Study(ward(), seed=1).row(25_000, 10.0, draws=3, cohorts=2)
    assert row["above"] == row["shown"] == 1.0
    assert row["false"] == row["falsely shown"] == 0
    assert "| 25,000 | 10 | 4 |" in table([row])


def test_where_nothing_helps_what_is_above_0_is_counted_as_false() -> None:
    row = Study(none_better(), seed=1).row(5_000, 1.0, draws=20, cohorts=2)
    assert row["better"] == 0.0
    assert row["falsely shown"] <= row["false"] == round(20 * row["above"])
    assert row["falsely shown"] == round(20 * row["shown"])


def test_a_verdict_that_is_shown_would_be_shown_without_the_consistency_test() -> None:
    """Rows ask for the test only then."""
    study, shown = Study(ward(), seed=1), []
    for draw in range(8):
        path = path_of(study.released(25_000, 1.0, 0, draw))
        shown.append((verdict_of(path, path.default).shown, would_show(path, path.default)))
    assert all(would for whole, would in shown if whole)
    assert {whole for whole, _ in shown} == {True, False}
