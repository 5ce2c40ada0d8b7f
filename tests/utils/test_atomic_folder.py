"""Names that are claimed while a run is at work, and room that is held while it pays."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from discreet.utils.atomic_folder import check_free, claimed, claims_out, room_for

HOLDER = """
import sys
from pathlib import Path
from discreet.utils.atomic_folder import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_name_is_claimed_by_one_at_a_time(tmp_path: Path) -> None:
    with claimed(tmp_path / "new" / "out"):
        refused = pytest.raises(ValueError, match="another run is writing it; nothing was spent")
        with refused, claimed(tmp_path / "new" / "out"):
            pass
        with claimed(tmp_path / "new" / "other"):
            pass
        assert names(tmp_path / "new") == [".out.claim"]
    assert names(tmp_path / "new") == []
    with pytest.raises(RuntimeError), claimed(tmp_path / "new" / "out"):
        raise RuntimeError
    with claimed(tmp_path / "new" / "out"):
        pass
    assert names(tmp_path / "new") == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills")
def test_a_claim_of_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "out")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="another run is writing it"), claimed(tmp_path / "out"):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert names(tmp_path) == [".out.claim"]
    with claimed(tmp_path / "out"):
        check_free(tmp_path / "out")
    assert names(tmp_path) == []


def test_no_two_of_many_hold_one_claim(tmp_path: Path) -> None:
    """Threads that claim, remove and claim again: a file that was removed under a lock claims nothing."""
    inside, most, refused = threading.Lock(), [], []

    def work() -> None:
        for _ in range(200):
            try:
                with claimed(tmp_path / "out"):
                    most.append(inside.acquire(blocking=False))
                    inside.release()
            except ValueError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(most)
    assert len(most) + len(refused) == 800
    assert names(tmp_path) == []


def test_without_locks_nothing_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", unknown)
    with claimed(tmp_path / "out"), claimed(tmp_path / "out"):
        pass


def test_a_function_claims_its_out(tmp_path: Path) -> None:
    @claims_out
    def work(source: int, out: str | Path, *, deep: bool = False) -> list[str]:
        """Work."""
        return names(tmp_path) if deep else work(source, out, deep=True)

    assert work.__doc__ == "Work."
    assert work(1, tmp_path / "out", deep=True) == [".out.claim"]
    assert work(1, out=str(tmp_path / "out"), deep=True) == [".out.claim"]
    with pytest.raises(ValueError, match="is writing it"):
        work(1, tmp_path / "out")
    with pytest.raises(TypeError):
        work(1)  # type: ignore[call-arg]


# -------------------------------------------------------------------------------------------- room
def test_room_is_held_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for without in (False, True):
        if without:
            monkeypatch.delattr(os, "posix_fallocate")
        with room_for(tmp_path / "out", 3_000_000):
            assert names(tmp_path) == []  # no file is left by a process that is killed here
        assert names(tmp_path) == []


def test_too_little_room_is_refused_before_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    message = r"must be on a disk with room for 3\.0 MB \(No space left on device\); nothing was spent"
    with pytest.raises(ValueError, match=message), room_for(tmp_path / "out", 3_000_000):
        pytest.fail("must not be reached")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="room for"), room_for(tmp_path / "none" / "out", 1):
        pytest.fail("must not be reached")
    assert names(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> object:
    """A file system of 16 kB, where one may be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    words = ["-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if (
        not mount
        or not umount
        or subprocess.run([mount, *words], capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run([umount, str(place)], check=True)


def test_room_on_a_small_disk(small_disk: Path) -> None:
    with room_for(small_disk / "out", 8_000):
        pass
    with pytest.raises(ValueError, match="room for 0.1 MB"), room_for(small_disk / "out", 50_000):
        pytest.fail("must not be reached")
    with room_for(small_disk / "out", 8_000):
        pass
