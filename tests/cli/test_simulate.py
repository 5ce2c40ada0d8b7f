"""The command line as a process sees it: statuses, streams, JSON, folders."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import call, document
from waiting import LIMIT, wait_until

from discreet import registry
from discreet.cli import simulate as simulations
from discreet.experiments import engine, simulate, timing
from discreet.experiments import sweep as sweeps
from discreet.experiments.results import Result as RunResult

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SMALL = ["--env-option", "states=3", "--env-option", "horizon=4", "--episodes", "60", "--seeds", "2"]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# -------------------------------------------------------------------------------- what there is


def test_list() -> None:
    text = call("list").stdout
    rows = document("list")
    assert {row["name"] for row in rows} == {entry.name for entry in registry.entries()}
    assert all(row["name"] in text for row in rows)
    assert {"kind", "name", "summary", "fits"} == set(rows[0])


def test_options_say_what_they_are() -> None:
    said = document("describe", "noise-aware")["descriptions"]
    assert (
        said["priv_scale"]
        == "Factor c_p of the privacy part of the bonus, in standard deviations of the noise"
    )
    assert said["replan_every"].startswith("Release and replan after this number")  # of a base class
    assert "zCDP" in document("describe", "central")["descriptions"]["epsilon"]
    assert "try the policies that repeat one action" in call("describe", "noise-aware").stdout


def test_options_of_a_name() -> None:
    shown = document("describe", "central")
    assert shown["options"]["epsilon"] == "number"
    assert "paper" in shown["presets"]
    assert "calibration" in call("describe", "central").stdout
    lake = document("describe", "gym:FrozenLake-v1")
    assert lake["kind"] == "environment"
    assert "env_id" not in lake["options"]
    assert document("describe", "riverswim")["defaults"] == {
        "states": 6, "horizon": 20, "rewards": "deterministic"
    }  # fmt: skip
    assert "honest" not in document("describe", "ucb-vi-bernstein")["presets"]
    assert "must be one of" in call("describe", "centrale", code=2).stderr


# ------------------------------------------------------------------------------------------ run
def test_run_prints_one_json_document() -> None:
    out = document(
        "run", *SMALL, "--learner", "dp-ucbvi", "--privatizer", "central", "--epsilon", "1", "--seed", "4"
    )
    assert len(out["final_regret"]) == 2
    assert out["episodes"] == 60
    assert 0 <= out["uniform_value"] < out["optimal_value"] <= 4
    assert out["seconds"] > 0
    guarantee = out["guarantee"]
    assert guarantee["trust"] == "joint"
    assert guarantee["epsilon"] == pytest.approx(1.0)
    assert guarantee["epsilon_nominal"] == 1.0
    assert guarantee["delta"] == 0
    assert {"rho", "mu", "unit", "neighbours", "randomness", "users_public", "statement"} <= set(guarantee)
    again = document(
        "run",
        *SMALL,
        "--learner",
        "dp-ucbvi",
        "--privatizer",
        "central",
        "--epsilon",
        "1",
        "--seed",
        "4",
        "--workers",
        "2",
    )
    assert again["final_regret"] == out["final_regret"]


def test_a_prior_is_told_and_stored(tmp_path: Path) -> None:
    prior, out = tmp_path / "prior.csv", tmp_path / "out"
    prior.write_text("state,action,next,probability,reward\n0,1,1,1.0,0.5\n")
    with_prior = ["--prior", prior, "--prior-strength", "20", "--privatizer", "central", "--epsilon", "1"]
    found = document("run", *SMALL, *with_prior, "--out", out)
    assert "does not cover the people that the prior was made from" in found["privacy_note"]
    stored = tomllib.loads((out / "config.toml").read_text())["options"]["learner"]
    assert stored["prior"].startswith(f"{prior}#")
    assert stored["prior_strength"] == 20.0
    assert document("run", out / "config.toml", "--out", out)["final_regret"] == found["final_regret"]
    assert RunResult.load(out).about.privacy_note == found["privacy_note"]
    text = call("estimate", *SMALL[:-2], *with_prior).stdout
    assert "taken as public" in " ".join(text.split())


def test_run_says_the_guarantee_in_a_sentence() -> None:
    text = call("run", *SMALL, "--learner", "ucb-vi", "--privatizer", "none").stdout
    assert "No privacy guarantee" in text
    assert "uniform policy" in text
    assert "95% intervals" in text


def test_paper_preset_and_what_it_really_buys() -> None:
    paper = [
        "run",
        *SMALL,
        "--learner",
        "dp-ucbvi",
        "--privatizer",
        "local",
        "--epsilon",
        "1",
        "--set",
        "preset=paper",
    ]
    published = document(*paper)["guarantee"]
    assert (published["epsilon"], published["epsilon_nominal"]) == (pytest.approx(2.0), 1.0)
    true = document(*paper, "--set", "calibration=exact")["guarantee"]
    assert true["epsilon"] == pytest.approx(1.0)


@pytest.mark.compiles
def test_public_code_preset_is_not_private() -> None:
    run = ["run", "--episodes", "50", "--learner", "private-ucb-vi", "--plugin", "papers.presets"]
    run += ["--set", "preset=code:cz22"]
    out = document(*run, "--privatizer", "central", "--epsilon", "1")
    assert out["guarantee"]["epsilon"] is None
    assert "preset" in call(*run, "--set", "preset=code:other", code=2).stderr


def test_a_baseline_given_noise_is_labelled_so() -> None:
    out = document("run", *SMALL, "--learner", "ucb-vi", "--privatizer", "central", "--epsilon", "1")
    assert out["label"] == "ucb-vi (ignores the noise law)"


@pytest.mark.parametrize("command", ["run", "estimate"])
@pytest.mark.parametrize("privatizer", [(), ("--privatizer", "none")], ids=["absent", "none"])
@pytest.mark.parametrize("budget", [("epsilon", "1"), ("delta", "1e-6"), ("rho", "1"), ("mu", "1")])
def test_a_budget_without_a_privatizer_is_refused(
    command: str, privatizer: tuple[str, ...], budget: tuple[str, str]
) -> None:
    """It was dropped with a remark: who overlooked that took a run without privacy for a private one."""
    name, value = budget
    small = SMALL[:-2] if command == "estimate" else SMALL
    flag = [f"--{name}", value] if name in ("epsilon", "delta") else ["--set", f"privatizer.{name}={value}"]
    said = call(command, *small, *privatizer, *flag, code=2).stderr
    assert name in said
    if name in ("epsilon", "delta"):
        assert f"{name} = {float(value):g}: privatizer 'none' takes no budget" in said
        assert "--privatizer central or local or shuffle" in said


@pytest.mark.parametrize("command", ["run", "estimate"])
def test_seeded_noise_is_said_to_hold_against_nobody_with_the_seed(command: str) -> None:
    small = SMALL[:-2] if command == "estimate" else SMALL
    said = "Holds if the seed is guessed: NO."
    private = [command, *small, "--privatizer", "central", "--epsilon", "1"]
    assert said in call(*private).stdout
    assert said not in call(command, *small).stdout
    if command == "run":
        assert document(*private)["guarantee"]["holds_if_seed_is_guessed"] is False


def test_a_budget_of_a_file_that_is_not_used_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("epsilon = 1.0\nepisodes = 60\nseeds = 1\n[env_options]\nstates = 3\nhorizon = 4\n")
    result = call("run", path, "--privatizer", "none", "--json")
    assert "epsilon = 1 is not used" in result.stderr
    assert json.loads(result.stdout)["guarantee"]["epsilon"] is None


def test_configuration_file_and_flags_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'learner = "private-ucb-vi"\nepisodes = 60\nseeds = 1\n'
        "[env_options]\nstates = 3\nhorizon = 4\n[options]\nbonus_scale = 0.5\n"
    )
    out = document("run", path, "--seeds", "2", "--out", tmp_path / "out")
    assert len(out["final_regret"]) == 2
    assert out["config"]["options"] == {"learner.bonus_scale": 0.5}
    repeated = document("run", tmp_path / "out" / "config.toml")
    assert repeated["final_regret"] == out["final_regret"]


def test_out_resumes_grows_and_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    first = document("run", *SMALL, "--out", out)
    names = {p.name for p in (out / "seeds").iterdir()}
    assert names == {"run-00000.parquet", "run-00001.parquet"}
    assert {p.name for p in out.iterdir()} == {"config.toml", "guarantee.json", "about.json", "seeds"}

    asked: list[int] = []
    real = simulate.iterate_runs

    def listening(setup: Any, seed: int, runs: Any, *rest: Any, **named: Any) -> Any:
        asked.extend(runs)
        return real(setup, seed, runs, *rest, **named)

    monkeypatch.setattr(simulate, "iterate_runs", listening)
    grown = document("run", *SMALL, "--seeds", "4", "--out", out)
    assert asked == [2, 3]
    assert grown["final_regret"][:2] == first["final_regret"]
    assert RunResult.load(out).final_regret.tolist() == grown["final_regret"]

    before = snapshot(out)
    error = call("run", *SMALL, "--episodes", "61", "--out", out, code=2).stderr
    assert "episodes = 60 there, 61 here" in error
    assert snapshot(out) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learner", "dp-ucbv"], "did you mean 'dp-ucbvi'"),
        (["--privatizer", "centrl"], "must be one of none, central, local"),
        (["--env", "riverrun"], "environment = 'riverrun'"),
        (["--env", "gym:Nothing-v0"], "Nothing-v0"),
        (["--privatizer", "central"], "epsilon"),
        (["--privatizer", "central", "--epsilon", "0"], "epsilon = 0.0: must be a finite number above 0"),
        (["--privatizer", "central", "--epsilon", "much"], "--epsilon = 'much': "),
        (["--privatizer", "central", "--epsilon", "-1"], "epsilon = -1"),
        (["--privatizer", "central", "--epsilon", "nan"], "epsilon = nan"),
        (["--privatizer", "local", "--epsilon", "inf"], "epsilon = inf"),
        (["--privatizer", "central", "--epsilon", "1", "--delta", "1"], "delta = 1"),
        (["--episodes", "0"], "episodes = 0: must be an integer of at least 1"),
        (["--seeds", "0"], "seeds = '0'"),
        (["--seeds", "3:3"], "seeds = '3:3': must be a number above 0, or FIRST:END with FIRST < END"),
        (["--seeds", "many"], "seeds = 'many': must be a number"),
        (["--seed", "-1"], "seed = -1"),
        (["--workers", "0"], "workers = 0"),
        (["--by", "magic"], "by = 'magic'"),
        (["--set", "preset=poster"], "preset = 'poster'"),
        (["--set", "bonus_scale"], "must be KEY=VALUE"),
        (["--set", "bonus_scale=much"], "bonus_scale = 'much': must be a number"),
        (["--set", "typo=1"], "the options are noise-aware: bonus_scale: number"),
        (["--set", "bonus_scale=1", "--set", "bonus_scale=2"], "given twice"),
        (["--env-option", "typo=1"], "option 'typo': unknown to riverswim, which takes states: integer"),
        (["--env-option", "rewards=poisson"], "rewards = 'poisson'"),
        (["--env-option", "states=1"], "states = 1"),
        (["--prior", "none.csv"], "prior = 'none.csv': must be a readable file"),
        (["--prior-strength", "9"], "prior_strength = 9: must be given with prior"),
        (["--learner", "dp-ucbvi", "--prior", "a.csv"], "learner 'dp-ucbvi' has no prior"),
        (["--plugin", "no_such_module_anywhere"], "no_such_module_anywhere"),
        (["no-such-file.toml"], "no-such-file.toml"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = call("run", *arguments, "--out", tmp_path / "out", code=2)
    assert result.stdout == ""
    last = [line for line in result.stderr.splitlines() if line]
    assert last[-1].startswith("discreet: ")
    assert message in last[-1]
    assert len([line for line in last if "compiling" not in line]) == 1
    assert not (tmp_path / "out").exists()


def test_help_shows_sweep_tables() -> None:
    assert "tables `runs`" in " ".join(call("sweep", "--help").stdout.split())


@pytest.mark.filterwarnings("default:this is slow:UserWarning")
def test_what_takes_hours_is_said_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "slow" not in call("run", *SMALL).stderr
    hour = timing.Moments((0.0, 3600.0, 7200.0, 10800.0), (10, 340, 670, 1000))  # 330 users an hour
    monkeypatch.setattr(timing, "moments", lambda run: hour)
    each = ("--learner", "dp-ucbvi", "--set", "replan_every=1", "--episodes", "1001")
    said = call("run", *SMALL, *each).stderr
    assert (
        "discreet: this is slow: about 3 hours, since the learner plans 1,001 times for 1,001 users" in said
    )
    assert "stationary=True" in said
    assert "replan_growth=1.1 (policies change on a public schedule, 55 times)" in said
    assert "slow" not in call("run", *SMALL, "--learner", "dp-ucbvi", "--episodes", "1001").stderr


def test_the_public_codes_statement_says_why_it_is_none() -> None:
    run = [
        "run",
        "--episodes",
        "20",
        "--learner",
        "private-ucb-vi",
        "--plugin",
        "papers.presets",
        "--set",
        "preset=code:cz22",
        "--epsilon",
        "1",
    ]
    said = document(*run, "--privatizer", "central")["guarantee"]["statement"]
    assert "the public code's noise" in said
    assert "without noise" not in said
    assert "without noise" in document(*run[:-2], "--privatizer", "none")["guarantee"]["statement"]


def test_plugins_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    run = [
        "run",
        "--plugin",
        "my_module",
        "--env",
        "ward",
        "--learner",
        "imagined-visits",
        "--episodes",
        "30",
    ]
    out = document(*run, "--privatizer", "mostly-transitions", "--epsilon", "2", "--out", tmp_path / "out")
    assert out["guarantee"]["epsilon"] == pytest.approx(2.0)
    assert tomllib.loads((tmp_path / "out" / "config.toml").read_text())["plugins"] == ["my_module"]


# --------------------------------------------------------------------- sweep, compare, plot, check
@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    folder = tmp_path_factory.mktemp("sweep")
    path = folder / "small.toml"
    path.write_text(
        'title = "small"\nepisodes = 60\nseeds = 6\nepsilon = 1.0\n'
        "[env_options]\nstates = 3\nhorizon = 4\n"
        '[[runs]]\nlearner = "ucb-vi-bernstein"\n'
        '[[runs]]\nlearner = "dp-ucbvi"\nprivatizer = ["central", "local"]\nepsilon = [1.0, 10.0]\n'
    )
    return path, folder / "out", document("sweep", path, "--out", folder / "out")


def test_sweep_makes_a_folder_a_run_and_a_figure(swept: tuple[Path, Path, Any]) -> None:
    path, out, found = swept
    assert [run["privatizer"] for run in found["runs"]] == ["none", "central", "central", "local", "local"]
    assert [run["guarantee"]["epsilon_nominal"] for run in found["runs"]] == [None, 1.0, 10.0, 1.0, 10.0]
    assert len([p for p in out.iterdir() if p.is_dir()]) == 5
    assert (out / "regret.png").stat().st_size > 1000
    assert (out / "regret.pdf").stat().st_size > 1000
    before = {name: content for name, content in snapshot(out).items() if name.endswith(".parquet")}
    text = call("sweep", path, "--out", out).stdout
    assert {name: content for name, content in snapshot(out).items() if name.endswith(".parquet")} == before
    assert "Final regret after 60 users on riverswim" in text
    assert "regret.png" in text


def test_a_sweep_in_parts_is_the_sweep(
    swept: tuple[Path, Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, found = swept
    monkeypatch.setattr(simulations, "_figures", lambda *_: [])  # drawn above
    listed = document("sweep", path, "--out", tmp_path, "--list")
    assert [one["only"] for one in listed] == [1, 2, 3, 4, 5]
    assert {Path(one["out"]).name for one in listed} == {p.name for p in out.iterdir() if p.is_dir()}
    assert not any(tmp_path.iterdir())
    for folder, part in (("a", "1/2"), ("b", "2/2")):
        document("sweep", path, "--out", tmp_path / folder, "--shard", part)
    assert "30 new runs" in call("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "all").stderr
    whole = {name: content for name, content in snapshot(out).items() if name.endswith("guarantee.json")}
    assert {n: c for n, c in snapshot(tmp_path / "all").items() if n.endswith("guarantee.json")} == whole
    again = document("sweep", path, "--out", tmp_path / "all")
    assert [one["final_regret"] for one in again["runs"]] == [one["final_regret"] for one in found["runs"]]
    only = document("sweep", path, "--out", tmp_path / "only", "--only", "2", "--only", "5")
    assert [one["final_regret"] for one in only["runs"]] == [found["runs"][i]["final_regret"] for i in (1, 4)]
    assert "only = 6: must be" in call("sweep", path, "--out", tmp_path / "c", "--only", "6", code=2).stderr
    assert not (tmp_path / "c").exists()


def test_seeds_that_go_on_from_a_number(tmp_path: Path) -> None:
    whole = document("run", *SMALL, "--seeds", "5")
    part = document("run", *SMALL, "--seeds", "3:5", "--out", tmp_path / "part")
    assert part["final_regret"] == whole["final_regret"][3:]
    third = document("run", *SMALL, "--seeds", "5", "--shard", "3/3")
    assert third["final_regret"] == whole["final_regret"][2:3]
    assert "shard = '4/3'" in call("run", *SMALL, "--shard", "4/3", code=2).stderr
    assert "shard: has none" in call("run", *SMALL, "--seeds", "2", "--shard", "3/3", code=2).stderr


def test_an_engine_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "engine = 'spark': must be local" in call("run", *SMALL, "--engine", "spark", code=2).stderr
    monkeypatch.setitem(engine.ENGINES, "ray", ("discreet.experiments.engines.missing", "ray"))
    error = call("run", *SMALL, "--engine", "ray", code=1).stderr
    assert "pip install 'discreet[ray]'" in error
    assert "Traceback" not in error


def test_sweep_runs_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('episodes = 10\n[[runs]]\nlearner = "ucb-vi"\n[[runs]]\nlearner = "unknown"\n')
    assert "unknown" in call("sweep", path, "--out", tmp_path / "out", code=2).stderr
    assert not (tmp_path / "out").exists()


def test_compare_in_three_styles_and_json(swept: tuple[Path, Path, Any]) -> None:
    out = swept[1]
    assert "sign flips" in call("compare", out).stdout
    assert call("compare", out, "--format", "markdown").stdout.startswith("| learner |")
    assert r"\begin{tabular}" in call("compare", out, "--format", "latex").stdout
    (found,) = document("compare", out)["groups"]
    assert (found["environment"], found["episodes"]) == ("riverswim (horizon=4, states=3)", 60)
    assert found["baseline"] == "ucb-vi-bernstein"
    assert found["results"][0]["paired"] is None
    assert len(found["results"][1]["paired"]["differences"]) == 6
    folders = sorted(p for p in out.iterdir() if p.is_dir())
    (other,) = document("compare", folders[0], folders[1], "--baseline", folders[1])["groups"]
    assert len(other["results"]) == 2
    assert "format = 'word'" in call("compare", out, "--format", "word", code=2).stderr
    assert "at least two" in call("compare", folders[0], code=2).stderr
    assert "at least two" in call("compare", folders[0], folders[0], code=2).stderr


def test_plot(swept: tuple[Path, Path, Any], tmp_path: Path) -> None:
    found = document("plot", swept[1], "--out", tmp_path / "figure.svg", "--scale", "linear")
    assert len(found["curves"]) == 5
    assert "joint DP, ε = 10; 6 seeds" in " ".join(found["curves"])
    wide = document("plot", swept[1], "--out", tmp_path / "two.svg", "--columns", 2, "--journal", "pnas")
    assert wide["figure"] == str(tmp_path / "two.svg")
    assert f'width="{178 / 25.4 * 72:.6f}pt"' in (tmp_path / "two.svg").read_text()
    assert "figure.bmp" in call("plot", swept[1], "--out", tmp_path / "figure.bmp", code=2).stderr


def test_forecast_says_what_would_be_chosen_and_what_it_costs() -> None:
    budget = ("--privatizer", "central", "--epsilon", "1", "--delta", "1e-6")
    found = document("estimate", "--learner", "noise-aware", *budget, "--episodes", "20000")
    assert found["choices"][0]["release"].startswith("decaying")
    assert found["choices"][0]["ratio"] == 1.0
    errors = [choice["error"] for choice in found["choices"]]
    assert errors == sorted(errors)
    assert errors[0] < 70  # the papers' tree: 5 692 (privacy-mechanisms, 2.2)
    assert found["statement"].startswith("Joint differential privacy")
    papers = document("estimate", "--learner", "dp-ucbvi", "--set", "preset=paper", *budget[:4])
    assert papers["releases"] == 19_999
    # 3 H log2(K) / epsilon per node, sqrt(2 x 5 nodes) at 19 999 = 100111000011111 in binary (9 nodes)
    assert papers["std"]["visits"][1] == pytest.approx(60 * math.log2(20_000) * math.sqrt(2 * 9))
    each = ("--learner", "dp-ucbvi", "--set", "replan_every=1")
    text = call("estimate", *each, "--privatizer", "local", "--epsilon", "2").stdout
    assert "Local differential privacy" in text
    assert "after 19,999 users" in text


# ------------------------------------------------------------------------------------- processes
def test_interrupted_run_leaves_whole_files_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "discreet", "run", "--learner", "private-ucb-vi", "--privatizer", "local",
        "--epsilon", "1", "--episodes", "20000", "--seeds", "200", "--workers", "1", "--out", str(out),
    ]  # fmt: skip
    # A shell starts background jobs with SIGINT ignored, and children inherit that: undo it here.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ.copy(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_until(lambda: process.poll() is not None or list(out.glob("seeds/run-*.parquet")))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr
    done = RunResult.load(out).runs.tolist()
    assert 0 < len(done) < 200
    assert not [p for p in out.rglob("*") if p.name.endswith(".tmp")]


def test_json_alone_on_standard_output(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "discreet", "run", "--episodes", "50", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["episodes"] == 50


CENTRAL = ("--privatizer", "central", "--epsilon", "1")
LOCAL = ("--privatizer", "local", "--epsilon", "1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*CENTRAL, "--set", "clocks=rows"), r"clocks = 'rows'"),
        ((*CENTRAL, "--set", "clock_growth=0.5"), r"clock_growth = 0\.5.*version 0\.2"),
        ((*CENTRAL, "--set", "release=decaying"), r"release = 'decaying'.*delta"),
        (
            ("--learner", "dp-ucbvi", "--set", "preset=paper", *CENTRAL, "--set", "release=auto"),
            r"release = 'auto': must be 'tree' with calibration 'published'",
        ),
        (
            (*LOCAL, "--set", "explore=returns"),
            r"explore = 'returns'.*privatizer 'central'",
        ),
        (
            (*LOCAL, "--set", "randomizer=laplace", "--set", "steps=2"),
            r"steps = 2: goes with randomizer 'auto', 'subset', 'oue' or 'krr'",
        ),
        (
            ("--learner", "dp-ucbvi", "--set", "preset=paper", *CENTRAL, "--episodes", "10000000000"),
            "users = 10000000000: must be",
        ),
        (("--set", "bonus_scale=3", *CENTRAL), r"bonus_scale = 3\.0: is not an option of this learner"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    found = call("estimate", *arguments, code=2).stderr.strip()
    assert "\n" not in found
    assert re.search(said, found), found


def test_options_lists_none_that_the_learner_refuses() -> None:
    listed = document("describe", "noise-aware")["options"]
    assert "bonus_scale" not in listed
    assert "priv_scale" in listed


def test_a_delta_that_protects_nobody_is_remarked_on() -> None:
    assert "publishing one user's whole record" in call("estimate", *CENTRAL, "--delta", "0.01").stderr
    assert call("estimate", *CENTRAL, "--delta", "1e-6").stderr == ""


def test_forecast_says_after_how_many_users() -> None:
    found = document("estimate", "--privatizer", "local", "--epsilon", "1")
    half, last = found["at"]
    assert 10_000 <= half < last < 20_000
    one, other = found["std"]["transition_counts"]
    assert other / one == pytest.approx(math.sqrt(last / half), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--learner", "ucrl-vtr", "--env", "linear-mixture", "--privatizer", "shuffle", "--epsilon", "1"],
            "'none', 'central' or 'local'",
        ),
        (["--learner", "ucrl-vtr"], "environments linear-mixture and hypercube"),
        (["--learner", "lsvi-ucb"], "environments linear-mdp, wide-linear and synthetic-linear"),
        (
            [
                "--learner",
                "ucrl-vtr",
                "--env",
                "linear-mixture",
                "--privatizer",
                "local",
                "--epsilon",
                "1",
                "--set",
                "steps=2",
            ],
            "steps = 2: is for counts",
        ),
        (["--privatizer", "shuffle", "--epsilon", "1e-9"], "epsilon = 1e-09: needs more than"),
    ],
)
def test_combinations_that_cannot_be_say_what_can(arguments: list[str], message: str) -> None:
    result = call("run", *arguments, "--episodes", "50", code=2)
    last = [line for line in result.stderr.splitlines() if "compiling" not in line]
    assert len(last) == 1
    assert message in last[0]


def test_a_forecast_names_what_its_errors_are_of() -> None:
    budget = ["--epsilon", "10", "--delta", "1e-5", "--episodes", "100"]
    linear = call(
        "estimate", "--learner", "ucrl-vtr", "--env", "linear-mixture", "--privatizer", "central", *budget
    )
    assert "error per noise of one sum" in linear.stdout
    assert "transition count" not in linear.stdout
    stages = call(
        "estimate", "--learner", "sdp-pe-om", "--privatizer", "central", *budget[:4], "--episodes", "2000"
    )
    assert stages.stdout.count("after ") == stages.stdout.count("after exchanging") + 1  # one release


def test_options_of_a_misspelt_name_and_of_one_without() -> None:
    assert "(did you mean 'shuffle'?)" in call("describe", "shufle", code=2).stderr
    assert "no options" in call("describe", "none").stdout


def test_a_sentence_about_an_option_is_not_cut_within_brackets() -> None:
    said = json.loads(call("describe", "central", "--json").stdout)["descriptions"]
    assert said["decay"] == "Decay factor of ``decaying``, in [0, 1)"
    assert said["leaf"].endswith("as in the papers")


@pytest.mark.parametrize("width", [80, 132])
def test_tables_fit_a_narrow_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    small = ["--env", "random", "--env-option", "states=2", "--episodes", "50", "--seeds", "2"]
    for learner in ("noise-aware", "dp-ucbvi"):
        call("run", "--learner", learner, *small, "--out", tmp_path / learner)
    monkeypatch.setattr(simulations, "console", lambda: Console(highlight=False, width=width))
    results = [RunResult.load(tmp_path / learner) for learner in ("noise-aware", "dp-ucbvi")]
    simulations._print_results(results)
    simulations._print_comparison(results[0], sweeps.compare(results))
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= width
    assert printed.count("noise-aware") >= 2
    assert printed.count("dp-ucbvi") >= 2


def test_no_two_defaults_contradict_each_other() -> None:
    """Of times of release one rule stands: every so many users, or by a growth."""
    for one in registry.entries():
        if "replan_growth" in registry.options_of(one.factory()):
            defaults = registry.defaults_of(one)
            both = {"replan_every", "replan_growth"} & {k for k, v in defaults.items() if v is not None}
            assert len(both) < 2 or defaults["replan_growth"] == 1.0, one.name
    told = json.loads(call("describe", "noise-aware", "--json").stdout)["defaults"]
    assert (told["replan_every"], told["replan_growth"]) == (None, 1.1)
