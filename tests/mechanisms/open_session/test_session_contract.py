"""What every session promises: one test for each promise, of all kinds in ``helpers/session_kinds.py``."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import os
import pickle
import pkgutil
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import called_within, interrupted
from session_kinds import KINDS, POLICY, SOURCES, USERS, Kind, Run, Shown, Stream, broken, record, shown
from waiting import LIMIT

import discreet as dr
from discreet.core.lifecycle import Guarded, Saveable
from discreet.core.releases import Message, Plan
from discreet.core.rng import Seeded
from discreet.device.message_envelope import MessageRejected
from discreet.mechanisms.dataset.dataset_release import OneShotRelease
from discreet.mechanisms.linear.context_sums import ContextSums
from discreet.mechanisms.linear.linear_queries import MixtureQuery
from discreet.mechanisms.linear.linear_session import Answers
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.restore_session import brought_back
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import taken_out
from discreet.pipeline.context_judges import ContextJudges
from discreet.pipeline.judge_group import JudgeGroup

PARTS = {
    Saveable: "the base class of all sessions",
    Answers: "answers the questions of a session of sums, which owns it",
    OneShotRelease: "what a session of stored people leaves",
    ContextSums: "holds stored visits, releases once, and is opened by `learn`",
    ContextJudges: "holds users who answer one question about a policy of contexts, and is opened by `learn`",
    JudgeGroup: "holds users who answer one question about a policy, and is opened by `learn`",
}
"""Guarded classes that no function opens as a session, and why."""

SOURCE = Path(dr.__file__).parent
VALUES = {
    *(
        "checks",
        "count_mechanism",
        "count_query",
        "events",
        "guarantee",
        "layout",
        "registry",
        "releases",
        "rng",
    ),
    *("short_repr", "trajectories", "features", "linear_mechanism", "linear_queries", "sensitivities"),
    *("shuffle_mechanisms", "randomized_response", "randomized_response_strategy", "discrete_samplers"),
}
"""Modules of frozen values, of pure checks and of samplers, which no interrupt can leave half changed."""
FILES = tuple(
    path.relative_to(SOURCE).as_posix()
    for folder in ("core", "mechanisms")
    for path in sorted((SOURCE / folder).rglob("*.py"))
    if path.stem not in VALUES and not path.stem.endswith("kernels")
)
DENSE = {"exact", "tree", "batches", "vectors", "linear local", "exact queries", "data set"}
"""Kinds that are interrupted at every line, also in the fast suite: they share little of their code."""
CASES = [(kind, source) for kind in KINDS.values() for source in kind.sources]
STREAMS = [case for case in CASES if isinstance(case[0], Stream)]
SEEDED = [case for case in CASES if case[1] == "seeded"]  # where the source of noise makes no difference
SEEDED_STREAMS = [case for case in STREAMS if case[1] == "seeded"]
QUERIES = tuple(name for name in KINDS if "queries" in name)
SHUFFLED = tuple(name for name in KINDS if "shuffle" in name or "amplified" in name)


def every(cases: list[tuple[Any, str]]) -> Any:
    """Run a test for each case."""
    named = [pytest.param(*case, id=f"{case[0].name}-{case[1]}") for case in cases]
    return pytest.mark.parametrize(("kind", "source"), named)


slow = pytest.mark.statistics
thorough = pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=slow)])
"""Some lines or moments, chosen by turns, in the fast suite; all of them in the slow one."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "table"))
    return tmp_path / "table"


# ------------------------------------------------------------------------------ comparisons


@cache
def whole(kind: Kind, source: str) -> list[Shown]:
    """Return all that an undisturbed session shows."""
    return Run(kind, source).finish()


def ready(kind: Kind, source: str) -> Run:
    """Return a run in which the users of :meth:`Kind.last` are awaited."""
    return Run(kind, source).until(kind.midway)


