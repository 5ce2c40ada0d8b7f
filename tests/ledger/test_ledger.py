"""The ledger: nothing is lost, nothing passes the limit, and no damage goes unseen."""

import csv
import dataclasses
import hashlib
import io
import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT

from discreet.accounting import privacy_filter as filters
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.skellam_event import SkellamRecord
from discreet.core.guarantee import MechanismRecord
from discreet.ledger import ledger as module
from discreet.ledger.ledger import BudgetError, Ledger, LedgerError, default_path, read_export, table

LAPLACE = MechanismRecord("counts", "discrete_laplace", {"v": 2.0}, {"v": 1.0}, 0.5, 2)  # epsilon 1
GAUSSIAN = MechanismRecord("sums", "discrete_gaussian", {"v": 2.0}, {"v": 1.0}, 0.5)
LISTED = dataclasses.replace(GAUSSIAN, exchanges=((("discrete_gaussian", 2.0, 1.0, 1),),))
REPORTS = ReportRecord("reports", 3, {"step 0": ("unary", 4, 1, 2**52 + 2**50, 2**51)})
DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with one entry of every kind, and two datasets."""
    where = tmp_path / "ledger.sqlite"
    with Ledger.open(where) as ledger:
        ledger.set_limit("icu", 3.0, 1e-6)
        first = ledger.reserve("icu", [LAPLACE], users=40, purpose="first look")
        ledger.mark(first, {"release.parquet": DIGEST})
        ledger.reserve("other", [LISTED, REPORTS], delta=1e-6)
    return where


def head_of(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refused(path: Path, match: str | None = None) -> None:
    for readonly in (False, True):
        with pytest.raises(LedgerError, match=match):
            Ledger.open(path, readonly=readonly)


# ------------------------------------------------------------------------------ what it holds


def test_entries_come_back_as_they_were_made(path: Path) -> None:
    with Ledger.open(path, create=False) as ledger:
        begin, limit, first, mark, other = ledger.entries()
        assert [entry.number for entry in ledger.entries()] == [1, 2, 3, 4, 5]
        assert (begin.kind, begin.previous, begin.dataset) == ("begin", "", "")
        assert (limit.kind, limit.epsilon, limit.delta) == ("limit", 3.0, 1e-6)
        assert (first.records, first.users, first.purpose) == ((LAPLACE,), 40, "first look")
        assert (mark.reservation, mark.files) == (3, {"release.parquet": DIGEST})
        assert (other.records, other.delta) == ((LISTED, REPORTS), 1e-6)
        assert ledger.entries("other") == (other,)
        assert ledger.head == other.hash
        assert ledger.contains(first.hash)
        assert not ledger.contains(DIGEST)
        assert ledger.limit("icu") == (3.0, 1e-6)
        assert ledger.limit("other") is None
    for before, after in zip((begin, limit, first, mark), (limit, first, mark, other), strict=True):
        assert after.previous == before.hash == hashlib.sha256(before.text.encode()).hexdigest()


def test_nothing_but_the_owner_can_read_it(path: Path) -> None:
    if os.name == "posix":
        assert {file.stat().st_mode & 0o777 for file in (path, head_of(path))} == {0o600}
    assert sorted(file.name for file in path.parent.iterdir()) == ["ledger.sqlite", "ledger.sqlite.head"]


def test_a_commit_waits_for_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, disk_is_waited_for: None
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with Ledger.open(path) as ledger:
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        before = len(synced)
        ledger.reserve("icu", [LAPLACE])
        assert len(synced) == before + 2  # head and folder; SQLite calls the system itself


def test_totals_compose_within_a_dataset_and_never_across(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.reserve("icu", [LAPLACE])
        totals = ledger.totals("icu")
        assert (totals.reservations, totals.unmarked) == (2, 1)
        assert totals.pure == 2.0
        assert 0 < totals.epsilon <= 2.0
        assert totals.delta == 1e-6
        assert totals.limit == (3.0, 1e-6)
        assert totals.filtered == 2.0
        assert totals.rule == "sum of epsilons"
        before = ledger.totals("icu", upto=5)
        assert (before.reservations, before.pure) == (1, 1.0)
        other = ledger.totals("other")
        assert (other.reservations, other.pure, other.limit, other.filtered) == (1, None, None, None)
        assert ledger.totals("nobody").epsilon == 0.0


def test_marks_belong_to_reservations(path: Path) -> None:
    with Ledger.open(path) as ledger:
        made = ledger.reserve("icu", [LAPLACE])
        ledger.mark(made, {})
        with pytest.raises(ValueError, match="is marked already"):
            ledger.mark(made, {})
        for wrong in (dataclasses.replace(made, hash=DIGEST), dataclasses.replace(made, number=99)):
            with pytest.raises(ValueError, match="is not in this ledger"):
                ledger.mark(wrong, {})
        with pytest.raises(ValueError, match="SHA-256"):
            ledger.mark(made, {"policy.csv": "abc"})


def test_bad_input_is_named_and_records_nothing(path: Path) -> None:
    with Ledger.open(path) as ledger:
        head = ledger.entries()[-1].hash
        for call in (
            lambda: ledger.reserve("", [LAPLACE]), lambda: ledger.reserve("a\nb", [LAPLACE]),
            lambda: ledger.reserve("icu", []), lambda: ledger.reserve("icu", ["epsilon 1"]),
            lambda: ledger.reserve("icu", [LAPLACE], delta=1.0),
            lambda: ledger.reserve("icu", [LAPLACE], users=-1),
            lambda: ledger.reserve("icu", [LAPLACE], purpose="two\nlines"),
            lambda: ledger.set_limit("icu", 0.0), lambda: ledger.set_limit("icu", 1.0, -1e-6),
            lambda: ledger.totals("icu", delta=2.0),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="must"):
                call()
        assert ledger.entries()[-1].hash == head


# ------------------------------------------------------------------------------ the limit


def test_the_limit_is_reached_but_never_passed(tmp_path: Path) -> None:
    third = dataclasses.replace(LAPLACE, joint=1 / 3, sensitivities={"v": 2 / 3}, levels=1)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_limit("icu", 1.0)
        for _ in range(3):
            ledger.reserve("icu", [third])
        with pytest.raises(BudgetError, match="dataset = 'icu': epsilon 1 is spent") as refusal:
            ledger.reserve("icu", [third])
        assert refusal.value.limit == (1.0, 0.0)
        assert refusal.value.together == pytest.approx(4 / 3)
        assert ledger.totals("icu").reservations == 3
        ledger.reserve("other", [third])  # other people
        ledger.reserve("icu", [third], limit_check=False)
        assert not ledger.entries("icu")[-1].checked
        with pytest.raises(BudgetError):
            ledger.reserve("icu", [third])
        ledger.set_limit("icu", 5 / 3)
        ledger.reserve("icu", [third])


def test_gaussian_noise_never_fits_a_limit_without_delta(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_limit("icu", 100.0)
        with pytest.raises(BudgetError, match="no finite epsilon is asked for.*Gaussian noise has no finite"):
            ledger.reserve("icu", [GAUSSIAN])


def test_a_first_release_fits_the_limit_that_it_was_calibrated_for(tmp_path: Path) -> None:
    moved = (("discrete_gaussian", 6.0, 1.0, 9),)
    record = MechanismRecord("counts", "discrete_gaussian", {"v": 6.0}, {"v": 3.0}, 0.5, exchanges=(moved,))
    exact, by_rho = filters.composed([record], 1e-6)[0], filters.closed([record], 1e-6)[0]
    assert exact < 0.96 * by_rho
    for delta in (1e-6, 1e-7):  # of its statement; the limit's is 1e-6
        with Ledger.open(tmp_path / f"{delta}.sqlite") as ledger:
            ledger.set_limit("icu", exact * 0.999, 1e-6)
            with pytest.raises(BudgetError) as refusal:
                ledger.reserve("icu", [record], delta=delta)
            assert refusal.value.asked == refusal.value.together == pytest.approx(exact)
            ledger.set_limit("icu", exact, 1e-6)
            ledger.reserve("icu", [record], delta=delta)
            assert ledger.totals("icu").filtered == pytest.approx(exact)
            small = MechanismRecord("counts", "discrete_laplace", {"v": 1e6}, {"v": 1.0}, 1e-6)
            with pytest.raises(BudgetError):
                ledger.reserve("icu", [small])
            ledger.set_limit("icu", by_rho * 1.001, 1e-6)
            ledger.reserve("icu", [small])


# ------------------------------------------------------------------------------ many processes


def run(*arguments: object) -> dict[str, int]:
    script = Path(__file__).with_name("ledger_processes.py")
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_eight_processes_at_once_lose_nothing_and_never_pass_the_limit(tmp_path: Path) -> None:
    result = run("together", tmp_path, 8, 20)
    assert result == {"failed": 0, "told": 160 + 50}  # epsilon 0.01 each: 50 fit into 0.5
    with Ledger.open(tmp_path / "ledger.sqlite", create=False) as ledger:
        assert ledger.totals("large").reservations == 160
        assert ledger.totals("small").reservations == 50
        assert ledger.totals("small").pure == pytest.approx(0.5)
        assert len(ledger.entries()) == 1 + 8 + 210


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks and kills")
def test_two_hundred_kills_lose_no_reservation_that_anybody_was_told_of(tmp_path: Path) -> None:
    result = run("killed", tmp_path, 208, 4, 7)
    assert result["kills"] == 208
    assert 0 < result["unmarked"] < result["reservations"]  # so they were killed at work, and in between


def test_two_that_create_one_ledger_at_once_both_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other creates it, head and all, right after the first has looked and has seen nothing there."""
    path, exists = tmp_path / "ledger.sqlite", Path.exists

    def looked(self: Path) -> bool:
        found = exists(self)
        if self == path and not found:
            monkeypatch.undo()
            Ledger.open(path).close()
        return found

    monkeypatch.setattr(Path, "exists", looked)
    with Ledger.open(path) as ledger:
        assert Path.exists is exists  # so the other did come between
        assert [entry.kind for entry in ledger.entries()] == ["begin"]


