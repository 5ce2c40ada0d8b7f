"""Base class for frozen objects whose options have presets. An option that is given overrides the preset."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from discreet.core import checks


class _Signature:
    """Descriptor that makes the signature of a class equal to that of its ``__init__``."""

    def __get__(self, _: object, owner: type) -> inspect.Signature:
        found = inspect.signature(owner.__init__)  # type: ignore[misc]
        return found.replace(parameters=list(found.parameters.values())[1:])  # without the parameter self


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Base class of learners and privatizers.

    A subclass defines ``PRESETS``, which maps each preset name to {option: value}; ``"default"`` must exist
    and name every option. Options are fields with the default None, which means "from the preset". Options
    must be given by name. A value without a name, or an unknown name, raises a ``TypeError`` that suggests
    the right name.
    """

    preset: str = "default"

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    if not TYPE_CHECKING:  # so that a type checker sees the options of __init__
        __signature__ = _Signature()

        def __new__(cls, *values: Any, **options: Any) -> Self:
            """Reject the same arguments as ``__init__``, with clearer error messages."""
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
        """Return the value of every field by name, with presets resolved."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _such(cls: type, values: tuple[Any, ...]) -> str:
    """Return a text that suggests names for values that were given without names."""
    known = [f.name for f in fields(cls) if f.init]
    number = isinstance(values[0], int | float) and not isinstance(values[0], bool)
    if number and len(values) == 1 and "epsilon" in known:
        return f"{cls.__name__}(epsilon={values[0]!r})"
    return f"{', '.join(known)}; given {', '.join(checks.said(value) for value in values)}"


def _meant(name: str, known: list[str]) -> str:
    """Return a text with the option whose name is most similar to an unknown name, or with all options."""
    near = difflib.get_close_matches(name, known, n=1) or [one for one in known if one.startswith(name)]
    return f"; did you mean {near[0]}?" if near else f"; must be one of {', '.join(known)}"
