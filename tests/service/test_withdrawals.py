"""Withdrawal: the release is that of an absent user, bit for bit; receipts; refusals."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from serving import (
    Clocked,
    a_key,
    a_study,
    a_writer,
    begun,
    central,
    people_of,
    placed,
    promised_by,
    stopped,
)

from discreet.device.http_client import Client, Turned
from discreet.ledger.signatures import is_valid
from discreet.service import release_worker
from discreet.service.database import RequestResult, ReservationRequest, Store, WithdrawalRequest, hashed
from discreet.service.message_validation import CentralAdmission
from discreet.service.release_worker import Writer, begin_study
from discreet.service.server import all_in_background, in_background
from discreet.service.study_config import Study

RULES: dict[str, dict[str, Any]] = {
    "all": {"close": "all"}, "resolved": {"close": "resolved", "in_flight_least": 40},
    "clock": {"close": "clock", "every": 100.0},
}  # fmt: skip


def study_with(rule: str) -> Study:
    schedule = {"replan_every": 8}
    return a_study(24, serving=RULES[rule], people={"answer_within": 500.0}, schedule=schedule).for_dry_run()


def sent(store: Store, *requests: Any, at: float = stopped.time()) -> list[RequestResult]:
    return store.admit(requests, at, 500.0)


def leaves(ticket: str) -> WithdrawalRequest:
    return WithdrawalRequest(hashed(ticket))


@pytest.mark.parametrize("rule", RULES)
def test_the_release_is_that_of_an_absent_user(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three worlds: a user answers and withdraws; withdraws without an answer; is marked absent."""
    monkeypatch.setattr(release_worker, "LEASE", 1e6)
    study, found = study_with(rule), []
    admission = CentralAdmission(study.layout)
    for world in ("answered", "placed", "absent"):
        time = [stopped.time()]
        io = Clocked(lambda time=time: time[0])  # type: ignore[misc]
        store = Store(tmp_path / f"{world}.db", io)
        begin_study(study, store, io=io)
        with closing(store):
            writer = Writer(study, store, "a test", io)
            assert writer.hold()
            tickets = store.new_tickets(8)
            plans = placed(store, tickets)
            tables = [
                central(ticket, plan, n, actions=[n % 2] * 4)
                for n, (ticket, plan) in enumerate(zip(tickets, plans, strict=True))
            ]
            messages = [admission.answer(table) for table in tables]
            if world == "answered":
                assert sent(store, messages[3])[0].status == "counted"
                assert sent(store, leaves(tickets[3]))[0].status == "withdrawn"
                assert sent(store, leaves(tickets[3]))[0].status == "withdrawn"
                assert sent(store, messages[3])[0].status == "late"
                assert store.messages(plans[3], None if rule == "all" else 0) == []
            if world == "placed":
                assert sent(store, leaves(tickets[3]))[0].status == "withdrawn"
            if world == "absent" and rule == "resolved":
                with store._writing() as connection:  # in the same place of the order
                    batch = store._requests(connection, (), time[0])
                    batch.expire(store._known(connection, {hashed(tickets[3])})[hashed(tickets[3])])
                    batch.write(connection)
            assert {one.status for one in sent(store, *messages[:3], *messages[4:])} == {"counted"}
            if rule != "resolved" and world == "absent":
                assert store.mark_expired(time[0] + 600.0, None) == 1
            time[0] += 111.5  # after the next plans open, by the clock
            assert writer.step()
            assert sent(store, leaves(tickets[2]), at=time[0])[0].status == "counted"
            assert store.sweep() == 7
            while store.sweep():
                pass
            assert sent(store, leaves(tickets[2]), at=time[0])[0].status == "counted"
            assert store.plans()[-1]["turn"] == 1
            found.append((store.exact_release(1), [one["policy"] for one in store.policies(1)]))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_undone_once_the_batch_is_complete(tmp_path: Path, rule: str) -> None:
    """Between the end of a batch and its draw, the writer may have read the messages."""
    study = study_with(rule)
    admission = CentralAdmission(study.layout)
    with closing(begun(study, tmp_path / "a.db")) as store:
        tickets = store.new_tickets(8)
        plans = placed(store, tickets)
        pairs = zip(tickets, plans, strict=True)
        messages = [admission.answer(central(ticket, plan, n)) for n, (ticket, plan) in enumerate(pairs)]
        assert {one.status for one in sent(store, *messages)} == {"counted"}
        if rule == "clock":
            assert sent(store, leaves(tickets[0]))[0].status == "withdrawn"  # only the time closes it
            store.close_due(0, stopped.time() + 100.0)
        assert store.is_whole(0)
        assert sent(store, leaves(tickets[5]))[0].status == "counted"
        assert sent(store, messages[5])[0].status == "counted"
        came = sum(one["came"] for one in store.batch(0))
        assert came == len(messages) - (rule == "clock")