# ------------------------------------------------------------------------------ damage


def test_every_change_of_a_row_is_seen(path: Path) -> None:
    with Ledger.open(path) as ledger:
        entries = ledger.entries()
    good = path.read_bytes()
    for entry in entries:
        forged = json.dumps({**json.loads(entry.text), "time": "2020-01-01"})
        rehashed = hashlib.sha256(forged.encode()).hexdigest()
        here = f"WHERE number = {entry.number}"
        for statement in (
            f"DELETE FROM entries {here}",
            f"UPDATE entries SET text = replace(text, '0', '1') {here}",
            f"UPDATE entries SET text = 7 {here}",
            f"UPDATE entries SET text = '{forged}' {here}",
            f"UPDATE entries SET text = '{forged}', hash = '{rehashed}' {here}",
            f"UPDATE entries SET hash = '{DIGEST}' {here}",
            f"UPDATE entries SET hash = NULL {here}",
            f"UPDATE entries SET number = 99 {here}",
            f"UPDATE entries SET number = -number {here}",
        ):
            change(path, statement)
            refused(path)
            path.write_bytes(good)
    change(path, f"INSERT INTO entries VALUES (6, '{{}}', '{hashlib.sha256(b'{}').hexdigest()}')")
    refused(path, "entry 6")
    path.write_bytes(good)
    swap = "UPDATE entries SET number = {} WHERE number = {}"
    change(path, *(swap.format(*pair) for pair in ((9, 3), (3, 5), (5, 9))))
    refused(path)
    path.write_bytes(good)
    Ledger.open(path).close()


