"""The shuffler: sums and nothing else leave it, once; what the study promises is what it lets in and out."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key, a_study, over_http, same_plans, simulated
from waiting import wait_until

from discreet.device.http_client import Client, PlanReservation, Turned
from discreet.device.published_device import device_from_bytes
from discreet.ledger.signatures import is_valid
from discreet.service import database as stores
from discreet.service.app import Door, Service, ServiceError, application
from discreet.service.batch_sums import ShuffledBatches
from discreet.service.database import ReservationRequest as Asked
from discreet.service.database import StaleWriter, Store, hashed
from discreet.service.dry_run import people_of
from discreet.service.server import both_in_background, opened, opened_shuffler, shuffler_key_at
from discreet.service.shuffler import ShufflerService
from discreet.service.study_config import Study

httpx = pytest.importorskip("httpx")

RECORD = [0, 1, 2, 1, 0], [0, 1, 0, 1], [0.0, 1.0, 0.5, 0.0]
LENIENT = {"name": "shuffle", "epsilon": 1.0, "delta": 1e-6, "dishonest": 0.5}


class Http:
    """Requests to a service that runs in no server."""

    def __init__(self, service: Service) -> None:
        self._inside = httpx.ASGITransport(Door(application(service)))

    def request(self, method: str, path: str, **how: Any) -> Any:
        async def asked() -> Any:
            async with httpx.AsyncClient(transport=self._inside, base_url="http://study") as http:
                return await http.request(method, path, **how)

        return asyncio.run(asked())

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, **how: Any) -> Any:
        return self.request("POST", path, **how)


class Parties:
    """A service and a shuffler, each with its database; nothing happens until it is asked for."""

    def __init__(
        self, folder: Path, users: int = 40, made: Callable[..., Study] = a_study, **more: Any
    ) -> None:
        self.folder = folder
        own = shuffler_key_at(folder / "shuffler.key")
        named = {"url": "http://shuffler", "key": own.public}
        if made is a_study:
            more = {"schedule": {"replan_growth": 4.0}, **more}
        self.study = made(users, "shuffle", **{"shuffler": named, **more})
        self.came = 0
        self.service_key, self.key = a_key(folder), own
        self.service = Service(self.study, opened(self.study, str(folder / "service.db")), self.service_key)
        assert self.service.writer.hold()
        self.service.refresh()
        self.http = Http(self.service)
        self.start()

    def start(self) -> None:
        """The shuffler, from its database."""
        store = opened_shuffler(self.study, str(self.folder / "shuffler.db"))
        self.shuffler = ShufflerService(self.study, store, self.key, "http://study", self.service_key.public)
        self.forwarder = self.shuffler.writer
        self.forwarder._http = self.http
        assert self.forwarder.hold()

    def killed(self) -> None:
        """It dies, and another one goes on."""
        self.forwarder.release_lease()
        self.shuffler.store.close()
        self.start()

    def adopted(self) -> None:
        """The shuffler has the plans that the service published last."""
        while self.forwarder.step():
            pass
        self.shuffler.refresh()

    def people(self, answers: Callable[[int], bool] = lambda _: True, extra: int = 0) -> list[bytes]:
        """Everybody of the open batch: her message, if she answers. What came."""
        store, free = self.shuffler.store, sum(int(one["users"]) for one in self.shuffler.store.plans())
        tickets, sent = store.new_tickets(free + extra), []
        placed = store.admit([Asked(hashed(one)) for one in tickets], time.time(), 3600.0)
        assert [one.status for one in placed] == ["placed"] * free + ["full"] * extra
        book = json.loads(self.shuffler.shown[0])["content"]
        plans = {one["number"]: one for one in book["plans"]}
        for i, (ticket, place) in enumerate(zip(tickets[:free], placed, strict=False)):
            if answers(i):
                message = self.message(PlanReservation(ticket, 60.0, plans[place.plan], book))
                answer = self.shuffler.admission.answer(dict(message.table))
                assert [one.status for one in store.admit([answer], time.time(), 3600.0)] == ["counted"]
                sent.append(answer.body)
        assert store.mark_expired(time.time() + 7200.0, None) == free - len(sent)
        return sent

    def message(self, place: PlanReservation) -> Any:
        """What a device sends."""
        if self.study.features is None:
            return place.message(*RECORD)
        record, _ = people_of(self.study, place, self.came)
        self.came += 1
        return place.message(record.contexts, record.actions, record.rewards)

    def turn(self) -> None:
        """The service makes its release and the next plans."""
        assert self.service.writer.step()
        self.service.refresh()


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    """Of a study where half of a batch's flips are enough."""
    return Parties(tmp_path, privatizer=LENIENT)


