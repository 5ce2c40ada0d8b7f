"""Folders of a user (absolute XDG variables, else the home folder)."""

import os
import sys
from pathlib import Path

import pytest

from discreet.core.user_data_dir import user_folder

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep data elsewhere")


@linux
@pytest.mark.parametrize(
    ("kind", "under"), [("cache", ".cache"), ("data", ".local/share"), ("state", ".local/state")]
)
def test_absolute_variables_then_the_home_folder(kind, under, tmp_path: Path, monkeypatch) -> None:
    variable = f"XDG_{kind.upper()}_HOME"
    monkeypatch.setenv(variable, str(tmp_path / "xdg"))
    assert user_folder(kind) == tmp_path / "xdg" / "discreet"
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("relative", ""):
        monkeypatch.setenv(variable, ignored)
        assert user_folder(kind) == tmp_path / under / "discreet"


def test_no_home_folder_is_an_error(monkeypatch) -> None:
    def lost() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lost)
    with pytest.raises(ValueError, match="no home folder"):
        user_folder("data")


@pytest.mark.skipif(os.name != "posix", reason="paths of other systems are not built here")
def test_other_systems_keep_data_where_they_say(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert user_folder("data") == tmp_path / "Library" / "Application Support" / "discreet"
    assert user_folder("cache") == tmp_path / ".cache" / "discreet"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert user_folder("data") == tmp_path / "local" / "discreet"
    assert user_folder("cache") == tmp_path / ".cache" / "discreet"
