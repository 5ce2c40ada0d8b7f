"""The cache of compiled code: never fails at import, never serves a stale kernel, does not pile up."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from discreet.core import compile as compiling

READ_ONLY = "/proc/no-such-folder"  # nobody, not even root, can write there


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_where_nothing_can_be_written_kernels_still_run_with_one_warning() -> None:
    code = (
        "from discreet.utils import random_streams_kernels as s; "
        "from discreet.core import count_kernels as kernels;"
        "print(s.open_at(s.run_key(0), 0, 0, 0).size)"
    )
    found = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": READ_ONLY},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "4"
    assert found.stderr.count("no folder for compiled code can be written") == 1


def test_without_a_home_folder_there_is_no_cache_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(kind: str) -> Path:
        raise ValueError("there is no home folder")

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiling, "user_folder", lost)
    assert compiling.cache_folder.__wrapped__() is None


def test_the_folder_is_made_with_its_parents_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new" / "place"))
    folder = compiling.cache_folder.__wrapped__()
    assert folder == tmp_path / "new" / "place" / f"kernels-{compiling.kernel_hash()}"
    assert folder.is_dir()
    assert compiling.cache_folder.__wrapped__() == folder
    assert not list(folder.iterdir())  # the probe is gone


def test_two_processes_that_make_the_folder_at_once_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    exists = Path.exists

    def a_moment_ago(path: Path) -> bool:  # the other process makes it after this look
        found = exists(path)
        path.mkdir(exist_ok=True)
        return found

    monkeypatch.setattr(Path, "exists", a_moment_ago)
    folder = compiling.cache_folder.__wrapped__()
    assert folder is not None
    assert folder.is_dir()


def test_every_kernel_source_is_in_the_name_of_the_cache() -> None:
    package = Path(compiling.__file__).parents[1]
    assert set(compiling.kernel_sources()) == set(package.rglob("*kernels.py"))
    users = [path for path in package.rglob("*.py") if "@kernel\n" in path.read_text()]
    assert set(users) <= set(compiling.kernel_sources())
    folder = compiling.cache_folder()
    assert folder is not None
    assert folder.name == f"kernels-{compiling.kernel_hash()}"


def test_a_changed_kernel_changes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "some_kernels.py"
    monkeypatch.setattr(compiling, "_PACKAGE", tmp_path)
    monkeypatch.setattr(compiling, "kernel_sources", lambda: (source,))
    names = []
    for text in ("scale = 1", "scale = 2", "scale = 1"):
        source.write_text(text)
        names.append(compiling.kernel_hash.__wrapped__())
    assert names[0] != names[1]
    assert names[0] == names[2]


def test_old_folders_are_forgotten_and_nothing_else(tmp_path: Path) -> None:
    for age in range(9):
        folder = tmp_path / f"kernels-{age}"
        folder.mkdir()
        (folder / "x.nbi").touch()
        os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "mine").mkdir()
    stays = tmp_path / "kernels-none"  # what cannot be removed is left: no import fails for it
    stays.touch()
    os.utime(stays, (1, 1))
    compiling._forget_old(tmp_path)
    stays.unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == [*(f"kernels-{i}" for i in range(6)), "mine"]


def test_kernels_run_without_the_lock_and_with_exact_arithmetic() -> None:
    """Sums in another order, or a quotient by an inverse, would not be the noise that was accounted for."""

    def quotient(a: float, b: float) -> float:
        return a / b

    for made in (compiling.kernel(quotient), compiling.inlined(quotient)):
        options = made.targetoptions  # type: ignore[attr-defined]
        assert (options["nogil"], options["fastmath"], options["error_model"]) == (True, False, "numpy")
        assert options["nopython"]


def test_every_function_of_a_kernel_source_of_the_core_and_of_seeded_noise_is_compiled() -> None:
    """Doors are kept on disk; what is left in Python would be slow, and draw the same."""
    doors = 0
    for path in compiling.kernel_sources():
        name = ".".join(path.relative_to(compiling._PACKAGE.parent).with_suffix("").parts)
        if not name.startswith(("discreet.core.", "discreet.utils.", "discreet.mechanisms.seeded_")):
            continue
        source = path.read_text()
        for function in re.findall(r"^(?:@intrinsic\n)?def (\w+)", source, re.MULTILINE):
            made = getattr(importlib.import_module(name), function)
            if function in ("run_key", "generator_at") or f"@intrinsic\ndef {function}(" in source:
                continue
            assert isinstance(made, Dispatcher), function
            kept = not isinstance(made._cache, NullCache)
            assert kept == (f"@kernel\ndef {function}(" in source), function
            doors += kept
    assert doors > 15


def test_the_warning_names_the_caller_and_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "cache_folder", lambda: None)
    compiling._warn_no_cache.cache_clear()
    with pytest.warns(RuntimeWarning, match="no folder for compiled code can be written") as caught:
        made = [compiling.kernel(lambda x: x + 1) for _ in range(2)]
    assert [one.filename for one in caught] == [__file__]
    assert [one(2) for one in made] == [3, 3]


def test_the_setting_of_numba_is_as_it_was() -> None:
    before = compiling._numba_config.CACHE_DIR
    compiling.kernel(lambda x: x)
    assert before == compiling._numba_config.CACHE_DIR
    assert len(compiling.kernel_hash()) == 16


def test_a_folder_that_cannot_be_written_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert compiling.cache_folder.__wrapped__() is None
