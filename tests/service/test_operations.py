"""What operators meet: a wrong clock, a lost key, a full disk, a lost database; and a page that says so."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
import uvicorn
from serving import a_key, a_study, a_writer, begun, central, placed, table
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

import discreet as dr
from discreet.cli import app as commands
from discreet.ledger.ledger import LedgerError
from discreet.service import database as stores
from discreet.service import server as running
from discreet.service.app import Door, Lane, Service, application
from discreet.service.connection_limits import HEAD_BYTES, HEAD_SECONDS, GuardedH11, protocol
from discreet.service.database import ReservationRequest, Store, hashed
from discreet.service.error_causes import cause
from discreet.service.ingest import Busy, Intake
from discreet.service.message_validation import admission_of
from discreet.service.operator_page import page
from discreet.service.release_worker import Writer
from discreet.service.server import key_of, opened, opened_shuffler, shuffler_key_at
from discreet.service.shuffler import ShufflerService
from discreet.service.study_config import read_study, study_of
from discreet.utils.toml_file import to_toml

httpx = pytest.importorskip("httpx")

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_SYNCHRONOUS", "OFF")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that runs in no server: nothing happens until it is asked for."""
    study = a_study(40)
    with closing(begun(study, tmp_path / "a.db")) as store:
        made = Service(study, store, a_key(tmp_path))
        made.refresh()
        yield made


def asked(service: Service, method: str, path: str, **how: Any) -> Any:
    """The answer to one request, by all that stands before the routes."""

    async def one() -> Any:
        service.intake = Intake(service.store, service.study.answer_within, lambda: None)
        service.intake.start()
        inside = httpx.ASGITransport(Door(Lane(service, application(service))))
        async with httpx.AsyncClient(transport=inside, base_url="http://study") as http:
            answer = await http.request(method, path, **how)
        await service.intake.stop()
        return answer

    return asyncio.run(one())


# ------------------------------------------------------------------------- clocks
def test_a_lease_in_the_future_stops_nobody_and_takes_nobodys_time(tmp_path: Path) -> None:
    """A clock was an hour ahead: the lease that it wrote is over, and what it wrote as due comes forward."""
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    tickets = store.new_tickets(1)
    ahead = NOW + 3600.0
    assert store.lease("one", ahead, 5.0) == 1
    store.admit([ReservationRequest(hashed(tickets[0]))], ahead, 600.0)
    assert store.lease("two", ahead + 4.0, 5.0) is None  # it is held
    assert store.lease("two", ahead - 4.0, 5.0) is None  # and whoever waited for the lock has an old time
    assert store.lease("two", NOW, 5.0) == 2  # killed, and the clock was set right
    count, due = store.waiting()
    assert (count, due) == (1, pytest.approx(NOW + 595.0))  # 600 s later, but for the lease
    assert store.expire(NOW + 590.0, None) == 0
    assert store.expire(NOW + 596.0, None) == 1


def test_a_clock_that_is_set_back_under_a_holder_is_noticed(tmp_path: Path) -> None:
    store = begun(a_study(), tmp_path / "a.db")
    clock = [NOW + 3600.0]
    writer = Writer(a_study(), store, "one", lambda: clock[0])
    assert writer.hold()
    store.admit([ReservationRequest(hashed(store.new_tickets(1)[0]))], clock[0], 600.0)
    clock[0] = NOW
    assert writer.hold()
    assert writer.token == 2
    assert store.waiting()[1] == pytest.approx(NOW + 595.0)
    assert writer.hold()
    assert writer.token == 2


# ------------------------------------------------------------------------- the ledger
def a_booked_study(folder: Path, trust: str = "central") -> Any:
    path = folder / "study.toml"
    path.write_text(to_toml(table(20, trust, ledger={"dataset": "people-1", "path": "ledger.sqlite"})))
    return read_study(path)


def kinds(folder: Path) -> list[str]:
    with dr.Ledger.open(folder / "ledger.sqlite") as ledger:
        return [one.kind for one in ledger.entries() if one.kind != "begin"]


