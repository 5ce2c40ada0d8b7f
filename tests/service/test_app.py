"""The service over HTTP: plans that are signed, refusals in words, the same policies as a simulation."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key, a_study, begun, central, over_http, same_plans, simulated
from waiting import LIMIT, wait_until

from discreet.ledger import signatures
from discreet.service.app import Lane, Service, application
from discreet.service.server import all_in_background, in_background

httpx = pytest.importorskip("httpx")
from discreet.device.http_client import Client, PlanReservation  # noqa: E402

CANARY = 0.4718281828


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """(an HTTP client, the service) of one study, central trust, secure noise."""
    folder = tmp_path_factory.mktemp("served")
    with (
        in_background(a_study(10_000), folder / "a.db", a_key(folder)) as (url, service),
        httpx.Client(base_url=url) as http,
    ):
        yield http, service


def answered(http: Any, path: str, **given: Any) -> tuple[int, dict[str, Any]]:
    answer = http.post(path, **given)
    return answer.status_code, answer.json()


def settled(service: Any, turn: int) -> None:
    """Wait until so many releases are published."""
    wait_until(lambda: service.turn >= turn, lambda: service.failed)


@pytest.mark.parametrize("trust", ["central", "local", "shuffle"])
def test_people_over_http_give_the_policies_of_a_simulation(tmp_path: Path, trust: str) -> None:
    study = a_study(80, trust).for_dry_run()
    found, wanted = over_http(study, tmp_path, 30, 4), simulated(study)
    assert sum(users for _, users in found) == 80  # everybody was given a plan
    assert any((policy != found[0][0]).any() for policy, _ in found)  # and not the same one
    same_plans(found, wanted)


def test_a_plan_is_signed_cached_and_follows_the_releases(served: tuple[Any, Any]) -> None:
    http, service = served
    with Client(str(http.base_url), service._key.public, promised="central") as client:
        before = client.plan()
        answer = http.get("/plan")
        assert "max-age" in answer.headers["cache-control"]
        again = http.get("/plan", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        place = client.place(service.store.new_tickets(1)[0])
        record = [0, 1, 2, 1, 0], [0, 1, 0, 1], [0.0, 1.0, 0.5, 0.0]
        message = place.message(*record)
        with pytest.raises(RuntimeError, match="was encoded already"):
            place.message(*record)
        assert client.send(message) == client.send(message) == {"status": "counted", "plan": place.number}
        settled(service, before["turn"] + 1)
        assert client.plan()["turn"] == before["turn"] + 1
        assert client.release(1) == json.loads(service.store.release(1)[0])
        statement = client.statement()
        signature = statement.pop("signature")
        assert signatures.is_valid(service._key.public, "discreet service, 1", statement, signature)
    with (
        Client(str(http.base_url), "ab" * 32, promised="central") as other,
        pytest.raises(ValueError, match="is not signed"),
    ):
        other.plan()


def test_refusals_name_the_place_and_never_the_value(served: tuple[Any, Any]) -> None:
    http, service = served
    ticket = service.store.new_tickets(1)[0]
    good = central(ticket, 1)
    cases: list[tuple[Any, int, str]] = [
        ({**good, "states": [0, 1, 471828, 1, 0]}, 400, "states: every entry"),
        ({**good, "states": [0, 1, 2, 1]}, 400, "a list of 5"),
        ({**good, "states": [0, True, 2, 1, 0]}, 400, "states"),
        ({**good, "actions": [0, 1.0, 0, 1]}, 400, "actions"),
        ({**good, "actions": "0101"}, 400, "actions"),
        ({**good, "rewards": [0.0, 471828.5, 0, 0]}, 400, "rewards: every entry must be a number in [0, 1]"),
        ({**good, "rewards": [0.0, None, 0, 0]}, 400, "rewards"),
        ({**good, "rewards": [10**400, 0, 0, 0]}, 400, "rewards"),
        ({**good, "nonce": "471828"}, 400, "nonce"),
        ({**good, "plan": -471828}, 400, "plan"),
        ({**good, "plan": 2**70}, 400, "plan"),
        ({**good, "secret": 471828}, 400, "nothing else"),
        ({**good, "ticket": 471828}, 400, "ticket"),
        ([good], 400, "must be an object"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [good] * 1001}, 400, "messages"),
        ({**good, "ticket": "471828"}, 403, "no such ticket"),
    ]
    for table, status, words in cases:
        code, said = answered(http, "/messages", json=table)
        assert (code, words in said["words"]) == (status, True), (table, said)
        assert "471828" not in json.dumps(said)
    raw = [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"", 400),
        (b"[" * 100_000, 400),
        (b"NaN", 400),
        (b"9" * 5_000_000, 413),
    ]
    for content, status in raw:
        assert answered(http, "/messages", content=content)[0] == status
    counts = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in http.get("/metrics").text.splitlines()
        if line.startswith("discreet_messages_total")
    }
    for reason, least in (("malformed", 20), ("oversized", 1), ("foreign", 1)):  # each is counted
        assert counts[f'discreet_messages_total{{outcome="{reason}"}}'] >= least
    for path in ("/places", "/tickets", "/messages"):
        assert http.get(path).status_code == 405
    assert answered(http, "/places", json={"ticket": "no"})[1]["reason"] == "foreign"
    assert answered(http, "/places", json={"tickets": ["a"], "b": 1})[0] == 400
    for number in ("1e9", "-1", "99999999999", "٣", "0.0", "999999"):
        assert http.get(f"/releases/{number}").status_code == 404


def test_the_short_way_answers_as_the_routes_do(served: tuple[Any, Any]) -> None:
    http, service = served
    routes = application(service)
    tag = http.get("/plan").headers["etag"]
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/plan", {}),
        ("GET", "/plan", {"headers": {"If-None-Match": tag}}),
        ("GET", "/plan?x=1", {}),
        ("HEAD", "/plan", {}),
        ("POST", "/plan", {}),
        ("GET", "/messages", {}),
        ("POST", "/messages", {"content": b"{"}),
        ("POST", "/messages", {"content": b""}),
        ("POST", "/messages", {"content": b"9" * 5_000_000}),
        ("POST", "/messages", {"json": {"messages": []}}),
        ("POST", "/messages/", {"json": {}}),
        ("POST", "/messages", {"json": {**central("a", 1), "plan": 0}}),
    ]

    async def asked(app: Any, method: str, path: str, how: dict[str, Any]) -> tuple[int, bytes, Any]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://study") as client:
            answer = await client.request(method, path, **how)
            return answer.status_code, answer.content, answer.headers

    for method, path, how in requests:
        short = asyncio.run(asked(Lane(service, routes), method, path, how))
        assert short == asyncio.run(asked(routes, method, path, how)), (method, path)
        assert short[0] == http.request(method, path, **how).status_code


def test_tickets_are_for_operators(served: tuple[Any, Any]) -> None:
    http, service = served
    token = service.store.new_token()
    assert answered(http, "/tickets", json={"count": 3})[0] == 401
    assert answered(http, "/tickets", json={"count": 3}, headers={"Authorization": "Bearer no"})[0] == 401
    mine = {"Authorization": f"Bearer {token}"}
    assert answered(http, "/tickets", json={"count": 0}, headers=mine)[0] == 400
    code, said = answered(http, "/tickets", json={"count": 3}, headers=mine)
    assert (code, len(set(said["tickets"]))) == (201, 3)
    assert answered(http, "/messages", json=central(said["tickets"][0], service.turn + 1))[1]["reason"] in (
        "placeless", "late",
    )  # fmt: skip


def test_the_description_is_complete_and_its_examples_run(served: tuple[Any, Any]) -> None:
    http, service = served
    told = http.get("/openapi.json").json()
    assert set(told["paths"]) == {
        "/plan", "/places", "/messages", "/withdrawals", "/tickets", "/releases/{number}", "/statement",
        "/health", "/keys", "/log", "/metrics", "/operator/pause", "/operator/resume", "/operator/extend",
        "/operator/revoke", "/live", "/ready",
    }  # fmt: skip
    for path, methods in told["paths"].items():
        for method, one in methods.items():
            assert one["summary"], path
            assert all("content" in answer or code == "304" for code, answer in one["responses"].items()), (
                path
            )
            assert (method == "post") == ("requestBody" in one)
    body = told["paths"]["/messages"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    ticket = service.store.new_tickets(1)[0]
    placed = http.post("/places", json={"ticket": ticket}).json()
    example = {**body["one"]["value"], "ticket": ticket, "plan": placed["plan"]}
    turn = service.turn
    counted = {"status": "counted", "plan": placed["plan"], "service": "discreet/1"}
    assert answered(http, "/messages", json=example) == (202, counted)
    code, said = answered(http, "/messages", json={"messages": [example, {**example, "nonce": ""}]})
    assert (code, [one["status"] for one in said["results"]]) == (202, ["counted", "malformed"])
    settled(service, turn + 1)
    health = http.get("/health").json()
    assert (health["status"], health["makes_releases"], health["turn"]) == ("ok", True, service.turn)


@pytest.mark.parametrize("trust", ["local", "shuffle"])
def test_examples_of_devices_messages_run(tmp_path: Path, trust: str) -> None:
    with all_in_background(a_study(trust=trust), tmp_path, a_key(tmp_path)) as (url, front, address, service):
        for at in {url, address}:
            for path, methods in httpx.get(f"{at}/openapi.json").json()["paths"].items():
                said = methods.get("post", {"responses": {}})
                shown = said["responses"] and said["requestBody"]["content"]["application/json"]["examples"]
                for one in shown.values() if shown else ():  # as they stand: of nobody's ticket
                    assert str(httpx.post(at + path, json=one["value"]).status_code) in said["responses"]
        body = httpx.get(f"{url}/openapi.json").json()["paths"]["/messages"]["post"]["requestBody"]
        example = body["content"]["application/json"]["examples"]["one"]["value"]
        assert httpx.post(f"{url}/messages", json=example).json()["reason"] == "foreign"
        ticket = {"ticket": front.store.new_tickets(1)[0]}
        assert httpx.post(f"{url}/places", json=ticket).json()["plan"] == 1
        said = httpx.post(f"{url}/messages", json=example | ticket)
        counted = {"status": "counted", "plan": 1, "service": "discreet/1"}
        assert (said.status_code, said.json()) == (202, counted)
        settled(service, 1)


def test_no_trajectory_is_in_logs_errors_metrics_or_what_is_published(
    served: tuple[Any, Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A canary in a person's rewards, in good and bad messages, also where the service itself fails."""
    http, service = served
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    ticket = service.store.new_tickets(1)[0]
    plan = http.post("/places", json={"ticket": ticket}).json()["plan"]
    good = central(ticket, plan, 77, rewards=[CANARY, 1.0, 0.5, 0.0])
    for table in (
        {**good, "rewards": [CANARY, 2.0, 0, 0]},
        {**good, "states": [CANARY]},
        {**good, "plan": CANARY},
    ):
        said.append(http.post("/messages", json=table).text)
    with monkeypatch.context() as patch:

        def breaks(*given: Any, **more: Any) -> Any:
            raise RuntimeError(f"of {given} {more} {CANARY}")

        patch.setattr(service.store, "admit", breaks)
        answer = http.post("/messages", json=good)
        assert answer.status_code == 503
        said.append(answer.text)
        patch.setattr(type(service.admission), "answer", breaks)
        answer = http.post("/messages", json=good)
        assert answer.status_code == 500
        said.append(answer.text)
    assert http.post("/messages", json=good).status_code == 202
    settled(service, service.store.about()["turn"])
    for path in (
        "/metrics",
        "/health",
        "/plan",
        "/statement",
        "/openapi.json",
        "/releases/0",
        "/nowhere?r=0.47",
    ):
        said.append(http.get(path).text)
    said += [caplog.text, *capfd.readouterr()]
    assert "could not be answered" in caplog.text
    assert not any(str(CANARY)[:8] in text for text in said)
    assert 'discreet_messages_total{outcome="malformed"}' in said[5]


