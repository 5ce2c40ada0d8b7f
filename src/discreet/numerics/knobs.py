"""Frozen specifications whose options have presets: what is given wins, the rest is the preset's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from discreet.numerics import checks


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Base of learners and privatizers.

    A subclass lists ``PRESETS``: name to {option: value}; ``"default"`` must be there and name every
    option. Options are fields whose default is None, "from the preset".
    """

    preset: str = "default"

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    def __post_init__(self) -> None:
        checks.choice("preset", self.preset, self.PRESETS)
        values = {**self.PRESETS["default"], **self.PRESETS[self.preset]}
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def options(self) -> dict[str, Any]:
        """Every field by name, resolved."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
