"""Users who return: who gets a place, what counts, what the database keeps, and what is refused."""

from __future__ import annotations

import hmac
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import a_key, a_study, a_writer, begun, central, stopped

from discreet.core.strategies import Batches
from discreet.device.http_client import Client, Turned
from discreet.service import frozen_mechanism
from discreet.service.database import (
    RequestResult,
    Requests,
    ReservationRequest,
    Store,
    TicketMessage,
    WithdrawalRequest,
    hashed,
)
from discreet.service.dry_run import run_dry
from discreet.service.message_validation import CentralAdmission
from discreet.service.operator_page import page
from discreet.service.participant_statement import make_participant_statement
from discreet.service.release_worker import Writer
from discreet.service.returning_users import (
    MOST_LETTERS,
    Participation,
    Returning,
    code_of,
    least_persons,
    pseudonym_of,
)
from discreet.service.server import in_background
from discreet.service.study_config import Study

RULES = {"all": {"close": "all"}, "resolved": {"close": "resolved"}}
NOW = stopped.time()


def returning(
    rule: str = "resolved", most: int = 2, separation: int = 2, users: int = 40, **more: Any
) -> Study:
    """Batches of 4 people."""
    people = {"answer_within": 500.0, "participations": most, "separation": separation}
    given = {"serving": RULES[rule], "people": people, "schedule": {"replan_every": 4}, **more}
    return a_study(users, **given).for_dry_run()


def ask(store: Store, *tickets: str) -> list[RequestResult]:
    return store.admit([ReservationRequest(hashed(one)) for one in tickets], NOW, 500.0)


def words(results: list[RequestResult]) -> list[str]:
    return [one.status for one in results]


def answered(study: Study, store: Store, *tickets: str) -> list[RequestResult]:
    """Places and answers of these tickets."""
    places = ask(store, *tickets)
    assert words(places) == ["placed"] * len(tickets)
    admission = CentralAdmission(study.layout)
    sent = [
        admission.answer(central(ticket, place.plan, int.from_bytes(hashed(ticket)[:8], "big")))
        for ticket, place in zip(tickets, places, strict=True)
    ]
    return store.admit(sent, NOW, 500.0)


def persons(store: Store) -> list[tuple[int, int | None]]:
    with closing(sqlite3.connect(store.url.database)) as connection:  # type: ignore[arg-type]
        return connection.execute(
            "SELECT taken, last_batch FROM persons JOIN tickets ON person = persons.id GROUP BY person "
            "ORDER BY min(tickets.id)"
        ).fetchall()


@pytest.mark.parametrize("rule", RULES)
def test_a_person_comes_back_after_the_separation_and_no_more_than_the_limit(
    rule: str, tmp_path: Path
) -> None:
    study = returning(rule)
    with closing(begun(study, tmp_path / "a.db")) as store:
        writer = a_writer(study, store)
        names = [f"p{n}" for n in range(12)]
        first, second, third = (store.tickets_for(names) for _ in range(3))
        assert words(answered(study, store, *first[:3])) == ["counted"] * 3
        (refused,) = ask(store, second[0])
        assert refused == RequestResult("again", release=2)
        assert words(answered(study, store, first[3])) == ["counted"]
        if rule == "resolved":  # the batch is complete, and its release is not drawn
            assert ask(store, second[0]) == [RequestResult("again", release=2)]
        assert writer.step()
        assert ask(store, second[0]) == [RequestResult("again", release=2)]
        assert words(answered(study, store, *first[4:8])) == ["counted"] * 4
        assert writer.step()
        assert words(answered(study, store, *second[:4])) == ["counted"] * 4
        assert writer.step()
        for _ in range(2):
            assert ask(store, third[0]) == [RequestResult("again", release=None)]  # for ever
            answered(study, store, *(first[8:12] if _ == 0 else second[4:8]))
            assert writer.step()
        assert ask(store, third[0]) == [RequestResult("again", release=None)]
        assert [taken for taken, _ in persons(store)] == [2] * 8 + [1] * 4


