"""Facts about the machine: number of processors, and optional packages."""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def processors() -> int:
    """Return the number of processors that this process is allowed to use.

    Compiled code runs in this number of threads, without Python's interpreter lock.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def optional(package: str, extra: str, what: str) -> ModuleType:
    """Import a package of the extra ``discreet[extra]``.

    If it is missing, ``ImportError`` says what needs the package and how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(f"{what} needs the package {package}: pip install 'discreet[{extra}]'") from missing
