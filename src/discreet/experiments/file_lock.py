"""Lock files with which several processes share the work of one folder.

A process that computes a file creates a lock file, called a claim, in the same folder. The process touches
the claim every few seconds, and removes the claim when the result is stored. Another process takes over a
claim if the claiming process has ended, or has not touched the claim for ``STALE`` seconds.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Protocol

WAIT = 0.5  # Seconds between two checks for results of other processes.
BEAT = 10.0  # Seconds between two touches of a claim.
STALE = 120.0  # Seconds without a touch after which another process takes over a claim.


class Claims(AbstractContextManager["Claims"]):
    """Claims of this process on files to be computed."""

    def __init__(self) -> None:
        self._held, self._lock = set[Path](), threading.Lock()
        self._text = json.dumps(
            {"host": socket.gethostname(), "process": os.getpid(), "token": secrets.token_hex(8)}
        )
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @staticmethod
    def _path(wanted: Path) -> Path:
        return wanted.with_name(f".{wanted.stem}.claim")

    def take(self, wanted: Path) -> bool:
        """Claim the file ``wanted``; return False if another process holds the claim."""
        path = self._path(wanted)
        for _ in range(2):
            try:
                file = path.open("x", encoding="utf-8")
            except FileExistsError:
                if not self._gone(path):
                    return False
                with suppress(FileNotFoundError):
                    path.unlink()
                continue
            with self._lock:
                self._held.add(path)  # the claim is held even if the next lines fail
            with file:
                file.write(self._text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True)
                self._thread.start()
            return True
        return False

    def drop(self, wanted: Path) -> None:
        """Remove the claim on ``wanted``, which was stored or is no longer computed."""
        path = self._path(wanted)
        with self._lock:
            self._held.discard(path)
        path.unlink(missing_ok=True)

    @property
    def held(self) -> tuple[Path, ...]:
        """Paths of the claims that this process still holds."""
        with self._lock:
            return tuple(self._held)

    def _gone(self, path: Path) -> bool:
        """Return True if the claim was abandoned."""
        try:
            touched = path.stat().st_mtime
            holder = json.loads(path.read_text("utf-8"))
            host, process = str(holder["host"]), int(holder["process"])
        except FileNotFoundError:
            return True
        except (OSError, ValueError, KeyError, TypeError):
            # the content of the claim is incomplete or cannot be read
            return self._now(path.parent) - touched > STALE
        if host == socket.gethostname() and process != os.getpid():
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
        return self._now(path.parent) - touched > STALE

    @staticmethod
    def _now(folder: Path) -> float:
        """Return the time by the clock of the file system."""
        mine = folder / f".{secrets.token_hex(8)}.clock"
        mine.touch()
        try:
            return mine.stat().st_mtime
        finally:
            mine.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._end.wait(BEAT):
            for path in self.held:
                with suppress(OSError):
                    os.utime(path)

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        with self._lock:
            held, self._held = tuple(self._held), set()
        for path in held:
            path.unlink(missing_ok=True)


class Shared(Protocol):
    """Interface of a set of parts, each stored in one file, that several processes compute together."""

    @property
    def claims(self) -> Claims | None:
        """Claims of this process on the files; None if results are kept only in memory."""

    @property
    def missing(self) -> Sequence[int]:
        """Indices of the parts that are not stored yet."""

    def read(self) -> Sequence[int]:
        """Load all stored parts, and return the indices of the parts that were not loaded before."""

    def keep(self, found: Any) -> None:
        """Store a part that this process has computed."""


def shared(
    pending: Sequence[Shared],
    once: Callable[[], Iterator[tuple[int, Any]]],
    on_stored: Callable[[int, int], None] = lambda i, one: None,
    wait: bool = True,
) -> None:
    """Compute the missing parts of all ``pending`` sets in repeated passes, until no part is missing.

    Parameters
    ----------
    pending : sets of parts that are to be computed.
    once : function that makes one pass. It computes the missing parts that it can claim, and yields (index in
        ``pending``, result).
    on_stored : function that is called with (index in ``pending``, part) for each part that was stored
        before, or by another process
    wait : if False, return instead of waiting for parts that other processes have claimed

    Raises
    ------
    RuntimeError
        If ``once`` claimed a part but did not compute it.
    """
    with ExitStack() as stack:
        for one in pending:
            if one.claims is not None:
                stack.enter_context(one.claims)
        while True:
            for i, one in enumerate(pending):
                for which in one.read():
                    on_stored(i, which)
            if not any(one.missing for one in pending):
                return
            idle = True
            with closing(once()) as results:  # type: ignore[type-var]
                for i, found in results:
                    idle = False
                    pending[i].keep(found)
            if left := [path for one in pending if one.claims is not None for path in one.claims.held]:
                raise RuntimeError(f"{left[0]}: claimed by this process, which has left it undone")
            if idle and not wait:
                return
            if idle:
                time.sleep(WAIT)
