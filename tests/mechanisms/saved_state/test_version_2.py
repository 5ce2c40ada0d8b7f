"""Files of version 2 of the format, of every kind of session, continue bit for bit."""

import json
import shutil
from pathlib import Path

import pytest
from saved_runs import CASES, FOLDER, WIDE, after, before, file_name, is_repeatable
from saved_runs import VALUES as NEXT_VALUES

from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.restore_session import Restored, restore
from discreet.mechanisms.saved_state import state_file as saved_state

EXPECTED: dict[str, list[str]] = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))


def restored(name: str, tmp_path: Path) -> Restored:
    """Return the session of a copy of a stored file."""
    return restore(shutil.copy(FOLDER / file_name(name), tmp_path / "copy"))


def test_there_is_a_file_of_every_case() -> None:
    files = {path.name for path in FOLDER.glob("*.bin")}
    assert files == {file_name(name) for name in (*CASES, "clocks", "questions")}
    assert set(EXPECTED) == {name for name, case in CASES.items() if is_repeatable(case)}


@pytest.mark.parametrize("name", CASES)
def test_a_stored_session_continues(name: str, tmp_path: Path) -> None:
    found = after(restored(name, tmp_path), CASES[name])
    if name in EXPECTED:
        assert found == EXPECTED[name]
    else:
        assert len(set(found)) == 4  # secure noise differs from run to run


@pytest.mark.parametrize("name", EXPECTED)
def test_a_session_of_this_version_releases_the_same(name: str, tmp_path: Path) -> None:
    session = before(CASES[name])
    session.save(tmp_path / "file")
    assert after(restore(tmp_path / "file"), CASES[name]) == EXPECTED[name]


def test_stored_answers_continue(tmp_path: Path) -> None:
    session = restored("questions", tmp_path)
    assert isinstance(session, ResponseSession)
    assert (session.users, session.asked, session.layout.states) == (3, 1, WIDE.states)
    session.response(0, NEXT_VALUES[1])


def test_a_session_with_schedules_of_single_pairs_names_the_last_version(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"version 0\.2 was the last that continues it"):
        restored("clocks", tmp_path)
    assert (tmp_path / "copy").exists()
