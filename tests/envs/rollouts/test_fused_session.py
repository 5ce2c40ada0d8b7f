"""A session that is handed to the compiled loop: fresh, seeded, of known size, and closed afterwards."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Seeded
from discreet.envs.rollouts.fused_session import handed_over

QUERY = CountQuery(Layout(2, 2, 3))
CENTRAL = dr.Central(epsilon=1.0, release="tree", noise="laplace")


def test_arrays_are_those_of_the_mechanism_and_the_session_ends() -> None:
    session = CENTRAL.start(QUERY, Schedule(10), Seeded(3))
    mechanism = CENTRAL.mechanism(QUERY, Schedule(10), Seeded(3))
    found = handed_over(session)
    np.testing.assert_array_equal(found.key, Seeded(3).keys.noise)
    np.testing.assert_array_equal(found.scales, mechanism.scales)
    assert found.offsets.tolist() == QUERY.offsets.tolist()
    assert (found.family, found.cells.size) == (mechanism.family, QUERY.cells)
    with pytest.raises(RuntimeError, match="closed"):
        session.release()
    with pytest.raises(RuntimeError, match="closed"):
        handed_over(session)


def test_used_and_open_ended_sessions_are_refused() -> None:
    used = CENTRAL.start(QUERY, Schedule(10), Seeded(3))
    used.begin(Plan(np.zeros((3, 2), np.int64), 5))
    for session in (
        used,
        CENTRAL.start(QUERY, Schedule(None), Seeded(3)),
    ):
        with pytest.raises(RuntimeError, match="only a fresh, seeded session"):
            handed_over(session)
