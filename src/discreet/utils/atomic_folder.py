"""Folders that get their final name only when they are complete.

They are written under a hidden name and then renamed.

A run first claims the name of its folder (:func:`claimed`). Therefore, if two runs write to the same folder,
the second run is rejected before it reads data or spends budget. The claim is a lock on a file next to the
folder. The operating system releases the lock when the process ends, in whatever way. If the process is
killed, the file remains but blocks no other run; the next run with this name reuses and removes the file.
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

__all__ = ["HIDDEN", "aside", "check_free", "claimed", "claims_out", "held", "room_for"]

P = ParamSpec("P")
R = TypeVar("R")

HIDDEN = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.part")


def hidden_beside(out: Path) -> Path:
    """Return the path of a new hidden folder in the same folder as ``out``."""
    return out.absolute().with_name(f".{out.name}.{secrets.token_hex(8)}.part")


def check_free(out: Path) -> None:
    """Before a run, check that the folder is new (or empty) and can get its name by a rename.

    The rename is tried with an empty folder. It fails for a link, a mount, ``.``, a name that is too long, or
    without write permission. The check is made first because the rename must not fail after budget has been
    spent on the release.
    """
    there = out.exists()
    if there and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out = {str(out)!r}: exists already, must be a new folder")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        rehearsal = hidden_beside(out)
        rehearsal.mkdir(mode=0o700)
        try:
            os.replace(rehearsal, out)
        except OSError:
            rehearsal.rmdir()
            raise
    except (OSError, ValueError) as error:
        raise ValueError(
            f"out = {str(out)!r}: must be a folder that can be made by renaming another one ({error})"
        ) from None
    if not there:
        # the trial of another run removed the folder, or the folder of that run has got the name in
        # the meantime
        with suppress(OSError):
            out.rmdir()


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Claim a name for an output until the block or the process ends.

    out : a folder or file that will be made. Its parent folder is created if it does not exist.

    Raises ``ValueError`` if another run holds the claim, or the location is not writable. On systems without
    such locks, no claim is made.
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
    """Return a function that does the same and holds a claim (:func:`claimed`) on its argument ``out`` while
    it runs.
    """
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
        name.unlink()  # the disk space is freed when the process ends, in whatever way
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
    """Open and lock the file of this name. Raises ``BlockingIOError`` if another process holds the lock."""
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
            # The previous holder can have removed the file between the two calls. Our lock is
            # then on a deleted file.
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
    """Yield a hidden folder that is written to disk and renamed to ``out`` when the block succeeds.

    ``paid`` is the file of the release for which budget is spent. If the block raises after this file was
    written, the hidden folder is kept, and the error gives its path and the command that finishes it.
    Otherwise the folder is removed.
    ``ledger`` : the file of the ledger that was charged.
    """
    hidden = hidden_beside(out)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    hidden.mkdir(mode=0o700)
    with held(hidden):
        yield from _named(out, hidden, paid, ledger)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Lock a folder for this process until the block or the process ends.

    Yields False if another process holds the lock.

    The lock prevents other processes from finishing an active run. On systems without such locks, no lock is
    held.
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
    """Return the command that finishes and marks the runs in a folder of folders, to be pasted."""
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
