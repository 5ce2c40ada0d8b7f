"""kill -9 and SIGSTOP at random moments, under load: nothing is lost, counted twice, or drawn twice.

``DISCREET_KILLS`` says how many kills (default 20), half of them with seeded noise, where the releases must
be those of an uninterrupted simulation to the bit, and half with secure noise, where every release that
anybody was ever shown must stay as it was, and the sums (under noise that is almost nothing) must be exact.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_study, table

from benchmarks.studies.service_kills import PACE, uninterrupted
from discreet.device.http_client import Client, PlanReservation, Turned
from discreet.service import encoding as codec
from discreet.service.database import ANSWERED, Store
from discreet.service.dry_run import people_of, promised_by
from discreet.service.study_config import study_of

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("DISCREET_KILLS", "20"))
PROCESS = Path(__file__).parents[1] / "helpers" / "served_process.py"
LEASE = 0.5


class Process:
    """The service at one address, started as often as it was killed."""

    def __init__(self, folder: Path, content: dict[str, Any], noise: str, port: int = 0) -> None:
        self.folder, self.noise = folder, noise
        self.file, self.database = folder / "study.json", folder / "a.db"
        self.file.write_text(json.dumps(content))
        if not port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.running: subprocess.Popen[bytes] | None = None
        self.starts: list[float] = []

    def start(self) -> None:
        begun = time.monotonic()
        self.log = (self.folder / "log").open("ab")
        command = [sys.executable, PROCESS, self.file, self.database, self.port, self.noise, LEASE]
        self.running = subprocess.Popen([str(one) for one in command], stdout=self.log, stderr=self.log)
        while time.monotonic() < begun + 300:
            assert self.running.poll() is None, (self.folder / "log").read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    self.starts.append(time.monotonic() - begun)
                    return
            time.sleep(0.01)
        raise AssertionError("the service did not start")

    def kill(self) -> None:
        if self.running is not None:
            self.running.send_signal(signal.SIGKILL)
            self.running.wait()
            self.log.close()
            self.running = None


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Those that a test starts: none outlives it."""
    started: list[Process] = []
    yield started
    for one in started:
        one.kill()


def everybody(url: str, study: Any, tickets: list[str], counted: dict[int, tuple[int, Any]]) -> None:
    """All people of a study, some at a time, each trying again until she is answered."""
    pool, came = ThreadPoolExecutor(8), 0
    with Client(url, promised=promised_by(study), tries=400, timeout=5.0, pace=PACE) as client, pool:

        def tells(user: int, place: PlanReservation, record: Any, message: Any) -> None:
            assert client.send(message) == {"status": "counted", "plan": place.number}
            if user % 7 == 0:  # her connection broke, she sends it again
                assert client.send(message)["status"] == "counted"
            counted[user] = place.number, record

        while came < len(tickets):
            try:
                found = client.places(tickets[came : came + 25])
            except Turned as refused:
                if refused.reason != "late":  # a new plan opened meanwhile
                    raise
                continue
            places = [one for one in found if isinstance(one, PlanReservation)]
            assert {one.reason for one in found if isinstance(one, Turned)} <= {"full"}
            lives = [people_of(study.for_dry_run(), place, user) for user, place in enumerate(places, came)]
            sent = []
            for user, (place, (record, coins)) in enumerate(zip(places, lives, strict=True), came):
                device = coins if study.local and study.randomness.kind == "seeded" else None
                states = record.states if place.features is None else record.contexts
                message = place.message(states, record.actions, record.rewards, device)
                sent.append(pool.submit(tells, user, place, record, message))
            for one in sent:
                one.result()
            came += len(places)
            if not places:
                time.sleep(0.01)


def watched(url: str, shown: dict[int, set[bytes]], stop: threading.Event) -> None:
    """Somebody who looks at every release, all the time."""
    import httpx

    number = 0
    while not stop.is_set():
        for one in (number, random.randrange(number + 1)):
            try:
                answer = httpx.get(f"{url}/releases/{one}", timeout=2.0)
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                shown.setdefault(one, set()).add(answer.content)
                number = max(number, one + 1)
        time.sleep(0.005)


