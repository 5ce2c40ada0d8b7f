"""Files are opened or refused; arbitrary bytes end in a ValueError, never in anything else."""

import dataclasses
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from discreet.data.row_batches import Broken, open_source
from discreet.data.validate import DataError, check, episodes

BOUNDED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def outcome(path, schema, **how):
    try:
        return check(open_source(path, schema), **how)
    except ValueError as error:
        return str(error)


@BOUNDED
@given(data=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".parquet"]))
def test_any_bytes(schema, tmp_path, data, suffix) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)
    assert isinstance(outcome(path, schema), str)


@BOUNDED
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), suffix=st.sampled_from([".csv", ".parquet"]))
def test_one_damaged_byte(schema, make, tmp_path, place, byte, suffix) -> None:
    path = make.save(make.people(30), tmp_path / f"x{suffix}")
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(bytes(data))
    outcome(path, schema, batch_rows=13, memory=3000)


CELLS = st.sampled_from(
    ["0", "1", "2", "3", "4", "-1", "", "NaN", "inf", "1e3", "x", '"', "0.5", "é", "9" * 25]
)


@BOUNDED
@given(st.lists(st.lists(CELLS, min_size=6, max_size=8), max_size=12))
def test_any_cells(schema, tmp_path, lines) -> None:
    head = "user,episode,step,state,action,reward,next_state"
    path = tmp_path / "x.csv"
    path.write_text("\n".join([head, *(",".join(line) for line in lines)]) + "\n")
    outcome(path, schema, batch_rows=3, memory=500)


def test_refusals(schema, make, tmp_path) -> None:
    good = make.save(make.people(3), tmp_path / "good.parquet")
    with pytest.raises(ValueError, match="given twice"):
        open_source([good, good], schema)
    with pytest.raises(ValueError, match="no such file"):
        open_source(tmp_path / "none.csv", schema)
    with pytest.raises(ValueError, match="must end in"):
        open_source([good, make.save([], tmp_path / "x.csv").rename(tmp_path / "x.sav")], schema)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="must be Parquet or CSV"):
        open_source(tmp_path / "empty", schema)
    for suffix in (".parquet", ".csv"):
        table = parquet.read_table(good).drop_columns(["reward"])
        path = tmp_path / f"less{suffix}"
        if suffix == ".parquet":
            parquet.write_table(table, path)
        else:
            path.write_text("user,episode,step,state,action,next_state\n")
        with pytest.raises(ValueError, match=r"'reward' \(reward_column\)"):
            open_source(path, schema)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.bool_(), pa.list_(pa.int64())])
@pytest.mark.parametrize("column", ["user", "step", "state", "reward"])
def test_columns_of_other_types_are_refused(schema, make, tmp_path, kind, column) -> None:
    table = parquet.read_table(make.save(make.people(3), tmp_path / "x.parquet"))
    position = table.column_names.index(column)
    table = table.set_column(position, column, pa.nulls(table.num_rows, kind))
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="must"):
        check(open_source(tmp_path / "x.parquet", schema))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float64()])
def test_numbers_of_any_type(schema, make, tmp_path, kind) -> None:
    table = parquet.read_table(make.save(make.people(9), tmp_path / "x.parquet"))
    expected = check(open_source(tmp_path / "x.parquet", schema))
    for column in ("step", "state", "action", "next_state"):
        position = table.column_names.index(column)
        table = table.set_column(position, column, table[column].cast(kind))
    table = table.set_column(0, "user", table["user"].cast(pa.string()).dictionary_encode())
    parquet.write_table(table, tmp_path / "x.parquet")
    assert check(open_source(tmp_path / "x.parquet", schema)) == expected