def same(kind: Kind, source: str, found: list[Shown], expected: list[Shown]) -> bool:
    """Are two runs equal bit for bit? Of secure noise, which differs, the public facts are compared."""
    fixed = source == "seeded" or not kind.noisy
    return [one.facts for one in found] == [one.facts for one in expected] and (
        not fixed or all(equal(a, b) for a, b in zip(found, expected, strict=True))
    )


def equal(one: Shown, other: Shown) -> bool:
    """Are the values of two outputs equal bit for bit?"""
    pairs = zip(one.values, other.values, strict=True)
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def assert_undisturbed(run: Run) -> None:
    """Check that a run ends as one that nobody disturbed."""
    kind, source = run.kind, run.source
    assert same(kind, source, run.finish(), whole(kind, source))


# ------------------------------------------------------------------------------ the registry


def classes(base: type) -> Iterator[type]:
    """Yield all classes below ``base``."""
    for kind in base.__subclasses__():
        yield kind
        yield from classes(kind)


def is_mechanism(value: Any) -> bool:
    """Is this a class with what every mechanism has?"""
    names = ("guarantee", "laws_at", "trust")
    return (
        isinstance(value, type)
        and not inspect.isabstract(value)
        and not getattr(value, "_is_protocol", False)
        and "query" in getattr(value, "__dataclass_fields__", {})
        and all(hasattr(value, name) for name in names)
    )


def test_the_registry_names_every_class_of_sessions_and_of_mechanisms() -> None:
    """A class that is not in it would keep no promise that is tested here."""
    mechanisms = set()
    for module in pkgutil.walk_packages(dr.__path__, "discreet."):
        if module.name.startswith(("discreet.core.", "discreet.mechanisms.")):
            found = importlib.import_module(module.name)
            mechanisms |= {one for one in vars(found).values() if is_mechanism(one)}
    sessions = {
        kind
        for kind in classes(Guarded)
        if kind.__module__.startswith("discreet.") and not inspect.isabstract(kind)
    }
    opened = {type(kind.open(source)) for kind, source in CASES}
    assert sessions - opened == set(PARTS), "add a kind to tests/helpers/session_kinds.py"
    used = {type(kind.mechanism(source)) for kind, source in STREAMS}
    assert len(used) == 6
    assert mechanisms - used == set(), "add a kind to tests/helpers/session_kinds.py"


# ------------------------------------------------------------------------------ order of calls


@every(SEEDED_STREAMS)
def test_calls_out_of_order_are_refused_and_change_nothing(kind: Stream, source: str) -> None:
    run = Run(kind, source).until("0 due")
    session = run.session
    early: list[Callable[[], Any]] = [
        session.absent, lambda: session.submit(Message(0)), lambda: session.open_plan,
        lambda: session.open_encoder,
    ]  # fmt: skip
    for call in early:
        with pytest.raises(RuntimeError, match="no plan is open: call begin first"):
            call()
    first = session.release()
    assert (first.users, first.number) == (0, 0)
    assert session.release() is first
    run.until("0 open")
    for call in (session.release, lambda: session.begin(kind.plan(0))):
        with pytest.raises(RuntimeError, match="users of the open plan not submitted yet: 2"):
            call()
    assert (session.open_plan.number, session.open_plan.users) == (1, 2)
    run.until("0 midway")
    for call in (session.release, lambda: session.begin(kind.plan(0))):
        with pytest.raises(RuntimeError, match="users of the open plan not submitted yet: 1"):
            call()
    run.until("1 due")
    for call in early[:1] + early[2:]:
        with pytest.raises(RuntimeError, match="no plan is open: call begin first"):
            call()
    assert_undisturbed(run)


