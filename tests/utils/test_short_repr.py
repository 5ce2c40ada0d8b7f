"""What is shown at a prompt fits a screen."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from discreet.core.short_repr import brief
from discreet.utils.short_repr import LINES, WIDTH


@dataclass(frozen=True, eq=False)
class Inner:
    table: Any = None
    name: str = "inner"

    __repr__ = brief


@dataclass(frozen=True, eq=False)
class Outer:
    table: Any
    items: Any = ()
    inner: Inner = field(default_factory=Inner)
    hidden: int = field(default=0, repr=False)
    count: int = 3

    __repr__ = brief


def test_arrays_are_told_by_their_shape_and_defaults_are_left_out():
    assert repr(Outer(np.zeros((4, 5)))) == "Outer(table=<float64 (4, 5)>, inner=Inner())"
    assert repr(Outer(np.arange(3), hidden=4)) == "Outer(table=array([0, 1, 2]), inner=Inner())"
    assert repr(Outer(None, count=4, inner=Inner(name="x"))) == "Outer(inner=Inner(name='x'), count=4)"
    assert repr(Outer(np.float64(2.5))) == "Outer(table=2.5, inner=Inner())"


def test_collections_show_their_first_items_and_their_size():
    assert "items=(0, 1, 2, ... 9 in all)" in repr(Outer(1, tuple(range(9))))
    assert "items=[0, 1]" in repr(Outer(1, [0, 1]))
    assert "items=(7,)" in repr(Outer(1, (7,)))
    many = {f"k{i}": np.zeros(8) for i in range(5)}
    assert "items={'k0': <float64 (8,)>, " in repr(Outer(1, many))
    assert "... 5 in all}" in repr(Outer(1, many))


def test_nothing_is_longer_than_a_screen():
    long = Outer("x" * 10_000, ["word " * 400] * 50, Inner(np.zeros((3, 3, 3)), "y " * 5000))
    lines = repr(long).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    wide = dataclass_of(60)
    lines = repr(wide).splitlines()
    assert len(lines) == LINES
    assert lines[-2:] == ["  ...", ")"]


def dataclass_of(fields: int) -> Any:
    names = {f"number_{i}": i for i in range(fields)}
    body: dict[str, Any] = {"__annotations__": dict.fromkeys(names, int), "__repr__": brief}
    return dataclass(type("Wide", (), body))(*names.values())
