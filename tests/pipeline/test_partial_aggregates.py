"""Counting in parts: the same sums and the same release as in one place; nobody twice."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import discreet as dr
from discreet.cli import app
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema, write_schema
from discreet.data.validate import DataError
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.ledger.ledger import Ledger
from discreet.pipeline import partial_aggregates as counted
from discreet.pipeline.learn import learn
from discreet.pipeline.partial_aggregates import PartialAggregateFile, aggregate_part, merge_aggregates
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
STEPS = Schema("ward", "patient", Layout(5, 3, 4), terminal=(4,), episodes_per_user=2, contribute="random")
STATIONARY = Schema(
    "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}
)  # fmt: skip
KEY = bytes(range(32))
WAYS = {
    "decision-points": (STATIONARY, dr.DecisionPoints(), dr.Central(epsilon=1.0, delta=1e-6)),
    "dp-apvi": (STEPS, DPAPVI(), dr.Central(epsilon=1.0, delta=1e-6)),
    "apvi": (STEPS, APVI(), None),
}


def split(schema: Schema, folder: Path, parts: int = 3) -> list[Path]:
    """Made-up people, whole ones in each of some files."""
    write_made_up(schema, 120, folder / "all.parquet", seed=4)
    frame = pd.read_parquet(folder / "all.parquet")
    who = frame["user"].astype("category").cat.codes % parts
    paths = [folder / f"part-{i}.parquet" for i in range(parts)]
    for i, path in enumerate(paths):
        frame[who == i].to_parquet(path)
    return paths


@pytest.mark.parametrize("name", WAYS)
def test_parts_are_the_whole(name: str, tmp_path: Path) -> None:
    """Equal sums; with the same seed an equal release, policy and report."""
    schema, learner, privatizer = WAYS[name]
    files = split(schema, tmp_path)
    whole = aggregate_part(open_source(tmp_path / "all.parquet", schema), learner, KEY)
    parts = [aggregate_part(open_source(file, schema), learner, KEY) for file in files]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.tally")
    merged = merge_aggregates([tmp_path / f"{i}.tally" for i in (2, 0, 1)])
    assert {*map(tuple, merged.people.tolist())} == {*map(tuple, whole.people.tolist())}
    assert len(merged.people) == 120
    how: dict[str, Any] = {"privatizer": privatizer, "ledger": None}
    if privatizer is not None:
        how["randomness"] = Seeded(3)
    if schema.contribute == "error":  # else which episodes count is drawn anew
        assert merged.tally == whole.tally
        learn(open_source(tmp_path / "all.parquet", schema), learner, tmp_path / "a", **how)
        learn(merged, learner, tmp_path / "b", schema=schema, **how)
        for file in ("policy.csv", "report.md", "report.html", "report.json"):
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    else:
        learn(merged, learner, tmp_path / "b", schema=schema, **how)
    assert [check.name for check in verify(tmp_path / "b", None) if not check.ok] == []


def test_a_file_is_private_and_raw_and_says_so(tmp_path: Path) -> None:
    (file, *_) = split(STATIONARY, tmp_path)
    part = aggregate_part(open_source(file, STATIONARY), dr.DecisionPoints(), KEY)
    assert repr(part) == "<PartialAggregateFile of 40 people: raw data, not private>"
    path = tmp_path / "p.tally"
    part.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"exact sums of people's data: raw" in path.read_bytes()
    with pytest.raises(ValueError, match="exists already"):
        part.save(path)
    again = PartialAggregateFile.load(path)
    assert again.tally == part.tally
    np.testing.assert_array_equal(again.people, part.people)
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), max(1, len(content) // 60)):
        broken = bytearray(content)
        broken[at] ^= 1
        with pytest.raises(ValueError, match=r"content"):
            PartialAggregateFile.from_bytes(bytes(broken))


def test_nobody_is_in_two_parts(tmp_path: Path) -> None:
    files = split(STATIONARY, tmp_path)
    one, two, _ = (pd.read_parquet(file) for file in files)
    mine = dr.DecisionPoints()
    hers = one[one["user"] == one["user"].iloc[0]]
    moved = pa.Table.from_pandas(pd.concat([two, hers]), preserve_index=False)
    first = aggregate_part(open_source(files[0], STATIONARY), mine, KEY)
    with pytest.raises(ValueError, match="users who are in two of them: 1 "):
        merge_aggregates([first, aggregate_part(open_source(moved, STATIONARY), mine, KEY)])
    with pytest.raises(ValueError, match="in two of them: 40 |no user may be counted twice"):
        merge_aggregates([first, aggregate_part(open_source(files[0], STATIONARY), mine, KEY)])
    with pytest.raises(ValueError, match="no user may be counted twice"):
        merge_aggregates([first, first])


def test_names_are_texts() -> None:
    numbers, texts = pa.array([7, 12]), pa.array(["7", "012"])
    a, b = counted._hashed(numbers, KEY), counted._hashed(texts, KEY)
    assert (a[0] == b[0]).all()
    assert not (a[1] == b[1]).any()
    assert not (counted._hashed(numbers, bytes(32)) == a).any()  # the key matters


def test_repeated_people_by_a_slow_account() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        people = draw.integers(0, 4, (draw.integers(1, 12), 2)).astype(np.uint64)
        assert counted._repeated(people) == len(people) - len({tuple(row) for row in people.tolist()})


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    files = split(STATIONARY, tmp_path)
    part = aggregate_part(open_source(files[0], STATIONARY), dr.DecisionPoints(), KEY)
    with pytest.raises(ValueError, match="counted with another key"):
        merge_aggregates(
            [part, aggregate_part(open_source(files[1], STATIONARY), dr.DecisionPoints(), bytes(32))]
        )
    with pytest.raises(ValueError, match="counted with another question"):
        merge_aggregates([part, aggregate_part(open_source(files[1], STATIONARY), DPAPVI(), KEY)])
    other = Schema("ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 0.5})
    with pytest.raises(ValueError, match="counted with another schema"):
        merge_aggregates([part, aggregate_part(open_source(files[1], other), dr.DecisionPoints(), KEY)])
    with pytest.raises(ValueError, match="at least one"):
        merge_aggregates([])
    how: dict[str, Any] = {"privatizer": dr.Central(epsilon=1.0, delta=1e-6), "ledger": None}
    with pytest.raises(ValueError, match="question = 'counts of every step': must be that under which"):
        learn(part, DPAPVI(), tmp_path / "o", schema=STATIONARY, **how)
    with pytest.raises(ValueError, match="schema = .*: must be that under which"):
        learn(part, dr.DecisionPoints(), tmp_path / "o", schema=other, **how)
    with pytest.raises(ValueError, match="schema: must be given with a counted part"):
        learn(part, dr.DecisionPoints(), tmp_path / "o", **how)
    with pytest.raises(ValueError, match="schema: must be given only"):
        learn(
            open_source(files[0], STATIONARY), dr.DecisionPoints(), tmp_path / "o", schema=STATIONARY, **how
        )
    linear = dr.learners.DPVAPVI(rho=1.0)
    with pytest.raises(ValueError, match="dp-vapvi.*cannot be counted in parts"):
        aggregate_part(open_source(files[0], STATIONARY), linear, KEY)
    with pytest.raises(ValueError, match="key: must be 32 secret bytes"):
        aggregate_part(open_source(files[0], STATIONARY), dr.DecisionPoints(), b"short")
    broken = pd.read_parquet(files[0])
    broken.loc[broken.index[3], "state"] = 17
    with pytest.raises(DataError):
        aggregate_part(open_source(broken, STATIONARY), dr.DecisionPoints(), KEY)
    assert not (tmp_path / "o").exists()


def test_by_the_commands(tmp_path: Path) -> None:
    files = split(STATIONARY, tmp_path)
    write_schema(STATIONARY, tmp_path / "S.toml")

    def call(*arguments: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, [str(one) for one in arguments])
        assert done.exit_code == code, done.output
        return done.output

    call("aggregate", "--new-key", tmp_path / "run.key")
    assert stat.S_IMODE((tmp_path / "run.key").stat().st_mode) == 0o600
    assert "exists already" in call("aggregate", "--new-key", tmp_path / "run.key", code=2)
    asked = ("--schema", tmp_path / "S.toml", "--key", tmp_path / "run.key")
    for i, file in enumerate(files):
        assert "RAW DATA" in call("aggregate", file, *asked, "--out", tmp_path / f"{i}.tally")
    tallies = [tmp_path / f"{i}.tally" for i in range(3)]
    budget = ("--epsilon", 1.0, "--delta", 1e-6, "--ledger", tmp_path / "ledger.sqlite")
    call("learn", *tallies, "--schema", tmp_path / "S.toml", *budget, "--out", tmp_path / "out")
    call("verify", tmp_path / "out", "--ledger", tmp_path / "ledger.sqlite")
    assert "must be a new file" in call("aggregate", files[0], *asked, "--out", tallies[0], code=2)
    assert "must end in .tally" in call("aggregate", files[0], *asked, "--out", tmp_path / "x.npz", code=2)
    assert "key is missing" in call("aggregate", files[0], "--schema", asked[1], "--out", "a.tally", code=2)
    (tmp_path / "empty.key").touch()
    empty = ("--schema", asked[1], "--key", tmp_path / "empty.key", "--out", tmp_path / "b.tally")
    assert "has 0 bytes" in call("aggregate", files[0], *empty, code=2)
    again = ("learn", *tallies[:2], tallies[0], "--schema", asked[1], *budget, "--out", tmp_path / "o")
    assert "no user may be counted twice" in call(*again, code=2)
    whole = ("learn", *tallies, "--schema", asked[1], *budget, "--out", tmp_path / "o")
    assert "delimiter = ';': must not be given" in call(*whole, "--source", "delimiter=;", code=2)
    assert "must " in call("learn", tallies[0], files[1], "--schema", asked[1], *budget, "--out", "o", code=2)
    assert not (tmp_path / "o").exists()


def test_an_owners_rule_goes_with_the_part(tmp_path: Path) -> None:
    """What was counted under a rule is released under it, wherever the part lies."""
    data = tmp_path / "data"
    data.mkdir()
    files = split(STATIONARY, data)
    how: dict[str, Any] = {"privatizer": dr.Central(epsilon=1.0, delta=1e-6), "schema": STATIONARY}
    with Ledger.open(tmp_path / "own.sqlite") as own, Ledger.open(tmp_path / "other.sqlite") as other:
        dr.ledger.require_ledger(data, own, "ward")
        parts = [aggregate_part(open_source(file, STATIONARY), dr.DecisionPoints(), KEY) for file in files]
        parts[0].save(tmp_path / "0.tally")
        merged = merge_aggregates([tmp_path / "0.tally", *parts[1:]])
        for ledger in (None, other):
            with pytest.raises(ValueError, match="by the owner's rule"):
                learn(merged, dr.DecisionPoints(), tmp_path / "out", ledger=ledger, **how)
        assert not (tmp_path / "out").exists()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        for i, file in enumerate(split(STATIONARY, elsewhere)):  # counted under no rule, kept under one
            aggregate_part(open_source(file, STATIONARY), dr.DecisionPoints(), KEY).save(data / f"{i}.tally")
        for given in (
            merge_aggregates(sorted(data.glob("*.tally"))),
            PartialAggregateFile.load(data / "0.tally"),
        ):
            with pytest.raises(ValueError, match="--no-ledger is forbidden"):
                learn(given, dr.DecisionPoints(), tmp_path / "out", ledger=None, **how)
        learn(merged, dr.DecisionPoints(), tmp_path / "out", ledger=own, **how)
        assert [check.name for check in verify(tmp_path / "out", own) if not check.ok] == []
    parts[1].rules = {path: replace(rule, ledger="other") for path, rule in parts[1].rules.items()}
    with pytest.raises(ValueError, match="counted under another rule"):
        merge_aggregates(parts)
    renamed = Schema("elsewhere", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4))
    with pytest.raises(ValueError, match=r"dataset = 'elsewhere': must be 'ward' by the owner's rule"):
        aggregate_part(open_source(files[0], renamed), dr.DecisionPoints(), KEY)