@every(SEEDED_STREAMS)
def test_plans_that_do_not_fit_open_nothing(kind: Stream, source: str) -> None:
    class Sly(Plan):
        pass

    run = Run(kind, source).until("0 told")
    session, fits = run.session, kind.plan(0)
    changes: list[dict[str, Any]] = [
        {"users": users} for users in (0, -1, 1.5, True, None, USERS + 1) if users != USERS + 1 or kind.ends
    ]
    if isinstance(kind.query, MixtureQuery):
        changes += [{"context": {}}]
    changes += [{"policy": POLICY[1:]}, {"policy": np.zeros((2, 2, 3))}]
    steered = {"group": 0, "return_share": 0.5, "forget": True, "cut": 1.5}
    told = {name for plan in kind.plans for name in plan}
    if "group" in told:
        told |= {"return_share", "forget"}
        changes += [{"group": group} for group in (None, -1, 2, 0.0)]
    changes += [{name: value} for name, value in steered.items() if name not in told]
    for change in changes:
        with pytest.raises(ValueError, match="plan|values"):
            session.begin(replace(fits, **change))
        with pytest.raises(RuntimeError, match="no plan is open"):
            _ = session.open_plan
    with pytest.raises(ValueError, match="no subclass"):
        session.begin(Sly(fits.policy, 2, **kind.plans[0]))
    assert session.users == 0
    assert_undisturbed(run)


@every(SEEDED_STREAMS)
def test_a_plan_that_is_not_the_last_of_its_batch_is_answered_by_the_last_release(
    kind: Stream, source: str
) -> None:
    run = Run(kind, source).until("0 told")
    session, found = run.session, []
    before = session.release()
    for users, last in ((1, False), (1, True)):
        session.begin(replace(kind.plan(0, users), last=last))
        session.submit(kind.message(session, source, session.users))
        found.append(session.release())
        assert session.release() is found[-1]
    assert found[0] is before
    expected = outcomes(kind, source)[0][0]
    assert same(kind, source, [shown(found[1])], [expected])


@every([case for case in SEEDED_STREAMS if case[0].ends])
def test_releases_come_at_the_scheduled_times_and_for_somebody(kind: Stream, source: str) -> None:
    run = Run(kind, source).until("1 told")
    session = run.session

    def one_comes() -> None:
        session.begin(kind.plan(1, 1))
        session.submit(kind.message(session, source, session.users))

    one_comes()
    with pytest.raises(RuntimeError, match="3 users is not one of the scheduled times"):
        session.release()
    one_comes()
    assert session.release().users == 4
    for _ in range(2):
        one_comes()
    assert session.release().users == 6
    with pytest.raises(
        ValueError, match="plan.users = 2: 6 of 7 declared users have arrived, at most 1 are left"
    ):
        session.begin(kind.plan(2))
    one_comes()
    with pytest.raises(RuntimeError, match="all 7 declared users have arrived, no user is left for it"):
        session.release()
    with pytest.raises(ValueError, match="7 of 7 declared users have arrived"):
        session.begin(kind.plan(2, 1))


@every([case for case in SEEDED_STREAMS if not case[0].asks])
def test_a_session_that_stores_nobody_answers_no_question(kind: Stream, source: str) -> None:
    run = Run(kind, source).until("1 told")
    with pytest.raises(ValueError, match="stores no users, so it answers no new question"):
        run.session.answer(kind.question(0))
    assert_undisturbed(run)


# ------------------------------------------------------------------------------ messages


@every(CASES)
def test_wrong_messages_are_refused_before_anything_changes(kind: Kind, source: str) -> None:
    run = ready(kind, source)
    users = run.session.users
    for call in kind.wrong(run.session, source):
        with pytest.raises(ValueError):
            call()
        assert run.session.users == users
    assert_undisturbed(run)


@every(SEEDED_STREAMS)
def test_a_message_that_names_another_plan_is_refused(kind: Stream, source: str) -> None:
    run = ready(kind, source)
    good = kind.message(run.session, source, 1)
    for number in (good.plan - 1, good.plan + 1):
        with pytest.raises(ValueError, match="plan"):
            run.session.submit(replace(good, plan=number))
    assert_undisturbed(run)


