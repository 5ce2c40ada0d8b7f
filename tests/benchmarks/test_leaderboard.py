"""Records: tasks are frozen, submissions are checked in words, and what can be recomputed is."""

import copy
import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.leaderboard import leaderboard
from benchmarks.leaderboard.__main__ import app
from discreet import registry
from discreet.experiments import build_run
from discreet.experiments.run_config import RunConfig
from discreet.experiments.simulate import Setup
from discreet.experiments.tuning import Trial, Tuning, mark_of, worlds_of
from discreet.utils.toml_file import to_toml

FOLDER = Path(leaderboard.__file__).parent


def prepare(config: RunConfig) -> Setup:
    """The run with 300 users: as much is played, not as long."""
    return build_run.prepare(build_run.resolved(replace(config, episodes=300)))


def submission(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "format": 1, "task": "riverswim-v1", "system": "uniform", "who": "nobody", "code": "none",
        "commit": "0", "date": "2026-11-23",
        "guarantee": {
            "relation": "replace", "trust": "joint", "epsilon": 1.0, "delta": 1e-6, "proof": "a page",
        },
        "results": {"seed": 1, "per_seed": [100.0 + i for i in range(32)]},
    }  # fmt: skip
    return copy.deepcopy({**found, **changes})


def given(tmp_path: Path, content: dict[str, Any], suffix: str = ".toml") -> leaderboard.Submission:
    path = tmp_path / f"one{suffix}"
    path.write_text(to_toml(content) if suffix == ".toml" else json.dumps(content))
    return leaderboard.read(path)


def test_tasks_are_frozen() -> None:
    """A task that changes gets another identifier: the digest of the old ones stays."""
    text = json.dumps(
        [[str(part) for part in vars(one).values()] for one in leaderboard.TASKS], ensure_ascii=False
    )
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ab8c44a44d3d415d"
    assert len({one.name for one in leaderboard.TASKS}) == len(leaderboard.TASKS) == 11
    assert len(set(leaderboard.WORLDS)) == 31


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_seeds_have_students_interval(tmp_path: Path, suffix: str) -> None:
    found = leaderboard.interval(given(tmp_path, submission(), suffix))
    half = 2.0395134464 * math.sqrt(sum((i - 15.5) ** 2 for i in range(32)) / 31 / 32)  # t, 31 degrees
    assert found.estimate == 115.5
    assert found.high == pytest.approx(115.5 + half, rel=1e-9)


def test_worlds_are_fixed_and_the_worst_has_its_own_error(tmp_path: Path) -> None:
    worlds = [{"world": w, "share": 0.1, "error": 0.01, "seeds": 32} for w in leaderboard.WORLDS]
    worlds[3] |= {"share": 0.72, "error": 0.02}
    content = submission(task="broad-mean-v1", results={"seed": 1, "worlds": worlds})
    found = leaderboard.interval(given(tmp_path, content))
    assert found.estimate == pytest.approx((30 * 0.1 + 0.72) / 31)
    assert (found.high or 0) - found.estimate == pytest.approx(
        1.959964 * math.sqrt(30 * 1e-4 + 4e-4) / 31, rel=1e-5
    )
    worst = given(tmp_path, {**content, "task": "broad-worst-v1"})
    assert leaderboard.interval(worst).estimate == 0.72
    assert leaderboard.said(worst) == f"72 % [68.1, 75.9] ({leaderboard.WORLDS[3]})"
    with pytest.raises(ValueError, match=r"each of the 31 worlds once: RiverSwim are missing"):
        given(tmp_path, submission(task="broad-mean-v1", results={"seed": 1, "worlds": worlds[1:]}))


