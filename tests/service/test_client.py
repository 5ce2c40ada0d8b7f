"""The Python client against everything that stands between a device and the service: nothing is given up.

No test waits: clock, sleep and random numbers are the test's (:class:`Clocked`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import a_key, a_study, begun

from discreet.service.app import Service

httpx = pytest.importorskip("httpx")
from discreet.device.http_client import (  # noqa: E402
    SERVICE,
    Client,
    NoAnswer,
    Pace,
    PendingMessage,
    PlanReservation,
    Turned,
    _public_key,
)

RECORD = [0, 1, 2, 1, 0], [0, 1, 0, 1], [0.0, 1.0, 0.5, 0.0]
OURS = {"service": SERVICE}
BEGUN = 1_700_000_000.0
PAGE = "<!doctype html><title>Log in to the network</title>"


class Clocked:
    """A clock that sleeping moves, and what was slept. share : of the longest wait that is waited."""

    def __init__(self, share: float = 1.0) -> None:
        self.at, self.slept = BEGUN, list[float]()
        self.pace = Pace(lambda: self.at, self._sleep, lambda: share)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], str]]:
    """(what GET /plan answers, the service's key) of a study that trusts the server."""
    folder = tmp_path_factory.mktemp("client")
    study = a_study(10_000)
    store = begun(study, folder / "a.db")
    service = Service(study, store, a_key(folder))
    service.refresh()
    yield json.loads(service.shown[0]), service._key.public
    store.close()


class Way:
    """What is between a device and a service: ``answers(path, n)`` at the n-th request to a path, or None.

    None : what the service itself answers.
    """

    def __init__(self, shown: Any, answers: Callable[[str, int], Any] = lambda *_: None) -> None:
        self.shown, self.answers, self.clock = shown, answers, Clocked()
        self.sent: list[tuple[str, bytes]] = []

    def answer(self, request: Any) -> Any:
        path = request.url.path
        self.sent.append((path, request.content))
        found = self.answers(path, sum(one == path for one, _ in self.sent))
        if isinstance(found, Exception):
            raise found
        return self.usual(path) if found is None else found

    def usual(self, path: str) -> Any:
        if path == "/plan":
            return httpx.Response(200, json=self.shown)
        if path == "/places":
            return httpx.Response(201, json={"status": "placed", "plan": 1, "seconds": 600.0, **OURS})
        return httpx.Response(202, json={"status": "counted", "plan": 1, **OURS})

    def bodies(self, path: str) -> list[bytes]:
        return [body for one, body in self.sent if one == path]

    def client(self, **how: Any) -> Client:
        http = httpx.Client(base_url="http://study", transport=httpx.MockTransport(self.answer))
        return Client("http://study", http=http, **{"promised": "central", "pace": self.clock.pace, **how})


def refusal(status: int, reason: str, **headers: str) -> Any:
    return httpx.Response(status, json={"reason": reason, "words": "so it is", **OURS}, headers=headers)


# Everything that is not the service's word. Of JSON, what lacks its name, or does not say what was asked for.
NOT_OURS: dict[str, Any] = {
    **{
        f"{status} HTML": httpx.Response(status, html="<h1>Something</h1>")
        for status in (400, 403, 404, 408, 410, 413, 425, 429, 431, 500, 502, 503, 504, 507)
    },
    "a portal": httpx.Response(200, html=PAGE),
    "a portal, by redirection": httpx.Response(302, headers={"Location": "http://gate.example/"}),
    "307": httpx.Response(307, headers={"Location": "http://study/messages"}),
    "nothing": httpx.Response(200),
    "204": httpx.Response(204),
    "{}": httpx.Response(200, json={}),
    "a list": httpx.Response(200, json=["counted"]),
    "deep": httpx.Response(200, content=b"[" * 100_000),
    "another's JSON": httpx.Response(200, json={"status": "counted", "plan": 1}),
    "another's refusal": httpx.Response(403, json={"reason": "forbidden", "words": "no such account"}),
    "a limit of rate": httpx.Response(429, json={"reason": "often", "words": "come again"}),
    "our name alone": httpx.Response(202, json=OURS),
    "another plan": httpx.Response(202, json={"status": "counted", "plan": 2, **OURS}),
    "a plan of another type": httpx.Response(202, json={"status": "counted", "plan": True, **OURS}),
    "another status": httpx.Response(201, json={"status": "counted", "plan": 1, **OURS}),
    "busy": refusal(503, "busy"),
    "slow": refusal(408, "slow"),
    "broken": refusal(500, "broken"),
    "not modified": httpx.Response(304),
    "gone": httpx.ReadTimeout("gone"),
    "cut": httpx.RemoteProtocolError("cut"),
    "damaged": httpx.DecodingError("damaged"),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_is_not_the_services_word_is_no_answer(published: tuple[Any, str], name: str) -> None:
    """To a plan, a place and a message: each is asked for again, by the same bytes."""
    shown, key = published
    if name == "another plan":  # of which a plan's and a place's answers know nothing
        way = Way(shown, lambda path, n: NOT_OURS[name] if path == "/messages" and n <= 3 else None)
    else:
        way = Way(shown, lambda path, n: NOT_OURS[name] if n <= 3 else None)
    with way.client(key=key) as client:
        message = client.place("ticket").message(*RECORD)
        assert client.send(message) == {"status": "counted", "plan": 1}
    sent = way.bodies("/messages")
    assert len(sent) == 4
    assert set(sent) == {sent[0]}
    assert set(way.bodies("/places")) == {b'{"ticket":"ticket"}'}


@pytest.mark.parametrize(
    ("status", "reason"),
    [(400, "malformed"), (403, "foreign"), (409, "spent"), (409, "replayed"), (410, "late"), (410, "over")],
)
def test_a_refusal_is_the_services_own(published: tuple[Any, str], status: int, reason: str) -> None:
    way = Way(published[0], lambda path, _: refusal(status, reason) if path == "/messages" else None)
    with way.client() as client:
        message = client.place("ticket").message(*RECORD)
        with pytest.raises(Turned, match=f"{reason}: so it is") as found:
            client.send(message)
    assert (found.value.status, found.value.reason, found.value.final) == (status, reason, True)
    assert len(way.bodies("/messages")) == 1


def test_full_is_not_final_and_says_when_to_come_again(published: tuple[Any, str]) -> None:
    answer = refusal(409, "full", **{"Retry-After": "120"})
    way = Way(published[0], lambda path, _: answer if path == "/places" else None)
    with way.client() as client, pytest.raises(Turned) as found:
        client.place("ticket")
    assert (found.value.reason, found.value.final, found.value.after) == ("full", False, 120.0)
    assert way.clock.slept == []


def test_a_message_is_sent_until_its_place_ends_and_is_then_given_back(published: tuple[Any, str]) -> None:
    """Ten minutes of 502: waits double up to a minute, the last try is at the end, and nothing is lost."""
    way = Way(published[0], lambda path, _: httpx.Response(502) if path == "/messages" else None)
    with way.client(tries=3) as client:
        message = client.place("ticket").message(*RECORD)
        assert (message.plan, message.until) == (1, BEGUN + 600.0)
        with pytest.raises(NoAnswer, match=r"HTTP status 502, not from the service\); keep") as found:
            client.send(message)
    assert found.value.message is message
    slept = way.clock.slept
    assert slept[:11] == [0.1 * 2.0**k for k in range(10)] + [60.0]
    assert max(slept) == 60.0
    assert sum(slept) == pytest.approx(600.0)
    assert len(way.bodies("/messages")) == len(slept) + 1
    again = PendingMessage.from_bytes(message.to_bytes())  # the next day, in another process
    assert again == message
    way.answers, way.sent[:] = (lambda path, n: httpx.Response(502) if n < 3 else None), []
    with way.client(tries=3) as client:
        assert client.send(again) == {"status": "counted", "plan": 1}
    assert way.bodies("/messages") == [json.dumps(dict(message.table), separators=(",", ":")).encode()] * 3


def test_without_a_place_a_request_is_tried_so_often(published: tuple[Any, str]) -> None:
    way = Way(published[0], lambda *_: httpx.Response(502))
    with way.client(tries=5) as client, pytest.raises(NoAnswer, match="GET /plan: no answer after 5 tries"):
        client.plan()
    assert way.clock.slept == [0.1, 0.2, 0.4, 0.8]
    with pytest.raises(ValueError, match="tries = 0: must be"):
        way.client(tries=0)


@pytest.mark.parametrize(
    ("said", "least"),
    [
        ("7", 7.0), ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0), ("Tue, 14 Nov 2023 22:13:50 -0000", 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0), ("1000000", 300.0), ("Wed, 14 Nov 2029 00:00:00 GMT", 300.0),
        ("-5", 0.0), ("soon", 0.0), ("", 0.0), ("7.5", 0.0), ("Tue, 99 Nov 2023 22:13:50 GMT", 0.0),
    ],
)  # fmt: skip
def test_retry_after_is_kept(published: tuple[Any, str], said: str, least: float) -> None:
    """Seconds or a date (the clock stands at 22:13:20), of at most 300 seconds; the random wait is added."""
    way = Way(published[0])
    answer = httpx.Response(503, headers={"Retry-After": said})
    way.answers = lambda path, n: answer if n == 1 else None
    with way.client() as client:
        client.plan()
    assert way.clock.slept == [pytest.approx(least + 0.1)]


def test_waits_are_spread_over_their_whole_length(published: tuple[Any, str]) -> None:
    way = Way(published[0], lambda path, n: httpx.Response(502) if n <= 4 else None)
    way.clock = Clocked(0.25)
    with way.client() as client:
        client.plan()
    assert way.clock.slept == [0.025, 0.05, 0.1, 0.2]


def test_many_messages_by_one_request_are_read_one_by_one(published: tuple[Any, str]) -> None:
    whole = {"results": [{"status": "counted", "plan": 1}, {"status": "late", "words": "no"}], **OURS}
    wrong: list[Any] = [
        {**whole, "results": whole["results"][:1]}, {**whole, "results": [1, 2]}, {},
        {"results": whole["results"]},
        {**whole, "results": [{"status": "counted", "plan": 9}, whole["results"][1]]},
    ]  # fmt: skip
    answers = [httpx.Response(202, json=one) for one in [*wrong, whole]]
    way = Way(published[0], lambda path, n: answers[n - 1] if path == "/messages" else None)
    with way.client() as client:
        messages = [client.place(one).message(*RECORD) for one in ("a", "b")]
        assert [one["status"] for one in client.send_all(messages)] == ["counted", "late"]
        way.answers = lambda *_: httpx.Response(500)
        with pytest.raises(NoAnswer) as found:
            client.send_all(messages)
    assert found.value.messages == tuple(messages)
    assert len(set(way.bodies("/messages"))) == 1


def test_many_places_by_one_request(published: tuple[Any, str]) -> None:
    results = [{"status": "placed", "plan": 1, "seconds": 9.0}, {"status": "full", "words": "wait"}]
    answers = [{}, {"results": results}, {"results": results[:1], **OURS}, {"results": results, **OURS}]
    way = Way(
        published[0],
        lambda path, n: httpx.Response(201, json=answers[n - 1]) if path == "/places" else None,
    )
    with way.client() as client:
        one, other = client.places(["a", "b"])
    assert isinstance(one, PlanReservation)
    assert isinstance(other, Turned)
    assert (one.number, other.reason, other.final) == (1, "full", False)
    assert way.sent[0][0] == "/plan"


@pytest.mark.parametrize("trust", ["central", "shuffle"])
def test_a_plan_is_checked_before_a_ticket_leaves(published: tuple[Any, str], trust: str) -> None:
    """Also where the server may see records, and where the shuffler's address is known beforehand."""
    shown, key = published
    how: dict[str, Any] = {"promised": "central"}
    if trust == "shuffle":
        how = {"promised": "shuffle", "shuffler": "http://shuffler"}
    for wrong in ({"key": "ab" * 32}, {"key": key, "identity": "0" * 64}):
        way = Way(shown)
        with way.client(**how, **wrong) as client:
            for asked in (client.place, lambda one: client.places([one])):
                with pytest.raises(ValueError, match="plan: "):
                    asked("ticket")
        assert {path for path, _ in way.sent} <= {"/plan", "/keys"}


def test_a_key_is_digits_text_or_a_file(published: tuple[Any, str], tmp_path: Path) -> None:
    from discreet.ledger.signatures import new_key

    digits = new_key(tmp_path / "service.key")
    path = tmp_path / "service.key.pub"
    text = path.read_text()
    (tmp_path / "digits").write_text(digits + "\n")
    keys = [digits, digits.upper(), text, text.strip(), path, str(path), tmp_path / "digits"]
    assert {_public_key(one) for one in keys} == {bytes.fromhex(digits)}
    shown, key = published
    for one in (key, Way(shown)):
        if isinstance(one, Way):
            with one.client(key=path) as client, pytest.raises(ValueError, match="is not signed"):
                client.plan()
        else:
            with Way(shown).client(key=one) as client:
                assert client.plan()["turn"] == 0
    private = (tmp_path / "service.key").read_text()
    body = text.splitlines()[1]
    for wrong in (
        "", "ab", digits[:-1], digits[:-1] + "x", digits + "0", "no such file", tmp_path,
        text[:60], 17, b"ab",
        text.replace(body, body[:-8]), text.replace(body, "A" * len(body)), private, tmp_path / "service.key",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="key") as found:
            Client("http://study", wrong, promised="central")  # type: ignore[arg-type]
        assert "must be the service's public key" in str(found.value)
        assert private.splitlines()[1] not in str(found.value)


def test_a_key_without_cryptography_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ImportError, match=r"pip install 'discreet\[client\]'"):
        Client("http://study", "ab" * 32, promised="central")


