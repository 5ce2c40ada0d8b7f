"""Every option that a command on stored data offers is accepted in some combination, and its help is true."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import ALL, RUNNER, call

from discreet import cli, registry
from discreet.core.layout import Layout
from discreet.data.schema import Schema, write_schema
from discreet.pipeline.learned_files import default_algorithm
from discreet.pipeline.synthetic_data import write_made_up

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ("--epsilon", 1, "--delta", 1e-6)
CSV = ("--source", "delimiter=;", "--source", "decimal=,", "--source", "encoding=utf-16")
PRESET = ("--set", "preset=default", "--set", "c1=0.5")
LINES = (
    "--report", "level=0.9", "--report", "return_bound=0.5", "--report", "operator=me", "--report",
    "approval=they", "--report", "purpose=a look",
)  # fmt: skip
MOST = {"learn": 18}  # options of a command; of others: 20


def offered(command: str) -> dict[str, Any]:
    """Option to its parameter."""
    return {
        param.opts[-1]: param
        for param in ALL[command].params
        if param.param_type_name == "option" and param.opts[-1] != "--help" and not param.hidden
    }


def shown(command: str) -> str:
    return " ".join(str(param.help) for param in offered(command).values())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """People and schemas: of one world at every step (S; with outcomes: O), and not (H); a plug-in; keys."""
    monkeypatch.chdir(tmp_path)
    layout = Layout(3, 2, 3)
    for name, stationary in (("S", True), ("H", False)):
        schema = Schema("ward", "patient", layout, stationary=stationary)
        write_schema(schema, tmp_path / f"{name}.toml")
    write_made_up(schema, 60, tmp_path / "people.parquet", seed=1)
    frame = pd.read_parquet("people.parquet")
    frame.to_csv("people.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    (tmp_path / "rooms").mkdir()
    shutil.copy("people.parquet", "rooms/people.parquet")
    Path("options_plugin.py").write_text('"""Registers nothing."""\n')
    rows = [f"{s},{a},{s},1.0,0.5" for s in range(3) for a in range(2)]
    Path("prior.csv").write_text("\n".join(["state,action,next,probability,reward", *rows, ""]))
    Path("word").write_text("a passphrase\n")
    Path("word").chmod(0o600)
    ends = Schema("ward", "patient", layout, stationary=True, terminal=(2,), outcomes={2: 1.0})
    write_schema(ends, tmp_path / "O.toml")
    write_made_up(ends, 60, tmp_path / "ends.parquet", seed=1)
    Path("rule.csv").write_text("state,action\n0,1\n")
    np.save("known.npy", np.full((3, 2), 0.5))
    records = [f"{i},{i % 2},{'no' if i % 3 else 'yes'},1" for i in range(60) for _ in "ab"]
    Path("records.csv").write_text("\n".join(["user,x,a,r", *records, ""]))
    Path("P.toml").write_text(
        'dataset = "d"\nunit = "p"\nhorizon = 1\nreward = { low = 0.0, high = 1.0 }\n'
        '[prepare]\nuser = "user"\nlong = "cut"\n'
        'states = { product = ["lactate"] }\nactions = { product = ["drug"] }\nreward = { value = "paid" }\n'
        '[prepare.values.lactate]\ncolumn = "x"\ncuts = [0.5]\n'
        '[prepare.values.drug]\ncolumn = "a"\ncategories = ["no", "yes"]\n'
        '[prepare.values.paid]\ncolumn = "r"\n'
    )
    return tmp_path


def learned(*more: Any) -> tuple[Any, ...]:
    return ("learn", "people.parquet", "--schema", "H.toml", *BUDGET, *more)


WORDS: dict[str, list[tuple[Any, ...]]] = {
    "learn": [
        (
            "learn", "people.csv", "--schema", "H.toml", *CSV, "--source", "scratch=.", "--learner",
            "dp-apvi", *BUDGET, "--out", "a", *PRESET, "--unsupported", "behaviour", "--ledger", "l.sqlite",
            *LINES, "--source", "workers=1", "--json",
        ),
        ("learn", "people.parquet", "--schema", "S.toml", "--rho", 0.5, "--no-ledger", "--seed", 1, "--out",
         "b", "--plugin", "options_plugin"),
        ("learn", "--sql", "select * from 'people.parquet'", "--schema", "H.toml", *BUDGET, "--out", "c"),
        ("learn", "ends.parquet", "--schema", "O.toml", *BUDGET, "--out", "d", "--compare", "rule.csv"),
        ("synthesize", "d", "--users", 30, "--out", "s.parquet"),
        ("learn", "s.parquet", "--schema", "s.toml", *BUDGET, "--out", "e", "--source", "synthetic=true"),
        ("learn", "ends.parquet", "--schema", "O.toml", *BUDGET, "--out", "f", "--judge-share", 0.5),
    ],
    "dry-run": [
        ("dry-run", "H.toml", "--users", 30, "--learner", "dp-apvi", *BUDGET, "--out", "a", *PRESET,
         "--unsupported", "behaviour", "--seed", 3, *LINES, "--source", "scratch=.", "--source", "workers=1",
         "--plugin", "options_plugin", "--json"),
        ("dry-run", "S.toml", "--users", 30, "--rho", 0.5, "--out", "b"),
        ("dry-run", "O.toml", "--users", 30, *BUDGET, "--out", "c", "--compare", "rule.csv"),
        ("dry-run", "O.toml", "--users", 30, *BUDGET, "--out", "d", "--judge-share", 0.5),
    ],
    "replan": [
        learned("--out", "a"),
        ("replan", "a/release.parquet", "--rewards", "known.npy", "--out", "b", "--learner", "dp-apvi",
         *PRESET, "--unsupported", "behaviour", *LINES, "--plugin", "options_plugin", "--json"),
        ("dry-run", "O.toml", "--users", 30, *BUDGET, "--out", "c"),
        ("replan", "c/release.parquet", "--out", "d", "--compare", "rule.csv"),
    ],
    "aggregate": [
        ("aggregate", "--new-key", "key"),
        ("aggregate", "people.csv", "--schema", "H.toml", "--key", "key", "--out", "a.tally", *CSV,
         "--source", "scratch=.", "--learner", "dp-apvi", "--set", "c1=0.5", "--json"),
        ("aggregate", "--sql", "select * from 'people.parquet'", "--schema", "S.toml", "--key", "key",
         "--out", "b.tally"),
        ("learn", "ends.parquet", "--schema", "O.toml", *BUDGET, "--out", "d"),
        ("synthesize", "d", "--users", 30, "--out", "s.csv"),
        ("aggregate", "s.csv", "--schema", "s.toml", "--key", "key", "--out", "c.tally",
         "--source", "synthetic=true"),
    ],
    "estimate": [
        ("estimate", "--schema", "H.toml", "--users", 60, *BUDGET, "--learner", "dp-apvi", *PRESET,
         "--share", 0.2, "--json"),
        ("estimate", "--schema", "S.toml", "--users", 60, "--rho", 0.5),
        ("estimate", "--env", "riverswim", "--env-option", "states=3", "--learner", "noise-aware",
         "--privatizer", "central", *BUDGET, "--episodes", 100, "--plugin", "options_plugin", "--prior",
         "prior.csv", "--prior-strength", 50),
    ],
    "power": [
        ("power", "--schema", "S.toml", "--users", 60, *BUDGET, "--target-gain", 0.5, "--draws", 2),
        ("power", "--schema", "S.toml", "--users", 60, *BUDGET, "--world", "riverswim", "--draws", 2),
        ("power", "--schema", "S.toml", "--users", 60, *BUDGET, "--target-gain", 0.5, "--draws", 2,
         "--learner", "dp-pevi", "--set", "preset=default", "--set", "judged=true", "--json"),
    ],
    "verify": [
        ("keys", "new", "mine"),
        ("ledger", "--dataset", "ward", "--limit", 5, "--delta", 1e-6, "--key", "mine"),
        learned("--out", "a"),
        ("sign", "a", "--key", "mine"),
        ("verify", "a", "--ledger", "l.sqlite", "--public-key", "mine.pub", "--limit-key", "mine.pub",
         "--plugin", "options_plugin", "--json"),
        ("verify", "a", "--no-ledger"),
    ],
    "ledger recover": [
        learned("--out", "a"),
        ("ledger", "recover", ".", "--ledger", "l.sqlite", "--finish", "--json"),
    ],
    "ledger": [
        ("keys", "new", "locked", "--passphrase", "--passphrase-file", "word"),
        ("keys", "new", "second"),
        ("keys", "new", "third"),
        ("ledger", "--ledger", "l.sqlite", "--dataset", "ward", "--limit", 5, "--delta", 1e-6, "--key",
         "locked", "--passphrase-file", "word", "--recovery", "second.pub"),
        ("ledger", "--ledger", "l.sqlite", "--dataset", "ward", "--require", "rooms", "--key", "locked",
         "--passphrase-file", "word"),
        ("ledger", "--ledger", "l.sqlite", "--dataset", "ward", "--hand-over", "third.pub", "--key",
         "locked", "--passphrase-file", "word"),
        ("ledger", "--ledger", "l.sqlite", "--export", "all.csv", "--json"),
    ],
    "simulate-data": [
        ("simulate-data", "riverswim", "--users", 20, "--out", "c.csv", "--policy", "random", "--env-option",
         "states=3", "--dataset", "ward", "--no-trim", "--seed", 3, "--json"),
    ],
    "synthesize": [
        learned("--out", "a"),
        ("synthesize", "a/release.parquet", "--users", 30, "--out", "s.csv", "--members", 2, "--seed", 4,
         "--share", 0.6, "--level", 0.9, "--json"),
        ("prepare", "records.csv", "--schema", "P.toml", "--out", "rows"),
        ("learn", "rows/rows.parquet", "--schema", "rows/schema.toml", *BUDGET, "--out", "b"),
        ("synthesize", "b", "--users", 30, "--out", "t.csv", "--declaration", "P.toml"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", WORDS)
def test_every_option_is_accepted_somewhere(command: str, place: Path, own_ledger: Path) -> None:
    used: set[str] = set()
    for words in WORDS[command]:
        if "--sql" in words:
            pytest.importorskip("duckdb")
            words = (words[0], "people.parquet", *words[1:])
        ledger = str(own_ledger) if command in ("verify", "ledger recover") else "l.sqlite"
        call(*(ledger if word == "l.sqlite" else word for word in words))
        if " ".join(map(str, words)).startswith(f"{command} "):
            used |= {word for word in words if isinstance(word, str)}
    missing = {name for name, param in offered(command).items() if not used & {name, *param.secondary_opts}}
    assert missing == set()


def test_options_of_files_are_refused_by_name(place: Path) -> None:
    for words, message in (
        (learned("--source", "speed=1", "--out", "a"), "--source speed: must be one of 'delimiter', "),
        (learned("--source", "delimiter", "--out", "a"), "--source 'delimiter': must be KEY=VALUE"),
        (learned("--source", "encoding=x", "--out", "a"), "encoding = 'x': must be one that Python knows"),
        (("schema", "--init", "people.csv", "--source", "scratch=."), "one of 'delimiter', 'encoding'"),
        (("dry-run", "H.toml", "--source", "decimal=,", "--out", "a"), "must be one of 'scratch'"),
        (learned("--report", "level=2", "--out", "a"), "level = 2"),
        (("discretize", "fit", "people.csv", "--schema", "H.toml", "--set", "rounds=x"), "rounds = 'x'"),
    ):
        assert message in " ".join(call(*words, code=2).stderr.split())


def test_no_command_has_too_many_options() -> None:
    assert {name: len(offered(name)) for name in ALL if len(offered(name)) > MOST.get(name, 20)} == {}


def test_help_names_every_algorithm_and_the_true_default() -> None:
    names = {one.name for one in registry.entries("offline learner") if one.plugin is None}
    for command in ("learn", "dry-run", "replan", "estimate"):
        assert names <= set(re.findall(r"[\w-]+", call(command, "--help").stdout))
    assert "decision-points where the schema says stationary = true" in offered("learn")["--learner"].help
    assert "dp-apvi elsewhere" in offered("learn")["--learner"].help
    for command in ("aggregate", "estimate"):
        assert "as for `discreet learn`" in " ".join(offered(command)["--learner"].help.split())
    for stationary, name in ((True, "decision-points"), (False, "dp-apvi")):
        assert default_algorithm(Schema("w", "patient", Layout(2, 2, 2), stationary=stationary)) == name


@pytest.mark.parametrize("schema", ["S", "H"])
@pytest.mark.parametrize("algorithm", ["dp-apvi", "decision-points", "dp-pevi"])
def test_a_bound_of_returns_is_taken_where_the_help_says(place: Path, schema: str, algorithm: str) -> None:
    if (schema, algorithm) == ("H", "decision-points"):
        pytest.skip("such a world is not declared the same at every step")
    words = [
        "dry-run", f"{schema}.toml", "--users", "30", *map(str, BUDGET),
        "--learner", algorithm, "--report", "return_bound=0.5", "--out", "p", "--seed", "1",
    ]  # fmt: skip
    done = RUNNER.invoke(cli.app, words)
    said = " ".join(offered("learn")["--report"].help.split()).partition("return_bound with ")[2]
    taken = algorithm in re.findall(r"[\w-]+", said.split(",")[0])
    assert (done.exit_code == 0) == taken, done.output
    if algorithm == "decision-points":
        assert "must stand in the schema (return_bound = ...)" in " ".join(done.stderr.split())