class Posted:
    """A request of an operator's system to the shuffler."""

    def __init__(self, token: str, body: Any) -> None:
        self.headers, self._body = {"authorization": f"Bearer {token}"}, json.dumps(body).encode()

    async def stream(self) -> Any:
        yield self._body


def test_the_shuffler_takes_no_pseudonyms(parties: Parties) -> None:
    """It sees single messages, and a pseudonym could tell whose they are."""
    token = parties.shuffler.store.new_token()
    ask = lambda body: asyncio.run(parties.shuffler.issued(Posted(token, body)))  # type: ignore[arg-type]  # noqa: E731
    assert ask({"count": 2}).status_code == 201
    with pytest.raises(ServiceError, match="malformed") as told:
        ask({"persons": ["a"]})
    assert "must be left out with a shuffler" in told.value.words


def test_only_sums_reach_the_service_and_no_message_outlives_its_batch(parties: Parties) -> None:
    seen: list[bytes] = []
    ask = parties.http.request

    def watched(method: str, url: str, **how: Any) -> Any:
        seen.append(how.get("content", b""))
        return ask(method, url, **how)

    parties.http.request = watched  # type: ignore[method-assign]
    parties.adopted()
    parties.people()
    parties.adopted()
    parties.turn()
    parties.adopted()
    sent = parties.people(lambda i: i != 0)  # the batch of three: one is absent
    assert len(sent) == 2
    kept = (parties.folder / "shuffler.db").read_bytes() + (parties.folder / "shuffler.db-wal").read_bytes()
    assert all(one in kept for one in sent)  # on the disk, before anybody was told so
    assert parties.forwarder.step()
    body = json.loads(next(one for one in reversed(seen) if one))
    numbers = [(int(one["number"]), int(one["users"])) for one in parties.shuffler.store.plans()]
    assert all(parties.shuffler.store.messages(number) == [] for number, _ in numbers)
    form = device_from_bytes(base64.b64decode(json.loads(parties.shuffler.shown[0])["content"]["form"]))
    shuffler = ShuffledBatches(parties.study, form.session).shuffler(1)
    for number, users in numbers:  # plans of one batch: each message is to one of them
        shuffler.open(number, users)
        shuffler.receive_many(sent)
    assert shuffler.received == 2
    wanted = shuffler.output()
    content = body["content"]
    assert {name: content[name] for name in ("turn", "users", "absent")} == {
        "turn": 1,
        "users": 2,
        "absent": 1,
    }
    assert np.array_equal(np.frombuffer(base64.b64decode(content["counts"]), "<i8"), wanted.ones)
    parties.turn()
    files = list(parties.folder.glob("service.db*"))
    held = b"".join(path.read_bytes() for path in files) + b"".join(seen)
    for one in sent:  # neither messages nor what would tell them apart
        assert one[32:48] not in held
        assert one[32:48].hex().encode() not in held
        assert one[52:-4] not in held
    with parties.service.store._reading() as connection:
        for table in (stores._tickets, stores._messages):
            assert connection.execute(stores.sql.select(table)).first() is None
    release = json.loads(parties.http.get("/releases/2").content)
    assert (release["users"], release["sums"]["transition_counts"]["covers"]) == (4, 3)


