"""Engine that uses a running Ray cluster, or a cluster started on this machine (``pip install
'discreet[ray]'``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RaySystemError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from discreet.experiments.engine import Engine, EngineError
from discreet.experiments.worker import differing, versions

_DEATHS = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError)


@ray.remote(max_retries=0)  # Ray must not retry: `engine.results` counts the tries itself
def _called(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _first(error: BaseException) -> str:
    """Return the first line of an error message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class _Task(Future[Any]):
    """Future of a task on the cluster."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self._task = task
        task.future().add_done_callback(self._take)

    def _take(self, done: Future[Any]) -> None:
        with suppress(InvalidStateError):  # the future was cancelled
            error = done.exception()
            if isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
                error = error.cause
            elif isinstance(error, RayError) and not isinstance(error, _DEATHS):
                error = EngineError(f"ray: {_first(error)}")
            if error is None:
                self.set_result(done.result())
            else:
                self.set_exception(error)

    def cancel(self) -> bool:
        """Cancel the future, and also the task on the cluster."""
        cancelled = super().cancel()
        if cancelled:
            with suppress(RayError, ConnectionError):
                ray.cancel(self._task)
        return cancelled


class _RayExecutor(Executor):
    """Executor that runs functions as tasks on the cluster."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        if named:
            raise ValueError("submit: takes positional arguments only")
        return _Task(_called.remote(function, *args))


class _Ray(Engine):
    deaths = (BrokenExecutor, *_DEATHS)

    def check(self, versions_here: Mapping[str, str]) -> None:
        """Raise :class:`EngineError` if a node has other versions of the code than this process."""
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        asked = {
            node["NodeManagerAddress"]: _called.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(versions)
            for node in nodes
        }
        for name, answer in asked.items():
            try:
                there = ray.get(answer)
            except RayError as error:
                said = error.cause if isinstance(error, RayTaskError) else None
                raise EngineError(
                    f"ray: the node {name} cannot import discreet ({said or _first(error)})"
                ) from None
            if said := differing(versions_here, there):
                raise EngineError(f"ray: the node {name} has other code than this process: {said}")

    def close(self) -> None:
        super().close()
        ray.shutdown()


def open_engine(address: str, workers: int | None) -> Engine:
    """Connect to the Ray client server of a cluster at ``address`` (``HOST:PORT``).

    If the address is empty, the cluster at ``RAY_ADDRESS`` is used, or else a cluster on this machine.
    """
    try:
        ray.init(
            f"ray://{address}" if address else None, ignore_reinit_error=True, log_to_driver=False,
            configure_logging=False, include_dashboard=None if address else False,
            num_cpus=None if address else workers,
        )  # fmt: skip
    except (ConnectionError, RaySystemError, OSError, RuntimeError) as error:
        raise EngineError(f"engine = 'ray://{address}': no cluster answers there ({error})") from None
    return _Ray("ray", _RayExecutor(), workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
