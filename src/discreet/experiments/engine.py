"""Where runs are executed: in this process, in processes beside it, or on an engine that people have.

One seam: :func:`results` maps calls over items on an :class:`Engine`, a standard executor
(:mod:`concurrent.futures`) with a width, and yields results as they come. A call is a pure function of
settings and seed, so that neither the engine nor the number of workers, nor the order or a worker's death,
changes a bit of any result.

* Cheap items travel together, also those of several jobs: a task holds as many as take
  :attr:`Engine.together` seconds.
* A worker's death costs the items of its task another try, at most :data:`RETRIES`, and nothing else.
* Workers must have the same code: every call carries the versions that it was made by, and refuses others
  before anything runs.
* Whoever stops reading (or presses Ctrl-C) cancels what has not begun.

Engines beyond the standard library are packages of their own; their modules are imported by name only
(:func:`open_engine`): ``dask://HOST:PORT``, ``ray`` and ``ray://HOST:PORT``, ``slurm`` (submitit).
"""

from __future__ import annotations

import importlib
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from discreet.core import checks
from discreet.utils.system import processors

__all__ = ["ENGINES", "RETRIES", "Engine", "EngineError", "Job", "open_engine", "results"]

R = TypeVar("R")
Calls = tuple[tuple[Callable[[Sequence[int]], Sequence[Any]], tuple[int, ...]], ...]  # call, its items
Parts = tuple[tuple[int, tuple[int, ...]], ...]  # the same, by the job's index

RETRIES = 3
ENGINES: Mapping[str, tuple[str, str]] = {  # scheme: module, extra
    "dask": ("discreet.experiments.engines.dask", "dask"),
    "ray": ("discreet.experiments.engines.ray", "ray"),
    "slurm": ("discreet.experiments.engines.slurm", "slurm"),
}


class EngineError(RuntimeError):
    """An engine that is not there, has other code, or lost the same task over and over."""


@dataclass(frozen=True)
class Job(Generic[R]):
    """One call for many items: ``call(items)`` gives a result for each, in their order.

    what : named in errors, as in "run 7 of WHAT".
    """

    call: Callable[[Sequence[int]], Sequence[R]]
    items: Sequence[int]
    what: str = "this run"


