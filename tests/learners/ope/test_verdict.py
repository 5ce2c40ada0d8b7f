"""Kinds of verdicts, in their order, and what each rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from discreet.learners.ope.deviation_gains import Gain
from discreet.learners.ope.hidden_cause import HiddenCause
from discreet.learners.ope.verdict import ASKED, KINDS, Verdict, kind_of
from discreet.reports.verdict_text import first_sentence

from ...reports.test_verdict_text import a_test, compared

GAIN = Gain(0.147, 0.12, 0.175, 0.95, 0.01, 0.01, 1.0, 0.0)


BEHAVIOUR = Gain(0.36, 0.35, 0.37, 0.95, 0.01, 0.01, 1.0, 0.0)


def verdict(kind: str, **changes: Any) -> Verdict:
    cause = HiddenCause(1.2459, 1.0999, 1.85)
    return replace(Verdict(kind, GAIN, ASKED, cause, a_test(), 0.97, False), **changes)


def said(found: Verdict, ended: float = 1.0, changes: int = 4) -> str:
    return first_sentence(found, BEHAVIOUR, changes, ended, lambda row: (f"state {row}", f"action {row}"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("shown", "unchanged")])
def test_all_others_begin_with_not_shown(kind: str) -> None:
    assert said(verdict(kind)).startswith("Not shown")
    assert "proves" not in said(verdict(kind))


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
    assert kind_of(count, gain, a_test(contrasts=contrasts, levels=levels), strong, checked) == kind
