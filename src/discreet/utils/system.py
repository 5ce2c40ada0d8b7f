"""Functions that return the number of processors and import optional packages."""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def processors() -> int:
    """Return the number of processors that this process is allowed to use.

    The caller can use this number of threads for compiled code, because compiled code releases Python's
    interpreter lock.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def optional(package: str, extra: str, what: str) -> ModuleType:
    """Import and return ``package``, which the extra ``discreet[extra]`` installs.

    Raises ``ImportError`` if the package is missing. The message states that ``what`` needs the package and
    how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(f"{what} needs the package {package}: pip install 'discreet[{extra}]'") from missing
