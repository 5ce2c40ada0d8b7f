"""Lock files that let several processes share the work of one folder.

A claim is a file beside the file to be computed. The first process creates it (``O_EXCL``), touches it every
few seconds, and removes it when the result is stored. A claim is taken over if its process is gone or if it
was not touched for long. In the worst race two processes compute the same file: the same bits, each stored by
a rename.

:func:`shared` is the loop around it: compute what is missing and not claimed, then wait for the others.
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
from types import TracebackType
from typing import Any, Protocol

__all__ = ["Claims", "Shared", "shared"]

WAIT = 0.5  # seconds between checks for results of other processes
BEAT = 10.0  # seconds between touches
STALE = 120.0  # seconds without a touch after which a claim is taken over


class Claims(AbstractContextManager["Claims"]):
    """Claims of this process on files to be computed; the folders of the files must exist."""

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
        """Claim the file; return False while another process holds the claim."""
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
                self._held.add(path)  # held also if the next lines fail
            with file:
                file.write(self._text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True)
                self._thread.start()
            return True
        return False

    def drop(self, wanted: Path) -> None:
        """Remove the claim: the file is stored, or its computation is abandoned."""
        path = self._path(wanted)
        with self._lock:
            self._held.discard(path)
        path.unlink(missing_ok=True)

    @property
    def held(self) -> tuple[Path, ...]:
        """The claims that are not dropped yet."""
        with self._lock:
            return tuple(self._held)

    def _gone(self, path: Path) -> bool:
        """Return True if the process that made this claim is gone."""
        try:
            touched = path.stat().st_mtime
            holder = json.loads(path.read_text("utf-8"))
            host, process = str(holder["host"]), int(holder["process"])
        except FileNotFoundError:
            return True
        except (OSError, ValueError, KeyError, TypeError):
            return self._now(path.parent) - touched > STALE  # the claim is half written
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
        """Return the time by the clock of the file system, which may be another machine's."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        with self._lock:
            held, self._held = tuple(self._held), set()
        for path in held:
            path.unlink(missing_ok=True)


class Shared(Protocol):
    """Work on the files of one folder, parts of which other processes may do."""

    @property
    def claims(self) -> Claims | None:
        """The claims on its files; None if nothing is stored."""

    @property
    def missing(self) -> Sequence[int]:
        """The parts that are still to be done, here or elsewhere."""

    def read(self) -> Sequence[int]:
        """Load the parts that are stored by now; return those that are new."""

    def keep(self, found: Any) -> None:
        """Store a part that was done here."""


def shared(
    pending: Sequence[Shared],
    once: Callable[[], Iterator[tuple[int, Any]]],
    told: Callable[[int, int], None] = lambda i, one: None,
    wait: bool = True,
) -> None:
    """Repeat passes over the missing parts until all are done; between passes, wait for other processes.

    Parameters
    ----------
    pending : work on files.
    once : does the missing parts that it can claim; yields (index in ``pending``, result).
    told : called with (index in ``pending``, part) for each part stored by others, or before.
    wait : if False, return without waiting for parts that other processes have claimed.

    Raises
    ------
    RuntimeError
        If ``once`` claimed a part and did not do it. No other process could do it, so the wait would never
        end.
    """
    with ExitStack() as stack:
        for one in pending:
            if one.claims is not None:
                stack.enter_context(one.claims)
        while True:
            for i, one in enumerate(pending):
                for which in one.read():
                    told(i, which)
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
