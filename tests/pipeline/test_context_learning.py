"""From files of vital signs to a verified folder, by Python and on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet as dr
from discreet import cli
from discreet.checker import verify_statement
from discreet.core.rng import Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema, write_schema
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.ledger.ledger import Ledger
from discreet.pipeline.context_learning import ContextLearning
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.verify import verify
from discreet.reports.context_report import read_context_policy
from tests.helpers import vitals_files as files

CENTRAL = dr.Central(epsilon=3.0, delta=1e-4)


def run(out, ledger=None, propensity=False, share=0.5, **options):
    """Learn from simulated stays."""
    source = open_source(files.frame(**options), files.schema(propensity))
    seeded = {} if ledger is not None else {"randomness": Seeded(0, 0)}
    return learn(
        source,
        LinearAdvantage(),
        out,
        privatizer=CENTRAL,
        ledger=ledger,
        judge_share=share,
        workers=1,
        **seeded,
    )


@pytest.mark.parametrize("propensity", [False, True])
def test_a_folder_verifies_with_ledger_and_checker(tmp_path, propensity):
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        found = run(tmp_path / "out", ledger, propensity)
        checks = verify(found.folder, ledger)
        assert [check.name for check in checks if not check.ok] == []
        assert len(ledger.entries()) == 3  # begin, reserve, mark
    results = {one[0]: one[3] for one in verify_statement.verify(found.folder) if one[3] != "agrees"}
    assert results == {"size of the noise": "not checkable"}  # no sum of contexts is 0 without noise
    page = (found.folder / "officer.md").read_text("utf-8")
    assert "rare states" not in page
    assert "actions that few people received" in page
    document = json.loads((found.folder / "judgement.json").read_text())
    assert document["logged_probabilities"] == propensity
    assert document["parts"]["model"] == 0.0 if propensity else document["parts"]["model"] > 0.0
    assert found.judgement.users + 1 <= 400


def test_a_changed_folder_does_not_verify(tmp_path):
    folder = run(tmp_path / "out").folder
    path = folder / "policy.json"
    path.write_text(path.read_text().replace("0.", "1.", 1))
    assert not all(check.ok for check in verify(folder))


def test_a_real_gain_is_shown_and_words_state_the_condition(tmp_path):
    folder = run(tmp_path / "out", stays=4000).folder
    page = (folder / "judgement.md").read_text()
    assert "If nothing but the columns influenced both" in page
    assert "one decision by the policy is better than what patients did" in page
    policy = read_context_policy(folder)
    assert policy(np.zeros((5, files.VITALS))).shape == (5,)
    report = (folder / "report.md").read_text()
    assert report.startswith("This release alone cannot show whether this policy is better")


def test_replan_reads_no_data_and_has_no_judgement(tmp_path):
    run(tmp_path / "out")
    again = replan(tmp_path / "out" / "release.parquet", LinearAdvantage(), tmp_path / "again")
    assert not (again.folder / "judgement.json").exists()
    assert all(check.ok for check in verify(again.folder))
    with pytest.raises(ValueError, match="sums of contexts"):
        replan(tmp_path / "out" / "release.parquet", dr.learners.DPAPVI(), tmp_path / "other")


def test_command_line(tmp_path):
    files.write(tmp_path / "rows.parquet")
    write_schema(files.schema(), tmp_path / "S.toml")
    given = [
        "learn", str(tmp_path / "rows.parquet"), "--schema", str(tmp_path / "S.toml"), "--epsilon", "2",
        "--delta", "1e-4", "--out", str(tmp_path / "out"), "--ledger", str(tmp_path / "l.sqlite"),
        "--learner", "linear-advantage", "--set", "visits=2", "--judge-share", "0.4",
    ]  # fmt: skip
    shown = CliRunner().invoke(cli.app, given)
    assert shown.exit_code == 0, shown.output
    assert "Evaluated with the held-out users:" in shown.output
    shown = CliRunner().invoke(
        cli.app, ["verify", str(tmp_path / "out"), "--ledger", str(tmp_path / "l.sqlite")]
    )
    assert shown.exit_code == 0, shown.output
    again = ["replan", str(tmp_path / "out" / "release.parquet"), "--out", str(tmp_path / "again")]
    assert CliRunner().invoke(cli.app, again).exit_code == 0
    dry = ["dry-run", str(tmp_path / "S.toml"), "--epsilon", "2", "--delta", "1e-4", "--users", "300",
           "--out", str(tmp_path / "dry")]  # fmt: skip
    shown = CliRunner().invoke(cli.app, dry)
    assert shown.exit_code == 0, shown.output


def test_pure_epsilon_and_exact_sums(tmp_path):
    source = open_source(files.frame(100), files.schema())
    pure = learn(
        source, LinearAdvantage(), tmp_path / "pure", privatizer=dr.Central(epsilon=5.0), ledger=None
    )
    exact = learn(source, LinearAdvantage(), tmp_path / "exact", ledger=None)
    for one in (pure, exact):
        assert [check.name for check in verify(one.folder) if not check.ok] == []


def test_other_learners_and_settings_are_refused_before_budget_is_spent(tmp_path):
    source = open_source(files.frame(20), files.schema())

    def refused(words, learner=None, **named):
        with pytest.raises(ValueError, match=words):
            learn(
                source,
                learner or LinearAdvantage(),
                tmp_path / "out",
                privatizer=CENTRAL,
                ledger=None,
                **named,
            )

    refused("linear-advantage", DecisionPoints())
    refused("unsupported", settings=LearnConfig(unsupported="behaviour"))
    refused("return_bound", settings=LearnConfig(return_bound=1.0))
    refused("judge_share", judge_share=1.0)
    refused("no user is in the second group", judge_share=1e-9)
    with pytest.raises(ValueError, match=r"context\.columns"):
        ContextLearning(read_schema_without_contexts(), LinearAdvantage(), tuple)
    with pytest.raises(ValueError, match="counted in parts"):
        _ = ContextLearning(files.schema(), LinearAdvantage(), tuple).query


def read_schema_without_contexts():
    """Return a schema with states."""
    from discreet.core.layout import Layout
    from discreet.data.schema import Schema

    return Schema("d", "patient", Layout(2, 2, 1))


def test_schema_is_written_and_read(tmp_path):
    for propensity in (False, True):
        schema = files.schema(propensity)
        write_schema(schema, tmp_path / "S.toml")
        assert read_schema(tmp_path / "S.toml").hash == schema.hash


def test_the_statement_names_the_columns_and_no_number_of_states(tmp_path):
    text = (run(tmp_path / "out").folder / "statement.md").read_text()
    assert "A = 3, real-valued columns: vital 0, vital 1, vital 2, vital 3" in text.replace("\\", "")
    assert "S = 2" not in text
