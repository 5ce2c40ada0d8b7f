"""Commands for stored trajectories as a process sees them: statuses, streams, JSON, folders."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call

from discreet import registry
from discreet.ledger.ledger import Ledger

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """(rows, schema) of 60 made-up people."""
    rows = tmp_path / "people.parquet"
    options = ["--env-option", "states=3", "--env-option", "actions=2", "--env-option", "horizon=3"]
    call("simulate-data", "random", *options, "--users", 60, "--out", rows, "--dataset", "ward")
    return rows, rows.with_suffix(".toml")


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


def test_a_changed_statement_fails_to_verify(data: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("learn", data[0], "--schema", data[1], *BUDGET, "--out", out)
    with open(out / "policy.csv", "a") as file:
        file.write("\n")
    assert "policy.csv" in call("verify", out, code=1).stdout
    assert json.loads(call("verify", out, "--json", code=1).stdout)["ok"] is False


def test_a_wrong_folder_is_stated_in_words(tmp_path: Path) -> None:
    for name in ("", "nowhere"):
        said = " ".join(call("verify", tmp_path / name, code=2).stderr.split())
        assert "must be a folder that `discreet learn` made" in said


def test_the_ledger_holds_the_owners_limit(data: tuple[Path, Path], tmp_path: Path) -> None:
    first = call("ledger", "--dataset", "ward", "--limit", 1.2, "--delta", 1e-6)
    assert "nothing has been spent on 'ward'" in first.stderr
    learn = ["learn", data[0], "--schema", data[1], *BUDGET, "--out"]
    call(*learn, tmp_path / "first")
    refused = call(*learn, tmp_path / "second", code=2)
    assert "owner's limit" in refused.stderr
    assert not (tmp_path / "second").exists()
    text = call("ledger", "--export", tmp_path / "all.jsonl").stdout
    assert "1 release, together epsilon = " in " ".join(text.split())
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 4
    call("ledger", "--export", tmp_path / "all.jsonl", code=2)
    misspelt = call("ledger", "--dataset", "wrad", "--limit", 1.2, "--delta", 1e-6)
    assert "'wrad'" in misspelt.stderr
    assert "(others here: 'ward')" in misspelt.stderr
    assert "must be given with --dataset" in call("ledger", "--limit", 1.0, code=2).stderr


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


# ------------------------------------------------------------------------------ owners and officers
def test_no_query_leads_round_the_owners_rule(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files by SQL, views elsewhere, another population's name, counted parts, a second name of a file."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    rows, schema = data
    Path("ruled").mkdir()
    frame = pd.read_parquet(rows)
    frame.to_csv("ruled/people.csv", index=False)
    call("ledger", "--dataset", "ward", "--limit", 3, "--delta", "1e-6")
    call("ledger", "--dataset", "ward", "--require", "ruled")
    sql = "select * from read_csv_auto('ruled/people.csv')"
    with duckdb.connect("view.duckdb") as base:
        base.execute(f"create view people as {sql}")
    own = ["--schema", schema, "--epsilon", 0.1, "--delta", "1e-6", "--out", "r"]
    asked = ["learn", "duckdb://", "--sql", sql, *own]
    named, rule = ["ruled/people.csv"], "--no-ledger is forbidden"
    for reads in ([], [schema]):
        assert "name each file that it reads" in call(*asked, *reads, "--no-ledger", code=2).stderr
    assert rule in call(*asked, *named, "--no-ledger", code=2).stderr
    view = ["learn", "duckdb://view.duckdb?table=people", *own, "--no-ledger"]
    assert "may read only its database" in call(*view, code=2).stderr
    other = schema.with_name("other.toml")
    other.write_text(schema.read_text().replace('"ward"', '"other"'))
    free = [
        "learn",
        "duckdb://",
        "--sql",
        sql,
        "--schema",
        other,
        "--epsilon",
        50,
        "--delta",
        "1e-6",
        "--out",
        "r",
    ]
    assert "name each file that it reads" in call(*free, code=2).stderr
    assert "dataset = 'other': must be 'ward'" in call(*free, *named, code=2).stderr

    call("aggregate", "--new-key", "key")
    counted = ["aggregate", "duckdb://", "--sql", sql, "--schema", schema, "--key", "key", "--out", "p.tally"]
    assert "name each file that it reads" in call(*counted, code=2).stderr
    call(*counted, *named)
    assert rule in call("learn", "p.tally", *own, "--no-ledger", code=2).stderr

    Path("linked").mkdir()
    Path("linked/free.csv").hardlink_to("ruled/people.csv")
    assert rule in call("learn", "linked/free.csv", *own, "--no-ledger", code=2).stderr
    monkeypatch.chdir("linked")
    assert rule in call("learn", "free.csv", *own, "--no-ledger", code=2).stderr
    linked = ["learn", "duckdb://", "--sql", "from 'free.csv'", "free.csv", *own]
    assert rule in call(*linked, "--no-ledger", code=2).stderr
    assert not Path("r").exists()
    call(*linked)  # with the ledger it goes through
    entries = json.loads(call("ledger", "--json").stdout)["entries"]
    assert [one["entry"] for one in entries] == ["begin", "limit", "reserve", "mark"]


def test_from_an_owners_limit_to_a_signed_folder(
    data: tuple[Path, Path], tmp_path: Path, own_ledger: Path
) -> None:
    pytest.importorskip("cryptography")
    rows, schema = data
    keys = {}
    for name in ("owner", "officer"):
        made = call("keys", "new", tmp_path / "keys" / name)
        assert "private, for you alone" in made.stdout
        keys[name] = json.loads(call("keys", "show", tmp_path / "keys" / name, "--json").stdout)["public_key"]
        assert keys[name] in made.stdout
        assert keys[name] in call("keys", "show", tmp_path / "keys" / f"{name}.pub").stdout
    owner, officer = (tmp_path / "keys" / name for name in keys)
    ward = ["--dataset", "ward"]
    limit = ["ledger", *ward, "--limit", 1.5, "--delta", "1e-6"]
    assert keys["owner"] in call(*limit, "--key", owner).stdout.replace("\n", "")
    for more in ([], ["--key", officer]):
        assert f"must be that of {keys['owner']}" in call(*limit, *more, code=2).stderr
    assert "must be given with --dataset" in call("ledger", "--require", tmp_path, code=2).stderr
    said = call("ledger", "--key", owner, code=2).stderr.replace("\n", " ")
    assert "must be given with --limit, --require or --hand-over" in said
    assert "signed together or not at all" in call("ledger", *ward, "--require", tmp_path, code=2).stderr
    assert "must be in this ledger now" in call("ledger", *ward, "--require", tmp_path, "--key", owner).stderr

    learn = ["learn", rows, "--schema", schema, *BUDGET, "--learner", "dp-apvi", "--out"]
    assert "--no-ledger is forbidden" in call(*learn, tmp_path / "x", "--no-ledger", code=2).stderr
    elsewhere = ["--ledger", tmp_path / "other.sqlite"]
    assert "must be that of identity" in call(*learn, tmp_path / "x", *elsewhere, code=2).stderr
    out = tmp_path / "out"
    call(*learn, out)
    assert "the owner's limit is epsilon 1.5" in call(*learn, tmp_path / "more", code=2).stderr
    assert not (tmp_path / "more").exists()
    assert not (tmp_path / "x").exists()

    asked = ["--public-key", f"{officer}.pub"]
    assert "signed with the key" in call("verify", out, *asked, code=1).stdout
    assert "No signature (" in call("verify", out, "--limit-key", f"{owner}.pub").stdout
    call("verify", out, "--limit-key", f"{officer}.pub", code=1)
    assert "key is missing" in call("sign", out, code=2).stderr
    page = out / "officer.md"
    page.write_bytes(page.read_bytes().replace(b"**Answer 1:** ", b"**Answer 1:** Yes."))
    call("sign", out, "--key", officer, "--name", "A. Weber")
    assert "has signed" in call("sign", out, "--key", officer, code=2).stderr
    said = call("verify", out, *asked, "--limit-key", f"{owner}.pub").stdout
    assert "Signature of A. Weber" in said
    assert "an unknown key" not in said
    assert "an unknown key" in call("verify", out).stdout
    page.write_bytes(page.read_bytes().replace(b"Yes.", b"No."))
    call("verify", out, *asked, code=1)
    assert "does not verify" in call("sign", out, "--key", owner, code=2).stderr


def test_a_plug_ins_folder_is_verified_with_the_plug_in(
    data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, schema = data
    (tmp_path / "my_offline_learner.py").write_text(
        "from discreet import DPAPVI, registry\n\n\nclass Timid(DPAPVI):\n    'As DP-APVI.'\n\n\n"
        "registry.register('offline learner', 'timid', Timid)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.delitem(sys.modules, "my_offline_learner", raising=False)
    out, mine = tmp_path / "out", ["--plugin", "my_offline_learner"]
    learn = ["learn", rows, "--schema", schema, *BUDGET, "--learner", "timid", "--set", "c1=0.5"]
    call(*learn, "--no-ledger", "--out", out, *mine)
    assert json.loads((out / "statement.json").read_text())["configuration"]["algorithm"] == "Timid"
    assert "algorithm = 'Timid'" in call("verify", out, "--no-ledger", code=1).stdout.replace("\n", "")
    found = json.loads(call("verify", out, "--no-ledger", *mine, "--json").stdout)
    assert found["ok"]
    assert "learner.c1" in {one["name"] for one in found["checks"]}
    pytest.importorskip("cryptography")
    call("keys", "new", tmp_path / "k")
    assert "does not verify" in call("sign", out, "--no-ledger", "--key", tmp_path / "k", code=2).stderr
    call("sign", out, "--no-ledger", "--key", tmp_path / "k", *mine)


def test_another_versions_words_are_told(data: tuple[Path, Path], tmp_path: Path) -> None:
    rows, schema = data
    out = tmp_path / "out"
    call("learn", rows, "--schema", schema, *BUDGET, "--learner", "dp-apvi", "--out", out)
    text = (out / "statement.json").read_text("utf-8")
    (out / "statement.json").write_text(text.replace('"discreet": "', '"discreet": "9.'), "utf-8")
    assert "says that version 9." in call("verify", out, code=1).stderr


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
