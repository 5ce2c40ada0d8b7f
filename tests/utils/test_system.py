"""The machine: processors that the process may use, and packages that an extra has."""

import os

import pytest

from discreet.utils.system import optional, processors


def test_processors_are_those_that_the_process_may_use() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)


def test_a_missing_package_is_named_with_its_extra() -> None:
    import json

    assert optional("json", "records", "this") is json
    with pytest.raises(ImportError, match=r"this needs the package no_such_one: pip install 'discreet\[x\]'"):
        optional("no_such_one", "x", "this")
