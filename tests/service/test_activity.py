"""Counts by the hour, and the last error."""

from serving import Clocked

from discreet.service.activity import HOURS, Activity


def test_counts_are_by_the_hour_and_for_a_day() -> None:
    time = [1.7e9]
    found = Activity(Clocked(lambda: time[0]))
    for status in ("placed", "counted", "full", "full", "late", "paused"):
        found.add(status)
    assert found.rows() == [("2023-11-14 22:00 UTC", 2, 2, "late: 1, paused: 1")]
    for _ in range(HOURS + 5):
        time[0] += 3600.0
        found.add("spent")
    assert len(found.rows()) == HOURS
    assert found.rows()[0][1:] == (0, 0, "spent: 1")
    assert found.error == ""
    found.fail("the disk is full")
    assert found.error == "2023-11-16 03:13 UTC: the disk is full"
