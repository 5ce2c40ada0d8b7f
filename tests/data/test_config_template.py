"""A skeleton holds names and types, never a value; what it leaves open is refused until it is filled in."""

import gzip
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from discreet.data.config_template import schema_template
from discreet.data.prepare import prepare
from discreet.data.prepare_config import parse_declaration, read_prepare_config
from discreet.data.schema import read_schema

PLANTED = "Zanzibar-4711"
FRAME = pd.DataFrame(
    {
        "patient_id": [f"{PLANTED}-{i}" for i in range(50)],
        "stay": [PLANTED] * 50,
        "charttime": pd.date_range("1987-06-05", periods=50),
        "Mean BP (mmHg)": [4711.25] * 50,
        "4th value": [47114711] * 50,
        "noradrenaline dose": [0.4711] * 50,
        "ward": pd.Categorical([PLANTED] * 50),
        "outcome": [PLANTED] * 50,
    }
)
TRACES = (PLANTED, "4711", "1987", "Zanz")


def saved(folder: Path, kind: str) -> Any:
    path = folder / f"x.{kind}"
    if kind == "parquet":  # with statistics, a dictionary and pandas' notes in the footer
        FRAME.to_parquet(path)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(FRAME.to_csv(index=False, sep=";").encode()))
    elif kind == "csv":
        FRAME.to_csv(path, index=False)
    else:
        return FRAME if kind == "pandas" else pa.Table.from_pandas(FRAME)
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "pandas", "arrow"])
def test_no_value_is_in_it(tmp_path: Path, kind: str) -> None:
    text = schema_template(saved(tmp_path, kind))
    for trace in TRACES:
        assert trace not in text
    content = tomllib.loads(text)
    assert content["prepare"]["user"] == "patient_id"
    assert content["prepare"]["episode"] == "stay"
    assert content["prepare"]["time"]["column"] == "charttime"
    assert content["prepare"]["end"]["column"] == "outcome"
    assert set(content["prepare"]["values"]) == {"mean_bp_mmhg", "v_4th_value", "noradrenaline_dose", "ward"}
    assert content["prepare"]["actions"]["product"] == ["noradrenaline_dose"]
    (tmp_path / "P.toml").write_text(text)
    for read in (read_prepare_config, read_schema):
        with pytest.raises(ValueError, match="must be|unknown key prepare"):
            read(tmp_path / "P.toml")


