"""First sentences of the report: each verdict names the condition on which it rests, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.learners.ope.censored_share import CensoredShare
from discreet.learners.ope.consistency_test import Consistency, Discrepancies, ProjectedModel
from discreet.learners.ope.deviation_gains import Gain
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.hidden_cause import LARGEST, HiddenCause
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import ASKED, KINDS, Verdict, verdict_of
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.reports.report_files import report_markdown
from discreet.reports.verdict_text import first_sentence, rests_on, times, verdict_line

GAIN = Gain(0.147, 0.12, 0.175, 0.95, 0.01, 0.01, 1.0, 0.0)
BEHAVIOUR = Gain(0.36, 0.35, 0.37, 0.95, 0.01, 0.01, 1.0, 0.0)


def compared(p: float = 0.5, size: float = 0.0, z: float = 1.0) -> Discrepancies:
    where = np.array([2, 3])
    value = np.array([0.01, -0.02])
    return Discrepancies(
        where, value, np.array([0.01, 0.02 / z]), np.zeros(2), np.array([0.3 * z, -z]), p, p, size
    )


def a_test(tested: bool = True, contrasts: Any = None, levels: Any = None) -> Consistency:
    table = np.full(6, np.nan)
    table[[2, 3]] = 0.05, -0.21
    steps = np.full(6, np.nan)
    steps[[2, 3]] = 0.04, -0.01
    model = ProjectedModel(np.eye(6), np.eye(6), np.ones(6), np.ones(6), np.zeros(6, bool))
    return Consistency(
        contrasts or compared(),
        levels or compared(),
        ~np.isnan(table),
        table,
        steps,
        steps,
        model,
        tested,
        10.0,
    )


def verdict(kind: str, **changes: Any) -> Verdict:
    cause = HiddenCause(1.2459, 1.0999, 1.85)
    return replace(Verdict(kind, GAIN, ASKED, cause, a_test(), 0.97, False), **changes)


def rested_on(found: Verdict) -> str:
    return report_markdown(rests_on(found))


@pytest.mark.parametrize("kind", KINDS)
def test_ends_that_are_not_known_are_told_where_an_interval_is(kind: str) -> None:
    found = verdict(kind, censored=CensoredShare(0.1234, 0.005))
    line = said(found)
    words = (
        " The outcome of up to 12.3 % of the episodes is not known: the interval allows for any that depends "
        "on the recorded state and action before it alone."
    )
    assert (
        line.endswith(words)
        == ("interval" in line)
        == (kind in ("not shown", "fragile", "unchecked", "shown"))
    )
    text = rested_on(found)
    own = "**Censored ends.** The outcome of up to 12.3 % of the episodes (± 0.5 % of noise) is not known."
    assert own in text
    assert "Censored" not in rested_on(verdict(kind))


def said(found: Verdict, ended: float = 1.0, changes: int = 4) -> str:
    return first_sentence(found, BEHAVIOUR, changes, ended, lambda row: (f"state {row}", f"action {row}"))


def test_shown_names_both_conditions_before_the_gain() -> None:
    text = said(verdict("shown"))
    assert text == (
        "Shown, if no unrecorded cause changes the odds of an action more than 1.24 times (1.09 times, "
        "each decision by itself, if it lasts longer than a step) and if what an action does depends on the "
        "recorded state alone: changing what is done in 4 states gains 0.147 (95 % interval 0.120 to 0.175) "
        "over what people did, 0.360. The recorded state itself changes these odds 1.85 times."
    )
    assert "depends on the state and not on the time" not in text
    late = said(verdict("shown"), ended=0.7, changes=1)
    assert "and if what people do depends on the state and not on the time (30.0 % of the episodes" in late
    assert late.index("depends on the state") < late.index("gains 0.147")
    assert "in 1 state gains" in late
    assert "still under way at the last step" in late  # an episode may end by that step: it is not cut off


def test_a_contradiction_is_told_with_its_numbers_in_units_of_the_file() -> None:
    found = verdict("contradicted", consistency=a_test(contrasts=compared(1e-9, 0.1, 19.0)))
    text = said(found)
    assert "In state 'state 3', people whose action was 'action 3' went on to earn 2.100 less" in text
    assert "where they went next explains 0.100 less (19 standard errors apart)" in text


def test_an_incomplete_state_is_told_with_its_size() -> None:
    found = verdict("state incomplete", consistency=a_test(levels=compared(1e-9, 0.004)))
    assert "(by 0.040 per person); the gain, 0.147, is not large enough beside that." in said(found)
    assert "of the episodes last to the last step" not in said(found)
    assert said(found, ended=0.7).endswith(
        " 30.0 % of the episodes last to the last step: if that step decides their outcome, the time does "
        "the same."
    )


def test_a_failed_test_names_every_reason_that_it_can_have() -> None:
    """Behaviour that changes with the step, or a horizon that cuts, fails it where no cause is hidden."""
    contrast = said(verdict("contradicted", consistency=a_test(contrasts=compared(1e-9, 0.1, 19.0))))
    level = said(verdict("state incomplete", consistency=a_test(levels=compared(1e-9, 0.004))))
    assert "Possible reasons are a cause that is not recorded" in contrast
    assert all("a change with the step" in one for one in (contrast, level))
    assert "a horizon that cuts episodes off" in level


def test_more_people_are_no_promise_of_a_gain() -> None:
    assert said(verdict("not shown")).endswith("If it is better, more people or more budget may show it.")


def test_a_fragile_gain_says_what_would_explain_it_and_what_is_asked_for() -> None:
    found = verdict("fragile", cause=HiddenCause(1.0599, 1.01, 2.0))
    assert said(found) == (
        "Not shown: too easily explained otherwise. Do not act on this gain: try the change on people drawn "
        "by lot first. More people or more budget help only as far as the interval is wide. A gain is called "
        "shown only if it stands against unrecorded causes that change the odds of an action 1.10 times at a "
        "step. This one stands only up to 1.05 times: a stronger cause could explain all of it. What is not "
        "shown is a gain of 0.147 (95 % interval 0.120 to 0.175) over what people did."
    )


@pytest.mark.parametrize("kind", ["contradicted", "state incomplete", "fragile", "unchecked"])
def test_a_refused_gain_never_comes_before_its_refusal(kind: str) -> None:
    """Whoever reads two sentences knows that it is refused, and why; the number comes late, or with "not"."""
    text = said(verdict(kind))
    first, second, *_ = text.split(". ")
    assert "0.147" not in first
    refusals = ("What is not shown is", "is not large enough beside that")
    assert "0.147" not in second or any(words in second for words in refusals)
    assert "would gain" not in text
    told = {
        "kind": kind, "covered": 0.9, "ended": 1.0, "contrasts_p": 0.5, "levels_p": None, "censored": None,
        "hidden_cause": {"asked": 1.1, "each_step": 1.05, "lasting": 1.01, "recorded": 2.0},
    }  # fmt: skip
    line = verdict_line(told)
    assert line.startswith(f"Not shown: {first.removeprefix('Not shown: ').split(' (')[0]}")
    assert ("Do not act on this gain" in line) == (kind == "fragile")
    refuted = kind in ("contradicted", "state incomplete")
    assert ("only against unrecorded causes" in line) != refuted


@pytest.mark.parametrize(
    ("asked", "words"), [(1.1, "1.10"), (1.105, "1.105"), (2.0, "2.00"), (50.0, "50.00")]
)
def test_what_is_asked_for_is_never_rounded(asked: float, words: str) -> None:
    """Rounded like the strength, both numbers of one sentence could be equal."""
    found = verdict("fragile", asked=asked, cause=HiddenCause(asked - 1e-3, 1.01, 2.0))
    assert f"the odds of an action {words} times at a step. This one stands only up to" in said(found)
    assert f"at least {words} (`hidden_cause`; the default is 1.10)" in rested_on(found)
    assert f"only up to {words} times" not in said(found)


def test_a_lasting_cause_is_allowed_no_more_than_one_at_each_step() -> None:
    found = verdict("shown", cause=HiddenCause(1.2, 1.5, 2.0))
    assert "more than 1.20 times (1.20 times, each decision by itself, if it lasts" in said(found)


def test_beyond_the_largest_strength_the_sentence_names_that_one() -> None:
    found = verdict("shown", cause=HiddenCause(LARGEST, LARGEST, 900.0))
    assert "more than 50 times (50 times, each decision" in said(found)
    assert said(found).endswith("changes these odds 50 or more times.")


def test_what_loses_is_not_said_to_be_shown_by_more_data() -> None:
    for estimate in (0.01, 0.0, -0.1):
        found = verdict("not shown", gain=replace(GAIN, estimate=estimate, low=-0.2, high=-0.05))
        assert said(found).endswith("If it is better, more people or more budget may show it.")


def test_labels_stand_in_a_contradiction_as_they_are() -> None:
    found = verdict("contradicted", consistency=a_test(contrasts=compared(1e-9, 0.1, 19.0)))
    text = first_sentence(found, BEHAVIOUR, 4, 1.0, lambda _: ("can't walk", "give \\ wait"))
    assert "In state 'can't walk', people whose action was 'give \\ wait' went" in text


def test_standard_errors_apart_are_those_of_the_table() -> None:
    """The test lets a bias pass; how far both readings are apart does not depend on it."""
    contrasts = compared(1e-9, 0.1, 9.0)._replace(
        value=np.array([0.0, -0.2]), deviation=np.full(2, 0.01), bias=np.full(2, 0.11)
    )
    assert "(20 standard errors apart)" in said(
        verdict("contradicted", consistency=a_test(contrasts=contrasts))
    )


@pytest.mark.parametrize("kind", ["fragile", "unchecked", "shown"])
def test_a_contradiction_that_is_outweighed_is_explained(kind: str) -> None:
    words = "They contradict each other by little: the whole interval of the gain lies above ten times"
    outweighed = verdict(kind, consistency=a_test(levels=compared(1e-9, 1e-4)))
    assert words in rested_on(outweighed)
    assert words not in rested_on(verdict(kind))


def test_a_second_dose_that_harms_leaves_no_trace_but_the_condition_names_it() -> None:
    """Actions are drawn by lot, and all tests pass; each dose gains made once, both together lose a third.

    The dose before changes what the next one does, not what people in the next state earn on average. Exact
    sums: nothing is drawn.
    """
    question = FirstVisits(
        ProblemSpec(
            Layout(4, 2, 2), stationary=True, returns=ReturnBounds(terminal=(2, 3), outcomes={2: 1.0, 3: 0.0})
        )
    )
    layout, people = question.layout, 1e5
    moves, returns = np.zeros((layout.rows, 5)), np.zeros(layout.rows)
    later = {0: (0.5, 0.7), 1: (0.65, 0.1)}  # chance of the good end, by the dose before and by this one
    value = {"people": 0.0, "both": 0.15 + 0.85 * later[1][1]}
    ended = layout.row_index[2].max(), layout.row_index[3].max()
    for before, dose in ((b, d) for b in (0, 1) for d in (0, 1)):
        many = people * (0.2 if before else 0.8) * (0.2 if dose else 0.8)
        at_once, good = (0.05, 0.15)[before], later[before][dose]
        first, second = layout.row_index[0, before], layout.row_index[1, dose]
        moves[first, 2] += many * at_once
        moves[first, 1] += many * (1.0 - at_once)
        moves[second, 2] += many * (1.0 - at_once) * good
        moves[second, 3] += many * (1.0 - at_once) * (1.0 - good)
        earned = at_once + (1.0 - at_once) * good
        value["people"] += many / people * earned
        returns[first] += many * (earned - 0.5)
        returns[second] += many * (1.0 - at_once) * (good - 0.5)
    for row, end in zip(ended, (2, 3), strict=True):
        moves[row, end] = moves[:, end].sum()
        returns[row] = -0.5 * moves[row, end]
    start = layout.row_index[4, 0]
    moves[start, 0], returns[start] = people, people * (value["people"] - 0.5)
    release = question.sums_of(moves.sum(axis=1), moves, returns, 0.0, 0.0, 0.0, people=people)
    path = path_of(release)
    judged = verdict_of(path, 2)
    assert path.changed(2)[:2].all()
    assert path.action[:2].tolist() == [1, 1]
    assert value["both"] < value["people"] - 0.3
    assert judged.kind == "shown"
    assert judged.consistency.contrasts.largest_z < 1e-6
    assert judged.consistency.levels.largest_z < 1e-6
    assert "and if what an action does depends on the recorded state alone" in said(judged)
    assert "if one dose helps and a second one harms" in rested_on(judged)


def test_unchecked_says_why() -> None:
    assert "(no rule gives rewards" in said(verdict("unchecked", consistency=a_test(tested=False)))
    assert "(two readings of the release disagree somewhat" in said(verdict("unchecked", hinted=True))
    assert "10.0 % of the changed decisions can be tested" in said(verdict("unchecked", covered=0.1))


def test_factors_are_rounded_down() -> None:
    assert times(1.2399) == "1.23"
    assert times(1.0) == "1.00"
    assert times(1.1) == "1.10"
    assert times(LARGEST) == "50 or more"


def test_what_it_rests_on_says_what_cannot_be_excluded() -> None:
    for kind in KINDS:
        text = rested_on(verdict(kind))
        assert "**What this cannot exclude.** A cause that arises anew at each step leaves no trace" in text
        assert "none in a decision that ends the episode" in text  # its two readings are one
        assert ("| arises anew at each step | 1.24 |" in text) == (kind in ("fragile", "unchecked", "shown"))
        refuted = kind in ("contradicted", "state incomplete")
        assert ("no number of this report can be relied on" in text) == refuted
        assert ("only the factor above limits" in text) == ("| arises anew" in text)
    unchecked = verdict("unchecked", consistency=a_test(False))
    contradicted = verdict("contradicted", consistency=a_test(contrasts=compared(1e-9, 0.1, 19.0)))
    assert "No consistency test was made" in rested_on(unchecked)
    assert "they contradict each other" in rested_on(contradicted)
