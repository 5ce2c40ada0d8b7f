"""Access of the service to the clock, threads, random bytes, files, and other processes.

Every object of the service gets an :class:`Io` when it is made, and calls the system only through it.
Therefore a test can replace all of them at once, for example by simulated time and seeded random bytes. The
noise of releases is drawn by the session and not here.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import httpx

from discreet.utils.sync_folder import sync_folder

__all__ = ["SYSTEM", "Io"]

T = TypeVar("T")


class Io:
    """Interface to the machine's operating system. Tests derive classes that simulate it."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def with_clock(self, now: Callable[[], float]) -> Io:
        """Return this system with another clock instead of :meth:`now`."""
        other = copy.copy(self)
        other.now = now  # type: ignore[method-assign]
        return other

    def monotonic(self) -> float:
        """Return the time of a monotonic clock, in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait, while other tasks run."""
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        """Wait, and block the thread."""
        time.sleep(seconds)

    def worker(self, name: str) -> Executor:
        """Return a new thread for :meth:`in_thread`, which calls its functions one after the other."""
        return ThreadPoolExecutor(1, name)

    async def in_thread(
        self, function: Callable[..., T], *given: object, worker: Executor | None = None
    ) -> T:
        """Return the result of a function that is called in another thread.

        Parameters
        ----------
        given : arguments of the function.
        worker : result of :meth:`worker`; None for any thread.
        """
        return await asyncio.get_running_loop().run_in_executor(worker, function, *given)

    def lock(self) -> AbstractContextManager[object]:
        """Return a new lock for threads, which is free."""
        return threading.Lock()

    def random_bytes(self, size: int) -> bytes:
        """Return secret random bytes."""
        return secrets.token_bytes(size)

    def random_text(self, size: int) -> str:
        """Return ``size`` secret random bytes as text for addresses (base64)."""
        return base64.urlsafe_b64encode(self.random_bytes(size)).rstrip(b"=").decode()

    def append(self, path: Path, content: bytes, at: int | None = None) -> None:
        """Append bytes to a file that only its owner can read.

        The bytes are on the disk when this method returns.

        If other users can read or write an existing file, its mode becomes 0600.

        at : length to which the file is truncated first; None: no truncation.
        """
        new = not path.exists()
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            if os.name == "posix" and os.fstat(file).st_mode & 0o077:
                os.fchmod(file, 0o600)
            if at is not None:
                os.ftruncate(file, at)
            while content:
                content = content[os.write(file, content) :]
            os.fsync(file)
        finally:
            os.close(file)
        if new:
            sync_folder(path.parent)

    def read(self, path: Path, most: int) -> bytes:
        """Return at most ``most`` bytes at the beginning of a file."""
        with open(path, "rb") as file:
            return file.read(most)

    def tail(self, path: Path, most: int) -> tuple[int, bytes] | None:
        """Return at most ``most`` bytes at the end of a file, and the number of bytes before them.

        Returns None if the file does not exist.
        """
        try:
            with open(path, "rb") as file:
                at = max(0, file.seek(0, os.SEEK_END) - most)
                file.seek(at)
                return at, file.read(most)
        except FileNotFoundError:
            return None

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name in the same folder."""
        os.rename(path, to)
        sync_folder(path.parent)

    @contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Lock a file. Other processes that lock it must wait. The file must exist."""
        try:
            import fcntl
        except ImportError:  # Windows, where a database has one process
            yield
            return
        file = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def http(self, url: str, timeout: float) -> httpx.Client:
        """Return a client for the process at an address.

        timeout : seconds to wait for a connection or for an answer.
        """
        return httpx.Client(base_url=url, timeout=timeout)


SYSTEM = Io()
