"""Sessions are opened by a mechanism and a source alone."""

import inspect
from typing import Any

import numpy as np
import pytest

from discreet import Central, NoPrivacy
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Secure, Seeded
from discreet.mechanisms.batch_queries import BatchChannel
from discreet.mechanisms.open_session import mechanism_reused, session_of


def test_sessions_are_told_nothing_but_a_mechanism_and_a_source() -> None:
    assert list(inspect.signature(BatchChannel).parameters) == ["mechanism", "randomness"]


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="mechanism = 3: must be one of CountMechanism"):
        session_of(3, Seeded(0))


class Counted(Central):
    chosen = 0

    def mechanism(self, *arguments: Any) -> Any:
        type(self).chosen += 1
        return super().mechanism(*arguments)


@pytest.mark.parametrize("source", [lambda run: Seeded(4, run), lambda run: Secure(1024)])
def test_a_mechanism_is_chosen_once_for_the_same_query_and_schedule(source: Any) -> None:
    """The sessions are those that ``start`` opens: equal guarantees, and equal noise if it is seeded."""
    privatizer = Counted(epsilon=1.0, release="tree")
    start, plain = mechanism_reused(privatizer.start), Central(epsilon=1.0, release="tree")
    queries, schedule = [CountQuery(Layout(2, 2, horizon)) for horizon in (1, 3)], Schedule(4)
    before = Counted.chosen
    for run in range(3):
        for query in queries:
            one, other = (begin(query, schedule, source(run)) for begin in (start, plain.start))
            assert one.guarantee == other.guarantee
            for session in (one, other):
                session.release()
                session.begin(Plan(np.zeros((query.layout.horizon, 2), np.int64)))
                session.absent()
            found, expected = (session.release().estimates["visits"].value for session in (one, other))
            assert np.array_equal(found, expected) == (source(run).kind == "seeded")
    assert Counted.chosen == before + len(queries)
    start(queries[0], Schedule(4), source(0)).close()
    assert Counted.chosen == before + len(queries) + 1  # another object may be another schedule


def test_other_ways_to_start_are_left_as_they_are() -> None:
    def start(*_: Any) -> Any:
        raise AssertionError

    assert mechanism_reused(start) is start
    assert mechanism_reused(NoPrivacy.start) is NoPrivacy.start
