"""Which runs of a folder a process is at, told to other processes by files, so that they share the work.

A claim is a file beside the seeds, made by whoever comes first (``O_EXCL``), removed when its run is stored,
and touched every few seconds. A claim whose process is gone, or which was not touched for long, is taken
over. In the worst race two processes do the same run: they write the same bits, by a rename.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType

__all__ = ["Claims"]

BEAT = 10.0  # seconds between touches
STALE = 120.0  # seconds without one: its machine is gone


class Claims(AbstractContextManager["Claims"]):
    """The claims of this process on the runs of one folder.

    folder : in which the seeds' files are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._held, self._lock = folder, set[Path](), threading.Lock()
        self._text = json.dumps(
            {"host": socket.gethostname(), "process": os.getpid(), "token": secrets.token_hex(8)}
        )
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def _path(self, run: int) -> Path:
        return self._folder / f".run-{run:05d}.claim"

    def take(self, run: int) -> bool:
        """Is the run ours to do? False while another process is at it."""
        path = self._path(run)
        for _ in range(2):
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(self._text)
            except FileExistsError:
                if not self._gone(path):
                    return False
                with suppress(FileNotFoundError):
                    path.unlink()
                continue
            with self._lock:
                self._held.add(path)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True)
                self._thread.start()
            return True
        return False

    def drop(self, run: int) -> None:
        """The run is stored, or given up."""
        path = self._path(run)
        with self._lock:
            self._held.discard(path)
        path.unlink(missing_ok=True)

    def _gone(self, path: Path) -> bool:
        """Is whoever made this claim gone?"""
        try:
            touched = path.stat().st_mtime
            holder = json.loads(path.read_text("utf-8"))
            host, process = str(holder["host"]), int(holder["process"])
        except FileNotFoundError:
            return True
        except (OSError, ValueError, KeyError, TypeError):
            return self._now() - touched > STALE  # half written
        if host == socket.gethostname() and process != os.getpid():
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
        return self._now() - touched > STALE

    def _now(self) -> float:
        """By the clock of the file system, which may be another machine's."""
        mine = self._folder / f".{secrets.token_hex(8)}.clock"
        mine.touch()
        try:
            return mine.stat().st_mtime
        finally:
            mine.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._end.wait(BEAT):
            with self._lock:
                held = tuple(self._held)
            for path in held:
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