def test_a_reader_that_fails_on_rows_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is read at all."""
    path = saved(tmp_path, "parquet")
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", None)
    monkeypatch.setattr(parquet.ParquetFile, "read", None)
    assert "mean_bp_mmhg" in schema_template(path)
    (tmp_path / "head.csv").write_bytes(b"patient,time,x\n" + b"\xff\xfe" * 40_000)
    assert "[prepare.values.x]" in schema_template(tmp_path / "head.csv", encoding="latin-1")


@pytest.mark.parametrize(
    "line",
    ["17,2024-01-01 08:00,80", "Jones,Jones,81", "Jones,,81", "Jones,-3.5,x", "Jones,01.02.2024,x", ""],
)
def test_a_first_line_that_is_a_row_is_not_copied(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.csv").write_text(line + "\nSmith,82,1\n")
    with pytest.raises(ValueError, match="must name the columns") as error:
        schema_template(tmp_path / "x.csv")
    said = str(error.value).replace(str(tmp_path), "")  # a folder of pytest's has a number of its own
    assert "Jones" not in said
    assert "81" not in said


def test_columns_that_number_rows_are_left_out(tmp_path: Path) -> None:
    """As pandas and R write them: ``to_csv()``, read and written again, ``write.csv``."""
    frame = pd.DataFrame({"patient": [1], "time": ["2024-01-01"], "drug": ["a"], "outcome": ["home"]})
    frame.to_csv(tmp_path / "once.csv")
    pd.read_csv(tmp_path / "once.csv").to_csv(tmp_path / "twice.csv")
    (tmp_path / "r.csv").write_text('"","patient","time","drug","outcome"\n"1",1,"2024-01-01","a","home"\n')
    (tmp_path / "end.csv").write_text("patient,time,drug,outcome,\n1,2024-01-01,a,home,\n")
    frame.rename(columns={"outcome": "status"}).rename_axis("rownames").to_csv(tmp_path / "rownames.csv")
    for name in ("once", "twice", "r", "end", "rownames"):
        text = schema_template(tmp_path / f"{name}.csv")
        content = tomllib.loads(text)["prepare"]
        assert content["user"] == "patient"
        assert list(content["values"]) == ["drug"]
        assert "Left out, since they number rows: " in text
    assert "'Unnamed: 0'" in schema_template(tmp_path / "twice.csv")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("patient,,time", "its field 2 is empty: give that column a name"),
        ("patient,time,time", "its fields 2, 3 are not all different"),
        (
            "Ward 7 2024 final\n\npatient,time,x",
            "it has one field, and line 3 has more: take out the lines above",
        ),
        ("17,x", "it looks like a row of data, of which nothing is shown"),
        ("\n", "it is empty"),
    ],
)
def test_the_reason_for_which_a_first_line_is_none(tmp_path: Path, head: str, said: str) -> None:
    (tmp_path / "x.csv").write_text(head + "\n1,2,3\n")
    with pytest.raises(ValueError, match=f"must name the columns, all differently; {said}"):
        schema_template(tmp_path / "x.csv")


def test_rows_that_are_trajectories_already(tmp_path: Path) -> None:
    names = ["User", "episode", "step", "state", "action", "reward", "next_state"]
    pd.DataFrame({name: [47] for name in names}).to_parquet(tmp_path / "x.parquet")
    text = schema_template(tmp_path / "x.parquet")
    (tmp_path / "S.toml").write_text(text)
    with pytest.raises(ValueError, match="horizon = 0"):
        read_schema(tmp_path / "S.toml")
    filled = text.replace("horizon = 0", "horizon = 3").replace(
        "low = 0.0, high = 0.0", "low = 0.0, high = 1.0"
    )
    filled = filled.replace("states = 0", "states = 2").replace("actions = 0", "actions = 2")
    (tmp_path / "S.toml").write_text(filled)
    with pytest.raises(ValueError, match="must be filled in|FILL IN"):
        read_schema(tmp_path / "S.toml")
    (tmp_path / "S.toml").write_text(filled.replace("FILL IN", "protocol"))
    assert read_schema(tmp_path / "S.toml").columns.user == "User"


def test_a_skeleton_that_is_filled_in_works(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "pid": [1, 1, 1],
            "time": [0, 1, 2],
            "bp": [1.0, 2.0, 3.0],
            "drug": ["a", "b", "a"],
            "status": ["ok"] * 3,
        }
    )
    text = schema_template(frame)
    for old, new in (
        ('dataset = "FILL IN"', 'dataset = "ward"'),
        ('unit = "FILL IN"', 'unit = "patient"'),
        ("horizon = 0", "horizon = 4"),
        ("high = 0.0", "high = 1.0"),
        ('column = "time" }', 'column = "time", numbers = "hours" }'),
        ('step = "FILL IN"', 'step = "1 hour"'),
        ('within = "FILL IN"', 'within = "last"'),
        ("# cuts = [0]", "cuts = [2]"),
        ('product = ["bp"]', 'product = ["bp"]'),
        ('states = { "FILL IN" = "FILL IN" }', 'states = { "ok" = "well" }'),
        ('value = "FILL IN"', ""),
        ('on = { "FILL IN" = 0.0 }', "on = { well = 1.0 }"),
        ('"FILL IN"', '"protocol"'),
    ):
        text = text.replace(old, new)
    at = text.index("[prepare.values.drug]")
    text = text[:at] + text[at:].replace("cuts = [2]", 'categories = ["a", "b"]', 1)
    declared = parse_declaration(tomllib.loads(text), tmp_path, text)
    assert prepare(frame, declared, tmp_path / "out").steps == 3
