"""Files that are whole or not there."""

import os
from pathlib import Path

import pytest

from discreet.utils.atomic_file import write_aside


def test_write_aside_replaces_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_aside(path, b"one")
    write_aside(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("where", ["open", "fsync", "replace"])
def test_a_write_that_is_interrupted_leaves_the_old_file_alone(where, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file"
    write_aside(path, b"one")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path if where == "replace" else os, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_aside(path, b"two")
    monkeypatch.undo()
    assert path.read_bytes() == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_two_threads_may_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So may processes of one number on two machines: neither takes the other's draft."""
    path, own = tmp_path / "config.toml", os.fsync

    def meanwhile(_: int) -> None:
        monkeypatch.setattr(os, "fsync", own)
        write_aside(path, b"the other's")

    monkeypatch.setattr(os, "fsync", meanwhile)
    write_aside(path, b"mine")
    assert path.read_bytes() == b"mine"
    assert [*tmp_path.iterdir()] == [path]
