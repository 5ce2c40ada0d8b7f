"""The chain of releases and its head: no restored database goes on, and every honest one does."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
import time as real
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import Clocked, a_key, a_study, begun
from serving import stopped as time

from discreet.service import database, release_chain
from discreet.service import release_worker as turns
from discreet.service.database import Store
from discreet.service.release_chain import (
    NO_LINK,
    ChainMark,
    Head,
    OldDatabase,
    check_head,
    head_of,
    link_of,
    new_head,
)
from discreet.service.server import begin_new_head, in_background, opened

from .test_database import a_batch

IDENTITY = "ab" * 32


def a_mark(number: int = 0, beat: int = 1) -> ChainMark:
    return ChainMark(number, f"{number + 7:064x}", beat, f"{beat:016x}")


def beating(study: Any, store: Store, clock: list[float] | None = None, **more: Any) -> turns.Writer:
    """A writer with a head, as a service has it."""
    clock = clock or [time.time()]
    writer = turns.Writer(study, store, "a test", Clocked(lambda: clock[0]), **more)
    writer.head = head_of(study, store)
    return writer


def copied(path: Path, to: Path) -> Path:
    """A backup of a database, as an operator makes it."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to


def test_a_link_is_a_hash_of_all_before_it() -> None:
    body, exact = b"{}", b"\x00\x01"
    digests = hashlib.sha256(body).digest() + hashlib.sha256(exact).digest()
    wanted = hashlib.sha256(f"{NO_LINK} {IDENTITY} 0 ".encode() + digests).hexdigest()
    assert link_of(NO_LINK, IDENTITY, 0, body, exact) == wanted
    others = {
        link_of("1" * 64, IDENTITY, 0, body, exact), link_of(NO_LINK, "cd" * 32, 0, body, exact),
        link_of(NO_LINK, IDENTITY, 1, body, exact), link_of(NO_LINK, IDENTITY, 0, b"[]", exact),
        link_of(NO_LINK, IDENTITY, 0, body, b""), wanted,
    }  # fmt: skip
    assert len(others) == 6


