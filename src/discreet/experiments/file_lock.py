"""Which files a process is at, told to other processes by files, so that they share the work.

A claim is a file beside the one that is to be made, made by whoever comes first (``O_EXCL``), removed when
that one is stored, and touched every few seconds. A claim whose process is gone, or which was not touched for
long, is taken over. In the worst race two processes make the same file: the same bits, by a rename.

:func:`shared` is the loop around it: do what is missing and not claimed, then wait for the others.
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

WAIT = 0.5  # seconds between looks at what other processes have done
BEAT = 10.0  # seconds between touches
STALE = 120.0  # seconds without one: its machine is gone


class Claims(AbstractContextManager["Claims"]):
    """The claims of this process on files that are to be made; their folders exist."""

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
        """Is the file ours to make? False while another process is at it."""
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
                self._held.add(path)  # also where what follows fails
            with file:
                file.write(self._text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True)
                self._thread.start()
            return True
        return False

    def drop(self, wanted: Path) -> None:
        """The file is stored, or given up."""
        path = self._path(wanted)
        with self._lock:
            self._held.discard(path)
        path.unlink(missing_ok=True)

    @property
    def held(self) -> tuple[Path, ...]:
        """The claims that are neither dropped nor given up."""
        with self._lock:
            return tuple(self._held)

    def _gone(self, path: Path) -> bool:
        """Is whoever made this claim gone?"""
        try:
            touched = path.stat().st_mtime
            holder = json.loads(path.read_text("utf-8"))
            host, process = str(holder["host"]), int(holder["process"])
        except FileNotFoundError:
            return True
        except (OSError, ValueError, KeyError, TypeError):
            return self._now(path.parent) - touched > STALE  # half written
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
        """By the clock of the file system, which may be another machine's."""
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
    """Work on the files of one folder, of which other processes may do parts."""

    @property
    def claims(self) -> Claims | None:
        """On its files; None where nothing is stored."""

    @property
    def missing(self) -> Sequence[int]:
        """What is still to be done, here or elsewhere."""

    def read(self) -> Sequence[int]:
        """Take up what is stored by now; which was new."""

    def keep(self, found: Any) -> None:
        """Store what was done here."""


def shared(
    pending: Sequence[Shared],
    once: Callable[[], Iterator[tuple[int, Any]]],
    told: Callable[[int, int], None] = lambda i, one: None,
    wait: bool = True,
) -> None:
    """Pass over what is missing until nothing is; between passes, wait for other processes.

    once : does what is missing and can be claimed, gives (index in ``pending``, what was found).
    told : called with (index in ``pending``, which) for what was stored by others, or before.
    wait : False leaves what other processes are at to them, and returns.

    Raises ``RuntimeError`` where ``once`` claimed a part and left it undone: nobody else could do it, and
    waiting for it would never end.
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
