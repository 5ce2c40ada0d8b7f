"""Queue that commits many requests in one transaction. A client is answered when its request is on the disk.

While a transaction is written, new requests are collected for the next transaction. Collection continues for
some more milliseconds, because each transaction has a fixed cost in processor time. For example, if a commit
takes 20 ms on a disk, each transaction contains the requests that arrived during 20 ms. No request waits
longer than two commits and two of these additional collection times.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from discreet.service.database import AnyRequest, RequestResult, Store
from discreet.service.error_causes import cause
from discreet.service.system_io import SYSTEM, Io

__all__ = ["Busy", "Intake"]

log = logging.getLogger("discreet.service")

MOST_WAITING = 20_000  # largest number of waiting requests; clients must repeat further ones later
MOST_AT_ONCE = 1_000  # largest number of requests in one transaction
_GATHERS = 0.008  # seconds for which more requests are collected before a transaction


class Busy(RuntimeError):
    """Error that is raised if the database is too slow or cannot be written.

    The client then does not know the result of its request.
    """


class Intake:
    """Queue between requests and the store.

    Parameters
    ----------
    stays : seconds between a reservation and the deadline for its answer.
    after : function that is called after every write.
    closes_after : seconds for which a plan is open; None for no limit.
    io : clock, and the thread that writes.
    """

    def __init__(
        self,
        store: Store,
        stays: float,
        after: Callable[[], None],
        closes_after: float | None = None,
        io: Io = SYSTEM,
    ) -> None:
        self._store, self._after, self._io = store, after, io
        self._times = stays, closes_after
        self._waiting: deque[tuple[Sequence[AnyRequest], asyncio.Future[list[RequestResult]]]] = deque()
        self._count = 0
        self._came = asyncio.Event()
        self._thread = io.worker("discreet-intake")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that writes waiting requests."""
        self._task = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Write the waiting requests, then stop the task and its thread."""
        while self._count and self._task is not None and not self._task.done():
            await self._io.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown()

    async def put(self, requests: Sequence[AnyRequest]) -> list[RequestResult]:
        """Return the result of each request when all results are on the disk. Raises :class:`Busy` on
        overload or failure.
        """
        if self._count + len(requests) > MOST_WAITING:
            raise Busy("too many requests wait for the disk")
        done: asyncio.Future[list[RequestResult]] = asyncio.get_running_loop().create_future()
        self._waiting.append((requests, done))
        self._count += len(requests)
        self._came.set()
        return await done

    async def _write(self) -> None:
        failing = False
        while True:
            await self._came.wait()
            if self._count < MOST_AT_ONCE:
                await self._io.sleep(_GATHERS)
            taken: list[tuple[Sequence[AnyRequest], asyncio.Future[list[RequestResult]]]] = []
            many = 0
            while self._waiting and (not taken or many + len(self._waiting[0][0]) <= MOST_AT_ONCE):
                taken.append(self._waiting.popleft())
                many += len(taken[-1][0])
            if not self._waiting:
                self._came.clear()
            if not taken:
                continue
            together = [one for requests, _ in taken for one in requests]
            try:
                results = await self._io.in_thread(self._admitted, together, worker=self._thread)
            # for example, the disk is full or the database does not answer; waiting clients get this error
            except Exception as error:
                if not failing:  # log a series of failures once, not for every request
                    log.error("nothing that users send can be stored: %s", cause(error))
                failing = True
                for _, done in taken:
                    if not done.done():
                        done.set_exception(
                            Busy(f"the database could not be written ({type(error).__name__})")
                        )
            else:
                if failing:
                    log.info("what users send is stored again")
                failing, at = False, 0
                for requests, done in taken:
                    if not done.done():  # done if the client has disconnected; its message still counts
                        done.set_result(results[at : at + len(requests)])
                    at += len(requests)
                self._after()
            finally:
                self._count -= many

    def _admitted(self, requests: list[AnyRequest]) -> list[RequestResult]:
        return self._store.admit(requests, self._io.now(), *self._times)