@pytest.mark.parametrize("where", ["before_commit", "before_send", "answer"])
def test_a_shuffler_that_dies_loses_and_doubles_nothing(parties: Parties, where: str) -> None:
    parties.adopted()
    parties.people()
    parties.adopted()
    parties.turn()
    parties.adopted()
    sent = parties.people(lambda i: i != 1)

    class Died(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> Any:
        raise Died

    if where == "answer":  # the service has the sum on its disk, and nobody hears of it
        ask = parties.http.request

        def cut(method: str, url: str, **how: Any) -> Any:
            ask(method, url, **how)
            raise Died

        parties.forwarder._http = type("Cut", (), {"request": staticmethod(cut), "close": lambda _: None})()
    else:
        setattr(parties.forwarder, where, dies)
    for _ in range(2):
        with pytest.raises(Died):
            parties.forwarder.step()
    store = parties.shuffler.store
    stored = sum(len(store.messages(int(one["number"]))) for one in store.plans())
    assert stored == (2 if where == "before_commit" else 0)
    parties.killed()
    parties.adopted()
    parties.turn()
    taken = json.loads(parties.service.store.sum_of(1) or b"")["content"]
    assert (taken["users"], taken["absent"], len(sent)) == (2, 1, 2)
    assert taken == json.loads(parties.shuffler.store.sum_of(1) or b"")["content"]
    assert parties.forwarder.refused == 0
    parties.adopted()
    assert parties.shuffler.store.about()["turn"] == 2


def test_of_two_shuffler_processes_one_is_heard(parties: Parties) -> None:
    parties.adopted()
    parties.people()
    token = parties.forwarder.token

    def taken() -> None:
        parties.forwarder.before_commit = lambda: None
        parties.shuffler.store.release_lease(token, time.time() - 1)
        assert parties.shuffler.store.lease("another", time.time(), 5.0)

    parties.forwarder.before_commit = taken
    with pytest.raises(StaleWriter):
        parties.forwarder.step()
    assert parties.shuffler.store.sum_of(0) is None
    assert not parties.forwarder.step()


def test_too_few_messages_are_not_let_out_and_the_study_goes_on(tmp_path: Path) -> None:
    parties = Parties(tmp_path)  # all flips of a batch are needed
    parties.adopted()
    parties.people()
    parties.adopted()
    parties.turn()
    parties.adopted()
    assert len(parties.people(lambda i: i != 2)) == 2
    parties.adopted()
    content = json.loads(parties.service.store.sum_of(1) or b"")["content"]
    assert (content["users"], content["absent"], content["counts"]) == (2, 1, None)
    parties.turn()
    first, second = (json.loads(parties.http.get(f"/releases/{n}").content) for n in (1, 2))
    assert (second["number"], second["users"]) == (2, 4)
    assert second["sums"] == first["sums"]  # the last release again
    assert all(one["covers"] == 0 for one in second["newest"].values())
    while not parties.service.over:
        parties.adopted()
        parties.people()
        parties.adopted()
        parties.turn()
    last = json.loads(parties.http.get(f"/releases/{parties.service.turn}").content)
    assert {one["covers"] for one in last["sums"].values()} == {last["users"] - 3}
    parties.adopted()
    assert parties.shuffler.store.about()["over"]


def test_the_operators_page_says_what_is_known_of_a_batch(tmp_path: Path) -> None:
    parties = Parties(tmp_path, users=7)  # all flips of a batch are needed

    def shown() -> str:
        text: str = parties.http.get("/").text.partition('id="people"')[2].partition("</section>")[0]
        assert "<table>" not in text  # a number of people who answered would be 0 until a batch is whole
        return text

    assert "Working. People take part at the shuffler, http://shuffler." in parties.http.get("/").text
    parties.adopted()
    assert "waits for a batch of one person. The shuffler keeps" in shown()
    parties.people()
    assert "does not know how many have answered" in shown()
    assert "The last complete batch" not in shown()
    parties.adopted()
    assert "sent the sum of the batch of one person" in shown()
    parties.turn()
    assert "1 of 7 people have taken part, in complete batches." in shown()
    assert "The last complete batch had one person; 1 answered in time.<" in shown()
    parties.adopted()
    parties.people(lambda i: i != 2)
    parties.adopted()
    parties.turn()
    said = shown()
    assert (
        "batch had 3 people; 2 answered in time: too few for the guarantee, so nothing was released" in said
    )
    assert "waits for a batch of 3 people." in said
    parties.adopted()
    parties.people()
    parties.adopted()
    assert parties.service.writer.step()
    assert "7 of 7 people" in shown()
    assert "waits" not in shown()
    assert "The study is over." in parties.http.get("/").text


def test_a_client_sends_to_the_shuffler_that_its_person_was_told_of(tmp_path: Path) -> None:
    study = a_study(20, "shuffle", privatizer=LENIENT)
    with both_in_background(study, tmp_path, a_key(tmp_path)) as (url, shuffler, address, service):
        ticket, other = shuffler.store.new_tickets(2)
        told: dict[str, Any] = {"promised": "shuffle", "shuffler": url}
        for at in (url, address):  # plans are the same bytes at both
            with Client(at, service._key.public, identity=service.study.identity, **told) as client:
                place = client.place(ticket)
                assert place.guarantee is not None
                assert place.guarantee.shuffled
        message = place.message(*RECORD)
        with Client(url, **told) as client:
            assert client.send(message) == client.send(message) == {"status": "counted", "plan": 1}
            with pytest.raises(Turned, match="foreign"):
                client.place("a stranger's")
            wait_until(
                lambda: min(service.turn, shuffler.turn) >= 1, lambda: (service.failed, shuffler.failed)
            )
            assert client.send(message)["status"] == "counted"  # she did not hear of it, and asks again
            assert client.place(other).number == 2
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"promised": "shuffle", "shuffler": "http://elsewhere"}, "names another shuffler"),
            ({"promised": "central"}, "is of shuffle trust"),
            ({"promised": 4.0}, "asks for epsilon = inf"),
        ]
        for how, words in wrong:
            with Client(url, **how) as client, pytest.raises(ValueError, match=words):
                client.plan()
        with pytest.raises(ValueError, match="shuffler = None"):
            Client(url, promised="shuffle")
        statement = httpx.get(f"{address}/statement").json()
        assert (statement["trust"], statement["shuffler"]["url"]) == ("shuffle", url)
        assert "If shuffler and operator cooperate" in " ".join(statement["who_sees_what"])
        assert "Without the shuffler" in statement["who_sees_what"][-1]
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        assert httpx.get(f"{url}/releases/0").status_code == httpx.get(f"{url}/").status_code == 404
        paths = [set(httpx.get(f"{at}/openapi.json").json()["paths"]) for at in (url, address)]
        verbs = {f"/operator/{verb}" for verb in ("pause", "resume", "extend", "revoke")}
        assert paths[0] - paths[1] == {"/places", "/messages", "/withdrawals", "/tickets", *verbs}
        assert paths[1] - paths[0] == {"/sums", "/releases/{number}", "/keys"}
        assert httpx.get(address).status_code == 200


