"""Schedules: times of release, leaves, and how many releases there are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.core.count_mechanism import CountMechanism, leaves_of
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.raw_encoder import RawEncoder
from discreet.core.releases import Message, Plan, Schedule, read_only
from discreet.core.rng import Seeded
from discreet.core.session import ChannelSession
from discreet.core.strategies import Exact
from discreet.mechanisms.open_session import session_of

TIMES = np.array([0, 2, 5, 9])


@pytest.mark.parametrize("growth", [None, 1.0, 1.1, 1.5, 2.0, 100.0])
@pytest.mark.parametrize("users", [1, 2, 3, 10, 97])
def test_geometric_times_of_release(users: int, growth: float | None) -> None:
    """One user more at least, ceil(growth * k) else, and none when everybody has come."""
    expected = [0]
    while (after := max(expected[-1] + 1, math.ceil((growth or 1.0) * expected[-1]))) < users:
        expected.append(after)
    schedule = Schedule(users, growth=growth)
    assert schedule.release_times.tolist() == expected
    assert schedule.releases == max(1, len(expected) - 1)
    assert leaves_of(schedule, "batch") == len(expected)
    assert leaves_of(schedule, "user") == users


def test_a_schedules_arrays_are_its_own_and_read_only() -> None:
    mine, shares = TIMES.copy(), np.full(4, 0.5)
    schedule = Schedule(20, times=mine, pooled_shares=shares)
    mine[1], shares[1] = 3, 0.9
    assert schedule.release_times.tolist() == TIMES.tolist()
    assert schedule.pooled_shares is not None
    assert schedule.pooled_shares.tolist() == [0.5] * 4
    for array in (
        schedule.release_times, schedule.pooled_shares, Schedule(9).release_times,
        Schedule(9, growth=2.0).release_times,
    ):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": np.array([[0, 1]])}, "ascending integers that start with 0"),
        ({"times": np.array([], int)}, "ascending integers that start with 0"),
        ({"times": np.array([0, 4, 10])}, r"times\[-1\] = 10: must be below users = 10 "),
        ({"times": np.array([0, 10])}, r"times\[-1\] = 10: must be below users = 10 \(no user is left"),
        ({"times": np.array([0, 11]), "final": True}, r"times\[-1\] = 11: must be at most users = 10"),
        ({"final": True}, "final = True: must be given with users and the times"),
        ({"final": True, "users": None, "times": TIMES}, "final = True: must be given with users and the"),
        ({"reads": "both"}, "reads = 'both': must be one of 'sums', 'measurements'"),
        ({"plans": "all"}, "plans = 'all': must be one of 'any', 'deterministic', 'stochastic'"),
        ({"times": TIMES, "pooled_shares": np.full(3, 0.5)}, r"pooled_shares has shape \(3,\): must be \(4,"),
    ],
)
def test_schedules_that_are_none_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**{"users": 10, **options})


def test_leaves_are_batches_or_users_and_open_streams_have_no_end() -> None:
    schedule = Schedule(10, times=TIMES)
    assert [schedule.leaf_at(int(n)) for n in TIMES] == [0, 1, 2, 3]
    assert [schedule.leaf_at(int(n), "user") for n in TIMES] == TIMES.tolist()
    for n in (1, 8, 10):  # 10: behind the last
        with pytest.raises(RuntimeError, match=f"{n} users is not one of the scheduled times"):
            schedule.leaf_at(n)
    assert leaves_of(schedule, "user") == 10
    whole = Schedule.one_shot(10)
    assert whole.release_times.tolist() == [0, 10]
    assert (whole.releases, leaves_of(whole, "batch"), leaves_of(whole, "user")) == (1, 2, 11)
    endless = Schedule(None)
    assert (endless.leaf_at(7), endless.releases, leaves_of(endless, "batch")) == (7, None, None)
    assert Schedule(None, times=TIMES).releases == 3
    assert Schedule(None, max_releases=5).releases == Schedule(9, max_releases=5).releases == 5


def test_no_more_releases_than_the_schedule_allows() -> None:
    """Of users who may be 4, two releases beside the one before anybody came."""
    query = CountQuery(Layout(3, 2, 4))
    mechanism = CountMechanism(query, Schedule(5, max_releases=2), "seeded", Exact())
    with session_of(mechanism, Seeded(0)) as session:
        assert isinstance(session, ChannelSession)
        assert session.release().number == 0
        for number in (1, 2):
            session.begin(Plan(np.zeros((4, 3), np.int64)))
            session.absent()
            assert session.release().number == number
            assert session.release().users == number  # the same again
        session.begin(Plan(np.zeros((4, 3), np.int64)))
        session.absent()
        with pytest.raises(RuntimeError, match="the schedule has no more, all have been made: 2"):
            session.release()
        with pytest.raises(RuntimeError, match="no plan is open"):
            session.absent()


def test_values_that_hold_arrays_are_compared_as_objects() -> None:
    """Two arrays have no one answer to whether they are equal; such values can stand in sets all the same."""
    query = CountQuery(Layout(3, 2, 4))
    mechanism = CountMechanism(query, Schedule(9), "seeded", Exact())
    with session_of(mechanism, Seeded(0)) as session:
        release = session.release()
    estimate = release.estimates["visits"]
    assert release.measurement is not None
    for one in (
        query, mechanism, Schedule(9), Plan(np.zeros((4, 3), int)), release, estimate, release.measurement,
        Message(1, message=np.zeros(2)), RawEncoder(1),
    ):  # fmt: skip
        assert one == one
        assert one != replace(one)
        assert len({one, replace(one)}) == 2


def test_arrays_of_a_release_are_read_only() -> None:
    tables = {"visits": np.zeros(3), "reward_sums": np.zeros(2)}
    assert read_only(tables) is tables
    for table in tables.values():
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 1.0