def test_a_head_keeps_whole_lines_only(tmp_path: Path) -> None:
    head = Head(tmp_path / "a.head", IDENTITY)
    assert head.last() is None
    with pytest.raises(FileNotFoundError):  # an operator took it away while the service runs
        head.append(a_mark())
    head.begin()
    assert head.last() is None
    assert head.path.stat().st_mode & 0o777 == 0o600
    for beat in range(1, 200):
        assert head.append(a_mark(beat // 50, beat))
        assert head.last() == a_mark(beat // 50, beat)
    whole = head.path.read_bytes()
    for torn in (b"3 ", b"\x00" * 50, whole[-60:-1]):
        head.path.write_bytes(whole + torn)
        assert head.last() == a_mark(3, 199)
        head.check()
        assert head.append(a_mark(3, 200))
        assert head.path.read_bytes() == whole + a_mark(3, 200).line()
    # what a paused process writes late does not come after what is newer
    assert not head.append(a_mark(2, 201))
    assert not head.append(a_mark(3, 199))
    # another copy of the database
    for other in (replace(a_mark(3, 201), link="b" * 64), replace(a_mark(3, 200), nonce="b" * 16)):
        with pytest.raises(OldDatabase, match="another copy of it is being served"):
            head.append(other)
    assert head.last() == a_mark(3, 200)
    head.begin()
    assert head.last() == a_mark(3, 200)


def test_a_head_that_was_cut_within_its_first_line_is_begun_again(tmp_path: Path) -> None:
    head = Head(tmp_path / "a.head", IDENTITY)
    for cut in range(80):
        head.path.unlink(missing_ok=True)
        head.begin()
        whole = head.path.read_bytes()
        head.path.write_bytes(whole[:cut])
        assert head.last() is None
        head.begin()
        assert head.path.read_bytes() == whole


def test_a_damaged_head_and_that_of_another_study_are_refused(tmp_path: Path) -> None:
    head = Head(tmp_path / "a.head", IDENTITY)
    head.begin()
    for beat in range(1, 100):
        head.append(a_mark(0, beat))
    with pytest.raises(OldDatabase, match="is not the head of this study"):
        Head(head.path, "cd" * 32).check()
    whole = head.path.read_bytes().splitlines(keepends=True)
    head.path.write_bytes(b"".join([*whole[:50], b"0 nothing\n", *whole[50:]]))
    head.check()  # no decision depends on a line before the last
    head.path.write_bytes(b"".join([b"d" * len(whole[0][:-1]) + b"\n", *whole[1:]]))
    with pytest.raises(OldDatabase, match="is not the head of this study"):
        head.check()
    head.path.write_bytes(b"".join([*whole, b"0 nothing\n"]))
    with pytest.raises(OldDatabase, match="its last line is damaged"):
        head.last()


def test_a_release_is_shown_only_after_the_head_has_it(tmp_path: Path) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        a_batch(study, store)
        writer, seen = beating(study, store), list[tuple[Any, ...]]()
        assert writer.hold()
        append = writer.head.append  # type: ignore[union-attr]

        def looked(mark: ChainMark) -> bool:
            seen.append((mark.number, store.exact_release(1) is not None, store.release(1)))
            return append(mark)

        writer.head.append = looked  # type: ignore[union-attr, method-assign]
        assert writer.step()
        assert seen == [(1, True, None)]
        assert store.release(1) is not None
        assert writer.head.last() == store.mark()  # type: ignore[union-attr]


@pytest.mark.parametrize("after_append", [False, True])
def test_a_process_killed_on_either_side_of_the_head_goes_on(tmp_path: Path, after_append: bool) -> None:
    study = a_study()

    class Killed(BaseException):
        pass

    with closing(begun(study, tmp_path / "a.db")) as store:
        a_batch(study, store)
        writer, clock = beating(study, store), [time.time()]
        assert writer.hold()
        append = writer.head.append  # type: ignore[union-attr]

        def killed(mark: ChainMark) -> bool:
            if after_append:
                append(mark)
            raise Killed

        writer.head.append = killed  # type: ignore[union-attr, method-assign]
        with pytest.raises(Killed):
            writer.step()
        assert store.release(1) is None
        drawn = store.exact_release(1)
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        clock[0] += 100.0
        second = beating(study, store, clock)
        assert second.hold()
        assert second.step()
        assert store.exact_release(1) == drawn
        assert second.head.last() == store.mark()  # type: ignore[union-attr]


def test_a_head_that_cannot_be_written_holds_the_release_back(tmp_path: Path) -> None:
    study = a_study()
    clock = [time.time()]
    with closing(begun(study, tmp_path / "a.db")) as store:
        a_batch(study, store)
        writer = beating(study, store, clock)
        assert writer.hold()
        append = writer.head.append  # type: ignore[union-attr]

        def full(_: ChainMark) -> bool:
            raise OSError(28, "no space")

        writer.head.append = full  # type: ignore[union-attr, method-assign]
        with pytest.raises(OSError, match="no space"):
            writer.step()
        assert not writer.step()
        assert store.release(1) is None
        writer.head.append = append  # type: ignore[union-attr, method-assign]
        clock[0] += turns.LEASE + 0.1
        assert writer.hold()
        assert writer.step()
        assert store.release(1) is not None


def test_every_backup_older_than_a_beat_is_refused(tmp_path: Path) -> None:
    """100 backups at random times, and 100 honest restarts, with a clock of the test's own."""
    study, clock, source = a_study(), [time.time()], random.Random(11)
    path, head = tmp_path / "a.db", tmp_path / "a.db.head"
    store = begun(study, path)
    backups = list[tuple[float, Path]]()
    for again in range(100):
        writer = beating(study, store, clock)
        assert writer.hold()
        kept, ends = clock[0] + turns.LEASE / 3, clock[0] + source.uniform(0.5, 4.0)
        taken = source.uniform(clock[0], ends)
        while clock[0] < ends:  # as the service does it: every second, and every third of a lease
            if taken <= clock[0]:
                backups.append((clock[0], copied(path, tmp_path / f"{again}.db")))
                taken = ends + 1.0
            step = min(source.uniform(0.1, 1.0), kept - clock[0])
            clock[0] += step
            assert writer.hold()
            if clock[0] >= kept:
                kept += turns.LEASE / 3
        if len(backups) == again:
            backups.append((clock[0], copied(path, tmp_path / f"{again}.db")))
        store.close()  # killed: the lease is left as it is
        clock[0] += turns.LEASE + source.choice([0.1, 7.0])
        store = opened(study, str(path))
    assert beating(study, store, clock).hold()
    store.close()
    assert len(backups) == 100
    for at, backup in backups:
        assert clock[0] - at > turns.LEASE / 3
        shutil.copy(backup, path)
        with pytest.raises(OldDatabase, match="older than what was published"):
            opened(study, str(path))
    assert head.exists()


def test_a_backup_of_the_same_turn_loses_messages_and_is_refused(tmp_path: Path) -> None:
    study, clock = a_study(), [time.time()]
    path = tmp_path / "a.db"
    with closing(begun(study, path)) as store:
        writer = beating(study, store, clock)
        assert writer.hold()
        backup = copied(path, tmp_path / "backup")
        a_batch(study, store)
        clock[0] += turns.LEASE / 3
        assert writer.hold()
    shutil.copy(backup, path)
    with pytest.raises(OldDatabase, match="older than what was published"):
        opened(study, str(path))


def test_a_missing_database_and_a_missing_head_are_refused(tmp_path: Path) -> None:
    study, path = a_study(), tmp_path / "a.db"
    with closing(begun(study, path)) as store:
        opened(study, str(path)).close()  # a killed first start left no head
        beating(study, store).hold()
        head = head_of(study, store)
        assert head is not None
    kept = head.path.read_bytes()
    head.path.unlink()
    with pytest.raises(OldDatabase, match=r"is missing or empty, but this .* been served.*--new-head"):
        opened(study, str(path))
    for damaged in (b"", kept[: kept.index(b"\n") + 1]):
        head.path.write_bytes(damaged)
        with pytest.raises(OldDatabase, match=r"is missing or empty, but"):
            opened(study, str(path))
    head.path.write_bytes(kept)
    opened(study, str(path)).close()
    for one in tmp_path.glob("a.db*"):
        if one != head.path:
            one.unlink()
    with pytest.raises(OldDatabase, match="database: is missing"):
        opened(study, str(path))


def test_an_old_head_is_refused_until_the_operator_begins_a_new_one(tmp_path: Path) -> None:
    study, path = a_study(), tmp_path / "a.db"
    with closing(begun(study, path)) as store:
        writer = beating(study, store)
        assert writer.hold()
        assert writer.head is not None
        old = writer.head.path.read_bytes()
        for _ in range(2):
            a_batch(study, store)
            assert writer.step()
        writer.head.path.write_bytes(old)
        with pytest.raises(OldDatabase, match=r"ends at release 0, and the database at 2"):
            check_head(store, writer.head, writer.head.last())
        new_head(store, writer.head)
        assert writer.head.last() == store.mark()
        assert (tmp_path / "a.db.head.1").read_bytes() == old
    opened(study, str(path)).close()


def test_no_new_head_replaces_one_that_shows_an_old_database(tmp_path: Path) -> None:
    study, path, clock = a_study(), tmp_path / "a.db", [time.time()]
    with closing(begun(study, path)) as store:
        assert beating(study, store, clock).hold()
    backup = copied(path, tmp_path / "backup")
    with closing(opened(study, str(path))) as store:
        clock[0] += turns.LEASE + 0.1
        assert beating(study, store, clock).hold()
    head = tmp_path / "a.db.head"
    kept = head.read_bytes()
    shutil.copy(backup, path)
    with pytest.raises(OldDatabase, match="older than what was published"):
        begin_new_head(study, str(path))
    assert head.read_bytes() == kept
    assert not (tmp_path / "a.db.head.1").exists()
    heading = kept[: kept.index(b"\n") + 1]
    for damaged in (kept + b"0 nothing\n", kept[:-1], b"d" * len(heading) + kept[len(heading) :], kept[9:]):
        head.write_bytes(damaged)
        with pytest.raises(OldDatabase, match="older than what was published"):
            begin_new_head(study, str(path))
        assert head.read_bytes() == damaged
    # nothing readable is left, or the file belongs to another study
    heads = b"", heading, heading + b"0 nothing\n", kept.replace(study.identity.encode(), b"0" * 64)
    for number, other in enumerate(heads, 1):
        head.write_bytes(other)
        assert begin_new_head(study, str(path)) == (head, tmp_path / f"a.db.head.{number}")
    head.unlink()
    assert begin_new_head(study, str(path)) == (head, None)
    opened(study, str(path)).close()


def test_a_database_that_grew_after_its_head_was_read_is_not_refused(tmp_path: Path) -> None:
    """A start is held up between the two reads, while another process makes two releases."""
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        writer = beating(study, store)
        assert writer.hold()
        assert writer.head is not None
        seen = writer.head.last()
        for _ in range(2):
            a_batch(study, store)
            assert writer.step()
        check_head(store, writer.head, seen)


def test_a_head_that_others_can_read_becomes_its_owners(tmp_path: Path) -> None:
    head = Head(tmp_path / "a.head", IDENTITY)
    head.begin()
    head.path.chmod(0o644)
    head.append(a_mark())
    assert head.path.stat().st_mode & 0o777 == 0o600


def test_a_head_older_than_all_beats_of_the_database_can_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, path, clock = a_study(), tmp_path / "a.db", [time.time()]
    for module in (database, release_chain):
        monkeypatch.setattr(module, "BEATS", 3)
    with closing(begun(study, path)) as store:
        writer = beating(study, store, clock)
        assert writer.hold()
        assert writer.head is not None
        old = writer.head.path.read_bytes()
        for _ in range(5):
            clock[0] += turns.LEASE / 3
            assert writer.hold()
        writer.head.path.write_bytes(old)
        with pytest.raises(OldDatabase, match="put the newest head back"):
            check_head(store, writer.head, writer.head.last())
        new_head(store, writer.head)
        check_head(store, writer.head, writer.head.last())


def test_one_of_two_copies_stops_at_its_next_beat(tmp_path: Path) -> None:
    study, clock = a_study(), [time.time()]
    with closing(begun(study, tmp_path / "a.db")) as store:
        assert beating(study, store, clock).hold()
    copied(tmp_path / "a.db", tmp_path / "b.db")
    with closing(Store(tmp_path / "a.db")) as one, closing(Store(tmp_path / "b.db")) as two:
        one.batches = two.batches = study.batches(one.close_rule(), one.begun())
        clock[0] += turns.LEASE + 0.1
        first, second = beating(study, one, clock), beating(study, two, clock)
        second.head = first.head
        assert first.head is not None
        seen = first.head.last()
        assert first.hold()
        first.head.last = lambda: seen  # type: ignore[method-assign]  # both have read the head before
        with pytest.raises(OldDatabase, match="another copy"):
            second.hold()
        assert second.token is None


def test_a_first_beat_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    """A full disk at the first start: the head never stays without a line when the database has a beat."""
    study, clock = a_study(), [time.time()]
    with closing(begun(study, tmp_path / "a.db")) as store:
        writer = beating(study, store, clock)
        assert writer.head is not None
        append = writer.head.append

        def full(_: ChainMark) -> bool:
            raise OSError(28, "no space")

        for _ in range(3):
            writer.head.append = full  # type: ignore[method-assign]
            with pytest.raises(OSError, match="no space"):
                writer.hold()
            assert store.mark().beat == 0
            clock[0] += turns.LEASE + 0.1
        writer.head.append = append  # type: ignore[method-assign]
        assert writer.hold()
        assert writer.head.last() == store.mark()


def test_a_study_file_can_name_another_disk(tmp_path: Path) -> None:
    study = replace(a_study(), folder=tmp_path)
    other = replace(study, head="disk/a.head", table={**study.table, "chain": {"head": "disk/a.head"}})
    assert other.identity == study.identity
    with closing(Store("sqlite://")) as store:
        assert head_of(study, store) is None
        head = head_of(other, store)
        assert head is not None
        assert head.path == tmp_path / "disk" / "a.head"
    with pytest.raises(ValueError, match=r"chain\.head = 3"):
        replace(study, head=3)


@pytest.mark.service
def test_100_restores_of_a_running_service(tmp_path: Path) -> None:
    """Backups of a service with its own clock, at random times: those older than two seconds are refused."""
    study, source = a_study(), random.Random(3)
    path, backups = tmp_path / "a.db", list[tuple[float, Path]]()
    with in_background(study, path, a_key(tmp_path)) as (_, service):
        assert service.writer.head is not None
        for number in range(110):
            backups.append((real.monotonic(), copied(path, tmp_path / f"{number}.db")))
            real.sleep(source.uniform(0.0, 0.2))
        real.sleep(2.0)
        newest = service.writer.head.path.read_bytes()
        ended = real.monotonic()
    service.writer.head.path.write_bytes(newest)  # as after kill -9: without the last beat of a healthy stop
    old = [backup for at, backup in backups if ended - at >= 2.0][:100]
    assert len(old) == 100
    opened(study, str(path)).close()
    for backup in old:
        for more in ("-wal", "-shm"):
            Path(f"{path}{more}").unlink(missing_ok=True)
        shutil.copy(backup, path)
        with pytest.raises(OldDatabase, match="older than what was published"):
            opened(study, str(path))
