"""Rules that a policy is compared with: files, refusals before anything is spent, and what is said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet as dr
from discreet.cli import app
from discreet.core.rng import Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import write_schema
from discreet.ledger.ledger import Ledger
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.recovery import finish, lost
from discreet.pipeline.trajectory_files import write_cohort
from discreet.pipeline.verify import verify
from discreet.reports import comparison_text as compared_text
from discreet.reports.rule_files import read_rule, rule_names

from ..pipeline.learn.test_decision_points import SCHEMA, world

CENTRAL = dr.Central(epsilon=2.0, delta=1e-6)
MIXED = "state,action,probability\nsevere,wait,0.5\nsevere,drug | A,0.5\nmild,wait,1\n"


pytestmark = pytest.mark.usefixtures("figures_are_sketched")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ward") / "people.parquet"
    write_cohort(*world(), 20_000, path, replace(SCHEMA, outcomes=None), seed=4)
    return path


def written(folder: Path, text: str, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def compared(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose policy was compared with two rules."""
    place = tmp_path_factory.mktemp("out")
    rules = (MIXED, "state,action\nsevere,drug B\n")
    read = tuple(read_rule(written(place, text, f"{i}.csv"), SCHEMA) for i, text in enumerate(rules))
    learn(
        open_source(people, SCHEMA), dr.DecisionPoints(), place / "ward", privatizer=CENTRAL, ledger=None,
        randomness=Seeded(3), settings=LearnConfig(compare=read),
    )  # fmt: skip
    return place / "ward"


# ------------------------------------------------------------------------------------- files
@pytest.mark.parametrize(
    "text",
    [
        MIXED,
        "state,action,probability\n2,0,0.5\n2,1,0.5\n0,0,1\n",
        "\ufeffaction,probability,state\nwait,0.5,severe\ndrug | A,0.5,severe\nwait,1,mild\n",
    ],
)
def test_labels_and_indices_are_the_same_rule_and_come_back(tmp_path: Path, text: str) -> None:
    found = read_rule(written(tmp_path, text), SCHEMA)
    assert found.named.tolist() == [True, False, True, False, False]
    assert found.table[[0, 2]].tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
    again = read_rule(written(tmp_path, found.text(), "again.csv"), SCHEMA)
    assert np.array_equal(again.table, found.table)
    assert np.array_equal(again.named, found.named)


