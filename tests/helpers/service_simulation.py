"""Simulation of a served study: two processes, their database, users, proxies, and faults, from one seed.

The service, its intake queue, its writer, its session and its head are the real ones. With the store
"sqlite", the database is too; with "dictionary", a model of database, session and learner stands in, which is
faster. In some seeds, an operator replaces the database by an earlier copy (:class:`Backup`).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from simulated_stores import DictionaryStore, Held, SqliteStore, digest
from simulated_system import EPOCH, Faults, Killed, Process, System

from discreet.core import rng as core_rng
from discreet.core.releases import Plan
from discreet.service import app, release_chain, release_worker, server
from discreet.service import encoding as codec
from discreet.service.database import ABSENT, ANSWERED, PLACED, Drawn, TicketMessage, hashed
from discreet.service.message_validation import CentralAdmission, Malformed
from discreet.service.operator_acts import Standing
from discreet.service.release_chain import ChainMark, OldDatabase
from discreet.service.release_worker import LEASE, begin_study
from discreet.service.study_config import Study, study_of
from discreet.service.system_io import Io

StoreName = Literal["sqlite", "dictionary"]
MODES = [
    ("resolved", 2, 0.1), ("resolved", 4, 0.5), ("resolved", 12, 0.0), ("all", None, None),
    ("clock", None, None), ("resolved", 4, 0.5),
]  # fmt: skip
CLOCK, RETURNING = 4, 5  # modes of seeds that are 5 and 4 more than a multiple of 6
TWICE = {"participations": 2, "separation": 2}  # limits of a person in the last mode
PERSONS, OFTEN = 10, 3  # persons of the last mode, and tickets of each
EVERY = 6.0  # seconds between two releases of the last mode
PEOPLE, EXTRA = 12, 5  # reservations of a study; users beyond them
ANSWER_WITHIN = 8.0
CALM = 120.0  # seconds after the last fault within which the study must end


class Violation(AssertionError):
    """An invariant does not hold."""


class Noise:
    """Random bytes instead of the operating system's, which a reference can draw again."""

    def __init__(self) -> None:
        self._rng = random.Random(0)

    def key(self, key: int) -> None:
        self._rng.seed(key)

    def bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def exact(self) -> SimpleNamespace:
        """The samplers of secure noise, with these bytes."""
        real = core_rng.exact
        names = ("discrete_laplace", "discrete_gaussian", "round_to_grid")
        return SimpleNamespace(**{one: partial(getattr(real, one), source=self.bytes) for one in names})


NOISE = Noise()


class Keyed:
    """A session whose draws have keys of their own."""

    def __init__(self, inner: Any, world: World) -> None:
        self.inner, self._world = inner, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def release(self) -> Any:
        """Draw with a new key."""
        world = self._world
        world.draws += 1
        NOISE.key(world.draws)
        found = self.inner.release()
        world.keys[world.exact(found)] = world.draws
        return found


# ------------------------------------------------------------------------- a model of session and learner
class ModelSession:
    """A session that sums numbers, and adds one number as noise."""

    def __init__(self, state: dict[str, int]) -> None:
        self.state, self.open_plan = state, SimpleNamespace(number=0)

    @property
    def guarantee(self) -> Any:
        return World.now.study.guarantee

    @property
    def users(self) -> int:
        return self.state["users"]

    def begin(self, plan: Any) -> None:
        self.state["plans"] += 1
        self.open_plan.number = self.state["plans"]

    def submit_many(self, bodies: list[bytes], number: int, late: bool = False) -> None:
        self.state["users"] += 0 if late else len(bodies)
        self.state["sum"] += sum(int.from_bytes(one, "little") for one in bodies)

    def absent(self, count: int) -> None:
        self.state["users"] += count

    def release(self) -> Any:
        state = self.state
        state["number"] += 1
        noise = int.from_bytes(NOISE.bytes(6), "little")
        return SimpleNamespace(number=state["number"], users=state["users"], sums=state["sum"] + noise)

    def close(self) -> None:
        pass


class ModelAdmission(CentralAdmission):
    """Messages of one number."""

    def __init__(self) -> None:
        pass

    def answer(self, table: Any) -> TicketMessage:
        try:
            body = table["value"].to_bytes(8, "little")
            return TicketMessage(hashed(table["ticket"]), table["plan"], bytes.fromhex(table["nonce"]), body)
        except (KeyError, AttributeError, ValueError):
            raise Malformed("message") from None

    def records(self, bodies: Any) -> Any:
        return bodies


class ModelStudy:
    """A study whose session and learner are models."""

    learner = SimpleNamespace(begin=lambda *_: 0)

    def __init__(self, study: Study) -> None:
        self._study = study
        kept = ("users", "close_rule", "name", "identity", "trust", "rewards", "layout", "answer_within")
        more = ("in_flight_least", "in_flight_share", "times", "guarantee", "mechanism", "every")
        for name in (*kept, *more):
            setattr(self, name, getattr(study, name))
        self.closes_after = self.shuffler = self.ledger = None
        self.shuffled = self.local = False
        self.origins = ()
        self._rule = study.batches(study.close_rule, EPOCH)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def batches(self, close: str, start: float) -> Any:
        return self._rule

    def start(self) -> ModelSession:
        return ModelSession({"users": 0, "sum": 0, "number": -1, "plans": 0})


