"""The same store on PostgreSQL: several processes' transactions at once, one answer a ticket, one writer."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from serving import Clocked, a_study, a_writer, central, stopped

from discreet.service.database import (
    TABLES,
    ReservationRequest,
    StaleWriter,
    Store,
    WithdrawalRequest,
    hashed,
)
from discreet.service.message_validation import CentralAdmission
from discreet.service.release_chain import OldDatabase, head_of
from discreet.service.release_worker import Writer, begin_study
from discreet.service.server import migrate, opened

from .test_database import a_batch

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(
        not shutil.which("initdb") and not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        reason="there is no PostgreSQL server here",
    ),
    pytest.mark.skipif(not find_spec("psycopg"), reason="pip install 'psycopg[binary]'"),
]  # fmt: skip


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty database of a server of its own."""
    found = shutil.which("initdb") or str(next(iter(Path("/usr/lib/postgresql").glob("*/bin/initdb"))))
    programs, folder = Path(found).resolve().parent, Path("/tmp") / f"discreet-postgres-{os.getpid()}"
    folder.mkdir(mode=0o700)
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = str(folder / "data")
    options = f"-h 127.0.0.1 -p {port} -k {folder} -c synchronous_commit=off"
    subprocess.run([*user, programs / "initdb", "-D", data, "-A", "trust", "-U", "discreet"], check=True,
                   capture_output=True, cwd="/")  # fmt: skip
    start = [*user, programs / "pg_ctl", "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd="/")
    try:
        yield f"postgresql+psycopg://discreet@127.0.0.1:{port}/postgres"
    finally:
        stop = [*user, programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"]
        subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd="/")
        shutil.rmtree(folder)


def test_an_earlier_database_is_migrated_and_a_restored_one_refused(url: str, tmp_path: Path) -> None:
    """A restore is one beat and one release back: the rows are taken out by hand."""
    study = replace(a_study(60, learner={"name": "private-ucb-vi"}), folder=tmp_path)
    with closing(Store(url)) as store:
        begin_study(study, store)
        with store._writing() as connection:
            for name in ("links", "beats", "program", "schema", "key_rows", "persons", "person_key"):
                TABLES[name].drop(connection)
            connection.exec_driver_sql("ALTER TABLE tickets DROP COLUMN person")
    with pytest.raises(ValueError, match="run once with --migrate"):
        opened(study, url)
    assert migrate(study, url) == (0, None)
    with closing(opened(study, url)) as store:
        writer = Writer(study, store, "one", stopped)
        writer.head = head_of(study, store)
        assert writer.hold()
        a_batch(study, store)
        assert writer.step()
        assert writer.head is not None
        assert writer.head.path == tmp_path / "study.head"
        assert writer.head.last() == store.mark()
    opened(study, url).close()
    with closing(Store(url)) as store, store._writing() as connection:
        connection.execute(TABLES["beats"].update().values(nonce="0" * 16))
    with pytest.raises(OldDatabase, match="older than what was published"):
        opened(study, url)


def test_a_study_on_postgresql(url: str) -> None:
    study = a_study(60)
    first, second = Store(url), Store(url)  # as two processes have them
    assert not first.created(study.identity)
    begin_study(study, first)
    assert second.created(study.identity)
    assert abs(first.clocked(Clocked(lambda: 0.0)).now() - time.time()) < 60.0  # the clock of the server
    with pytest.raises(ValueError, match="holds a study already"):
        begin_study(study, second)
    admission = CentralAdmission(study.layout)
    writer = a_writer(study, first)
    other = Writer(study, second, "two", stopped)
    assert not other.hold()
    came, nonce = 0, 0
    tickets = first.new_tickets(60)
    with ThreadPoolExecutor(8) as pool:
        while not first.about()["over"]:
            free = sum(one["users"] - one["placed"] for one in first.plans())
            part = tickets[came : came + free]
            asked = [store for store in (first, second) for _ in (0, 1)]  # everybody asks four times at once

            def place(store: Store, part: list[str] = part) -> list[object]:
                return list(store.admit([ReservationRequest(hashed(one)) for one in part], time.time(), 60.0))

            found = list(pool.map(place, asked))
            plans = [[one.plan for one in results] for results in found]  # type: ignore[attr-defined]
            assert all(one == plans[0] for one in plans)
            answers = [
                admission.answer(central(ticket, plan, nonce + i))
                for i, (ticket, plan) in enumerate(zip(part, plans[0], strict=True))
            ]
            nonce += len(answers)
            told = list(pool.map(lambda store, a=tuple(answers): store.admit(a, time.time(), 60.0), asked))
            assert {one.status for results in told for one in results} == {"counted"}
            came += len(part)
            assert writer.step()
    assert came == 60
    assert writer.refused == 0
    while first.sweep():
        pass
    turn, content = second.session()
    assert turn == 6
    assert second.release(6) == first.release(6)
    writer.release_lease()
    assert other.hold()
    with pytest.raises(StaleWriter):
        first.ended(writer.token or 1, turn)
    assert second.knows_token(first.new_token())
    assert content
    first.close()
    second.close()


def test_a_commit_is_on_the_disk_whatever_the_server_says(url: str) -> None:
    store = Store(url)
    with store._engine.connect() as connection:
        found = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
    assert found == "on"
    store.close()


def test_a_lease_is_taken_while_people_answer(url: str) -> None:
    """Both change tickets and plans, in one order: neither waits for the other for ever."""
    study = a_study(4000, schedule={"replan_every": 2000})
    store, other = Store(url), Store(url)
    begin_study(study, store)
    admission, stop = CentralAdmission(study.layout), threading.Event()
    assert store.lease("the first", time.time(), 5.0)
    tickets = store.new_tickets(400)
    store.admit([ReservationRequest(hashed(tickets[0]))], time.time(), 60.0)
    taken = 0

    def takes() -> None:
        nonlocal taken
        while not stop.is_set():  # each begins when the last one is over, and puts all times off
            taken += other.lease(f"holder {taken}", time.time() + 10.0 * (taken + 1), 5.0) is not None

    thread = threading.Thread(target=takes)
    thread.start()
    try:
        for i, ticket in enumerate(tickets[1:]):
            (placed,) = store.admit([ReservationRequest(hashed(ticket))], time.time(), 60.0)
            answer = admission.answer(central(ticket, placed.plan, i))
            assert store.admit([answer], time.time(), 60.0)[0].status == "counted"
    finally:
        stop.set()
        thread.join()
    assert taken > 10
    store.close()
    other.close()


def test_two_processes_close_batches_by_resolved_reservations(url: str) -> None:
    """Eight threads of two processes ask, answer or withdraw at once, each request often: sizes are exact.

    An operator pauses, resumes and extends in the meantime.
    """
    study = a_study(400, serving={"close": "resolved", "in_flight_least": 40})
    first, second = Store(url), Store(url)
    begin_study(study, first)
    second.batches = study.batches(second.close_rule(), second.begun())
    admission, writer = CentralAdmission(study.layout), a_writer(study, first)
    *tickets, spare = first.new_tickets(401)
    stop = threading.Event()

    def one(at: int) -> int:
        """Take part with one ticket, from both processes, until the place is found."""
        ticket = ReservationRequest(hashed(tickets[at]))
        while True:
            store = (first, second)[at % 2]
            (placed,), (again,) = (
                store.admit([ticket], time.time(), 60.0),
                second.admit([ticket], time.time(), 60.0),
            )
            if placed.status in ("full", "paused"):
                time.sleep(0.005)
                continue
            assert again.plan == placed.plan
            leaves = at % 9 == 0
            answer = (
                WithdrawalRequest(ticket.ticket)
                if leaves
                else admission.answer(central(tickets[at], placed.plan, at))
            )
            found = {other.admit([answer], time.time(), 60.0)[0].status for other in (second, first, second)}
            assert found == {"withdrawn" if leaves else "counted"}
            return 0 if leaves else placed.plan

    def steps() -> None:
        while not stop.is_set():
            if not writer.step():
                time.sleep(0.002)

    def operate() -> None:
        seconds = 60.0
        while not stop.is_set():
            first.act("pause", 60.0)
            said = second.admit([ReservationRequest(hashed(spare))], time.time(), 60.0)[0].status
            paused.append(said)
            second.act("resume", 60.0)
            seconds += 1.0
            assert first.act("extend", 60.0, seconds).extended == seconds
            time.sleep(0.05)

    paused = list[str]()
    thread, operator = threading.Thread(target=steps), threading.Thread(target=operate)
    thread.start()
    operator.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            plans = list(pool.map(one, range(400)))
        deadline = time.time() + 600.0
        while not first.about()["over"]:
            assert time.time() < deadline
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()
        operator.join()
    assert "paused" in paused
    assert set(paused) <= {"paused", "over"}
    assert len(first.acts()) == 3 * len(paused)
    rule = first.batches
    assert rule is not None
    parts = [second.batch(turn) for turn in range(study.releases)]
    assert [sum(one["users"] for one in batch) for batch in parts] == [
        rule.size(t) for t in range(len(parts))
    ]
    assert sum(one["absent"] for batch in parts for one in batch) == plans.count(0)
    for number in set(plans) - {0}:
        assert sum(one["came"] for batch in parts for one in batch if one["number"] == number) == plans.count(
            number
        )
    assert writer.refused == 0
    first.close()
    second.close()


def test_a_person_gets_one_place_from_two_processes(url: str) -> None:
    """Eight threads make tickets for the same persons, and ask with all of them at once."""
    people = {"participations": 2, "separation": 1}
    study = a_study(400, serving={"close": "resolved", "in_flight_least": 400}, people=people)
    first, second = Store(url), Store(url)
    begin_study(study, first)
    second.batches = study.batches(second.close_rule(), second.begun())
    second.participation = study.participation
    names = [f"p-{n}" for n in range(30)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda at: (first, second)[at % 2].tickets_for(names), range(8)))

        def asks(at: int) -> list[str]:
            store, own = (first, second)[at % 2], made[at]
            asked = [ReservationRequest(hashed(one)) for one in (own if at % 3 else own[::-1])]
            found = store.admit(asked, time.time(), 60.0)
            return [one.status for one in (found if at % 3 else found[::-1])]

        told = list(pool.map(asks, range(8)))
    for person in zip(*told, strict=True):
        assert sorted(person) == ["again"] * 7 + ["placed"]
    with first._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM persons").scalar() == 30
        assert connection.exec_driver_sql("SELECT count(DISTINCT person) FROM tickets").scalar() == 30
    first.close()
    second.close()
