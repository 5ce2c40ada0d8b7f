"""Execution of runs in this process, in local worker processes, or on a cluster engine.

An :class:`Engine` is a standard executor (:mod:`concurrent.futures`) with its number of parallel tasks.

* Short items share a task.
* If a worker fails, the items of its task are run again, at most :data:`RETRIES` times.
* Workers must have the same code as the sender; a worker with other versions raises an error.
* If the caller stops reading results (or the user presses Ctrl-C), the tasks that have not started are
  cancelled.

Engines on clusters need additional packages (:func:`open_engine`): ``dask://HOST:PORT``, ``ray`` and
``ray://HOST:PORT``, or ``slurm`` (submitit).
"""

from __future__ import annotations

import importlib
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from discreet.core import checks
from discreet.utils.system import processors

R = TypeVar("R")
# (call, its items) of one task
Calls = tuple[tuple[Callable[[Sequence[int]], Sequence[Any]], tuple[int, ...]], ...]
Parts = tuple[tuple[int, tuple[int, ...]], ...]  # (index of the job, its items) in one task

RETRIES = 3
# scheme of the address -> (module, extra with which the package is installed)
ENGINES: Mapping[str, tuple[str, str]] = {
    "dask": ("discreet.experiments.engines.dask", "dask"),
    "ray": ("discreet.experiments.engines.ray", "ray"),
    "slurm": ("discreet.experiments.engines.slurm", "slurm"),
}


class EngineError(RuntimeError):
    """Error: an engine is unavailable, its workers have other code, or they failed repeatedly on a task."""


@dataclass(frozen=True)
class Job(Generic[R]):
    """One call for many items: ``call(items)`` returns one result for each item, in the order of the items.

    what : name of the job in error messages, for example WHAT in "run 7 of WHAT".
    """

    call: Callable[[Sequence[int]], Sequence[R]]
    items: Sequence[int]
    what: str = "this run"


class Engine(AbstractContextManager["Engine"]):
    """Executor with a number of parallel tasks and with rules for grouping items into tasks.

    Parameters
    ----------
    name : name of the engine in error messages
    executor : an open executor, which its owner must close, or a function that opens an executor. The
        function is called again after a worker has failed
    width : number of tasks that run in parallel, at least 1 (``ValueError`` otherwise)
    ahead : number of tasks that are submitted for each parallel task
    together : expected duration in seconds up to which items share a task. With 0, each task has one item
    even : if True, all items are divided in advance into as many tasks as there are workers
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
        self.served = False  # True after a worker has returned a result
        self._make = None if isinstance(executor, Executor) else executor
        self._executor = executor if isinstance(executor, Executor) else executor()

    @classmethod
    def of(cls, executor: Executor | Engine, workers: int | None = None) -> Engine:
        """Return an engine that wraps the caller's executor; an engine is returned unchanged.

        The caller must close the executor.

        workers : number of tasks that the executor runs in parallel, at least 1. If None, the number that the
            executor reports, or otherwise the number of processors.

        Raises ``ValueError`` if ``executor`` is not a ``concurrent.futures.Executor``.
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
        """Call ``function(*args)`` on a worker. Function, arguments and result must be picklable."""
        return self._executor.submit(function, *args)

    def reopen(self, error: BaseException) -> None:
        """Open a new executor after the previous executor failed with ``error``.

        Raises :class:`EngineError` if the caller opened the previous executor.
        """
        if self._make is None:
            raise EngineError(
                f"{self.name}: a worker failed, and the executor cannot continue ({error})"
            ) from error
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._make()

    def close(self) -> None:
        """Close the executor if this engine opened it."""
        if self._make is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def check(self, versions: Mapping[str, str]) -> None:
        """Raise an error if a worker runs another version of the code.

        versions : versions of the code in this process, by name.

        Raises :class:`EngineError` with the versions that differ.
        """

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_engine(text: str, workers: int | None = None) -> Engine:
    """Open the engine at an address.

    Parameters
    ----------
    text : the address: ``dask://HOST:PORT``, ``ray``, ``ray://HOST:PORT``, ``slurm``, or ``slurm`` with
        options, such as ``slurm://partition=short,timeout_min=60``.
    workers : number of parallel tasks; by default, the capacity of the engine.

    Raises
    ------
    EngineError
        If the engine's package is not installed, or the address does not answer.
    ValueError
        If the address does not name a known engine, or an option is unknown.
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
    """Execute the calls of one task on a worker.

    Returns the results, each with the duration of its call in seconds.
    """
    found = []
    for call, items in calls:
        begin = time.perf_counter()
        found.append((call(items), time.perf_counter() - begin))
    return found


class _Queue(Generic[R]):
    """Queue of the items of all jobs that wait for a worker."""

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
        """Remove the items of the next task from the queue, and return them by job."""
        task, count, new, seconds = dict[int, list[int]](), 0, 0, 0.0
        most = self._most()
        while self._waiting and count < most:
            own = self._waiting[0]
            j, item = own
            known = self._seconds.get(j)
            cost = max(self._seconds.values(), default=0.0) if known is None else known
            # an item that was tried before gets its own task, so that the item that makes workers fail can be
            # identified
            alone = self._tries[own] >= (RETRIES if self._engine.even else 1)
            if count and alone:
                break
            if count and not self._engine.even:
                if seconds + cost > self._engine.together:
                    break
                if known is None and (j in task or new >= len(self._seconds)):
                    # a task contains at most one item of each job of unknown duration; such items must not
                    # outnumber the items of jobs of known duration
                    break
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
        """Return the largest number of items that the next task can have."""
        if self._engine.even:
            return -(-self._all // self._engine.width)
        if not self._engine.together:
            return 1
        return max(1, len(self._waiting) // (2 * self._engine.width))

    def took(self, j: int, items: Sequence[int], seconds: float) -> None:
        """Record the mean duration of the items of job ``j``.

        - seconds : duration of all these items together.
        """
        self._seconds[j] = seconds / len(items)

    def again(self, j: int, items: Sequence[int], error: BaseException) -> None:
        """Put items back into the queue after their worker failed.

        Raises :class:`EngineError` if the workers of an item have failed more than :data:`RETRIES` times.
        """
        for item in reversed(items):
            self._tries[j, item] += 1
            if self._tries[j, item] > RETRIES:
                raise EngineError(
                    f"{self._engine.name}: {RETRIES + 1} workers died of run {item} of {self._jobs[j].what} "
                    f"(too little memory?): {error}"
                ) from error
        self.back(j, items)

    def back(self, j: int, items: Sequence[int]) -> None:
        """Put items back at the front of the queue, without counting a retry."""
        self._waiting.extendleft((j, item) for item in reversed(items))


def results(
    engine: Engine, jobs: Sequence[Job[R]], take: Callable[[int, int], bool] | None = None
) -> Generator[tuple[int, R], None, None]:
    """Execute all jobs, and yield (index of the job, result) for every item, in the order of completion.

    take : function that is called with (index of the job, item) just before an item is sent for the first
        time; if the function returns False, the item is left out.

    Raises
    ------
    EngineError
        If workers failed repeatedly on the same item, if workers have other code, or if the engine dropped a
        task.
    """
    queue = _Queue(engine, jobs, take or (lambda *_: True))
    running: dict[Future[Any], Parts] = {}
    broken: BaseException | None = None
    idle = 0  # number of consecutive executors that failed without returning a result
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
                        f"{engine.name}: dropped a task (does its scheduler still run?)"
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
