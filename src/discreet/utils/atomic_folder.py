"""Output folders that get their final name only when they are complete.

A run writes its files into a folder with a hidden name and renames this folder at the end.

At its start, a run locks the name of its output folder (:func:`claimed`). If two runs write to the same
folder, the second run is therefore rejected before it reads data or spends budget. The lock is on a file next
to the folder. The operating system releases the lock when the process ends, even if the process is killed.
The lock file of a killed process remains, but it does not block other runs. The next run with the same output
name locks this file and removes it at its end.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from discreet.utils.sync_folder import sync_folder

P = ParamSpec("P")
R = TypeVar("R")

HIDDEN = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.part")


def hidden_beside(out: Path) -> Path:
    """Return an unused hidden path in the parent folder of ``out``. No folder is created."""
    return out.absolute().with_name(f".{out.name}.{secrets.token_hex(8)}.part")


def check_free(out: Path) -> None:
    """Raise ``ValueError`` unless another folder can be renamed to ``out``.

    If ``out`` exists, it must be an empty folder. The function tries the rename with an empty folder. The
    rename fails if ``out`` is a link, a mount point or ``.``, if its name is too long, or if the parent
    folder is not writable. Call this function before a run. After budget has been spent on the release, the
    rename must not fail.
    """
    there = out.exists()
    if there and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out = {str(out)!r}: exists already, must be a new folder")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        trial = hidden_beside(out)
        trial.mkdir(mode=0o700)
        try:
            os.replace(trial, out)
        except OSError:
            trial.rmdir()
            raise
    except (OSError, ValueError) as error:
        raise ValueError(
            f"out = {str(out)!r}: must be a folder that can be made by renaming another one ({error})"
        ) from None
    if not there:
        # Removing the folder fails if another run that makes the same check has removed the folder already,
        # or if another run has meanwhile renamed its complete folder to this name.
        with suppress(OSError):
            out.rmdir()


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Lock the output path ``out`` against other runs, until the block or the process ends.

    out : path of the folder or file that the run will write. The parent folder is created if it does not
        exist.

    Raises ``ValueError`` if another run holds the lock, or if the parent folder is not writable. On systems
    without file locks, other runs are not blocked.
    """
    name = out.absolute().with_name(f".{out.name}.claim")
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(name)
    except BlockingIOError:
        raise ValueError(
            f"out = {str(out)!r}: must be another one, because another run is writing it; nothing was spent"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(
            f"out = {str(out)!r}: must be a name that can be made by renaming ({error})"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            name.unlink()
        os.close(handle)


def claims_out(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it runs inside :func:`claimed` for the path in its argument ``out``."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def alone(*arguments: P.args, **named: P.kwargs) -> R:
        with claimed(Path(signature.bind(*arguments, **named).arguments["out"])):
            return function(*arguments, **named)

    return alone


@contextmanager
def room_for(out: Path, size: int) -> Iterator[None]:
    """Reserve ``size`` bytes on the disk of ``out`` while the block spends budget.

    Raises ``ValueError``, before the block runs, if the disk has less free space.
    """
    name = hidden_beside(out)
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _no_room(out, size, error) from None
    try:
        name.unlink()  # frees the disk space as soon as the process ends, even if the process is killed
        try:
            _fill(handle, size)
        except OSError as error:
            raise _no_room(out, size, error) from None
        yield
    finally:
        os.close(handle)


def _fill(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    zeros = bytes(2**20)
    for at in range(0, size, len(zeros)):
        os.write(handle, zeros[: size - at])


def _no_room(out: Path, size: int, error: OSError) -> ValueError:
    return ValueError(
        f"out = {str(out)!r}: must be on a disk with room for {size / 1e6:,.1f} MB ({error.strerror}); "
        "nothing was spent"
    )


def _locked(name: Path) -> int:
    """Open the file ``name``, lock it, and return its file descriptor.

    The file is created if it does not exist. Raises ``BlockingIOError`` if another process holds the lock.
    """
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
            # The process that held the lock before can have removed the file after `os.open` and before
            # `_lock`. The lock would then be on a deleted file, so the loop opens the file again.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(name)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return


@contextmanager
def aside(out: Path, *, paid: str | None = None, ledger: Path | None = None) -> Iterator[Path]:
    """Yield a hidden folder. If the block succeeds, write the folder to disk and rename it to ``out``.

    paid : name of the file in the folder that contains the release for which budget is spent. If the block
    raises after this file was written, the hidden folder is kept. A note on the exception then states the
    path of the file and the command that finishes the run. If the block raises earlier, the hidden folder is
    removed.

    ledger : file of the ledger that was charged. The command in the note contains it.
    """
    hidden = hidden_beside(out)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    hidden.mkdir(mode=0o700)
    with held(hidden):
        yield from _named(out, hidden, paid, ledger)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Lock a folder for this process until the block or the process ends.

    Yields True, or False if another process holds the lock.

    A run holds this lock on its hidden folder. Otherwise, a process that recovers interrupted runs could
    finish a run that is still active. On Windows no lock is held, and True is yielded.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError:
            alone = False
        yield alone
    finally:
        os.close(handle)


def recover_command(place: Path, ledger: Path | None) -> str:
    """Return the shell command that finishes the interrupted runs in the folder ``place``.

    The command also marks these runs as finished in the ledger.
    """
    words = ["discreet", "ledger", "recover", str(place), "--finish"]
    return shlex.join(words if ledger is None else [*words, "--ledger", str(ledger.absolute())])


def _named(out: Path, hidden: Path, paid: str | None, ledger: Path | None) -> Iterator[Path]:
    try:
        yield hidden
        for path in (*hidden.iterdir(), hidden):
            _sync(path)
        os.replace(hidden, out)
        sync_folder(out.absolute().parent)
    except BaseException as error:
        if paid is not None and (hidden / paid).exists():
            error.add_note(
                f"The release was made, and paid for, before this happened. It is kept: {hidden / paid}. "
                f"Finish it, free of budget: {recover_command(hidden.parent, ledger)}"
            )
        else:
            shutil.rmtree(hidden, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