def test_everyone_can_see_what_the_operator_of_the_shuffler_does(tmp_path: Path) -> None:
    study = a_study(20, "shuffle", privatizer=LENIENT)
    with both_in_background(study, tmp_path, a_key(tmp_path)) as (url, shuffler, _, _service):
        mine = {"Authorization": f"Bearer {shuffler.store.new_token()}"}
        httpx.post(f"{url}/operator/pause", headers=mine).raise_for_status()
        longer = {"answer_within": 2.0 * study.answer_within}
        httpx.post(f"{url}/operator/extend", json=longer, headers=mine).raise_for_status()
        statement = httpx.get(f"{url}/statement").json()
        assert any("(GET /log)" in one for one in statement["side_channels"])
        assert statement["absent"]["answer_within_seconds"] == longer["answer_within"]
        signed = httpx.get(f"{url}/log").json()
        assert is_valid(signed["key"], "discreet log, 1", signed["content"], signed["signature"])
        assert signed["key"] == statement["key"]
        assert [one["kind"] for one in signed["content"]["acts"]][-2:] == ["pause", "extend"]
        assert signed["content"]["links"] == []


def test_what_a_shuffler_refuses(parties: Parties) -> None:
    parties.adopted()
    admission = parties.shuffler.admission
    book = json.loads(parties.shuffler.shown[0])["content"]
    sent = PlanReservation("t", 1.0, book["plans"][0], book).message(*RECORD).table
    body = bytearray(base64.b64decode(sent["message"]))
    good = admission.answer(dict(sent))
    assert (good.plan, good.body) == (1, bytes(body))

    def changed(at: int, to: int) -> str:
        import zlib

        wrong = bytearray(body)
        wrong[at] = to
        wrong[-4:] = zlib.crc32(bytes(wrong[:-4])).to_bytes(4, "little")
        return base64.b64encode(bytes(wrong)).decode()

    cases = [
        ({**sent, "message": "é"}, "malformed", "base64"),
        ({**sent, "message": base64.b64encode(body[:-1]).decode()}, "malformed", "form"),
        ({**sent, "message": changed(20, body[20] ^ 1)}, "foreign", "another session"),
        ({**sent, "message": changed(8, 9)}, "late", "no plan"),
        ({**sent, "message": changed(8, 0)}, "late", "no plan"),
        ({**sent, "message": changed(59, 255)}, "malformed", "form"),
        ({**sent, "address": 1}, "malformed", "nothing else"),
    ]
    for table, reason, words in cases:
        with pytest.raises(ValueError, match=words) as error:
            admission.answer(table)
        assert error.value.reason == reason  # type: ignore[attr-defined]


def test_databases_are_not_mistaken_for_each_other(parties: Parties) -> None:
    study, folder = parties.study, parties.folder
    with pytest.raises(ValueError, match="that of the service"):
        opened_shuffler(study, str(folder / "service.db"))
    with pytest.raises(ValueError, match="that of the shuffler"):
        opened(study, str(folder / "shuffler.db"))
    with pytest.raises(ValueError, match="a shuffler is for no other"):
        opened_shuffler(a_study(), str(folder / "c.db"))
    with (
        closing(Store(folder / "shuffler.db")) as store,
        pytest.raises(ValueError, match="not this shuffler"),
    ):
        ShufflerService(study, store, parties.service_key, "", "")


def test_amplified_reports_give_the_policies_of_a_simulation(tmp_path: Path) -> None:
    amplified = {"name": "shuffle", "epsilon": 1.0, "delta": 1e-6, "randomizer": "amplified"}
    study = a_study(40, "shuffle", privatizer=amplified, schedule={"replan_growth": 4.0}).for_dry_run()
    same_plans(over_http(study, tmp_path, 40, 2), simulated(study))
