"""The same people, wherever their rows lie and however they are written."""

import dataclasses
import gzip
import importlib.util
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import fs, parquet
from waiting import wait_until

from discreet.data.row_batches import open_source
from discreet.data.sources import Broken, Text, TextFile, places_of
from discreet.data.validate import DataError, check, episodes


def states(source: Any) -> list[list[int]]:
    """All episodes, in an order of their own."""
    found = [part.trajectories.states for part in episodes(source)]
    return sorted(np.concatenate(found).tolist())


@pytest.fixture
def rows(make: Any) -> list[dict[str, Any]]:
    return list(make.people(40))


@pytest.fixture
def expected(schema: Any, make: Any, rows: Any, tmp_path: Path) -> list[list[int]]:
    return states(open_source(make.save(rows, tmp_path / "expected.parquet"), schema))


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".CSV", ".tsv", ".CSV.GZ"])
def test_text_of_every_kind(schema, make, rows, expected, tmp_path, delimiter, ending) -> None:
    content = make.save(rows, tmp_path / "plain.csv").read_bytes().replace(b",", delimiter.encode())
    path = tmp_path / f"x{ending}"
    path.write_bytes(gzip.compress(content) if ending.lower().endswith(".gz") else content)
    assert states(open_source(path, schema)) == expected  # told by the first line
    assert states(open_source(path, schema, delimiter=delimiter)) == expected
    other = ":" if delimiter == "," else ","
    with pytest.raises(Broken, match="must have one column 'user'"):
        open_source(path, schema, delimiter=other)


def test_a_decimal_comma_and_another_encoding(schema, make, rows, tmp_path) -> None:
    text = make.save(rows, tmp_path / "plain.csv").read_text()
    text = text.replace(",", ";").replace(".", ",").replace("user", "Pflegefäll")
    (tmp_path / "x.csv").write_bytes(text.encode("latin-1"))
    german = dataclasses.replace(schema, columns=dataclasses.replace(schema.columns, user="Pflegefäll"))
    parts = list(episodes(open_source(tmp_path / "x.csv", german, decimal=",", encoding="latin-1")))
    plain = list(episodes(open_source(tmp_path / "plain.csv", schema)))
    assert np.array_equal(parts[0].trajectories.rewards, plain[0].trajectories.rewards)
    with pytest.raises(Broken, match=r"x\.csv: not a CSV file"):
        open_source(tmp_path / "x.csv", german)


