"""Releases: a failing learner, other plans, another guarantee, and two threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import Clocked, a_study, a_writer, begun
from serving import stopped as time

from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.service import encoding as codec
from discreet.service import release_worker as turns
from discreet.service.database import StaleWriter
from discreet.service.study_config import Study

from .test_database import a_batch


def test_a_writer_that_was_paused_is_not_heard(tmp_path: Path) -> None:
    """Two writers draw noise for one batch; one release is stored, and the other one is seen by nobody."""
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    a_batch(study, store)
    clock = [time.time()]
    second = turns.Writer(study, store, "two", Clocked(lambda: clock[0]))

    def paused() -> None:  # between noise and commit
        clock[0] += 100.0
        assert second.hold()
        assert second.step()

    first = turns.Writer(study, store, "one", Clocked(lambda: clock[0]), paused)
    assert first.hold()
    with pytest.raises(StaleWriter):
        first.step()
    shown = store.release(1)
    assert first.token is None
    assert not first.step()  # it has no lease, and does nothing
    assert store.release(1) == shown
    assert store.about()["turn"] == 1
    clock[0] += 100.0
    a_batch(study, store)
    assert first.hold()  # the same process, with a new token
    first._before_commit = lambda: None
    assert first.step()
    assert store.about()["turn"] == 2


def test_a_learner_that_plans_otherwise_than_it_did_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    writer = a_writer(study, store)
    for _ in range(2):
        a_batch(study, store)
        assert writer.step()
    a_batch(study, store)
    fresh = turns.Writer(study, store, "two", Clocked(lambda: time.time() + 100))
    assert fresh.hold()
    plan = type(study.learner).plan

    def other(self: Any, *given: Any) -> Any:
        made, state = plan(self, *given)
        return turns.Plan(1 - made.policy, made.users, last=made.last), state

    with monkeypatch.context() as patch:
        patch.setattr(type(study.learner), "plan", other)
        with pytest.raises(RuntimeError, match="makes other plans"):
            fresh.step()
    assert fresh.step()


class Failing:
    """A learner that cannot go on from some releases."""

    learner_version = NoiseAwareUCBVI.learner_version

    def __init__(self, study: Study) -> None:
        self.learner, self.seen = study.learner, list[bytes]()
        self.fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        if release.number == 1:
            self.seen.append(codec.exact(release))
            if self.fails:
                raise ArithmeticError("what was drawn does not suit this learner")
        return self.learner.plan(state, release, ask)


def test_a_release_that_a_learner_fails_at_is_the_release_all_the_same(tmp_path: Path) -> None:
    """Were it drawn again, what is shown would be what the learner likes: two looks at one batch."""
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    failing = Failing(study)
    other = replace(study, learner=failing)
    a_batch(study, store)
    for again in range(3):
        writer = turns.Writer(other, store, "one", time)
        assert writer.hold()
        failing.fails = again < 2
        if failing.fails:
            with pytest.raises(ArithmeticError):
                writer.step()
            assert store.about()["turn"] == 0
        else:
            assert writer.step()
        writer.release_lease()
    assert len(failing.seen) == 3
    assert set(failing.seen) == {store.exact_release(1)}
    assert store.about()["turn"] == 1


def test_two_threads_that_take_the_lease_at_once_have_it(tmp_path: Path) -> None:
    """One keeps it while a turn is made, one before people's times are looked at."""
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    inner, both = store.lease, threading.Barrier(2)
    for again in range(10):
        now = time.time() + 100.0 * again  # the last one ran out
        writer = turns.Writer(study, store, "one", Clocked(lambda now=now: now))  # type: ignore[misc]

        def slow(*given: Any) -> int | None:
            threading.Event().wait(0.002)
            return inner(*given)

        def take(writer: Any = writer) -> bool:
            both.wait()
            return bool(writer.hold())

        store.lease = slow  # type: ignore[method-assign]
        with ThreadPoolExecutor(2) as pool:
            assert [one.result() for one in [pool.submit(take), pool.submit(take)]] == [True, True]
        assert writer.token is not None
        assert store.keep(writer.token, now, 5.0)