def first_release(study: Any, store: Store) -> Writer:
    (ticket,) = store.new_tickets(1)
    (plan,) = placed(store, [ticket])
    answer = admission_of(study.layout, study.rewards, b"").answer(central(ticket, plan))
    store.admit([answer], NOW, 60.0)
    writer = a_writer(study, store)
    assert writer.step()
    return writer


def test_two_first_starts_at_once_are_one_study_and_one_charge(tmp_path: Path) -> None:
    study, found = a_booked_study(tmp_path), list[Any]()
    both = threading.Barrier(2)
    inner = running.reserve

    def reserve(one: Any) -> Any:
        entry = inner(one)
        both.wait(300)  # both have found no study, and reserved
        return entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "reserve", reserve)

        def start() -> None:
            try:
                found.append(opened(study, str(tmp_path / "a.db")))
            except BaseException as error:
                found.append(error)

        threads = [threading.Thread(target=start) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(300)
    assert [type(one) for one in found] == [Store, Store]
    assert {one.about()["identity"] for one in found} == {study.identity}
    assert kinds(tmp_path) == ["reserve"]
    for one in found:
        one.close()


def test_the_ledger_is_marked_at_release_1_and_a_database_lost_after_it_is_charged_anew(
    tmp_path: Path,
) -> None:
    study = a_booked_study(tmp_path)
    opened(study, str(tmp_path / "lost before anything.db")).close()
    with closing(opened(study, str(tmp_path / "a.db"))) as store:  # the same reservation: nothing came of it
        assert kinds(tmp_path) == ["reserve"]
        first_release(study, store).let_go()
        assert kinds(tmp_path) == ["reserve", "mark"]
    with closing(opened(study, str(tmp_path / "a.db"))) as store:  # it goes on
        writer = a_writer(study, store)
        tickets = store.new_tickets(1)
        answer = admission_of(study.layout, study.rewards, b"")
        store.admit([answer.answer(central(tickets[0], placed(store, tickets)[0], 9))], NOW, 60.0)
        assert writer.step()
    with closing(opened(study, str(tmp_path / "lost before anything.db"))) as store:  # was not lost after all
        with pytest.raises(LedgerError, match="is that of another database of this study") as found:
            first_release(study, store)
        assert "begin again with an empty database" in cause(found.value)
        assert store.release(1) is None  # nothing was drawn
    opened(study, str(tmp_path / "new.db")).close()
    assert kinds(tmp_path) == ["reserve", "mark", "reserve"]


def test_under_local_trust_a_database_is_charged_before_anybody_is_asked(tmp_path: Path) -> None:
    """The server has seen people's messages of a database that was lost before release 1."""
    study = a_booked_study(tmp_path, "local")
    opened(study, str(tmp_path / "lost.db")).close()
    assert kinds(tmp_path) == ["reserve", "mark"]
    opened(study, str(tmp_path / "lost.db")).close()  # it goes on
    assert kinds(tmp_path) == ["reserve", "mark"]
    opened(study, str(tmp_path / "new.db")).close()
    assert kinds(tmp_path) == ["reserve", "mark", "reserve", "mark"]


def test_a_reservation_is_found_again_by_all_that_it_says(tmp_path: Path) -> None:
    records: Any = study_of(table(20)).guarantee.records
    how: dict[str, Any] = {"delta": 1e-6, "users": 20, "purpose": "a study", "once": True}
    with dr.Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        first = ledger.reserve("people", records, **how)
        assert ledger.reserve("people", records, **how) == first
        told = [replace(records[0], mechanism="another one of the same epsilon"), *records[1:]]
        assert ledger.reserve("people", told, **how) != first
        others: list[dict[str, Any]] = [
            {"purpose": "another"},
            {"users": 21},
            {"delta": 1e-7},
            {"once": False},
        ]
        assert (
            len({ledger.reserve("people", records, **how | one).number for one in others} - {first.number})
            == 4
        )
        with pytest.raises(ValueError, match="purpose = ''"):
            ledger.reserve("people", records, **how | {"purpose": ""})
        for _ in range(2):  # the first one, and the one that was not asked for once
            ledger.mark(ledger.reserve("people", records, **how), {})
        assert ledger.reserve("people", records, **how) != first


# ------------------------------------------------------------------------- keys
def test_a_lost_key_is_never_replaced_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20)))
    study = read_study(path)
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        key = key_of(study, store)  # nobody was given one yet
        Service(study, store, key)
        assert store.public_key() == key.public
        Service(study, store, key_of(study, store))
        for name in ("service.key", "service.key.pub"):
            (tmp_path / name).unlink()
        with pytest.raises(ValueError, match=rf"is missing, and .*{key.public[:16]}.*no new key is made"):
            key_of(study, store)
        assert not (tmp_path / "service.key").exists()
        with pytest.raises(ValueError, match="is not the one that this study was begun with"):
            Service(study, store, a_key(tmp_path))
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        assert store.public_key() == key.public


