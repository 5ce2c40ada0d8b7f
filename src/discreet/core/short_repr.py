"""How values are shown at a prompt: by :mod:`discreet.utils.short_repr`, which is loaded when one is."""

from __future__ import annotations

from typing import Any

from discreet.core import lazy as parts

__all__ = ["brief"]


def brief(thing: Any) -> str:
    """For ``__repr__ = brief`` of a dataclass: a text that fits a screen."""
    text: str = parts.module("shown").text(thing)
    return text
