"""What operators meet: a wrong clock, a lost key, a full disk, a lost database; and a page that says so."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from serving import Clocked, a_key, a_study, begun, table

import discreet as dr
from discreet.service import server as running
from discreet.service.app import Door, Lane, Service, application
from discreet.service.database import ReservationRequest, Store, hashed
from discreet.service.ingest import Intake
from discreet.service.release_worker import Writer
from discreet.service.server import opened, opened_shuffler, shuffler_key_at
from discreet.service.shuffler import ShufflerService
from discreet.service.study_config import read_study, study_of
from discreet.utils.toml_file import to_toml

httpx = pytest.importorskip("httpx")

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def asked(service: Service, method: str, path: str, **how: Any) -> Any:
    """The answer to one request, by all that stands before the routes."""

    async def one() -> Any:
        service.intake = Intake(service.store, service.study.answer_within, lambda: None, io=service.io)
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
    assert store.mark_expired(NOW + 590.0, None) == 0
    assert store.mark_expired(NOW + 596.0, None) == 1


def test_a_clock_that_is_set_back_under_a_holder_is_noticed(tmp_path: Path) -> None:
    store = begun(a_study(), tmp_path / "a.db")
    clock = [NOW + 3600.0]
    writer = Writer(a_study(), store, "one", Clocked(lambda: clock[0]))
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


# ------------------------------------------------------------------------- keys


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
    monkeypatch.setattr(service, "io", Clocked(lambda: now[0]))
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


def test_a_learner_of_features_is_refused_in_the_users_words() -> None:
    with pytest.raises(
        ValueError, match=r"learner\.name = 'lsvi-ucb': learns from features .* 'noise-aware'"
    ):
        study_of({**table(), "learner": {"name": "lsvi-ucb"}, "schedule": {}})
