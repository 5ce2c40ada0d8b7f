"""One call at a time, also after a call that was interrupted and whose frames somebody keeps."""

import contextlib
import copy
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted_at_a_return
from waiting import LIMIT, wait_until

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.lifecycle import Guarded
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

QUERY = CountQuery(Layout(2, 2, 2))
POLICY = np.zeros((2, 2), np.int64)
PARTS = np.array([0, 1, 0]), np.array([1, 0]), np.array([1.0, 0.25])
LIFE = Trajectory(*PARTS)


def opened() -> Any:
    session = Central(epsilon=1.0, release="batches").start(
        QUERY, Schedule(8, times=np.array([0, 2, 4, 6])), Seeded(0)
    )
    session.release()
    session.begin(Plan(POLICY, users=2))
    return session


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.submit(Message(plan=1, trajectory=LIFE)),
        lambda session: session.absent(2),
        lambda session: session.begin(Plan(POLICY, users=1)),
        lambda session: session.release(),
    ],
    ids=["submit", "absent", "begin", "release"],
)
def test_after_an_interrupt_the_next_call_runs_though_the_traceback_is_kept(
    call: Callable[[Any], object],
) -> None:
    """The lock stood in a suspended generator, which the traceback kept: all later calls were refused."""
    call_quietly(call, opened())  # compiles: what the compiler does is not looked at
    for at in range(1000):
        session = opened()
        stop = interrupted_at_a_return(lambda s=session: call_quietly(call, s), at)
        if session.users < 2:
            session.absent(2 - session.users)
        other = threading.Thread(target=session.release, daemon=True)
        other.start()
        other.join(LIMIT)
        assert not other.is_alive(), "the lock is held"
        assert session.release().users == 2
        if stop is None:
            break
        assert stop.__traceback__ is not None
    assert 0 < at < 999


def call_quietly(call: Callable[[Any], object], session: Any) -> None:
    """Refusals are calls too."""
    with contextlib.suppress(RuntimeError):
        call(session)


def test_what_is_shown_of_a_session_is_public_and_says_its_whole_claim() -> None:
    session = opened()
    assert repr(session) == "<ChannelSession trust='joint', epsilon=1.0, users=0>"
    session.close()
    assert repr(session) == "<ChannelSession trust='joint', epsilon=1.0, closed>"
    approximate = Central(epsilon=1.0, delta=1e-6, release="decaying").start(
        QUERY, Schedule(8, times=np.array([0, 2, 4, 6])), Seeded(0)
    )
    assert ", delta=1e-06, users=0>" in repr(approximate)
    assert repr(object.__new__(type(session))) == "<ChannelSession closed>"  # of which nothing is set


def test_who_closes_out_of_a_running_call_takes_no_memory_from_it() -> None:
    """A signal's handler closes while compiled code adds records: that call ends, and then all is dropped."""
    states = 20
    query = CountQuery(Layout(states, 2, 2), center_rewards=True, visits=False)
    session = Central(epsilon=1.0).start(query, Schedule(200_000, times=np.array([0, 150_000])), Seeded(0))
    session.release()
    session.begin(Plan(np.zeros((2, states), int), 150_000))

    def people(n: int) -> Trajectories:
        return Trajectories(np.full((n, 3), states - 1), np.ones((n, 2), int), np.full((n, 2), 0.3))

    session.submit_many(people(10), 1)  # compiled
    all_of_them = people(100_000)
    before = signal.signal(signal.SIGALRM, lambda *_: session.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        with contextlib.suppress(RuntimeError):
            session.submit_many(all_of_them, 1)
            wait_until(lambda: session._closed)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(RuntimeError, match="is closed"):
        session.absent()
    wait_until(lambda: session.state == {})


def test_a_fork_forgets_without_waiting_for_a_lock_that_nobody_there_can_give_back() -> None:
    session = opened()
    session.absent(2)
    held = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with session._lock:
            held.set()
            done.wait(LIMIT)

    other = threading.Thread(target=hold, daemon=True)
    other.start()
    held.wait(LIMIT)
    session._process += 1
    session.close()
    assert session.state == {}
    assert session._closed
    assert session._last is None
    done.set()
    other.join(LIMIT)


def test_who_closes_waits_for_the_call_that_another_thread_makes() -> None:
    session, held, done = opened(), threading.Event(), threading.Event()

    def hold() -> None:
        with session._call():
            held.set()
            done.wait(LIMIT)

    other = threading.Thread(target=hold, daemon=True)
    other.start()
    held.wait(LIMIT)
    closing = threading.Thread(target=session.close, daemon=True)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    assert session.state["cells"].size > 0
    done.set()
    closing.join(LIMIT)
    assert session.state == {}


PRIVATIZERS = {
    "none": (NoPrivacy(), {}),
    "tree": (Central(epsilon=1.0, release="tree"), {}),
    "batches": (Central(epsilon=1.0, release="batches"), {}),
    "groups": (Central(mu=1.0, release="decaying"), {"groups": 2, "clip": 1.0}),
    "cut": (NoPrivacy(), {"visits": False, "center_rewards": True, "cut": 1.0}),
    "device": (Local(epsilon=1.0, randomizer="laplace"), {}),
    "reports": (Local(epsilon=1.0, randomizer="subset"), {}),
}


@pytest.mark.parametrize("name", PRIVATIZERS)
def test_who_closes_forgets_sums_noise_and_releases(name: str) -> None:
    """Whatever a session holds for each cell: raw sums, decaying ones, running noise, the last release."""
    privatizer, options = PRIVATIZERS[name]
    query = CountQuery(QUERY.layout, **options)  # type: ignore[arg-type]
    schedule = Schedule(
        8,
        times=np.array([0, 2, 4, 6]),
        reads="measurements" if name in ("groups", "cut") else "sums",
    )
    session: Any = privatizer.start(query, schedule, Seeded(0))  # type: ignore[attr-defined]
    for _ in range(2):
        session.release()
        session.begin(Plan(POLICY, users=2, group=0 if "groups" in options else None))
        session.absent(2)
    session.release()

    def held() -> list[str]:  # but for what a message may hold, which is public
        tables = vars(session) | session.state
        arrays = {key: value for key, value in tables.items() if isinstance(value, np.ndarray)}
        return [key for key, value in arrays.items() if value.size >= query.cells]

    assert "cells" in held()
    session.close()
    assert session._last is None
    assert held() == []
    assert session.state == {}


def test_a_copy_of_a_session_is_refused() -> None:
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a session cannot be pickled or copied: the copy would draw the"):
            call(opened())


def test_what_is_shown_of_an_object_without_users() -> None:
    assert repr(Guarded()) == "<Guarded >"
    with Guarded() as held:
        pass
    assert repr(held) == "<Guarded closed>"


def test_a_call_inside_a_call_and_in_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened()
    with session._lock, pytest.raises(RuntimeError, match="a call on this session is running in this thread"):
        session.release()
    monkeypatch.setattr(os, "getpid", lambda: session._process + 1)
    with pytest.raises(RuntimeError, match="this session was started in another process: a copy would draw"):
        session.release()
    session.close()
    assert session.state == {}


def test_an_interrupted_save_ends_the_session() -> None:
    session = opened()
    session._saving = True
    with pytest.raises(RuntimeError, match="a save of this session was interrupted: save it again, or close"):
        session.release()


def test_who_closes_inside_a_call_drops_the_data_when_that_call_has_ended() -> None:
    session = opened()
    with session._call():
        session.close()
        assert session._closed
        assert session.state != {}
    wait_until(lambda: session.state == {})
