"""Ray: a cluster, or one that is started on this machine (``pip install 'discreet[ray]'``)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RaySystemError, WorkerCrashedError

from discreet.experiments.engine import Engine, EngineError

__all__ = ["open_engine"]


@ray.remote(max_retries=0)  # the seam counts the tries
def _called(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class _Executor(Executor):
    """Tasks of a cluster as futures."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        if named:
            raise ValueError("submit: takes positional arguments only")
        future: Future[Any] = _called.remote(function, *args).future()
        return future


class _Ray(Engine):
    deaths = (BrokenExecutor, WorkerCrashedError, NodeDiedError)

    def close(self) -> None:
        super().close()
        ray.shutdown()


def open_engine(address: str, workers: int | None) -> Engine:
    """``HOST:PORT`` of a cluster's client server; empty: ``RAY_ADDRESS``, or a cluster on this machine."""
    try:
        ray.init(
            f"ray://{address}" if address else None, ignore_reinit_error=True, log_to_driver=False,
            configure_logging=False, include_dashboard=None if address else False,
            num_cpus=None if address else workers,
        )  # fmt: skip
    except (ConnectionError, RaySystemError, OSError, RuntimeError) as error:
        raise EngineError(f"engine = 'ray://{address}': no cluster answers there ({error})") from None
    return _Ray("ray", _Executor(), workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
