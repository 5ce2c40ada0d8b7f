"""The test vectors for devices in other languages are what this device makes."""

from __future__ import annotations

import importlib.util
import json
import random
import secrets
from pathlib import Path
from typing import Any

import pytest

import discreet

FILE = Path(__file__).parents[2] / "clients" / "js" / "vectors.py"


@pytest.fixture(scope="module")
def made() -> Any:
    spec = importlib.util.spec_from_file_location("js_vectors", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_vectors_on_file_are_the_devices(made: Any) -> None:
    kept, now = json.loads(made.FILE.read_text()), made.vectors()
    assert len(kept["messages"]) > 60
    for one, other in zip(kept["messages"], now["messages"], strict=True):
        guarantees = one.pop("guarantee"), one.pop("at 1e-6"), other.pop("guarantee"), other.pop("at 1e-6")
        assert one == other
        for a, b in ((guarantees[0]["epsilon"], guarantees[2]["epsilon"]), (guarantees[1], guarantees[3])):
            assert (a is None) == (b is None)
            assert a is None or a == pytest.approx(b, rel=1e-12)  # logarithms may differ between machines
    assert kept["draws"] == now["draws"]


def test_the_package_has_the_librarys_version(made: Any) -> None:
    assert json.loads((FILE.parent / "package.json").read_text())["version"] == discreet.__version__


def test_integers_take_the_bytes_that_the_system_would_give(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = made.Stream("a"), made.Stream("a")
    monkeypatch.setattr(random, "_urandom", theirs.bytes)
    for n in (1, 2, 3, 100, 256, 2**31, 2**53, 2**64, 10**30):
        assert [ours.below(n) for _ in range(20)] == [secrets.randbelow(n) for _ in range(20)]
    assert ours.used == theirs.used