def test_a_database_of_an_earlier_version_learns_its_key(tmp_path: Path) -> None:
    """It has no table of keys. Who took part was given one, so none is made."""
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20)))
    study = read_study(path)
    begun(study, tmp_path / "a.db").close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("DROP TABLE keys")
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        assert store.public_key() is None
        placed(store, store.new_tickets(1))
        with pytest.raises(ValueError, match="is missing, and this study was begun with a key: put"):
            key_of(study, store)
        key = a_key(tmp_path)
        Service(study, store, key_of(study, store))
        assert store.public_key() == key.public


def test_a_shuffler_makes_no_key_that_its_study_does_not_name(tmp_path: Path) -> None:
    own = shuffler_key_at(tmp_path / "elsewhere")
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20, "shuffle", shuffler={"url": "https://shuffler", "key": own.public})))
    words = ["shuffler", str(path), "--service", "http://127.0.0.1:1", "--service-key", "ab" * 32]
    found = CliRunner().invoke(commands, words)
    assert found.exit_code == 2
    assert "put the file back whose public key the study names" in " ".join(found.output.split())
    assert not (tmp_path / "shuffler.key").exists()


def test_a_shuffler_with_another_services_key_does_not_start(tmp_path: Path) -> None:
    own = shuffler_key_at(tmp_path / "shuffler.key")
    study = a_study(40, "shuffle", shuffler={"url": "http://shuffler", "key": own.public})
    key = a_key(tmp_path)
    service = Service(study, begun(study, tmp_path / "service.db"), key)
    service.refresh()
    store = opened_shuffler(study, str(tmp_path / "shuffler.db"))
    shuffler = ShufflerService(study, store, own, "http://study", key.public)
    assert shuffler.writer.hold()
    shuffler.writer._http = httpx.Client(
        base_url="http://study",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=service.shown[0])),
    )
    assert shuffler.writer.step()
    with pytest.raises(ValueError, match="did not sign the plans that this database holds"):
        ShufflerService(study, store, own, "http://study", "ab" * 32)
    ShufflerService(study, store, own, "http://study", key.public)
    store.close()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(202),
        httpx.Response(202, html="<h1>Log in</h1>"),
        httpx.Response(202, json={"status": "counted", "turn": 0}),
        httpx.Response(202, json={"status": "counted", "turn": 1, "service": "discreet/1"}),
    ],
)
def test_a_sum_is_sent_until_the_service_itself_has_it(tmp_path: Path, answer: Any) -> None:
    """A gate's page with the right status is no receipt: the sum would be lost."""
    own = shuffler_key_at(tmp_path / "shuffler.key")
    study = a_study(40, "shuffle", shuffler={"url": "http://shuffler", "key": own.public})
    store = opened_shuffler(study, str(tmp_path / "shuffler.db"))
    shuffler = ShufflerService(study, store, own, "http://study", "ab" * 32)
    token = shuffler.writer.hold() and shuffler.writer.token
    store.adopt(int(token or 0), 0, b"", b"{}", [(1, 1, "{}")], False, NOW)
    store.summed(int(token or 0), 0, b"{}")
    shuffler.writer._http = httpx.Client(
        base_url="http://study", transport=httpx.MockTransport(lambda _: answer)
    )
    with pytest.raises(ValueError, match="answers 202 to the sum of turn 0"):
        shuffler.writer._send()
    assert store.unsent() == (0, b"{}")
    good = httpx.Response(202, json={"status": "counted", "turn": 0, "service": "discreet/1"})
    shuffler.writer._http = httpx.Client(
        base_url="http://study", transport=httpx.MockTransport(lambda _: good)
    )
    assert shuffler.writer._send()
    assert store.unsent() is None
    store.close()


