"""The short text of a value is that of the package's writer, in one line of bounded length."""

from dataclasses import dataclass

import numpy as np

from discreet.core.short_repr import brief
from discreet.utils import short_repr


@dataclass(frozen=True, eq=False)
class Table:
    """A value with a large array."""

    __repr__ = brief
    name: str
    values: np.ndarray


def test_arrays_are_named_by_their_size_and_not_written_out() -> None:
    table = Table("a", np.arange(1_000_000))
    assert repr(table) == brief(table) == short_repr.text(table)
    assert repr(table).startswith("Table(")
    assert len(repr(table)) < 300
