"""Commands for records as they are: statuses, streams, files; the way from records to a verified folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call

from benchmarks.studies.ward_verdicts import verdicts

ROOT = Path(__file__).parents[2]
WARD = ROOT / "docs" / "examples" / "ward"
pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ["--epsilon", "3", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's records, of fewer people."""
    out = tmp_path_factory.mktemp("ward") / "records"
    make = [sys.executable, str(WARD / "make_records.py"), "--patients", "1500", "--out", str(out)]
    subprocess.run(make, check=True, env={**os.environ, "PYTHONWARNINGS": "error"})
    return out


def test_from_messy_records_to_a_verified_folder(records: Path, tmp_path: Path, own_ledger: Path) -> None:
    """The commands of docs/prepare.md, in their order."""
    skeleton = call("schema", "--init", records).stdout
    assert "P00" not in skeleton
    assert 'column = "item"' in skeleton
    declaration = WARD / "declaration.toml"
    done = call(
        "prepare", records, "--source", "decimal=,", "--schema", declaration, "--out", tmp_path / "ward"
    )
    assert "1,500 users, 1,500 episodes" in done.stdout
    rows = pd.read_parquet(tmp_path / "ward" / "rows.parquet")
    assert rows["user"].nunique() == 1500
    schema = tmp_path / "ward" / "schema.toml"
    assert "1,500 users" in call("estimate", "--schema", schema, "--users", 1500, *BUDGET).stdout
    learn = ["learn", tmp_path / "ward" / "rows.parquet", "--schema", schema, *BUDGET]
    call(*learn, "--out", tmp_path / "policy")
    assert "are as stated" in call("verify", tmp_path / "policy").stdout
    statement = json.loads((tmp_path / "policy" / "statement.json").read_text())
    assert statement["population"]["users"] == 1500
    assert statement["population"]["provenance"]["states"] == "literature"
    assert not [line for line in statement["warnings"] if "Nobody stated" in line]
    labels = set(pd.read_csv(tmp_path / "policy" / "policy.csv")["state_label"])
    assert "pressure<65 / lactate>=2" in labels
    for path in (tmp_path / "policy").iterdir():
        assert b"P000" not in path.read_bytes()


def test_what_the_ward_was_is_what_was_prepared(records: Path, tmp_path: Path) -> None:
    """By other means: the outcomes and the number of steps of each patient, from the raw files."""
    call(
        "prepare",
        records,
        "--source",
        "decimal=,",
        "--schema",
        WARD / "declaration.toml",
        "--out",
        tmp_path / "ward",
    )
    rows = pd.read_parquet(tmp_path / "ward" / "rows.parquet")
    ends = rows.groupby("user").tail(1)["next_state"].astype(str).value_counts().to_dict()
    stays = pd.read_csv(records / "stays.csv", sep=";")
    died = int((stays["outcome"] == "died").sum())
    assert ends == {"died": died, "discharged": 1500 - died}
    assert not rows["reward"].any()  # paid on arrival, by the schema's rule
    drugs = pd.read_csv(records / "drugs.csv.gz", sep=";", decimal=",")
    given = rows["action"].astype(str).value_counts()
    for label, drug in (("noradrenaline", "Noradrenaline"), ("fluids", "Ringer")):
        doses = int((drugs["drug"] == drug).sum())
        assert doses - 5 <= given[label] <= doses  # some lie in the hour that the clock showed twice


def test_the_state_of_the_ward_is_enough_and_pressure_alone_is_not(records: Path, tmp_path: Path) -> None:
    """What docs/tutorials/data.md shows, of exact sums."""
    text = (WARD / "declaration.toml").read_text()
    (tmp_path / "whole.toml").write_text(text)
    (tmp_path / "hole.toml").write_text(text.replace('["pressure", "lactate"]', '["pressure"]'))
    kinds = []
    for name in ("whole", "hole"):
        ask = ["--schema", tmp_path / f"{name}.toml", "--out", tmp_path / name]
        call("prepare", records, "--source", "decimal=,", *ask)
        kinds += verdicts(tmp_path / name, epsilon=None, draws=1)
    assert kinds == ["shown", "state incomplete"]


