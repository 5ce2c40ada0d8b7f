"""What the machine has: processors, and packages that not everybody needs."""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def processors() -> int:
    """Processors that this process may use; compiled code runs in as many threads, without Python's lock."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def optional(package: str, extra: str, what: str) -> ModuleType:
    """A package of the extra ``discreet[extra]``; ``ImportError`` says what needs it, and what to install."""
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(f"{what} needs the package {package}: pip install 'discreet[{extra}]'") from missing
