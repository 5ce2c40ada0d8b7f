"""From a file to a folder: one release whatever the files look like, and nothing spent or lost on the way."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kills import kill_at_random

import discreet as dr
from discreet.accounting.serialization import records_from_dict
from discreet.core.guarantee import MechanismRecord, guarantee_of
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema, read_schema
from discreet.data.validate import DataError
from discreet.learners.offline import release_files as releases
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, PEVI
from discreet.learners.offline.release_files import read_release
from discreet.ledger.ledger import BudgetError, Ledger
from discreet.pipeline import learn as pipeline
from discreet.pipeline import learned_files as planning
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.synthetic_data import made_up_world, write_made_up
from discreet.pipeline.verify import verify
from discreet.reports.statement import RunFacts, file_hash, make_statement, write_statement

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
H, S, A = 3, 4, 2
MASK = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)
SCHEMA = Schema("ward", "patient", Layout(S, A, H, MASK), terminal=(3,), low=-1.0, high=1.0)
BUDGET = dr.Central(epsilon=1.0, delta=1e-6)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Made-up people in a Parquet file."""
    path = tmp_path / "people.parquet"
    write_made_up(SCHEMA, 60, path, seed=1)
    return path


def run(
    rows: Any, out: Path, ledger: Ledger | None = None, schema: Schema = SCHEMA, **how: Any
) -> pipeline.LearnResult:
    drawn = dr.Seeded(3) if ledger is None else dr.Secure()  # a ledger is for what protects people
    how = {"learner": DPAPVI(), "privatizer": BUDGET, "randomness": drawn, **how}
    return learn(open_source(rows, schema), how.pop("learner"), out, ledger=ledger, **how)


def released(folder: Path) -> list[np.ndarray]:
    """All values of a folder's release."""
    found = read_release(folder / "release.parquet")
    steps = [found.step(h) for h in range(H)]
    return [table for s in steps for table in (s.transitions, s.visits, s.rewards) if table is not None]


def test_one_release_whatever_the_files_look_like(rows: Path, tmp_path: Path) -> None:
    run(rows, tmp_path / "whole")
    table = pd.read_parquet(rows)
    table.to_csv(tmp_path / "rows.csv", index=False)
    shuffled = table.sample(frac=1.0, random_state=0)
    shuffled.to_parquet(tmp_path / "shuffled.parquet", index=False)
    parts = [tmp_path / f"part{i}.parquet" for i in range(3)]
    for i, part in enumerate(parts):
        shuffled.iloc[i::3].to_parquet(part, index=False)
    for name, where in {
        "csv": tmp_path / "rows.csv", "shuffled": tmp_path / "shuffled.parquet", "parts": parts,
    }.items():  # fmt: skip
        run(where, tmp_path / name)
        for mine, other in zip(released(tmp_path / "whole"), released(tmp_path / name), strict=True):
            np.testing.assert_array_equal(mine, other)
        assert (tmp_path / name / "policy.csv").read_bytes() == (tmp_path / "whole/policy.csv").read_bytes()
    run(rows, tmp_path / "other noise", randomness=dr.Seeded(4))
    assert not np.array_equal(released(tmp_path / "other noise")[0], released(tmp_path / "whole")[0])


