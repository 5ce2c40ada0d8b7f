"""Users who had no part in a policy judge it: from files to a verified folder, ledger and words."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import discreet as dr
from discreet import cli
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema, write_schema
from discreet.data.user_groups import group_key, in_second_group
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.offline.apvi import DPAPVI
from discreet.learners.offline.release_files import read_release
from discreet.ledger.ledger import Ledger
from discreet.mechanisms.dataset.clipped_sum import ClippedSum
from discreet.pipeline import judge_group, recovery
from discreet.pipeline import learn as learning
from discreet.pipeline.judge_group import JUDGEMENT, JUDGEMENT_PAGE, answer_in, judgement_of, verdict
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.recovery import finish, lost
from discreet.pipeline.trajectory_files import write_cohort
from discreet.pipeline.verify import verify
from discreet.reports.statement import Statement, fingerprint_of, write_statement

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
CENTRAL = dr.Central(epsilon=2.0, delta=1e-6)
SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 8), stationary=True, terminal=(3, 4), low=0.0, high=10.0,
    outcomes={4: 10.0}, provenance={"states": "protocol"},
)  # fmt: skip


def world(effect: float) -> tuple[TabularMDP, Any]:
    """Action 2 sends state 2 home; elsewhere all actions are alike."""
    moves = np.zeros((5, 3, 5))
    for s in range(3):
        for a in range(3):
            home = 0.2 + (effect if (s, a) == (2, 2) else 0.0)
            moves[s, a] = [0.15, 0.15, 0.15, 0.55 - home, home]
    moves[3, :, 3] = moves[4, :, 4] = 1.0
    paid = np.zeros_like(moves)
    paid[:3, :, 4] = 1.0
    mdp = TabularMDP(moves, paid, np.array([0.3, 0.3, 0.4, 0.0, 0.0]), horizon=8, terminal=(3, 4))
    return mdp, np.repeat(np.array([[0.4, 0.4, 0.2]] * 5)[None], 8, axis=0)


def people(path: Path, effect: float, users: int = 8000, seed: int = 4) -> Path:
    write_cohort(*world(effect), users, path, replace(SCHEMA, outcomes=None), seed=seed)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return people(tmp_path_factory.mktemp("ward") / "people.parquet", 0.3)


def run(rows: Path, out: Path, ledger: Ledger | None = None, share: float = 0.5, **how: Any) -> Any:
    randomness = how.pop("randomness", Seeded(3) if ledger is None else Secure())
    return learn(
        open_source(rows, how.pop("schema", SCHEMA)), how.pop("learner", dr.DecisionPoints()), out,
        privatizer=how.pop("privatizer", CENTRAL), ledger=ledger, randomness=randomness, judge_share=share,
        **how,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "ward"
    run(rows, out)
    return out


def failed(folder: Path, ledger: Ledger | None = None) -> list[str]:
    return [check.name for check in verify(folder, ledger) if not check.ok]


# ------------------------------------------------------------------------------ groups


def test_each_user_is_in_one_group_and_the_release_has_the_others(rows: Path, folder: Path) -> None:
    names = sorted(set(pq.read_table(rows)["user"].to_pylist()))
    judges = in_second_group(names, group_key(Seeded(3)), 0.5)
    document = json.loads((folder / "statement.json").read_text())
    second = document["second_group"]
    assert second["users"] == judges.sum()
    assert second["users_of_release"] == read_release(folder / "release.parquet").users == (~judges).sum()
    assert document["population"]["users"] == len(names)


def test_the_release_is_a_function_of_group_a_alone(rows: Path, tmp_path: Path, folder: Path) -> None:
    """Joint independence: other records of group B change no bit of the release, nor the other way round."""
    table = pq.read_table(rows).to_pandas()
    judges = in_second_group(table["user"], group_key(Seeded(3)), 0.5)
    for name, changed in (("b", judges), ("a", ~judges)):
        other = table.copy()
        kept = changed & (other["state"] < 3)
        other.loc[kept, "action"] = (other.loc[kept, "action"] + 1) % 3
        other.to_parquet(tmp_path / f"{name}.parquet")
        run(tmp_path / f"{name}.parquet", tmp_path / name)
    whole, b, a = (
        read_release(one / "release.parquet").step(0) for one in (folder, tmp_path / "b", tmp_path / "a")
    )
    assert (b.transitions == whole.transitions).all()
    assert (a.transitions != whole.transitions).any()
    assert (tmp_path / "b" / "policy.csv").read_bytes() == (folder / "policy.csv").read_bytes()
    assert answer_in(tmp_path / "b") != answer_in(folder)


def test_the_answer_is_the_clipped_sum_of_group_b_with_noise_of_its_record(
    rows: Path, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    right = ClippedSum.release

    def spied(self: ClippedSum, vectors: Any, clip: float, randomness: Any) -> Any:
        seen.append((vectors, clip, self))
        return right(self, vectors, clip, randomness)

    monkeypatch.setattr(ClippedSum, "release", spied)
    run(rows, tmp_path / "out")
    ((vectors, clip, query),) = seen  # asked once
    found, document = judgement_of(tmp_path / "out"), json.loads((folder / "statement.json").read_text())
    assert found is not None
    assert len(vectors) == document["second_group"]["users"] == found["users"]
    assert found["bound"] == pytest.approx(10.0 * clip)
    assert found["sensitivity"] == 2 * found["bound"]
    record = document["second_group"]["mechanism"]["record"]
    assert record["scales"] == {"clipped_answers": query.scale}
    assert document["second_group"]["mechanism"]["loss"] == pytest.approx(document["mechanisms"][0]["loss"])


# ---------------------------------------------------------------------- statement, ledger, verification


def test_the_folder_verifies_and_says_what_is_released(folder: Path) -> None:
    assert failed(folder) == []
    document = json.loads((folder / "statement.json").read_text())
    assert {JUDGEMENT, JUDGEMENT_PAGE} <= set(document["files"])
    assert any("parallel composition" in line for line in document["covered"])
    assert any("identifiers and the key only" in line for line in document["not_covered"])
    text = (folder / "statement.md").read_text()
    assert "Second group." in text
    assert "clipped\\_answers" in text
    assert "clipped sum of one vector per user" in text


def test_the_ledger_books_both_groups_and_one_guarantee(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "book.sqlite") as book:
        found = run(rows, tmp_path / "one", book)
        (entry,) = (entry for entry in book.entries() if entry.kind == "reserve")
        assert entry.users == 8000
        assert [record.mechanism for record in entry.parallel] == ["clipped sum of one vector per user"]
        document = found.statement.document
        assert book.totals("ward").epsilon == document["guarantee"]["epsilon"]
        assert failed(tmp_path / "one", book) == []
        plain = learn(
            open_source(rows, SCHEMA), dr.DecisionPoints(), tmp_path / "two", privatizer=CENTRAL, ledger=book,
        )  # fmt: skip
        rho = document["guarantee"]["rho"] + plain.statement.document["guarantee"]["rho"]
        assert book.totals("ward").rho == pytest.approx(rho)  # a later release adds to the worst group
        assert failed(tmp_path / "one", book) == failed(tmp_path / "two", book) == []
        assert found.judgement is not None
        assert found.judgement.shown


@pytest.mark.parametrize("what", ["share", "users", "scale", "sums", "estimate", "shown", "gone"])
def test_changes_are_noticed(folder: Path, tmp_path: Path, what: str) -> None:
    """Also where every hash was made again."""
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    document = json.loads((out / "statement.json").read_text())
    second = document["second_group"]
    if what == "share":
        second["share"] = document["configuration"]["options"]["judge_share"] = 0.4
    elif what == "users":
        second["users"] -= 100
        second["users_of_release"] += 100
    elif what == "scale":
        record = second["mechanism"]["record"]
        record["scales"]["clipped_answers"] *= 2.0
        record["joint"] /= 2.0
    elif what == "gone":
        del document["second_group"]
    else:
        found = json.loads((out / JUDGEMENT).read_text())
        found[what] = {"sums": [found["sums"][0] + 9.0, found["sums"][1]], "estimate": 3.0, "shown": False}[
            what
        ]
        (out / JUDGEMENT).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        document["files"][JUDGEMENT] = learning.file_hash(out / JUDGEMENT)
    document["fingerprint"] = fingerprint_of(document)
    write_statement(out, Statement(document))
    assert failed(out)


def test_a_new_plan_tells_of_the_group_and_has_no_judgement(folder: Path, tmp_path: Path) -> None:
    replan(folder / "release.parquet", dr.DecisionPoints(most_changes=1), tmp_path / "again")
    document = json.loads((tmp_path / "again" / "statement.json").read_text())
    assert "second_group" in document
    assert document["population"]["users"] == 8000
    assert judgement_of(tmp_path / "again") is None
    assert failed(tmp_path / "again") == []


@pytest.mark.parametrize("asked", [True, False])
def test_a_stopped_run_is_finished_without_new_noise(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    class Stop(BaseException):
        pass

    def stopped(*_: Any, **__: Any) -> None:
        raise Stop

    with Ledger.open(tmp_path / "book.sqlite") as book:
        with monkeypatch.context() as patch:
            patch.setattr(*((learning, "fill") if asked else (judge_group.JudgeGroup, "answer")), stopped)
            with pytest.raises(Stop):
                run(rows, tmp_path / "out", book)
        (one,) = lost(tmp_path, book)
        hidden = [path for path in tmp_path.iterdir() if path.is_dir()]
        total = answer_in(hidden[0]) if asked else None
        out = finish(one, book)
        assert out == tmp_path / "out"
        assert out is not None
        assert failed(out, book) == []
        assert len(list(lost(tmp_path, book))) == 0
        if asked:
            assert answer_in(out) == total
        else:
            assert judgement_of(out) is None


@pytest.mark.parametrize("damage", ["cut", "versions"])
def test_an_answer_to_another_question_is_not_published(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Other versions can compute another C from the release: the sums would be read in wrong units."""

    class Stop(BaseException):
        pass

    def stopped(*_: Any, **__: Any) -> None:
        raise Stop

    with Ledger.open(tmp_path / "book.sqlite") as book:
        with monkeypatch.context() as patch:
            patch.setattr(learning, "fill", stopped)
            with pytest.raises(Stop):
                run(rows, tmp_path / "out", book)
        (one,) = lost(tmp_path, book)
        assert one.folder is not None
        answer = one.folder / JUDGEMENT
        if damage == "cut":
            answer.write_text(answer.read_text()[:100])
        else:
            monkeypatch.setattr(recovery, "versions", lambda: {"discreet": "9.0"})
        with pytest.raises(ValueError, match="to finish without the answer"):
            finish(one, book)
        assert not (tmp_path / "out").exists()
        answer.unlink()
        out = finish(one, book)
        assert out is not None
        assert judgement_of(out) is None
        assert failed(out, book) == []


