"""Decision points from a file of people to a verified folder: what is said, in which units, and again."""

import csv
import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema, parse_schema, read_schema, write_schema
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope.verdict import KINDS
from discreet.ledger.ledger import Ledger
from discreet.pipeline import verify as verification
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.trajectory_files import write_cohort
from discreet.pipeline.verify import verify
from discreet.reports import verdict_text
from discreet.reports.policy_files import read_policy
from discreet.reports.statement import Statement, file_hash, fingerprint_of, write_statement

SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 12), stationary=True, terminal=(3, 4), low=0.0, high=10.0,
    outcomes={4: 10.0}, state_labels=("mild", "ill", "severe", "dead", "home"),
    action_labels=("wait", "drug | A", "drug B"), provenance={"states": "protocol"},
)  # fmt: skip


def world(effect: float = 0.25) -> tuple[TabularMDP, np.ndarray]:
    """Drug B sends the severe home; elsewhere all actions are alike. The MDP pays 1, not 10."""
    moves = np.zeros((5, 3, 5))
    for s in range(3):
        for a in range(3):
            home = 0.25 + (effect if (s, a) == (2, 2) else 0.0)
            moves[s, a] = [0.15, 0.15, 0.15, 0.55 - home, home]
    moves[3, :, 3] = moves[4, :, 4] = 1.0
    paid = np.zeros_like(moves)
    paid[:3, :, 4] = 1.0
    mdp = TabularMDP(moves, paid, np.array([0.3, 0.3, 0.4, 0.0, 0.0]), horizon=12, terminal=(3, 4))
    return mdp, np.repeat(np.array([[0.4, 0.4, 0.2]] * 5)[None], 12, axis=0)


pytestmark = pytest.mark.usefixtures("figures_are_sketched")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ward") / "people.parquet"
    plain = replace(SCHEMA, outcomes=None)
    write_cohort(*world(), 20_000, path, plain, seed=4)
    return path


