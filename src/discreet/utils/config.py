"""Frozen values whose options have presets: a given value overrides the preset's."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from discreet.core import checks


class _Signature:
    """Signature of a class, equal to that of its ``__init__``."""

    def __get__(self, _: object, owner: type) -> inspect.Signature:
        found = inspect.signature(owner.__init__)  # type: ignore[misc]
        return found.replace(parameters=list(found.parameters.values())[1:])  # without self


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Base of learners and privatizers.

    A subclass lists ``PRESETS``: name to {option: value}; ``"default"`` must exist and name every
    option. Options are fields whose default is None, "from the preset". They are given by name: a value
    without a name, or an unknown name, is a ``TypeError`` that suggests the right one.
    """

    preset: str = "default"

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    if not TYPE_CHECKING:  # a type checker must see the options of __init__
        __signature__ = _Signature()

        def __new__(cls, *values: Any, **options: Any) -> Self:
            """Reject, with clearer messages, what ``__init__`` would reject."""
            known = [f.name for f in fields(cls) if f.init]
            if values:
                raise TypeError(f"{cls.__name__} takes keyword arguments only: {_such(cls, values)}")
            for name in options:
                if name not in known:
                    raise TypeError(f"{name}: unknown option of {cls.__name__}{_meant(name, known)}")
            return super().__new__(cls)

    def __post_init__(self) -> None:
        checks.choice("preset", self.preset, self.PRESETS)
        values = {**self.PRESETS["default"], **self.PRESETS[self.preset]}
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def options(self) -> dict[str, Any]:
        """Return every field by name, resolved."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _such(cls: type, values: tuple[Any, ...]) -> str:
    """Return what values without names could have meant."""
    known = [f.name for f in fields(cls) if f.init]
    number = isinstance(values[0], int | float) and not isinstance(values[0], bool)
    if number and len(values) == 1 and "epsilon" in known:
        return f"{cls.__name__}(epsilon={values[0]!r})"
    return f"{', '.join(known)}; given {', '.join(checks.said(value) for value in values)}"


def _meant(name: str, known: list[str]) -> str:
    """Return the option nearest to an unknown name, else all of them."""
    near = difflib.get_close_matches(name, known, n=1) or [one for one in known if one.startswith(name)]
    return f"; did you mean {near[0]}?" if near else f"; must be one of {', '.join(known)}"
