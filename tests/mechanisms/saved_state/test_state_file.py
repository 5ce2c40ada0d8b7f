"""Saved state: the run goes on as if nothing had happened, and only one session ever does."""

import multiprocessing
import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import LIMIT

import discreet as dr
from discreet.accounting.noise_distributions import distributions as laws
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.session import ChannelSession
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.restore_session import restore
from discreet.mechanisms.saved_state import save as saving
from discreet.mechanisms.saved_state import state_file as saved_state

LAYOUT = Layout(2, 2, 2, np.array([[True, True], [True, False]]))
QUERY = CountQuery(LAYOUT)
POLICY = np.zeros((2, 2), np.int64)
USERS = 12
STREAMS = {
    "exact": NoPrivacy(),
    "tree": Central(epsilon=1.0, release="tree"),
    "published": Central(epsilon=1.0, preset="paper"),
    "batches": Central(epsilon=1.0, release="batches"),
    "decaying": Central(epsilon=1.0, delta=1e-6, release="decaying", decay=0.7),
    "local": Local(epsilon=1.0),
    "reports": Central(epsilon=1.0, release="reports"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def start(stream: str) -> ChannelSession:
    times = None if stream == "published" else np.array([0, 4, 8])
    return STREAMS[stream].start(QUERY, Schedule(USERS, times=times), Seeded(5))  # type: ignore[attr-defined]


@pytest.mark.parametrize("open_ended", [False, True])
def test_secure_noise_that_was_drawn_comes_back(open_ended: bool, tmp_path: Path) -> None:
    """A tree's noise at 8 stays in the prefixes 9, 10, ... of the restored session."""
    session = STREAMS["tree"].start(QUERY, Schedule(None if open_ended else 100), Secure())  # type: ignore[attr-defined]
    session.begin(Plan(POLICY, users=8))
    session.absent(8)
    session.release()
    before = {slot: noise.copy() for slot, noise in session.state["registers"].items()}
    ends = session.state["held"].copy()
    session.save(tmp_path / "a")
    again = restore(tmp_path / "a")
    np.testing.assert_array_equal(again.state["held"], ends)
    assert again.state["registers"].keys() == before.keys()
    for slot, noise in before.items():
        np.testing.assert_array_equal(again.state["registers"][slot], noise, strict=True)
    assert again.guarantee == session.guarantee
    assert again._key is None


def test_every_attribute_is_saved_or_derived() -> None:
    for stream in STREAMS:
        kind = type(start(stream))
        named = [*kind._BOUND, *kind._STATE, *kind._DERIVED]
        assert len(named) == len(set(named))
        made = {name for name in named if isinstance(getattr(kind, name, None), property)}
        assert set(vars(start(stream))) == set(named) - made, "name new attributes in one of its tables"


def test_every_noise_law_can_be_saved() -> None:
    named = {name for name in laws.__all__ if isinstance(getattr(laws, name), type)}
    assert named <= set(saving.CLASSES), "list new laws in the table of saving.py"


def test_a_link_leads_to_the_file_that_is_taken(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "link").symlink_to(path)
    restore(tmp_path / "link")
    assert not path.exists()


def test_the_restored_state_is_the_saved_one(tmp_path: Path) -> None:
    session = start("decaying")
    session.release()
    session.begin(Plan(POLICY, users=3, context={"values": np.arange(3.0)}))
    session.absent(2)
    before = {name: vars(session)[name] for name in ChannelSession._STATE if name != "_table"}
    before |= session.state
    session.save(tmp_path / "a")
    again = restore(tmp_path / "a")
    after = vars(again) | again.state
    for name, value in before.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(after[name], value, strict=True)
        elif name not in ("_plan", "_last"):
            assert after[name] == value, name
    assert again.open_plan.number == 1
    np.testing.assert_array_equal(again.open_plan.context["values"], np.arange(3.0))
    again.absent()
    assert again.users == 3


def test_a_restored_release_cannot_be_written(tmp_path: Path) -> None:
    session = start("tree")
    session.release()
    session.save(tmp_path / "a")
    again = restore(tmp_path / "a")
    for estimate in again.release().estimates.values():
        assert not estimate.value.flags.writeable
    assert not again.mechanism.scales.flags.writeable


# -------------------------------------------------------------------------------- one copy only


def saved(folder: Path, name: str = "a") -> Path:
    session = start("tree")
    session.release()
    session.begin(Plan(POLICY, users=4))
    session.absent(4)
    session.release()
    session.save(folder / name)
    return folder / name


def test_files_and_the_table_are_on_the_disk_when_a_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_is_waited_for: None
) -> None:
    """The file before it is visible, then its folder; the table by SQLite's strictest rule."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    path = saved(tmp_path)
    if os.path.exists("/proc/self/fd"):
        assert synced[0].endswith(".part")
        assert synced[1:] == [str(tmp_path)]
    with saved_state.closing(saved_state._connect(tmp_path / "table")) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    restore(path).close()


@pytest.mark.parametrize("in_place", [True, False])
def test_what_took_the_place_of_a_file_that_was_read_is_left_alone(
    in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another name that is moved there, or by other bytes in the same file."""
    path, other = saved(tmp_path, "a"), saved(tmp_path, "b")
    first, second = path.read_bytes(), other.read_bytes()
    take = saved_state.Claim.take

    def late(claim: saved_state.Claim) -> None:
        if in_place:
            path.write_bytes(second)
            other.unlink()
        else:
            other.replace(path)
        take(claim)

    monkeypatch.setattr(saved_state.Claim, "take", late)
    with pytest.raises(RuntimeError, match="another file took its place"):
        restore(path)
    monkeypatch.setattr(saved_state.Claim, "take", take)
    assert [one for one in tmp_path.iterdir() if one.is_file()] == [path]
    assert path.read_bytes() == second
    restore(path).close()
    path.write_bytes(first)  # its id is not among those that were restored
    restore(path).close()


def test_the_table_is_where_it_is_asked_for(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore(saved(tmp_path), folder=tmp_path / "mine")
    assert (tmp_path / "mine" / saved_state.TABLE).exists()
    assert not folder.exists()
    monkeypatch.delenv(saved_state.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert saved_state.state_folder() == tmp_path / "xdg" / "discreet"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert saved_state.state_folder() == tmp_path / "home" / ".local" / "state" / "discreet"


def _restore_at(barrier: Any, path: str, folder: str, answers: Any) -> None:
    barrier.wait()
    try:
        restore(path, folder=folder)
        answers.put("restored")
    except (RuntimeError, FileNotFoundError) as error:
        answers.put(type(error).__name__)


def test_of_two_processes_exactly_one_restores(tmp_path: Path, folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    for round_ in range(5):
        path = saved(tmp_path, f"{round_}")
        copy = shutil.copy(path, tmp_path / f"copy {round_}")
        barrier, answers = context.Barrier(4), context.Queue()
        workers = [
            context.Process(target=_restore_at, args=(barrier, str(name), str(folder), answers))
            for name in (path, path, copy, copy)
        ]
        for worker in workers:
            worker.start()
        found = [answers.get(timeout=LIMIT) for _ in workers]
        for worker in workers:
            worker.join()
        assert found.count("restored") == 1, found


def test_a_save_whose_fate_is_not_known_stops_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may be there, and go on with the same noise: nothing but another save, or the end, is left."""
    session = start("tree")

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for name in ("publish", "withdraw"):
            patch.setattr(saved_state.Draft, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.save(tmp_path / "a")
    for call in (session.release, lambda: session.absent(1)):
        with pytest.raises(RuntimeError, match="was interrupted: save it again, or close it"):
            call()
    session.save(tmp_path / "b")
    assert (tmp_path / "b").exists()


# ------------------------------------------------------------------------- broken and foreign files


def test_every_truncation_and_every_changed_byte_is_refused(tmp_path: Path, folder: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    bad = tmp_path / "bad"
    for size in [*range(0, len(content), 97), len(content) - 1]:
        bad.write_bytes(content[:size])
        with pytest.raises(ValueError, match="path = "):
            restore(bad)
    rng = np.random.default_rng(0)
    for at in [*range(40), *rng.integers(40, len(content), 60).tolist(), len(content) - 1]:
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        bad.write_bytes(changed)
        with pytest.raises(ValueError, match="path = "):
            restore(bad)
    bad.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="damaged"):
        restore(bad)
    assert not folder.exists()  # nothing was recorded
    restore(path)


def test_a_table_that_is_no_table_is_named(tmp_path: Path, folder: Path) -> None:
    path = saved(tmp_path)
    folder.mkdir()
    (folder / saved_state.TABLE).write_bytes(b"not a database, and longer than its header is" * 50)
    with pytest.raises(RuntimeError, match="the table of restored states, .* cannot be used"):
        restore(path)
    (folder / saved_state.TABLE).unlink()
    restore(path)


def test_paths_that_cannot_be_written_are_refused_and_the_session_lives(tmp_path: Path) -> None:
    session = start("tree")
    (tmp_path / "taken").write_text("something of value")
    with pytest.raises(ValueError, match="exists already"):
        session.save(tmp_path / "taken")
    with pytest.raises(ValueError, match="its folder does not exist"):
        session.save(tmp_path / "none" / "a")
    with pytest.raises(ValueError, match="must be the name of a file"):
        session.save(3)  # type: ignore[arg-type]
    assert (tmp_path / "taken").read_text() == "something of value"
    session.release()
    session.save(str(tmp_path / "a"))
    with pytest.raises(RuntimeError, match="closed"):
        session.save(tmp_path / "b")
    assert isinstance(dr.mechanisms.restore(str(tmp_path / "a")), ChannelSession)


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_only_the_owner_reads_the_file_and_the_table(tmp_path: Path, folder: Path) -> None:
    before = os.umask(0)
    try:
        path = saved(tmp_path)
        mode = stat.S_IMODE(path.stat().st_mode)
        restore(path)
    finally:
        os.umask(before)
    assert mode == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / saved_state.TABLE).stat().st_mode) == 0o600


# ------------------------------------------------------------------------- interrupts and crashes


def alive(session: ChannelSession) -> bool:
    try:
        session.release()
    except RuntimeError:
        return False
    return True


def restorable(folder: Path) -> list[Path]:
    """The files of which a state could be restored, whatever their names."""
    out = []
    for path in folder.iterdir():
        if path.is_file():
            try:
                restore(path)
                out.append(path)
            except (ValueError, RuntimeError):
                continue
    return out


class Crash(BaseException):
    """Stands for the end of the process: what would have been cleaned up is not."""


def dead(*_: Any) -> None:
    raise Crash


@pytest.mark.parametrize("where", ["write", "os.replace", "after os.replace"])
def test_a_crash_in_save_leaves_at_most_one_state(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start("batches")

    def crash(*arguments: Any) -> None:
        if where == "after os.replace":
            os.rename(*arguments)
        raise Crash

    if where == "write":
        monkeypatch.setattr(saved_state.os, "fsync", crash)
    else:
        monkeypatch.setattr(saved_state.os, "replace", crash)
    monkeypatch.setattr(saved_state.Draft, "withdraw", dead)  # a dead process removes nothing
    with pytest.raises((Crash, OSError)):
        session.save(tmp_path / "a")
    monkeypatch.undo()
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))
    with pytest.raises(RuntimeError):  # were the process alive, it would not go on beside a file
        session.release()
    assert len(restorable(tmp_path)) == 1  # complete, under its own or its hidden name


@pytest.mark.parametrize("where", ["rename", "after rename", "unlink"])
def test_a_crash_in_restore_never_makes_two(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    rename = os.rename

    def crash(*arguments: Any, **_: Any) -> None:
        if where == "after rename":
            rename(*arguments)
        raise Crash

    if where == "unlink":
        monkeypatch.setattr(Path, "unlink", crash)
    else:
        monkeypatch.setattr(saved_state.os, "rename", crash)
    monkeypatch.setattr(saved_state.Claim, "undo", dead)
    with pytest.raises(Crash):
        restore(path)
    monkeypatch.undo()
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "state"))
    # before the commit the file is still good; after it the state died with its process
    assert len(restorable(tmp_path)) == (where != "unlink")


@pytest.mark.parametrize("renamed", [False, True])
def test_a_process_killed_within_the_transaction_leaves_no_id(
    renamed: bool, tmp_path: Path, folder: Path
) -> None:
    path, rename = saved(tmp_path), os.rename
    child = os.fork()
    if child == 0:

        def die(before: Path, after: Path) -> None:
            if renamed:
                rename(before, after)
            os._exit(9)

        saved_state.os.rename = die  # type: ignore[assignment]
        restore(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    with sqlite3.connect(folder / saved_state.TABLE) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert not tables or not connection.execute("SELECT * FROM restored").fetchall()
    connection.close()
    assert path.exists() != renamed
    assert len(restorable(tmp_path)) == 1


def test_a_full_disk_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = start("tree")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(saved_state.os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            session.save(tmp_path / "a")
    assert not [p for p in tmp_path.iterdir() if p.is_file()]
    session.release()
    session.save(tmp_path / "a")
    restore(tmp_path / "a")


def test_an_interrupted_save_is_finished_or_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice interrupted, and the file's fate unknown: every file that it has is one and the same state."""
    session = start("tree")
    with monkeypatch.context() as patched:
        patched.setattr(saved_state.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patched.setattr(saved_state.Draft, "withdraw", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.save(tmp_path / "a")
    with pytest.raises(RuntimeError, match="save it again, or close it"):
        session.release()
    session.save(tmp_path / "b")
    assert len([p for p in tmp_path.iterdir() if p.is_file() and p.stat().st_size]) == 2
    assert len(restorable(tmp_path)) == 1


def test_what_is_no_number_is_not_saved(tmp_path: Path) -> None:
    session = start("tree")
    session.begin(Plan(POLICY, context={"values": np.array([None])}))
    with pytest.raises(ValueError, match=r"_plan.context\['values'\]: an array of object cannot be saved"):
        session.save(tmp_path / "a")
    session.absent()


def test_odd_values_come_back_as_they_were(tmp_path: Path) -> None:
    values = {
        "floats": [0.1, -0.0, float("inf"), 5e-324, np.float64(1 / 3)],
        "map": {3: (1, 2.0), "x": None},
        "arrays": [np.zeros((0, 3)), np.array(True), np.arange(4, dtype=">i4").reshape(2, 2).T],
        "text": "ε",
    }
    draft = saved_state.Draft(tmp_path / "a")
    draft.write("00", values, {})
    draft.publish()
    back = saved_state.read(tmp_path / "a", {}).values
    assert [x.hex() for x in back["floats"]] == [float(x).hex() for x in values["floats"]]  # type: ignore[union-attr]
    assert back["map"] == values["map"]
    assert back["text"] == "ε"
    for a, b in zip(back["arrays"], values["arrays"], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == b.shape  # type: ignore[union-attr]
        assert a.dtype.isnative