def test_labels_that_are_numbers_are_read_as_labels(tmp_path: Path) -> None:
    schema = replace(SCHEMA, state_labels=("1", "0", "2", "3", "4"))
    found = read_rule(written(tmp_path, "state,action\n1,wait\n"), schema)
    assert found.named.tolist() == [True, False, False, False, False]
    assert np.array_equal(read_rule(written(tmp_path, found.text()), schema).named, found.named)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("state,action\nsevere,wait\nsever,wait\n", "line 3: state = 'sever': is not a label"),
        ("state,action\nsevere,pills\n", "line 2: action = 'pills': must be a label of the schema or an"),
        ("state,action\n7,0\n", "line 2: state = '7': must be a label of the schema or an index in"),
        ("state,action\n-1,0\n", "line 2: state = '-1': must be"),
        ("state,action,probability\nmild,wait,1\nill,wait,0.5\nill,drug B,0.4\n",
         "line 3: probabilities of state 'ill' add up to 0.9: must be 1 within 1e-09"),
        ("state,action,probability\nmild,wait,0.999999998\n", "line 2: probabilities of state 'mild' add up"),
        ("state,action\nmild,wait\nmild,drug B\n", "line 2: probabilities of state 'mild' add up to 2"),
        ("state,action,probability\nmild,wait,1.5\n", "line 2: probability = '1.5': must be a number in"),
        ("state,action,probability\nmild,wait,nan\n", "line 2: probability = 'nan': must be"),
        ("state,action\nmild,wait\nmild,wait\n", "line 3: state 'mild', action 'wait' stands in an earlier"),
        ("state,action\nmild\n", "line 2: must have 2 cells"),
        ("state;action\nmild;wait\n", "line 1: columns must be state,action or"),
        ("state,action,why\nmild,wait,so\n", "line 1: columns must be"),
        ("state,action\n", "must name a state"),
        ("step,state,action\n0,0,0\n0,1,1\n1,0,0\n1,1,2\n",
         "line 5: the action in state '1' differs between steps"),
        ("state,state_label,action\n0,ill,0\n", "line 2: state_label = 'ill': must be that of index 0"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_with_its_line(tmp_path: Path, text: str, match: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match="mine.csv: ") as caught:
        read_rule(path, SCHEMA)
    assert match in str(caught.value)


def test_inadmissible_pairs_and_absent_files_are_refused(tmp_path: Path) -> None:
    mask = np.ones((5, 3), bool)
    mask[1, 2] = False
    schema = replace(SCHEMA, layout=dr.Layout(5, 3, 12, mask))
    with pytest.raises(ValueError, match="line 3: state 'ill', action 'drug B' is not admissible"):
        read_rule(written(tmp_path, "state,action\nmild,wait\nill,drug B\n"), schema)
    with pytest.raises(ValueError, match="no such file"):
        read_rule(tmp_path / "none.csv", schema)
    with pytest.raises(ValueError, match="compare = 101: must be"):
        rule_names(101)


def test_a_folder_is_read_as_its_policy(compared: Path) -> None:
    """Decision points ask for the same at every step; what they do not change is left to people."""
    found = read_rule(compared, SCHEMA)
    report = json.loads((compared / "report.json").read_text())
    changed = {one["state"] for one in report["changes"]}
    assert {SCHEMA.state_labels[s] for s in np.flatnonzero(found.named)} == changed
    assert found.table[2].tolist() == [0.0, 0.0, 1.0]


# ------------------------------------------------------------------------------------- reports
def test_the_report_compares_and_the_folder_verifies(compared: Path) -> None:
    report = json.loads((compared / "report.json").read_text())
    text = (compared / "report.md").read_text("utf-8")
    worse, near = report["compared"]
    assert [worse["level"], near["level"]] == pytest.approx([0.975, 0.975])  # together 95 %
    assert worse["better"]
    assert not near["better"]
    factor = compared_text.condition(
        worse["hidden_cause"]["each_step"], worse["hidden_cause"]["lasting"], 1.0
    )
    assert worse["sentence"].startswith(f"Shown to be better than your rule 1, {factor}")
    assert near["sentence"].startswith("Not shown to be better than your rule 2: the interval of the diff")
    # the rule that is far worse differs in all states that it names
    assert {"severe", "mild"} <= {one["state"] for one in worse["differences"]}
    (severe,) = (one for one in worse["differences"] if one["state"] == "severe")
    assert severe["rule"] == "wait 50.0 %, drug / A 50.0 %"
    assert severe["learned"] == "always drug B"
    assert "severe" not in {one["state"] for one in near["differences"]}
    for row in ("learned less your rule 1 (97.5 %)", "your rule 2 less what people did (97.5 %)"):
        assert f"| {row} |" in text
    assert "This is post-processing of the release: no data were read and no budget was spent." in text
    assert "Intervals hold for all 2 rules together (Bonferroni)." in text
    # what a rule gains, in the units of the file: exactly, from the true world
    assert near["rule_less_people"]["low"] < true_gain([0.0, 0.0, 1.0]) < near["rule_less_people"]["high"]
    assert [check.name for check in verify(compared) if not check.ok] == []
    options = json.loads((compared / "statement.json").read_text())["configuration"]["options"]
    assert options["compare"] == 2


def test_the_statement_says_that_no_noise_is_on_rules(compared: Path, tmp_path: Path) -> None:
    replan(compared / "release.parquet", dr.DecisionPoints(), tmp_path / "again")
    for folder, said in ((compared, 1), (tmp_path / "again", 0)):
        lines = json.loads((folder / "statement.json").read_text())["not_covered"]
        assert sum("If they were made from this data" in one and "rule.csv" in one for one in lines) == said


def true_gain(severe: list[float]) -> float:
    mdp, behaviour = world()
    policy = behaviour.copy()
    policy[:, 2] = severe
    values = []
    for rows in (policy, behaviour):
        worth = np.zeros(5)
        for h in reversed(range(12)):
            laws = np.einsum("sa,sat->st", rows[h], mdp.transitions[h])
            laws[3:] = 0.0
            worth = laws @ (np.eye(5)[4] + worth)
        values.append(float(mdp.initial @ worth))
    return 10.0 * (values[0] - values[1])


def test_again_from_the_release_with_one_rule_and_a_changed_rule_is_seen(
    compared: Path, tmp_path: Path
) -> None:
    rule = read_rule(written(tmp_path, MIXED), SCHEMA)
    out = tmp_path / "again"
    outcome = replan(
        compared / "release.parquet", dr.DecisionPoints(), out, settings=LearnConfig(compare=(rule,))
    )
    assert "## Compared with your rule\n" in outcome.report
    assert "| learned less your rule |" in outcome.report
    (found,) = json.loads((out / "report.json").read_text())["compared"]
    assert found["level"] == pytest.approx(0.95)
    assert [check.name for check in verify(out) if not check.ok] == []
    text = (out / "rule.csv").read_text()
    (out / "rule.csv").write_text(text.replace("0.5", "0.25", 1).replace("0.5", "0.75", 1))
    assert any(not check.ok for check in verify(out))
    (out / "rule.csv").unlink()
    assert any(not check.ok for check in verify(out))


@pytest.mark.parametrize("kind", ["not shown", "contradicted", "state incomplete", "fragile", "unchecked"])
def test_no_comparison_claims_what_the_verdict_refuses(compared: Path, kind: str) -> None:
    """The sentence for every kind of verdict on the policy, and of the difference."""
    planned = dr_report(compared)
    one = planned.compared[0]
    assert one.found.shown
    for refused in (
        replace(one, verdict_kind=kind, found=replace(one.found, kind="not shown")),
        replace(one, found=replace(one.found, kind=kind)),
    ):
        said = compared_text.compared_sentence(refused)
        assert said.startswith(("Nothing is claimed", "Not shown to be better"))
        assert not refused.to_dict()["better"]
        assert "Shown to be better" not in said


def dr_report(folder: Path) -> Any:
    from discreet.pipeline.learned_files import kind_of

    rules = tuple(read_rule(folder / name, SCHEMA) for name in rule_names(2))
    kind = kind_of(SCHEMA, dr.DecisionPoints())
    return kind.again(folder / "release.parquet", LearnConfig(compare=rules)).report


# ------------------------------------------------------------------------------------- refusals
def test_a_rule_is_refused_before_anything_is_spent(people: Path, tmp_path: Path) -> None:
    """Where no rule pays rewards, and for other learners: the ledger has no entry, there is no folder."""
    plain = replace(SCHEMA, outcomes=None)
    rule = read_rule(written(tmp_path, MIXED), plain)
    settings = LearnConfig(compare=(rule,))
    with Ledger.open(tmp_path / "ledger") as ledger:
        for schema, learner, match in (
            (plain, dr.DecisionPoints(), "compare: must be left out where no rule pays rewards"),
            (SCHEMA, dr.DPAPVI(), "compare: must be left out for dp-apvi"),
        ):
            with pytest.raises(ValueError, match=match):
                learn(
                    open_source(people, schema), learner, tmp_path / "out", privatizer=CENTRAL, ledger=ledger,
                    settings=settings,
                )  # fmt: skip
        assert [entry.kind for entry in ledger.entries() if entry.kind == "reserve"] == []
    assert not (tmp_path / "out").exists()


def test_the_command_names_the_line_and_ends_with_2(people: Path, compared: Path, tmp_path: Path) -> None:
    write_schema(SCHEMA, tmp_path / "ward.toml")
    bad = written(tmp_path, "state,action\nsevere,pills\n", "bad.csv")
    ledger = tmp_path / "ledger"
    first = [
        "learn", str(people), "--schema", str(tmp_path / "ward.toml"), "--epsilon", "2", "--delta", "1e-6",
        "--ledger", str(ledger),
    ]  # fmt: skip
    again = ["replan", str(compared / "release.parquet")]
    for start in (first, again):
        result = CliRunner().invoke(app, [*start, "--out", str(tmp_path / "x"), "--compare", str(bad)])
        assert result.exit_code == 2
        assert "line 2: action = 'pills'" in result.output.replace("\n", " ")
        assert not (tmp_path / "x").exists()
    assert not ledger.exists()
    good = written(tmp_path, MIXED)
    result = CliRunner().invoke(app, [*again, "--out", str(tmp_path / "y"), "--compare", str(good)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "y" / "rule.csv").is_file()


def test_a_run_that_was_stopped_is_finished_with_its_rules(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release is paid for: the rules lie beside it in the hidden folder."""
    from discreet.pipeline import learn as pipeline

    def stopped(*_: Any, **__: Any) -> None:
        raise OSError("stopped")

    rule = read_rule(written(tmp_path, MIXED), SCHEMA)
    place = tmp_path / "place"
    place.mkdir()
    with Ledger.open(tmp_path / "ledger") as ledger:
        monkeypatch.setattr(pipeline, "fill", stopped)
        with pytest.raises(OSError, match="stopped"):
            learn(
                open_source(people, SCHEMA), dr.DecisionPoints(), place / "ward", privatizer=CENTRAL,
                ledger=ledger, settings=LearnConfig(compare=(rule,)),
            )  # fmt: skip
        monkeypatch.undo()
        (one,) = lost(place, ledger)
        out = finish(one, ledger)
        assert out is not None
        assert (out / "rule.csv").read_bytes().decode() == rule.text()
        assert [check.name for check in verify(out, ledger) if not check.ok] == []
    shutil.rmtree(out)