# ------------------------------------------------------------------------- the page
def text_of(service: Service) -> str:
    return re.sub(r"<[^>]+>", " ", page(service.study, service.store, service.told, service.failed))


def test_the_page_says_what_it_waits_for_and_until_when(tmp_path: Path) -> None:
    study = a_study(2, people={"answer_within": 600, "closes_after": 7200})
    with closing(begun(study, tmp_path / "a.db")) as store:
        service = Service(study, store, a_key(tmp_path))
        assert store.lease("one", NOW, 5.0) == 1
        assert "Working. People can take part. Places that nobody has taken by 20" in text_of(service)
        tickets = store.new_tickets(3)
        store.admit([ReservationRequest(hashed(tickets[0]))], NOW, 600.0)
        text = text_of(service)
        assert (
            "Waiting. All places are taken. The next release waits for one person who took a place and has"
            in text
        )
        assert (
            "the next plan opens at 2023-11-14 22:24 UTC at the latest" in text
        )  # 22:23:20, in whole minutes
        assert "People can take part" not in text
        assert "Plan 1, for one person" in text
        answer = admission_of(study.layout, study.rewards, b"").answer(central(tickets[0], 1))
        store.admit([answer], NOW, 600.0)
        assert "the next release is being made" in text_of(service)
        writer = a_writer(study, store)
        assert writer.step()
        assert "Working. People can take part." in text_of(service)
        store.admit([ReservationRequest(hashed(tickets[1]))], NOW, 600.0)
        answer = admission_of(study.layout, study.rewards, b"").answer(central(tickets[1], 2, 7))
        store.admit([answer], NOW, 600.0)
        writer.step()  # the last of all people: no release follows
        assert store.about()["over"]
        text = text_of(service)
        assert "The study is over." in text
        assert "What the policy did last" in text
        for wrong in ("next release waits", "follow now", "does now", "1 people"):
            assert wrong not in text


def test_the_page_is_a_page_while_the_database_is_gone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = sqlite3.OperationalError("a secret of the driver's")
    inner.sqlite_errorname = "SQLITE_CANTOPEN"

    def gone(*_: Any) -> Any:
        raise OperationalError("SELECT a secret", None, inner)

    monkeypatch.setattr(service.store, "about", gone)
    answer = asked(service, "GET", "/")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "content-security-policy" in answer.headers
    assert "The database does not answer: the file of the database cannot be opened" in answer.text
    assert "secret" not in answer.text


# ------------------------------------------------------------------------- requests
def test_head_is_answered_as_get_without_a_body(service: Service) -> None:
    for path in ("/plan", "/health", "/statement", "/releases/0", "/metrics", "/openapi.json", "/"):
        full, head = asked(service, "GET", path), asked(service, "HEAD", path)
        assert (head.status_code, head.content) == (full.status_code, b"") == (200, b"")
        assert head.headers["content-type"] == full.headers["content-type"]
    assert asked(service, "HEAD", "/messages").status_code == 405
    assert asked(service, "HEAD", "/releases/99").status_code == 404


def test_nobody_is_sent_to_another_address(service: Service) -> None:
    for method, path in (
        ("POST", "/messages/"),
        ("GET", "/plan/"),
        ("POST", "/places/"),
        ("GET", "/health/"),
    ):
        answer = asked(service, method, path, headers={"Host": "study.example"})
        assert answer.status_code == 404
        assert "location" not in answer.headers


def test_a_head_that_is_too_large_is_refused(service: Service) -> None:
    for how in ({"headers": {"X-More": "a" * HEAD_BYTES}}, {"params": {"a": "b" * HEAD_BYTES}}):
        answer = asked(service, "GET", "/plan", **how)
        assert (answer.status_code, answer.json()["reason"]) == (431, "headers")
    assert asked(service, "GET", "/plan", headers={"X-More": "a" * (HEAD_BYTES - 1000)}).status_code == 200


