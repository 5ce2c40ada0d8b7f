"""Preparation of raw vital signs: contexts instead of states."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

import discreet as dr
from discreet.data.prepare import prepare
from discreet.data.prepare_config import parse_declaration, read_prepare_config
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.pipeline.learn import learn
from discreet.pipeline.verify import verify

TEXT = """
dataset = "ward"
unit = "patient"
horizon = 3
reward = { low = 0.0, high = 1.0 }

[prepare]
user = "patient"
time = "charted"
step = "4 hours"
long = "cut"

[prepare.values.pressure]
column = "mbp"
within = "last"
range = [20, 250]
outside = "missing"
missing = "refuse"

[prepare.values.lactate]
column = "lactate"
within = "last"
carry = 1

[prepare.values.drug]
column = "drug"
within = "last"
categories = { no = "no", yes = "yes" }
missing = { value = "no" }

[prepare.actions]
product = ["drug"]

[prepare.end]
column = "outcome"
states = { home = "discharged", died = "dead" }

[prepare.reward]
on = { discharged = 1.0 }

[context.columns]
pressure = { range = [40, 140] }
lactate = { range = [0, 10] }

[provenance]
context = "literature"
actions = "protocol"
"""


def records(people=40):
    """Return raw records: three readings of each person, four hours apart."""
    rng, rows = np.random.default_rng(0), []
    for person in range(people):
        home = "home" if rng.random() < 0.5 else "died"
        for hour in (0, 4, 8):
            rows.append({
                "patient": f"p{person}", "charted": f"2024-01-01 {hour:02d}:10", "mbp": 60.0 + hour,
                "lactate": 2.0 if hour == 0 else np.nan, "drug": ["no", "yes"][int(rng.integers(2))],
                "outcome": home,
            })  # fmt: skip
    rows[0]["mbp"] = 999.0
    return pd.DataFrame(rows)


def test_raw_readings_are_kept_and_learned_from(tmp_path):
    (tmp_path / "P.toml").write_text(TEXT)
    records().to_csv(tmp_path / "raw.csv", index=False)
    found = prepare(tmp_path / "raw.csv", tmp_path / "P.toml", tmp_path / "out")
    assert (found.people, found.steps) == (40, 120)
    schema = read_schema(tmp_path / "out" / "schema.toml")
    assert schema.context.columns == ("pressure", "lactate")
    assert schema.provenance == {"context": "literature", "actions": "protocol"}
    assert schema.return_bound == (0.0, 1.0)
    rows = parquet.read_table(tmp_path / "out" / "rows.parquet").to_pandas()
    assert list(rows.columns) == ["user", "episode", "step", "action", "reward", "pressure", "lactate"]
    first = rows[rows.user == 0]
    assert np.isnan(first.pressure.iloc[0])  # outside of its range, then missing
    assert first.pressure.tolist()[1:] == [64.0, 68.0]
    assert first.lactate.tolist()[:2] == [2.0, 2.0]  # carried for one step
    assert np.isnan(first.lactate.iloc[2])
    source = open_source(tmp_path / "out" / "rows.parquet", schema)
    made = learn(source, LinearAdvantage(), tmp_path / "run", ledger=None,
                 privatizer=dr.Central(epsilon=1.0, delta=1e-3), judge_share=0.5, workers=1)  # fmt: skip
    assert [check.name for check in verify(made.folder) if not check.ok] == []


def changed(old, new, tmp_path):
    """Return the declaration with one text replaced."""
    assert old in TEXT
    path = tmp_path / "P.toml"
    path.write_text(TEXT.replace(old, new))
    return read_prepare_config(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("pressure = { range = [40, 140] }", "pulse = { range = [40, 140] }", "context.columns"),
        ("pressure = { range = [40, 140] }", "drug = { range = [0, 1] }", "has categories"),
        ("pressure = { range = [40, 140] }", "pressure = { range = [140, 40] }", "low < high"),
        ("pressure = { range = [40, 140] }", "pressure = { }", "range is missing"),
        (
            "[prepare.actions]",
            '[prepare.states]\nproduct = ["drug"]\n[prepare.actions]',
            "instead of states",
        ),
        ("horizon = 3", "horizon = 3\nepisodes_per_user = 2", "episodes_per_user"),
    ],
)
def test_bad_declarations_are_refused(old, new, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        changed(old, new, tmp_path)


def test_an_end_is_required():
    with pytest.raises(ValueError, match=r"prepare\.end is missing"):
        parse_declaration({
            "dataset": "d", "unit": "p", "horizon": 1, "reward": {"low": 0.0, "high": 1.0},
            "context": {"columns": {"x": {"range": [0, 1]}}},
            "prepare": {"user": "u", "values": {"x": {"column": "x"}}, "actions": {"product": ["x"]}},
        })  # fmt: skip
