"""Mark of synthetic users: what it says, and what each reader of user data does with it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.data.config_template import schema_template
from discreet.data.prepare import prepare
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.data.sources import places_of
from discreet.data.synthetic_mark import MARK, check_mark, facts_in, packed
from discreet.pipeline.state_codebook import fit_codebook
from discreet.pipeline.trajectory_files import TrajectoryWriter

FACTS = {"release": "ab" * 32, "epsilon": 1.0, "delta": 1e-8, "model": 1, "seed": 0}
PEOPLE = Schema("ward", "person", Layout(2, 2, 2))
SCHEMA = Schema("synthetic of ward", "person", Layout(2, 2, 2))
REFUSED = "holds synthetic users of a release's model, not real users"
ROWS = Trajectories(np.zeros((3, 3), np.int64), np.ones((3, 2), np.int64), np.zeros((3, 2)))


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    path = tmp_path / "s.parquet"
    with TrajectoryWriter(path, SCHEMA, synthetic=FACTS) as writer:
        writer.write(ROWS)
    return path


def forms(path: Path) -> dict[str, Any]:
    """The same rows in every form that a reader takes."""
    table = parquet.read_table(path)
    bare, folder = path.parent / "bare.parquet", path.parent / "folder"
    folder.mkdir()
    parquet.write_table(table.replace_schema_metadata(None), bare)
    csv.write_csv(table, path.with_suffix(".csv"))
    (path.parent / "s.csv.gz").write_bytes(gzip.compress(path.with_suffix(".csv").read_bytes()))
    pd.read_parquet(path).to_csv(folder / "again.csv", sep=";", index=False)
    return {
        "parquet": path, "column only": bare, "metadata only": table.drop_columns([MARK]),
        "csv": path.with_suffix(".csv"), "gz": path.parent / "s.csv.gz", "folder": folder, "arrow": table,
        "pandas": pd.read_parquet(path),
    }  # fmt: skip


def test_every_form_keeps_the_mark(marked: Path) -> None:
    for form, where in forms(marked).items():
        for schema in (PEOPLE, SCHEMA):
            with pytest.raises(ValueError, match=REFUSED):
                open_source(where, schema)
        source = open_source(where, SCHEMA, synthetic_input=True)
        assert source.synthetic == (FACTS,), form
        assert sum(table.num_rows for table in source.batches()) == 6
        with pytest.raises(ValueError, match="must begin with 'synthetic of '"):
            open_source(where, PEOPLE, synthetic_input=True)


def test_queries_keep_the_mark(marked: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    base = marked.parent / "b.db"
    with duckdb.connect(str(base)) as made:
        made.execute(f"CREATE TABLE t AS SELECT * FROM '{marked}'")
    # without the column: the file that the query reads has the mark
    asked = f"SELECT \"user\", episode, step, state, action, reward, next_state FROM '{marked}'"
    for where, how in (
        (f"duckdb://{base}?table=t", {}),
        ("duckdb://", {"sql": asked, "reads": [str(marked)]}),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            open_source(where, PEOPLE, **how)
        assert open_source(where, SCHEMA, synthetic_input=True, **how).synthetic == (FACTS,)


def test_other_readers_of_people_refuse(marked: Path, tmp_path: Path) -> None:
    declaration = tmp_path / "P.toml"
    declaration.write_text(
        'dataset = "d"\nunit = "p"\nhorizon = 2\nreward = { low = 0.0, high = 1.0 }\n'
        '[prepare]\nuser = "user"\n'
        'states = { product = ["x"] }\nactions = { product = ["y"] }\nreward = { value = "r" }\n'
        '[prepare.values.x]\ncolumn = "state"\ncuts = [1]\nrange = [0, 2]\n'
        '[prepare.values.y]\ncolumn = "action"\ncuts = [1]\n[prepare.values.r]\ncolumn = "reward"\n'
    )
    with pytest.raises(ValueError, match=REFUSED):
        places_of(marked)
    with pytest.raises(ValueError, match=REFUSED):
        schema_template(marked)
    for work in (
        lambda: prepare(marked, declaration, tmp_path / "out"),
        lambda: fit_codebook(
            marked, declaration, tmp_path / "fit", ledger=None, quantiles=("x", 2), epsilon=1.0, delta=1e-6
        ),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            work()
        assert not (tmp_path / "out").exists()


def test_people_are_not_called_synthetic(marked: Path, tmp_path: Path) -> None:
    plain = tmp_path / "p.parquet"
    with TrajectoryWriter(plain, PEOPLE) as writer:
        writer.write(ROWS)
    assert open_source(plain, PEOPLE).synthetic == ()
    with pytest.raises(ValueError, match="holds no mark"):
        open_source(plain, SCHEMA, synthetic_input=True)
    with pytest.raises(ValueError, match="holds no mark"):
        open_source([plain, marked], SCHEMA, synthetic_input=True)
    with pytest.raises(ValueError, match=REFUSED):
        open_source([plain, marked], PEOPLE)
    # without column and metadata, the name of the dataset is left
    with pytest.raises(ValueError, match=REFUSED):
        open_source(plain, SCHEMA)


def test_lost_facts_leave_the_mark(marked: Path) -> None:
    table = parquet.read_table(marked).replace_schema_metadata(None)
    assert open_source(table.slice(1), SCHEMA, synthetic_input=True).synthetic == ({},)
    other = table.set_column(table.num_columns - 1, MARK, pa.array(["[1]"] * 6))
    assert open_source(other, SCHEMA, synthetic_input=True).synthetic == ({},)


def test_facts_are_short_and_finite() -> None:
    assert facts_in(packed(FACTS)) == FACTS
    assert facts_in('{"a": [1], "b": {"c": 1}, "d": NaN, "e": "x", "f": null}') == {"e": "x", "f": None}
    assert facts_in(packed({"long": "x" * 1000})) == {}
    for text in ("", "no JSON", None):
        assert facts_in(text) == {}


def test_equal_facts_are_named_once() -> None:
    marks = [("a", FACTS), ("b", dict(FACTS)), ("c", {**FACTS, "seed": 1})]
    assert check_mark(marks, SCHEMA.dataset, True) == (FACTS, {**FACTS, "seed": 1})