def test_the_last_value_of_states_becomes_a_column_of_groups(records: Path, tmp_path: Path) -> None:
    """The script that docs/prepare.md names, with groups of the ward's stays."""
    text = (WARD / "declaration.toml").read_text().replace('"pressure", "lactate"', '"pressure", "kind"')
    kind = '[prepare.values.kind]\ncolumn = "outcome"\nof = "episode"\ncategories = '
    kind += '{ home = "a", ward = "a", died = "b" }\n'
    (tmp_path / "D.toml").write_text(text.replace("[prepare.states]", f"{kind}\n[prepare.states]"))
    ask = ["--schema", tmp_path / "D.toml", "--out", tmp_path / "by-kind"]
    call("prepare", records, "--source", "decimal=,", *ask)
    subprocess.run([sys.executable, str(WARD / "add_groups.py"), tmp_path / "by-kind", "kind"], check=True)
    grouped = tmp_path / "by-kind" / "grouped.parquet"
    assert grouped.stat().st_mode & 0o777 == 0o600
    rows = pd.read_parquet(grouped)
    assert set(rows["kind"]) == {"a", "b"}
    assert not rows["state"].str.contains("kind").any()
    schema = tmp_path / "by-kind" / "grouped.toml"
    call("learn", grouped, "--schema", schema, *BUDGET, "--no-ledger", "--out", tmp_path / "policy")
    found = json.loads((tmp_path / "policy" / "report.json").read_text())["groups"]
    assert {"a", "b"} == {one["group"] for one in found}


def test_offences_end_with_status_2_and_a_private_file(records: Path, tmp_path: Path) -> None:
    text = (WARD / "declaration.toml").read_text().replace('unreadable = "missing"\n', "")
    (tmp_path / "P.toml").write_text(text)
    ask = [
        "prepare",
        records,
        "--source",
        "decimal=,",
        "--schema",
        tmp_path / "P.toml",
        "--out",
        tmp_path / "ward",
    ]
    said = call(*ask, code=2)
    assert "number that cannot be read" in said.stderr
    assert "k.A." not in said.stderr + said.stdout
    private = tmp_path / "ward.offending.csv"
    assert private.stat().st_mode & 0o777 == 0o600
    assert set(pd.read_csv(private, keep_default_na=False)["cell"]) == {"k.A.", ">300"}
    assert not (tmp_path / "ward").exists()


FORECAST = """
Noise moves each of 20 centres by up to 4.3% of a value's range (95 %, if 1/20 of the users belong to it).
20 public points lie about 22.4% of the ranges apart. The cost is epsilon = 1 at delta = 1e-06
(rho = 0.02436), which adds to the cost of every later release of these users. Public ones cost nothing.
"""


