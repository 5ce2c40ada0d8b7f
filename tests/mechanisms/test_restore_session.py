"""Restored sessions: one of them only, and nothing of another version or of other files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discreet.mechanisms.restore_session import restore
from discreet.mechanisms.saved_state import state_file as saved_state

from .saved_state.test_state_file import saved


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_second_restore_is_refused_also_of_a_copy(tmp_path: Path) -> None:
    path = saved(tmp_path)
    copy = shutil.copy(path, tmp_path / "copy")
    restore(path)
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        restore(path)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="or a copy of it, was restored"):
            restore(copy)
    assert (tmp_path / "copy").exists()


def test_other_states_are_restored_beside_it(tmp_path: Path) -> None:
    first, second = saved(tmp_path, "a"), saved(tmp_path, "b")
    one, other = restore(first), restore(second)
    other.close()
    assert one.release().users == one.users
    with pytest.raises(RuntimeError, match="closed"):
        other.release()


def _rewritten(content: bytes, change: Callable[[dict[str, Any]], None], version: int = 2) -> bytes:
    """A file with another header and a checksum that fits."""
    import hashlib

    prelude = saved_state._PRELUDE
    magic, _, length = prelude.unpack(content[: prelude.size])
    header = json.loads(content[prelude.size : prelude.size + length])
    change(header)
    text = json.dumps(header).encode()
    body = prelude.pack(magic, version, len(text)) + text + content[prelude.size + length : -32]
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("change", "version", "message"),
    [
        (lambda h: None, 1, "version 1 of the file's layout"),
        (lambda h: h["values"].pop("_table"), 3, "_table|_cells"),
        (lambda h: h["values"].update(_news=1), 3, "_news is missing or new"),
        (lambda h: h["values"].update(_users=1.5), 3, "_users = 1.5: must be of type int"),
        (
            lambda h: h["values"]["_table"]["map"].__setitem__(0, ["cells", 7]),
            3,
            "cells: must be an array",
        ),
        (lambda h: h["values"]["_table"]["map"].pop(), 3, "_table: must say"),
        (lambda h: h["values"].update(_plan={"Popen": {"args": "true"}}), 3, "another version"),
        (lambda h: h["values"].update(_plan={"array": 99}), 3, "another version"),
        (lambda h: h["arrays"][0].__setitem__(0, "|O"), 3, "another version"),
        (lambda h: h.pop("id"), 3, "another version"),
    ],
)
def test_states_of_other_versions_are_refused(
    change: Callable[[dict[str, Any]], None], version: int, message: str, tmp_path: Path
) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(_rewritten(content, change, version))
    with pytest.raises(ValueError, match=message):
        restore(path)
    path.write_bytes(content)
    restore(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x89PNG\r\n", b"\x80\x04K\x01.", bytes(range(250))]
)
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(ValueError, match="is not a saved state"):
        restore(tmp_path / "foreign")
