"""Sentences on evaluated policies: every kind states what is claimed, and under which condition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from discreet.learners.ope.count_estimates import ValueEstimate
from discreet.learners.ope.policy_gains import PolicyGains
from discreet.reports.evaluation_report import EvaluatedPolicy, EvaluationReport


def gain(low: float, high: float, lack: float = 0.0) -> ValueEstimate:
    return ValueEstimate(0.5 * (low + high), low, high, low, 0.95, 0.1, 0.1, lack, 0.0)


def report(*policies: EvaluatedPolicy, **change: Any) -> EvaluationReport:
    origin = {"release": "a" * 64, "part": "whole", "share": 1.0}
    gains = PolicyGains({one.name: one.gain for one in policies}, 0.95, origin)
    given: dict[str, Any] = {
        "behaviour": None, "ended": 1.0, "named": None, "share": 0.5, "made": "outside", "earlier": 0,
        "users": 5000, "guarantee": "epsilon = 1", **change,
    }  # fmt: skip
    return EvaluationReport(gains=gains, policies=policies, **given)


@pytest.mark.parametrize(
    ("one", "kind", "said"),
    [
        (EvaluatedPolicy("x", gain(0.0, 0.0), 0, None, None), "unchanged", "its gain is exactly 0"),
        (EvaluatedPolicy("x", gain(-0.1, 0.9, 0.8), 2, None, None), "unknown", "gain is not known"),
        (EvaluatedPolicy("x", gain(0.1, 0.3), 2, None, None), "untested", "which this release cannot test"),
        (EvaluatedPolicy("x", gain(-0.1, 0.3), 2, None, None), "not shown", "may be none or a loss"),
    ],
)
def test_kinds_without_a_verdict(one: EvaluatedPolicy, kind: str, said: str) -> None:
    found = report(one)
    assert one.kind == kind
    assert said in found.sentence(one)
    assert found.to_markdown().startswith("**x: ")
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["policies"][0]["kind"] == kind
    assert (plain["policies"][0]["gain"]["estimate"] is None) == (kind == "unknown")
    assert plain["consistency"] is plain["behaviour"] is None


def test_notes_and_warnings() -> None:
    one = EvaluatedPolicy("x", gain(0.1, 0.3), 2, None, None)
    other = EvaluatedPolicy("y", gain(-0.1, 0.3), 2, None, None, related=True)
    text = report(one, other, earlier=1, synthetic=True).to_markdown()
    assert text.startswith("DRY RUN")
    assert "The intervals hold together, for all 2 policies of this call." in text
    assert "y was learned from another release of the same population" in text
    assert "1 earlier call has read this release for other policies (judged.jsonl)" in text
    assert "is not corrected for" in text
    assert report(one).to_dict()["warnings"] == []
    assert "stands for 30 % of 5,000 users" in report(one, made="train", share=0.7).to_markdown()
    assert "allow for the choice" in report(one, made="release").to_markdown()