def test_a_delimiter_is_told_by_the_first_line_alone(schema, tmp_path) -> None:
    (tmp_path / "x.csv").write_text(
        "user;episode;step;state;action;reward;next_state,remark\n1;0;0;0;0;0;0,0\n"
    )
    with pytest.raises(Broken, match="must have one column"):
        open_source(tmp_path / "x.csv", schema)
    (tmp_path / "tie.csv").write_text("a,b;c\n")
    (place,) = places_of(tmp_path / "tie.csv")
    with pytest.raises(Broken, match="can be read with ',', ';': declare the delimiter"):
        place.names()
    assert place.names(["c"]) == ["a,b", "c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";;"}, "delimiter = ';;': must be one character"),
        ({"delimiter": "\n"}, "must be one character"),
        ({"decimal": "x"}, "decimal = 'x': must be one of"),
        ({"delimiter": ",", "decimal": ","}, "must not be the delimiter"),
        ({"encoding": "klingon"}, "encoding = 'klingon': must be one that Python knows"),
    ],
)
def test_ways_to_write_that_do_not_exist(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        Text(**options)


def test_folders_of_any_depth_and_case(schema, make, rows, expected, tmp_path) -> None:
    (tmp_path / "in" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "in" / "_temporary").mkdir()
    cut = [0, 10, 30, 40, len(rows)]
    names = ["A.CSV", "deep/b.Parquet", "deep/er/c.parquet", "deep/er/d.csv.gz"]
    for begin, end, name in zip(cut, cut[1:], names, strict=False):
        ending = ".parquet" if "arquet" in name else ".csv"
        made = make.save(rows[begin:end], tmp_path / f"part{ending}")
        content = made.read_bytes()
        (tmp_path / "in" / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    for ignored in (".hidden.csv", "_SUCCESS", "notes.txt", "_temporary/x.csv"):
        (tmp_path / "in" / ignored).write_text("no,rows\n")
    assert states(open_source(tmp_path / "in", schema)) == expected
    with pytest.raises(Broken, match="given twice"):
        open_source([tmp_path / "in", tmp_path / "in" / "A.CSV"], schema)


def test_a_damaged_archive(schema, make, rows, tmp_path) -> None:
    content = gzip.compress(make.save(rows, tmp_path / "x.csv").read_bytes())
    (tmp_path / "x.csv.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"cannot be read|not a CSV"):
        check(open_source(tmp_path / "x.csv.gz", schema))
    (tmp_path / "x.csv.gz").write_bytes(b"no archive")
    with pytest.raises(Broken, match=r"x\.csv\.gz: not a CSV file"):
        open_source(tmp_path / "x.csv.gz", schema)


# ------------------------------------------------------------------------------- frames
@pytest.mark.parametrize("kind", ["arrow", "batch", "reader", "pandas", "polars"])
def test_frames(schema, make, rows, expected, tmp_path, kind) -> None:
    table = parquet.read_table(make.save(rows, tmp_path / "x.parquet"))
    if kind == "polars":
        frame = pytest.importorskip("polars").from_arrow(table)
    else:
        frame = {
            "arrow": table,
            "batch": table.combine_chunks().to_batches()[0],
            "reader": table.to_reader(),
            "pandas": table.to_pandas(),
        }[kind]
    source = open_source(frame, schema)
    assert states(source) == expected
    assert states(source) == expected  # as often as one likes
    assert source.rows == len(rows)


def test_text_and_categories_in_frames(schema, rows, expected) -> None:
    frame = pd.DataFrame(rows)
    frame["user"] = [f"p{user}" for user in frame["user"]]
    frame["episode"] = frame["episode"].astype(str).astype("category")
    assert states(open_source(frame, schema)) == expected
    polars = pytest.importorskip("polars")
    own = polars.from_pandas(frame).with_columns(polars.col("episode").cast(polars.Categorical))
    assert states(open_source([own], schema)) == expected
    with pytest.raises(Broken, match="collect a lazy one first"):
        open_source(own.lazy(), schema)


@pytest.mark.parametrize("thing", [7, {"user": [1]}, None, [3.0]])
def test_what_is_no_frame(schema, thing) -> None:
    with pytest.raises(Broken, match="must be a path"):
        open_source(thing, schema)


def test_a_frame_without_a_column(schema) -> None:
    with pytest.raises(Broken, match="the table: must have one column 'user'"):
        open_source(pa.table({"episode": [1]}), schema)


# ------------------------------------------------------------------------------- data bases
def test_duckdb(schema, make, rows, expected, tmp_path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = make.save(make.shuffled(rows), tmp_path / "x.parquet")
    with duckdb.connect(str(tmp_path / "study.db")) as base:
        base.execute("CREATE TABLE visits AS SELECT * FROM read_parquet(?)", [str(path)])
    where = f"duckdb://{tmp_path / 'study.db'}"
    assert states(open_source(f"{where}?table=visits", schema)) == expected
    assert states(open_source(f"{where}?table=main.visits", schema)) == expected
    assert states(open_source(where, schema, sql="SELECT * FROM visits;")) == expected
    assert states(open_source("duckdb://", schema, sql=f"SELECT * FROM '{path}'", reads=[path])) == expected
    for wrong, sql, message in (
        (where, None, "must have either"),
        (f"{where}?table=visits", "SELECT 1", "must have either"),
        (f"{where}?tabel=visits", None, "'tabel' is unknown"),
        (f"{where}?table=none", None, "duckdb://.*none"),
        (f"{where}?table=x; DROP TABLE visits", None, "does not exist"),
        ("duckdb:///no/such.db?table=a", None, "no such file"),
        (where, "SELECT 1 AS one", "must have one column 'user'"),
        (str(path), "SELECT 1", "sql: must be given with duckdb"),
    ):
        with pytest.raises(Broken, match=message):
            open_source(wrong, schema, sql=sql)
    with pytest.raises(Broken, match="Parser Error"):
        open_source(where, schema, sql="DELETE FROM visits RETURNING *")
    assert states(open_source(f"{where}?table=visits", schema)) == expected


def test_a_query_reads_what_is_named_alone(schema, make, rows, expected, tmp_path, monkeypatch) -> None:
    """Nobody widens that from within: no view, pattern, address, ATTACH, SET, extension, or spilled rows."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / ".tmp").mkdir()  # where DuckDB spills by itself, and lets every query read
    path = make.save(make.shuffled(rows), tmp_path / "sub" / "x.parquet")
    shutil.copy(path, ".tmp/x.parquet")
    (tmp_path / "study.db.tmp").symlink_to("sub")
    with duckdb.connect("study.db") as base:
        base.execute(f"CREATE VIEW outside AS SELECT * FROM '{path}'")
        base.execute(f"CREATE TABLE inside AS SELECT * FROM '{path}'")
    assert states(open_source("duckdb://study.db?table=inside", schema)) == expected
    shutil.copy("study.db", "else.db")
    (tmp_path / "other.csv").write_text("a\n1\n")
    for asked in ("sub/x.parquet", str(path), "sub/../sub/x.parquet"):  # given so, or as DuckDB is told
        source = open_source("duckdb://", schema, sql="SELECT * FROM 'sub/x.parquet'", reads=[asked])
        assert states(source) == expected
        assert source.files == [Path(asked)]
    said = "may read .*name each file that it reads.*FILE beside --sql"
    outside = [
        "SELECT * FROM 'sub/x.parquet'", "SELECT * FROM 'sub/*.parquet'", "SELECT * FROM '.tmp/x.parquet'",
        "SELECT * FROM 'study.db.tmp/x.parquet'", "SELECT * FROM 'https://example.com/x.parquet'",
        "SELECT * FROM glob('*')", "SELECT content FROM read_text('sub/x.parquet')",
        "SELECT 1) LIMIT 0; ATTACH 'else.db' AS other; SELECT * FROM (SELECT 1",
    ]  # fmt: skip
    for sql in outside:
        for where, reads in (("duckdb://", None), ("duckdb://", ["other.csv"]), ("duckdb://study.db", None)):
            with pytest.raises(Broken, match=said):
                open_source(where, schema, sql=sql, reads=reads)
    with pytest.raises(Broken, match="the query may read only its database"):
        open_source("duckdb://study.db?table=outside", schema)
    for sql in ("SET enable_external_access = true", "RESET lock_configuration", "LOAD sqlite", "INSTALL x"):
        for where in ("duckdb://", "duckdb://study.db"):
            with pytest.raises(Broken, match="locked|external extensions|may read|Cannot access"):
                open_source(where, schema, sql=f"SELECT 1) LIMIT 0; {sql}; SELECT * FROM (SELECT 1")
    for where, sql, reads, message in (
        ("duckdb://study.db", "SELECT 1", ["other.csv"], "reads must be given only with duckdb://"),
        ("duckdb://", "SELECT 1", ["sub"], "reads = 'sub': must be a file"),
        ("duckdb://", "SELECT 1", ["sub/*"], "reads = 'sub/\\*': must be a file"),
        ("duckdb://", "SELECT 1", "other.csv", "reads = 'other.csv': must be a list"),
        (path, None, ["other.csv"], "reads: must be given with duckdb:// and the query"),
    ):
        with pytest.raises(Broken, match=message):
            open_source(where, schema, sql=sql, reads=reads)


def test_readers_of_one_data_base_do_not_meet(schema, make, rows, expected, tmp_path) -> None:
    """Two connections of one process to one file share its settings."""
    duckdb = pytest.importorskip("duckdb")
    path = make.save(rows, tmp_path / "x.parquet")
    with duckdb.connect(str(tmp_path / "study.db")) as base:
        base.execute("CREATE TABLE visits AS SELECT * FROM read_parquet(?)", [str(path)])
    source = open_source(f"duckdb://{tmp_path / 'study.db'}?table=visits", schema)
    other = source.batches()
    next(other)
    assert states(source) == expected
    other.close()


def test_the_row_of_a_query_that_is_wrong_is_named(schema, make, rows, tmp_path) -> None:
    pytest.importorskip("duckdb")
    rows[7]["state"] = 17
    path = make.save(rows, tmp_path / "x.parquet")
    with pytest.raises(DataError, match="state = 17"):
        check(open_source("duckdb://", schema, sql=f"SELECT * FROM '{path}'", reads=[path]))


def test_duckdb_is_optional(schema, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match="pip install"):
        open_source("duckdb://", schema, sql="SELECT 1")


# ------------------------------------------------------------------------------- object stores
def test_uris_of_local_files(schema, make, rows, expected, tmp_path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    make.save(rows[:30], folder / "a.parquet")
    make.save(rows[30:], folder / "b.csv")
    uri = f"file://{folder}"
    assert states(open_source(f"{uri}/", schema)) == expected
    assert states(open_source([f"{uri}/a.parquet", f"{uri}/b.csv"], schema)) == expected
    with pytest.raises(Broken, match="given twice"):
        open_source([f"{uri}/a.parquet", folder / "a.parquet"], schema)
    with pytest.raises(Broken, match="no such file"):
        open_source(f"{uri}/none.parquet", schema)
    with pytest.raises(Broken, match="nonsense://x: cannot be read"):
        open_source("nonsense://x", schema)


@pytest.fixture(scope="module")
def store() -> Iterator[int]:
    """The port of a made-up S3 of this machine."""
    if any(importlib.util.find_spec(name) is None for name in ("moto", "flask_cors")):
        pytest.skip("moto and its server are not installed (pip install 'discreet[dev]')")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def open_() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(lambda: server.poll() is not None or open_())
        if server.poll() is not None:
            pytest.skip("the made-up S3 does not start")
        yield port
    finally:
        server.terminate()
        server.wait()


def test_an_object_store(schema, make, rows, expected, tmp_path, store, monkeypatch) -> None:
    from pyarrow import fs

    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    s3 = fs.S3FileSystem(
        access_key="name", secret_key="hush-hush", scheme="http",
        endpoint_override=f"127.0.0.1:{store}", region="us-east-1", allow_bucket_creation=True,
    )  # fmt: skip
    s3.create_dir("ward")
    for name, part in (("a.parquet", rows[:30]), ("deep/b.csv", rows[30:])):
        local = make.save(part, tmp_path / Path(name).name)
        with s3.open_output_stream(f"ward/study/{name}") as out:
            out.write(local.read_bytes())
    where = (
        f"s3://name:hush-hush@ward/study{{}}?scheme=http&endpoint_override=127.0.0.1:{store}&region=us-east-1"
    )
    source = open_source(where.format(""), schema)
    assert states(source) == expected
    assert [place.name for place in source.places] == [
        "s3://ward/study/a.parquet",
        "s3://ward/study/deep/b.csv",
    ]
    assert "hush" not in repr(source)
    for wrong in ("/none.parquet", "/a.parquet.txt"):
        with pytest.raises(Broken) as error:
            open_source(where.format(wrong), schema)
        assert "hush" not in str(error.value)


def test_a_stream_is_not_closed_under_a_read_ahead(tmp_path: Path) -> None:
    """As happens where numbers turn out to be text: the pass ends in the middle and another one begins.

    Arrow reads ahead in a thread. The next file has the number of the one that is closed, and lost its first
    bytes to the read under way: 5 of 150 times with two files of 11 and .6 MB. Its last holder closes it.
    """
    path, local, opened = tmp_path / "one.csv", fs.LocalFileSystem(), []
    path.write_text("user,value\n" + "1,2\n" * 3_000_000)

    def stream(name: str, **options: Any) -> Any:
        opened.append(local.open_input_stream(name, **options))
        return opened[-1]

    place = TextFile("one.csv", SimpleNamespace(open_input_stream=stream), str(path), Text(delimiter=","))
    assert place.names() == ["user", "value"]  # the line of names is read once, by a stream of its own
    opened.clear()
    batches = place._pass(["user"], 1_000, {})
    assert next(batches).num_rows == 1_000
    batches.close()
    assert [one.closed for one in opened] == [False]
    with pytest.raises(pa.ArrowInvalid):
        next(place._pass(["value"], 1_000, {"value": pa.bool_()}))
    assert [one.closed for one in opened] == [False, False]