@pytest.mark.parametrize("number", range(5))
def test_a_forged_chain_is_refused_in_words(path: Path, number: int) -> None:
    """Whoever can write can hash: values that no entry has are refused in words, never met later on."""
    with Ledger.open(path, readonly=True) as ledger:
        texts = [entry.text for entry in ledger.entries()]
    content = json.loads(texts[number])
    values = (None, True, -(2**2000), -2.5, math.nan, math.inf, "x\ny", "\ud800", 7, ["a"], {"a": None}, [{}])

    def forged(name: str, value: Any) -> list[str]:
        lines, previous = [], ""
        for i, text in enumerate(texts):
            one = json.loads(text) | {"previous": previous} | ({name: value} if i == number else {})
            made = json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            previous = hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()
            lines.append(json.dumps({"text": made, "hash": previous}))
        return lines

    assert len(read_export(iter(forged("time", content["time"])))) == len(texts)
    limit = content["kind"] == "limit"
    allowed = {"users": (None, 7), "epsilon": (7,) if limit else (None, 7), "checked": (True,)}
    for name in content:
        for value in values:
            if any(value is one for one in allowed.get(name, ())):
                continue
            with pytest.raises(LedgerError, match=f"entry {number + 1} |follow"):
                read_export(iter(forged(name, value)))
    twice = [*texts]
    twice[number] = texts[number].replace("{", '{"kind":"begin",', 1)
    again = json.dumps({"text": twice[number], "hash": hashlib.sha256(twice[number].encode()).hexdigest()})
    with pytest.raises(LedgerError, match="form that ledgers write"):
        read_export(iter([*forged("time", content["time"])[:number], again]))