class Loop:
    """A loop whose timers fire when the test says so, and whose tasks do nothing."""

    def __init__(self) -> None:
        self.timers: list[Any] = []

    def call_later(self, seconds: float, called: Any, *given: Any) -> Any:
        timer = type("Timer", (), {"seconds": seconds, "fire": lambda _: called(*given)})()
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        self.timers.append(timer)
        return timer

    def create_task(self, work: Any, **_: Any) -> Any:
        work.close()
        return type("Task", (), {"add_done_callback": lambda *_: None})()


class Transport(asyncio.Transport):
    """What was written, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application."""


@pytest.mark.parametrize("kind", sorted({GuardedH11, protocol()}, key=str), ids=lambda one: one.__name__)
def test_a_head_has_a_limit_and_a_deadline(kind: Any) -> None:
    """Of the protocol that is used without httptools, and of the one with it, where that is installed."""
    config = uvicorn.Config(
        nothing, http=kind, h11_max_incomplete_event_size=HEAD_BYTES, log_config=None, lifespan="off"
    )
    config.load()

    def connected() -> tuple[Any, Transport, Loop]:
        from uvicorn.server import ServerState

        loop, transport = Loop(), Transport()
        one = kind(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        one.connection_made(transport)
        return one, transport, loop

    one, transport, loop = connected()
    assert [timer.seconds for timer in loop.timers] == [HEAD_SECONDS]  # also where nothing is ever sent
    one.data_received(b"GET /plan HTTP/1.1\r\nHost: a\r\n")
    (timer,) = loop.timers
    timer.fire()
    assert transport.closed
    assert transport.sent.startswith(b"HTTP/1.1 408 ")
    one.connection_lost(None)

    one, transport, loop = connected()
    one.data_received(b"GET /plan HTTP/1.1\r\nHost: a\r\n\r\n")
    assert loop.timers == []  # the head is whole; what follows has other limits
    assert not transport.closed
    one.connection_lost(None)

    for endless in (b"X: y\r\n", b"x"):  # many headers, or one without an end
        one, transport, loop = connected()
        one.data_received(b"GET /plan HTTP/1.1\r\nHost: a\r\n" + (b"X: " if endless == b"x" else b""))
        came = 0
        while not transport.closed:
            one.data_received(endless * 100)
            came += 100 * len(endless)
            assert came < 2 * HEAD_BYTES
        assert transport.sent[9:12] in (b"431", b"400")
        one.connection_lost(None)
        assert loop.timers == []

    one, transport, loop = connected()  # a body may be as long as the application lets it be
    one.data_received(b"POST /messages HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n")
    for _ in range(40):
        one.data_received(b"0" * 100_000)
    assert not transport.closed
    one.connection_lost(None)


def test_who_hangs_up_is_no_error(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/messages", "/places", "/tickets"):
        events = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
        sent: list[Any] = []
        token = service.store.new_token()

        async def receive(events: list[Any] = events) -> Any:
            return events.pop(0)

        async def send(event: Any, sent: list[Any] = sent) -> None:
            sent.append(event)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "server": None,
            "client": None, "headers": [(b"host", b"a"), (b"authorization", f"Bearer {token}".encode())],
        }  # fmt: skip
        asyncio.run(Door(Lane(service, application(service)))(scope, receive, send))
        assert sent[0]["status"] == 408
    assert "could not be answered" not in caplog.text


def test_full_says_when_to_come_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = service.store.new_tickets(2)
    now = [NOW]
    monkeypatch.setattr("discreet.service.ingest.time.time", lambda: now[0])
    assert asked(service, "POST", "/places", json={"ticket": tickets[0]}).status_code == 201
    for passed, after in ((0.0, "3600"), (1000.0, "2640"), (3550.0, "50"), (3599.5, "1"), (4000.0, "1")):
        now[0] = NOW + passed
        answer = asked(service, "POST", "/places", json={"ticket": tickets[1]})
        assert (answer.status_code, answer.json()["reason"], answer.headers["retry-after"]) == (
            409,
            "full",
            after,
        )


def test_what_the_description_names_it_declares(service: Service) -> None:
    told = asked(service, "GET", "/openapi.json").json()
    declared = set(told["components"]["securitySchemes"])
    named = {
        name
        for methods in told["paths"].values()
        for one in methods.values()
        for way in one.get("security", ())
        for name in way
    }
    assert named == declared == {"operator"}


def test_metrics_hold_no_times_of_making(service: Service) -> None:
    service.messages.labels("counted").inc()
    text = asked(service, "GET", "/metrics").text
    assert "discreet_messages_total" in text
    assert "_created" not in text


# ------------------------------------------------------------------------- causes and logs
def failure(code: str, kind: str = "sqlite_errorname") -> Exception:
    inner = sqlite3.OperationalError("of a person's 0.47")
    setattr(inner, kind, code)
    return OperationalError("INSERT 0.47", None, inner)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (failure("SQLITE_FULL"), "the disk of the database is full (OperationalError, SQLITE_FULL)"),
        (failure("SQLITE_IOERR_WRITE"), "the disk of the database fails"),
        (failure("SQLITE_READONLY"), "the database is read-only"),
        (failure("SQLITE_BUSY"), "another process keeps the database"),
        (failure("53100", "sqlstate"), "the disk of the database is full"),
        (failure("57P01", "sqlstate"), "the database server does not answer"),
        (failure("SQLITE_MISUSE"), "OperationalError"),
        (OSError(errno.ENOSPC, "of 0.47"), "the disk is full"),
        (LedgerError("ledger 'a': is not in order"), "ledger 'a': is not in order"),
        (RuntimeError("of 0.47"), "RuntimeError"),
    ],
)  # fmt: skip
def test_causes_are_named_and_nothing_of_a_message_is(error: Exception, words: str) -> None:
    assert cause(error).startswith(words)
    assert "0.47" not in cause(error)


