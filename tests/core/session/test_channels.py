"""One session for all streams: its channel is bound to one mechanism, and its state is a table."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_channels import ExactChannel
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Message, Plan, Schedule
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectories, Trajectory

QUERY = CountQuery(Layout(2, 2, 2))
SCHEDULE = Schedule(6, times=np.array([0, 2, 4]))
POLICY = np.zeros((2, 2), np.int64)
LIFE = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([1.0, 0.25]))


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


def opened(privatizer: object = None, source: object = None) -> ChannelSession:
    """A session with an open plan of two users."""
    session = started(privatizer, source)
    session.release()
    session.begin(Plan(POLICY, 2))
    return session


def test_public_facts_of_a_central_session() -> None:
    session = opened(dr.Central(epsilon=1.0, release="batches"))
    assert session.mechanism.records == session._mechanism.records
    assert session.mechanism is not session._mechanism
    assert session.query is not session._mechanism.query
    assert session.records == session._mechanism.records
    assert (session.reports, session.bits, session.refused, session.cut) == (None, False, {}, 0.0)
    assert session.plan_of_devices == session.open_plan
    assert session.context == {}
    assert started().context == {}
    assert set(session.laws_at(2)) == set(QUERY.row_families)


def test_what_a_central_session_has_not_is_refused() -> None:
    session = opened(dr.Central(epsilon=1.0, release="batches"))
    with pytest.raises(ValueError, match="number: must be asked of an open session whose messages contain"):
        _ = session.number
    with pytest.raises(ValueError, match="device: must be asked of a local session, users of others send"):
        _ = session.device
    with pytest.raises(
        ValueError, match="answer: this session stores no users, so it answers no new question"
    ):
        session.answer("question")
    with pytest.raises(ValueError, match="answer: this session stores no users"):
        session._answer("question")
    with session._lock, ThreadPoolExecutor(1) as other:
        asked = other.submit(session._answer, "question")
        with pytest.raises(
            RuntimeError, match="answer: a call on this session is running: it must end first"
        ):
            asked.result()
    with pytest.raises(
        ValueError, match="submit_counted: must be called on a shuffle session, others have no"
    ):
        session.submit_counted(None)
    secure = opened(dr.Central(epsilon=1.0, release="batches"), Secure())
    with pytest.raises(ValueError, match="submit_sum: must not be used with secure randomness"):
        secure.submit_sum({}, 1)


def test_encoders_and_randomizers_are_of_the_open_plan() -> None:
    session = opened()
    for encoder in (session.open_encoder, session.open_randomizer):
        assert encoder(LIFE, session.open_plan, SecureRng()).trajectory is LIFE
    session.absent(2)
    for name in ("open_encoder", "open_randomizer"):
        with pytest.raises(RuntimeError, match="no plan is open: call begin first"):
            getattr(session, name)


def test_orders_of_calls_that_are_refused() -> None:
    session = opened()
    with pytest.raises(RuntimeError, match="release: users of the open plan not submitted yet: 2"):
        session.release()
    with pytest.raises(RuntimeError, match="begin: users of the open plan not submitted yet: 2"):
        session.begin(Plan(POLICY, 2))
    with pytest.raises(ValueError, match=r"message.trajectory = None: this session takes trajectories"):
        session.submit(Message(plan=1))
    with pytest.raises(ValueError, match=r"message is a str: must be"):
        session.submit("text")  # type: ignore[arg-type]


def test_trajectories_are_for_trusted_servers_only() -> None:
    lives = Trajectories(*(np.array([part]) for part in (LIFE.states, LIFE.actions, LIFE.rewards)))
    local = opened(dr.Local(epsilon=1.0))
    with pytest.raises(ValueError, match="submit_many: a local session takes randomized messages only"):
        local.submit_many(lives, 1)
    with pytest.raises(ValueError, match="message is a Trajectory: must be"):
        local.submit(LIFE)
    session = opened()
    with pytest.raises(ValueError, match="trajectories is a str: must be Trajectories"):
        session.submit_many("text", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="plan = 2: must be 1, the plan that is open"):
        session.submit_many(lives, 2)
    session.submit(LIFE)
    session.submit_many(lives, 1)
    assert session.users == 2


def test_nobody_is_left_to_use_a_release() -> None:
    session = opened()
    session.absent(2)
    session.begin(Plan(POLICY, 2))
    session.absent(2)
    session.begin(Plan(POLICY, 2))
    session.absent(2)
    with pytest.raises(
        RuntimeError, match="release: all 6 declared users have arrived, no user is left for it"
    ):
        session.release()


def test_a_plan_of_another_class_is_refused() -> None:
    session = started()
    session.release()
    another = type("Another", (Plan,), {})
    with pytest.raises(ValueError, match="plan = .*: must be a Plan, no subclass"):
        session.begin(another(POLICY, 2))


def test_sessions_whose_messages_bear_a_number_say_it() -> None:
    session = dr.Shuffle(epsilon=1.0, delta=1e-6).start(QUERY, SCHEDULE, Seeded(0))
    assert session.number == session.state["session"]
    assert 0 <= session.number < 2**64
    session.close()


@pytest.mark.parametrize("users", [0, 3, 1.5])
def test_sums_and_absences_are_of_the_users_of_the_plan(users: float) -> None:
    session = opened()
    sums = QUERY.contribution(LIFE)
    with pytest.raises(ValueError, match=rf"users = {users}: must be"):
        session.submit_sum(sums, users)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"users = {users}: must be"):
        session.absent(users)  # type: ignore[arg-type]
    session.submit_sum(sums, 1)
    assert session.users == 1
