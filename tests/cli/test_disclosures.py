"""The commands registry and crosswalk as a process sees them: files, text, JSON, refusals."""

import json
from pathlib import Path

import pytest
from commands import call

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")


def test_registry_and_crosswalk(tmp_path: Path) -> None:
    rows, out, schema = tmp_path / "people.parquet", tmp_path / "out", tmp_path / "people.toml"
    options = ["--env-option", "states=3", "--env-option", "actions=2", "--env-option", "horizon=3"]
    call("simulate-data", "random", *options, "--users", 300, "--out", rows, "--dataset", "ward")
    plain = schema.read_text("utf-8")
    learn = [
        "learn",
        rows,
        "--schema",
        schema,
        "--epsilon",
        5,
        "--delta",
        "1e-6",
        "--learner",
        "dp-apvi",
        "--out",
    ]
    call(*learn, tmp_path / "undeclared")
    failed = call("registry", tmp_path / "undeclared", code=2)
    assert (
        "declared.controller, declared.purpose, declared.region, declared.authors: must be" in failed.stderr
    )
    assert failed.stderr.count("\n") == 1
    told = {"controller": "Hospital", "purpose": "care", "region": "Austria", "authors": "A. Smith"}
    lines = "\n".join(f'{name} = "{said}"' for name, said in told.items())
    schema.write_text(f"{plain}\n[declared]\n{lines}\n", "utf-8")
    call(*learn, out)
    text = call("registry", out).stdout
    assert text.startswith('url_slug: "ward-')
    for command, key in (("registry", "record"), ("crosswalk", "page")):
        file = tmp_path / f"{command}.out"
        assert "wrote" in call(command, out, "--out", file).stderr
        again = json.loads(call(command, out, "--json", "--no-ledger").stdout)
        assert again == {key: file.read_text("utf-8"), "out": None}
        for wrong in (tmp_path, tmp_path / "none" / "x"):
            assert "must be a file in an existing folder" in call(command, out, "--out", wrong, code=2).stderr
        other = tmp_path / "other.txt"
        other.write_text("mine\n", "utf-8")
        assert "exists already" in call(command, out, "--out", other, code=2).stderr
        assert other.read_text("utf-8") == "mine\n"
        assert "wrote" in call(command, out, "--out", file).stderr
        assert "must be outside the folder" in call(command, out, "--out", out / "x.md", code=2).stderr
        assert "must be a folder that `discreet learn` made" in call(command, tmp_path, code=2).stderr
    assert file.read_text("utf-8").startswith(
        "# What the numbers mean for texts that regulators read: ward\n"
    )
    assert (
        "status = 'Approved': must be one of" in call("registry", out, "--status", "Approved", code=2).stderr
    )
    assert call("verify", out).exit_code == 0