def test_a_size_counts_if_every_larger_one_does(tmp_path: Path) -> None:
    def size(*shown: int) -> leaderboard.Submission:
        sizes = [{"users": 10**i, "shown": one, "draws": 20} for i, one in enumerate(shown, 3)]
        return given(tmp_path, submission(task="icu-shown-eps1-v1", results={"sizes": sizes}))

    assert leaderboard.interval(size(20, 15, 16, 20)).estimate == 1e5
    assert leaderboard.said(size(20, 15, 16, 15)) == "> 1,000,000"


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("guarantee", {"relation": "add-remove"}, r"guarantee.relation = 'add-remove': must be 'replace'"),
        ("guarantee", {"epsilon": 1.1}, r"guarantee.epsilon = 1.1: must be at most 1 for riverswim-v1"),
        ("guarantee", {"delta": 1e-5}, r"guarantee.delta = 1e-05: must be at most 1e-06"),
        ("guarantee", {"trust": "none"}, r"guarantee.epsilon: must be left out where trust is none"),
        ("guarantee", {"proof": ""}, r"guarantee.proof: must say where"),
        ("results", {"per_seed": [1.0] * 31}, r"results.per_seed: must be a list of at least 32 numbers"),
        ("results", {"per_seed": [math.inf] * 32}, r"results.per_seed\[0\] = inf"),
        (None, {"task": "riverswim"}, r"task = 'riverswim': must be one of riverswim-v1, "),
        (None, {"format": 2}, r"format = 2: must be 1"),
        (None, {"who": " "}, r"who = ' ': must be a text"),
        (None, {"results_": {}}, r"'results_' is no part of a submission"),
        (None, {"run": {"env": "riverswim"}}, r"run.env_options = \{\}: must be \{'rewards': 'bernoulli'\}"),
        (None, {"task": "noise-local-v1"}, r"trust = 'joint': must be one of local for noise-local-v1"),
        (None, {"task": "time-v1"}, r"machine = None: must name the processor"),
    ],
)  # fmt: skip
def test_what_is_no_submission_is_refused_in_words(
    tmp_path: Path, part: str | None, change: dict[str, Any], words: str
) -> None:
    content = submission()
    (content if part is None else content[part]).update(change)
    with pytest.raises(ValueError, match=words):
        given(tmp_path, content)


def test_a_run_of_ours_is_filled_in_verified_and_repeated(tmp_path: Path) -> None:
    run = {
        "env": "riverswim", "env_options": {"rewards": "bernoulli"}, "episodes": 20_000,
        "privatizer": "central", "epsilon": 1.0, "delta": 1e-6,
    }  # fmt: skip
    draft = submission(run=run, results={"seed": 5})
    del draft["guarantee"]
    (tmp_path / "draft.toml").write_text(to_toml(draft))
    (tmp_path / "full.toml").write_text(leaderboard.fill(tmp_path / "draft.toml", prepare, workers=1))
    full = leaderboard.read(tmp_path / "full.toml")
    assert (full.trust, full.epsilon, full.delta) == ("joint", pytest.approx(1.0, rel=1e-6), 1e-6)
    assert [one.ok for one in leaderboard.verify(full, prepare)] == [True, True, None]
    assert [one.ok for one in leaderboard.verify(full, prepare, rerun=True)] == [True, True, True]
    content = copy.deepcopy(dict(full.content))
    content["guarantee"]["epsilon"] = 0.9
    content["stated"] = {"value": leaderboard.interval(full).estimate * 0.99}
    content["results"]["per_seed"] = [0.99 * one for one in content["results"]["per_seed"]]
    false = given(tmp_path, content)
    assert [one.ok for one in leaderboard.verify(false, prepare, rerun=True)] == [True, False, False]
    content["stated"]["value"] *= 1.01
    assert leaderboard.verify(given(tmp_path, content), prepare)[0].ok is False


def test_times_are_filled_in_after_a_run_that_does_not_count(tmp_path: Path) -> None:
    run = {"env": "riverswim", "env_options": {"rewards": "bernoulli"}, "episodes": 20_000}
    draft = submission(task="time-v1", machine="one", run=run, results={"seed": 5})
    (tmp_path / "draft.toml").write_text(to_toml(draft))
    (tmp_path / "full.toml").write_text(leaderboard.fill(tmp_path / "draft.toml", prepare))
    full = leaderboard.read(tmp_path / "full.toml")
    assert full.epsilon is None  # the settings promise nothing
    assert len(full.results["per_seed"]) == 5
    assert all(0 < one < 1e4 for one in full.results["per_seed"])
    assert [one.ok for one in leaderboard.verify(full, prepare, rerun=True)] == [True, True, None]


