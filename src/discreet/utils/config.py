"""Base class of immutable objects with options. A preset sets all options that the caller does not give."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from discreet.core import checks


class _Signature:
    """Descriptor that returns the signature of the owner class's ``__init__``, without ``self``."""

    def __get__(self, _: object, owner: type) -> inspect.Signature:
        found = inspect.signature(owner.__init__)  # type: ignore[misc]
        return found.replace(parameters=list(found.parameters.values())[1:])  # without the parameter self


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Base class of learners and privatizers.

    A subclass defines ``PRESETS``, which maps each preset name to {option: value}. The preset ``"default"``
    must exist and contain every option. Options are dataclass fields whose default is None. None means that
    the value is taken from the preset, or from ``"default"`` if the preset does not contain the option.
    Options are keyword arguments. A positional argument or an unknown name raises a ``TypeError`` that
    suggests a valid name.
    """

    preset: str = "default"

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    if not TYPE_CHECKING:  # a type checker must read the options from __init__, not from __new__
        __signature__ = _Signature()

        def __new__(cls, *values: Any, **options: Any) -> Self:
            """Raise ``TypeError`` for positional arguments and unknown options, before ``__init__`` does.

            The messages are clearer than Python's messages.
            """
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
        """Return a dict from the name of every field to its value. Values from the preset are filled in."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _such(cls: type, values: tuple[Any, ...]) -> str:
    """Return the part of an error message with the keyword arguments of the class.

    values : positional arguments of the call. If the only one is a number and the class has ``epsilon``, the
        text suggests the call with ``epsilon=``.
    """
    known = [f.name for f in fields(cls) if f.init]
    number = isinstance(values[0], int | float) and not isinstance(values[0], bool)
    if number and len(values) == 1 and "epsilon" in known:
        return f"{cls.__name__}(epsilon={values[0]!r})"
    return f"{', '.join(known)}; given {', '.join(checks.said(value) for value in values)}"


def _meant(name: str, known: list[str]) -> str:
    """Return the part of an error message that suggests a valid option for the unknown option ``name``.

    The text states the most similar name, or all names if no name is similar.
    """
    near = difflib.get_close_matches(name, known, n=1) or [one for one in known if one.startswith(name)]
    return f"; did you mean {near[0]}?" if near else f"; must be one of {', '.join(known)}"
