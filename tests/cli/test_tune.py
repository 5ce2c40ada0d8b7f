"""``discreet tune``: the table, the file, and that ``run`` takes the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call, document

from discreet.experiments.tuning import Tuning

WORLDS = '[[worlds]]\nenv = "random"\nenv_options = {states = 3, horizon = 4, seed = 1}\n'
SMALL = ["--learner", "psrl", "--trials", "3", "--seeds", "2", "--users", "60", "--workers", "1"]


@pytest.fixture
def worlds(tmp_path: Path) -> Path:
    path = tmp_path / "worlds.toml"
    path.write_text(WORLDS)
    return path


def test_tune_prints_and_writes_what_run_takes(worlds: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = call("tune", *SMALL, "--worlds", worlds, "--out", out)
    assert "psrl: best of 3 trials is number" in text.stdout
    assert "as given" in text.stdout
    assert "6 runs with 360 users" in text.stderr
    found = Tuning.load(out / "tuning.toml")
    run = document("run", out / "tuning.toml", "--episodes", "60", "--workers", "1")
    assert run["config"].get("options", {}) == found.options
    again = document("tune", *SMALL, "--worlds", worlds, "--out", out)
    assert (again["out"], again["tuning"]["score"]) == (str(out), found.best.score)


def test_tune_without_out_writes_below_results(
    worlds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call("tune", *SMALL, "--worlds", worlds, "--set", "samples=2", "--search", "prior-visits=0.1:1")
    found = Tuning.load(Path("results") / "tune-psrl" / "tuning.toml")
    assert found.options["learner.samples"] == 2
    assert (found.space["prior_visits"].low, found.space["prior_visits"].high) == (0.1, 1.0)
    assert "samples" not in found.space


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trials", "0"], "trials = 0: must be"),
        (["--search", "cap"], "search = 'cap': must be an option of psrl"),
        (
            ["--search", "samples", "--search", "samples=1,2"],
            "must be OPTION or OPTION=RANGE, each option once",
        ),
        (["--search", "=1:2"], "must be OPTION or OPTION=RANGE"),
        (["--worlds", "none.toml"], "none.toml: must be a readable TOML file"),
        (["--epsilon", "1"], "epsilon = 1: privatizer 'none' takes no budget"),
        (["--engine", "moon"], "moon"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, worlds: Path, tmp_path: Path) -> None:
    said = call("tune", *SMALL, "--worlds", worlds, "--out", tmp_path / "out", *arguments, code=2).stderr
    assert words in said
    assert len(said.strip().splitlines()) == 1