class Engine(AbstractContextManager["Engine"]):
    """An executor and what is known of it.

    Parameters
    ----------
    name : for messages
    executor : one that its owner opened and closes; or a function that opens one, again after a death
    width : how many tasks run at once, at least 1 (``ValueError`` otherwise)
    ahead : tasks in flight for each of them (2), so that none waits for this process
    together : seconds of items that travel in one task; 0: one item each
    even : items are dealt at once, in as many tasks as there are workers (for queues where a task waits long)
    """

    deaths: tuple[type[BaseException], ...] = (BrokenExecutor,)

    def __init__(
        self,
        name: str,
        executor: Executor | Callable[[], Executor],
        width: int,
        *,
        ahead: int = 2,
        together: float = 1.0,
        even: bool = False,
    ) -> None:
        self.name, self.width, self.ahead = name, checks.integer("workers", width, 1), ahead
        self.together, self.even = together, even
        self.served = False  # has a worker ever given a result?
        self._make = None if isinstance(executor, Executor) else executor
        self._executor = executor if isinstance(executor, Executor) else executor()

    @classmethod
    def of(cls, executor: Executor | Engine, workers: int | None = None) -> Engine:
        """An executor of the caller's, who closes it; an engine is itself.

        workers : how many jobs it does side by side, at least 1; None: what the executor says of itself, else
        the number of processors. Raises ``ValueError`` if ``executor`` is no ``concurrent.futures.Executor``.
        """
        if isinstance(executor, Engine):
            return executor
        if not isinstance(executor, Executor):
            raise ValueError(f"executor = {checks.said(executor)}: must be a concurrent.futures.Executor")
        width = getattr(executor, "_max_workers", None) or processors()
        if workers is not None:
            width = checks.integer("workers", workers, 1)
        return cls(type(executor).__name__, executor, int(width))

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run ``function(*args)`` on a worker; both, and what it returns, must pickle."""
        return self._executor.submit(function, *args)

    def reopen(self, error: BaseException) -> None:
        """A new executor in place of one that ``error`` broke.

        Raises :class:`EngineError` from it where the executor was the caller's.
        """
        if self._make is None:
            raise EngineError(
                f"{self.name}: a worker died, and the executor cannot go on ({error})"
            ) from error
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._make()

    def close(self) -> None:
        """Release what was opened here."""
        if self._make is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def check(self, versions: Mapping[str, str]) -> None:
        """Refuse workers of other code ahead, where the engine can ask all of them.

        versions : of this code and of the packages that it computes with, by name; :class:`EngineError` names
        what differs.
        """

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_engine(text: str, workers: int | None = None) -> Engine:
    """An engine by its address: ``dask://HOST:PORT``, ``ray``, ``ray://HOST:PORT``, ``slurm``,
    ``slurm://partition=short,timeout_min=60``.

    text : that address. workers : how many tasks at once; default: as many as the engine has.

    Raises
    ------
    EngineError
        If its package is not installed, or nobody answers there.
    ValueError
        If it is no engine, or one of its options is none.
    """
    if workers is not None:
        checks.integer("workers", workers, 1)
    scheme, _, rest = text.partition("://")
    if scheme not in ENGINES:
        raise ValueError(f"engine = {text!r}: must be local, dask://HOST:PORT, ray, ray://HOST:PORT or slurm")
    module, extra = ENGINES[scheme]
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise EngineError(
            f"engine = {text!r}: needs a package that is not installed here ({error}): "
            f"pip install 'discreet[{extra}]'"
        ) from None
    engine: Engine = found.open_engine(rest, workers)
    return engine


def timed(calls: Calls) -> list[tuple[Sequence[Any], float]]:
    """On a worker: what each call gives, and its seconds."""
    found = []
    for call, items in calls:
        begin = time.perf_counter()
        found.append((call(items), time.perf_counter() - begin))
    return found


class _Queue(Generic[R]):
    """Items that wait, by job; how long they take; how often they were tried."""

    def __init__(self, engine: Engine, jobs: Sequence[Job[R]], take: Callable[[int, int], bool]) -> None:
        self._engine, self._jobs, self._take = engine, jobs, take
        self._waiting = deque((j, item) for j, job in enumerate(jobs) for item in job.items)
        self._all = len(self._waiting)
        self._tries: Counter[tuple[int, int]] = Counter()
        self._taken: set[tuple[int, int]] = set()
        self._seconds: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self) -> Parts:
        """Items for one task, by job; none if nobody of the rest is ours to do."""
        task, count, new, seconds = dict[int, list[int]](), 0, 0, 0.0
        most = self._most()
        while self._waiting and count < most:
            own = self._waiting[0]
            j, item = own
            known = self._seconds.get(j)
            cost = max(self._seconds.values(), default=0.0) if known is None else known
            alone = self._tries[own] >= (RETRIES if self._engine.even else 1)  # whose death was it?
            if count and alone:
                break
            if count and not self._engine.even:
                if seconds + cost > self._engine.together:
                    break
                if known is None and (j in task or new >= len(self._seconds)):
                    break  # of a job that is new one item goes along, and of new jobs as many as are known
            self._waiting.popleft()
            if own in self._taken or self._take(*own):
                self._taken.add(own)
                new += known is None and j not in task
                task.setdefault(j, []).append(item)
                count, seconds = count + 1, seconds + cost
                if alone:
                    break
        return tuple((j, tuple(items)) for j, items in task.items())

    def _most(self) -> int:
        """How many items one task may hold."""
        if self._engine.even:
            return -(-self._all // self._engine.width)
        if not self._engine.together:
            return 1
        return max(1, len(self._waiting) // (2 * self._engine.width))

    def took(self, j: int, items: Sequence[int], seconds: float) -> None:
        """So long."""
        self._seconds[j] = seconds / len(items)

    def again(self, j: int, items: Sequence[int], error: BaseException) -> None:
        """Back into the queue, after a death."""
        for item in reversed(items):
            self._tries[j, item] += 1
            if self._tries[j, item] > RETRIES:
                raise EngineError(
                    f"{self._engine.name}: {RETRIES + 1} workers died of run {item} of {self._jobs[j].what} "
                    f"(too little memory?): {error}"
                ) from error
        self.back(j, items)

    def back(self, j: int, items: Sequence[int]) -> None:
        """They never began."""
        self._waiting.extendleft((j, item) for item in reversed(items))


def results(
    engine: Engine, jobs: Sequence[Job[R]], take: Callable[[int, int], bool] | None = None
) -> Generator[tuple[int, R], None, None]:
    """(index of the job, result) of every item of every job, in the order in which they are done.

    take : asked with (job, item) just before an item is sent off for the first time; False leaves it out.

    Raises
    ------
    EngineError
        If workers died of the same item again and again, or have other code; if the engine gave a task up.
    """
    queue = _Queue(engine, jobs, take or (lambda *_: True))
    running: dict[Future[Any], Parts] = {}
    broken: BaseException | None = None
    idle = 0  # executors that broke one after the other, without a result
    try:
        while queue or running:
            while queue and broken is None and len(running) < engine.ahead * engine.width:
                parts = queue.next()
                if not parts:
                    break
                try:
                    running[engine.submit(timed, tuple((jobs[j].call, items) for j, items in parts))] = parts
                except BrokenExecutor as error:
                    for j, items in reversed(parts):
                        queue.back(j, items)
                    broken = error
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                parts = running.pop(future)
                try:
                    done = future.result()
                except CancelledError as error:
                    raise EngineError(
                        f"{engine.name}: gave up a task that was sent to it (is its scheduler gone?)"
                    ) from error
                except engine.deaths as error:
                    for j, items in reversed(parts):
                        queue.again(j, items, error)
                    broken = error if isinstance(error, BrokenExecutor) else broken
                    continue
                engine.served, idle = True, 0
                for (j, items), (found, seconds) in zip(parts, done, strict=True):
                    queue.took(j, items, seconds)
                    for result in found:
                        yield j, result
            if broken is not None and not running:
                idle += 1
                if idle > RETRIES:
                    raise EngineError(f"{engine.name}: broke {idle} times in a row ({broken})") from broken
                engine.reopen(broken)
                broken = None
    finally:
        for future in running:
            future.cancel()
