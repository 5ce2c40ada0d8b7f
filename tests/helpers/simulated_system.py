"""One thread, one seed, and a clock of events: the machine on which simulated processes of a service run.

Functions that the service calls in threads run at one instant, or in a real thread that works only while the
simulation waits for it. Such a thread can be held up before and after every transaction.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from discreet.service.system_io import Io

EPOCH = 1.8e9


class Killed(BaseException):
    """The process was killed here. Nothing of it runs any more."""


class _Handle:
    """An event."""

    __slots__ = ("args", "callback", "context", "dead")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Any) -> None:
        self.callback, self.args, self.context, self.dead = callback, args, context, False

    def cancel(self) -> None:
        self.dead = True

    def cancelled(self) -> bool:
        return self.dead

    def run(self) -> None:
        if self.context is None:
            self.callback(*self.args)
        else:
            self.context.run(self.callback, *self.args)


class Loop(asyncio.AbstractEventLoop):
    """An event loop whose time passes only from event to event."""

    def __init__(self) -> None:
        self.clock, self.events = 0.0, 0
        self._later: list[tuple[float, int, _Handle]] = []
        self._soon: deque[_Handle] = deque()
        self._made = 0

    def time(self) -> float:
        return self.clock

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = _Handle(callback, args, context)
        self._made += 1
        heapq.heappush(self._later, (when, self._made, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.clock + delay, callback, *args, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = _Handle(callback, args, context)
        self._soon.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name="")

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that nobody waits for failed: a killed process has many of them."""

    def run(self, ends: Callable[[], bool], until: Callable[[], float]) -> None:
        """Run events until ``ends`` says so, no event is left, or the clock is at ``until``."""
        asyncio._set_running_loop(self)
        soon, later = self._soon, self._later
        try:
            while True:
                while soon:
                    handle = soon.popleft()
                    if not handle.dead:
                        self.events += 1
                        handle.run()
                if not later or later[0][0] > until() or ends():
                    return
                when, _, handle = heapq.heappop(later)
                if not handle.dead:
                    self.clock = max(self.clock, when)
                    self.events += 1
                    handle.run()
        finally:
            asyncio._set_running_loop(None)


class _Thread:
    """A thread that works only while the simulation waits for it; used again and again."""

    idle: ClassVar[list[_Thread]] = []

    def __init__(self) -> None:
        self.go, self.back = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.job: Callable[[], None] = lambda: None
        self.done = True
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self.go.acquire()
            self.job()
            self.done = True
            self.back.release()

    @classmethod
    def start(cls, job: Callable[[], None]) -> _Thread:
        found = cls.idle.pop() if cls.idle else cls()
        found.job, found.done = job, False
        return found

    def enter(self) -> None:
        """Let the thread work until it is held up or its job is done."""
        self.go.release()
        self.back.acquire()
        if self.done:
            self.idle.append(self)

    def hold(self) -> None:
        """Give control back to the simulation, and wait."""
        self.back.release()
        self.go.acquire()


