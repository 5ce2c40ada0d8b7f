"""One answer a ticket, one release a turn, one writer; and what a death in between leaves."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from serving import Clocked, a_study, a_writer, begun, central, placed
from serving import stopped as time

from discreet.core.rng import Seeded
from discreet.device.published_device import device_from_bytes
from discreet.service import database as stores
from discreet.service import release_worker as turns
from discreet.service.database import ReservationRequest, StaleWriter, Store, TicketMessage, hashed
from discreet.service.message_validation import CentralAdmission, LocalAdmission, admission_of
from discreet.service.study_config import Study


def answers(
    study: Study, store: Store, tickets: list[str], plans: list[int], first: int = 0
) -> list[TicketMessage]:
    admission = CentralAdmission(study.layout, study.rewards)
    return [
        admission.answer(central(ticket, plan, first + i))
        for i, (ticket, plan) in enumerate(zip(tickets, plans, strict=True))
    ]


def a_batch(study: Study, store: Store) -> list[str]:
    """Everybody whom the open plans wait for comes. Returns their tickets."""
    size = sum(one["users"] - one["placed"] for one in store.plans())
    tickets = store.new_tickets(size)
    found = answers(study, store, tickets, placed(store, tickets), 1000 * store.about()["turn"])
    assert {one.status for one in store.admit(found, time.time(), 60.0)} == {"counted"}
    return tickets


def test_two_connections_open_a_new_database_at_once(tmp_path: Path) -> None:
    """Without a second try, one of the two failed in about a tenth of the openings."""
    errors = list[BaseException]()
    for number in range(60):
        both = threading.Barrier(2)

        def start(path: Path = tmp_path / f"{number}.db", both: threading.Barrier = both) -> None:
            both.wait(300)
            try:
                with closing(Store(path)) as store:
                    assert not store.created("0" * 64)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=start) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(300)
    assert errors == []


def test_a_ticket_answers_once_and_the_same_message_gets_the_same_answer(tmp_path: Path) -> None:
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    first, other = store.new_tickets(2)
    ask = ReservationRequest(hashed(first))
    (plan,) = placed(store, [first])
    assert placed(store, [first]) == [plan]  # asked again: the same place
    admission = CentralAdmission(study.layout)
    now, mine = time.time(), admission.answer(central(first, plan, 7))
    assert [one.status for one in store.admit([mine, mine], now, 60.0)] == ["counted"] * 2
    assert store.admit([mine], now, 60.0)[0] == store.admit([mine], now, 60.0)[0]
    second = admission.answer(central(first, plan, 8))  # another message with her ticket
    stolen = admission.answer(central(other, plan, 7))  # her bytes with another ticket
    stranger = admission.answer(central("nobody", plan, 9))
    found = store.admit([second, stolen, stranger, ask, ReservationRequest(hashed("nobody"))], now, 60.0)
    assert [one.status for one in found] == ["spent", "replayed", "foreign", "spent", "foreign"]
    assert [one["came"] for one in store.plans()] == [1]
    assert len(store.messages(plan)) == 1


def test_who_has_no_place_is_not_counted_and_a_full_plan_takes_nobody(tmp_path: Path) -> None:
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    one, two = store.new_tickets(2)
    admission = CentralAdmission(study.layout)
    early = admission.answer(central(one, 1, 1))
    assert store.admit([early], time.time(), 60.0)[0].status == "placeless"
    assert store.admit([ReservationRequest(hashed(one)), early], time.time(), 60.0)[1].status == "counted"
    late = [
        ReservationRequest(hashed(two)),
        admission.answer(central(two, 1, 2)),
        admission.answer(central(two, 9, 3)),
    ]
    found = store.admit(late, time.time(), 60.0)  # release 0 is followed by one person
    assert [one.status for one in found] == ["full", "placeless", "late"]


def test_tickets_and_tokens_are_stored_as_hashes_in_a_file_for_its_owner(tmp_path: Path) -> None:
    store = begun(a_study(), tmp_path / "a.db")
    secrets = [*store.new_tickets(3), store.new_token()]
    assert store.knows_token(secrets[-1])
    assert not store.knows_token(secrets[0])
    store.close()
    for path in tmp_path.iterdir():
        assert not any(secret.encode() in path.read_bytes() for secret in secrets)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_who_does_not_answer_in_time_is_absent_and_her_place_is_nobodys(tmp_path: Path) -> None:
    study = a_study()
    store, now = begun(study, tmp_path / "a.db"), time.time()
    slow, quick = store.new_tickets(2)
    placed(store, [slow])
    assert store.mark_expired(now + 59, None) == 0
    assert store.mark_expired(now + 61, None) == 1
    assert store.admit([ReservationRequest(hashed(quick))], now + 62, 60.0)[0].status == "full"
    answer = CentralAdmission(study.layout).answer(central(slow, 1, 1))
    assert store.admit([answer], now + 62, 60.0)[0].status == "late"
    writer = a_writer(study, store)
    assert writer.step()
    assert json.loads(store.release(1)[0])["users"] == 1  # type: ignore[index]
    # the next plan is closed with nobody in it; who comes just before has no longer than it is open
    (last,) = store.admit([ReservationRequest(hashed(quick))], time.time() + 3590, 60.0, 3600.0)
    assert last.status == "placed"
    assert 0.0 < last.seconds <= 10.0
    assert store.mark_expired(time.time() + 3601, 3600.0) == 1
    assert writer.step()


def test_time_stands_still_while_nobody_holds_the_lease(tmp_path: Path) -> None:
    study = a_study()
    store, now = begun(study, tmp_path / "a.db"), time.time()
    token = store.lease("one", now, 10.0)
    placed(store, store.new_tickets(1))
    assert token == 1
    assert store.lease("two", now + 5, 10.0) is None  # it is held
    assert store.lease("two", now + 1010, 10.0) == 2  # the machine was off for 1 000 seconds
    assert store.mark_expired(now + 1010, 3600.0) == 0
    assert store.mark_expired(now + 1061, 3600.0) == 1
    assert not store.keep(1, now + 1011, 10.0)
    assert store.keep(2, now + 1011, 10.0)


def test_an_expired_lease_that_nobody_took_may_still_write_but_never_twice(tmp_path: Path) -> None:
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    writer = a_writer(study, store)
    a_batch(study, store)
    turn, content = store.session()
    token, plans = writer.token or 0, [(2, 1, "{}")]
    new = stores.Drawn(1, b"x", b"y", "0" * 64, content)
    with pytest.raises(StaleWriter):  # nothing was drawn
        store.turned(token, turn, plans, time.time(), 10.0)
    assert store.about()["turn"] == turn
    for other in (replace(new, number=2), replace(new, number=0)):
        with pytest.raises(StaleWriter):
            store.drew(token, turn, other, time.time(), 10.0)
    store.drew(token, turn, new, time.time(), 10.0)
    with pytest.raises(StaleWriter):  # there is one draw for ever
        store.drew(token, turn, replace(new, exact=b"z"), time.time(), 10.0)
    assert store.exact_release(1) == b"x"
    store.turned(token, turn, plans, time.time(), 10.0)
    with pytest.raises(StaleWriter):
        store.turned(token, turn, plans, time.time(), 10.0)
    with pytest.raises(StaleWriter):
        store.drew(token, turn, new, time.time(), 10.0)
    with pytest.raises(StaleWriter):
        store.ended((writer.token or 0) + 1, 1)
    assert not store.about()["over"]


@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_death_between_noise_and_commit_loses_nothing_and_shows_nothing(tmp_path: Path, trust: str) -> None:
    """Of secure noise the next process draws other noise, since nobody saw the first; of seeded, the same."""
    study = a_study(trust=trust)
    assert not isinstance(study.randomness, Seeded)
    store = begun(study, tmp_path / "a.db")
    size = sum(one["users"] for one in store.plans())
    tickets = store.new_tickets(size)
    plans = placed(store, tickets)
    form = bytes(store.about()["form"])
    if trust == "local":
        device, admission = device_from_bytes(form), admission_of(study, form)
        assert isinstance(admission, LocalAdmission)
        import base64

        policy = np.array(json.loads(store.policies(0)[0]["policy"])["policy"])
        admission.plan(1, policy)
        life = [0, 1, 2, 1, 0], [0, 1, 0, 1], [0.0, 1.0, 0.5, 0.0]
        sent = device(plans[0], policy, *life)  # type: ignore[operator]
        found = [admission.answer({"ticket": tickets[0], "message": base64.b64encode(sent).decode()})]
    else:
        found = answers(study, store, tickets, plans)
    store.admit(found, time.time(), 60.0)

    class Killed(BaseException):
        pass

    def dies() -> None:
        raise Killed

    with pytest.raises(Killed):
        a_writer(study, store, before_commit=dies).step()
    assert store.release(1) is None
    assert store.about()["turn"] == 0
    store.close()
    again = Store(tmp_path / "a.db")
    after = turns.Writer(study, again, "two", Clocked(lambda: time.time() + 100))
    assert after.hold()
    assert after.step()
    first = again.release(1)
    assert first is not None
    assert json.loads(first[0])["users"] == 1
    assert after.refused == 0
    assert not after.step()  # drawn once
    assert again.release(1) == first


def test_a_study_ends_after_its_people(tmp_path: Path) -> None:
    study = a_study(users=3)
    store = begun(study, tmp_path / "a.db")
    writer = a_writer(study, store)
    while not store.about()["over"]:
        a_batch(study, store)
        assert writer.step()
    late = store.new_tickets(1)[0]
    assert store.admit([ReservationRequest(hashed(late))], time.time(), 60.0)[0].status == "over"
    assert not writer.step()


def test_another_study_gets_a_database_of_its_own(tmp_path: Path) -> None:
    store = begun(a_study(), tmp_path / "a.db")
    assert store.created(a_study().identity)
    other = a_study(users=41)
    with pytest.raises(ValueError, match="serves another study"):
        store.created(other.identity)
    with pytest.raises(ValueError, match="holds a study already"):
        turns.begin_study(other, store)
    with pytest.raises(ValueError, match="folder does not exist"):
        Store(tmp_path / "nowhere" / "a.db")


def test_a_lease_that_ran_out_is_taken_anew_so_that_times_stand_still(tmp_path: Path) -> None:
    store = begun(a_study(), tmp_path / "a.db")
    now = time.time()
    [ticket] = store.new_tickets(1)
    token = store.lease("one", now, 10.0)
    assert token is not None
    store.admit([ReservationRequest(hashed(ticket))], now, 60.0)
    assert not store.keep(token, now + 3600.0, 10.0)  # the machine was paused for an hour
    assert store.lease("one", now + 3600.0, 10.0) == token + 1
    assert store.mark_expired(now + 3600.0, 3600.0) == 0


def test_other_databases_are_refused() -> None:
    with pytest.raises(ValueError, match="must be SQLite or PostgreSQL"):
        Store("mysql+pymysql://nobody@localhost/study")


def test_the_log_is_emptied_once_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader keeps it: the sweep asks to come again, closing says so, and then it succeeds."""
    monkeypatch.setattr(stores, "_PATIENCE_MS", 50)
    study = a_study()
    store = begun(study, tmp_path / "a.db")
    writer = a_writer(study, store)
    with sqlite3.connect(tmp_path / "a.db", isolation_level=None) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM messages").fetchone() == (0,)
        a_batch(study, store)
        assert writer.step()
        for _ in range(3):
            last = store.sweep()
        assert last == 1
        with pytest.raises(RuntimeError, match="its write-ahead log could not be emptied"):
            store.close()
        reader.execute("COMMIT")
        assert store.sweep() == 0
        assert (tmp_path / "a.db-wal").stat().st_size == 0
        store.close()
    reader.close()
