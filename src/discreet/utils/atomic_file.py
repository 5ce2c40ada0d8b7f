"""Atomic writing of files."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_aside(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write ``content`` to a file atomically.

    The content is written to a temporary file in the same folder, which is then renamed to ``path``.
    Therefore a reader sees either the complete old file or the complete new file.

    mode : permission bits of the new file. The operating system clears the bits of the process's umask.
    """
    # The temporary name is random and does not contain the process ID: two threads of one process, or two
    # processes that have the same ID on different machines, can write to the same path.
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
