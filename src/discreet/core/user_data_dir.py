"""Folders for a user's files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

_PLACES = {"cache": (".cache",), "data": (".local", "share"), "state": (".local", "state")}


def user_folder(kind: Literal["cache", "data", "state"]) -> Path:
    """Return the folder ``discreet`` inside the user's XDG base directory of this kind.

    The base directory is ``$XDG_CACHE_HOME``, ``$XDG_DATA_HOME`` or ``$XDG_STATE_HOME`` if that path is
    absolute (the XDG rules ignore relative paths). Otherwise it is ``~/.cache``, ``~/.local/share`` or
    ``~/.local/state``. On other systems, data are in ``%LOCALAPPDATA%`` (Windows) or ``~/Library/Application
    Support`` (macOS). No folder is created. Raises ``ValueError`` if no home folder is known.
    """
    variable, place = f"XDG_{kind.upper()}_HOME", _PLACES[kind]
    if kind == "data" and sys.platform == "win32":
        variable = "LOCALAPPDATA"
    if kind == "data" and sys.platform == "darwin":
        place = ("Library", "Application Support")
    base = os.environ.get(variable, "")
    if os.path.isabs(base):
        return Path(base) / "discreet"
    try:
        return Path.home().joinpath(*place, "discreet")
    except RuntimeError:
        raise ValueError("there is no home folder") from None