def test_every_stage_of_a_run_is_told(rows: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []

    def progress(*stage: Any) -> None:
        told.append(stage)

    run(rows, tmp_path / "out", progress=progress, workers=1)
    stages = list(dict.fromkeys(what for what, *_ in told))
    assert stages == [
        "find the noise", "look at the order", "check", "draw noise and write", "plan", "judge the policy",
        "write policy, report, figures",
    ]  # fmt: skip
    drawn = [(done, total) for what, done, total in told if what == "draw noise and write"]
    assert drawn == [(done, H) for done in range(H + 1)]
    told.clear()
    replan(tmp_path / "out" / "release.parquet", DPAPVI(), tmp_path / "again", progress=progress)
    assert [what for what, *_ in told] == ["plan", "judge the policy", "write policy, report, figures"]
    told.clear()
    assert all(check.ok for check in verify(tmp_path / "again", progress=progress))
    assert {what for what, *_ in told} == {"verify"}
    assert [done for _, done, _ in told] == list(range(told[0][2] or 0))


def test_minari_gives_the_same(rows: Path, tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    del minari  # its reader has tests of its own; here only that the door is open
    with pytest.raises(ValueError, match="minari"):
        run("minari:there/is-none-v0", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_folder_holds_all_and_verifies(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        settings = LearnConfig(operator="A. B.", purpose="a first look")
        outcome = run(rows, tmp_path / "out", ledger, randomness=dr.Secure(), settings=settings)
        names = {path.name for path in outcome.folder.iterdir()}
        assert {
            "release.parquet", "policy.csv", "policy.py", "report.md", "report.html", "report.json",
            "statement.json", "statement.md", "schema.toml", "schema.admissible.npy",
        } <= names  # fmt: skip
        assert "run.json" not in names
        assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
        checks = verify(outcome.folder, ledger)
        assert [check for check in checks if not check.ok] == []
        (entry,) = [entry for entry in ledger.entries() if entry.kind == "reserve"]
        (mark,) = [entry for entry in ledger.entries() if entry.kind == "mark"]
        assert (entry.users, entry.dataset) == (60, "ward")
        assert set(mark.files) == names
    document = outcome.statement.to_dict()
    assert document["operator"] == "A. B."
    assert document["guarantee"]["randomness"] == "secure"
    assert "no seed" in (outcome.folder / "statement.md").read_text()
    assert document["population"]["users"] == 60
    assert document["purpose"] == entry.purpose == "a first look"
    assert str(tmp_path) not in "".join(path.read_text("latin-1") for path in outcome.folder.iterdir())


def broken(rows: Path, to: Path) -> Path:
    table = pd.read_parquet(rows)
    table.loc[5, "reward"] = 7.0
    table.to_parquet(to, index=False)
    return to


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "reward"),
        ({"privatizer": dr.Central(epsilon=1.0, delta=0.02)}, "delta = 0.02: must be at most 1/users"),
        ({"privatizer": None}, "privatizer = None: must be Central"),
        ({"privatizer": dr.Local(epsilon=1.0)}, "must be Central or NoPrivacy, because one server has"),
        ({"privatizer": dr.Shuffle(epsilon=0.5, delta=1e-3)}, "must be Central or NoPrivacy"),
        ({"learner": APVI()}, "must be none for APVI, which ignores noise"),
        ({"learner": DPPEVI(rho=1.0)}, "privatizer: must be none"),
        ({"learner": 3}, "learner = 3: must be an offline learner"),
        (
            {
                "learner": DPPEVI(rho=1.0),
                "privatizer": None,
                "settings": LearnConfig(unsupported="behaviour"),
            },
            "unsupported = 'behaviour': must be 'abstain' or 'policy'",
        ),
    ],
)
def test_what_is_refused_costs_nothing(how: dict[str, Any], message: str, rows: Path, tmp_path: Path) -> None:
    source = broken(rows, tmp_path / "broken.parquet") if not how else rows
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")) as caught:
            run(source, tmp_path / "out", ledger, **how)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert isinstance(caught.value, DataError) == (not how)
    assert not getattr(caught.value, "__notes__", [])
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} <= {"people", "broken", "ledger"}


