"""Read and write TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["read_toml", "to_toml"]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as a table; ``ValueError`` names the file if it is missing or malformed."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ValueError(f"{path}: must be a readable TOML file ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is not TOML: {error}") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a table as TOML, without None values, dotted names as tables; ``tomllib.loads`` inverts it."""
    import tomli_w

    return tomli_w.dumps(_nested(table))


def _nested(table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        *path, key = name.split(".")
        place = found
        for part in path if value is not None else ():
            place = place.setdefault(part, {})
        if value is not None:
            place[key] = _nested(value) if isinstance(value, Mapping) else value
    return found