def test_a_cut_file_is_seen(path: Path) -> None:
    good = path.read_bytes()
    for size in {*range(0, len(good), 997), len(good) - 1, 4096}:
        path.write_bytes(good[:size])
        refused(path)
        assert path.stat().st_size == size


def test_a_changed_byte_is_seen_or_changes_nothing(path: Path) -> None:
    draw = random.Random(3)
    good = path.read_bytes()
    with Ledger.open(path) as ledger:
        entries = ledger.entries()
    seen = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        try:
            with Ledger.open(path, readonly=True) as ledger:
                assert ledger.entries() == entries
        except LedgerError:
            seen += 1
    assert seen > 0


def test_a_replaced_or_missing_ledger_is_seen(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with Ledger.open(other) as ledger:
        for _ in range(6):
            ledger.reserve("icu", [LAPLACE])
    shutil.copy(other, path)
    refused(path, "is not in it")
    path.unlink()
    refused(path, "is missing, but its head")
    assert not path.exists()
    path.touch()
    refused(path, "holds no")
    head_of(path).unlink()
    Ledger.open(path).close()  # an empty file without a head is a new ledger
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(tmp_path / "none.sqlite", create=False)
    assert not (tmp_path / "none.sqlite").exists()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("not a ledger\n" * 100)
    change(database, "CREATE TABLE people (name TEXT)")
    for file, match in ((text, "not a database"), (database, "holds no ledger"), (tmp_path, "is a folder")):
        content = None if file.is_dir() else file.read_bytes()
        with pytest.raises(LedgerError, match=match):
            Ledger.open(file)
        assert file.is_dir() or file.read_bytes() == content
    with pytest.raises(LedgerError, match="cannot be used"):
        Ledger.open(text / "ledger.sqlite")


def test_heads(path: Path) -> None:
    with Ledger.open(path) as ledger:
        entries = ledger.entries()
    head = head_of(path).read_text()
    assert head == f"5 {entries[-1].hash}\n"
    head_of(path).unlink()
    refused(path, "is missing, so removed entries")
    for bad in ("", "5", f"0 {entries[0].hash}", f"x {DIGEST}", "5 5 5"):
        head_of(path).write_text(bad)
        refused(path, "must be one line")
    for bad in (f"6 {entries[-1].hash}", f"4 {entries[-1].hash}", f"5 {DIGEST}"):
        head_of(path).write_text(bad)
        refused(path, "is not in")
    for entry in entries:  # a crash between commit and head: opens, and the head follows
        head_of(path).write_text(f"{entry.number} {entry.hash}\n")
        Ledger.open(path, readonly=True).close()
        assert head_of(path).read_text() == f"{entry.number} {entry.hash}\n"
        Ledger.open(path).close()
        assert head_of(path).read_text() == head


def test_a_crash_right_after_creation_leaves_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    head_of(path).unlink()
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == 1
    assert head_of(path).exists()


def test_an_older_pair_is_known_to_statements_alone(path: Path, tmp_path: Path) -> None:
    for file in (path, head_of(path)):
        shutil.copy(file, tmp_path / f"old-{file.name}")
    with Ledger.open(path) as ledger:
        statement = ledger.reserve("icu", [LAPLACE]).hash
    for file in (path, head_of(path)):
        shutil.copy(tmp_path / f"old-{file.name}", file)
    with Ledger.open(path) as ledger:
        assert not ledger.contains(statement)


def test_a_head_that_cannot_be_written_costs_the_reservation(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(target: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    with Ledger.open(path) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_write_aside", full)
            with pytest.raises(LedgerError, match="No space left"):
                ledger.reserve("icu", [LAPLACE])
        assert ledger.totals("icu").unmarked == 1
        ledger.reserve("icu", [LAPLACE])
    with Ledger.open(path) as ledger:
        assert ledger.totals("icu").reservations == 3


def test_a_ledger_that_changes_while_it_is_open(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(path) as two:
        one.reserve("icu", [LAPLACE])
        assert two.totals("icu").reservations == 2
        two.set_limit("icu", 2.5)
        with pytest.raises(BudgetError):
            one.reserve("icu", [LAPLACE])
        change(path, "DELETE FROM entries WHERE number = 7")
        for ledger in (one, two):
            with pytest.raises(LedgerError):
                ledger.reserve("other", [LAPLACE])
    other = tmp_path / "new.sqlite"
    with Ledger.open(other) as ledger:
        os.replace(path, tmp_path / "away")
        shutil.copy(other, tmp_path / "copy")
        os.replace(tmp_path / "copy", other)
        with pytest.raises(LedgerError, match="moved or replaced"):
            ledger.reserve("icu", [LAPLACE])


def test_a_locked_ledger_says_so(path: Path) -> None:
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as holder,
        Ledger.open(path, timeout=0.05) as ledger,
    ):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process has held it for more than 0.05 seconds"):
            ledger.reserve("icu", [LAPLACE])


def test_reading_only(path: Path) -> None:
    before = path.read_bytes()
    with Ledger.open(path, readonly=True) as ledger:
        assert ledger.totals("icu").reservations == 1
        with pytest.raises(LedgerError, match="reading only"):
            ledger.reserve("icu", [LAPLACE])
    assert path.read_bytes() == before
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(path.with_name("none"), readonly=True)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_ledger_that_may_not_be_written_says_so(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(LedgerError, match="cannot be used"):
        Ledger.open(path)


def test_links_share_one_head(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    with Ledger.open(link) as ledger:
        assert ledger.path == path
        ledger.reserve("icu", [LAPLACE])
    assert not head_of(link).exists()
    Ledger.open(path).close()


# ------------------------------------------------------------------------------ what goes out


def test_an_export_comes_back(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with Ledger.open(path, readonly=True) as ledger:
        ledger.export(out)
        with pytest.raises(ValueError, match="exists already"):
            ledger.export(out)
        with out.open() as file:
            assert read_export(file) == ledger.entries()
        stream = io.StringIO()
        ledger.export(stream, "csv")
        rows = list(csv.reader(stream.getvalue().splitlines()))
        assert rows == [list(module.COLUMNS), *map(list, table(ledger.entries()))]
    lines = out.read_text().splitlines()
    for bad in (lines[1:], lines[:2] + lines[3:], [lines[0].replace("begin", "bogin")], ["{}"]):
        with pytest.raises(LedgerError):
            read_export(iter(bad))


def test_the_table_says_what_is_spent(path: Path) -> None:
    with Ledger.open(path) as ledger:
        rows = [dict(zip(module.COLUMNS, row, strict=True)) for row in table(ledger.entries())]
    assert [row["entry"] for row in rows] == ["begin", "limit", "reserve", "mark", "reserve"]
    assert rows[1]["epsilon"] == "3"
    assert (rows[2]["epsilon"], rows[2]["users"], rows[2]["state"]) == ("1", "40", "published")
    assert rows[3]["state"] == "of 3: release.parquet"
    assert rows[4]["state"] == "SPENT, NOT PUBLISHED"
    assert float(rows[4]["epsilon"]) > 0
    assert rows[4]["mechanisms"] == "sums; reports"


def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCREET_LEDGER", str(tmp_path / "mine.sqlite"))
    assert default_path() == tmp_path / "mine.sqlite"
    monkeypatch.setenv("DISCREET_LEDGER", "")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert default_path() == tmp_path / "discreet" / "ledger.sqlite"
        monkeypatch.setenv("XDG_DATA_HOME", "relative")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_path() == tmp_path / ".local" / "share" / "discreet" / "ledger.sqlite"


@pytest.mark.parametrize("name", ["Ward 7", "ward7", "WARD  7", "\uff57ard 7"])
def test_a_name_that_is_nearly_held_starts_no_count_of_its_own(tmp_path, name):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.reserve("ward 7", [LAPLACE])
        head = ledger.head
        for use in (lambda: ledger.reserve(name, [LAPLACE]), lambda: ledger.set_limit(name, 1.0)):
            with pytest.raises(ValueError, match="differs from 'ward 7'.*by case, spaces or Unicode form"):
                use()
        assert ledger.entries()[-1].hash == head
        ledger.reserve("ward 8", [LAPLACE])
        ledger.reserve("ward 7", [LAPLACE])


def test_an_identity_of_its_own(tmp_path):
    found = set()
    for name in ("a", "b"):
        with Ledger.open(tmp_path / name) as ledger:
            found.add(ledger.identity)
            assert len(ledger.identity) == 32
        with Ledger.open(tmp_path / name, readonly=True) as ledger:
            found.add(ledger.identity)
    assert len(found) == 2


def test_what_the_filter_certifies(tmp_path):
    """The numbers of the module on filters, entry by entry."""
    gaussian = dataclasses.replace(GAUSSIAN, noise="gaussian")
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.certified("icu", 1e-6).reservations == 0
        for kinds in (("a", [gaussian, gaussian]), ("b", [GAUSSIAN, LAPLACE]), ("c", [LAPLACE, LAPLACE])):
            name, records = kinds
            numbers = [ledger.reserve(name, [record], delta=1e-6).number for record in records]
            for k, number in enumerate(numbers, 1):
                found = ledger.certified(name, 1e-6, upto=number)
                assert found.reservations == k
                assert found.epsilon == filters.filtered([[one] for one in records[:k]], 1e-6)[0]
                assert found.rho == pytest.approx(sum(map(filters.zcdp_loss, records[:k])))
            assert (found.mu is None) == (name != "a")
            assert (found.pure is None) == (name != "c")
        assert ledger.certified("a", 0.0).epsilon == float("inf")
        assert ledger.certified("c", 0.0).epsilon == 2.0
        assert ledger.certified("a", 1e-6).mu == pytest.approx(0.5 * 2**0.5)


@pytest.mark.parametrize("name", ["ward ", " ward", "cafe\u0301"])
def test_a_name_that_looks_like_another_one_is_refused(tmp_path, name):
    """Its entries would compose with none of the population that it seems to be."""
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        for use in (ledger.limit, ledger.totals, lambda name: ledger.set_limit(name, 1.0)):
            with pytest.raises(ValueError, match="normal form C"):
                use(name)
        ledger.set_limit("caf\u00e9", 1.0)


@pytest.mark.parametrize("records", [[LAPLACE], [GAUSSIAN], [LISTED], [LISTED, LAPLACE], [REPORTS, GAUSSIAN]])
def test_what_passes_a_limit_is_certified_within_it(tmp_path: Path, records: list[Any]) -> None:
    """`verify` holds a release against its limit by `certified`: never stricter than the door was."""
    for number, (own, delta) in enumerate([(1e-6, 1e-6), (1e-6, 1e-5), (0.0, 1e-6), (1e-5, 1e-7)]):
        with Ledger.open(tmp_path / str(number)) as ledger:
            for count in (1, 2, 3):
                tried = ledger.reserve("try", records, delta=own)
                most = ledger.certified("try", delta, upto=tried.number).epsilon
                ledger.set_limit("icu", most * (1 + 1e-9), delta)
                try:
                    made = ledger.reserve("icu", records, delta=own)
                except BudgetError:  # the door's closed forms are dearer
                    ledger.set_limit("icu", most * 2, delta)
                    made = ledger.reserve("icu", records, delta=own)
                limit = ledger.totals("icu").limit
                assert limit is not None
                assert ledger.certified("icu", delta, upto=made.number).epsilon <= limit[0] * (1 + 1e-6), (
                    count
                )


# ------------------------------------------------------------------------------ two groups of users


def test_two_groups_spend_once_and_later_releases_add_to_the_larger(tmp_path: Path) -> None:
    """Of the same reservations, one divides its users: totals and limits are those of its records."""
    other = MechanismRecord("judges", "discrete_gaussian", {"w": 4.0}, {"w": 2.0}, 0.5)
    where = tmp_path / "ledger.sqlite"
    with Ledger.open(where) as ledger:
        for name, more in (("whole", ()), ("divided", (other,))):
            ledger.reserve(name, [GAUSSIAN], delta=1e-6, users=50, purpose="learn", parallel=more)
        assert ledger.totals("divided").epsilon == ledger.totals("whole").epsilon
        for name in ("whole", "divided"):
            ledger.reserve(name, [GAUSSIAN, LISTED], delta=1e-6)
        one, two = (dataclasses.asdict(ledger.totals(name, delta=1e-6)) for name in ("whole", "divided"))
        assert {**one, "dataset": ""} == {**two, "dataset": ""}
        assert ledger.certified("divided", 1e-6) == ledger.certified("whole", 1e-6)
        entry = next(entry for entry in ledger.entries("divided") if entry.kind == "reserve")
        assert entry.parallel == (other,)
        assert "sums | other users: judges" in table([entry])[0]
        ledger.export(tmp_path / "out.jsonl", "jsonl")
    with open(tmp_path / "out.jsonl", encoding="utf-8") as lines:
        assert [one.parallel for one in read_export(lines)][2] == (other,)
    with Ledger.open(where, readonly=True) as again:
        assert again.entries("divided")[0].parallel == (other,)


def test_a_group_that_costs_more_is_refused(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        before = ledger.head
        for records, other in (
            ([GAUSSIAN], dataclasses.replace(GAUSSIAN, scales={"v": 1.9}, joint=1 / 1.9)),
            ([GAUSSIAN], LAPLACE),
            ([LISTED], GAUSSIAN),
        ):
            with pytest.raises(ValueError, match="parallel: must have the noise of records"):
                ledger.reserve("icu", records, delta=1e-6, parallel=[other])
        assert ledger.head == before


def test_a_forged_group_is_noticed(tmp_path: Path) -> None:
    """The hash is right, but the second group costs more than the records."""
    where = tmp_path / "ledger.sqlite"
    with Ledger.open(where) as ledger:
        ledger.reserve("icu", [GAUSSIAN], delta=1e-6, parallel=[GAUSSIAN])
        text = ledger.entries()[-1].text
    forged = json.loads(text)
    forged["parallel"][0] |= {"scales": {"v": 1.0}, "joint": 1.0}
    line = json.dumps(forged, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(line.encode()).hexdigest()
    change(where, f"UPDATE entries SET text = '{line}', hash = '{digest}' WHERE number = 2")
    head_of(where).write_text(f"2 {digest}\n")
    refused(where, "parallel: must cost at most as much as records")


def test_a_repeated_reservation_has_the_same_groups(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        how = {"delta": 1e-6, "purpose": "a round", "once": True}
        plain = ledger.reserve("icu", [GAUSSIAN], **how)
        divided = ledger.reserve("icu", [GAUSSIAN], parallel=[GAUSSIAN], **how)
        assert plain.number != divided.number
        assert ledger.reserve("icu", [GAUSSIAN], **how) == plain
        assert ledger.reserve("icu", [GAUSSIAN], parallel=[GAUSSIAN], **how) == divided


def test_shuffled_sums_of_contexts_are_composed_and_limited(tmp_path: Path) -> None:
    batches = ((4, 0.22, 2e-5, 4e-6, 16384.0, 2.2e9), (90, 0.2, 2e-5, 4e-6, 16384.0, 2.2e9))
    record = SkellamRecord("sums of contexts with a share of the noise", batches)
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        alone, _ = filters.composed([record], 1e-6)
        ledger.set_limit("clicks", 1.6 * alone, 1e-6)
        ledger.reserve("clicks", [record], delta=1e-6, users=600)
    with Ledger.open(path) as ledger:
        (_, entry) = ledger.entries("clicks")
        assert entry.records == (record,)
        assert entry.epsilon == alone
        ledger.reserve("clicks", [record], delta=1e-6, users=600)
        found = ledger.certified("clicks", 1e-6)
        assert found.epsilon == filters.filtered([[record]] * 2, 1e-6)[0]
        assert 1.3 * alone < found.epsilon < 1.6 * alone
        assert found.mu is found.pure is found.rho is None  # a rho of zCDP would hold at all orders
        with pytest.raises(BudgetError):
            ledger.reserve("clicks", [record], delta=1e-6, users=600)
        ledger.export(tmp_path / "rows.csv", "csv")
        total = ledger.totals("clicks")
        assert (total.mu, total.reservations) == (None, 2)
        assert total.epsilon == found.epsilon
