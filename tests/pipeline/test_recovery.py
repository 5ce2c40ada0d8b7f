"""What killed runs leave behind is found, finished and marked; nothing is drawn or spent again."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kills import kill_at
from typer.testing import CliRunner

import discreet as dr
from discreet import cli
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.apvi import DPAPVI
from discreet.ledger.ledger import Ledger
from discreet.pipeline import learned_files as planning
from discreet.pipeline.learn import learn, replan
from discreet.pipeline.recovery import finish, lost
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify
from discreet.utils.atomic_folder import aside, claimed

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
MASK = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], bool)
SCHEMA = Schema("ward", "patient", Layout(4, 2, 3, MASK), terminal=(3,), low=-1.0)
DECLARATION = """
dataset = "ward"
unit = "patient"
horizon = 6
reward = { low = 0.0, high = 1.0 }
[prepare]
user = "who"
time = { column = "when", numbers = "hours" }
step = "1 hour"
[prepare.values.x]
column = "x"
within = "last"
range = [-10, 10]
cuts = [0]
[prepare.states]
product = ["x"]
[prepare.actions]
product = ["x"]
[prepare.end]
column = "who"
states = { "nobody" = "end" }
unreadable = "missing"
missing = "end"
[prepare.reward]
on = { end = 1.0 }
"""
STEPS = ("release", "policy", "statement", "name", "mark")


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs into ``out-STEP`` that were killed at every step."""
    if not hasattr(os, "fork"):
        pytest.skip("forks and kills")
    folder = tmp_path_factory.mktemp("killed")
    kill_at(SCHEMA, folder, *STEPS)
    return folder


def test_runs_that_were_killed_at_every_step_are_finished(killed_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(killed_runs, tmp_path, dirs_exist_ok=True)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        found = {one.number: one for one in lost(tmp_path, ledger)}
        states = [found[number].state for number in sorted(k for k in found if k is not None)]
        assert states == ["no release", "hidden", "hidden", "hidden", "not marked"]
        releases = {
            one.number: (one.folder / "release.parquet").read_bytes()
            for one in found.values()
            if one.folder is not None
        }
        before = ledger.totals("ward")
        assert (before.reservations, before.unmarked) == (5, 5)
        folders = {number: finish(one, ledger) for number, one in found.items()}
        for number, folder in folders.items():
            if folder is None:
                assert found[number].state == "no release"
                continue
            checks = list(verify(folder, ledger))
            assert [check for check in checks if not check.ok] == []
            assert "ledger: published.policy.csv" in {check.name for check in checks}
            assert (folder / "release.parquet").read_bytes() == releases[number]
        names = sorted(folder.name for folder in folders.values() if folder is not None)
        assert names == ["out-mark", "out-name", "out-policy", "out-statement"]
        assert ledger.totals("ward").unmarked == 1
        assert ledger.totals("ward").epsilon == before.epsilon
        assert [one.state for one in lost(tmp_path, ledger)] == ["no release"]
        assert all(finish(one, ledger) is None for one in lost(tmp_path, ledger))
    assert not list(tmp_path.glob(".*.part/release.parquet"))


def run(place: Path, name: str, ledger: Ledger | None) -> Path:
    rows = place / "people.parquet"
    if not rows.exists():
        write_made_up(SCHEMA, 30, rows, seed=1)
    privatizer = dr.Central(epsilon=1.0, delta=1e-6)
    return learn(
        open_source(rows, SCHEMA), DPAPVI(), place / name, privatizer=privatizer, ledger=ledger
    ).folder


def test_what_is_whole_running_or_of_others_is_left_alone(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger, Ledger.open(tmp_path / "other.sqlite") as other:
        whole = run(tmp_path, "whole", ledger)
        replan(whole / "release.parquet", DPAPVI(), tmp_path / "again")
        assert lost(tmp_path, ledger) == []
        with aside(tmp_path / "working") as hidden:
            (hidden / "release.parquet").write_bytes((whole / "release.parquet").read_bytes())
            (running,) = lost(tmp_path, ledger)
            assert running.state == "running"
            assert finish(running, ledger) is None
        theirs = run(tmp_path, "theirs", other)
        theirs.rename(tmp_path / f".theirs.{'0' * 16}.part")
        (found,) = [one for one in lost(tmp_path, ledger) if one.name == "theirs"]
        assert found.state == "of another ledger"
        assert finish(found, ledger) is None
    with pytest.raises(ValueError, match="must be the folder that contains"):
        lost(tmp_path / "nowhere", None)


def fitting(folder: Path) -> tuple[Path, pd.DataFrame, dict[str, Any]]:
    """A declaration, people, and a fit."""
    declaration = folder / "P.toml"
    declaration.write_text(DECLARATION)
    frame = pd.DataFrame({"who": np.arange(3000), "when": 0, "x": np.linspace(-10, 10, 3000)})
    return declaration, frame, {"quantiles": ("x", 4), "epsilon": 1.0, "delta": 1e-6}


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_verify_names_the_command_that_marks_a_folder(tmp_path: Path) -> None:
    """With its place and its ledger, to be pasted; a name with a space is quoted."""
    place = tmp_path / "my runs"
    place.mkdir()
    with Ledger.open(place / "ledger.sqlite") as ledger:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Ledger, "mark", killed)
            with pytest.raises(KeyboardInterrupt):
                run(place, "out", ledger)
        (said,) = (one.name for one in verify(place / "out", ledger) if "not marked" in one.name)
    command = shlex.split(said.split("`")[1])
    assert command == [
        "discreet", "ledger", "recover", str(place), "--finish", "--ledger", str(place / "ledger.sqlite"),
    ]  # fmt: skip


@pytest.mark.parametrize("dies", ["before its name", "before its mark"])
def test_a_fitted_codebook_is_named_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    declaration, frame, how = fitting(tmp_path)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with monkeypatch.context() as patched:
            if dies == "before its name":
                patched.setattr("discreet.pipeline.state_codebook.hashes", killed)
            else:
                patched.setattr(Ledger, "mark", killed)
            with pytest.raises(KeyboardInterrupt) as raised:
                dr.pipeline.fit_codebook(frame, declaration, tmp_path / "cuts", ledger=ledger, **how)
        assert "counts as spent" in str(raised.value.__notes__)
        (one,) = lost(tmp_path, ledger)
        assert one.state == ("hidden" if dies == "before its name" else "not marked")
        before = {path.name: path.read_bytes() for path in one.folder.iterdir()} if one.folder else {}
        assert sorted(before) == ["codebook.json", "cuts.toml", "officer.html", "officer.md", "sums.csv"]
        assert finish(one, ledger) == tmp_path / "cuts"
        dr.pipeline.verify_codebook(tmp_path / "cuts", ledger)
        assert {path.name: path.read_bytes() for path in (tmp_path / "cuts").iterdir()} == before
        assert lost(tmp_path, ledger) == []
        assert ledger.totals("ward").reservations == 1


def test_a_codebook_that_was_changed_is_not_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declaration, frame, how = fitting(tmp_path)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "mark", killed)
            with pytest.raises(KeyboardInterrupt):
                dr.pipeline.fit_codebook(frame, declaration, tmp_path / "cuts", ledger=ledger, **how)
        (tmp_path / "cuts" / "cuts.toml").write_text("cuts = [0.0]")
        (one,) = lost(tmp_path, ledger)
        with pytest.raises(ValueError, match="is not the file that was made"):
            finish(one, ledger)
        assert ledger.totals("ward").unmarked == 1