def test_broad_rows_come_from_the_studys_lines(tmp_path: Path) -> None:
    row = {
        "kind": "", "budget": "(1, 1e-6)", "users": 20_000, "seeds": 32, "regret": 50.0, "error": 5.0,
        "share": 0.2, "worst": 1.0, "late": 0.1, "late_error": 0.01, "late_worst": 1.0, "seconds": 1.0,
        "learner": "x", "seed": 7,
    }  # fmt: skip
    lines = [json.dumps({**row, "world": world}) for world in (*leaderboard.WORLDS, "Taxi")]
    lines.append(json.dumps({**row, "world": "RiverSwim", "users": 200_000}))
    about = dict.fromkeys(("system", "who", "code", "commit", "date"), "text")
    texts, missing = leaderboard.broad(lines, "(1, 1e-6)", about, submission()["guarantee"])
    assert list(texts) == ["broad-mean-v1", "broad-worst-v1"]
    assert missing == [f"late-{one}-v1: 30 of 31 worlds, FrozenLake first" for one in ("mean", "worst")]
    (tmp_path / "one.toml").write_text(texts["broad-mean-v1"])
    found = leaderboard.interval(leaderboard.read(tmp_path / "one.toml"))
    assert (found.estimate, found.high) == (
        pytest.approx(0.2),
        pytest.approx(0.2 + 1.959964 * 0.02 / math.sqrt(31)),
    )


def test_the_page_has_the_tables_of_its_files() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    rows = [leaderboard.read(path) for path in sorted((FOLDER / "records").glob("*.toml"))]
    assert leaderboard.written(page, rows) == page
    assert {row.task.name for row in rows} == {one.name for one in leaderboard.TASKS}
    with pytest.raises(ValueError, match="page: must have the lines <!-- tasks: begin -->"):
        leaderboard.written("", rows)


@pytest.mark.parametrize(
    "name", ["noise-central-v1-gaussian", "noise-local-v1-reports", "icu-shown-eps10-v1-dp-apvi"]
)
def test_rows_of_the_page_are_verified(name: str) -> None:
    found = CliRunner().invoke(app, ["verify", str(FOLDER / "records" / f"{name}.toml")])
    assert found.exit_code == 0, found.output
    assert "NOT AS STATED" not in found.output
    assert found.output.count(": as stated: ") == (1 if "icu" in name else 3)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    content = submission(stated={"value": 1.0})
    (tmp_path / "one.toml").write_text(to_toml(content))
    found = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert found.exit_code == 1
    assert "stated.value = 1.0 is not 115.5" in found.output
    assert CliRunner().invoke(app, ["verify"]).exit_code == 2
    assert CliRunner().invoke(app, ["judge"]).exit_code == 2
    assert "`riverswim-v1`" in CliRunner().invoke(app, ["tasks"]).output


# ------------------------------------------------------------------------------------------ tuning
TUNED = {
    "env": "riverswim", "env_options": {"rewards": "bernoulli"}, "episodes": 20_000,
    "learner": "dp-ucbvi", "privatizer": "central", "epsilon": 1.0, "delta": 1e-6,
}  # fmt: skip


def tuning(
    folder: Path, trials: int = 32, users: int = 20_000, seed: int = 31, worlds: Any = None
) -> dict[str, Any]:
    """Write a tuning as `discreet tune` does, with made-up shares; return what a submission says of it."""
    found = [replace(w, mark=mark_of(registry.make(w.env, **w.env_options))) for w in worlds_of(worlds)]
    config = RunConfig.from_table({
        "learner": "dp-ucbvi", "privatizer": "central", "epsilon": 1.0, "delta": 1e-6, "episodes": users,
        "seeds": 4, "seed": seed, "env": found[0].env, "env_options": found[0].env_options,
        "options": {"learner.replan_growth": 1.1},
    })  # fmt: skip
    tried = [
        Trial(i, {"bonus_scale": 0.1 + i} if i else {}, (1.0 / (1 + i),) * len(found)) for i in range(trials)
    ]
    Tuning(config, tuple(found), {}, tuple(tried)).save(folder / "tuned.toml")
    digest = hashlib.sha256((folder / "tuned.toml").read_bytes()).hexdigest()
    return {
        "file": "tuned.toml", "digest": digest, "trials": trials, "seeds": 4, "users": users, "seed": seed,
        "worlds": [one.name for one in found],
    }  # fmt: skip