def test_an_open_place_is_the_only_one(tmp_path: Path) -> None:
    study = returning()
    with closing(begun(study, tmp_path / "a.db")) as store:
        one, two, other = store.tickets_for(["a", "a", "b"])
        # in one transaction, and in two
        assert words(ask(store, one, two, other)) == ["placed", "again", "placed"]
        assert words(ask(store, two, one)) == ["again", "placed"]  # the same ticket asks again
        assert ask(store, two)[0].release is None


def test_an_absence_does_not_count_and_a_withdrawal_does(tmp_path: Path) -> None:
    study = returning()
    with closing(begun(study, tmp_path / "a.db")) as store:
        one, two, three, four = store.tickets_for(["a", "a", "b", "b"])
        assert words(ask(store, one, three)) == ["placed", "placed"]
        assert words(store.admit([WithdrawalRequest(hashed(three))], NOW, 500.0)) == ["withdrawn"]
        assert persons(store) == [(0, None), (1, 0)]
        assert store.mark_expired(NOW + 600.0, None) == 1
        assert persons(store) == [(0, None), (1, 0)]
        assert words(ask(store, two, four)) == ["placed", "again"]
        # a message that is withdrawn counts once
        message = CentralAdmission(study.layout).answer(central(two, ask(store, two)[0].plan))
        assert words(store.admit([message], NOW, 500.0)) == ["counted"]
        for _ in range(2):
            assert words(store.admit([WithdrawalRequest(hashed(two))], NOW, 500.0)) == ["withdrawn"]
        assert persons(store) == [(1, 0), (1, 0)]


def test_the_batch_is_the_one_in_which_the_answer_counts(tmp_path: Path) -> None:
    """A place of batch 0 is answered in batch 1, so that the person waits for release 3."""
    study = returning()
    with closing(begun(study, tmp_path / "a.db")) as store:
        first, second = (store.tickets_for([f"p{n}" for n in range(6)]) for _ in range(2))
        admission = CentralAdmission(study.layout)
        plan = ask(store, first[0])[0].plan
        answered(study, store, *first[1:5])
        message = admission.answer(central(first[0], plan))
        assert words(store.admit([message, ReservationRequest(hashed(second[0]))], NOW, 500.0)) == [
            "counted", "again",
        ]  # fmt: skip
        assert ask(store, second[0])[0].release == 3
        assert ask(store, second[1])[0].release == 2


def test_persons_of_a_study_in_which_nobody_returns(tmp_path: Path) -> None:
    """A pseudonym takes part once, beside people with plain tickets."""
    study = a_study(40, serving=RULES["resolved"], schedule={"replan_every": 4}).for_dry_run()
    with closing(begun(study, tmp_path / "a.db")) as store:
        one, two = store.tickets_for(["a", "a"])
        (plain,) = store.new_tickets(1)
        assert words(answered(study, store, one, plain)) == ["counted"] * 2
        assert ask(store, two) == [RequestResult("again")]


def test_the_database_keeps_codes_only(tmp_path: Path) -> None:
    study = returning()
    with closing(begun(study, tmp_path / "a.db")) as store:
        store.tickets_for(["Zo\u00eb 17", "Zoe\u0308 17", "zo\u00eb 18"])
    with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
        ((key,),) = raw.execute("SELECT key FROM person_key").fetchall()
        codes = [row[0] for row in raw.execute("SELECT code FROM persons ORDER BY id")]
        owners = [row[0] for row in raw.execute("SELECT person FROM tickets ORDER BY id")]
    assert len(key) == 32
    assert set(codes) == {hmac.digest(key, one.encode(), "sha256") for one in ("zo\u00eb 17", "zo\u00eb 18")}
    assert owners[0] == owners[1] != owners[2]
    assert "Zo\u00eb".encode() not in (tmp_path / "a.db").read_bytes()
    with closing(begun(study, tmp_path / "b.db")) as other:
        other.tickets_for(["zo\u00eb 18"])
    with closing(sqlite3.connect(tmp_path / "b.db")) as raw:
        assert raw.execute("SELECT code FROM persons").fetchone()[0] not in codes  # another key


