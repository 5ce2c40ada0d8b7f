"""Stored users of linear sums come back from a saved state."""

from typing import Any

import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.mechanisms.linear import dataset_sums as stored
from discreet.mechanisms.saved_state import state_file as saved_state

from ..saved_state.test_save import assert_same, play, proposed, stopover

WHEREVER = {(k, where) for k in range(3) for where in ("before", "after", "asked", "open", "midway")}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def start(case: str, randomness: Any = None) -> Any:
    source = randomness or Seeded(5)
    return dr.mechanisms.session_of(proposed(case, source), source)


def test_kept_records_come_back_too(tmp_path, monkeypatch):
    """Of layouts that are too large for a table of counts."""
    monkeypatch.setattr(stored, "MOST_CELLS", 0)
    assert not start("answers").state["answers"]._stored.dense
    whole = play(start("answers"), lambda s: s, WHEREVER)
    assert_same(whole, play(start("answers"), stopover(tmp_path), WHEREVER))