# ------------------------------------------------------------------------------ words


def test_where_nothing_helps_no_gain_is_shown(tmp_path: Path) -> None:
    """A policy that changes everything, brought by no learner: its answer is about 0."""
    rows = people(tmp_path / "p.parquet", 0.0, seed=8)
    learner = dr.DecisionPoints(caution=0.0)
    said = []
    for seed in range(4):
        out = tmp_path / f"out{seed}"
        run(rows, out, randomness=Seeded(seed), learner=learner)
        found = judgement_of(out)
        assert found is not None
        assert not found["shown"]
        said.append(verdict(found, "patient"))
        page = (out / JUDGEMENT_PAGE).read_text()
        assert said[-1] in page
        assert "Chance and noise do not explain" not in page
    assert any(one.startswith("No gain is shown: ") for one in said)


def test_what_is_said_of_each_kind_of_answer() -> None:
    base = {"changed_states": 2, "level": 0.95, "estimate": 0.4, "low": 0.1, "high": 0.7, "shown": True}
    assert verdict(base, "patient") == (
        "Chance and noise do not explain the gain: the estimated gain of the policy over what patients did "
        "is +0.4 (95 % interval +0.1 to +0.7)."
    )
    none = {**base, "low": -0.1, "shown": False}
    assert verdict(none, "patient").startswith("No gain is shown: ")
    assert verdict(none, "patient").endswith("The interval includes 0.")
    worse = {**base, "estimate": -0.4, "low": -0.7, "high": -0.1, "shown": False}
    assert verdict(worse, "patient").startswith("The policy is worse than what patients did: ")
    nothing = {**none, "changed_states": 0}
    assert verdict(nothing, "patient") == (
        "The policy changes nothing that patients did, so there is no gain to judge."
    )