def test_the_owners_limit_is_kept(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_limit("ward", 1.2, 1e-6)
        run(rows, tmp_path / "first", ledger)
        with pytest.raises(BudgetError, match="owner's limit"):
            run(rows, tmp_path / "second", ledger)
        assert ledger.totals("ward").reservations == 1
    assert not (tmp_path / "second").exists()


def test_exact_sums_need_no_ledger(rows: Path, tmp_path: Path) -> None:
    with (
        Ledger.open(tmp_path / "ledger.sqlite") as ledger,
        pytest.raises(ValueError, match="ledger: must be None"),
    ):
        run(rows, tmp_path / "out", ledger, learner=APVI(), privatizer=None)
    outcome = run(rows, tmp_path / "out", learner=APVI(), privatizer=None)
    text = (outcome.folder / "statement.md").read_text()
    assert "ARE NOT PROTECTED" in text
    assert "NO LEDGER" in text
    assert all(check.ok for check in verify(outcome.folder))


def test_a_folder_that_holds_something_is_refused(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(ValueError, match="exists already"):
        run(rows, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_release_that_was_paid_for_is_kept(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(planning, "make_report", fails)
            with pytest.raises(OSError, match="disk is full") as caught:
                run(rows, tmp_path / "out", ledger)
        notes = " ".join(caught.value.__notes__)
        assert "counts as spent" in notes
        assert not (tmp_path / "out").exists()
        (kept,) = tmp_path.glob(".out.*.part/release.parquet")
        assert str(kept) in notes
        assert ledger.totals("ward").unmarked == 1
        outcome = replan(kept, DPAPVI(), tmp_path / "saved")
        assert all(check.ok for check in verify(outcome.folder, ledger))


def test_planning_again_costs_nothing(rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        run(rows, tmp_path / "out", ledger)
        release = tmp_path / "out/release.parquet"
        same = replan(release, DPAPVI(), tmp_path / "same")
        assert (same.folder / "policy.csv").read_bytes() == (tmp_path / "out/policy.csv").read_bytes()
        assert (same.folder / "release.parquet").read_bytes() == release.read_bytes()
        assert same.statement.to_dict()["replanned"] is True
        bold = replan(
            release,
            DPAPVI(threshold=0.0, c1=0.0),
            tmp_path / "bold",
            settings=LearnConfig(unsupported="policy"),
        )
        with open(bold.folder / "policy.csv", newline="") as file:
            assert all(row["action"] for row in csv.DictReader(file))
        again = replan(bold.folder / "release.parquet", DPAPVI(), tmp_path / "again")
        paid = np.zeros((1, S, A))
        paid[:, 0, 1] = 1.0
        known = replan(release, DPAPVI(), tmp_path / "known", rewards=paid)
        assert (known.folder / "rewards.npy").exists()
        for one in (same, bold, again, known):
            assert [check for check in verify(one.folder, ledger) if not check.ok] == []
        assert ledger.totals("ward").reservations == 1


def test_a_release_that_was_swapped_is_refused(rows: Path, tmp_path: Path) -> None:
    run(rows, tmp_path / "a")
    run(rows, tmp_path / "b", randomness=dr.Seeded(9))
    (tmp_path / "a/release.parquet").write_bytes((tmp_path / "b/release.parquet").read_bytes())
    with pytest.raises(ValueError, match="is not the release"):
        replan(tmp_path / "a/release.parquet", DPAPVI(), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_people_with_several_episodes_are_charged_for(tmp_path: Path) -> None:
    schema = dataclasses.replace(SCHEMA, episodes_per_user=3)
    write_made_up(schema, 40, tmp_path / "people.csv", seed=2)
    outcome = run(tmp_path / "people.csv", tmp_path / "out", schema=schema)
    one = dataclasses.replace(SCHEMA, episodes_per_user=1, contribute="random")
    kept = run(tmp_path / "people.csv", tmp_path / "kept", schema=one)
    scales = [o.statement.to_dict()["mechanisms"][0]["families"][0]["scale"] for o in (outcome, kept)]
    assert scales[0] == pytest.approx(3 * scales[1], rel=1e-6)
    for each in (outcome, kept):
        assert all(check.ok for check in verify(each.folder))


@pytest.mark.parametrize(
    "learner",
    [
        DPPEVI(epsilon=1.0, delta=1e-6), DPPEVI(rho=2.0, response="model"), DPVAPVI(rho=2.0, judged=True),
        PEVI(),
    ],
)  # fmt: skip
def test_linear_learners_go_the_same_way(learner: Any, rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        private = not isinstance(learner, PEVI)
        how = {"learner": learner, "privatizer": None}
        outcome = run(rows, tmp_path / "out", ledger if private else None, randomness=dr.Secure(), **how)
        assert [check for check in verify(outcome.folder, ledger if private else None) if not check.ok] == []
        again = replan(outcome.folder / "release.parquet", learner, tmp_path / "again")
        assert (again.folder / "policy.csv").read_bytes() == (outcome.folder / "policy.csv").read_bytes()
        assert [check for check in verify(again.folder, ledger if private else None) if not check.ok] == []


def test_half_of_the_people_judge_a_linear_policy_in_the_files_units(tmp_path: Path) -> None:
    """What people did is worth what they earned, 6 standard errors; the gain is shown, at the asked level."""
    write_made_up(SCHEMA, 4000, tmp_path / "people.parquet", seed=1)
    table = pd.read_parquet(tmp_path / "people.parquet")
    earned = table.groupby("user")["reward"].sum()
    how = {"learner": PEVI(judged=True), "privatizer": None, "settings": LearnConfig(level=0.9)}
    outcome = run(tmp_path / "people.parquet", tmp_path / "out", **how)
    report = json.loads((outcome.folder / "report.json").read_text("utf-8"))
    gain = report["gain"]
    assert abs(gain["usual"] - earned.mean()) < 6 * earned.std() / math.sqrt(2000)
    assert (gain["level"], gain["shown"]) == (0.9, gain["low"] > 0.0)
    assert -2 * H <= gain["low"] < gain["estimate"] < gain["high"] <= 2 * H
    width = (gain["high"] - gain["low"]) / 2 - gain["lacking"] - gain["bent"]
    assert width == pytest.approx(1.6449 * math.hypot(gain["noise"], gain["sampling"]), rel=1e-3)
    text = (outcome.folder / "report.md").read_text("utf-8")
    assert text.startswith(report["verdict"])
    assert "better than what people did" in report["verdict"]
    plain = run(tmp_path / "people.parquet", tmp_path / "plain", learner=PEVI(), privatizer=None)
    assert "--set judged=true" in (plain.folder / "report.md").read_text("utf-8").splitlines()[0]


def test_without_noise_the_policy_is_optimal_in_a_large_cohort(tmp_path: Path) -> None:
    """A world with known optimum, everything between file and policy: exact sums find it."""
    mdp, _ = made_up_world(SCHEMA, seed=1)
    write_made_up(SCHEMA, 4000, tmp_path / "people.parquet", seed=1)
    run(tmp_path / "people.parquet", tmp_path / "out", learner=APVI(), privatizer=None,
        settings=LearnConfig(unsupported="policy"))  # fmt: skip
    with open(tmp_path / "out/policy.csv", newline="") as file:
        table = np.array([int(row["action"]) for row in csv.DictReader(file)]).reshape(H, S)
    from discreet.envs.mdp.planning import optimal_values, policy_value

    best = policy_value(mdp, optimal_values(mdp)[2])
    assert policy_value(mdp, table) > best - 0.02


def test_the_schema_in_the_folder_is_the_schema(rows: Path, tmp_path: Path) -> None:
    run(rows, tmp_path / "out")
    assert read_schema(tmp_path / "out/schema.toml").hash == SCHEMA.hash


# ------------------------------------------------------------------------------ attacks
@pytest.mark.parametrize(
    ("settings", "dataset"),
    [
        ({"operator": "a\nb"}, "ward"),
        ({"approval": "a\x1b"}, "ward"),
        ({"purpose": "x\x1by"}, "ward"),
        ({"purpose": "a\rb"}, "ward"),
        ({"operator": "a\rb"}, "ward"),
        ({"operator": "a\udcffb"}, "ward"),
        ({"approval": "\u202ereversed"}, "ward"),
        ({"operator": 3}, "ward"),
        ({}, "w" * 501),
    ],
)
def test_what_a_statement_refuses_costs_nothing(
    settings: dict[str, Any], dataset: str, rows: Path, tmp_path: Path
) -> None:
    schema = dataclasses.replace(SCHEMA, dataset=dataset)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="must be"):
            run(rows, tmp_path / "out", ledger, schema, settings=LearnConfig(**settings))
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} <= {"people", "ledger"}


def test_names_that_cannot_be_encoded_cost_nothing(rows: Path, tmp_path: Path) -> None:
    """Of the ledger's file, and of states: they would be in files that are written after the reservation."""
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        labels = ("a", "b", "c", "d\udcff")
        with pytest.raises(ValueError, match="can be encoded|Unicode|encode"):
            run(rows, tmp_path / "out", ledger, dataclasses.replace(SCHEMA, state_labels=labels))
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    with Ledger.open(tmp_path / "book\udcff.sqlite") as ledger:
        with pytest.raises(ValueError, match="name of the ledger's file.*can be encoded"):
            run(rows, tmp_path / "out", ledger)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", [{"randomness": dr.Seeded(7)}, {"settings": LearnConfig(synthetic=True)}])
def test_a_ledger_books_nothing_that_protects_nobody(how: dict[str, Any], rows: Path, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="ledger: must be None"):
            run(rows, tmp_path / "out", ledger, **how)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]


@pytest.mark.parametrize("learner", [DPAPVI(), PEVI()])
def test_a_rehearsal_opens_with_that_it_is_one(learner: Any, rows: Path, tmp_path: Path) -> None:
    private = BUDGET if isinstance(learner, DPAPVI) else None
    how = {"learner": learner, "privatizer": private, "settings": LearnConfig(synthetic=True)}
    outcome = run(rows, tmp_path / "out", **how)
    first = outcome.report.split("\n", 1)[0].strip("*")
    assert first.startswith("DRY RUN with synthetic users")
    assert (outcome.folder / "report.md").read_text("utf-8") == outcome.report
    assert [check for check in verify(outcome.folder) if not check.ok] == []
    assert "DRY RUN" not in run(rows, tmp_path / "real", **{**how, "settings": LearnConfig()}).report


@pytest.mark.parametrize("out", ["link", "dangling", "x" * 250, "."])
def test_a_name_that_no_rename_can_give_is_refused_at_the_door(
    out: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    if out in ("link", "dangling"):
        (place / out).symlink_to(tmp_path / out)
    if out == "link":
        (tmp_path / out).mkdir()
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="made by renaming"):
            run(rows, Path(out), ledger)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert not list(place.glob(".*.part")) + list(tmp_path.glob(".*.part"))


def test_a_folder_that_another_run_has_filled_meanwhile_costs_nothing(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pipeline.episodes

    def slow(*args: Any, **how: Any) -> Any:
        yield from real(*args, **how)
        (tmp_path / "out").mkdir()
        (tmp_path / "out/theirs").touch()

    monkeypatch.setattr(pipeline, "episodes", slow)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="exists already"):
            run(rows, tmp_path / "out", ledger)
        assert [entry.kind for entry in ledger.entries()] == ["begin"]


def test_an_empty_folder_may_be_given(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert (run(rows, tmp_path / "out").folder / "statement.json").exists()


@pytest.mark.parametrize("step", ["write_statement", "write_policy"])
def test_a_release_can_be_planned_with_whatever_failed_after_it(
    step: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(planning if step == "write_policy" else pipeline, step, fails)
        with pytest.raises(OSError, match="disk is full"):
            run(rows, tmp_path / "out")
    (kept,) = tmp_path.glob(".out.*.part/release.parquet")
    outcome = replan(kept, DPAPVI(), tmp_path / "saved")
    assert all(check.ok for check in verify(outcome.folder))


def test_planning_again_in_vain_leaves_nothing(rows: Path, tmp_path: Path) -> None:
    run(rows, tmp_path / "out")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="holds counts") as caught:
        replan(tmp_path / "out/release.parquet", DPPEVI(rho=1.0), tmp_path / "again")
    assert not getattr(caught.value, "__notes__", [])  # nothing was paid for
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("old", "new"), [('"ward"', '"other"'), ("user = 1", "user = 2"), ("states = [3]", "states = [2]")]
)
def test_another_schema_beside_a_release_is_refused(old: str, new: str, rows: Path, tmp_path: Path) -> None:
    run(rows, tmp_path / "out")
    text = (tmp_path / "out/schema.toml").read_text()
    assert old in text
    (tmp_path / "out/schema.toml").write_text(text.replace(old, new))
    with pytest.raises(ValueError, match="is not the schema of the release"):
        replan(tmp_path / "out/release.parquet", DPAPVI(), tmp_path / "again")


def test_known_rewards_of_any_range_verify(tmp_path: Path) -> None:
    known = np.random.default_rng(0).uniform(size=(1, S, A))
    schema = dataclasses.replace(SCHEMA, low=-1.3, high=2.7, known=known)
    write_made_up(schema, 60, tmp_path / "people.parquet", seed=1)
    outcome = run(tmp_path / "people.parquet", tmp_path / "out", schema=schema)
    assert read_schema(tmp_path / "out/schema.toml").hash == schema.hash
    assert [check for check in verify(outcome.folder) if not check.ok] == []


@pytest.mark.parametrize("episodes", [1, 2])
@pytest.mark.parametrize("learner", [DPVAPVI(rho=1.0, split=True), DPPEVI(epsilon=5.0, noise="laplace")])
def test_sensitivities_of_linear_sums_are_verified(
    learner: Any, episodes: int, rows: Path, tmp_path: Path
) -> None:
    schema = dataclasses.replace(SCHEMA, episodes_per_user=episodes)
    outcome = run(rows, tmp_path / "out", schema=schema, learner=learner, privatizer=None)
    checks = verify(outcome.folder)
    assert [check for check in checks if not check.ok] == []
    assert any(check.name.startswith("sensitivities[0].sensitivities.") for check in checks)


@pytest.mark.parametrize("learner", [DPAPVI(), DPPEVI(epsilon=1.0, delta=1e-6)])
@pytest.mark.parametrize("extra", [False, True])
def test_a_consistent_lie_about_sensitivities_or_tables_is_found(
    learner: Any, extra: bool, rows: Path, tmp_path: Path
) -> None:
    """All files and hashes are made anew around halved sensitivities, or around one table more."""
    privatizer = BUDGET if isinstance(learner, DPAPVI) else None
    outcome = run(rows, tmp_path / "out", learner=learner, privatizer=privatizer)
    path = outcome.folder / "release.parquet"
    stored = releases.read_tables(path)
    tables = [(name, h, table) for (name, h), table in stored.tables().items()]
    facts = stored.facts
    (record,) = records_from_dict(facts.records)
    assert isinstance(record, MechanismRecord)
    if extra:
        tables.append(("exact", 0, tables[0][2]))
    else:
        word = "x" if privatizer else ""  # unknown families of counts
        record = MechanismRecord(
            record.mechanism,
            record.noise,
            {word + name: scale for name, scale in record.scales.items()},
            {word + name: own / 2 for name, own in record.sensitivities.items()},
            record.joint / 2,
        )
    guarantee = guarantee_of("joint", [record], randomness="seeded", delta=facts.guarantee.delta)
    facts = dataclasses.replace(facts, records=(record.to_dict(),), guarantee=guarantee)
    releases._write(path, stored._kind, tables, facts)
    document = outcome.statement.to_dict()
    forged = RunFacts(
        schema=SCHEMA, users=60, guarantee=guarantee, records=(record,), ledger=None, date=document["date"],
        files={**document["files"], path.name: file_hash(path)},
        **{name: document["configuration"][name] for name in ("algorithm", "options")},
        purpose=document["purpose"],
    )  # fmt: skip
    write_statement(outcome.folder, make_statement(forged))
    found = {check.name for check in verify(outcome.folder) if not check.ok}
    assert found
    assert any(
        name.startswith(("sensitivities", "tables of the release", "release.parquet")) for name in found
    )


def test_a_seeded_statement_promises_nothing_to_who_guesses_the_seed(rows: Path, tmp_path: Path) -> None:
    secure = run(rows, tmp_path / "secure", randomness=dr.Secure()).statement.to_dict()
    seeded = run(rows, tmp_path / "seeded").statement.to_dict()
    assert secure["sentence"].startswith("Suppose that you are a patient")
    assert seeded["sentence"].startswith("Anyone who knows or guesses the seed can remove the noise.")
    assert any("any computing power, provided that the operating" in line for line in secure["covered"])
    assert not any("any computing power" in line for line in seeded["covered"])
    assert all(check.ok for check in verify(tmp_path / "seeded"))


# ------------------------------------------------------------------------------ kill -9
def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    assert kill_at_random(SCHEMA, tmp_path, 2, seed=5) >= 1
