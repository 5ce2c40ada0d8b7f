"""The column of groups: declared, read, and refused where a person has none, an unknown one, or two."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from discreet.core.layout import Layout
from discreet.data.prepare_config import parse_declaration
from discreet.data.row_batches import open_source
from discreet.data.schema import Groups, Schema, parse_schema, read_schema, write_schema
from discreet.data.validate import DataError, check, episodes
from discreet.pipeline.synthetic_data import write_made_up

GROUPS = Groups("sex", ("f", "m", "other"))
SCHEMA = Schema("test", "person", Layout(3, 2, 3), terminal=(2,), episodes_per_user=2, groups=GROUPS)
PLAIN: dict[str, Any] = {
    "dataset": "d", "horizon": 2, "unit": "person", "states": 3, "actions": 2,
    "reward": {"low": 0.0, "high": 1.0},
}  # fmt: skip


def rows_of(groups: list[list[str | None]]) -> list[dict[str, Any]]:
    """A user for each item, an episode of one row for each of its labels."""
    return [
        {
            "user": user, "episode": episode, "step": 0, "state": user % 2, "action": 0, "reward": 0.0,
            "next_state": 2, "sex": label,
        }
        for user, labels in enumerate(groups)
        for episode, label in enumerate(labels)
    ]  # fmt: skip


def saved(rows: list[dict[str, Any]], path: Path) -> Path:
    if path.suffix == ".csv":
        names = list(rows[0])
        lines = [",".join("" if row[name] is None else str(row[name]) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def groups_in(path: Path, schema: Schema = SCHEMA, **how: Any) -> dict[int, set[int]]:
    """State 0 or 1 where people begin to the groups of those who begin there."""
    found: dict[int, set[int]] = {}
    for part in episodes(open_source(path, schema), **how):
        assert part.group is not None
        assert part.group.shape == part.user.shape
        for start, group in zip(part.trajectories.states[:, 0].tolist(), part.group.tolist(), strict=True):
            found.setdefault(start, set()).add(group)
    return found


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("how", [{}, {"batch_rows": 3, "memory": 2000}])
@pytest.mark.parametrize("mixed", [False, True])
def test_every_episode_has_its_users_group(tmp_path: Path, suffix: str, how: Any, mixed: bool) -> None:
    rows = rows_of([["f", "f"] if user % 2 == 0 else ["other", "other"] for user in range(60)])
    if mixed:
        random.Random(1).shuffle(rows)
    assert groups_in(saved(rows, tmp_path / f"x{suffix}"), **how) == {0: {0}, 1: {2}}


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize(
    ("labels", "kind", "text"),
    [
        (["f", "m"], "two groups", "the person is of another group in an earlier row: give all rows"),
        (["f", "F"], "group", "must be one of the schema's labels .*declare the label, or replace it"),
        (["f", " f"], "group", "must be one of the schema's labels"),
        (["f", None], "empty cell", "a cell is empty: every one must be given"),
        ([None, None], "empty cell", "a cell is empty"),
    ],
)
def test_a_person_without_one_known_group_is_refused(
    tmp_path: Path, suffix: str, labels: list[str | None], kind: str, text: str
) -> None:
    """The offence is counted a row, and the first row is named; other kinds are not."""
    groups: list[list[str | None]] = [["m", "m"] for _ in range(20)]
    groups[7] = groups[12] = labels
    path = saved(rows_of(groups), tmp_path / f"x{suffix}")
    with pytest.raises(DataError, match=text) as error:
        check(open_source(path, SCHEMA))
    wrong = sum(label is None for label in labels) or 1
    assert error.value.counts == {kind: 2 * wrong}
    assert error.value.first == (kind, 14 if labels[0] is None else 15)
    for workers in (1, 3):
        with pytest.raises(DataError) as again:
            check(open_source(path, SCHEMA), workers=workers, batch_rows=5, memory=2000)
        assert again.value.counts == error.value.counts
        assert again.value.first == error.value.first


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    rows = [{name: cell for name, cell in row.items() if name != "sex"} for row in rows_of([["f"]])]
    with pytest.raises(ValueError, match=r"must have one column 'sex' \(groups.column\), has 0"):
        open_source(saved(rows, tmp_path / "x.parquet"), SCHEMA)


def test_a_column_of_numbers_is_no_column_of_labels(tmp_path: Path) -> None:
    rows = [{**row, "sex": 0.5} for row in rows_of([["f"]])]
    with pytest.raises(ValueError, match="the column of group must hold labels, not double"):
        open_source(saved(rows, tmp_path / "x.parquet"), SCHEMA)
    numbers = replace(SCHEMA, groups=Groups("sex", ("1", "2")))
    path = saved([{**row, "sex": 2} for row in rows_of([["f"]])], tmp_path / "y.parquet")
    assert groups_in(path, numbers) == {0: {1}}


def test_a_label_that_csv_reads_as_empty_is_refused(tmp_path: Path) -> None:
    path = saved(rows_of([["f"]]), tmp_path / "x.csv")
    with pytest.raises(ValueError, match="the label 'NA' is an empty cell in CSV"):
        open_source(path, replace(SCHEMA, groups=Groups("sex", ("f", "NA"))))


def test_without_groups_the_column_is_not_read(tmp_path: Path) -> None:
    path = saved(rows_of([["f", "whatever"], [None, "m"]]), tmp_path / "x.parquet")
    for part in episodes(open_source(path, replace(SCHEMA, groups=None))):
        assert part.group is None


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({"column": "sex"}, "groups.labels is missing"),
        ({"labels": ["f"]}, "groups.column is missing"),
        ({"column": "sex", "labels": []}, "groups.labels has 0 entries: must have 1 to 12"),
        ({"column": "sex", "labels": [str(i) for i in range(13)]}, "has 13 entries: must have 1 to 12"),
        ({"column": "sex", "labels": ["f", "f"]}, "holds 'f' twice"),
        ({"column": "sex", "labels": ["f", ""]}, "groups.labels = '': must be a text"),
        ({"column": "sex", "labels": ["f", 1]}, "groups.labels = 1: must be a text"),
        ({"column": "sex", "labels": "f"}, "groups.labels = 'f': must be a list"),
        ({"column": "", "labels": ["f"]}, "groups.column = '': must be a text"),
        ({"column": "state", "labels": ["f"]}, "groups.column = 'state': must be a column that is not named"),
        ({"column": "sex", "labels": ["f"], "other": 1}, "unknown key groups.other"),
        ("sex", "groups = 'sex': must be a table"),
    ],
)
def test_what_is_wrong_in_the_declaration_is_named(groups: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_schema({**PLAIN, "groups": groups})


def test_provenance_of_groups_is_asked_for_with_groups_only() -> None:
    stated = {"provenance": {"groups": "protocol"}}
    with pytest.raises(ValueError, match="provenance key = 'groups'"):
        parse_schema({**PLAIN, **stated})
    groups = {"groups": {"column": "sex", "labels": ["f", "m"]}}
    assert "groups" in parse_schema({**PLAIN, **groups}).unstated
    assert "groups" not in parse_schema({**PLAIN, **groups, **stated}).unstated
    assert "groups" not in parse_schema(PLAIN).unstated
    leaked = {"provenance": {"groups": "this data"}}
    assert parse_schema({**PLAIN, **groups, **leaked}).from_this_data == ("groups",)


def test_groups_are_facts_of_the_schema(tmp_path: Path) -> None:
    write_schema(SCHEMA, tmp_path / "S.toml")
    again = read_schema(tmp_path / "S.toml")
    assert again.groups == GROUPS
    assert again.hash == SCHEMA.hash
    others = [
        replace(SCHEMA, groups=None), replace(SCHEMA, groups=Groups("gender", GROUPS.labels)),
        replace(SCHEMA, groups=Groups("sex", ("m", "f", "other"))),
    ]  # fmt: skip
    assert len({SCHEMA.hash, *(one.hash for one in others)}) == 4
    assert SCHEMA.spec().groups == 3
    assert others[0].spec().groups == 1


def test_made_up_people_are_of_the_groups_in_turn(tmp_path: Path) -> None:
    write_made_up(SCHEMA, 30, tmp_path / "x.parquet")
    found = [np.asarray(part.group) for part in episodes(open_source(tmp_path / "x.parquet", SCHEMA))]
    assert np.bincount(np.concatenate(found)).tolist() == [20, 20, 20]


def test_records_that_are_prepared_have_no_groups_yet() -> None:
    content = {
        **{key: PLAIN[key] for key in ("dataset", "horizon", "unit")},
        "groups": {"column": "sex", "labels": ["f"]}, "prepare": {"user": "p", "values": {}, "states": {},
        "actions": {}},
    }  # fmt: skip
    with pytest.raises(ValueError, match="groups: must be left out, .prepare. makes no column of groups"):
        parse_declaration(content)
