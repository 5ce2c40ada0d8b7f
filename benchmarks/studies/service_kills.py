"""The policy service killed at random, under load, with its shuffler and its database: is anything lost or
doubled?

    python -m benchmarks.studies.service_kills [--kills 200] [--trust central local shuffle] [--database
    postgresql|sqlite]

Round after round, a study of a few hundred people who send by real HTTP, each of her own and again and
again until she is answered, some twice. Meanwhile a process chosen at random (the service, the shuffler
under shuffle trust, the PostgreSQL server with all its processes, or all of them at once) gets SIGKILL at
random moments, 1.5 seconds apart in the mean, and is started again. Rounds have noise from a seed and from
the operating system by turns. At the end of each:

- everybody who was answered 202 is counted, once, in the plan that she was told, and nobody else is;
- with a seed, every release is that of an uninterrupted ``dr.simulate``, to the bit: no message was lost or
  counted twice, and the final sums are equal;
- with noise of the operating system, somebody looks at all releases all the time: none ever changes, so
  none was drawn twice. Under central trust the noise is almost nothing (epsilon = 2000), and every release
  is the exact sums of those who were answered; under shuffle trust every sum is, counter by counter, that
  of the messages that were answered. Trust "contexts" is that of a shuffler for real-valued contexts.

PostgreSQL is one that this starts in a temporary folder (``initdb`` and ``postgres`` must be installed),
set to ``synchronous_commit = off``, which the service must not rely on. A process of ours begins as a copy
(``fork``) of one that has imported the library, read the study file and loaded compiled code by a small
rehearsal of its own, in place of doing so for three seconds after each kill. What happened in the study it
reads from the database, as after any other start.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from discreet.device.http_client import Client, Pace, PlanReservation, Turned
from discreet.device.published_device import device_from_bytes
from discreet.experiments.simulate import Setup
from discreet.ledger.signatures import new_key
from discreet.service import encoding as codec
from discreet.service.batch_sums import ShuffledBatches
from discreet.service.database import ANSWERED, Store
from discreet.service.dry_run import people_of, promised_by
from discreet.service.server import opened, opened_shuffler, shuffler_key_at
from discreet.service.study_config import Study, study_of

PACE = Pace(sleep=lambda seconds: time.sleep(min(seconds, 0.4)))  # who is not answered asks again soon
LEASE = 0.5  # seconds: the next process is the writer soon
EVERY = 1.5  # seconds between two kills, in the mean
ROUND = 20  # kills in a round, about

# Imports, reads, loads; then forks for each line of its input a process that serves, and says its number.
SERVICE = """
import json, os, signal, sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
from discreet.service import app, release_worker as turns, server as running, shuffler as shuffling
from discreet.service.participant_statement import make_participant_statement
from discreet.service.database import Store
from discreet.service.study_config import study_of
from discreet.service.system_io import SYSTEM
from discreet.ledger.signatures import read_private_key, read_public_key
part, folder, database, port, noise, lease, service = sys.argv[1:]
folder = Path(folder)
app.LEASE = turns.LEASE = shuffling.LEASE = float(lease)

study = study_of(json.loads((folder / "study.json").read_text()), folder)
tried = study.for_dry_run()  # noise from a seed: none of the system's is drawn before there are copies
study = tried if noise == "seeded" else study
make_participant_statement(study, None, "")
with TemporaryDirectory() as other:
    store = Store(Path(other) / "tried.sqlite")
    turns.begin_study(tried, store)
    turns.Writer(tried, store, "tried", SYSTEM)._state_after(0)
    store.close()

def serve():
    if part == "service":
        running.serve(study, database, "127.0.0.1", int(port))
    else:
        key = running.shuffler_key_at(folder / "shuffler.key")
        public = read_public_key(folder / "service.key.pub")
        running.serve_shuffler(study, database, key, service, public, "127.0.0.1", int(port))

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who is killed is gone at once
for _ in sys.stdin:
    process = os.fork()
    if not process:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        serve()
        sys.exit()
    print(process, flush=True)
