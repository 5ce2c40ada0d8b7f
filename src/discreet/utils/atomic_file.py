"""Atomic writing of files."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["write_aside"]


def write_aside(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file under a temporary name, then rename it, so that readers see the old or the new file, never
    a part.

    mode : permissions, from which the process's umask is removed.
    """
    # Threads of one process, or processes with the same number on different machines, can write the
    # same file.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
