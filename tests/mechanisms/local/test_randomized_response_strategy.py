"""The strategy of randomized reports: exact classes, and queries that reports can answer."""

import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.local.randomized_response_strategy import Reported


class Quiet(StepReports):
    """Would randomize otherwise than it states."""


def test_parts_have_the_exact_class_and_reports_hold_no_pooled_counts() -> None:
    layout = Layout(2, 2, 3)
    quiet = object.__new__(Quiet)
    with pytest.raises(ValueError, match="must be a StepReports, no subclass"):
        Reported(quiet, "device").plain()
    reports = object.__new__(StepReports)
    with pytest.raises(ValueError, match=r"strategy\.by"):
        Reported(reports, "shuffler").plain()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no pooled counts"):
        Reported(reports, "server").check(CountQuery(layout, pooled="all"))
