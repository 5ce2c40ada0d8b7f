"""SLURM, through submitit: a job a worker, each with its share of the runs.

Needs ``pip install 'discreet[slurm]'``.

Jobs wait in a queue, so that all items are dealt at once, in as many jobs as there are workers. What jobs
write of themselves lies under ``discreet-jobs`` in the folder in which the command is called, which all nodes
must see. ``slurm://partition=short,timeout_min=60,mem_gb=4`` passes options on; ``cluster=local`` runs jobs
as processes of this machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import UncompletedJobError

from discreet.experiments.engine import Engine, EngineError

__all__ = ["open_engine"]

_FOLDER = Path("discreet-jobs")
_WORKERS = 16
_POLL = 0.5


class _Executor(Executor):
    """Jobs as futures: one thread looks which are done."""

    def __init__(self, jobs: submitit.AutoExecutor) -> None:
        self._jobs, self._open = jobs, dict[Future[Any], submitit.Job[Any]]()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        job = self._jobs.submit(function, *args, **named)
        with self._lock:
            self._open[future] = job
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        return future

    def _watch(self) -> None:
        while True:
            with self._lock:
                if not self._open:
                    self._watcher = None
                    return
                waiting = list(self._open.items())
            for future, job in waiting:
                if not job.done():
                    continue
                with self._lock:
                    self._open.pop(future, None)
                try:
                    future.set_result(job.result())
                except BaseException as error:
                    future.set_exception(error)
            time.sleep(_POLL)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            waiting, self._open = list(self._open.values()), {}
        if cancel_futures:
            for job in waiting:
                job.cancel()


class _Slurm(Engine):
    deaths = (BrokenExecutor, UncompletedJobError)

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


def open_engine(options: str, workers: int | None) -> Engine:
    """``KEY=VALUE,...`` of submitit's ``update_parameters``, and ``cluster=slurm | local``."""
    given: dict[str, Any] = {}
    for part in filter(None, options.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"engine = 'slurm://{options}': {part!r} must be KEY=VALUE")
        given[name] = int(value) if value.isdecimal() else value
    cluster = str(given.pop("cluster", "slurm"))
    try:
        jobs = submitit.AutoExecutor(folder=_FOLDER, cluster=cluster)
        jobs.update_parameters(**{"name": "discreet", "cpus_per_task": 1, **given})
    except NameError as error:  # what submitit says to a parameter that it does not know
        raise ValueError(f"engine = 'slurm://{options}': {str(error).splitlines()[0]}") from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise EngineError(f"engine = 'slurm://{options}': {error}") from None
    return _Slurm("slurm", _Executor(jobs), workers or _WORKERS, ahead=1, even=True)