def test_a_codebook_of_the_ward_as_the_page_shows(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(WARD / "codebook.toml", tmp_path)
    ask = ["--schema", "codebook.toml", "--epsilon", 1, "--delta", "1e-6"]
    said = " ".join(call("discretize", "estimate", *ask, "--users", 20000, "--centres", 20).stdout.split())
    assert said.startswith(" ".join(FORECAST.split()))
    assert "HOPELESS" in call("discretize", "estimate", *ask, "--users", 20000, "--centres", 750).stdout
    call("discretize", "fit", records, "--source", "decimal=,", *ask, "--centres", 4, "--out", "fitted")
    call(
        "discretize",
        "fit",
        records,
        "--source",
        "decimal=,",
        *ask,
        "--quantiles",
        "pressure=4",
        "--out",
        "cuts",
    )
    call("discretize", "verify", "fitted")
    call("discretize", "verify", "cuts")
    call("prepare", records, "--source", "decimal=,", "--schema", "codebook.toml", "--out", "ward")
    labels = pd.read_parquet("ward/rows.parquet")["state"].astype(str).unique()
    assert set(labels) <= {f"centre {i}" for i in range(4)}
    assert (tmp_path / "ward" / "codebook.csv").is_file()


def test_a_codebook_by_commands(tmp_path: Path, own_ledger: Path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat(np.arange(3000), 4), "when": np.tile(np.arange(4), 3000)})
    frame["x"] = draw.choice([-5.0, 5.0], 3000)[frame["who"]] + draw.normal(0, 0.5, len(frame))
    frame.to_parquet(tmp_path / "x.parquet")
    text = """
dataset = "w"
unit = "p"
horizon = 3
reward = { low = -10.0, high = 10.0 }
[prepare]
user = "who"
time = { column = "when", numbers = "hours" }
[prepare.values.x]
column = "x"
range = [-10, 10]
[prepare.values.a]
column = "x"
cuts = [0]
[prepare.states.codebook]
file = "fitted/codebook.csv"
scale = { x = 1 }
[prepare.actions]
product = ["a"]
[prepare.reward]
value = "x"
"""
    (tmp_path / "P.toml").write_text(text)
    ask = ["--schema", tmp_path / "P.toml", "--centres", 2, "--epsilon", 1, "--delta", "1e-6"]
    said = call("discretize", "estimate", *ask, "--users", 3000)
    assert "Public ones cost nothing" in " ".join(said.stdout.split())
    budgets = [
        line.split()[0] for line in said.stdout.splitlines() if line.rstrip().endswith((" no", " yes"))
    ]
    assert budgets == ["1", "0.1", "10"]
    assert (
        json.loads(call("discretize", "estimate", *ask, "--users", 30, "--json").stdout)["hopeless"] is True
    )
    fit = ["discretize", "fit", tmp_path / "x.parquet", "--out", tmp_path / "fitted", *ask[:-4]]
    refused = call(*fit, "--epsilon", "1e-3", "--delta", "1e-6", code=2)
    assert "HOPELESS" in refused.stderr
    call("discretize", "fit", tmp_path / "x.parquet", *ask, "--out", tmp_path / "fitted")
    call("discretize", "verify", tmp_path / "fitted")
    found = sorted(pd.read_csv(tmp_path / "fitted" / "codebook.csv")["x"])
    assert found == pytest.approx([-5, 5], abs=0.5)
    assert "w: 1 release, together epsilon = 1 at" in " ".join(call("ledger").stdout.split())
    call("prepare", tmp_path / "x.parquet", "--schema", tmp_path / "P.toml", "--out", tmp_path / "rows")
    learn = ["learn", tmp_path / "rows" / "rows.parquet", "--schema", tmp_path / "rows" / "schema.toml"]
    call(*learn, "--epsilon", 1, "--delta", "1e-6", "--out", tmp_path / "policy")
    call("verify", tmp_path / "policy")
    sentence = json.loads((tmp_path / "policy" / "statement.json").read_text())["sentence"]
    assert "2 releases" in sentence  # the codebook is counted
    for bad, message in (
        (["discretize", "guess"], "what = 'guess'"),
        (["discretize", "estimate", *ask], "users is missing"),
        (["discretize", "fit", *ask], "out is missing"),
        (["discretize", "fit", *ask, "--out", tmp_path / "no"], "files: none is given"),
        (["discretize", "estimate", *ask, "--users", 9, "--quantiles", "x"], "quantiles = 'x'"),
        (["discretize", "verify"], "must be the folder"),
        (["prepare", tmp_path / "x.parquet"], "schema is missing"),
        (["prepare", tmp_path / "x.parquet", "--schema", "P.toml"], "out is missing"),
        (["schema"], "init is missing"),
    ):
        assert message in call(*bad, code=2).stderr


def test_a_skeleton_overwrites_nothing(records: Path, tmp_path: Path) -> None:
    out = tmp_path / "P.toml"
    call("schema", "--init", records / "charts.csv", "--init", records / "stays.csv", "--out", out)
    assert "[prepare.values.value]" in out.read_text()
    assert "admitted" in out.read_text()
    said = call("schema", "--init", records, "--out", out, code=2).stderr
    assert "overwrites nothing" in said