@pytest.fixture(scope="module")
def folder(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(rows, tmp_path_factory.mktemp("out") / "ward")


def learned(rows: Path, out: Path) -> Path:
    central = dr.Central(epsilon=2.0, delta=1e-6)
    learn(
        open_source(rows, SCHEMA),
        dr.DecisionPoints(),
        out,
        privatizer=central,
        ledger=None,
        randomness=Seeded(3),
    )
    return out


def test_the_change_is_found_shown_and_stated_in_labels_and_units(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    text = (folder / "report.md").read_text()
    assert report["better"]
    assert report["bounds"] == [0.0, 10.0]
    named = {change["state"]: change for change in report["changes"]}
    assert named["severe"]["action"] == "drug B"
    assert named["severe"]["usual"] in ("wait", "drug / A")
    assert "| severe |" in text
    mdp, behaviour = world()
    policy = behaviour.copy()
    policy[:, 2] = [0.0, 0.0, 1.0]

    true = 10.0 * (policy_value(mdp, policy) - policy_value(mdp, behaviour))
    gain = report["gain"]
    assert gain["low"] < true < gain["high"]
    assert 0.0 < gain["low"] < gain["estimate"] < gain["high"] < 5.0
    usual = report["values"]["behaviour"]
    assert usual["low"] < 10.0 * policy_value(mdp, behaviour) < usual["high"]
    assert 0.99 < report["ended"] <= 1.0
    assert text.startswith("**Shown, if no unrecorded cause changes the odds of an action more than ")
    assert report["verdict_kind"] == "shown"
    assert report["hidden_cause"]["asked"] == 1.1
    assert report["hidden_cause"]["each_step"] > 1.1
    assert report["consistency"]["made"]
    assert not report["consistency"]["contrasts"]["rejects"]
    assert report["covered"] > 0.9
    asked = [one for one in report["outcomes"] if one["asked"]]
    assert ("severe", "drug B") in {(one["state"], one["action"]) for one in asked}
    # as many people as came there took the drug already, at most
    assert report["effective"] <= report["changed_decisions"] * report["agreeing"] * 20_000 * 1.05
    actions, supported = read_policy(folder)
    assert (actions[:, 2] == 2).all()
    assert supported[:, 2].all()
    assert (actions[~supported] == -1).all()
    assert report["path"][-1][0] >= report["states_changed"]


def test_values_are_of_the_whole_policy_in_changed_states(folder: Path) -> None:
    """Twelve steps and one cell in four at an end: the first visit is early, what is left is hardly cut."""
    mdp, behaviour = world()
    actions, supported = read_policy(folder)
    policy = np.where(supported[..., None], np.eye(3)[np.maximum(actions, 0)], behaviour)
    left = [np.zeros(5)]
    moves = np.einsum("sa,sat->st", policy[0], mdp.transitions[0])
    moves[3:] = 0.0
    for _ in range(12):
        left.append(moves @ (10.0 * np.eye(5)[4] + left[-1]))
    with open(folder / "policy.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [name for name in rows[0] if name.startswith("value")] == ["value", "value_low", "value_high"]
    for row in rows:
        s = int(row["state"])
        if row["supported"] == "0":
            assert row["value"] == row["value_low"] == row["value_high"] == ""
            continue
        fresh, earned, visits = mdp.initial.copy(), 0.0, 0.0
        for worth in left[:0:-1]:
            earned, visits = earned + fresh[s] * worth[s], visits + fresh[s]
            fresh[s] = 0.0
            fresh = fresh @ moves
        value, low, high = (float(row[name]) for name in ("value", "value_low", "value_high"))
        assert low <= earned / visits <= high
        assert low <= value <= high
        assert abs(value - earned / visits) < 0.25
        assert high - low < 1.5


def test_figures_that_users_have_are_made_again_and_a_changed_one_is_seen(
    rows: Path, tmp_path: Path, figures_by_matplotlib: None
) -> None:
    out = learned(rows, tmp_path / "ward")
    assert [check.name for check in verify(out) if not check.ok] == []
    pictures = sorted(out.rglob("*.png"))
    assert pictures
    pictures[0].write_bytes(pictures[0].read_bytes()[:-1] + b"!")
    assert any(not check.ok for check in verify(out))


def test_the_folder_verifies_and_says_what_was_asked(folder: Path) -> None:
    checks = verify(folder)
    assert [check.name for check in checks if not check.ok] == []
    statement = json.loads((folder / "statement.json").read_text())
    assert statement["configuration"]["options"]["question"] == "first visits"
    families = {one["family"]: one for one in statement["mechanisms"][0]["families"]}
    # 6 states, terminal ones and the start with one action each; m = min(6, 13)
    assert families["visits"]["cells"] == 3 * 3 + 2 + 1
    assert families["visits"]["sensitivity"] == pytest.approx(np.sqrt(2 * 6))
    assert families["centered_reward_sums"]["sensitivity"] == pytest.approx(np.sqrt(6))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("statement.json", '"kind": "shown"', '"kind": "fragile"'),
        ("report.json", '"verdict_kind": "shown"', '"verdict_kind": "fragile"'),
        ("schema.toml", "outcomes", "outcomez"),
        ("schema.toml", '"home" = 10.0', '"home" = 9.0'),
        ("report.md", "severe", "mild"),
        ("report.json", '"better": true', '"better": false'),
        ("policy.csv", "drug B", "wait"),
        ("statement.json", '"question": "first visits"', '"question": "other"'),
    ],
)
def test_what_is_changed_is_seen(folder: Path, tmp_path: Path, name: str, old: str, new: str) -> None:

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    text = (copy / name).read_text()
    assert old in text
    (copy / name).write_text(text.replace(old, new, 1))
    assert any(not check.ok for check in verify(copy))


def sealed(folder: Path, document: dict[str, Any], **files: str) -> set[str]:
    """What verification finds wrong after other texts of files, with all hashes and pages made to fit."""
    for name, text in files.items():
        path = folder / f"{name}.json"
        path.write_text(text, "utf-8", newline="\n")
        document["files"][path.name] = file_hash(path)
    document["fingerprint"] = fingerprint_of(document)
    write_statement(folder, Statement(document))
    return {check.name for check in verify(folder) if not check.ok}


def test_the_statement_and_its_pages_hold_the_verdict(folder: Path) -> None:
    report, document = (json.loads((folder / f"{one}.json").read_text()) for one in ("report", "statement"))
    assert document["verdict"] == {
        "kind": "shown", "hidden_cause": report["hidden_cause"],
        "contrasts_p": report["consistency"]["contrasts"]["p"],
        "levels_p": report["consistency"]["levels"]["p"],
        "covered": report["covered"], "ended": report["ended"], "censored": None,
    }  # fmt: skip
    assert document["data"]["reward"]["censored"] is None
    assert document["configuration"]["options"]["learner"]["hidden_cause"] == 1.1
    said = "Shown, if no unrecorded cause changes the odds of an action more than "
    for page in ("statement.md", "officer.md", "officer.html"):
        text = (folder / page).read_text("utf-8").replace("\\", "")
        assert said in text
        assert f"{verdict_text.times(report['hidden_cause']['each_step'])} times" in text
        assert "at least 1.10 (hidden_cause; the default is 1.10)" in text
        assert re.search(r"Actions compared: p = [\d.]+; states compared: p = [\d.]+; ", text)
    for page in ("officer.md", "officer.html"):
        text = (folder / page).read_text("utf-8")
        assert verdict_text.not_excluded("shown") in text
        assert "The verdict is 'shown': shown, if no unrecorded" in html.unescape(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kind",), "unchecked"), (("hidden_cause", "asked"), 1.0), (("hidden_cause", "each_step"), 40.0),
        (("hidden_cause", "lasting"), 40.0), (("hidden_cause", "recorded"), 1.0), (("contrasts_p",), None),
        (("levels_p",), 0.5), (("covered",), 0.75), (("ended",), 0.5), ((), None),
    ],
)  # fmt: skip
def test_a_forged_verdict_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], value: Any
) -> None:
    """By the statement alone, with no report made again, which takes long."""
    monkeypatch.setattr(verification, "_check_plan", lambda *_: iter(()))
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    document = json.loads((copy / "statement.json").read_text())
    at = document
    whole = ("verdict", *path)
    for key in whole[:-1]:
        at = at[key]
    assert at[whole[-1]] != value
    at[whole[-1]] = value
    wrong = sealed(copy, document)
    assert wrong
    assert all(name.startswith(f"statement.{'.'.join(whole)}") or "order" in name for name in wrong)