@pytest.mark.parametrize("rule", RULES)
def test_a_withdrawn_message_is_not_counted_with_another_ticket(tmp_path: Path, rule: str) -> None:
    study = study_with(rule)
    admission = CentralAdmission(study.layout)
    with closing(begun(study, tmp_path / "a.db")) as store:
        first, second, third = store.new_tickets(3)
        plan, other = placed(store, [first, second])
        one, copy = (admission.answer(central(*who, 9)) for who in ((first, plan), (second, other)))
        together = sent(store, one, leaves(first), one, leaves(second), leaves(third), leaves("unknown"))
        statuses = [found.status for found in together]
        assert statuses == ["counted", "withdrawn", "late", "withdrawn", "placeless", "foreign"]
        assert sent(store, copy)[0].status in ("late", "replayed")
        fourth = store.new_tickets(1)[0]
        (again,) = placed(store, [fourth])
        assert sent(store, admission.answer(central(fourth, again, 9)))[0].status == "replayed"
        assert [row["came"] for row in store.plans()] == [0] * len(store.plans())
        assert sum(row["absent"] for row in store.plans()) == 2


@pytest.mark.parametrize("rule", ["all", "resolved"])
def test_a_withdrawal_does_not_change_who_is_waited_for(tmp_path: Path, rule: str) -> None:
    """A withdrawn message stays one resolved reservation of its batch; a withdrawn place is one more."""
    study = study_with(rule)
    admission = CentralAdmission(study.layout)
    with closing(begun(study, tmp_path / "a.db")) as store:
        writer = a_writer(study, store)
        tickets = store.new_tickets(8)
        plans = placed(store, tickets)
        pairs = zip(tickets, plans, strict=True)
        messages = [admission.answer(central(ticket, plan, n)) for n, (ticket, plan) in enumerate(pairs)]
        sent(store, *messages[:6], leaves(tickets[0]))
        assert not writer.step()
        sent(store, leaves(tickets[6]), leaves(tickets[7]))
        assert writer.step()
        assert store.release(1) is not None
        (late,) = sent(store, ReservationRequest(hashed(tickets[0])))
        assert late.status == "spent"


@pytest.mark.parametrize("trust", ["central", "local", "shuffle"])
def test_a_user_withdraws_over_http(tmp_path: Path, trust: str) -> None:
    study = a_study(50, trust).for_dry_run()
    key = a_key(tmp_path)
    with all_in_background(study, tmp_path, key) as (url, front, _, _):
        ticket, other = front.store.new_tickets(2)
        shuffler = url if study.shuffled else None
        with Client(url, promised=promised_by(study), shuffler=shuffler) as client:
            place = client.place(ticket)
            first = client.withdraw(ticket)
            assert first == client.withdraw(ticket)
            content = first["content"]
            assert content["ticket"] == hashlib.sha256(ticket.encode()).hexdigest()
            assert content["identity"] == front.study.identity
            assert first["key"] == front._key.public
            assert is_valid(first["key"], "discreet withdrawal, 1", content, first["signature"])
            record, coins = people_of(study, place, 0)
            own = None if trust == "central" else coins
            message = place.message(record.states, record.actions, record.rewards, own)
            with pytest.raises(Turned, match="late"):
                client.send(message)
            for wrong, reason in ((other, "placeless"), ("unknown", "foreign")):
                with pytest.raises(Turned, match=reason):
                    client.withdraw(wrong)
            told = client.statement()["withdrawal"]
            assert "you can withdraw until your batch is complete" in told
            assert "a release cannot be undone" in told
            assert "Backups" in told


def test_a_counted_message_cannot_be_withdrawn(tmp_path: Path) -> None:
    study = a_study(50, serving={"close": "resolved", "in_flight_least": 1})
    with in_background(study, tmp_path / "a.db", a_key(tmp_path)) as (url, service):
        (ticket,) = service.store.new_tickets(1)
        with Client(url, promised="central") as client:
            place = client.place(ticket)
            client.send(place.message([0] * 5, [place.action(h, 0) for h in range(4)], [0.0] * 4))
            with pytest.raises(Turned, match="closed") as refused:  # the first batch has one user
                client.withdraw(ticket)
            assert refused.value.status == 410
            assert refused.value.final