def test_no_rows_are_no_users(schema, tmp_path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,episode,step,state,action,reward,next_state\n")
    assert check(open_source(path, schema)).users == 0


def test_minari_is_optional(schema, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match="pip install"):
        open_source("minari:some/thing-v0", schema)


def test_minari_episodes_are_users(schema, monkeypatch) -> None:
    """Against the few names of Minari's interface that are used."""
    seen = [[0, 1, 2, 0, 3], [2, 4]]
    made = [
        SimpleNamespace(
            id=i,
            observations=np.array(s),
            actions=np.zeros(len(s) - 1, np.int64),
            rewards=np.ones(len(s) - 1),
        )
        for i, s in enumerate(seen)
    ]
    fake = ModuleType("minari")
    fake.load_dataset = lambda name: SimpleNamespace(  # type: ignore[attr-defined]
        total_steps=5,
        iterate_episodes=lambda: iter(made),
        storage=SimpleNamespace(metadata={}, data_path=Path("minari") / name / "data"),
    )
    monkeypatch.setitem(sys.modules, "minari", fake)
    assert open_source("minari:made/up-v0", schema).files == [Path("minari/made/up-v0/data/metadata.json")]
    parts = list(episodes(open_source("minari:made/up-v0", schema)))
    states = np.concatenate([part.trajectories.states for part in parts])
    assert states.tolist() == [[0, 1, 2, 0, 3], [2, 4, 4, 4, 4]]
    made[0].observations = made[0].observations.astype(float)
    with pytest.raises(ValueError, match="Discrete"):
        check(open_source("minari:made/up-v0", schema))
    made[0].actions = {"dose": made[0].actions}  # of a space of several parts
    with pytest.raises(ValueError, match="Discrete"):
        check(open_source("minari:made/up-v0", schema))


def test_a_byte_order_mark_and_windows_lines(schema, make, tmp_path) -> None:
    path = make.save(make.people(5), tmp_path / "x.csv")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert check(open_source(path, schema)).users == 5


def test_the_first_row_is_named_within_its_file(schema, make, tmp_path) -> None:
    rows = make.people(20)
    rows[30]["state"] = 17
    files = [make.save(rows[:25], tmp_path / "a.csv"), make.save(rows[25:], tmp_path / "b.parquet")]
    with pytest.raises(DataError, match=r"b\.parquet row 5 .*state = 17") as error:
        check(open_source(files, schema))
    assert error.value.first == ("state", 30)


def test_a_damaged_column_name_is_no_parquet_file(schema, make, tmp_path) -> None:
    """A name that is no UTF-8, found by fuzzing: told as every other damage is."""
    path = make.save(make.people(3), tmp_path / "x.parquet")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"next_state", b"\xadext_state"))
    with pytest.raises(Broken, match=r"x\.parquet: not a Parquet file"):
        open_source(path, schema)


def test_what_a_message_shows_of_a_cell_is_cut(schema, tmp_path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"user,episode,step,state,action,reward,next_state\n{'x' * 10**6},0,9,0,0,0,1\n")
    with pytest.raises(DataError, match="step must be") as found:
        check(open_source(path, schema))
    assert len(str(found.value)) < 2000


@pytest.mark.parametrize(
    ("value", "kind"), [(-(2**63), pa.int64()), (2**63, pa.uint64()), (2**64 - 1, pa.uint64())]
)
def test_no_number_stands_for_an_empty_cell(schema, make, tmp_path, value, kind) -> None:
    """A last next state may be empty; -2^63, the code for that, may not be written in its place."""
    (row,) = make.people(1, seed=3)[:1]
    columns = {name: pa.array([cell]) for name, cell in row.items()}
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({**columns, "next_state": pa.array([None], pa.int64())}), path)
    assert check(open_source(path, schema)).users == 1
    parquet.write_table(pa.table({**columns, "next_state": pa.array([value], kind)}), path)
    with pytest.raises(DataError, match="state: 1"):
        check(open_source(path, schema))


@pytest.mark.parametrize("what", ["state_labels", "action_labels"])
def test_a_label_that_is_an_empty_cell_in_csv_is_refused(schema, tmp_path, what) -> None:
    """An episode that ends in the state ``NA`` would end in the terminal state without a word."""
    sizes = {"state_labels": schema.layout.states, "action_labels": schema.layout.actions}
    names = ["NA", "b", "c", "d", "e"][: sizes[what]]
    labelled = dataclasses.replace(schema, **{what: tuple(names)})
    header = "user,episode,step,state,action,reward,next_state\n"
    (tmp_path / "rows.csv").write_text(header)
    with pytest.raises(Broken, match="the label 'NA' is an empty cell in CSV"):
        open_source(tmp_path / "rows.csv", labelled)
    table = pa.table({name: pa.array([], pa.string()) for name in header.strip().split(",")})
    parquet.write_table(table, tmp_path / "rows.parquet")
    open_source(tmp_path / "rows.parquet", labelled)
