"""Engine that uses a running Dask scheduler and its workers (``pip install 'discreet[dask]'``)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import BrokenExecutor
from typing import Any

from distributed import Client, KilledWorker
from distributed.comm import CommClosedError

from discreet.experiments.engine import Engine, EngineError
from discreet.experiments.worker import differing, versions

_SECONDS = 10


class _Dask(Engine):
    """Engine on the workers of a Dask client."""

    deaths = (BrokenExecutor, KilledWorker, CommClosedError)

    def __init__(self, client: Client, workers: int | None) -> None:
        self._client = client
        threads = sum(client.nthreads().values())
        if not threads:
            client.close()
            raise EngineError(f"{client.scheduler.address}: the scheduler has no workers")
        super().__init__("dask", client.get_executor(pure=False), workers or threads)

    def check(self, versions_here: Mapping[str, str]) -> None:
        """Raise :class:`EngineError` if a worker has other versions of the code than this process."""
        found: dict[str, Any] = self._client.run(versions, on_error="return")
        for worker, there in found.items():
            if isinstance(there, BaseException):
                raise EngineError(f"dask: the worker {worker} cannot import discreet ({there})")
            if said := differing(versions_here, there):
                raise EngineError(f"dask: the worker {worker} has other code than this process: {said}")

    def close(self) -> None:
        super().close()
        self._client.close()


def open_engine(address: str, workers: int | None) -> Engine:
    """Connect to the Dask scheduler at ``address`` (``HOST:PORT``), and return an engine on its workers."""
    if not address:
        raise ValueError("engine = 'dask': must be dask://HOST:PORT, the address of a scheduler")
    try:
        client = Client(address if "://" in address else f"tcp://{address}", timeout=_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise EngineError(f"engine = 'dask://{address}': no scheduler answers there ({error})") from None
    return _Dask(client, workers)