def test_a_folder_that_was_changed_is_not_marked(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        folder = run(tmp_path, "out", None)
        folder.rename(tmp_path / f".out.{'0' * 16}.part")  # of a run without a ledger
        (found,) = lost(tmp_path, ledger)
        (tmp_path / "out").mkdir()
        assert (found.state, found.number) == ("hidden", None)
        named = finish(found, ledger)
        assert named is not None
        assert [check for check in verify(named) if not check.ok] == []
        assert [entry.kind for entry in ledger.entries()] == ["begin"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCREET_LEDGER", str(tmp_path / "ledger.sqlite"))
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger, monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        with pytest.raises(OSError, match="disk is full"):
            run(tmp_path, "out", ledger)
    runner = CliRunner()
    listed = json.loads(runner.invoke(cli.app, ["ledger", "recover", str(tmp_path), "--json"]).stdout)["lost"]
    assert [(row["entry"], row["state"], row["finished"]) for row in listed] == [(2, "not marked", None)]
    said = " ".join(runner.invoke(cli.app, ["ledger", "recover", str(tmp_path)]).stdout.split())
    assert "1 can be finished with --finish" in said
    done = runner.invoke(cli.app, ["ledger", "recover", str(tmp_path), "--finish", "--json"])
    assert json.loads(done.stdout)["lost"][0]["finished"] == str(tmp_path / "out")
    assert "0 found." in runner.invoke(cli.app, ["ledger", "recover", str(tmp_path)]).stdout


# -------------------------------------------------------------------- two runs to one folder, and no room
def test_the_second_of_two_runs_to_one_folder_pays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first one reserves, the second one is refused: learning, planning again, fitting."""
    declaration, frame, how = fitting(tmp_path)
    first = run(tmp_path, "first", None)
    reserve, refused = Ledger.reserve, []

    def meanwhile(self: Ledger, *words: Any, **named: Any) -> Any:
        entries = len(self.entries())
        for again in (
            lambda: run(tmp_path, "out", self),
            lambda: replan(first / "release.parquet", DPAPVI(), tmp_path / "out"),
            lambda: dr.pipeline.fit_codebook(frame, declaration, tmp_path / "out", ledger=self, **how),
            lambda: dr.prepare(frame, declaration, tmp_path / "out"),
        ):
            with pytest.raises(ValueError, match="another run is writing it; nothing was spent"):
                again()
            refused.append(1)
        assert len(self.entries()) == entries
        return reserve(self, *words, **named)

    monkeypatch.setattr(Ledger, "reserve", meanwhile)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        whole = run(tmp_path, "out", ledger)
        assert [check for check in verify(whole, ledger) if not check.ok] == []
        assert (ledger.totals("ward").reservations, ledger.totals("ward").unmarked) == (1, 0)
    assert len(refused) == 4
    assert not list(tmp_path.glob(".*"))


def test_the_name_of_a_killed_run_is_free(killed_runs: Path, tmp_path: Path) -> None:
    """Killed before its noise was drawn, and while its files were written: the next run takes the name."""
    shutil.copytree(killed_runs, tmp_path, dirs_exist_ok=True)
    for step in ("release", "policy"):
        assert (tmp_path / f".out-{step}.claim").exists()
        with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
            assert run(tmp_path, f"out-{step}", ledger) == tmp_path / f"out-{step}"
            (unmarked,) = [one for one in lost(tmp_path, ledger) if one.name == f"out-{step}"] or [None]
            if unmarked is not None:  # the name is taken now
                made = finish(unmarked, ledger)
                assert made == tmp_path / f"out-{step}-entry-{unmarked.number}"
        assert not (tmp_path / f".out-{step}.claim").exists()


def test_a_name_that_a_run_is_at_work_on_is_not_given_to_a_lost_release(tmp_path: Path) -> None:
    folder = run(tmp_path, "out", None)
    folder.rename(tmp_path / f".out.{'0' * 16}.part")
    (found,) = lost(tmp_path, None)
    with claimed(tmp_path / "out"):
        assert finish(found, None) == tmp_path / "out-entry-None"


def test_a_full_disk_is_found_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaration, frame, how = fitting(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        for again in (
            lambda: run(tmp_path, "out", ledger),
            lambda: dr.pipeline.fit_codebook(frame, declaration, tmp_path / "out", ledger=ledger, **how),
        ):
            with pytest.raises(ValueError, match="must be on a disk with room for .* nothing was spent"):
                again()
        assert [entry.kind for entry in ledger.entries()] == ["begin"]
    assert sorted(path.name for path in tmp_path.iterdir() if "ledger" not in path.name) == [
        "P.toml", "people.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize("learner", [DPAPVI(), dr.DecisionPoints(), dr.DPPEVI(epsilon=1.0, delta=1e-6)])
@pytest.mark.parametrize("states", [4, 60])
def test_the_room_that_is_taken_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: Any, states: int
) -> None:
    schema = Schema(
        "ward", "patient", Layout(states, 3, 5), stationary=isinstance(learner, dr.DecisionPoints)
    )
    taken: list[int] = []
    monkeypatch.setattr(
        "discreet.pipeline.learn.room_for", lambda out, size: taken.append(size) or nullcontext()
    )
    write_made_up(schema, 2000, tmp_path / "people.parquet", seed=1)
    privatizer = None if hasattr(learner, "epsilon") else dr.Central(epsilon=0.1, delta=1e-6)
    done = learn(
        open_source(tmp_path / "people.parquet", schema), learner, tmp_path / "out", privatizer=privatizer,
        ledger=None, randomness=dr.Seeded(0),
    )  # fmt: skip
    sizes = {path.name: path.stat().st_size for path in done.folder.iterdir()}
    assert sum(sizes.values()) <= taken[0]
    assert sizes["release.parquet"] <= taken[0] - planning._PAGES + 2**16


def test_the_command_that_is_printed_finishes_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names folder and ledger, with blanks in their names; pasted from anywhere it works."""
    place = tmp_path / "my data"
    place.mkdir()
    with Ledger.open(place / "our ledger.sqlite") as ledger, monkeypatch.context() as patched:
        patched.setattr(
            "discreet.pipeline.learn.write_statement", lambda *_: (_ for _ in ()).throw(OSError())
        )
        with pytest.raises(OSError) as raised:
            run(place, "out", ledger)
    (note,) = [note for note in raised.value.__notes__ if "Finish it" in note]
    words = shlex.split(note.split("free of budget: ")[1])
    assert words[0] == "discreet"
    monkeypatch.chdir("/")
    done = CliRunner().invoke(cli.app, words[1:])
    assert done.exit_code == 0, done.output
    with Ledger.open(place / "our ledger.sqlite") as ledger:
        assert [check for check in verify(place / "out", ledger) if not check.ok] == []


def test_looking_in_another_folder_says_so(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.reserve("ward", run_records(), delta=1e-6, users=30, purpose="of another folder")
    (tmp_path / "elsewhere").mkdir()
    done = CliRunner().invoke(
        cli.app,
        ["ledger", "recover", str(tmp_path / "elsewhere"), "--ledger", str(tmp_path / "ledger.sqlite")],
    )
    assert "give that folder" in " ".join(done.output.split())


def run_records() -> Any:
    query = DPAPVI().query(SCHEMA.spec())
    with dr.Central(epsilon=1.0, delta=1e-6).stored(query, dr.Secure()) as session:
        return session.records
