"""Function that writes the entries of a folder to the disk."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_folder"]


def sync_folder(folder: Path) -> None:
    """Write created, renamed and removed entries of a folder to the disk."""
    if os.name != "posix":  # on other systems a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
