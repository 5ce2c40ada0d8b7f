"""Engine that submits jobs to SLURM with submitit (``pip install 'discreet[slurm]'``), one job per worker.

All runs are divided in advance into jobs. Log files are written to ``discreet-jobs`` in the current folder,
which all nodes must be able to access. ``slurm://partition=short,timeout_min=60,mem_gb=4`` passes these
options to submitit; ``cluster=local`` runs the jobs as processes on this machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError

from discreet.experiments.engine import Engine, EngineError

_FOLDER = Path("discreet-jobs")
_WORKERS = 16
_POLL = 0.5


def _called(function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """Call the function in a job; return (True, result) or (False, error)."""
    try:
        return True, function(*args)
    except Exception as error:
        return False, error


def _given(job: submitit.Job[Any]) -> Any:
    """Return the result of a job, or raise its error.

    Raises ``UncompletedJobError`` if the job was killed or exceeded its time limit.
    """
    try:
        well, found = job.result()
    except FailedJobError as error:
        text = str(error)
        # submitit raises this error in the job when the time limit is reached
        if UncompletedJobError.__name__ in text:
            raise UncompletedJobError(f"job {job.job_id} exceeded its time limit") from None
        lines = [line.strip() for line in text.splitlines() if line.strip(" -")]
        last = next((line for line in reversed(lines) if not line.startswith(("You can", "-", "See"))), "")
        raise EngineError(
            f"slurm: job {job.job_id} failed before it ran anything ({last}): {job.paths.stderr}"
        ) from None
    if not well:
        raise found
    return found


class _Job(Future[Any]):
    """Future of a job."""

    def __init__(self, job: submitit.Job[Any]) -> None:
        super().__init__()
        self.job = job

    def cancel(self) -> bool:
        """Cancel the future, and also the job."""
        cancelled = super().cancel()
        if cancelled:
            self.job.cancel()
        return cancelled


class _SlurmExecutor(Executor):
    """Executor that submits functions as jobs."""

    def __init__(self, jobs: submitit.AutoExecutor) -> None:
        self._jobs, self._open = jobs, set[_Job]()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = _Job(self._jobs.submit(_called, function, *args, **named))
        with self._lock:
            self._open.add(future)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        return future

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._open = {future for future in self._open if not future.done()}
                if not self._open:
                    self._watcher = None
                    return
                waiting = list(self._open)
            for future in waiting:
                try:
                    if not future.job.done():
                        continue
                    found, error = _given(future.job), None
                except BaseException as raised:
                    found, error = None, raised
                with suppress(InvalidStateError):  # the future was cancelled
                    if error is None:
                        future.set_result(found)
                    else:
                        future.set_exception(error)
            time.sleep(_POLL)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            waiting, self._open = list(self._open), set()
        if cancel_futures:
            for future in waiting:
                future.cancel()


class _Slurm(Engine):
    deaths = (BrokenExecutor, UncompletedJobError)

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


def open_engine(options: str, workers: int | None) -> Engine:
    """Return an engine that submits jobs with the given options.

    Parameters
    ----------
    options : ``KEY=VALUE,...``. The keys are parameters of submitit's ``update_parameters``, and ``cluster``
        with the value ``slurm`` or ``local``.
    workers : number of jobs; 16 if None.
    """
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
    except NameError as error:  # submitit raises this error for an unknown parameter
        raise ValueError(f"engine = 'slurm://{options}': {str(error).splitlines()[0]}") from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise EngineError(f"engine = 'slurm://{options}': {error}") from None
    return _Slurm("slurm", _SlurmExecutor(jobs), workers or _WORKERS, ahead=1, even=True)
