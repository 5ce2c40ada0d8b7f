"""One session for all streams: its channel is bound to one mechanism, and its state is a table."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_channels import ExactChannel
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Secure, Seeded
from discreet.core.session import ChannelSession

QUERY = CountQuery(Layout(2, 2, 2))
SCHEDULE = Schedule(6, times=np.array([0, 2, 4]))
POLICY = np.zeros((2, 2), np.int64)


def started(privatizer: object = None, source: object = None) -> ChannelSession:
    """A new session."""
    found = (privatizer or dr.NoPrivacy()).start(QUERY, SCHEDULE, source or Seeded(0))  # type: ignore[attr-defined]
    assert isinstance(found, ChannelSession)
    return found


def test_the_state_is_replaced_when_a_release_is_made() -> None:
    session = started(dr.Central(mu=1.0, release="decaying"))
    session.release()
    session.begin(Plan(POLICY, 2))
    session.absent(2)
    before, draws = session.state, session.state["draws"]
    session.release()
    assert session.state is not before
    assert session.state["draws"] == draws + 1 == before["draws"]  # spent before the noise was drawn


def test_a_closed_session_has_no_state() -> None:
    session = started()
    session.release()
    session.close()
    assert session.state == {}
    with pytest.raises(RuntimeError, match="closed"):
        session.hand_over()


def test_only_a_new_seeded_session_is_handed_over() -> None:
    session = started()
    channel, state = session.hand_over()
    assert isinstance(channel, ExactChannel)
    assert state["cells"].size == QUERY.cells
    with pytest.raises(RuntimeError, match="closed"):
        session.release()
    used = started()
    used.release()
    used.begin(Plan(POLICY, 2))
    secure = started(dr.Central(epsilon=1.0, release="batches"), Secure())
    for other in (used, secure):
        with pytest.raises(RuntimeError, match="only a fresh, seeded session"):
            other.hand_over()


def test_what_a_session_shows_of_its_mechanism_is_a_copy() -> None:
    session = started()
    session.query.offsets[:] = 0
    assert session.query.cells == QUERY.cells
    assert session.mechanism is not session.mechanism
    with pytest.raises(ValueError, match="device: must be asked of a local session"):
        _ = session.device
    assert session.reports is None
    assert session.cut == 0.0
