"""Files that are no TOML are refused by name."""

from pathlib import Path

import pytest

from discreet.utils.toml_file import read_toml


def test_bad_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing.toml"):
        read_toml(tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(ValueError, match="broken.toml: is not TOML"):
        read_toml(broken)
