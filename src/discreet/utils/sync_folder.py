"""Function that flushes a folder to the disk, so that renamed files survive a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Flush to the disk the names of files that were created, renamed or removed in a folder."""
    if os.name != "posix":  # on other systems a folder cannot be opened as a file
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