@pytest.mark.parametrize(
    ("one", "other"),
    [("P-17", "p-17"), ("\uff30\uff0d17", "p-17"), ("\ufb01x", "fix"), ("STRASSE", "stra\u00dfe"),
     ("\u0390", "\u03b9\u0308\u0301"), ("\u1e9e", "ss"), ("a\u0345\u0301", "a\u0301\u0345")],
)  # fmt: skip
def test_forms_of_one_name_are_one_person(one: str, other: str) -> None:
    assert pseudonym_of(one) == pseudonym_of(other) == pseudonym_of(pseudonym_of(one))


@pytest.mark.parametrize(
    "bad",
    ["", " a", "a ", "a\n", "\u200b", "x" * (MOST_LETTERS + 1), 7, None, ["a"], "a\u034fb", "a\ufe0f",
     "a\u3164", "\U000e0101a", "a\ud800"],
)  # fmt: skip
def test_what_is_no_pseudonym(bad: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="persons: each must be a text of 1 to 200 printable") as told:
        pseudonym_of(bad)
    assert repr(bad) not in str(told.value)
    assert code_of(b"k", pseudonym_of("a")) == hmac.digest(b"k", b"a", "sha256")


def test_tickets_without_a_person_are_not_made_and_not_used(tmp_path: Path) -> None:
    study = returning()
    with closing(begun(study, tmp_path / "a.db")) as store:
        with pytest.raises(ValueError, match="tickets = 3: must be made for pseudonyms"):
            store.new_tickets(3)
        store.participation = Participation()
        (plain,) = store.new_tickets(1)
        with pytest.raises(RuntimeError, match="store.participation"):
            Writer(study, store, "a test", stopped)
        store.participation = study.participation
        assert words(ask(store, plain)) == ["foreign"]


def test_the_check_is_made_when_the_place_is_given() -> None:
    """A person whose row changed after the place is not turned away after they acted."""
    ticket = {"id": 1, "person": 5, "state": 1, "plan": 1, "due": 9.0, "nonce": None}
    plan = {"number": 1, "turn": 0, "users": 4, "placed": 1, "came": 0, "absent": 0, "opened": 0.0}
    people = Returning(Participation(1, 1), {5: {"taken": 1, "last_batch": 0}}, {5: {1}})
    batch = Requests([plan], {b"t": ticket}, set(), False, 1.0, 9.0, 9.0, people=people)
    assert batch.answer(TicketMessage(b"t", 1, b"n" * 16, b"")).status == "counted"
    assert people.changed == {5}


def test_over_http_with_both_ways_to_make_tickets(tmp_path: Path) -> None:
    study = returning(most=2, separation=1)
    key = a_key(tmp_path)
    with in_background(study, tmp_path / "a.db", key) as (url, service):
        token = service.store.new_token()
        post = lambda body, **more: httpx.post(f"{url}/tickets", json=body, **more)  # noqa: E731
        own = {"headers": {"Authorization": f"Bearer {token}"}}
        assert post({"persons": ["a"]}).status_code == 401
        for bad in ({"count": 2}, {"persons": []}, {"persons": [" a"]}, {"persons": ["a"], "count": 1}):
            answer = post(bad, **own)
            assert (answer.status_code, answer.json()["reason"]) == (400, "malformed")
        made = post({"persons": ["a", "a", "b"]}, **own)
        assert made.status_code == 201
        one, two, other = made.json()["tickets"]
        with Client(url, key=key.public, promised="central") as client:
            place = client.place(one)
            with pytest.raises(Turned, match="again: this person took part") as told:
                client.place(two)
            assert (told.value.status, told.value.release, told.value.final) == (403, None, False)
            client.send(place.message([0, 1, 2, 1, 0], [0, 1, 0, 1], [0.0, 1.0, 0.5, 0.0]))
            refused, given = client.places([two, other])
            assert isinstance(refused, Turned)
            assert (refused.reason, refused.release, refused.final) == ("again", 1, False)
            assert not isinstance(given, Turned)
        said = httpx.get(f"{url}/statement").json()
    assert said["participation"]["most"] == 2
    assert "at most 2 times, at least one release apart. The" in said["participation"]["meaning"]
    assert "each user takes part at most 2 times" in said["guarantee"]["statement"]


