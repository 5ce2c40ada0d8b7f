"""What the machine has."""

from __future__ import annotations

import os


def processors() -> int:
    """Processors that this process may use; compiled code runs in as many threads, without Python's lock."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
