"""Groups of users from a file of people to a verified folder; and where they are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import call
from pyarrow import parquet

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import Groups, Schema, read_schema, write_schema
from discreet.envs.mdp.planning import policy_value
from discreet.ledger.ledger import Ledger
from discreet.pipeline.federated import FederatedSite, FederatedSum, FederationPlan
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.policy_evaluation import evaluate_with_release
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.trajectory_files import write_cohort
from discreet.pipeline.verify import verify
from discreet.reports.policy_files import read_policy

from .test_decision_points import SCHEMA, world

GROUPS = Groups("age | years", ("under 40", "40 to 64", "65 and more", "other"))
GROUPED = replace(SCHEMA, groups=GROUPS, provenance={"states": "protocol", "groups": "protocol"})
BUDGET = dr.Central(epsilon=3.0, delta=1e-6)
KEY = bytes(range(32))

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ward") / "people.parquet"
    write_cohort(*world(), 24_000, path, replace(GROUPED, outcomes=None), seed=4)
    table = parquet.read_table(path)
    # nobody is of the last group
    labels = np.array(GROUPS.labels)[table["user"].to_numpy() % 3]
    at = table.schema.get_field_index(GROUPS.column)
    parquet.write_table(table.set_column(at, GROUPS.column, pa.array(labels)), path)
    return path


@pytest.fixture(scope="module")
def folder(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "ward"
    learn(
        open_source(rows, GROUPED), dr.DecisionPoints(), out, privatizer=BUDGET, ledger=None,
        randomness=Seeded(3),
    )  # fmt: skip
    return out


def bad(folder: Path) -> list[str]:
    return [check.name for check in verify(folder) if not check.ok]


def test_each_group_is_told_and_the_folder_holds(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    text = (folder / "report.md").read_text()
    assert report["verdict_kind"] == "shown"
    assert report["measured"] == "transitions"
    *young, nobody = report["groups"]
    assert [one["group"] for one in report["groups"]] == list(GROUPS.labels)
    for one in young:
        assert one["users"] == pytest.approx(8000, abs=8 * one["deviation"])
        assert one["low"] < report["values"]["behaviour"]["estimate"] < one["high"]
        assert 0.0 < one["gain_low"] < one["gain"] < one["gain_high"] < 5.0
        assert abs(one["apart"]) < 5.0
        assert abs(one["expected"] - one["mean"]) < 0.5
    assert abs(nobody["users"]) < 8 * nobody["deviation"]
    assert nobody["mean"] is nobody["gain"] is nobody["apart"] is nobody["expected"] is None
    assert report["consistency"]["levels"]["tested"] == 3 + 3  # states that do not end; groups with people
    assert "## By group" in text
    assert "gain, if actions do the same in every group" in text
    assert "This cannot be tested here" in text
    assert "| 65 and more |" in text
    assert "* States and groups compared: 6; no contradiction" in text
    assert "No gain by group" not in text
    assert bad(folder) == []


def test_the_policy_is_that_of_all_states_and_no_group(folder: Path) -> None:
    lines = (folder / "policy.csv").read_text().splitlines()
    header = next(line for line in lines if not line.startswith("#"))
    assert "group" not in header
    actions, supported = read_policy(folder)
    assert actions.shape == supported.shape == (12, 5)
    assert (actions[:, 2] == 2).all()


def test_labels_are_said_to_be_public_and_the_group_to_be_protected(folder: Path) -> None:
    document = json.loads((folder / "statement.json").read_text())
    assert document["population"]["groups"] == {"column": GROUPS.column, "labels": list(GROUPS.labels)}
    said = " ".join(document["covered"])
    assert "The group of the patient (column age | years), which is part of the record" in said
    assert "(under 40, 40 to 64, 65 and more, other) are declared and public" in said
    assert "one of 4 declared groups" in " ".join((folder / "officer.html").read_text().split())
    assert read_schema(folder / "schema.toml").hash == GROUPED.hash


def test_epsilon_is_that_of_the_same_question_without_groups(
    folder: Path, rows: Path, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"privatizer": BUDGET, "ledger": None, "randomness": Seeded(3)}
    plain = learn(open_source(rows, SCHEMA), dr.DecisionPoints(), tmp_path / "plain", **how)
    document = json.loads((folder / "statement.json").read_text())
    own, other = document["mechanisms"][0]["record"], plain.statement.document["mechanisms"][0]["record"]
    assert own["sensitivities"] == other["sensitivities"]
    assert own["joint"] == other["joint"]
    assert own["scales"] == pytest.approx(other["scales"])
    assert document["guarantee"]["epsilon"] == pytest.approx(plain.statement.document["guarantee"]["epsilon"])
    assert "groups" not in plain.statement.document["population"]
    assert "groups" not in json.loads((tmp_path / "plain" / "report.json").read_text())


def test_a_release_is_planned_again_with_its_groups(folder: Path, tmp_path: Path) -> None:
    found = replan(
        folder / "release.parquet", dr.DecisionPoints(most_changes=1), tmp_path / "again",
        settings=LearnConfig(level=0.5),
    )  # fmt: skip
    assert "## By group" in found.report
    assert bad(tmp_path / "again") == []
    one, other = (
        json.loads((path / "report.json").read_text())["groups"][0] for path in (folder, tmp_path / "again")
    )
    assert one["users"] == other["users"]
    assert other["high"] - other["low"] < one["high"] - one["low"]


def test_a_ledger_is_charged_as_for_any_release(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        learn(
            open_source(rows, GROUPED),
            dr.DecisionPoints(),
            tmp_path / "out",
            privatizer=BUDGET,
            ledger=ledger,
        )
        assert [check.name for check in verify(tmp_path / "out", ledger) if not check.ok] == []
        assert [entry.kind for entry in ledger.entries()] == ["begin", "reserve", "mark"]


def test_counted_parts_and_sites_give_the_pooled_release(tmp_path: Path) -> None:
    schema = Schema(
        "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}, groups=GROUPS
    )
    parts = []
    for seed in range(3):
        path = tmp_path / f"{seed}.parquet"
        write_made_up(schema, 40, path, seed=seed)
        parts.append(dr.pipeline.aggregate_part(open_source(path, schema), dr.DecisionPoints(), KEY))
        parts[-1].people = parts[-1].people + np.uint64(seed)  # other people, though files count from 0 alike
    plan = FederationPlan(schema=schema, learner=dr.DecisionPoints(), privatizer=BUDGET, sites=3)
    how: dict[str, Any] = {"privatizer": BUDGET, "ledger": None, "randomness": Seeded(3)}
    dr.learn(dr.pipeline.merge_aggregates(parts), plan.learner, tmp_path / "pooled", schema=schema, **how)
    sums = FederatedSum(plan, 3, sum(FederatedSite(plan, part, KEY, None).send() for part in parts))
    dr.learn(sums, plan.learner, tmp_path / "sites", **how)
    for file in ("policy.csv", "report.md", "report.json"):
        assert (tmp_path / "pooled" / file).read_bytes() == (tmp_path / "sites" / file).read_bytes()
    for name in ("pooled", "sites"):
        assert bad(tmp_path / name) == []


@pytest.mark.parametrize("learner", [dr.DPAPVI(), dr.learners.APVI(), dr.DPPEVI(epsilon=1.0, delta=1e-6)])
def test_other_learners_refuse_groups_before_anything_is_spent(learner: Any, tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    write_made_up(GROUPED, 10, path)
    source = open_source(path, GROUPED)
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        with pytest.raises(ValueError, match=r"groups: must be left out of the schema for .*decision-points"):
            learn(source, learner, tmp_path / "out", privatizer=None, ledger=ledger)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert not (tmp_path / "out").exists()
    if not isinstance(learner, dr.DPPEVI):
        with pytest.raises(ValueError, match="groups: must be left out"):
            dr.pipeline.aggregate_part(source, learner, KEY)


def test_a_release_of_other_groups_is_another_question(folder: Path, tmp_path: Path) -> None:
    """A schema with fewer groups does not fit the release beside it."""
    copy = tmp_path / "copy"
    copytree(folder, copy)
    text = (copy / "schema.toml").read_text()
    (copy / "schema.toml").write_text(text.replace(', "other"]', "]"))
    assert bad(copy)
    with pytest.raises(ValueError, match="is not the schema of the release in the same folder"):
        replan(copy / "release.parquet", dr.DecisionPoints(), tmp_path / "again")


@pytest.mark.usefixtures("own_ledger")
def test_commands_rehearse_and_forecast_with_groups(tmp_path: Path) -> None:
    schema = tmp_path / "S.toml"
    write_schema(GROUPED, schema)
    budget = ["--users", 60, "--epsilon", 1, "--delta", 1e-6]
    gain = call("power", "--schema", schema, *budget, "--target-gain", 3, "--draws", 2)
    assert "[groups] are left out of the simulation" in gain.stderr
    assert "chance that a gain is shown" in " ".join(gain.stdout.split())
    assert "groups" not in call("estimate", "--schema", schema, *budget).stderr  # the noise of such a release
    call("dry-run", schema, *budget, "--out", tmp_path / "rehearsed")
    assert bad(tmp_path / "rehearsed") == []
    for algorithm, more in (("dp-apvi", ()), ("dp-pevi", ()), ("dp-pevi", ("--target-gain", 3))):
        how = ("--schema", schema, *budget, "--learner", algorithm, *more)
        said = " ".join(call("power" if more else "estimate", *how, code=2).stderr.split())
        assert f"groups: must be left out of the schema for {algorithm}, only decision-points" in said


def test_a_rule_is_evaluated_with_a_release_of_groups(folder: Path, tmp_path: Path) -> None:
    """The rule that helps: its true gain over what people did is in the interval."""
    rule = tmp_path / "rule.csv"
    rule.write_text("state,action\nsevere,drug B\n")
    (one,) = evaluate_with_release(folder, [rule], made="outside").policies
    mdp, behaviour = world()
    table = behaviour.copy()
    table[:, 2] = np.eye(3)[2]
    true = 10.0 * (policy_value(mdp, table) - policy_value(mdp, behaviour))
    assert one.gain.low < true < one.gain.high
    assert one.kind == "shown"
