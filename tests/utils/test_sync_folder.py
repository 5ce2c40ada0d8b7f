"""A folder's entries are written to the disk, and its descriptor is closed also on an error."""

import os
from pathlib import Path

import pytest

from discreet.utils.sync_folder import sync_folder


def test_the_folder_itself_is_synchronised_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def broken(descriptor: int) -> None:
        assert os.path.sameopenfile(descriptor, os.open(tmp_path, os.O_RDONLY))
        seen.append(descriptor)
        raise OSError("disk")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk"):
        sync_folder(tmp_path)
    (descriptor,) = seen
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "none")