def test_a_rehearsal_says_that_it_is_about_nobody(rows: Path, tmp_path: Path) -> None:
    run(rows, tmp_path / "out", settings=LearnConfig(synthetic=True))
    assert "SYNTHETIC DATA" in (tmp_path / "out" / JUDGEMENT_PAGE).read_text()
    assert failed(tmp_path / "out") == []


def test_the_command(rows: Path, tmp_path: Path) -> None:
    write_schema(SCHEMA, tmp_path / "ward.toml")
    common = [
        "learn",
        str(rows),
        "--schema",
        str(tmp_path / "ward.toml"),
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
    ]
    common += ["--no-ledger", "--seed", "3", "--judge-share"]
    runner = CliRunner()
    plain = runner.invoke(cli.app, [*common, "0.5", "--out", str(tmp_path / "one")])
    assert plain.exit_code == 0, plain.output
    assert "Evaluated with the held-out users: Chance and noise do not explain the gain:" in " ".join(
        plain.output.split()
    )
    told = runner.invoke(cli.app, [*common, "0.5", "--out", str(tmp_path / "two"), "--json"])
    assert (
        json.loads(told.stdout)["judgement"]
        == judgement_of(tmp_path / "one")
        == judgement_of(tmp_path / "two")
    )
    wrong = runner.invoke(cli.app, [*common, "1.5", "--out", str(tmp_path / "three")])
    assert wrong.exit_code != 0
    assert "judge_share = 1.5" in " ".join(wrong.output.split())