@pytest.mark.parametrize("noise", ["seeded", "secure"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_killed_at_random_moments_under_load(
    tmp_path: Path, processes: list[Process], noise: str, trust: str
) -> None:
    kills, people = max(1, KILLS // 4), 60 * max(1, KILLS // 4)
    more: dict[str, Any] = {"schedule": {"replan_growth": 1.15}}
    if noise == "secure" and trust == "central":  # noise that is almost nothing: sums can be compared
        more["privatizer"] = {"name": "central", "epsilon": 2000.0, "release": "batches"}
    content = table(people, trust, **more)
    study = study_of(content)
    study = study.for_dry_run() if noise == "seeded" else study
    process, luck = Process(tmp_path, content, noise), random.Random(7)
    processes.append(process)
    process.start()
    store = Store(process.database)
    tickets = store.new_tickets(people)
    counted: dict[int, tuple[int, Any]] = {}
    shown: dict[int, set[bytes]] = {}
    stop = threading.Event()
    failed: list[BaseException] = []

    def load() -> None:
        try:
            everybody(process.url, study, tickets, counted)
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=load),
        threading.Thread(target=watched, args=(process.url, shown, stop)),
    ]
    for thread in threads:
        thread.start()
    done = 0
    while done < kills and threads[0].is_alive():
        time.sleep(luck.expovariate(1 / 1.0))
        process.kill()
        done += 1
        process.start()
    threads[0].join(1200)
    until = time.monotonic() + 300
    while not store.about()["over"]:
        assert time.monotonic() < until, (tmp_path / "log").read_text()
        time.sleep(0.05)
    stop.set()
    threads[1].join()
    process.kill()
    if failed:
        raise failed[0]
    assert len(counted) == people
    with store._reading() as connection:  # everybody who was told 202 is counted, once
        from discreet.service.database import _plans, _tickets, sql

        rows = connection.execute(sql.select(_tickets.c.id, _tickets.c.state, _tickets.c.plan)).all()
        plans = {row.number: row for row in connection.execute(sql.select(_plans)).all()}
    assert {row.id - 1: (row.state, row.plan) for row in rows} == {
        user: (ANSWERED, plan) for user, (plan, _) in counted.items()
    }
    for number, plan in plans.items():
        assert plan.came == sum(one == number for one, _ in counted.values())
        assert plan.absent == 0
    for number, contents in shown.items():  # no second noise for a release that was shown
        assert contents == {store.release(number)[0]}  # type: ignore[index]
    made = int(store.about()["turn"])
    if noise == "seeded":
        wanted = uninterrupted(study)
        assert len(wanted) == made + 1
        for number, release in enumerate(wanted):
            assert codec.exact(release) == store.exact_release(number)
    elif trust == "central":
        exact_sums(study, store, made, counted)
    print(
        f"\n{trust}, {noise}: {done} kills, {people} people, {made} releases, {len(shown)} of them watched, "
        f"starts {np.median(process.starts):.1f} s (median), {max(process.starts):.1f} s (worst)"
    )


def exact_sums(study: Any, store: Store, made: int, counted: dict[int, tuple[int, Any]]) -> None:
    """Each release's transitions are those of the people of its plans, up to noise below a half."""
    layout, known = study.layout, 0
    total = np.zeros((layout.horizon, layout.states, layout.actions, layout.states))
    for turn in range(made):
        numbers = {one["number"] for one in store.policies(turn)}
        for number, record in counted.values():
            if number in numbers:
                steps = np.arange(layout.horizon)
                np.add.at(total, (steps, record.states[:-1], record.actions, record.states[1:]), 1)
        release = codec.of_exact(store.exact_release(turn + 1))
        value = release.estimates["transition_counts"].value
        assert np.array_equal(np.rint(value), total)
        known += 1
    assert known == made


def test_a_process_that_is_stopped_and_wakes_is_not_heard(tmp_path: Path, processes: list[Process]) -> None:
    """The writer is paused; another process takes the lease and goes on; the first wakes, not heard."""
    content = table(30, "central", schedule={"replan_growth": 1.5})
    study = a_study(30, schedule={"replan_growth": 1.5})
    first = Process(tmp_path, content, "secure")
    first.start()
    (tmp_path / "two").mkdir()
    store = Store(first.database)
    tickets = store.new_tickets(30)
    (tmp_path / "two" / "service.key").write_bytes((tmp_path / "service.key").read_bytes())
    (tmp_path / "two" / "service.key").chmod(0o600)
    second = Process(tmp_path / "two", content, "secure")
    second.database = first.database
    processes += [first, second]
    second.start()
    assert first.running is not None
    counted: dict[int, tuple[int, Any]] = {}
    shown: dict[int, set[bytes]] = {}
    stop, failed = threading.Event(), list[BaseException]()

    def load() -> None:
        try:
            everybody(second.url, study, tickets, counted)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=load)]
    threads += [threading.Thread(target=watched, args=(one.url, shown, stop)) for one in (first, second)]
    for thread in threads:
        thread.start()
    pauses = 0
    while threads[0].is_alive():
        paused = random.Random(pauses).choice((first, second))
        assert paused.running is not None
        paused.running.send_signal(signal.SIGSTOP)
        time.sleep(3 * LEASE)
        paused.running.send_signal(signal.SIGCONT)
        time.sleep(LEASE)
        pauses += 1
    stop.set()
    for thread in threads:
        thread.join()
    for one in (first, second):
        one.kill()
    if failed:
        raise failed[0]
    assert len(counted) == 30
    made = int(store.about()["turn"])
    assert set(range(made + 1)) >= set(shown)
    for number, contents in shown.items():
        assert contents == {store.release(number)[0]}  # type: ignore[index]
    print(f"\n{pauses} pauses, {made} releases")
