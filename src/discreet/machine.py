"""What the machine has: processors, and packages that not everybody needs."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import numpy as np


def processors() -> int:
    """Processors that this process may use; compiled code runs in as many threads, without Python's lock."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Let the allocator keep up to 64 MB of what is freed, which is then there without a page fault.

    glibc gives the end of a heap back to the system as soon as twice the largest block that was ever freed
    lies idle there: arrays of some MB, made and dropped in turn, would be faulted in anew every time, in
    which threads wait for each other. So a large block is freed here, and never touched. Elsewhere that does
    nothing.
    """
    np.empty(2**25 - 2**16, np.uint8)


def optional(package: str, extra: str, what: str) -> ModuleType:
    """A package of the extra ``discreet[extra]``; ``ImportError`` says what needs it, and what to install."""
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(f"{what} needs the package {package}: pip install 'discreet[{extra}]'") from missing
