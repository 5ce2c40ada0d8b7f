"""Files read by many threads are what one thread reads: the same people, or the same error, word for word."""

import gzip
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from covering import pairwise
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.data import sources as places
from discreet.data.row_batches import Pool, open_source
from discreet.data.schema import Schema
from discreet.data.validate import DataError, episodes
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate

BLOCK = 400  # bytes: some ten lines
LARGE = 2**62


def outcome(where: Any, schema: Schema, workers: int, **how: Any) -> tuple[Any, ...]:
    """Everybody's episodes by name, and the sums of all; or what the error says."""
    found: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    tally, rows = PartialAggregate(CountQuery(schema.layout, center_rewards=True), 2**20), 0
    try:
        source = open_source(where, schema)
        for part in episodes(source, workers=workers, **how):
            names = part.names.to_pylist()
            first = int(part.user[0]) if len(names) else 0
            for user, one in zip(part.user.tolist(), part.trajectories, strict=True):
                found[names[user - first]].append((*one.states, *one.actions, *one.rewards))
            tally.add(part.trajectories, part.user)
            rows = part.rows
    except DataError as error:
        return str(error), error.counts, error.first
    except (ValueError, OSError) as error:
        return type(error).__name__, str(error)
    return rows, dict(found), tally.cells().tobytes()


def same(where: Any, schema: Schema, **how: Any) -> tuple[Any, ...]:
    """What one thread finds, and some find too."""
    one = outcome(where, schema, 1, **how)
    assert outcome(where, schema, 3, **how) == one
    return one


# ------------------------------------------------------------------------------------------ text
def _at(lines: list[str], row: int, line: str) -> str:
    return "\n".join([*lines[:row], line, *lines[row + 1 :], ""])