@every(
    [
        case
        for case in STREAMS
        if case[1] == "secure" and isinstance(case[0].privatizer, dr.Local | dr.Shuffle)
    ]
)
def test_the_bytes_of_a_device_count_once(kind: Stream, source: str) -> None:
    """Also in the session that goes on from a saved one."""
    session = Run(kind, source).until("0 open").session
    sent = [kind.sealed(session, source, i) for i in range(2)]
    session.submit(sent[0])
    for _ in range(2):
        with pytest.raises(MessageRejected, match="came before"):
            session.submit(sent[0])
        assert session.users == 1
        session = brought_back(taken_out(session))
    session.submit(sent[1])
    with pytest.raises(MessageRejected, match="came before"):
        session.submit(sent[1])
    assert session.release().users == 2


@every(SEEDED_STREAMS)
def test_messages_that_come_late_are_refused(kind: Stream, source: str) -> None:
    run = ready(kind, source)
    late = kind.message(run.session, source, 1)
    encode = run.session.open_encoder
    run.until("1 due")
    with pytest.raises((RuntimeError, ValueError)):
        run.session.submit(late)
    run.until("1 open")
    users = run.session.users
    with pytest.raises(ValueError, match=r"plan"):
        run.session.submit(late)
    with pytest.raises(ValueError, match=r"plan.number = 2: must be 1"):
        encode(kind.record(2), run.session.open_plan, kind.coins(source, 2))
    assert run.session.users == users
    assert_undisturbed(run)


@every(STREAMS)
def test_a_secure_session_takes_neither_seeded_coins_nor_simulated_sums(kind: Stream, source: str) -> None:
    run = ready(kind, source)
    if source == "secure":
        with pytest.raises(ValueError, match="submit_sum: must not be used with secure randomness"):
            run.session.submit_sum({}, 1)
    encode, plan = run.session.open_encoder, run.session.open_plan
    if not kind.raw(run.session):
        if source == "secure":
            with pytest.raises(ValueError, match="coins"):
                encode(kind.record(1), plan, kind.coins("seeded", 1))
        for bad in broken(record(1)):
            with pytest.raises(ValueError):
                encode(bad, plan, kind.coins(source, 1))
    assert_undisturbed(run)


# ------------------------------------------------------------------------------ interrupts


@cache
def outcomes(kind: Kind, source: str) -> tuple[list[Shown], list[Shown]]:
    """Return what is released after the last users came, and after they were absent."""
    came, absent = ready(kind, source).session, ready(kind, source).session
    kind.last(came, source)()
    absent.absent(kind.adds)
    return kind.end(came), kind.end(absent)


def assert_one_of(kind: Kind, source: str, found: list[Shown]) -> None:
    """Check that each array holds the last users as a whole, or nothing of them."""
    if source == "secure" and kind.noisy:
        return
    for one, *both in zip(found, *outcomes(kind, source), strict=True):
        for i, value in enumerate(one.values):
            assert any(np.array_equal(value, other.values[i]) for other in both)


def lines(kind: Kind, source: str, all_of_them: bool, dense: str = "") -> Iterator[int]:
    """Yield the lines at which to interrupt. Kinds that share most of their code share the lines, too."""
    step = 12 if source == "seeded" else 5 if kind.redraws else 60
    if all_of_them or (source == "seeded" and kind.name in DENSE | {dense}):
        step = 1
    yield from range([*KINDS].index(kind.name) % step, 5000, step)
    raise AssertionError("the call does not end")


@thorough
@every(CASES)
def test_an_interrupt_adds_nobody_who_is_not_counted(kind: Kind, source: str, all_of_them: bool) -> None:
    """In the other order, a record could be in a release of the users before it, or be added twice."""
    for at in lines(kind, source, all_of_them):
        session = ready(kind, source).session
        before, last, came = session.users, kind.last(session, source), True
        more = interrupted(last, at, files=FILES)
        assert session.users in (before, before + kind.adds)
        if session.users == before:
            try:
                last()
            except ValueError:
                session.absent(kind.adds)
                came = False
        assert session.users == before + kind.adds
        if came:
            with pytest.raises((RuntimeError, ValueError)):
                last()
        assert_one_of(kind, source, kind.end(session))
        if not more:
            break


