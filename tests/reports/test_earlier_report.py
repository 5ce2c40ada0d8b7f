"""The report of earlier statements: its own verdict and fields, with the present numbers."""

import pytest

from discreet.reports.earlier_report import EarlierReport

from .test_report_files import decisions

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


def test_it_holds_what_earlier_statements_held() -> None:
    present = decisions()
    earlier = EarlierReport.of(present)
    plain = earlier.to_dict()
    assert plain["version"] == 1
    assert set(plain) < {*present.to_dict(), "version"}
    for name in ("verdict_kind", "hidden_cause", "consistency", "censored", "compared"):
        assert name not in plain
    assert earlier.gain == present.gain
    assert earlier.better == present.gain.shown


def test_the_verdict_follows_the_interval_alone() -> None:
    earlier = EarlierReport.of(decisions("fragile"))
    shown = "is shown to be better" in earlier.verdict
    assert shown == earlier.better
    assert shown != earlier.verdict.startswith("Not shown")
    assert "30 states" in earlier.verdict