TEXTS = {
    "plain": lambda lines: "\n".join([*lines, ""]),
    "no last line end": lambda lines: "\n".join(lines),
    "two bytes a line end": lambda lines: "\r\n".join([*lines, ""]),
    "old line ends": lambda lines: "\r".join([*lines, ""]),
    "blank lines": lambda lines: "\n\n\n".join([*lines, ""]),
    "only blank lines for a block": lambda lines: "\n".join([*lines[:70], *[""] * 3 * BLOCK, *lines[70:]]),
    "quoted head": lambda lines: "\n".join([",".join(f'"{one}"' for one in lines[0].split(",")), *lines[1:]]),
    "quotes late": lambda lines: _at(lines, 150, lines[150].replace("u", '"u').replace(",", '",', 1)),
    "a quote that is never closed": lambda lines: _at(lines, 150, '"' + lines[150]),
    "a quote within a word": lambda lines: "\n".join(lines).replace("u1", 'u"1'),
    "a line end within quotes": lambda lines: _at(lines, 150, '"u\n' + lines[150].replace(",", '",', 1)),
    "marks of a byte order": lambda lines: "\n".join(["\ufeff" + line for line in lines]),
    "too few fields": lambda lines: _at(lines, 150, "u,1"),
    "too many fields": lambda lines: _at(lines, 150, "1,2,3,4,5,6,7,8"),
    "words for numbers": lambda lines: _at(lines, 150, lines[150].rsplit(",", 1)[0] + ",one"),
    "points in numbers": lambda lines: _at(lines, 150, lines[150] + ".0"),
    "a line longer than a block": lambda lines: _at(lines, 150, lines[150] + " " * 2 * BLOCK),
    "a line longer than two blocks": lambda lines: _at(lines, 150, lines[150] + " " * 9 * BLOCK),
    "a step too many": lambda lines: "\n".join([*lines, lines[-1].replace(",0,", ",0,9", 1)]),
    "rows of nobody": lambda lines: lines[0] + "\n",
    "no text": lambda lines: _at(lines, 150, lines[150].replace("u", "\udcff")),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_blocks_of_text_are_the_text(schema, make, tmp_path, monkeypatch, kind) -> None:
    monkeypatch.setattr(places, "_LONGEST_LINE", BLOCK)
    path = make.save(make.people(60, name=lambda u: f"u{u:02}"), tmp_path / "rows.csv")
    text = TEXTS[kind](path.read_text().splitlines())
    path.write_bytes(text.encode(errors="surrogateescape"))
    found = same(path, schema, batch_rows=5)
    if kind == "plain":
        assert len(found[1]) == 60
    if kind == "too few fields":
        assert found[1]["malformed line"] == 1
    if kind == "a quote that is never closed":
        assert found[1].endswith("quotes that are never closed, or a line longer than 400 bytes")
    if kind == "words for numbers":
        assert found[0].startswith("rows.csv row 149 (")


def test_a_cell_of_several_lines_may_lie_anywhere(schema, make, tmp_path, monkeypatch) -> None:
    """Notes of two lines, in a column that nobody asks for: a block that ends within one is none."""
    path = make.save(make.people(20), tmp_path / "rows.csv")
    head, *rows = path.read_text().splitlines()
    noted = [f'{row},"said ""{"no, " * (i % 7)}""\nand left"' for i, row in enumerate(rows)]
    path.write_text("\n".join([head + ",note", *noted, ""]))
    whole = outcome(path, schema, 1)
    assert whole[0] == len(rows)
    for block in range(200, 300, 3):
        monkeypatch.setattr(places, "_LONGEST_LINE", block)
        assert same(path, schema, batch_rows=5) == whole


def test_text_is_parsed_in_blocks_until_one_is_not_plain(schema, make, tmp_path, monkeypatch) -> None:
    """And by one thread from there on, which yields no row again."""
    monkeypatch.setattr(places, "_LONGEST_LINE", BLOCK)
    rows, blocks, alone = make.people(60), [], []
    path, parse, one_pass = make.save(rows, tmp_path / "rows.csv"), arrow_csv.read_csv, places.TextFile._pass

    def parsed(*how: Any, **more: Any) -> Any:
        blocks.append(parse(*how, **more))
        return blocks[-1]

    def passed(self: Any, *how: Any) -> Any:
        alone.append(how)
        return one_pass(self, *how)

    monkeypatch.setattr(places.arrow_csv, "read_csv", parsed)
    monkeypatch.setattr(places.TextFile, "_pass", passed)
    for spoilt in (None, 100):
        if spoilt is not None:
            lines = path.read_text().splitlines()
            path.write_text(_at(lines, spoilt, '"' + lines[spoilt].replace(",", '",', 1)))
        blocks.clear()
        with Pool(2) as pool:
            found = pa.concat_tables(open_source(path, schema).batches(5, pool=pool))
        assert found["user"].to_pylist() == [str(row["user"]) for row in rows]
        assert found["number"].to_pylist() == list(range(len(rows)))
        assert sum(table.num_rows for table in blocks) == len(rows) or spoilt is not None
        assert len(blocks) > 4
        assert len(alone) == (spoilt is not None)


def test_a_damaged_archive_is_told_alike(schema, make, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(places, "_LONGEST_LINE", 4000)
    text = make.save(make.people(3000), tmp_path / "rows.csv").read_bytes()
    path = tmp_path / "rows.csv.gz"
    packed = gzip.compress(text)
    path.write_bytes(packed)
    assert same(path, schema, batch_rows=100)[0] == text.count(b"\n") - 1
    path.write_bytes(packed[: len(packed) * 2 // 3])
    kind, said = same(path, schema, batch_rows=100)
    assert kind in ("Broken", "OSError")
    assert "runcated" in said


# ------------------------------------------------------------------------------------------ row groups
NAMES = {
    "numbers": lambda u: (u * 37) % 101 - 50,
    "large numbers": lambda u: (LARGE if u % 2 else -LARGE) + (u * 37) % 101,
    "words": lambda u: f"{(u * 7919) % 104729:x}",
}


def _one_file(rows: list[dict[str, Any]], folder: Path, **how: Any) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet", **how)
    return folder / "rows.parquet"


def _small_groups(rows: list[dict[str, Any]], folder: Path) -> Path:
    return _one_file(rows, folder, row_group_size=3)


def _one_group(rows: list[dict[str, Any]], folder: Path) -> Path:
    return _one_file(rows, folder)


def _empty_groups(rows: list[dict[str, Any]], folder: Path) -> Path:
    table = pa.Table.from_pylist(rows)
    with parquet.ParquetWriter(folder / "rows.parquet", table.schema) as file:
        for begin in range(0, len(rows), 30):
            file.write_table(table.slice(begin, 30), row_group_size=11)
            file.write_table(table.slice(0, 0))
    return folder / "rows.parquet"


def _files(rows: list[dict[str, Any]], folder: Path) -> Path:
    """Everybody in a file of her own, but for some who go on in the next one."""
    for begin in range(0, len(rows), 5):
        parquet.write_table(pa.Table.from_pylist(rows[begin : begin + 5]), folder / f"{begin:04}.parquet")
    return folder


LAYOUTS = {"small groups": _small_groups, "one": _one_group, "empty groups": _empty_groups, "files": _files}


@pytest.mark.parametrize(("layout", "name", "mixed"), pairwise(list(LAYOUTS), list(NAMES), [False, True]))
def test_row_groups_and_files_are_the_rows(schema, make, tmp_path, layout, name, mixed) -> None:
    """People over two row groups, over two files, in any order, in hardly any memory."""
    rows = make.people(60, name=NAMES[name])
    where = LAYOUTS[layout](make.shuffled(rows) if mixed else rows, tmp_path)
    for how in ({"batch_rows": 4}, {"batch_rows": 7, "memory": 1}):
        count, found, _ = same(where, schema, **how)
        assert count == len(rows)
        assert sorted(found) == sorted({row["user"] for row in rows})
    rows[77]["state"], rows[170]["reward"] = 77, 9.0
    where = LAYOUTS[layout](rows, tmp_path)
    said, counts, _ = same(where, schema, batch_rows=4)
    assert "state = 77" in said
    assert counts["reward"] == 1


@pytest.mark.parametrize("name", ["numbers", "words"])
def test_a_damaged_row_group_is_told_by_whoever_reads_it(schema, make, tmp_path, name) -> None:
    """Of the first pass, which many threads share, and of the second."""
    rows = make.people(400, name=NAMES[name])
    path = _one_file(rows, tmp_path, row_group_size=64, compression="gzip", use_dictionary=False)
    for column in ("user", "reward"):
        chunk = parquet.ParquetFile(path).metadata.row_group(9).column(list(rows[0]).index(column))
        whole = path.read_bytes()
        spoilt = bytearray(whole)
        at = chunk.data_page_offset + chunk.total_compressed_size // 2
        spoilt[at : at + 12] = bytes(12)
        path.write_bytes(spoilt)
        kind, said = same(path, schema, batch_rows=64)
        assert kind == "Broken"
        assert said.startswith(f"{path}: cannot be read (")
        path.write_bytes(whole)


def test_an_episode_too_many_is_the_one_whose_first_row_comes_last(schema, make, tmp_path) -> None:
    """Whoever else is read beside the person, and in whichever order others name their episodes."""
    rows = make.shuffled(make.people(40, each=3, name=lambda u: f"u{u:02}"))
    begun: dict[tuple[str, int], int] = {}
    for row in rows:
        begun.setdefault((row["user"], row["episode"]), len(begun))
    late = {
        max((one for one in begun if one[0] == user), key=begun.__getitem__) for user, _ in begun
    }  # fmt: skip
    first = next(
        i for i, row in enumerate(rows) if (row["user"], row["episode"]) in late and row["step"] == 0
    )
    path = make.save(rows, tmp_path / "rows.parquet")
    for how in ({}, {"batch_rows": 5}, {"batch_rows": 7, "memory": 1}):
        said, counts, _ = same(path, replace(schema, episodes_per_user=2), **how)
        assert said.startswith(f"rows.parquet row {first} (")
        assert counts == {"too many episodes": 40}


NO_TEXT = pa.array([b"a", b"\xff"]).view(pa.string())


@pytest.mark.parametrize("column", ["user", "episode", "state"])
@pytest.mark.parametrize("packed", [False, True])
def test_bytes_that_are_no_text_are_told_by_file_and_column(
    schema, make, tmp_path, column: str, packed: bool
) -> None:
    """Whoever writes Parquet, or makes an Arrow table, may call any bytes a text."""
    table = pa.Table.from_pylist(make.people(30, name=lambda u: f"u{u:02}"))
    cells = NO_TEXT.take(pa.array([0] * (table.num_rows - 1) + [1]))
    column_of = table.set_column(
        table.column_names.index(column), column, cells.dictionary_encode() if packed else cells
    )
    path = tmp_path / "rows.parquet"
    parquet.write_table(column_of, path, row_group_size=20)
    labelled = replace(schema, state_labels=("a", "b", "c", "d", "e"))
    for how in ({}, {"batch_rows": 7}):
        said = ("Broken", f"{path}: the column {column!r} holds text that is not UTF-8")
        assert same(path, labelled, **how) == said
    kind, message = same(column_of, labelled)
    assert kind == "Broken"
    assert message.endswith(said[1].removeprefix(str(path)))


def test_a_page_that_differs_from_its_checksum_is_damaged(schema, make, tmp_path) -> None:
    """One bit of a reward, that no reader of numbers could tell."""
    path = _one_file(
        make.people(400), tmp_path, row_group_size=64, compression="none", use_dictionary=False,
        write_page_checksum=True,
    )  # fmt: skip
    chunk = parquet.ParquetFile(path).metadata.row_group(3).column(5)
    spoilt = bytearray(path.read_bytes())
    spoilt[chunk.data_page_offset + chunk.total_compressed_size - 10] ^= 1
    path.write_bytes(spoilt)
    kind, said = same(path, schema, batch_rows=64)
    assert kind == "Broken"
    assert said.startswith(f"{path}: cannot be read (")


def test_users_are_read_from_several_row_groups_at_once(schema, make, tmp_path, monkeypatch) -> None:
    """No more rows at once than a batch has cells; one after the other where a row group has more."""
    rows = make.people(90)
    asked = []

    class Watched(parquet.ParquetFile):
        def read_row_groups(self, groups: list[int], *how: Any, **more: Any) -> Any:
            asked.append(groups)
            return super().read_row_groups(groups, *how, **more)

    monkeypatch.setattr(places.parquet, "ParquetFile", Watched)
    source = open_source(_one_file(rows, tmp_path, row_group_size=10), schema)
    for batch_rows, parts in ((5, 4), (4, 3), (1, 0)):
        asked.clear()
        with Pool(3) as pool:
            found = pa.concat_tables(source.batches(batch_rows, users_only=True, pool=pool))
        assert found["user"].to_pylist() == [row["user"] for row in rows]
        groups = -(-len(rows) // 10)
        wanted = [list(range(i, min(i + parts, groups))) for i in range(0, groups, parts)] if parts else []
        assert sorted(asked) == wanted


# ------------------------------------------------------------------------------------------ Parquet
def _people(first: int, many: int, names: Any = str) -> pa.Table:
    users = [names(u) for u in range(first, first + many) for _ in range(2)]
    rows = {"step": [0, 1], "state": [0, 1], "action": [0, 1], "reward": [0.5, 0.25], "next_state": [1, 0]}
    return pa.table(
        {"user": users, "episode": [0] * (2 * many), **{name: one * many for name, one in rows.items()}}
    )


def test_a_file_that_begins_with_an_empty_row_group(tmp_path: Path) -> None:
    schema = Schema("ward", "patient", Layout(2, 2, 2))
    for many in (0, 5):
        path, kinds = tmp_path / f"{many}.parquet", _people(0, 1).schema
        with parquet.ParquetWriter(path, kinds) as writer:
            writer.write_table(kinds.empty_table())
            writer.write_table(_people(0, many).cast(kinds))
        found = same(path, schema)
        assert found[0] == 2 * many
        assert len(found[1]) == many


def test_numbers_too_large_for_a_name_are_not_repeated(tmp_path: Path) -> None:
    table = _people(0, 2)
    users = pa.array([2**63 + 5] * 2 + [1] * 2, pa.uint64())
    parquet.write_table(table.set_column(0, "user", users), tmp_path / "people.parquet")
    _, words = same(tmp_path / "people.parquet", Schema("ward", "patient", Layout(2, 2, 2)))
    assert "below 2^63" in words
    assert "9223372036854775813" not in words


def test_categories_of_many_files_are_more_than_their_numbers(tmp_path: Path) -> None:
    """100 names a file have numbers of one byte; 300 have not."""
    schema = Schema("ward", "patient", Layout(2, 2, 2))
    kind = pa.dictionary(pa.int8(), pa.string())
    for part in range(3):
        table = _people(100 * part, 100)
        at = table.schema.get_field_index("user")
        parquet.write_table(
            table.set_column(at, "user", table["user"].cast(kind)), tmp_path / f"{part}.parquet"
        )
    found = same(tmp_path, schema)
    assert sorted(found[1]) == sorted(str(u) for u in range(300))
