"""Short ``repr`` of objects. The module :mod:`discreet.utils.short_repr` is imported on first use."""

from __future__ import annotations

from typing import Any

from discreet.core.registry import parts


def brief(thing: Any) -> str:
    """Return a short text for ``thing``. Dataclasses use it as ``__repr__ = brief``."""
    return parts().shown.text(thing)