def test_a_kept_message_is_of_one_form() -> None:
    message = PendingMessage({"ticket": "é", "message": "AAAA"}, 3, 12.5)
    assert message.to_bytes() == (
        b'{"discreet":"message, 1","plan":3,"until":12.5,"table":{"ticket":"\\u00e9","message":"AAAA"}}'
    )
    assert PendingMessage.from_bytes(message.to_bytes()) == message
    kept = message.to_bytes()
    changed = [(b", 1", b", 2"), (b"12.5", b"NaN"), (b"12.5", b"true"), (b":3", b":true"), (b":3", b":3.5")]
    for wrong in (b"", b"[]", b"{}", b"\xff", kept[:-1], *(kept.replace(*one) for one in changed)):
        with pytest.raises(ValueError, match="content: must be the bytes of a message"):
            PendingMessage.from_bytes(wrong)


def test_under_central_trust_the_device_checks_the_record() -> None:
    """An invalid record gives an error on the device, and the user can then encode the correct one."""
    world = {
        "states": 3,
        "actions": 2,
        "horizon": 2,
        "rewards": [-1.0, 1.0],
        "mask": [[1, 1], [1, 0], [1, 1]],
    }
    book = {"world": world, "form": None, "trust": "joint"}
    place = PlanReservation("t", 1.0, {"number": 1, "users": 1, "policy": [[0] * 3] * 2}, book)
    for record, words in (
        (([0, 1], [0, 0], [0.0, 0.0]), "states has shape"),
        (([0, 1, 3], [0, 0], [0.0, 0.0]), r"states: every entry must be an integer in \[0, 2\]"),
        (([0, 1.5, 2], [0, 0], [0.0, 0.0]), "states has shape"),
        (([0, 1, 2], [0, 2], [0.0, 0.0]), "actions: every entry"),
        (([0, 1, 2], [0, 1], [0.0, 0.0]), "not admissible"),
        (([0, 1, 2], [0, 0], [0.0]), "rewards: must be 2 numbers"),
        (([0, 1, 2], [0, 0], [0.0, 1.5]), "rewards: every entry"),
    ):
        with pytest.raises(ValueError, match=words):
            place.message(*record)
    message = place.message([0, 1, 2], [0, 0], [-1.0, 0.5])
    assert message.table["states"] == [0, 1, 2]
    assert message.table["rewards"] == [-1.0, 0.5]
    with pytest.raises(RuntimeError, match="was encoded already"):
        place.message([0, 1, 2], [0, 0], [-1.0, 0.5])
