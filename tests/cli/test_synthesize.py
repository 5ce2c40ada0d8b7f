"""The command synthesize, and what commands that read user data do with its files."""

import json
from pathlib import Path

import pytest
from commands import call

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ("--epsilon", 3, "--delta", 1e-6)
REFUSED = "holds synthetic users of a release's model, not real users"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with a release of 3000 made-up people, and 200 synthetic users of its model."""
    monkeypatch.chdir(tmp_path)
    call("simulate-data", "riverswim", "--env-option", "states=3", "--env-option", "horizon=4", "--users",
         3000, "--out", "people.parquet", "--dataset", "ward")  # fmt: skip
    call("learn", "people.parquet", "--schema", "people.toml", *BUDGET, "--out", "a", "--learner", "dp-apvi")
    call("synthesize", "a", "--users", 200, "--out", "s.parquet", "--seed", 7)
    return tmp_path


def test_utility_is_printed(made: Path) -> None:
    text = call("synthesize", "a", "--users", 200, "--out", "t.csv", "--seed", 7).stdout
    assert "describe the model, not real users" in " ".join(text.split())
    for word in ("states", "pairs", "transitions", "behaviour", "uniform"):
        assert word in text
    document = json.loads(call("synthesize", "a", "--users", 9, "--out", "u.csv", "--json").stdout)
    assert (document["users"], document["dataset"], document["file"]) == (9, "ward", "u.csv")
    assert set(document["utility"]["values"]) <= {
        "behaviour", "uniform", "most common action", "least common action",
    }  # fmt: skip
    text = call("synthesize", "a", "--users", 9, "--out", "v.csv", "--share", 1).stdout
    assert "Utility is not known" in text
    assert "NOT PRIVATE" not in text
    call(
        "learn", "people.parquet", "--schema", "people.toml", "--learner", "apvi", "--no-ledger", "--out", "x"
    )
    assert "NOT PRIVATE" in call("synthesize", "x", "--users", 9, "--out", "x.csv").stdout
    call("simulate-data", "riverswim", "--users", 30, "--out", "few.parquet")
    call("learn", "few.parquet", "--schema", "few.toml", *BUDGET, "--out", "b", "--learner", "dp-apvi")
    assert "unknown" in call("synthesize", "b", "--users", 9, "--out", "w.csv").stdout


@pytest.mark.parametrize("file", ["s.parquet", "c.csv"])
def test_commands_refuse_synthetic_users(made: Path, file: str) -> None:
    call("synthesize", "a", "--users", 200, "--out", "c.csv")
    Path("P.toml").write_text(Path("people.toml").read_text())
    call("aggregate", "--new-key", "key")
    for schema in ("people.toml", file.replace("parquet", "toml").replace("csv", "toml")):
        for words in (
            ("learn", file, "--schema", schema, *BUDGET, "--out", "b"),
            ("learn", file, "--schema", schema, *BUDGET, "--out", "b", "--no-ledger"),
            ("aggregate", file, "--schema", schema, "--key", "key", "--out", "b.tally"),
            ("schema", "--init", file),
        ):
            assert REFUSED in " ".join(call(*words, code=2).stderr.split())
    assert not Path("b").exists()
    words = ("learn", "people.parquet", "--schema", "people.toml", *BUDGET, "--out", "b")
    assert "holds no mark" in call(*words, "--source", "synthetic=true", code=2).stderr


def test_round_trip(made: Path) -> None:
    how = ("--schema", "s.toml", "--learner", "dp-apvi")
    done = call("learn", "s.parquet", *how, *BUDGET, "--out", "b", "--source", "synthetic=true")
    assert "intervals describe" in " ".join(done.stdout.split())
    call("aggregate", "--new-key", "key")
    call("aggregate", "s.parquet", *how, "--key", "key", "--out", "b.tally", "--source", "synthetic=true")
    refused = call("learn", "b.tally", *how, *BUDGET, "--out", "c", code=2)
    assert "synthetic_input = False" in refused.stderr
    call("learn", "b.tally", *how, *BUDGET, "--out", "c", "--source", "synthetic=true")
    for folder in ("a", "b", "c"):
        assert json.loads(call("verify", folder, "--json").stdout)["ok"] is True
    entries = json.loads(call("ledger", "--json").stdout)["entries"]
    purposes = {entry["dataset"]: entry["purpose"] for entry in entries if entry["entry"] == "reserve"}
    assert "not people" in purposes["synthetic of ward"]
    assert "synthetic" not in purposes["ward"]


def test_a_dry_run_of_the_schema_needs_no_flag_and_can_be_planned_again(made: Path) -> None:
    call("dry-run", "s.toml", "--users", 300, *BUDGET, "--out", "b", "--learner", "dp-apvi")
    call("replan", "b/release.parquet", "--out", "c")
    for folder in ("b", "c"):
        assert json.loads(call("verify", folder, "--json").stdout)["ok"] is True
        assert "DRY RUN" in Path(folder, "report.md").read_text()