def test_learn_reads_a_data_base_and_says_that_no_delta_was_given(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = tmp_path / "people.parquet"
    options = ["--env-option", "states=3", "--env-option", "actions=2", "--env-option", "horizon=3"]
    call("simulate-data", "random", *options, "--users", 60, "--out", rows)
    with duckdb.connect(str(tmp_path / "study.db")) as base:
        base.execute(f"CREATE TABLE steps AS SELECT * FROM '{rows}'")
    schema = ["--schema", rows.with_suffix(".toml")]
    ask = ["learn", f"duckdb://{tmp_path / 'study.db'}?table=steps", *schema]
    said = call(*ask, "--epsilon", 1, "--out", tmp_path / "a")
    assert "no --delta is given: epsilon is pure" in said.stderr
    statement = json.loads((tmp_path / "a" / "statement.json").read_text())
    assert statement["guarantee"]["delta"] == 0
    ask = ["learn", rows, "--sql", f"SELECT * FROM '{rows}'", *schema]
    said = call(*ask, "--epsilon", 1, "--delta", 0, "--out", tmp_path / "b")
    assert "no --delta" not in said.stderr
    assert "no --delta" in call("estimate", *schema, "--users", 60, "--epsilon", 1).stderr
    assert "no --delta" not in call("estimate", *schema, "--users", 60, "--rho", 1, "--delta", "1e-6").stderr


def test_a_return_bound_that_nothing_would_use_is_refused(tmp_path: Path) -> None:
    rows = tmp_path / "people.parquet"
    options = ["--env-option", "states=3", "--env-option", "actions=2", "--env-option", "horizon=3"]
    call("simulate-data", "random", *options, "--users", 60, "--out", rows)
    ask = ["learn", rows, "--schema", rows.with_suffix(".toml"), "--learner", "dp-pevi", *BUDGET]
    said = call(*ask, "--report", "return_bound=1", "--out", tmp_path / "out", code=2).stderr
    assert "return_bound = 1: must be left out for dp-pevi" in said
    assert not (tmp_path / "out").exists()
    call(*ask, "--out", tmp_path / "out", "--no-ledger")
    again = ["replan", tmp_path / "out" / "release.parquet", "--out", tmp_path / "again"]
    assert "return_bound = 1" in call(*again, "--report", "return_bound=1", code=2).stderr


def test_the_screen_tells_of_censored_ends_and_of_a_rule_of_ends(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        [(who, at, -1.0 if at else 1.0, "ab"[(who + at) % 2], ["home", "dead", "moved", ""][who % 4])
         for who in range(40) for at in range(2)],
        columns=["who", "at", "x", "k", "out"],
    )  # fmt: skip
    frame.to_csv(tmp_path / "records.csv", index=False)
    (tmp_path / "P.toml").write_text("""
dataset = "d"
unit = "patient"
horizon = 2
stationary = true
reward = { low = 0.0, high = 1.0 }
[prepare]
user = "who"
time = { column = "at", numbers = "hours" }
[prepare.values.x]
column = "x"
cuts = [0]
[prepare.values.k]
column = "k"
categories = ["a", "b"]
[prepare.states]
product = ["x"]
[prepare.actions]
product = ["k"]
[prepare.end]
column = "out"
states = { home = "home", dead = "dead" }
censored = ["moved", ""]
[prepare.reward]
on = { home = 1.0 }
""")
    asked = ("prepare", tmp_path / "records.csv", "--schema", tmp_path / "P.toml", "--out")
    said = " ".join(call(*asked, tmp_path / "one").stdout.split())
    assert "50.0% of the episodes end censored (20 of 40). They are not removed" in said
    assert 'the schema has reward.outcomes = { "home" = 1, "dead" = 0 } and return_bound = [0, 1]' in said
    facts = json.loads(call(*asked, tmp_path / "two", "--json").stdout)
    assert facts["counts"]["episodes with a censored end"] == 20
    assert len(facts["notes"]) == 2
    learn = ["learn", tmp_path / "one" / "rows.parquet", "--schema", tmp_path / "one" / "schema.toml"]
    done = call(*learn, "--epsilon", "10", "--delta", "1e-6", "--out", tmp_path / "policy")
    assert done.exit_code == 0
    assert json.loads((tmp_path / "policy" / "report.json").read_text())["censored"] is not None
    call("verify", tmp_path / "policy")
