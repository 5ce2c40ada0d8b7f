"""The verdict on a linear policy: better only where the interval shows it, and under its condition."""

from typing import Any

import pytest

from discreet.learners.ope.linear_gains import LinearGain
from discreet.reports.linear_report import LinearReport


def gain(low: float, high: float, lacking: float = 0.0) -> LinearGain:
    given: dict[str, Any] = {
        "estimate": (low + high) / 2, "low": low, "high": high, "level": 0.95, "noise": 0.01,
        "sampling": 0.01, "lacking": lacking, "bent": 0.0, "usual": 0.5, "usual_error": 0.01,
        "episodes": 100,
    }  # fmt: skip
    return LinearGain(**given)


def report(judged: bool, found: LinearGain | None) -> LinearReport:
    nothing: Any = None
    return LinearReport(nothing, nothing, nothing, judged, found)


def test_better_is_said_with_its_condition_and_its_interval() -> None:
    said = report(True, gain(0.1, 0.3)).verdict
    assert said.startswith("If the world is linear in these features")
    assert "it gains 0.200 (95 % interval 0.100 to 0.300) over what people did, 0.500" in said


@pytest.mark.parametrize(
    ("judged", "found"), [(True, gain(-0.1, 0.3)), (True, None), (False, None), (False, gain(0.1, 0.3))]
)
def test_nothing_else_is_called_better(judged: bool, found: LinearGain | None) -> None:
    assert "is better than what people did:" not in report(judged, found).verdict
