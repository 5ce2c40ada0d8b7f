"""Decorators for all compiled functions of the library.

Numba's disk cache detects changes in the file of the compiled function, but not in the files of the functions
that it calls. If a noise scale changed in one file, a cached function of another file would still use the old
value. Discreet therefore names its cache folder by a hash of *all* kernel sources (files named
``*kernels.py``). Any change to any kernel recompiles all kernels. If no folder can be written, the functions
are compiled in memory, with one warning.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config as _numba_config

from discreet.core.user_data_dir import user_folder

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parent.parent
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False}


@cache
def kernel_sources() -> tuple[Path, ...]:
    """Return all files of the package that contain compiled functions, in a fixed order."""
    return tuple(sorted(_PACKAGE.rglob("*kernels.py")))


@cache
def kernel_hash() -> str:
    """Return a hash of all kernel sources and Numba's version, as sixteen hexadecimal digits."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in kernel_sources():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path | None:
    """Return the folder for the compiled kernels of this version, or None if no folder can be written.

    The parent folder is ``NUMBA_CACHE_DIR`` if set, otherwise
    :func:`~discreet.core.user_data_dir.user_folder`.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    try:
        parent = Path(chosen) if chosen else user_folder("cache")
    except ValueError:
        return None
    folder = parent / f"kernels-{kernel_hash()}"
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _forget_old(parent)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return None
    return folder


def _forget_old(parent: Path, keep: int = 6) -> None:
    """Remove folders of compiled kernels of older versions. The ``keep`` newest folders remain."""
    folders = sorted(parent.glob("kernels-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in folders[keep:]:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _warn_no_cache() -> None:
    warnings.warn(
        "no folder for compiled code can be written: kernels are compiled again in every process "
        "(set NUMBA_CACHE_DIR to a writable folder)",
        RuntimeWarning,
        stacklevel=3,
    )


def kernel(function: F) -> F:
    """Compile ``function`` when it is first called.

    The compiled function releases the GIL. The compiled code is cached on disk if possible.
    """
    folder = cache_folder()
    if folder is None:
        _warn_no_cache()
        return cast(F, numba.njit(**_OPTIONS)(function))
    before = _numba_config.CACHE_DIR
    _numba_config.CACHE_DIR = str(folder)
    try:
        return cast(F, numba.njit(cache=True, **_OPTIONS)(function))
    finally:
        _numba_config.CACHE_DIR = before


def inlined(function: F) -> F:
    """Compile a small helper function that only kernels call. The compiled code is not cached on disk."""
    return cast(F, numba.njit(**_OPTIONS)(function))