def test_a_tuned_row_is_filled_in_and_says_its_effort(tmp_path: Path) -> None:
    true = tuning(tmp_path)
    draft = submission(tuning={"file": "tuned.toml"}, results={"seed": 5})
    draft["run"] = {name: TUNED[name] for name in ("env", "env_options", "episodes")}
    del draft["guarantee"]
    (tmp_path / "draft.toml").write_text(to_toml(draft))
    (tmp_path / "full.toml").write_text(leaderboard.fill(tmp_path / "draft.toml", prepare, workers=1))
    full = leaderboard.read(tmp_path / "full.toml")
    assert full.content["tuning"] == true
    assert full.config is not None
    assert full.config.options == {"learner.bonus_scale": 31.1, "learner.replan_growth": 1.1}
    assert (full.config.learner, full.epsilon) == ("dp-ucbvi", pytest.approx(1.0, rel=1e-6))
    assert "| 32 trials, 16 worlds, 4 seeds |" in leaderboard.table([full])
    assert [one.ok for one in leaderboard.verify(full, prepare)] == [True, True, True, None]
    again = leaderboard.verify(full, prepare, rerun=True)
    assert [(one.name, one.ok) for one in again[1:2]] == [("tuning", False)]  # its shares were made up
    without = given(tmp_path, submission())
    assert without.tuning is None
    assert "| not tuned |" in leaderboard.table([without])
    noise = submission(task="noise-central-v1", results={"value": 26.7})
    assert "| — |" in leaderboard.table([given(tmp_path, noise)])
    with pytest.raises(ValueError, match="tuning: must be left out for noise-central-v1"):
        given(tmp_path, {**noise, "tuning": true})


def test_rows_of_the_broad_suite_name_a_tuning(tmp_path: Path) -> None:
    worlds = [{"world": w, "share": 0.1, "error": 0.01, "seeds": 32} for w in leaderboard.WORLDS]
    content = submission(task="broad-mean-v1", results={"seed": 9, "worlds": worlds}, tuning=tuning(tmp_path))
    assert given(tmp_path, content).tuning is not None
    content["results"]["seed"] = 31
    with pytest.raises(ValueError, match="seed = 31: must not be the seed of the tuning"):
        given(tmp_path, content)
    content["results"]["seed"] = 9
    content["tuning"] = tuning(
        tmp_path, worlds=[{"env": "random", "env_options": {"states": 6, "seed": 1001}}]
    )
    with pytest.raises(ValueError, match="worlds = dense S=6 #1001: must not be among the environments"):
        given(tmp_path, content)


@pytest.mark.parametrize(
    ("made", "said", "run", "words"),
    [
        ({}, {"digest": "0"}, {}, "tuning.digest = '0': must be '"),
        ({}, {"trials": 64}, {}, "tuning.trials = 64: must be 32, as in the file"),
        ({}, {"more": 1}, {}, "tuning.more = 1: must be None, as in the file"),
        ({}, {"file": 3}, {}, "tuning.file = 3: must be the path of a file"),
        ({}, {"file": "none.toml"}, {}, "none.toml: must be a readable TOML file"),
        ({"trials": 8}, {}, {}, "tuning.trials = 8: must be 32, the same for every learner"),
        ({"users": 2000}, {}, {}, "tuning.users = 2000: must be 20000, the same for every learner"),
        ({"worlds": ["bandit"]}, {}, {}, "tuning.worlds: must be the 16 training worlds, and no others"),
        ({"worlds": ["riverswim"]}, {}, {}, "worlds = riverswim: must not be among the environments"),
        ({"seed": 1}, {}, {}, "seed = 1: must not be the seed of the tuning"),
        ({}, {}, {"learner": "private-ucb-vi"}, "run.learner = 'private-ucb-vi': must be 'dp-ucbvi'"),
        ({}, {}, {"epsilon": 0.5}, "run.epsilon = 0.5: must be 1.0, as tuned"),
        ({}, {}, {"options": {"bonus_scale": 2.0, "replan_growth": 1.1}}, "bonus_scale = 2.0: must be 31.1"),
        ({}, {}, {"options": {"learner.bonus_scale": 31.1}}, "replan_growth = None: must be 1.1, as tuned"),
    ],
)  # fmt: skip
def test_a_tuning_that_differs_is_refused(
    tmp_path: Path,
    made: dict[str, Any],
    said: dict[str, Any],
    run: dict[str, Any],
    words: str,
) -> None:
    options = {"learner.bonus_scale": 31.1, "learner.replan_growth": 1.1}
    content = submission(
        tuning={**tuning(tmp_path, **made), **said}, run={**TUNED, "options": options, **run}
    )
    with pytest.raises(ValueError, match=words):
        given(tmp_path, content)
