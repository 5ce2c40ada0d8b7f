"""Commands for stored trajectories as a process sees them: statuses, streams, JSON, folders."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call

from discreet.ledger.ledger import Ledger

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


def test_the_main_job(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path, figures_by_matplotlib: None
) -> None:
    rows, schema = data
    out = tmp_path / "out"
    done = call(
        "learn", rows, "--schema", schema, *BUDGET, "--out", out, "--report", "operator=me", "--report",
        "purpose=a look", "--learner", "dp-apvi",
    )  # fmt: skip
    assert "the ledger is new" in done.stderr
    assert "Suppose that you are a" in done.stdout
    said = call("verify", out).stdout
    assert "as stated" in said
    assert str(own_ledger) in said.replace("\n", "")
    assert call("verify", out, "--no-ledger").exit_code == 0
    again = ["replan", out / "release.parquet"]
    call(*again, "--out", tmp_path / "again", "--set", "threshold=0", "--unsupported", "policy")
    known = tmp_path / "known.npy"
    np.save(known, np.full((3, 2), 0.5))
    call(*again, "--out", tmp_path / "known", "--rewards", known)
    document = json.loads(call("ledger", "--json").stdout)
    assert [entry["entry"] for entry in document["entries"]] == ["begin", "reserve", "mark"]
    assert document["entries"][1]["purpose"] == "a look"
    for text in (json.dumps(document["entries"]), *(path.read_text("latin-1") for path in out.iterdir())):
        assert str(rows) not in text
        assert str(tmp_path) not in text
    assert document["totals"][0]["reservations"] == 1
    for folder in ("again", "known"):
        assert json.loads(call("verify", tmp_path / folder, "--json").stdout)["ok"] is True


def test_broken_rows_are_told_and_cost_nothing(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path
) -> None:
    table = pd.read_parquet(data[0])
    table.loc[7, "reward"] = 9.0
    table.to_csv(tmp_path / "broken.csv", index=False)
    refused = call(
        "learn", tmp_path / "broken.csv", "--schema", data[1], *BUDGET, "--out", tmp_path / "out", code=2
    )
    assert "Offending rows in total: reward: 1" in refused.stderr
    assert refused.stdout == ""
    assert not (tmp_path / "out").exists()
    with Ledger.open(own_ledger) as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["begin"]


def test_a_rehearsal_touches_no_ledger(data: tuple[Path, Path], tmp_path: Path, own_ledger: Path) -> None:
    out = tmp_path / "out"
    call("dry-run", data[1], *BUDGET, "--out", out, "--users", 30)
    text = (out / "statement.md").read_text()
    assert "SYNTHETIC" in text
    assert not own_ledger.exists()
    assert call("verify", out).exit_code == 0


@pytest.mark.parametrize("algorithm", ["dp-pevi", "dp-vapvi"])
def test_linear_algorithms(algorithm: str, data: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("learn", data[0], "--schema", data[1], "--learner", algorithm, "--rho", 1, "--out", out)
    assert json.loads(call("verify", out, "--json").stdout)["ok"] is True
    call("replan", out / "release.parquet", "--learner", algorithm, "--out", tmp_path / "b")
    assert (tmp_path / "b/policy.csv").read_bytes() == (out / "policy.csv").read_bytes()


def test_exact_sums_ask_to_be_written_nowhere(data: tuple[Path, Path], tmp_path: Path) -> None:
    learn = ["learn", data[0], "--schema", data[1], "--learner", "apvi", "--out", tmp_path / "out"]
    assert "--no-ledger" in call(*learn, code=2).stderr
    call(*learn, "--no-ledger")
    assert "NO LEDGER" in (tmp_path / "out/statement.md").read_text()


def test_estimate_by_the_schema(data: tuple[Path, Path]) -> None:
    estimate = ["estimate", "--schema", data[1], "--users", 1000, *BUDGET]
    text = " ".join(call(*estimate).stdout.split())
    assert "noise of visits" in text or "noise of transition_counts" in text
    document = json.loads(call(*estimate, "--json").stdout)
    assert document["guarantee"]["epsilon"] <= 1.0
    assert "must not be given with --schema" in call(*estimate, "--env", "riverswim", code=2).stderr
    assert "must be given with --schema" in call("estimate", "--users", 10, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "1", "--out", "{out}"], "schema is missing"),
        (["--schema", "{schema}", "--epsilon", "1"], "out is missing"),
        (["--schema", "{schema}", "--out", "{out}"], "epsilon is missing"),
        (["--schema", "{schema}", "--out", "{out}", "--epsilon", "0"], "epsilon"),
        (["--schema", "{schema}", "--out", "{out}", *BUDGET, "--seed", "1"], "--no-ledger"),
        (
            ["--schema", "{schema}", "--out", "{out}", *BUDGET, "--learner", "dp-apv"],
            "did you mean 'dp-apvi'",
        ),
        (["--schema", "{schema}", "--out", "{out}", *BUDGET, "--learner", "apvi"], "is not private"),
        (
            ["--schema", "{schema}", "--out", "{out}", *BUDGET, "--unsupported", "guess"],
            "unsupported = 'guess'",
        ),
        (["--schema", "{schema}", "--out", "{out}", *BUDGET, "--set", "c9=1"], "c9"),
        (
            ["--schema", "{schema}", "--out", "{out}", *BUDGET, "--rewards", "x.npy"],
            "--rewards: use discreet replan",
        ),
        (
            ["--schema", "{schema}", "--out", "{out}", *BUDGET, "--synthetic"],
            "--synthetic: use discreet dry-run",
        ),
        (
            ["--from-release", "{out}/release.parquet", "--out", "{out}"],
            "--from-release: use discreet replan",
        ),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, data: tuple[Path, Path], tmp_path: Path) -> None:
    places = {"out": str(tmp_path / "out"), "schema": str(data[1])}
    refused = call("learn", data[0], *(a.format(**places) for a in arguments), code=2)
    assert message in refused.stderr
    assert len(refused.stderr.strip().splitlines()) <= 2
    assert not (tmp_path / "out").exists()


def test_what_a_newcomer_gets_wrong_is_told_and_harms_nothing(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path
) -> None:
    rows, schema = data
    said = call("simulate-data", "random", "--users", 5, "--out", rows, code=2).stderr
    assert "overwrite nothing" in said  # neither people's rows nor a schema written by hand
    out = ["--out", tmp_path / "out"]
    assert "no such file" in call("learn", rows, "--schema", "x.toml", *BUDGET, *out, code=2).stderr
    plain = ["learn", rows, "--schema", schema, "--learner"]
    assert "--no-ledger" in call(*plain, "apvi", *out, code=2).stderr
    assert "delta is missing" in call(*plain, "dp-pevi", "--epsilon", 1, *out, code=2).stderr
    frame = pd.read_parquet(rows)
    frame.loc[3, "state"] = 99
    frame.to_parquet(rows)
    broken = call(*plain, "dp-apvi", *BUDGET, *out, code=2).stderr
    assert "This message is private" in broken
    assert "Nothing was spent" in " ".join(broken.split())
    assert not (tmp_path / "out").exists()
    assert "--delta" in call("ledger", "--limit", 2, "--dataset", "ward").stderr


def test_a_release_of_another_kind_is_refused_and_leaves_nothing(
    data: tuple[Path, Path], tmp_path: Path
) -> None:
    rows, schema = data
    made = call("learn", rows, "--schema", schema, *BUDGET, "--out", tmp_path / "made")
    assert not made.stdout.lstrip().startswith("**")
    again = ["replan", tmp_path / "made" / "release.parquet", "--out", tmp_path / "again"]
    refused = call(*again, "--learner", "dp-pevi", code=2).stderr
    assert "holds counts, for dp-apvi or apvi" in " ".join(refused.split())
    alone = tmp_path / "alone.parquet"
    alone.write_bytes((tmp_path / "made" / "release.parquet").read_bytes())
    assert "in the same folder" in call("replan", alone, "--out", tmp_path / "x", code=2).stderr
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


LOADED = """
import json, sys
from discreet.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["discreet", *arguments]
    try:
        main()
    except SystemExit as end:
        heavy = {"dp_accounting", "matplotlib", "numba", "pandas", "scipy"}
        print(json.dumps([end.code, sorted(heavy & set(sys.modules))]))
    print("the next", file=sys.stderr)