@thorough
@every(SEEDED)
def test_an_interrupt_counts_an_absent_user_once(kind: Kind, source: str, all_of_them: bool) -> None:
    for at in lines(kind, source, all_of_them, "answers"):
        session = ready(kind, source).session
        before = session.users
        more = interrupted(session.absent, at, files=FILES)
        assert session.users in (before, before + 1)
        missing = before + kind.adds - session.users
        if missing:
            session.absent(missing)
        assert session.users == before + kind.adds
        assert same(kind, source, kind.end(session), outcomes(kind, source)[1])
        if not more:
            break


@thorough
@every(SEEDED_STREAMS)
def test_an_interrupt_opens_a_plan_or_none(kind: Stream, source: str, all_of_them: bool) -> None:
    for at in lines(kind, source, all_of_them, "shuffle"):
        session = Run(kind, source).until("0 told").session
        more = interrupted(lambda session=session: session.begin(kind.plan(0)), at, files=FILES)
        assert session.users == 0
        try:
            _ = session.open_plan
        except RuntimeError:
            try:
                session.begin(kind.plan(0))
            except RuntimeError:
                if not kind.loses:
                    raise
                continue  # a batch whose opening was interrupted is not opened again
        for i in range(2):
            session.submit(kind.message(session, source, i))
        assert same(kind, source, kind.end(session), outcomes(kind, source)[0])
        if not more:
            break


@thorough
@every(STREAMS)
def test_an_interrupted_release_is_made_once(kind: Stream, source: str, all_of_them: bool) -> None:
    """The next call makes it, or tells of the last one; the batch is in no other release."""
    expected = whole(kind, source)
    for at in lines(kind, source, all_of_them, "linear batches"):
        run = Run(kind, source).until("2 due")
        more = interrupted(run.session.release, at, files=FILES)
        found = run.session.release()
        assert run.session.release() is found
        assert found.users == 4 or (kind.loses and found.users == 2)
        later = run.finish()
        if found.users == 4:
            assert [one.facts for one in later] == [one.facts for one in expected]
            assert kind.redraws or same(kind, source, later, expected)
        if not more:
            break


# ------------------------------------------------------------------------------ one call at a time


@cache
def middle(kind: Kind, source: str, release: bool = False) -> int:
    """Return the middle line of the call that adds the last users, or of the release after it."""
    session = ready(kind, source).session
    add = kind.last(session, source)
    lines = called_within(add, -2, lambda: None, files=FILES)
    if release:
        lines = called_within(session.release, -2, lambda: None, files=FILES)
    return lines // 2


@every(SEEDED)
def test_a_call_within_a_call_is_refused(kind: Kind, source: str, tmp_path: Path) -> None:
    """By a signal's handler, or by the code of a caller's array."""
    session = ready(kind, source).session
    calls, users = kind.calls(session, source, tmp_path / "a"), session.users

    def visit() -> None:
        for name, call in {**calls, "taken out": lambda: taken_out(session)}.items():
            with pytest.raises(RuntimeError, match="is running"):
                call()
            assert session.users in (users, users + kind.adds), name

    called_within(kind.last(session, source), middle(kind, source), visit, files=FILES)
    assert same(kind, source, kind.end(session), outcomes(kind, source)[0])


@every(SEEDED)
def test_a_session_that_is_closed_within_a_call_ends_with_that_call(kind: Kind, source: str) -> None:
    session = ready(kind, source).session
    with contextlib.suppress(RuntimeError):
        called_within(kind.last(session, source), middle(kind, source), session.close, files=FILES)
    with pytest.raises(RuntimeError, match="closed"):
        session.absent()


@every(SEEDED)
def test_a_call_of_another_thread_waits(kind: Kind, source: str) -> None:
    """Two calls at once could draw two noises for one sum."""
    for releasing in (False, True) if isinstance(kind, Stream) else (False,):
        session, got = ready(kind, source).session, []
        call = kind.last(session, source)
        if releasing:
            call()
            call = session.release
        other = session.release if isinstance(kind, Stream) else session.absent
        thread = threading.Thread(target=lambda other=other, got=got: got.append(other()), daemon=True)

        def visit(thread: threading.Thread = thread, got: list[Any] = got) -> None:
            thread.start()
            thread.join(0.001)
            assert got == []

        called_within(call, middle(kind, source, releasing), visit, files=FILES)
        thread.join(LIMIT)
        assert len(got) == 1
        if isinstance(kind, Stream):
            assert session.release() is got[0]
            assert same(kind, source, kind.end(session), outcomes(kind, source)[0])


