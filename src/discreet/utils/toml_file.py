"""Functions that read and write TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OptionValue = bool | int | float | str | tuple[Any, ...] | None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file and return its content as a dict.

    Raises ``ValueError`` if the file is missing or malformed. The message names the file.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ValueError(f"{path}: must be a readable TOML file ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: is not TOML: {error}") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a mapping as TOML text.

    Entries with the value None are omitted. A key with dots becomes an entry of nested tables.
    ``tomllib.loads`` reads the text as nested dicts.
    """
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


def flat_options(name: str, value: Any, prefix: str = "") -> dict[str, OptionValue]:
    """Return a nested mapping of options as a flat dict, sorted by name.

    The options of a nested table get dotted names (``learner.bonus_scale``), hyphens in names become
    underscores, and lists become tuples. Options with the value None are omitted. Raises ``ValueError`` if
    TOML cannot represent the value of an option. The message names the option.

    name : name of the mapping in error messages. prefix : text before every option name.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {value!r}: must be a table of options")
    flat: dict[str, OptionValue] = {}
    for key, item in value.items():
        full = f"{prefix}{key}".replace("-", "_")
        if isinstance(item, Mapping):
            flat.update(flat_options(name, item, f"{full}."))
        elif isinstance(item, list | tuple):
            flat[full] = tuple(tuple(x) if isinstance(x, list | tuple) else x for x in item)
        elif isinstance(item, bool | int | float | str):
            flat[full] = item
        elif item is None:
            continue  # None means "not given"; TOML has no null, so the option is omitted
        else:
            raise ValueError(f"{name}.{full} = {item!r}: must be a boolean, a number, a text or a list")
    return dict(sorted(flat.items()))