def test_the_noise_is_frozen_with_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = returning(most=3, separation=2, users=80)
    with closing(begun(study, tmp_path / "a.db")) as store:
        found = frozen_mechanism.frozen(study, store)
        assert found.mechanism.strategy == study.mechanism.strategy
        assert isinstance(found.mechanism.strategy, Batches)
        assert (found.mechanism.strategy.participations, found.mechanism.strategy.separation) == (3, 2)
        monkeypatch.setitem(study.__dict__, "participations", 2)
        with pytest.raises(ValueError, match="has noise for 3 participations, 2 releases apart"):
            frozen_mechanism.frozen(study, store)


def test_studies_that_are_refused() -> None:
    people = {"participations": 2, "separation": 2}
    clock, central = {"close": "clock", "every": 9.0}, {"name": "central", "epsilon": 1.0}
    for given, told in (
        ({"people": {"participations": 0}}, "people.participations = 0"),
        ({"people": {"participations": 101}}, "people.participations = 101"),
        ({"people": {"separation": 2}}, "people.separation = 2: must be left out"),
        ({"people": {"participations": 5, "separation": 2}}, "need 10 releases, and the schedule has 9"),
        ({"people": people, "trust": "local"}, "must be 1 with privatizer Local"),
        ({"people": people, "serving": clock}, 'must be 1 with serving.close = "clock"'),
        ({"privatizer": {**central, "participations": 2}}, "give people.participations"),
        ({"people": people, "privatizer": {**central, "release": "reports"}}, "must be 1 with release = "),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            a_study(40, **{"serving": RULES["resolved"], "schedule": {"replan_every": 4}, **given})


def test_the_statement_and_the_loss(tmp_path: Path) -> None:
    study, alone = returning(), a_study(40, schedule={"replan_every": 4}).for_dry_run()
    assert study.identity != alone.identity
    assert study.guarantee.episodes == 2
    assert study.guarantee.epsilon == pytest.approx(1.0)
    assert (study.mechanism.scales > 1.3 * alone.mechanism.scales).all()  # type: ignore[union-attr]
    said = make_participant_statement(study, None, "")
    assert "at most 2 times, at least 2 releases apart" in said["participation"]["meaning"]
    assert "participation" not in make_participant_statement(alone, None, "")


def test_the_page_counts_participations(tmp_path: Path) -> None:
    said = {1: ("4 of 40 people have taken part", "people in it"),
            2: ("4 of 40 participations were counted so far.", ">participations<")}  # fmt: skip
    for most, words in said.items():
        study = returning(most=most, separation=most)
        with closing(begun(study, tmp_path / f"{most}.db")) as store:
            answered(study, store, *store.tickets_for([f"p{n}" for n in range(4)]))
            shown = page(study, store, make_participant_statement(study, None, ""), "")
            assert [one in shown for one in words] == [True, True]
            assert [one in shown for one in said[3 - most]] == [False, False]


def test_the_least_number_of_persons_can_fill_the_batches() -> None:
    assert least_persons([], Participation(2, 1)) == 0
    for sizes in ([4, 4, 4, 4], [1, 2, 4, 8, 9], [5, 1, 1, 1, 5, 1], [3]):
        for most in (1, 2, 3):
            for separation in (1, 2, 3):
                limits = Participation(most, separation)
                found = least_persons(sizes, limits)
                batches = [i for i, size in enumerate(sizes) for _ in range(size)]
                of = [[b for n, b in enumerate(batches) if n % found == person] for person in range(found)]
                assert max(map(len, of)) <= most
                assert all(b - a >= separation for own in of for a, b in pairwise(own))
                assert all(sum(sizes[i : i + separation]) <= found for i in range(len(sizes)))


def test_a_dry_run() -> None:
    study = returning(users=24)
    assert run_dry(study).users == 24
