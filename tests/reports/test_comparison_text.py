"""What reports say of a learned policy and a rule: each sentence in its case, rows, the list of states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.learners.ope.deviation_gains import Gain
from discreet.learners.ope.policy_comparison import Judgement, PolicyComparison
from discreet.reports import comparison_text as text
from discreet.utils.document import Heading, Paragraph, Table

GAIN = Gain(2.0, 1.0, 3.0, 0.95, 0.1, 0.2, 1.0, 0.0)
LAST = text.Difference("ill", 1234.0, "wait", 0.625, "drug", "as before")
NUMBERS = "the difference is 2.000 (95 % interval 1.000 to 3.000)"
POLICY: Any = None  # no text reads the tables of the policy
FOUND = PolicyComparison(
    POLICY, Judgement(GAIN, GAIN, 0.02, 812.0), GAIN, np.array([True, False]), 3.0, 2.0, "shown"
)
ONE = text.Compared("your rule", FOUND, (LAST,), "shown", 1.0, 0.95, several=False)
LACKS = replace(FOUND, rule=Judgement(None, None, 0.25, 812.0), difference=None, kind="not shown")


def said(**changes: Any) -> str:
    return text.compared_sentence(replace(ONE, found=replace(FOUND, **changes)))


def test_a_claim_states_its_condition() -> None:
    claim = text.compared_sentence(ONE)
    assert claim == f"Shown to be better than your rule, {text.condition(3.0, 2.0, 1.0)}: {NUMBERS}."
    assert "still under way" in text.compared_sentence(replace(ONE, ended=0.5))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("not shown", "the interval of the difference reaches 0"),
        ("contradicted", "two readings of what actions do differ"),
        ("state incomplete", "two readings of what states are worth differ"),
        ("fragile", "a weaker unrecorded cause"),
        ("unchecked", "a hidden cause could not be tested"),
    ],
)
def test_a_refusal_gives_its_reason(kind: str, reason: str) -> None:
    assert said(kind=kind).startswith(f"Not shown to be better than your rule: {reason}")
    assert said(kind=kind).endswith(f"; {NUMBERS}.")


def test_other_cases() -> None:
    assert text.compared_sentence(replace(ONE, found=LACKS)) == (
        "Learned policy and your rule cannot be compared: 25.0 % of the decisions of that rule ask for "
        "actions that too few people took."
    )
    assert said(difference=None).startswith("Nothing is changed, so the learned policy is what people did;")
    assert said(differs=np.zeros(2, bool)) == "The learned policy and your rule ask for the same everywhere."
    below = replace(GAIN, estimate=-2.0, low=-3.0, high=-1.0)
    assert said(difference=below).startswith(
        "Not shown to be better than your rule: the whole interval lies below 0, "
    )
    refused = text.compared_sentence(replace(ONE, verdict_kind="fragile"))
    assert refused.startswith("Nothing is claimed of the learned policy and your rule:")
    assert refused.endswith(f"{NUMBERS}.")


def test_rows_of_the_table_of_gains() -> None:
    def cells(gain: Gain) -> tuple[str, ...]:
        return (f"{gain.estimate}", "", "", "")

    learned, rule = text.compared_rows(replace(ONE, several=True, level=0.975), cells)
    assert learned[:2] == ("learned less your rule (97.5 %)", "2.0")
    assert rule[:2] == ("your rule less what people did (97.5 %)", "2.0")
    learned, rule = text.compared_rows(replace(ONE, found=LACKS), cells)
    assert learned[0] == "learned less your rule"
    assert learned[1:3] == rule[1:3] == (
        "cannot be told", "your rule lacks support at 25.0 % of its decisions"
    )  # fmt: skip
    unchanged = text.compared_rows(replace(ONE, found=replace(FOUND, difference=None)), cells)
    assert unchanged[0][2] == "nothing is changed: see the row below"
    assert unchanged[1][1] == "2.0"


def test_the_section_lists_at_most_25_states() -> None:
    many = replace(ONE, differences=(LAST,) * 28)
    blocks = text.compared_blocks([many], "transitions")
    heading, sentence, *_ = blocks
    assert heading == Heading(2, "Compared with your rule")
    assert sentence == Paragraph(text.compared_sentence(many), strong=True)
    (table,) = (block for block in blocks if isinstance(block, Table))
    assert table.rows == (("ill", "1,234", "wait (62.5 %)", "drug", "as before"),) * 25
    texts = [str(block.text) for block in blocks if isinstance(block, Paragraph)]
    assert "and 3 more." in texts
    assert "States in which the learned policy and your rule differ (28):" in texts
    assert any("rests on 812 effective decisions; 2.0 % of its decisions" in one for one in texts)


def test_the_section_says_how_the_gain_was_measured_and_for_how_many_rules() -> None:
    assert text.compared_blocks([], "returns") == []
    pages = {
        (measured, len(rules)): "\n".join(
            str(block.text) for block in text.compared_blocks(rules, measured) if not isinstance(block, Table)
        )
        for measured in ("transitions", "returns")
        for rules in ([ONE], [ONE, ONE])
    }
    for (measured, count), page in pages.items():
        assert page.startswith("Compared with your rules\n" if count == 2 else "Compared with your rule\n")
        assert ("Intervals hold for all 2 rules together (Bonferroni)." in page) == (count == 2)
        assert ("Both are judged in one model" in page) == (measured == "transitions")
        assert ("read off what people earned" in page) == (measured == "returns")


def test_entries_of_the_report() -> None:
    assert text.plain_comparisons([]) == {}
    (found,) = text.plain_comparisons([ONE])["compared"]
    assert found["sentence"] == text.compared_sentence(ONE)
    assert (found["rule"], found["level"], found["better"], found["kind"]) == (
        "your rule",
        0.95,
        True,
        "shown",
    )
    assert found["learned_less_rule"]["low"] == 1.0
    assert found["hidden_cause"] == {"each_step": 3.0, "lasting": 2.0}
    assert found["differences"][0]["learned"] == "drug"
    lacks = replace(ONE, found=LACKS).to_dict()
    assert (lacks["better"], lacks["learned_less_rule"], lacks["value_of_rule"]) == (False, None, None)
    assert lacks["lacking"] == 0.25