"""
MISTAKES: tuple[tuple[str, list[str], list[str], str], ...] = (
    ("absent.parquet", [], [], "absent.parquet: no such file"),
    ("people.parquet", ["horizon = -3"], [], "horizon = -3: must be"),
    ("people.parquet", ["user_column = 'pid'"], [], "people.parquet: must have one column 'pid'"),
    ("typed.parquet", [], [], "typed.parquet: the column of state must hold integers, not bool"),
    ("people.toml", [], [], "must end in .parquet or .csv"),
    ("people.parquet", [], ["--out", "."], "exists already"),
    ("people.parquet", [], ["--learner", "dp-nothing"], "dp-nothing"),
    ("people.parquet", [], ["--seed", "3"], "must be given with --no-ledger"),
)


def test_files_are_looked_at_before_anything_that_takes_long(data: tuple[Path, Path], tmp_path: Path) -> None:
    """What is wrong is said by a process that has loaded nothing which takes long to load, or to search."""
    rows = pd.read_parquet(data[0])
    rows.assign(state=rows["state"] > 0).to_parquet(tmp_path / "typed.parquet")
    asked = []
    for number, (name, lines, extra, _) in enumerate(MISTAKES):
        kept = [
            line
            for line in data[1].read_text().splitlines()
            if not any(line.startswith(new.partition(" ")[0]) for new in lines)
        ]
        (tmp_path / f"changed{number}.toml").write_text("\n".join([*lines, *kept]))
        asked.append(
            ["learn", name, "--schema", f"changed{number}.toml", "--epsilon", "1", "--delta", "1e-6",
             "--out", "out", *extra]
        )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(asked)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = done.stderr.split("the next\n")
    assert answers.pop() == ""
    for (*_, said), answer in zip(MISTAKES, answers, strict=True):
        assert said in answer
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[2, []]] * len(MISTAKES)
    assert not (tmp_path / "out").exists()