def test_who_does_not_finish_her_request_is_told_so(
    served: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from discreet.service import app

    http, _ = served
    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)
    with socket.create_connection((http.base_url.host, http.base_url.port), timeout=LIMIT) as connection:
        connection.sendall(b'POST /places HTTP/1.1\r\nHost: study\r\nContent-Length: 15\r\n\r\n{"ticket": ')
        assert connection.recv(12) == b"HTTP/1.1 408"


def test_a_stochastic_policy_is_drawn_on_the_device() -> None:
    plan = {"number": 1, "policy": [[[0.0, 1.0], [0.25, 0.75]]]}
    place = PlanReservation("t", 1.0, plan, {"world": {"horizon": 1, "rewards": [0, 1]}, "form": None})
    assert {place.action(0, 0) for _ in range(50)} == {1}
    drawn = sum(place.action(0, 1) for _ in range(4000))
    assert abs(drawn - 3000) < 5.3 * np.sqrt(4000 * 0.25 * 0.75)  # two-sided, false alarm 1.2e-7
    assert place.guarantee is None


def test_the_operators_page_is_readable_without_a_script(served: tuple[Any, Any]) -> None:
    from html.parser import HTMLParser

    http, service = served
    answer = http.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]

    class Found(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open, self.tags, self.text = list[str](), list[str](), ""

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.tags.append(tag)
            if tag not in ("meta",):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_data(self, data: str) -> None:
            self.text += data

    found = Found()
    found.feed(answer.text)
    assert found.open == []
    assert not {"img", "link", "iframe"} & set(found.tags)
    assert found.tags.count("script") == 1  # beside what is said: it asks for the same page again
    script = answer.text.partition("<script>")[2].partition("</script>")[0]
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{mark}'; connect-src 'self'" in answer.headers["content-security-policy"]
    assert found.tags.count("h1") == 1
    assert found.tags.count("caption") == found.tags.count("table") == 4
    assert "of 10,000 people have taken part" in found.text
    assert service.content["first"] in found.text
    assert "Working. People can take part." in found.text


def test_a_client_refuses_plans_that_ask_for_more_than_was_promised(tmp_path: Path) -> None:
    """Who signs plans may not ask for the record where a message was promised."""
    study = a_study(trust="local")
    store = begun(study, tmp_path / "a.db")
    service = Service(study, store, a_key(tmp_path))
    service.refresh()
    shown = json.loads(service.shown[0])

    def client_of(content: dict[str, Any], **how: Any) -> Client:
        def answer(request: Any) -> Any:
            if request.url.path == "/plan":
                return httpx.Response(200, json={**shown, "content": content})
            return httpx.Response(
                200, json={"status": "placed", "plan": 1, "seconds": 60.0, "service": "discreet/1"}
            )

        http = httpx.Client(base_url="http://study", transport=httpx.MockTransport(answer))
        return Client("http://study", http=http, **how)

    content, raw = shown["content"], {**shown["content"], "form": None}
    record = [0, 1, 2, 1, 0], [0, 1, 0, 1], [0.0, 1.0, 0.5, 0.0]
    assert client_of(content, promised=4.0, identity=study.identity).place("t").message(*record)
    with pytest.raises(ValueError, match=r"asks for epsilon = 4, but epsilon = 1 was promised"):
        client_of(content, promised=1.0).place("t")
    with pytest.raises(ValueError, match="asks for the record as it is"):
        client_of(raw, promised=4.0).place("t")
    with pytest.raises(ValueError, match="asks for the record as it is"):
        client_of(raw, promised=(4.0, 1e-6)).place("t")
    with pytest.raises(ValueError, match="states that no party is trusted"):
        client_of(raw, promised="central").place("t").message(*record)
    with pytest.raises(ValueError, match="of another study"):
        client_of(content, promised=4.0, identity="0" * 64).place("t")
    for wrong in ("local", 0.0, -1.0, float("inf"), float("nan"), True, (1.0,), (1.0, 1.0), (1.0, 1e-6, 2)):
        with pytest.raises(ValueError, match="promised = "):
            Client("http://study", promised=wrong)  # type: ignore[arg-type]
    client = client_of(content, promised=4.0)
    assert client.place("t") is client.place("t")  # a record is randomized once


def test_a_service_in_the_background_leaves_the_callers_logging_alone(tmp_path: Path) -> None:
    class Kept(logging.Handler):
        closed = False

        def close(self) -> None:
            self.closed = True
            super().close()

    mine, front = Kept(), logging.getLogger("uvicorn.error")
    before = list(front.handlers)
    with in_background(a_study(), tmp_path / "a.db", a_key(tmp_path)) as (url, _):
        assert httpx.get(f"{url}/health").status_code == 200
        assert not mine.closed
        assert front.handlers == before
    mine.close()