def _model_planned(study: Any, state: int, release: Any, followed: Any = None) -> Any:
    """Two plans for releases with an odd number, one for others."""
    times = [*study.times, study.users]
    size = int(times[release.number + 1] - times[release.number])
    parts = [size // 2, size - size // 2] if release.number % 2 and size > 1 else [size]
    policy = np.array([[release.number]])
    plans = tuple(Plan(policy, users, last=at == len(parts)) for at, users in enumerate(parts, 1))
    return release_worker._Made(state, plans)


def _model_exact(release: Any) -> bytes:
    return json.dumps([release.number, release.users, release.sums]).encode()


def _model_of_exact(content: bytes) -> Any:
    number, users, sums = json.loads(content)
    return SimpleNamespace(number=number, users=users, sums=sums)


def _model_drawn(release: Any, session: bytes, now: float) -> Drawn:
    exact = _model_exact(release)
    return Drawn(release.number, exact, exact, digest(exact), session)


class _Nothing:
    """Instead of metrics and keys."""

    public = "00" * 32

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def labels(self, *_: Any) -> _Nothing:
        return self

    def inc(self, *_: Any) -> None:
        pass

    set = observe = inc

    def sign(self, *_: Any) -> str:
        return ""


@functools.lru_cache
def a_study(mode: int) -> Study:
    """The study of a mode: rule, and reservations that can be open."""
    close, least, share = MODES[mode]
    serving = {"close": close}
    if least is not None:
        serving |= {"in_flight_least": least, "in_flight_share": share}  # type: ignore[dict-item]
    if close == "clock":
        serving["every"] = EVERY  # type: ignore[assignment]
    world = {"states": 2, "actions": 2, "horizon": 2, "users": PEOPLE}
    return study_of(
        {
            "name": "simulated",
            "world": world,
            "learner": {"name": "noise-aware"},
            "privatizer": {"name": "central", "epsilon": 1.0, "delta": 1e-6},
            "schedule": {"replan_growth": 1.5, "replan_first": 2},
            "serving": serving,
            "people": {"answer_within": ANSWER_WITHIN, **(TWICE if mode == RETURNING else {})},
            "chain": {"head": "head"},
        }
    )


def _empty() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA user_version = 1")
    return connection.serialize()


EMPTY = _empty()


class Setting:
    """Everything that seeds of one mode and one kind of store share."""

    def __init__(self, mode: int, kind: StoreName) -> None:
        self.kind, self.study = kind, a_study(mode)
        io = Fixed()
        NOISE.key(0)
        if kind == "sqlite":
            self.store: Any = SqliteStore(io)
            self.store.restore(EMPTY)
            begin_study(self.study, self.store, io=io)
            self.saved = self.store.saved()
        else:
            self.study = ModelStudy(self.study)  # type: ignore[assignment]
            session = self.study.start()
            release: Any = session.release()
            first = _model_drawn(release, json.dumps(session.state).encode(), 0.0)
            plans = release_worker._rows(_model_planned(self.study, 0, release).plans, 1)
            self.saved = first, plans

    def fresh(self, io: Io) -> Any:
        """The database after release 0."""
        if self.kind == "sqlite":
            self.store.restore(self.saved)
            return self.store.of_process(io, self.study)
        return DictionaryStore(self.study, *self.saved, io)


class Fixed(Io):
    """The system before the simulation begins."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random(0)

    def now(self) -> float:
        return EPOCH

    def random_bytes(self, size: int) -> bytes:
        return self._rng.randbytes(size)


@functools.lru_cache
def setting(mode: int, kind: StoreName) -> Setting:
    return Setting(mode, kind)


class _Key(_Nothing):
    """A key whose signatures are empty: no simulated device looks at them."""


@contextmanager
def stand_ins(kind: StoreName) -> Iterator[None]:
    """Replace noise, and for the dictionary session and learner, in all simulations of this kind."""
    with ExitStack() as stack:
        put = lambda where, **names: stack.enter_context(patch.multiple(where, **names))  # noqa: E731
        logger = logging.getLogger("discreet.service")
        stack.callback(setattr, logger, "disabled", logger.disabled)
        logger.disabled = True
        put(core_rng, exact=NOISE.exact())
        null = dict.fromkeys(("CollectorRegistry", "Counter", "Gauge", "Histogram"), _Nothing)
        put(app, make_participant_statement=lambda *_: {}, _POLL=0.5, **null)
        brought = release_worker.brought_back
        if kind == "dictionary":
            admission = ModelAdmission()
            put(
                app,
                admission_of=lambda *_: admission,
                frozen=lambda study, _: study,
                set_first_row=lambda *_: None,
            )
            names = ("canonical", "plan_table", "policy_of")
            real = {name: getattr(codec, name) for name in names}
            put(
                release_worker,
                admission_of=lambda *_: admission,
                frozen=lambda study, _: study,
                check_learner=lambda *_: -1,
                _planned=_model_planned,
                _drawn=_model_drawn,
                codec=SimpleNamespace(exact=_model_exact, of_exact=_model_of_exact, **real),
                taken_out=lambda session: json.dumps(session.state).encode(),
            )
            brought = lambda content: ModelSession(json.loads(content))  # noqa: E731
        out = release_worker.taken_out
        put(
            release_worker,
            brought_back=lambda content: Keyed(brought(content), World.now),
            taken_out=lambda session: out(getattr(session, "inner", session)),
        )
        yield


# ------------------------------------------------------------------------- the simulated world
class Asked:
    """One request, as the handlers of the service read it."""

    def __init__(self, path: str, body: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.url = SimpleNamespace(path=path)
        self._body = body

    async def stream(self) -> Any:
        yield self._body


@dataclass
class Backup:
    """A copy of the database, with the time of the copy and what its commits have shown."""

    content: bytes
    at: float
    shown: tuple[Any, ...]
    held: Held


class World:
    """One simulation."""

    now: World
    checks_age = False  # True: at the end, a copy is put back that is 2 to 6 s old

    def __init__(self, seed: int, kind: StoreName, client: Callable[..., Any] | None = None) -> None:
        self.system = System(seed)
        self.rng, self.loop = self.system.rng, self.system.loop
        rng = self.rng
        self.seed, self.kind, mode = seed, kind, rng.randrange(CLOCK)
        # so that the other seeds are what they were before these modes
        mode = {5: CLOCK, 4: RETURNING}.get(seed % 6, mode)
        self.setting = setting(mode, kind)
        self.study = self.setting.study
        self.client = client or User
        World.now = self
        self.exact = codec.exact if kind == "sqlite" else _model_exact
        self.draws, self.keys = 0, dict[bytes, int]()  # keys of noise, by the releases that were drawn
        self.store = self.setting.fresh(Fixed(rng))
        self.persons: dict[str, str] = {}  # pseudonyms, by ticket
        self.tickets = self.new_tickets()
        self.store.committed = self.check
        self.numbers = {self.store.number_of(one): one for one in self.tickets}
        self.processes: dict[str, Process] = {}
        self.trace: list[str] = []
        self.violation = ""
        # what is known from outside, and from commits
        self.log: dict[int, tuple[int, int, bytes]] = {}  # ticket: (plan, batch, body)
        self.released: dict[int, str] = {}
        self.placed: dict[int, float] = {}  # ticket: time of the reservation
        self.absent: set[int] = set()
        self.turn, self.over, self.busy = 0, False, len(self.tickets)
        # copies of the database, and what survives that one of them replaces it
        self.published: dict[int, str] = {}
        self.backups, self.forgotten = list[Backup](), set[str]()
        self.down = self.old = False  # no process is to run; every process is to be refused
        self.restores = self.aged = self.refusals = 0  # copies put back, those after 2 s, refused starts
        self.tasks = list[asyncio.Task[Any]]()
        self.done: set[int] = set()  # batches that are complete
        self.leaving: set[str] = set()  # tickets of users who asked to withdraw
        # tickets whose messages were removed before their batch was complete
        self.withdrawn: set[int] = set()
        self.closed: set[int] = set()  # batches of the rule "clock" that are closed
        self.standing, self.doubtful = Standing(), False  # result of the operator's acts
        self.users = [self.client(self, ticket) for ticket in self.tickets]
        on = lambda *values: rng.choice((0.0, *values))  # noqa: E731
        self.lossy, self.odd_clocks = on(0.05), on(0.5)
        self.system.slow = on(0.03, 0.3 if kind == "dictionary" else 0.6)
        self.system.faults = Faults(on(0.003), on(0.02), on(0.02), on(0.03, 0.2), tear=on(0.03))
        self.restoring, checks_age = rng.random() < 0.4, rng.random() < 0.25
        self.checks_age = self.checks_age or checks_age
        self.chaotic, self.calm, self.last_fault = True, 0.0, 0.0
        # without steps of the clock, and threads that read it and are then held up
        self.timely = not self.system.slow
        self.check()

    def new_tickets(self) -> list[str]:
        """Tickets at the beginning."""
        if self.study.participation.most == 1:
            return list(self.store.new_tickets(PEOPLE + EXTRA))
        made = list[str]()
        for _ in range(OFTEN):
            made += self.tickets_for([f"person {n}" for n in range(PERSONS)])
        return made

    def tickets_for(self, persons: list[str]) -> list[str]:
        """New tickets for these pseudonyms."""
        made = list[str](self.store.tickets_for(persons))
        self.persons |= dict(zip(made, persons, strict=True))
        return made

    def say(self, *words: object) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.clock:9.3f} {' '.join(map(str, words))}")

    def violated(self, words: str) -> None:
        """Stop at a violation."""
        if not self.violation:
            self.violation = words
            self.say("VIOLATION", words)

    # ------------------------------------------------------------------------- processes
    def boot(self, name: str) -> None:
        """Start a process."""
        skew = 0.0
        if self.chaotic and self.rng.random() < self.odd_clocks:
            skew = self.rng.choice((3600.0, -3600.0, 7.0))
        process = Process(self.system, name, skew)
        process.service = None  # type: ignore[attr-defined]
        self.processes[name] = process
        self.say("boot", name, skew or "")
        process.spawn(self._serve(process))

    async def _serve(self, process: Process) -> None:
        try:
            store = self.store.of_process(process.io, self.study)
            store.committed = self.store.committed
            await process.io.in_thread(server._is_begun, self.study, store, process.io)
            service = Served(self.study, store, _Key(), process.io)
            await service.start()
            if self.old:
                self.violated("a database is served that is older than what was published")
            process.tasks += [*service._tasks, service.intake._task]
            process.service = service  # type: ignore[attr-defined]
        except (Exception, Killed) as error:  # the process ends; its supervisor starts it again
            self.say("no start", process.name, type(error).__name__)
            if isinstance(error, OldDatabase):
                self.refusals += 1
                if not self.old:
                    self.violated(f"the newest database is refused: {error}")
            process.kill()
        else:
            return

    async def supervise(self) -> None:
        """Start processes that ended."""
        for name in "ab":
            self.boot(name)
        while True:
            await asyncio.sleep(0.3 + 2.0 * self.rng.random())
            for name, process in list(self.processes.items()):
                if not process.alive and not self.down:
                    self.boot(name)

    async def faulty(self) -> None:
        """Kill, hold up and restart processes for a while; then everything is well."""
        rng, faults = self.rng, self.system.faults
        kills, holds, disks = rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.2
        steps = rng.random() < 0.2
        for _ in range(rng.randrange(2, 8)):
            await asyncio.sleep(4.0 * rng.random())
            if self.restoring:
                if self.backups and rng.random() < 0.4:
                    await self.restore(rng.choice(self.backups[-4:]))
                self.keep_backup()
            process = self.processes[rng.choice("ab")]
            if kills and rng.random() < 0.5:
                self.say("kill", process.name)
                process.kill()
            elif holds:
                process.resumes = self.loop.clock + 10.0 * rng.random()
            elif disks:
                full = rng.choice(("full", "no_lines"))
                setattr(faults, full, True)
                await asyncio.sleep(3.0 * rng.random())
                setattr(faults, full, False)
            if steps and rng.random() < 0.3:
                self.timely = False
                self.system.step = rng.choice((-3600.0, -20.0, 0.0, 20.0, 3600.0, 3600.0))
                self.say("step", self.system.step)
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random())
                    self.system.step = 0.0
        self.chaotic, self.lossy, self.system.slow = False, 0.0, 0.0
        self.system.faults, self.system.step = Faults(), 0.0
        self.last_fault = self.loop.clock
        self.say("calm")
        if self.checks_age:  # both processes are well, so one of them writes beats
            await asyncio.sleep(2 * LEASE + 3.0)
            self.restoring = True
            self.keep_backup()
            old = self.backups[-1]  # a release can add a copy in the meantime
            await asyncio.sleep(2.0 + 4.0 * rng.random())
            await self.restore(old, too_old=True)
        self.last_fault = self.calm = self.loop.clock

    async def operate(self) -> None:
        """Pause, resume and extend at random times; in the end, resume."""
        rng = random.Random(f"operator {self.seed}")
        while self.chaotic:
            await asyncio.sleep(6.0 * rng.random())
            verb = rng.choice(("pause", "resume", "extend"))
            longest = self.standing.stays(ANSWER_WITHIN)
            seconds = min(20.0, longest + 3.0 * rng.random()) if verb == "extend" else None
            await self._order(verb, seconds, rng)
        while True:  # an earlier request to pause can arrive late
            await asyncio.sleep(1.0)
            if self.standing.paused:
                await self._order("resume", None, rng)

    async def _order(self, verb: str, seconds: float | None, rng: random.Random) -> None:
        """Send a command until a process answers, then check that the database has it."""
        body = b"" if seconds is None else json.dumps({"answer_within": seconds}).encode()
        self.say("operator", verb, seconds or "")
        while True:
            restores = self.restores
            process, done = self.processes[rng.choice("ab")], self.loop.create_future()
            self._arrive(process, f"/operator/{verb}", body, done)
            end = self.loop.call_later(2.0, _give, done, (0, b""))
            code, _ = await done
            end.cancel()
            self.doubtful = self.doubtful or not code  # a request without an answer can arrive later
            if code == 200 and not (self.doubtful or self.down) and restores == self.restores:
                now = self.store.held().standing
                known = now.extended >= seconds if seconds else now.paused == (verb == "pause")
                if not known:
                    self.violated(f"operator: {verb} was answered, and is not stored")
            if code in (200, 400):  # 400: a copy of the database, or a lost answer, had a longer time
                return
            await asyncio.sleep(0.5)

    # ------------------------------------------------------------------------- copies of the database
    def keep_backup(self) -> None:
        """Copy the database, as an operator does at some time, and before a release is stored."""
        if self.restoring:
            shown = self.log.copy(), self.released.copy(), self.placed.copy(), self.absent.copy()
            ended = self.withdrawn.copy(), self.done.copy(), self.closed.copy()
            own = (*shown, self.numbers.copy(), *ended, self.turn, self.over)
            self.backups.append(Backup(self.store.saved(), self.loop.clock, own, self.store.held()))

    def _put_back(self, backup: Backup) -> None:
        self.store.restore(backup.content)
        *shown, self.turn, self.over = backup.shown
        self.standing = backup.held.standing
        self.log, self.released, self.placed, self.absent, self.numbers, *ended = (
            one.copy() for one in shown
        )
        self.withdrawn, self.done, self.closed = ended

    async def restore(self, backup: Backup, *, too_old: bool = False) -> None:
        """Stop all processes, and put a copy of the database back; sometimes, the head is lost as well.

        A copy without the newest line of the head must be refused. Then the operator puts the newest database
        back. Another copy has lost what came after it, and the study goes on from there.

        too_old : True if the copy must be refused because of its age.
        """
        self.down = True
        for process in self.processes.values():
            process.kill()
        await asyncio.sleep(0.01)
        self.keep_backup()
        newest = self.backups.pop()
        path = self.study.path("head")
        self._put_back(backup)
        # a copy from before the first beat is like a new database, so nothing shows that its head is lost
        lost = self.store.beats() > 0 and self.rng.random() < 0.2
        if lost:
            self.system.files.pop(path, None)
        self.restores += 1
        self.aged += too_old
        line = _last_line(self.system.files.get(path, b""))
        known = self.store.beats() == 0 if line is None else self.store.contains(line)
        self.old = too_old or not known
        self.say("restore", f"{self.loop.clock - backup.at:.2f} s,", "refused" if self.old else "accepted")
        if self.old:
            for name in "ab":
                self.boot(name)
            await asyncio.sleep(1.0 + 2.0 * self.rng.random())
            for process in self.processes.values():
                process.kill()
            await asyncio.sleep(0.01)
            self._put_back(newest)
            if lost:
                self._new_head()
            self.old = False
        else:
            self._forget(newest)
        self.down = False

    def _new_head(self) -> None:
        """Begin a new head for the newest database, as an operator does."""
        faults, self.system.faults = self.system.faults, Faults()
        process = Process(self.system, "operator")
        store = self.store.of_process(process.io, self.study)
        head = release_chain.head_of(self.study, store, process.io)
        assert head is not None
        release_chain.new_head(store, head)
        self.system.faults = faults

    def _forget(self, before: Backup) -> None:
        """Give new tickets to new users, one for each ticket whose last events are lost."""
        log, numbers = before.shown[0], before.shown[4]
        lost, now = before.held.tickets, self.store.held().tickets
        gone = {
            ticket
            for number, ticket in numbers.items()
            if self.numbers.get(number) != ticket
            or now.get(number) != lost[number]
            or self.log.get(number) != log.get(number)
        }
        self.forgotten |= gone
        if self.persons:
            tickets = self.tickets_for([self.persons[one] for one in sorted(gone)]) if gone else []
        else:
            tickets = self.store.new_tickets(len(gone)) if gone else []
        self.numbers |= {self.store.number_of(one): one for one in tickets}
        self.tickets += tickets
        users = [self.client(self, ticket) for ticket in tickets]
        self.users += users
        self.busy += len(users)
        self.tasks += [self.loop.create_task(user.live()) for user in users]

    # ------------------------------------------------------------------------- network
    async def call(self, path: str, table: Any) -> tuple[int, dict[str, Any] | bytes]:
        """The answer that a client gets: 0 for none."""
        rng, lossy = self.rng, self.lossy
        body = b"" if table is None else json.dumps(table).encode()
        done: asyncio.Future[Any] = self.loop.create_future()
        process = self.processes[rng.choice("ab")]
        if rng.random() >= lossy:
            self.loop.call_later(0.05 * rng.random(), self._arrive, process, path, body, done)
        if rng.random() < 0.25:  # an impatient client asks twice at once
            other = self.processes[rng.choice("ab")]
            self.loop.call_later(0.05 * rng.random(), self._arrive, other, path, body, None)
        if lossy and rng.random() < lossy:
            other = self.processes[rng.choice("ab")]
            self.loop.call_later(3.0 * rng.random(), self._arrive, other, path, body, None)
        end = self.loop.call_later(2.0, _give, done, (0, b""))
        found: tuple[int, dict[str, Any] | bytes] = await done
        end.cancel()
        return found

    def _arrive(self, process: Process, path: str, body: bytes, done: Any) -> None:
        rng = self.rng
        if not process.alive or process.service is None:  # type: ignore[attr-defined]
            self._reply(done, (rng.choice((502, 502, 504)), b"<html>Bad Gateway</html>"))
            return
        task = process.spawn(process.service.handle(path, body))  # type: ignore[attr-defined]
        task.add_done_callback(partial(self._answered, process, done))

    def _answered(self, process: Process, done: Any, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, Killed):
                self.violated(f"a request fails: {type(error).__name__}: {error}")
            self._reply(done, (502, b"<html></html>"))
            return
        if process.alive:
            self._reply(done, task.result())

    def _reply(self, done: Any, answer: Any) -> None:
        rng = self.rng
        if done is not None and not (self.lossy and rng.random() < self.lossy):
            self.loop.call_later(0.05 * rng.random(), _give, done, answer)

    async def read(self) -> None:
        """Look at releases, as anybody can."""
        rng = self.rng
        while True:
            await asyncio.sleep(3.0 * rng.random())
            code, found = await self.call(f"/releases/{rng.choice((self.turn, self.turn + 1))}", None)
            if code == 200:
                assert isinstance(found, bytes)
                number = json.loads(found)["number"] if self.kind == "sqlite" else json.loads(found)[0]
                if self.published.get(number) != digest(found):
                    self.violated(f"release {number}: was shown, and is not the stored one")

    # ------------------------------------------------------------------------- invariants
    def check(self) -> None:
        """Check what must hold after every commit."""
        if self.violation:
            return
        try:
            self._check(self.store.held())
        except Violation as error:
            self.violated(str(error))

    def _check(self, held: Held) -> None:
        _must(held.turn in (self.turn, self.turn + 1), f"turn {self.turn} becomes {held.turn}")
        self.turn, self.over = held.turn, held.over
        for number, sha256 in held.releases.items():
            known = self.released.setdefault(number, sha256)
            _must(known == sha256, f"release {number} is drawn again")
        _must(len(held.releases) == len(self.released), "a release is gone")
        _must(max(self.released) <= self.turn + 1, "a release comes before its turn")
        for number, sha256 in held.releases.items():
            known = self.published.setdefault(number, sha256) if number <= held.turn else sha256
            _must(known == sha256, f"release {number} is published twice, with two draws of noise")
        turns = {plan: turn for plan, _, _, _, turn in held.plans}
        for number, plan, at, body in held.messages:
            batch = turns[plan] if at is None else at
            known = self.log.setdefault(number, (plan, batch, body))
            _must(known == (plan, batch, body), f"ticket {number}: has two messages")
            _must(held.tickets[number] == (ANSWERED, plan), f"ticket {number}: has a message, not an answer")
        self._check_times(held)
        self.standing = held.standing
        for number in [one for one in self.log if held.tickets[one][0] == ABSENT]:
            _, batch, _ = self.log.pop(number)  # withdrawn
            self.withdrawn.add(number)
            _must(
                batch not in self.done, f"ticket {number}: is withdrawn from batch {batch}, which is complete"
            )
        for number in self.withdrawn:
            _must(held.tickets[number][0] == ABSENT, f"ticket {number}: was withdrawn, and is not absent")
        self.done = self._complete(held)
        states = [state for state, _ in held.tickets.values()]
        counts = {state: states.count(state) for state in (PLACED, ANSWERED, ABSENT)}
        placed, came, absent = (sum(plan[k] for plan in held.plans) for k in (1, 2, 3))
        _must(counts[ANSWERED] == came, f"{counts[ANSWERED]} tickets are answered, plans say {came}")
        _must(counts[ABSENT] == absent, f"{counts[ABSENT]} tickets are absent, plans say {absent}")
        _must(counts[PLACED] == placed - came - absent, "open places are not those of tickets")
        _must(len(self.log) == came, f"{came} people came, and {len(self.log)} messages were stored")
        if self.persons:
            self._check_persons(held)
        if self.study.close_rule == "resolved":
            self._check_batches(held, placed, came + absent)
        if self.study.close_rule == "clock":
            self._check_clock(held)

    def _check_persons(self, held: Held) -> None:
        """Nobody is in more than m batches, or in two less than s apart. Only who took part counts."""
        limits, own = self.study.participation, dict[str, list[int]]()
        for number, (_, batch, _) in self.log.items():
            own.setdefault(self.persons[self.numbers[number]], []).append(batch)
        for person, batches in own.items():
            batches.sort()
            _must(len(batches) <= limits.most, f"{person}: is in the batches {batches}")
            near = [b - a for a, b in itertools.pairwise(batches) if b - a < limits.separation]
            _must(not near, f"{person}: is in the batches {batches}, too close together")
        rows = dict[str, set[int]]()
        for number, row in held.owners.items():
            rows.setdefault(self.persons[self.numbers[number]], set()).add(row)
        least = {person: len(batches) for person, batches in own.items()}
        left = dict[str, int]()
        asked = {number for number, ticket in self.numbers.items() if ticket in self.leaving}
        for number in self.withdrawn | asked:
            if number in held.owners and held.tickets[number][0] == ABSENT:
                person = self.persons[self.numbers[number]]
                left[person] = left.get(person, 0) + 1
        for person, found in rows.items():
            _must(len(found) == 1, f"{person}: has {len(found)} rows")
            taken, _ = held.persons[min(found)]
            first = least.get(person, 0)
            _must(
                first <= taken <= first + left.get(person, 0),
                f"{person}: took part {first} times, and {taken} are counted",
            )

    def _complete(self, held: Held) -> set[int]:
        """The batches whose records cannot change any more."""
        rule, times = self.study.close_rule, [*map(int, self.study.times), self.study.users]
        if rule == "clock":
            return {batch for batch, plan, _, _ in held.resolved if plan == 0}
        sizes = dict[int, int]()
        counts = held.resolved if rule == "resolved" else [(t, n, c, a) for n, _, c, a, t in held.plans]
        for batch, _, came, absent in counts:
            sizes[batch] = sizes.get(batch, 0) + came + absent
        return {batch for batch, size in sizes.items() if size >= times[batch + 1] - times[batch]}

    def _check_times(self, held: Held) -> None:
        """Nobody is absent before their time is over."""
        for number, (state, _) in held.tickets.items():
            if state == PLACED:
                paused = self.standing.paused and held.standing.paused
                _must(number in self.placed or not paused, f"ticket {number}: has a place during a pause")
                self.placed.setdefault(number, self.loop.clock)
            elif state == ABSENT and number not in self.absent and number in self.placed:
                if number in self.log or self.numbers[number] in self.leaving:
                    self.absent.add(number)
                    continue
                self.absent.add(number)
                early = self.placed[number] + held.standing.stays(ANSWER_WITHIN) - self.loop.clock
                _must(early < 0.1 or not self.timely, f"ticket {number}: is absent {early:.1f} s early")

    def _check_batches(self, held: Held, placed: int, resolved: int) -> None:
        sizes, times = dict[int, int](), [*map(int, self.study.times), self.study.users]
        for batch, _, came, absent in held.resolved:
            sizes[batch] = sizes.get(batch, 0) + came + absent
        _must(sum(sizes.values()) == resolved, "batches and plans differ")
        for batch, size in sizes.items():
            full = times[batch + 1] - times[batch]
            _must(size == full or (size < full and batch == max(sizes)), f"batch {batch}: has {size} people")
        share = max(self.study.in_flight_least, int(self.study.in_flight_share * resolved))
        _must(placed - resolved <= share, f"{placed - resolved} reservations are open, of at most {share}")
        _must(placed <= self.study.users, "more reservations are given than the study has")

    def _check_clock(self, held: Held) -> None:
        """Batches close at their times, and places and sizes do not depend on answers."""
        times, sizes, given = [*map(int, self.study.times), self.study.users], dict[int, int](), list[int]()
        for turn in range(held.turn + 1):
            given.append(sum(placed for _, placed, _, _, own in held.plans if own == turn))
            _must(
                given[turn] <= times[turn + 1] - times[turn], f"turn {turn}: {given[turn]} places are given"
            )
        for batch, plan, came, absent in held.resolved:
            sizes[batch] = sizes.get(batch, 0) + came + absent
            if plan == 0 and batch not in self.closed:
                self.closed.add(batch)
                early = (batch + 1) * EVERY - self.loop.clock
                _must(early < 0.1 or not self.timely, f"batch {batch}: is closed {early:.1f} s early")
        open_batch = len(self.closed)
        for batch in self.closed:
            full = times[batch + 1] - times[batch]
            _must(sizes[batch] == full, f"batch {batch}: has {sizes[batch]} people, of {full}")
            _must(batch < open_batch, f"batch {batch}: is closed before an earlier one")
        _must(max(sizes, default=0) <= open_batch, "an answer joins a batch that is not open")
        late = self.loop.clock - max(self.last_fault, (held.turn + 1) * EVERY)
        _must(late < 20.0 or self.chaotic or held.over, f"batch {held.turn}: closes {late:.1f} s late")

    def finish(self) -> None:
        """Check what must hold at the end."""
        held = self.store.held()
        _must(held.over, f"the study does not end: turn {held.turn}")
        self._check(held)
        for user in self.users:
            user.check(held)
        answered = {number for number, (state, _) in held.tickets.items() if state == ANSWERED}
        _must(answered == set(self.log), "answers and messages differ")
        for number, (plan, _, body) in self.log.items():
            sent = self.users[self.tickets.index(self.numbers[number])]
            known = sent.bodies | sent.others if sent.ticket in self.forgotten else sent.bodies
            _must((plan, body) in known, f"ticket {number}: what is stored was not sent")
        self._compare(held)

    def _compare(self, held: Held) -> None:
        """Compare all releases with those of a session without a database, bit for bit."""
        kept = {n: self.store.exact_release(n) for n in held.releases}
        policies = {
            int(row["number"]): codec.policy_of(json.loads(row["policy"]))
            for turn in range(held.turn + 1)
            for row in self.store.policies(turn)
        }
        mixed = self.study.close_rule != "all"
        absent = {(batch, plan): gone for batch, plan, _, gone in held.resolved}
        if not mixed:
            absent = {(turn, plan): gone for plan, _, _, gone, turn in held.plans}
        admission = ModelAdmission() if self.kind == "dictionary" else CentralAdmission(self.study.layout)
        session: Any = self.study.start()
        NOISE.key(0)
        session.release()
        for number in range(1, held.turn + 1):
            batch, numbers = number - 1, list[int]()
            members = {t: one for t, one in self.log.items() if one[1] == batch}
            numbers = sorted({one[0] for one in members.values()} | {p for b, p in absent if b == batch})
            if self.study.close_rule == "clock":  # the plans of records make no difference
                self._submit_batch(session, admission, batch, policies, absent[batch, 0])
                numbers = []
            for plan in numbers:
                bodies = [body for _, (own, _, body) in sorted(members.items()) if own == plan]
                gone = absent[batch, plan]
                if not bodies and not gone:
                    continue
                session.begin(Plan(policies[plan], len(bodies) + gone, last=plan == numbers[-1]))
                if bodies:
                    session.submit_many(admission.records(bodies), session.open_plan.number)
                if gone:
                    session.absent(gone)
            NOISE.key(self.keys[kept[number]])
            same = self.exact(session.release()) == kept[number]
            _must(same, f"release {number}: is not the sum of its batch and one draw of noise")
        session.close()

    def _submit_batch(
        self, session: Any, admission: Any, batch: int, policies: dict[int, Any], gone: int
    ) -> None:
        """Add the answers of a period to a session, and its absent users."""
        mine = sorted((plan, ticket, body) for ticket, (plan, own, body) in self.log.items() if own == batch)
        bodies = [body for *_, body in mine]
        size = len(bodies) + gone
        session.begin(Plan(policies[1], size))
        number = session.open_plan.number
        if bodies[size:]:
            session.submit_many(admission.records(bodies[size:]), number, late=True)
        if bodies:
            session.submit_many(admission.records(bodies[:size]), number)
        if gone > 0:
            session.absent(gone)


def _last_line(content: bytes) -> ChainMark | None:
    """The last whole line of a head, or None."""
    lines = content[: content.rfind(b"\n") + 1].decode().splitlines()[1:]
    if not lines:
        return None
    number, link, beat, nonce = lines[-1].split()
    return ChainMark(int(number), link, int(beat), nonce)


class Served(app.Service):
    """The service, without a web framework."""

    def _parts(self, holder: str) -> tuple[Any, Any]:
        admission, writer = super()._parts(holder)
        writer._before_commit = World.now.keep_backup
        return admission, writer

    async def _check_operator(self, request: Any) -> None:
        """Everyone here has a token."""

    async def handle(self, path: str, body: bytes) -> tuple[int, Any]:
        """The answer to a request: its status, and its JSON or bytes."""
        request: Any = Asked(path, body)
        try:
            if path == "/places":
                answer = await self.placed(request)
            elif path == "/messages":
                answer = await self.answered(request)
            elif path == "/withdrawals":
                answer = await self.withdrawn(request)
            elif path.startswith("/operator"):
                answer = await self.operated(request, path.rpartition("/")[2])
            elif path == "/plan":
                answer = await self.plan(request)
            else:
                answer = await self.released(path.rpartition("/")[2])
        except (app.ServiceError, app.SQLAlchemyError) as error:
            answer = app._error_response(self, request, error)
        content = bytes(answer.body)
        return answer.status_code, content if path.startswith("/releases") else json.loads(content)


def _give(done: asyncio.Future[Any], answer: Any) -> None:
    if not done.done():
        done.set_result(answer)


def _must(good: bool, words: str) -> None:
    if not good:
        raise Violation(words)


class User:
    """A user with a ticket: they ask for a place, and answer, late, or never; they ask again after errors."""

    def __init__(self, world: World, ticket: str) -> None:
        self.world, self.ticket = world, ticket
        rng = world.rng
        self.starts = 12.0 * rng.random()
        if ticket in world.persons and rng.random() < 0.5:  # all devices of a person ask at the same time
            self.starts = 1.0 + PERSONS * random.Random(world.persons[ticket]).random()
        self.never, self.late = rng.random() < 0.06, rng.random() < 0.06
        self.again, self.other = rng.random() < 0.15, rng.random() < 0.1
        self.acts = rng.expovariate(0.5)
        self.leaves = world.seed % 4 == 3 and rng.random() < 0.4  # other seeds are what they were before
        self.gone = ""  # what was heard of a withdrawal
        self.bodies: set[tuple[int, bytes]] = set()
        self.others: set[tuple[int, bytes]] = set()  # second messages, which count only if the first is lost
        self.heard: list[str] = []

    async def live(self) -> None:
        """Take part."""
        await asyncio.sleep(self.starts)
        code, found = await self.ask("/places", {"ticket": self.ticket})
        if code == 201 and self.leaves and self.acts < 1.0:  # before an answer
            await self.withdraw()
        if code == 201 and not self.never:
            await asyncio.sleep(ANSWER_WITHIN + 1.0 if self.late else self.acts)
            await self.answer(found["plan"])
            if self.leaves:
                await self.withdraw()
        self.world.busy -= 1

    async def withdraw(self) -> None:
        """Withdraw, again and again, until the service answers."""
        world = self.world
        world.leaving.add(self.ticket)
        code, found = await self.ask("/withdrawals", {"ticket": self.ticket})
        heard = "withdrawn" if code == 200 else str(found.get("reason"))
        same = heard == self.gone or self.gone in ("", "closed") or self.ticket in world.forgotten
        if not same:
            world.violated(f"{self.ticket}: was told {self.gone}, then {heard}")
        self.gone = heard

    async def answer(self, plan: int) -> None:
        """Send one message, again and again, until the service answers."""
        world, rng = self.world, self.world.rng
        table, body = self.message(plan, rng.randbytes(16).hex())
        self.bodies.add((plan, body))
        code, found = await self.send(table)
        self.heard.append("counted" if code == 202 else str(found.get("reason")))
        if self.again:
            code, found = await self.ask("/messages", table)
            self.heard.append("counted" if code == 202 else str(found.get("reason")))
        if self.other:  # a second message, with another nonce: never counted beside the first
            table, body = self.message(plan, rng.randbytes(16).hex())
            self.others.add((plan, body))
            code, found = await self.ask("/messages", table)
            if code == 202 and self.ticket not in world.forgotten:
                world.violated("a second message is counted")

    async def send(self, table: dict[str, Any]) -> tuple[int, Any]:
        """Send the same bytes until the service answers."""
        return await self.ask("/messages", table)

    def message(self, plan: int, nonce: str) -> tuple[dict[str, Any], bytes]:
        """A message and its body."""
        rng, own = self.world.rng, {"ticket": self.ticket, "plan": plan, "nonce": nonce}
        if self.world.kind == "dictionary":
            value = rng.randrange(1, 2**40)
            return {**own, "value": value}, value.to_bytes(8, "little")
        states, actions = [rng.randrange(2) for _ in range(3)], [rng.randrange(2) for _ in range(2)]
        table = {**own, "states": states, "actions": actions, "rewards": [rng.choice((0.0, 0.5, 1.0)), 0.0]}
        return table, CentralAdmission.answer(_admission(), table).body

    async def ask(self, path: str, table: Any) -> tuple[int, Any]:
        """Ask until the service itself answers."""
        world, rng = self.world, self.world.rng
        while True:
            code, found = await world.call(path, table)
            ours = isinstance(found, dict) and found.get("service") == "discreet/1"
            if code in (200, 201, 202) and ours:
                return code, found
            if ours and 400 <= code < 500 and code not in (408, 425, 429):
                if found["reason"] not in ("full", "again") or path == "/messages":  # type: ignore[index]
                    return code, found
                await asyncio.sleep(1.0 + 2.0 * rng.random())
            else:
                await asyncio.sleep(0.1 + 0.5 * rng.random())

    def check(self, held: Held) -> None:
        """Check that what was heard is so."""
        if self.ticket in self.world.forgotten:
            return
        state, _ = held.tickets[self.world.store.number_of(self.ticket)]
        for one in self.heard:
            _must(one in ("counted", "late", "over"), f"{self.ticket}: gave up with {one!r}")
        if self.gone == "withdrawn":
            _must(state == ABSENT, f"{self.ticket}: was told 'withdrawn', and its state is {state}")
            return
        _must(self.gone in ("", "closed", "over"), f"{self.ticket}: was told {self.gone!r} of a withdrawal")
        # at the end of the study, an open reservation becomes an absence: "over" becomes "late"
        heard = {"late" if one == "over" else one for one in self.heard}
        _must(len(heard) <= 1, f"{self.ticket}: was told {self.heard}")
        if "counted" in self.heard:
            _must(state == ANSWERED, f"{self.ticket}: was told 'counted', and its state is {state}")


@functools.lru_cache
def _admission() -> CentralAdmission:
    return CentralAdmission(a_study(0).layout)


def simulate(seed: int, kind: StoreName = "sqlite", world: type[World] = World, **more: Any) -> World:
    """Run one seed inside :func:`stand_ins`; a violation is in the world's attribute of this name."""
    made = world(seed, kind, **more)
    loop = made.loop

    def ends() -> bool:
        if made.violation:
            return True
        return made.over and not made.busy and made.calm > 0.0

    asyncio._set_running_loop(loop)
    try:
        tasks = [made.supervise(), made.faulty(), made.read(), *(user.live() for user in made.users)]
        if seed % 3 == 1:
            tasks.append(made.operate())
        made.tasks += [loop.create_task(one) for one in tasks]
    finally:
        asyncio._set_running_loop(None)
    loop.run(ends, lambda: (made.calm or 600.0) + CALM)
    for task in made.tasks:
        if task.done() and task.exception() is not None:
            made.violated(f"the simulation fails: {task.exception()!r}")
    for process in made.processes.values():
        process.kill()
    for task in made.tasks:
        task.cancel()
    made.system.rng = random.Random(0)
    loop.run(lambda: False, lambda: loop.clock)
    if not made.violation:
        try:
            made.finish()
        except Violation as error:
            made.violated(str(error))
    return made
