"""The command evaluate as a process sees it: text, JSON, statuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import call

import discreet as dr

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")


def test_policies_of_any_kind_are_evaluated(tmp_path: Path) -> None:
    rows, out = tmp_path / "people.parquet", tmp_path / "out"
    options = ["--env-option", "states=3", "--env-option", "actions=2", "--env-option", "horizon=3"]
    call("simulate-data", "random", *options, "--users", 300, "--out", rows, "--dataset", "ward")
    call(
        "learn", rows, "--schema", rows.with_suffix(".toml"), "--epsilon", 5, "--delta", "1e-6", "--out", out,
        "--learner", "dp-apvi",
    )  # fmt: skip
    np.save(tmp_path / "always.npy", np.ones(3, int))
    (tmp_path / "rule.csv").write_text("state,action\n0,1\n")
    both = [tmp_path / "always.npy", tmp_path / "rule.csv"]
    done = call("evaluate", *both, "--from-release", out, "--made", "outside", "--compare")
    assert "The intervals hold together, for all 2 policies of this call." in done.stdout
    assert "rule.csv less" in done.stdout
    again = call("evaluate", *both, "--from-release", out, "--made", "outside", "--level", 0.9, "--json")
    found = json.loads(again.stdout)
    assert (found["level"], found["made"], found["part"], found["earlier_calls"]) == (
        0.9,
        "outside",
        "whole",
        0,
    )
    assert {one["kind"] for one in found["policies"]} <= {"unknown", "not shown", "untested"}
    release = dr.learners.read_release(out / "release.parquet")
    model = dr.learners.world_model(release, dr.read_schema(out / "schema.toml").spec(), share=0.6)
    dr.learners.save_policy(tmp_path / "plan.csv", model.plan())
    plan = ["evaluate", tmp_path / "plan.csv", "--from-release", out / "release.parquet"]
    assert json.loads(call(*plan, "--share", 0.6, "--json").stdout)["part"] == "held_out"
    assert "1 earlier call has" in call(*plan, "--share", 0.6).stdout
    for words, said in (
        (plan, "share = 0.6"),
        (plan[:2], "from-release is missing"),
        ([*plan, "--made", "guess"], "made = 'guess'"),
        (["evaluate", out, "--from-release", out], "made = 'release'"),
        (["evaluate", tmp_path / "no.csv", "--from-release", out], "no such file"),
    ):
        failed = call(*words, code=2)
        assert said in failed.stderr
        assert failed.stderr.count("\n") == 1
    assert call(
        "evaluate", out / "policy.py", "--from-release", out, "--made", "release", "--run-code"
    ).stdout
    assert call("verify", out).exit_code == 0
