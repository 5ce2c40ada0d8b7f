"""Parts that are looked up by name exist."""

from typing import get_args

import pytest

from discreet.core import lazy as parts
from discreet.mechanisms.saved_state import save as saving
from discreet.mechanisms.saved_state import state_file as saved_state


def test_parts_that_are_looked_up_by_name_are_there() -> None:
    """A table of names is no import: every name in it must lead to what it says, in this library."""
    for part in get_args(parts.Part):
        assert parts.module(part).__name__.startswith("discreet.")
    for kind, (home, name) in parts.RECORDS.items():
        assert home.startswith("discreet.")
        assert parts.record_class(kind).__qualname__ == name
    with pytest.raises(ValueError, match="record: kind"):
        parts.record_class("os")
    with pytest.raises(KeyError):
        parts.module("os")  # type: ignore[arg-type]
    for name, home in saving.CLASSES.items():
        assert saved_state.WRITTEN_NAMES.get(home.__name__, home.__name__) == name
        assert home.__module__.startswith("discreet.")
    with pytest.raises(KeyError):
        saving.CLASSES["Popen"]