# ------------------------------------------------------------------------------ refusals


def test_what_cannot_be_judged_is_refused_before_anything_is_read(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "book.sqlite") as book:
        for how, words in (
            ({"learner": DPAPVI()}, "first visits"),
            ({"schema": replace(SCHEMA, outcomes=None)}, "pays rewards by the state"),
            ({"schema": replace(SCHEMA, episodes_per_user=2)}, "episodes_per_user = 2"),
            ({"share": 0.0}, "judge_share"),
            ({"share": 1.0}, "judge_share"),
            ({"privatizer": dr.NoPrivacy(), "ledger": None}, "without privacy"),
        ):
            with pytest.raises(ValueError, match=words):
                run(rows, tmp_path / "out", **{"ledger": book, **how})
        assert len(book.entries()) == 1
        assert not (tmp_path / "out").exists()


def test_an_empty_group_is_refused_before_budget_is_spent(tmp_path: Path) -> None:
    rows = people(tmp_path / "p.parquet", 0.0, 3)
    with Ledger.open(tmp_path / "book.sqlite") as book:
        for share, words in (
            (1e-9, "no user is in the second group"),
            (1.0 - 1e-9, "no user is left for learning"),
        ):
            with pytest.raises(ValueError, match=words):
                run(rows, tmp_path / "out", book, share)
        assert len(book.entries()) == 1


def test_a_damaged_answer_is_refused(folder: Path, tmp_path: Path) -> None:
    for text in (
        "{}",
        "no",
        '{"format": "discreet judgement", "sums": [1, 2]}',
        '{"format": "x", "sums": [1.0, 2.0]}',
    ):
        (tmp_path / JUDGEMENT).write_text(text)
        with pytest.raises(ValueError, match=r"must be as `discreet learn` wrote it"):
            answer_in(tmp_path)
    assert answer_in(folder) == answer_in(folder)
