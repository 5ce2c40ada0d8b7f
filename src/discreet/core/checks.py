"""Argument checks. Each error names the argument, its value, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LONGEST = 300


def said(value: Any) -> str:
    """Return a value as text for an error message.

    NumPy scalars are shown as plain numbers (``-1.0`` for ``np.float64(-1.0)``), and long text is shortened.
    """
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def real(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a float inside the interval, or raise ``ValueError``."""
    number = math.nan
    if type(value) is float:  # the most frequent case is tested first
        number = value
    elif isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # raised for an integer that is too large for a float
            number = float(value)
    inside = (number > low if open_low else number >= low) and (
        number < high if open_high else number <= high
    )
    if not math.isfinite(number) or not inside:
        raise ValueError(f"{name} = {said(value)}: must be {_interval(low, high, open_low, open_high)}")
    return number


def _interval(low: float, high: float, open_low: bool, open_high: bool) -> str:
    """Return the allowed range of a number as text. Infinite ends are omitted."""
    if math.isinf(low) and math.isinf(high):
        return "a finite number"
    if math.isinf(high):
        return f"a finite number {'above' if open_low else 'of at least'} {low:g}"
    if math.isinf(low):
        return f"a finite number {'below' if open_high else 'of at most'} {high:g}"
    return f"a number in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a finite float above 0, or raise ``ValueError``."""
    return real(name, value, 0.0, open_low=True)


def integer(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """Return ``value`` as an int inside [low, high], or raise ``ValueError``."""
    whole = type(value) is int or (isinstance(value, (Integral, np.integer)) and not isinstance(value, bool))
    # the conversion happens once, so the number that is checked is also the number that is returned
    number = int(value) if whole else 0
    if not whole or (low is not None and number < low) or (high is not None and number > high):
        raise ValueError(f"{name} = {said(value)}: must be {_whole_interval(low, high)}")
    return number


def _whole_interval(low: int | None, high: int | None) -> str:
    """Return the allowed range of integers as text."""
    if low is None:
        return "an integer" if high is None else f"an integer of at most {high}"
    return f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high}]"


def choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return the item of ``allowed`` that equals ``value``, or raise ``ValueError`` with the list."""
    options = list(allowed)
    for option in options:
        if value is option or value == option:
            # returns the library's object: the comparison of the caller's object could change later
            return option
    raise ValueError(f"{name} = {said(value)}: must be one of {', '.join(map(repr, options))}")


def flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool, or raise ``ValueError``."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} = {said(value)}: must be true or false")
    return bool(value)


def is_exactly(value: Any, *kinds: type) -> bool:
    """Return True if the class of ``value`` is one of ``kinds`` and not a subclass.

    Classes are compared by identity, because a metaclass can override ``==``.
    """
    return any(type(value) is kind for kind in kinds)


def exactly(name: str, value: Any, *kinds: type) -> None:
    """Raise ``ValueError`` unless the class of ``value`` is one of ``kinds``.

    Subclasses are rejected, because a subclass could override any method.
    """
    if not is_exactly(value, *kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        article = "an" if names[0] in "AEIOUaeiou" else "a"
        raise ValueError(f"{name} = {said(value)}: must be {article} {names}, no subclass")


def floats(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a C-contiguous float64 copy of ``value``.

    Raises ``ValueError`` unless all entries are finite and the shape is exactly ``shape``.
    """
    try:
        array = np.asarray(value).astype(np.float64, "C", "same_kind")  # rejects complex numbers and text
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: must be an array of numbers ({error})") from None
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}: must be {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds {said(array[~np.isfinite(array)][0])}: must be finite everywhere")
    return array


def by_constructor(value: Any) -> tuple[Any, ...]:
    """Implement ``__reduce__`` of frozen dataclasses, for pickling and copying.

    The copy is created by the constructor. The constructor checks the arguments and recomputes all derived
    values.
    """
    kind: Any = type(value)
    return partial(kind, **{one.name: getattr(value, one.name) for one in fields(value) if one.init}), ()