# ------------------------------------------------------------------------------ one copy


@every(SEEDED)
def test_a_session_is_neither_copied_nor_pickled(kind: Kind, source: str) -> None:
    run = ready(kind, source)
    for attack in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(
            TypeError, match="cannot be pickled or copied: the copy would draw the same noise"
        ):
            attack(run.session)
    assert_undisturbed(run)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_can_only_close_a_session(tmp_path: Path) -> None:
    """Of every kind, in one child. A fork has the same sums, and would draw other noise for them."""
    runs = [ready(kind, source) for kind, source in SEEDED]
    calls = []
    for run in runs:
        own = run.kind.calls(run.session, run.source, tmp_path / "a")
        own["taken out"] = lambda session=run.session: taken_out(session)  # type: ignore[misc]
        calls += [(f"{run.kind.name}, {name}", call) for name, call in own.items()]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for name, call in calls:
            try:
                call()
                said.append(f"{name}: was answered")
            except BaseException as error:
                if not (isinstance(error, RuntimeError) and "another process" in str(error)):
                    said.append(f"{name}: {error!r}")
        for run in runs:
            run.session.close()
        os.write(writer, "; ".join(said).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        assert answers.read() == ""
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(calls) > 200
    assert not (tmp_path / "a").exists()
    for run in runs:
        assert_undisturbed(run)


@every(SEEDED)
def test_a_closed_session_answers_no_call(kind: Kind, source: str, tmp_path: Path) -> None:
    for way in ("close", "with", "save", "taken out"):
        session = ready(kind, source).session
        calls = kind.calls(session, source, tmp_path / "a")
        calls["taken out"] = lambda session=session: taken_out(session)
        match way:
            case "close":
                session.close()
            case "with":
                with session as one:
                    assert one is session
            case "save":
                session.save(tmp_path / "b")
            case _:
                taken_out(session)
        for call in calls.values():
            with pytest.raises(RuntimeError, match="is closed: start another one"):
                call()
        session.close()  # again
        assert "closed" in repr(session)
    assert not (tmp_path / "a").exists()


# ------------------------------------------------------------------------------ save and restore


@every(CASES)
def test_a_saved_session_goes_on_once(kind: Kind, source: str, tmp_path: Path, folder: Path) -> None:
    """At all moments one after another: a seeded run is that of a session that was never saved."""
    place = tmp_path / "files"
    place.mkdir()

    def again(session: Any, moment: str) -> Any:
        if source == "secure" and moment != kind.midway:
            return session
        users, path = session.users, place / moment
        session.save(path)
        assert path.stat().st_mode & 0o777 == 0o600
        if moment == kind.midway:
            shutil.copy(path, tmp_path / "copy")
        new = dr.mechanisms.restore(path)
        assert type(new) is type(session)
        assert (new.guarantee, new.users) == (session.guarantee, users)
        return new

    assert same(kind, source, Run(kind, source).finish(again), whole(kind, source))
    assert not list(place.iterdir())  # no raw sums are left lying about
    with pytest.raises(RuntimeError, match="or a copy of it, was restored"):
        dr.mechanisms.restore(tmp_path / "copy")


@thorough
@every(SEEDED)
def test_a_session_goes_on_from_its_bytes(kind: Kind, source: str, all_of_them: bool) -> None:
    """At single moments."""
    first, step = (
        ([*KINDS].index(kind.name) % len(kind.moments), len(kind.moments)) if not all_of_them else (0, 1)
    )
    for at in kind.moments[first::step]:

        def again(session: Any, moment: str, at: str = at) -> Any:
            return brought_back(taken_out(session)) if moment == at else session

        assert same(kind, source, Run(kind, source).finish(again), whole(kind, source)), at


TRANSLATING = (
    *("_call", "_calling_here", "_encode", "_decode", "check", "check_same_kind", "__getitem__", "__init__"),
    *("__post_init__", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"),
)
"""Functions that translate values before anything is written or taken: one line stands for the others."""
DENSE_FILES = {
    "save": {"batches", "answers", "shuffle", "exact queries", "data set", "responses"},
    "restore": {"tree", "data set", "responses"},
}


# a file may be left to the garbage collector between the end of its `with` and the call that closes it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kind", "source", "doing"),
    [
        pytest.param(
            kind, source, doing, id=f"{kind.name}-{doing}", marks=slow if kind.name not in dense else ()
        )
        for kind, source in SEEDED
        for doing, dense in DENSE_FILES.items()
    ],
)
def test_an_interrupt_leaves_the_session_in_one_place(
    kind: Kind, source: str, doing: str, tmp_path: Path, folder: Path
) -> None:
    step = 1 if kind.name in DENSE_FILES[doing] else 9
    for at in range(7 * [*KINDS].index(kind.name) % step, 5000, step):
        session, place, got = kind.open(source), tmp_path / f"{at}", []
        if isinstance(kind, Stream):
            session.begin(kind.plan(0))
        place.mkdir()
        if doing == "restore":
            session.save(place / "a")

        def call(session: Any = session, path: Path = place / "a", got: list[Any] = got) -> None:
            if doing == "save":
                session.save(path)
            else:
                got.append(dr.mechanisms.restore(path))

        more = interrupted(call, at, files=FILES, besides=TRANSLATING)
        assert not (more and got)
        found = [session, *got]
        for path in place.iterdir():
            with contextlib.suppress(ValueError, RuntimeError):  # a held name, or a file that was taken
                found.append(dr.mechanisms.restore(path))
        live = []
        for one in found:
            with contextlib.suppress(RuntimeError):  # closed, or its save was interrupted
                one.absent(2)
                live.append(one.users)
        assert live == [2], at
        assert doing == "restore" or not list(place.iterdir())  # nothing is left of what was withdrawn
        if not more:
            break
    else:
        raise AssertionError("the call does not end")


# ------------------------------------------------------------------------------ what was declared


@every(SEEDED_STREAMS)
def test_what_is_no_source_of_randomness_is_refused(kind: Stream, source: str) -> None:
    for randomness in (None, 5, np.random.default_rng(0)):
        with pytest.raises(ValueError, match="randomness"):
            session_of(kind.mechanism(source), randomness)  # type: ignore[arg-type]


@every(SEEDED)
def test_what_was_declared_cannot_be_changed_from_outside(kind: Kind, source: str) -> None:
    own = Seeded(5)
    run = Run(kind, source, own)
    own.keys.noise[:] = 0
    own.keys.ties[:] = 0
    session = run.session
    guarantee = session.guarantee
    assert guarantee.randomness == source
    query = getattr(session, "query", None)
    if query is not None:
        query.offsets[:] = 0
        query.layout.row_index[:] = 0
        assert session.query is not query
    assert_undisturbed(run)
    assert session.guarantee == guarantee


@every(STREAMS)
def test_a_mechanism_opens_sessions_of_its_own_source_and_class(kind: Stream, source: str) -> None:
    mechanism = kind.mechanism(source)
    session = session_of(mechanism, SOURCES[source])
    assert session.guarantee == mechanism.guarantee
    (other,) = set(SOURCES) - {source}
    for randomness in [SOURCES[other]] if kind.noisy else []:
        with pytest.raises(ValueError, match="randomness"):
            session_of(mechanism, randomness)
    made = type(mechanism)
    sly = type(made.__name__, (made,), {})
    fields = {name: getattr(mechanism, name) for name in inspect.signature(made).parameters}
    with pytest.raises(ValueError, match="no subclass"):
        session_of(sly(**fields), SOURCES[source])