class Process:
    """A process: it lives until it is killed, can be held up, and has a clock that can be wrong."""

    def __init__(self, system: System, name: str, skew: float = 0.0) -> None:
        self.system, self.name, self.skew = system, name, skew
        self.alive, self.resumes = True, 0.0
        self.io = SimulatedIo(self)
        self.threads: list[_Thread] = []
        self.current: _Thread | None = None
        self.tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that ends with the process."""
        task = self.system.loop.create_task(coroutine)
        self.tasks.append(task)
        return task

    def kill(self) -> None:
        """End the process. Whatever it has not committed is lost."""
        if self.alive:
            self.alive = False
            self.system.killed += 1
            self.system.loop.call_soon(self._buried)

    def _buried(self) -> None:
        for task in self.tasks:
            task.cancel()
        for thread in list(self.threads):
            self.switch(thread)

    def switch(self, thread: _Thread) -> None:
        if thread not in self.threads:
            return
        before, self.current = self.current, thread
        thread.enter()
        self.current = before
        if thread.done:
            self.threads.remove(thread)

    def hold(self, seconds: float) -> None:
        """Hold up the thread that runs, from inside it."""
        thread = self.current
        assert thread is not None
        self.system.loop.call_later(seconds, self.switch, thread)
        thread.hold()
        if not self.alive:
            raise Killed


@dataclass
class Faults:
    """Probabilities of what goes wrong. Each seed has some of them (swarm testing)."""

    kill: float = 0.0  # at a transaction: before it, before its commit, after its commit
    refuse: float = 0.0  # the transaction fails, and nothing is stored
    forget: float = 0.0  # the transaction is stored, and its caller gets an error
    freeze: float = 0.0  # before a write, the process is held up for longer than a lease
    full: bool = False  # no transaction that writes is stored, and no line of a file
    no_lines: bool = False  # the disk of the head is full
    tear: float = 0.0  # only the beginning of a line is written to a file


class System:
    """All processes of one simulation, their clock, their random numbers, and their files."""

    def __init__(self, seed: int) -> None:
        self.rng, self.loop = random.Random(seed), Loop()
        self.faults = Faults()
        self.files: dict[Path, bytes] = {}
        self.killed = self.held = 0
        self.step = 0.0  # seconds by which the clock of the database is wrong
        self.slow = 0.0  # share of calls that can be held up at each of their transactions

    def time(self) -> float:
        """The clock of the database."""
        return EPOCH + self.loop.clock + self.step


def no_space() -> OSError:
    """The error of a disk that is full."""
    return OSError(28, "No space left on device")


class _Lock:
    """A lock of a simulated process."""

    def __init__(self, process: Process) -> None:
        self._process, self._held = process, False

    def __enter__(self) -> None:
        while self._held:
            self._process.hold(0.05)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class _NoThread(Executor):
    """A thread of a simulated process."""

    def shutdown(self, *_: Any, **__: Any) -> None:
        """End nothing."""


class SimulatedIo(Io):
    """The system as a simulated process sees it."""

    def __init__(self, process: Process) -> None:
        self.process, self.system = process, process.system

    def now(self) -> float:
        return EPOCH + self.system.loop.clock + self.process.skew

    def monotonic(self) -> float:
        return self.system.loop.clock

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._resumed()

    async def _resumed(self) -> None:
        process = self.process
        while process.resumes > self.system.loop.clock:
            await asyncio.sleep(process.resumes - self.system.loop.clock)
        if not process.alive:
            raise Killed

    def pause(self, seconds: float) -> None:
        raise AssertionError("a process of the service blocks its thread")

    def worker(self, name: str) -> Executor:
        return _NoThread()

    async def in_thread(self, function: Any, *given: Any, worker: Executor | None = None) -> Any:
        system, process = self.system, self.process
        rng = system.rng
        if rng.random() < 0.3:
            await asyncio.sleep(0.03 * rng.random())
        await self._resumed()
        # a turn has many transactions, so it is held up more often than others
        slow = max(system.slow, 0.3) if system.slow and function.__name__ == "_turn" else system.slow
        if not process.threads and rng.random() >= slow:
            return function(*given)
        system.held += 1
        future, found = system.loop.create_future(), list[Any]()

        def job() -> None:
            try:
                found.append(function(*given))
            except BaseException as error:  # the task that waits gets it
                found.append(error)
            if not future.done():
                last = found[0]
                if isinstance(last, BaseException):
                    future.set_exception(last)
                else:
                    future.set_result(last)

        thread = _Thread.start(job)
        process.threads.append(thread)
        process.switch(thread)
        result = await future
        await self._resumed()
        return result

    def lock(self) -> Any:
        return _Lock(self.process)

    def random_bytes(self, size: int) -> bytes:
        return self.system.rng.randbytes(size)

    # ------------------------------------------------------------------------- files
    def append(self, path: Path, content: bytes, at: int | None = None) -> None:
        files, faults, rng = self.system.files, self.system.faults, self.system.rng
        whole = files.get(path, b"")
        if not content:
            files[path] = whole
            return
        self.at("commit", True, no_space)
        if faults.no_lines:
            raise no_space()
        whole = whole if at is None else whole[:at]
        if faults.tear and rng.random() < faults.tear:
            files[path] = whole + content[: rng.randrange(len(content))]
            if rng.random() < 0.5:
                self.process.kill()
                raise Killed
            raise no_space()
        files[path] = whole + content

    def read(self, path: Path, most: int) -> bytes:
        return self._content(path)[:most]

    def tail(self, path: Path, most: int) -> tuple[int, bytes] | None:
        if path not in self.system.files:
            return None
        content = self.system.files[path]
        at = max(0, len(content) - most)
        return at, content[at:]

    def rename(self, path: Path, to: Path) -> None:
        self.system.files[to] = self.system.files.pop(path)

    @contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Lock a file. Nothing is held up while a file is locked, so nobody waits for it."""
        self.at("begin", True, no_space)
        self._content(path)
        yield
        self.at("end", True, no_space)

    def _content(self, path: Path) -> bytes:
        if path not in self.system.files:
            raise FileNotFoundError(2, "No such file", str(path))
        return self.system.files[path]

    # ------------------------------------------------------------------------- transactions
    def at(self, place: str, write: bool, failed: Callable[[], BaseException]) -> None:
        """Let something happen at a transaction: ``place`` is "begin", "commit" or "end"."""
        process, system = self.process, self.system
        rng, faults = system.rng, system.faults
        if not process.alive:
            raise Killed
        if place != "commit" and process.current is not None:
            chance = rng.random()
            if process.resumes > system.loop.clock:
                process.hold(process.resumes - system.loop.clock)
            elif write and place == "begin" and chance < faults.freeze:
                process.resumes = system.loop.clock + 4.0 + 8.0 * rng.random()
                process.hold(process.resumes - system.loop.clock)
            elif chance < 0.4:
                process.hold(0.2 * rng.random() ** 2)
        if faults.kill and rng.random() < faults.kill:
            process.kill()
            raise Killed
        if place == "commit" and write and (faults.full or rng.random() < faults.refuse):
            raise failed()
        if place == "end" and write and rng.random() < faults.forget:
            raise failed()