def test_a_verdict_that_is_forged_in_both_files_is_found(folder: Path, tmp_path: Path) -> None:
    """The statement follows report.json then; that is made again from the release."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    document = json.loads((copy / "statement.json").read_text())
    text = (copy / "report.json").read_text()
    document["verdict"]["kind"] = "unchecked"
    assert sealed(copy, document, report=text.replace('_kind": "shown"', '_kind": "unchecked"')) == {
        "report.json made again.verdict_kind"
    }


def test_what_is_asked_of_a_hidden_cause_is_stated(folder: Path, tmp_path: Path) -> None:
    release = folder / "release.parquet"
    out = tmp_path / "again"
    replan(release, dr.DecisionPoints(hidden_cause=20.0), out)
    assert [check.name for check in verify(out) if not check.ok] == []
    document = json.loads((out / "statement.json").read_text())
    assert document["verdict"]["kind"] == "fragile"
    assert document["configuration"]["options"]["learner"]["hidden_cause"] == 20.0
    page = (out / "officer.md").read_text("utf-8").replace("\\", "")
    assert "Not shown: too easily explained otherwise (kind of verdict: fragile)." in page
    assert "the first has to be at least 20.00 (hidden_cause; the default is 1.10)" in page


LEFT = replace(
    SCHEMA, layout=Layout(6, 3, 12), terminal=(3, 4, 5), censored=5,
    state_labels=("mild", "ill", "severe", "dead", "home", "moved"),
)  # fmt: skip


def world_that_people_leave() -> tuple[TabularMDP, np.ndarray, TabularMDP]:
    """One in ten severe people is moved elsewhere at each step, whatever the action, and dies there in nine
    cases of ten; with the same world in which that is seen.
    """
    known, behaviour = world(0.25)
    moves = np.zeros((6, 3, 6))
    moves[:5, :, :5] = known.transitions[0]
    moves[2, :, :5] *= 0.9
    moves[2, :, 5] = 0.1
    moves[5, :, 5] = 1.0
    start = np.array([0.3, 0.3, 0.4, 0.0, 0.0, 0.0])
    paid = np.zeros_like(moves)
    paid[:3, :, 4] = 1.0
    seen = paid.copy()
    seen[:3, :, 5] = 0.1
    made = (TabularMDP(moves, table, start, horizon=12, terminal=(3, 4, 5)) for table in (paid, seen))
    shown, true = made
    return shown, np.repeat(np.concatenate([behaviour[0], behaviour[0, :1]])[None], 12, axis=0), true


@pytest.fixture(scope="module")
def censored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("left")
    mdp, behaviour, _ = world_that_people_leave()
    plain = replace(LEFT, outcomes=None, censored=None)
    write_cohort(mdp, behaviour, 20_000, out / "people.parquet", plain, seed=5)
    learn(
        open_source(out / "people.parquet", LEFT), dr.DecisionPoints(), out / "folder", ledger=None,
        randomness=Seeded(4), privatizer=dr.Central(epsilon=2.0, delta=1e-6),
    )  # fmt: skip
    return out / "folder"


def test_ends_that_are_not_known_widen_the_interval_and_are_told(censored: Path) -> None:
    """The true gain lies within it though only severe people leave, who mostly die."""
    report, document = (json.loads((censored / f"{one}.json").read_text()) for one in ("report", "statement"))
    _, behaviour, true = world_that_people_leave()
    policy = behaviour.copy()
    for change in report["changes"]:
        state = LEFT.state_labels.index(change["state"])  # type: ignore[union-attr]
        policy[:, state] = np.eye(3)[("wait", "drug / A", "drug B").index(change["action"])]
    gain = report["gain"]
    assert gain["low"] < 10.0 * (policy_value(true, policy) - policy_value(true, behaviour)) < gain["high"]
    assert report["measured"] == "transitions"
    assert report["verdict_kind"] == "shown"
    share = report["censored"]["share"]
    people = 20_000 * share
    assert 0.05 < share < 0.2
    assert 0.0 < report["censored"]["deviation"] < 0.01
    assert people > 1_000
    usual = report["values"]["behaviour"]
    assert usual["low"] < 10.0 * policy_value(true, behaviour) < usual["high"]
    text = (censored / "report.md").read_text("utf-8")
    said = (
        f"The outcome of up to {100 * share:.1f} % of the episodes is not known: the interval allows for any "
        "that depends on the recorded state and action before it alone."
    )
    assert said in text.splitlines()[0]
    assert "**Censored ends.** " in text
    assert document["data"]["reward"]["censored"] == "moved"
    assert document["data"]["reward"]["outcomes"] == {"home": 10.0}
    assert document["verdict"]["censored"] == report["censored"]
    for page in ("statement.md", "officer.md"):
        page_text = (censored / page).read_text("utf-8")
        assert f"The outcome of up to {100 * share:.1f} % of the episodes (± " in page_text
    assert "; the outcome of 'moved' is not known (censored ends)" in (censored / "officer.md").read_text(
        "utf-8"
    )
    assert [check.name for check in verify(censored) if not check.ok] == []


def test_planning_again_keeps_censored_ends(censored: Path, tmp_path: Path) -> None:
    made = replan(censored / "release.parquet", dr.DecisionPoints(most_changes=1), tmp_path / "again")
    assert made.statement.document["verdict"]["censored"] is not None


@pytest.mark.parametrize(
    "learner", [dr.DPAPVI(), dr.learners.APVI(), dr.DPPEVI(rho=1.0)], ids=["dp-apvi", "apvi", "pevi"]
)
def test_other_learners_refuse_censored_ends_before_anything_is_spent(
    rows: Path, tmp_path: Path, learner: Any
) -> None:
    with Ledger.open(tmp_path / "book.sqlite") as book, pytest.raises(ValueError, match="with censored ends"):
        learn(open_source(rows, LEFT), learner, tmp_path / "out", ledger=book)
    assert not (tmp_path / "out").exists()


def test_a_forged_share_of_censored_ends_is_found(
    censored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_check_plan", lambda *_: iter(()))
    copy = tmp_path / "copy"
    shutil.copytree(censored, copy)
    document = json.loads((copy / "statement.json").read_text())
    document["verdict"]["censored"] = None
    assert "statement.verdict.censored" in sealed(copy, document)


def test_a_rehearsal_shows_nothing_of_anybody(rows: Path, tmp_path: Path) -> None:
    made = learn(
        open_source(rows, SCHEMA), dr.DecisionPoints(), tmp_path / "out", ledger=None, randomness=Seeded(3),
        privatizer=dr.Central(epsilon=2.0, delta=1e-6), settings=LearnConfig(synthetic=True),
    )  # fmt: skip
    assert made.statement.document["verdict"]["kind"] == "shown"
    for page in ("statement.md", "officer.md"):
        text = (made.folder / page).read_text("utf-8")
        assert "nothing is shown about real users. The verdict would be: Shown, if " in text
    assert [check.name for check in verify(made.folder) if not check.ok] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ended", [1.0, 0.9])
def test_no_page_claims_a_gain_without_its_conditions(kind: str, ended: float) -> None:
    factors = {"asked": 1.1, "each_step": 1.236, "lasting": 1.129, "recorded": 1.8}
    told = {"kind": kind, "hidden_cause": factors, "contrasts_p": 1e-9, "levels_p": None, "covered": 0.5}
    line = verdict_text.verdict_line({**told, "ended": ended, "censored": None})
    assert f"(kind of verdict: {kind})" in line
    assert "p below 1e-6; states compared: not tested; of the changed decisions, 50.0 % are" in line
    assert "1.10 (hidden_cause; the default is 1.10)" in line
    assert line.startswith("Shown, if no unrecorded cause changes the odds") == (kind == "shown")
    assert ("1.23 times" in line and "1.12 times" in line) == (kind in ("fragile", "unchecked", "shown"))
    assert ("10.0 % of the episodes are still under way" in line) == (kind == "shown" and ended < 1.0)


def test_other_points_of_the_path_hold_together(folder: Path, tmp_path: Path) -> None:
    release = folder / "release.parquet"
    first = json.loads((folder / "report.json").read_text())
    for n, learner in enumerate((dr.DecisionPoints(most_changes=1), dr.DecisionPoints(caution=0.0))):
        out = tmp_path / f"again-{n}"
        replan(release, learner, out)
        assert [check.name for check in verify(out) if not check.ok] == []
        report = json.loads((out / "report.json").read_text())
        assert report["path"] == first["path"]
        found = {row[0]: row[1:] for row in report["path"]}
        if report["states_changed"] in found:
            gain = report["gain"]
            assert found[report["states_changed"]] == [gain["estimate"], gain["low"], gain["high"]]
    assert json.loads((tmp_path / "again-0" / "report.json").read_text())["states_changed"] == 1


def test_releases_of_other_questions_are_refused(rows: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"learner = 'dp-apvi': .*holds first visits, for decision-points"):
        replan(folder / "release.parquet", dr.DPAPVI(), tmp_path / "a")
    known = np.zeros((1, 5, 3))
    with pytest.raises(ValueError, match="released with the (returns of the schema|schema's returns)"):
        replan(folder / "release.parquet", dr.DecisionPoints(), tmp_path / "b", rewards=known)
    counts = tmp_path / "counts"
    plain = dr.Central(epsilon=2.0, delta=1e-6)
    learn(open_source(rows, SCHEMA), dr.DPAPVI(), counts, privatizer=plain, ledger=None, randomness=Seeded(1))
    with pytest.raises(ValueError, match=r"learner = 'decision-points': .*holds counts of every step"):
        replan(counts / "release.parquet", dr.DecisionPoints(), tmp_path / "c")
    moving = replace(SCHEMA, stationary=False)
    with pytest.raises(ValueError, match="stationary = False"):
        learn(open_source(rows, moving), dr.DecisionPoints(), tmp_path / "d", privatizer=plain, ledger=None)


def test_a_paid_release_is_in_the_ledger(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "book.sqlite") as book:
        found = learn(
            open_source(rows, SCHEMA), dr.DecisionPoints(), tmp_path / "out",
            privatizer=dr.Central(epsilon=2.0, delta=1e-6), ledger=book, randomness=Secure(),
        )  # fmt: skip
        assert [entry.kind for entry in book.entries()][1:] == ["reserve", "mark"]
        assert [check.name for check in verify(tmp_path / "out", book) if not check.ok] == []
    assert found.report.startswith("**")


def test_many_cut_episodes_are_said(tmp_path: Path) -> None:
    """The same people watched for two steps only: the first line names what the claim hangs on."""
    schema = replace(SCHEMA, layout=Layout(5, 3, 2), outcomes=None, low=0.0, high=1.0)
    mdp, behaviour = world(0.3)
    short = TabularMDP(
        mdp.transitions[0], np.asarray(mdp.successor_rewards)[0], mdp.initial, horizon=2, terminal=(3, 4)
    )
    write_cohort(short, behaviour[:2], 30_000, tmp_path / "p.parquet", schema, seed=1)
    asked = replace(schema, outcomes={4: 1.0})
    found = learn(
        open_source(tmp_path / "p.parquet", asked), dr.DecisionPoints(), tmp_path / "out",
        privatizer=dr.Central(epsilon=4.0, delta=1e-6), ledger=None, randomness=Seeded(2),
    )  # fmt: skip
    first = found.report.split("\n")[0]
    assert "and if what people do depends on the state and not on the time (" in first


def test_schemas_say_outcomes_and_bounds(tmp_path: Path) -> None:
    plain: dict[str, Any] = {
        "dataset": "d", "unit": "p", "horizon": 4, "states": {"labels": ["a", "b", "end"]}, "actions": 2,
        "stationary": True, "terminal": ["end"], "reward": {"outcomes": {"end": -2.0}},
        "return_bound": [-2, 0],
    }  # fmt: skip
    schema = parse_schema(plain)
    assert (schema.low, schema.high, schema.outcomes, schema.return_bound) == (
        -2.0,
        0.0,
        {2: -2.0},
        (-2.0, 0.0),
    )
    assert not schema.reads_rewards
    write_schema(schema, tmp_path / "S.toml")
    again = read_schema(tmp_path / "S.toml")
    assert (again.hash, again.outcomes, again.return_bound) == (schema.hash, {2: -2.0}, (-2.0, 0.0))
    without = {name: value for name, value in plain.items() if name != "return_bound"}
    assert parse_schema(without).hash != schema.hash
    for change, message in (
        ({"reward": {"outcomes": {"nowhere": 1.0}}}, "reward.outcomes.nowhere: must be a state"),
        ({"reward": {"outcomes": {"a": 1.0}}}, "must be of terminal states"),
        ({"return_bound": [1, 1]}, "return_bound = .*the largest must be above the least"),
        ({"return_bound": [0, 1, 2]}, r"must be a number, or \[least, largest\]"),
        ({"reward": {"low": 0.0, "high": 1.0, "outcomes": {"end": 5.0}}}, r"reward.outcomes: must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_schema({**plain, **change})
