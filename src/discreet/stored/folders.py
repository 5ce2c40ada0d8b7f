"""The folder that a run leaves behind: found possible before all else, filled aside, named by one rename.

Kept apart from :mod:`.learn`, which takes a second to import, so that a command can refuse a folder at once.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from discreet.storage.saved_state import sync_folder

__all__ = ["RELEASE", "aside", "check_free", "held"]

RELEASE = "release.parquet"


def _hidden(out: Path) -> Path:
    """A new folder's path beside ``out``."""
    return out.absolute().with_name(f".{out.name}.{secrets.token_hex(8)}.part")


def check_free(out: Path) -> None:
    """The folder must be new (or empty), and able to get its name by a rename: found out before all else.

    The rename is rehearsed with an empty folder: it fails for a link, a mount, ``.``, a name that is too
    long, or where nothing may be written, and must not do so when the release has been paid for.
    """
    there = out.exists()
    if there and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out = {str(out)!r}: exists already, must be a new folder")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        rehearsal = _hidden(out)
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
        out.rmdir()


@contextmanager
def aside(out: Path, *, paid: bool) -> Iterator[Path]:
    """A hidden folder that takes the name ``out`` when the block ends well, and is on the disk then.

    If the block raises after a release that was ``paid`` for was written, the hidden folder stays, and the
    error says where.
    """
    hidden = _hidden(out)
    hidden.mkdir(mode=0o700)
    with held(hidden):
        yield from _named(out, hidden, paid)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold a folder for this process, until the block or the process ends; False where another one does.

    So that nobody finishes what a run is at work on. Where the system has no such locks nothing is held.
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


def _named(out: Path, hidden: Path, paid: bool) -> Iterator[Path]:
    try:
        yield hidden
        for path in (*hidden.iterdir(), hidden):
            _sync(path)
        os.replace(hidden, out)
        sync_folder(out.absolute().parent)
    except BaseException as error:
        if paid and (hidden / RELEASE).exists():
            error.add_note(
                f"The release was made, and paid for, before this happened. It is kept: {hidden / RELEASE} "
                "(`discreet recover` finishes it)"
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