def test_a_full_disk_is_named_as_such_once(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """By SQLite itself: the database may not grow, as on a disk that is full."""
    caplog.set_level(logging.INFO, "discreet.service")
    engine = service.store._engine
    connection = engine.raw_connection()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()

    def small(one: Any, _: Any) -> None:
        one.execute(f"PRAGMA max_page_count = {pages}")

    sql.event.listen(engine, "connect", small)
    engine.dispose()
    with pytest.raises(OperationalError) as found:
        service.store.new_tickets(10_000)
    assert cause(found.value) == "the disk of the database is full (OperationalError, SQLITE_FULL)"

    class Full:
        calls = 0

        def admit(self, requests: list[Any], *_: Any) -> Any:
            self.calls += 1
            if self.calls < 4:
                raise found.value
            return [stores.RequestResult("counted") for _ in requests]

    async def run() -> None:
        intake = Intake(Full(), 1.0, lambda: None)  # type: ignore[arg-type]
        intake.start()
        for _ in range(3):
            with pytest.raises(Busy):
                await intake.put([ReservationRequest(b"")])
        await intake.put([ReservationRequest(b"")])
        await intake.stop()

    asyncio.run(run())
    said = [one.getMessage() for one in caplog.records]
    assert said == [
        f"nothing that people send can be stored: {cause(found.value)}",
        "what people send is stored again",
    ]


def test_log_lines_begin_with_time_and_level() -> None:
    record = logging.LogRecord("discreet.service", logging.ERROR, "", 1, "it %s", ("failed",), None)
    record.created, record.msecs = NOW, 7.0
    assert running.Lines().format(record) == "2023-11-14T22:13:20.007Z ERROR it failed"
    assert {"uvicorn", "discreet.service"} == set(running.LOGGING["loggers"])


def test_an_address_is_told_once_it_is_bound(service: Service) -> None:
    import socket

    told: list[str] = []

    async def run(port: int) -> None:
        config = uvicorn.Config(nothing, host="127.0.0.1", port=port, log_config=None, lifespan="off")
        server = running._Server(config, told.append)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        server.should_exit = True
        await server.shutdown()

    asyncio.run(run(0))
    (one,) = told
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]+", one)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit):
            asyncio.run(run(taken.getsockname()[1]))
    assert told == [one]


def test_a_learner_of_features_is_refused_in_the_users_words() -> None:
    with pytest.raises(
        ValueError, match=r"learner\.name = 'lsvi-ucb': learns from features .* 'noise-aware'"
    ):
        study_of({**table(), "learner": {"name": "lsvi-ucb"}, "schedule": {}})
