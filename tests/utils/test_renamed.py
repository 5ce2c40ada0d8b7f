"""Every new name of a renamed object exists."""

import importlib

from discreet.utils import renamed as renaming


def test_every_new_name_is_there() -> None:
    for old, new in renaming._table().items():
        for one in new.split(", "):
            assert resolved(one) is not None, old


def resolved(full: str) -> object:
    """A module, or an attribute of one."""
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:  # an extra that is not installed
            return error
        home, _, name = full.rpartition(".")
        return getattr(importlib.import_module(home), name)
