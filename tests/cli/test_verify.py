"""Verification of folders, on the command line."""

import json
import sys
from pathlib import Path

import pytest
from commands import call

from discreet import registry

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


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
