"""The command ``judge``: forecast, judgement, verification, messages about rows."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from discreet import cli
from discreet.data.schema import write_schema
from tests.pipeline.test_log_judgement import frame, schema

SET = ["--epsilon", "3", "--delta", "1e-6", "--set", "cap=5", "--set", "least=0.2"]


def run(*arguments):
    """Run the command line."""
    return CliRunner().invoke(cli.app, [str(one) for one in arguments])


def test_forecast_judgement_and_verification(tmp_path):
    frame().to_parquet(tmp_path / "log.parquet")
    write_schema(schema(), tmp_path / "log.toml")
    told = ["--schema", tmp_path / "log.toml", *SET]
    found = run("judge", *told, "--users", 4000)
    assert found.exit_code == 0, found.output
    assert "half width of at least" in found.output
    numbers = json.loads(run("judge", *told, "--users", 4000, "--json").stdout)
    assert numbers["least"] <= numbers["most"]
    log = ["--log", tmp_path / "log.parquet", "--ledger", tmp_path / "ledger.sqlite"]
    found = run("judge", "column:planned", *log, *told, "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert "is better than what was done" in found.output.replace("\n", " ")
    found = run("verify", tmp_path / "out", "--ledger", tmp_path / "ledger.sqlite")
    assert found.exit_code == 0, found.output
    assert "Not checked: that the sums are those of the log" in found.output
    found = run(
        "judge", "uniform", *log[:2], *told, "--no-ledger", "--seed", 1, "--out", tmp_path / "one", "--json"
    )
    assert json.loads(found.stdout)["users"] == 4000
    assert json.loads(run("verify", tmp_path / "one", "--json").stdout)["ok"]
    page = tmp_path / "one" / "judgement.md"
    page.write_text(page.read_text() + "more\n")
    assert run("verify", tmp_path / "one").exit_code != 0


def test_messages(tmp_path):
    frame(chance=0.0).to_parquet(tmp_path / "log.parquet")
    write_schema(schema(), tmp_path / "log.toml")
    told = ["--schema", tmp_path / "log.toml", *SET]
    assert "log is missing" in run("judge", *told).output
    log = ["--log", tmp_path / "log.parquet"]
    assert "policy, out" in run("judge", *log, *told).output
    assert "users: must be left out" in run("judge", "uniform", *log, *told, "--users", 5).output.replace(
        "\n", " "
    )
    found = run("judge", "uniform", *log, *told, "--no-ledger", "--out", tmp_path / "out")
    assert "This message is private" in found.output
    found = run("judge", "uniform", *log, *told, "--seed", 1, "--out", tmp_path / "out")
    assert "seed: must be given with --no-ledger" in found.output.replace("\n", " ")
    assert not (tmp_path / "out").exists()