"""


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _descendants(process: int) -> list[int]:
    """Children of a process, and theirs: each of PostgreSQL's has a session of its own."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            parents.setdefault(parent, []).append(int(path.parent.name))
    found = parents.get(process, [])
    for child in found:  # grows while it is read
        found.extend(parents.get(child, []))
    return found


class Process:
    """A process with a port, started as often as it was killed, with all its children."""

    def __init__(self, name: str, command: Sequence[Any], port: int, folder: Path) -> None:
        self.name, self.port, self._folder = name, port, folder
        self._command = [str(one) for one in command]
        self._running: Any = None  # subprocess.Popen, or what is like it

    def start(self) -> None:
        """Start it, again if it ends (its database may be down), and wait until its port is open."""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if self._running is None or self._running.poll() is not None:
                self._running = self._launched()
            if self.answers():
                return
            time.sleep(0.05)
        raise RuntimeError(
            f"{self.name} did not start: {(self._folder / f'{self.name}.log').read_text()[-2000:]}"
        )

    def _launched(self) -> subprocess.Popen[bytes]:
        with (self._folder / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True, cwd="/")

    def end(self) -> None:
        """For good."""
        self.kill()

    def answers(self) -> bool:
        """Is it ready?"""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """SIGKILL, to it and its children."""
        if self._running is not None:
            for process in [self._running.pid, *_descendants(self._running.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._running.wait()
            self._running = None


class Forked:
    """A process that another one forked, as far as :class:`Process` needs it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """None while it runs."""
        return None if Path(f"/proc/{self.pid}").exists() else -signal.SIGKILL

    def wait(self) -> None:
        """Until it does not."""
        while self.poll() is None:
            time.sleep(0.005)


class Ours(Process):
    """Service or shuffler: forked from one that has imported what it needs."""

    _first: subprocess.Popen[bytes] | None = None

    def _launched(self) -> Any:
        if self._first is None:
            with (self._folder / f"{self.name}.log").open("ab") as log:
                self._first = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd="/"
                )
        assert self._first.stdin is not None
        assert self._first.stdout is not None
        self._first.stdin.write(b"\n")
        self._first.stdin.flush()
        return Forked(int(self._first.stdout.readline()))

    def end(self) -> None:
        """For good."""
        self.kill()
        if self._first is not None:
            self._first.communicate()
            self._first = None


class Postgres(Process):
    """A PostgreSQL server of our own, in a folder."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), "")
        if not found:
            raise RuntimeError("there is no PostgreSQL here: initdb was not found")
        programs, data, port = Path(found).resolve().parent, folder / "data", free_port()
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if user:  # it refuses to run as root
            folder.chmod(0o755)
            data.mkdir()
            shutil.chown(data, "postgres")
        make = [*user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "discreet"]
        subprocess.run(make, check=True, capture_output=True, cwd="/")
        command = [*user, programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", data]
        super().__init__("database", [*command, "-c", "synchronous_commit=off"], port, folder)
        self._data = data
        self.start()
        for name in ("service", "shuffler"):
            create = [str(programs / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "discreet", name]
            subprocess.run(create, check=True, cwd="/")

    def url(self, name: str) -> str:
        """Of one of its databases."""
        return f"postgresql+psycopg://discreet@127.0.0.1:{self.port}/{name}"

    def answers(self) -> bool:
        """Does it take queries? (The port is open before a crash is repaired.)"""
        import psycopg  # type: ignore[import-not-found,unused-ignore]

        try:
            with psycopg.connect(f"host=127.0.0.1 port={self.port} user=discreet dbname=postgres") as opened:
                return opened.execute("SELECT 1").fetchone() == (1,)
        except psycopg.Error:
            return False


@dataclass
class Round:
    """One study, its processes, and what its people were told."""

    folder: Path
    trust: str
    noise: str
    people: int
    postgres: bool
    counted: dict[int, tuple[int, Any, bytes]] = field(default_factory=dict)  # plan, record, message
    shown: dict[int, set[bytes]] = field(default_factory=dict)  # bodies of each release
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.contexts = self.trust == "contexts"
        self.trust = "shuffle" if self.contexts else self.trust
        ports = {name: free_port() for name in ("service", "shuffler")}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        own = shuffler_key_at(self.folder / "shuffler.key")
        new_key(self.folder / "service.key")
        table = self._table({"url": self.urls["shuffler"], "key": own.public})
        (self.folder / "study.json").write_text(json.dumps(table))
        study = study_of(table, self.folder)
        self.rehearsed = study.for_dry_run()
        self.study: Study = self.rehearsed if self.noise == "seeded" else study
        self.processes: list[Process] = []
        self.databases = {name: str(self.folder / f"{name}.sqlite") for name in ports}
        if self.postgres:
            database = Postgres(self.folder)
            self.processes.append(database)
            self.databases = {name: database.url(name) for name in ports}
        parts = ("service", "shuffler") if self.trust == "shuffle" else ("service",)
        for name in parts:
            command = [
                sys.executable, "-c", SERVICE, name, self.folder, self.databases[name], ports[name],
                self.noise, LEASE, self.urls["service"],
            ]  # fmt: skip
            self.processes.append(Ours(name, command, ports[name], self.folder))

    def _table(self, shuffler: dict[str, str]) -> dict[str, Any]:
        budget: dict[str, Any] = (
            {"epsilon": 4.0} if self.trust == "local" else {"epsilon": 1.0, "delta": 1e-6}
        )
        if self.trust == "central" and self.noise == "secure":
            budget = {"epsilon": 2000.0, "release": "batches"}
        if self.contexts:
            columns = {f"x{i}": {"range": [-1, 1]} for i in range(4)}
            return {
                "name": "killed", "world": {"actions": 3, "users": self.people},
                "context": {"columns": columns}, "shuffler": shuffler,
                "learner": {"name": "linear-bandit", "first": 8, "growth": 1.2},
                "privatizer": {"name": "shuffle", **budget},
                "rehearsal": {"env": "action-contexts", "options": {"columns": 4, "actions": 3}, "seed": 3},
            }  # fmt: skip
        sizes = {"states": 3, "actions": 2, "horizon": 4}
        options = {**sizes, "rewards": "bernoulli", "seed": 5}
        return {
            "name": "killed", "world": {**sizes, "users": self.people}, "learner": {"name": "noise-aware"},
            "privatizer": {"name": self.trust, **budget}, "schedule": {"replan_growth": 1.2},
            "rehearsal": {"env": "random", "options": options, "seed": 3},
            **({"shuffler": shuffler} if self.trust == "shuffle" else {}),
        }  # fmt: skip

    # ------------------------------------------------------------------------------- what happens
    def run(self, most: int, luck: random.Random) -> None:
        """People, and at most so many kills; raises where anything was lost or doubled."""
        try:
            for one in self.processes:
                one.start()
            self._run(most, luck)
        finally:
            for one in reversed(self.processes):
                one.end()

    def _run(self, most: int, luck: random.Random) -> None:
        door = "shuffler" if self.trust == "shuffle" else "service"
        front = (opened_shuffler if door == "shuffler" else opened)(self.study, self.databases[door])
        tickets = front.new_tickets(self.people)
        stop, failed = threading.Event(), list[BaseException]()

        def load() -> None:
            try:
                self._everybody(self.urls[door], tickets)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=load), threading.Thread(target=self._watched, args=(stop,))]
        for thread in threads:
            thread.start()
        try:
            while sum(self.kills.values()) < most and threads[0].is_alive():
                time.sleep(luck.expovariate(1 / EVERY))
                self._kill(luck)
            threads[0].join(600)
            store = Store(self.databases["service"])
            until = time.monotonic() + 120
            while not failed and not _over(store):
                if time.monotonic() > until:
                    raise RuntimeError(f"the study does not end: {self._logs()}")
                time.sleep(0.1)
        finally:
            stop.set()
            threads[1].join()
        if failed:
            raise RuntimeError(self._logs()) from failed[0]
        try:
            self._check(front, store)
        finally:
            front.close()
            store.close()

    def _kill(self, luck: random.Random) -> None:
        killed = self.processes if luck.random() < 0.1 else [luck.choice(self.processes)]
        for one in killed:
            one.kill()
        for one in killed:
            one.start()
        self.kills["all" if len(killed) > 1 else killed[0].name] += 1

    def _logs(self) -> str:
        return "\n".join(f"{path}: {path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))

    def _everybody(self, url: str, tickets: list[str]) -> None:
        """All people of the study, some at a time."""
        study, came = self.study, 0
        how: dict[str, Any] = {"promised": promised_by(study), "tries": 10_000, "timeout": 5.0, "pace": PACE}
        if self.trust == "shuffle":
            how["shuffler"] = url
        with Client(url, **how) as client, ThreadPoolExecutor(8) as pool:

            def tells(user: int, place: PlanReservation, record: Any, message: Any) -> None:
                wanted = {"status": "counted", "plan": place.number}
                for _ in range(1 + (user % 7 == 0)):  # some hear nothing, and send it again
                    if (answer := client.send(message)) != wanted:
                        raise RuntimeError(f"a message was answered {answer}")
                self.counted[user] = place.number, record, bytes(message.table.get("message", ""), "ascii")

            while came < len(tickets):
                try:
                    found = client.places(tickets[came : came + 25])
                except Turned as refused:
                    if refused.reason not in ("late", "busy"):  # a new plan opened meanwhile
                        raise
                    continue
                places = [one for one in found if isinstance(one, PlanReservation)]
                others = {one.reason for one in found if isinstance(one, Turned)}
                if not others <= {"full"}:
                    raise RuntimeError(f"places were refused: {others}")
                sent = []
                for user, place in enumerate(places, came):
                    record, coins = people_of(self.rehearsed, place, user)
                    seeded = self.trust != "central" and self.noise == "seeded"
                    states = record.contexts if self.contexts else record.states
                    message = place.message(states, record.actions, record.rewards, coins if seeded else None)
                    sent.append(pool.submit(tells, user, place, record, message))
                for one in sent:
                    one.result()
                came += len(places)
                if not places:
                    time.sleep(0.01)

    def _watched(self, stop: threading.Event) -> None:
        """Somebody who looks at every release, all the time."""
        number = 0
        with httpx.Client(base_url=self.urls["service"], timeout=2.0) as http:
            while not stop.is_set():
                for one in (number, random.randrange(number + 1)):
                    with suppress(httpx.HTTPError):
                        answer = http.get(f"/releases/{one}")
                        if answer.status_code == 200:
                            self.shown.setdefault(one, set()).add(answer.content)
                            number = max(number, one + 1)
                time.sleep(0.05)

    # ------------------------------------------------------------------------------- what is left
    def _check(self, front: Store, store: Store) -> None:
        """Raise where anything was lost or doubled."""
        import sqlalchemy as sql

        from discreet.service.database import _tickets

        with front._reading() as connection:
            rows = connection.execute(sql.select(_tickets.c.id, _tickets.c.state, _tickets.c.plan)).all()
        kept = {row.id - 1: (row.state, row.plan) for row in rows}
        _same("tickets", kept, {user: (ANSWERED, plan) for user, (plan, _, _) in self.counted.items()})
        made = int(store.about()["turn"])
        for number, bodies in self.shown.items():
            _same(f"what was shown of release {number}", bodies, {store.release(number)[0]})  # type: ignore[index]
        if self.noise == "seeded" and not self.contexts:
            wanted = uninterrupted(self.study)
            _same("releases", made + 1, len(wanted))
            for number, release in enumerate(wanted):
                _same(f"release {number}", store.exact_release(number), codec.exact(release))
        elif self.trust == "central":
            self._check_exact(store, made)
        elif self.trust == "shuffle":
            self._check_sums(store, made)

    def _turn_of(self, store: Store, made: int) -> dict[int, int]:
        return {int(one["number"]): turn for turn in range(made + 1) for one in store.policies(turn)}

    def _check_exact(self, store: Store, made: int) -> None:
        """Each release's transitions are those of the people so far; its noise is below a half."""
        layout, turn_of = self.study.layout, self._turn_of(store, made)
        fresh = np.zeros((made + 1, layout.horizon, layout.states, layout.actions, layout.states))
        steps = np.arange(layout.horizon)
        for number, record, _ in self.counted.values():
            at = (steps, record.states[:-1], record.actions, record.states[1:])
            np.add.at(fresh[turn_of[number]], at, 1)
        for turn in range(made):
            kept = store.exact_release(turn + 1)
            if kept is None:
                raise RuntimeError(f"release {turn + 1} is missing")
            value = codec.of_exact(kept).estimates["transition_counts"].value
            if not np.array_equal(np.rint(value), fresh[: turn + 1].sum(axis=0)):
                raise RuntimeError(f"release {turn + 1}: is not of those who were answered")

    def _check_sums(self, store: Store, made: int) -> None:
        """Each sum that left the shuffler is that of the messages that were answered."""
        import base64

        turn_of, session = self._turn_of(store, made), device_from_bytes(bytes(store.about()["form"])).session
        batches = ShuffledBatches(self.study, session)
        for turn in range(made + 1):
            shuffler: Any = batches.shuffler(store.people_before(turn))
            for plan in store.policies(turn):
                shuffler.open(int(plan["number"]), int(plan["users"]))
                sent = [
                    base64.b64decode(one)
                    for number, _, one in self.counted.values()
                    if number == plan["number"]
                ]
                if shuffler.receive_many(sent) != len(sent):
                    raise RuntimeError("a message that was answered is not of its batch")
            content = json.loads(store.sum_of(turn) or b"")["content"]
            found = np.frombuffer(base64.b64decode(content["counts"]), "<i8")
            came, wanted = shuffler.received, shuffler.output()
            wanted = wanted.cells if self.contexts else wanted.ones
            if content["users"] != came or not np.array_equal(found, wanted):
                raise RuntimeError(f"the sum of turn {turn} is not of the messages that were answered")
        _same("plans", sorted({plan for plan, _, _ in self.counted.values()}), sorted(turn_of))


def _over(store: Store) -> bool:
    try:
        return bool(store.about()["over"])
    except Exception:  # the database was killed and repairs itself
        return False


def _same(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise RuntimeError(f"{what}: differ")


def uninterrupted(study: Study) -> list[Any]:
    """The releases of ``dr.simulate`` step by step."""
    found: dict[int, Any] = {}

    class Seen:
        def __getattr__(self, name: str) -> Any:
            return getattr(study.learner, name)

        def schedule(self, spec: Any) -> Any:
            return study.learner.schedule(spec)

        def query(self, spec: Any) -> Any:
            return study.learner.query(spec)

        def begin(self, spec: Any, ties: Any) -> Any:
            return study.learner.begin(spec, ties)

        def plan(self, state: Any, release: Any, ask: Any) -> Any:
            found[release.number] = release
            return study.learner.plan(state, release, ask)

    seed = int(study.randomness.seed)  # type: ignore[union-attr]
    Setup(study.world, Seen(), study.privatizer, study.users, "episode", True).run(seed, 0)
    return [found[number] for number in sorted(found)]


def trial(
    kills: int, trusts: Sequence[str] = ("central", "local", "shuffle"), postgres: bool = True, seed: int = 7
) -> Counter[str]:
    """Rounds until there were so many kills; how many of what. Raises where anything was lost or doubled."""
    luck, total, rounds = random.Random(seed), Counter[str](), 0
    kinds = [(trust, noise) for noise in ("seeded", "secure") for trust in trusts]
    while sum(total.values()) < kills:
        trust, noise = kinds[rounds % len(kinds)]
        most = min(ROUND, kills - sum(total.values()))
        folder, begun = Path(tempfile.mkdtemp(prefix="discreet-kills-")), time.monotonic()
        try:
            one = Round(folder, trust, noise, 60 + 40 * most, postgres)
            one.run(most, luck)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        total += one.kills
        rounds += 1
        print(
            f"{trust}, {noise}: {dict(one.kills)}, {len(one.counted)} people answered and counted once, "
            f"{len(one.shown)} releases watched, {time.monotonic() - begun:.0f} s",
            flush=True,
        )
    return total


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--trust", nargs="+", default=["central", "local", "shuffle"])
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes that were started end, too
    try:
        total = trial(given.kills, given.trust, given.database == "postgresql", given.seed)
    except SystemExit:
        os._exit(143)  # people who are not answered would ask for a long time
    print(f"{sum(total.values())} kills ({dict(total)}): nothing lost, counted twice or drawn twice")


if __name__ == "__main__":
    main()
