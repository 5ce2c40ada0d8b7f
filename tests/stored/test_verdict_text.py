"""First sentences of the report: each verdict names the condition on which it rests, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.offline.consistency import Consistency, Discrepancies, Model
from discreet.offline.deviations import Gain
from discreet.offline.hidden_cause import LARGEST, HiddenCause
from discreet.offline.verdict import ASKED, KINDS, Verdict, _kind
from discreet.stored.verdict_text import first_sentence, rests_on, times

GAIN = Gain(0.147, 0.12, 0.175, 0.95, 0.01, 0.01, 1.0, 0.0)
BEHAVIOUR = Gain(0.36, 0.35, 0.37, 0.95, 0.01, 0.01, 1.0, 0.0)


def compared(p: float = 0.5, size: float = 0.0, z: float = 1.0) -> Discrepancies:
    where = np.array([2, 3])
    value = np.array([0.01, -0.02])
    return Discrepancies(where, value, np.full(2, 0.01), np.zeros(2), np.array([0.3 * z, -z]), p, p, size)


def a_test(tested: bool = True, contrasts: Any = None, levels: Any = None) -> Consistency:
    table = np.full(6, np.nan)
    table[[2, 3]] = 0.05, -0.21
    steps = np.full(6, np.nan)
    steps[[2, 3]] = 0.04, -0.01
    model = Model(np.eye(6), np.eye(6), np.ones(6), np.ones(6), np.zeros(6, bool))
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


def said(found: Verdict, ended: float = 1.0, changes: int = 4) -> str:
    return first_sentence(found, BEHAVIOUR, changes, ended, lambda row: (f"state {row}", f"action {row}"))


def test_shown_names_both_conditions_before_the_gain() -> None:
    text = said(verdict("shown"))
    assert text == (
        "Shown, if no unrecorded cause changes the odds of an action more than 1.24 times (1.09 times if "
        "it lasts longer than a step): changing what is done in 4 states gains 0.147 (95 % interval 0.120 "
        "to 0.175) over what people did, 0.360. The recorded state itself changes these odds 1.85 times."
    )
    assert "depends on the state and not on the time" not in text
    late = said(verdict("shown"), ended=0.7, changes=1)
    assert "and if what people do depends on the state and not on the time (30.0 % of the episodes" in late
    assert late.index("depends on the state") < late.index("gains 0.147")
    assert "in 1 state gains" in late
    assert "still under way at the last step" in late  # an episode may end by that step: it is not cut off


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("shown", "unchanged")])
def test_all_others_begin_with_not_shown(kind: str) -> None:
    assert said(verdict(kind)).startswith("Not shown")
    assert "proves" not in said(verdict(kind))


def test_a_contradiction_is_told_with_its_numbers_in_units_of_the_file() -> None:
    found = verdict("contradicted", consistency=a_test(contrasts=compared(1e-9, 0.1, 19.0)))
    text = said(found)
    assert "In state 'state 3', people whose action was 'action 3' went on to earn 2.100 less" in text
    assert "where they went next explains 0.100 less (19 standard errors apart)" in text


def test_an_incomplete_state_is_told_with_its_size() -> None:
    found = verdict("state incomplete", consistency=a_test(levels=compared(1e-9, 0.004)))
    assert said(found).endswith("(by 0.040 per person); the gain, 0.147, is not large enough beside that.")
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
    assert said(verdict("not shown")).endswith("If it is better, more people or more budget can show it.")


def test_a_fragile_gain_says_what_would_explain_it_and_what_is_asked_for() -> None:
    found = verdict("fragile", cause=HiddenCause(1.0599, 1.01, 2.0))
    assert "changes the odds of an action 1.05 times at a step would be enough" in said(found)
    assert said(found).endswith("The factor must be at least 1.10.")


def test_unchecked_says_why() -> None:
    assert "(steps pay rewards" in said(verdict("unchecked", consistency=a_test(tested=False)))
    assert "(two readings of the release disagree somewhat" in said(verdict("unchecked", hinted=True))
    assert "10.0 % of the changed decisions can be tested" in said(verdict("unchecked", covered=0.1))


def test_factors_are_rounded_down() -> None:
    assert times(1.2399) == "1.23"
    assert times(1.0) == "1.00"
    assert times(1.1) == "1.10"
    assert times(LARGEST) == "50 or more"


def test_what_it_rests_on_says_what_cannot_be_excluded() -> None:
    for kind in KINDS:
        text = "\n".join(rests_on(verdict(kind)))
        assert "**What this cannot exclude.** A cause that arises anew at each step leaves no trace" in text
        assert "none in a decision that ends the episode" in text  # its two readings are one
        assert ("| arises anew at each step | 1.24 |" in text) == (kind not in ("unchanged", "not shown"))
    assert "No consistency test was made" in "\n".join(
        rests_on(verdict("unchecked", consistency=a_test(False)))
    )
    assert "they contradict each other" in "\n".join(
        rests_on(verdict("contradicted", consistency=a_test(contrasts=compared(1e-9, 0.1, 19.0))))
    )


@pytest.mark.parametrize(
    ("kind", "count", "low", "contrasts", "levels", "strong", "checked"),
    [
        ("unchanged", 0, 0.1, compared(), compared(), True, True),
        ("not shown", 2, 0.0, compared(), compared(), True, True),
        ("contradicted", 2, 0.9, compared(1e-9, 0.01), compared(1e-9, 0.1), False, False),
        ("state incomplete", 2, 0.9, compared(1e-9, 0.0), compared(1e-9, 0.01), False, False),
        ("fragile", 2, 1.1, compared(1e-9, 0.01), compared(1e-9, 0.01), False, False),
        ("unchecked", 2, 1.1, compared(1e-9, 0.01), compared(1e-9, 0.01), True, False),
        ("shown", 2, 1.1, compared(1e-9, 0.01), compared(1e-9, 0.01), True, True),
        ("shown", 2, 0.1, compared(), compared(), True, True),
    ],
)
def test_kinds_in_their_order(
    kind: str, count: int, low: float, contrasts: Any, levels: Any, strong: bool, checked: bool
) -> None:
    """A contradiction of size 0.01 of a range of 10 outweighs a gain whose lower end is 1 at most."""
    gain = replace(GAIN, low=low)
    assert _kind(count, gain, a_test(contrasts=contrasts, levels=levels), strong, checked) == kind
