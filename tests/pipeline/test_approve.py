"""Nothing is signed that does not verify, and by no key that is none."""

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import discreet as dr
from discreet.pipeline.approve import sign


def test_a_folder_that_does_not_verify_is_not_signed(tmp_path: Path) -> None:
    dr.new_key(tmp_path / "key")
    key = dr.ledger.read_private_key(tmp_path / "key")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "codebook.json").write_text("{}")
    (folder / "statement.json").write_text("{}")
    with pytest.raises(ValueError, match="statement"):
        sign(folder, key)
    with pytest.raises(ValueError, match="key = .*: must be a PrivateKey"):
        sign(folder, key.public)  # type: ignore[arg-type]
    assert sorted(path.name for path in folder.iterdir()) == ["codebook.json", "statement.json"]
