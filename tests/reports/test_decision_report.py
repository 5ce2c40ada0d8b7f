"""The report on decision points: better is said only where the verdict says so, and values are plain JSON."""

import json

import pytest

from discreet.learners.ope.verdict import KINDS

from .test_report_files import decisions

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


@pytest.mark.parametrize("kind", KINDS)
def test_better_is_the_kind_shown_and_no_other(kind: str) -> None:
    report = decisions(kind)
    assert report.better == (kind == "shown")
    plain = report.to_dict()
    assert plain["verdict_kind"] == kind
    assert json.loads(json.dumps(plain, allow_nan=True))["verdict_kind"] == kind
    assert plain["states_changed"] == 30


def test_all_changed_states_are_in_json() -> None:
    assert len(decisions().to_dict()["changes"]) == 30
