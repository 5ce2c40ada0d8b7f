"""Files that are named with a hash of their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from discreet.utils.pinned_file import pinned


def test_pinned(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"one")
    text = pinned("prior", str(path))
    assert text == f"{path}#{hashlib.sha256(b'one').hexdigest()[:16]}"
    assert pinned("prior", text) == text
    path.write_bytes(b"two")
    with pytest.raises(ValueError, match="^prior = .*: the file has changed"):
        pinned("prior", text)
    with pytest.raises(ValueError, match="^prior = .*none': must be a readable file"):
        pinned("prior", str(tmp_path / "none"))
