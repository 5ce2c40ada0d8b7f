"""Text representation of dataclasses for interactive sessions, never longer than one screen."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from discreet.core.short_repr import brief

WIDTH, LINES = 110, 20
_PART = 320  # largest number of characters that are shown of one field
_FIRST = 3  # largest number of items that are shown of a list, tuple or mapping


def text(thing: Any) -> str:
    """Return ``Name(field=value, ...)`` for a dataclass instance, in at most 20 lines of 110 characters.

    Classes get this representation by ``__repr__ = brief`` (:mod:`discreet.core.short_repr`). Fields with
    their default value are omitted. For an array, the text states its type and shape. For a mapping or a
    list, it states the first items and the size.
    """
    name = type(thing).__name__
    parts = _parts(thing)
    line = f"{name}({', '.join(parts)})"
    if len(line) <= WIDTH:
        return line
    lines = [f"{name}("]
    for part in parts:
        lines += textwrap.wrap(f"{part},", WIDTH, initial_indent="  ", subsequent_indent="    ")
    if len(lines) >= LINES:
        lines = [*lines[: LINES - 2], "  ..."]
    return "\n".join([*lines, ")"])


def of_session(session: Any, closed: bool) -> str:
    """Return text about a session that contains only public facts and no record or sum.

    ``closed`` : True if the session is closed.
    """
    claim = getattr(session, "guarantee", None)
    words = [] if claim is None else [f"trust={claim.trust!r}", f"epsilon={claim.epsilon}"]
    if claim is not None and claim.delta:
        words.append(f"delta={claim.delta:g}")
    if closed:
        words.append("closed")
    elif hasattr(session, "users"):
        words.append(f"users={session.users}")
    return f"<{type(session).__name__} {', '.join(words)}>"


def _parts(thing: Any) -> list[str]:
    shown = []
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name, None)
        if not field.repr or value is None or _is_default(field, value):
            continue
        shown.append(f"{field.name}={_cut(_said(value))}")
    return shown


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    default = field.default
    if default is dataclasses.MISSING:
        return (
            not isinstance(value, np.ndarray)
            and field.default_factory is not dataclasses.MISSING
            and not value
        )
    return type(default) is type(value) and not isinstance(value, np.ndarray) and bool(default == value)


def _said(value: Any) -> str:
    """Return the text of a field's value, on one line."""
    if isinstance(value, np.ndarray):
        if value.size <= _FIRST:
            return f"array({value.tolist()})"
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Mapping):
        named = (f"{key!r}: {_said(one)}" for key, one in value.items())
        return f"{{{_few(named, len(value))}}}"
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        few = _few((_said(one) for one in value), len(value))
        return f"[{few}]" if isinstance(value, list) else f"({few}{',' if len(value) == 1 else ''})"
    shown: Any = type(value).__repr__
    if shown is brief:
        return f"{type(value).__name__}({', '.join(_parts(value))})"
    return " ".join(repr(value).split())


def _few(items: Iterable[str], size: int) -> str:
    shown = [item for _, item in zip(range(_FIRST), items, strict=False)]
    return ", ".join(shown + ([f"... {size} in all"] if size > _FIRST else []))


def _cut(text: str) -> str:
    return text if len(text) <= _PART else f"{text[:_PART]}..."
