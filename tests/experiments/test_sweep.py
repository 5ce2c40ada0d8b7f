import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.experiments import simulate, sweep
from discreet.experiments.results import Result
from discreet.experiments.run_config import RunConfig
from discreet.experiments.seed_run import SeedRun

Make = Callable[..., Result]
CONFIG = RunConfig(episodes=40, seeds=4, seed=3)


class Runs:
    """Stands for a simulation: counts what it is asked, and may be interrupted."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[int] = []
        self.stop_after = stop_after

    def __call__(
        self, setup: Any, seed: int, runs: list[int], workers: int | None, progress: Any, take: Any
    ) -> Iterator[SeedRun]:
        for run in filter(take, reversed(runs)):
            if self.stop_after is not None and len(self.asked) == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(run)
            if progress is not None:
                progress(run, setup.episodes)
            rng = np.random.default_rng((seed, run))
            yield SeedRun(run, np.array([1, 40]), np.sort(rng.random(2)), rng.random(2), 0.1)


def test_an_interrupted_run_does_the_missing_seeds_only(
    make_setup: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make_setup(episodes=40)
    whole = Runs()
    monkeypatch.setattr(simulate, "iterate_runs", whole)
    expected = sweep.run(setup, CONFIG)
    assert sorted(whole.asked) == [0, 1, 2, 3]

    cut = Runs(stop_after=2)
    monkeypatch.setattr(simulate, "iterate_runs", cut)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(setup, CONFIG, tmp_path / "out")
    rest = Runs()
    monkeypatch.setattr(simulate, "iterate_runs", rest)
    heard: list[tuple[int, int]] = []
    result = sweep.run(
        setup, CONFIG, tmp_path / "out", progress=lambda run, users: heard.append((run, users))
    )
    assert sorted(cut.asked + rest.asked) == [0, 1, 2, 3]
    assert sorted(heard) == [(run, 40) for run in range(4)]
    assert np.array_equal(result.regret, expected.regret)

    more = Runs()
    monkeypatch.setattr(simulate, "iterate_runs", more)
    assert len(sweep.run(setup, CONFIG.with_seeds(6), tmp_path / "out").runs) == 6
    assert sorted(more.asked) == [4, 5]
    assert sweep.run(setup, CONFIG.with_seeds(2), tmp_path / "out").runs.tolist() == [0, 1]


def test_lists_are_grids() -> None:
    table = tomllib.loads(
        """
        env = "riverswim"
        privatizer = "central"
        epsilon = [1.0, 2.0]
        plugins = ["my_module"]
        [options]
        bonus_scale = [0.1, 0.2, 0.3]
        learner.cap = "H"
        """
    )
    configs = sweep.grid(table)
    assert [(c.epsilon, c.options["bonus_scale"]) for c in configs] == [
        (1.0, 0.1), (1.0, 0.2), (1.0, 0.3), (2.0, 0.1), (2.0, 0.2), (2.0, 0.3),
    ]  # fmt: skip
    assert all(c.plugins == ("my_module",) and c.options["learner.cap"] == "H" for c in configs)
    assert sweep.grid({"options": {"weights": [[0.5, 0.5]]}})[0].options["weights"] == (0.5, 0.5)
    with pytest.raises(ValueError, match=r"options.x = \[\]"):
        sweep.grid({"options": {"x": []}})


def test_parts_override_and_add() -> None:
    plan = sweep.Sweep.from_table(
        {
            "title": "both",
            "episodes": 10,
            "options": {"bonus_scale": 0.1},
            "runs": [
                {"learner": "ucb-vi"},
                {"learner": "dp-ucbvi", "privatizer": ["none", "central"], "options": {"cap": "H"}},
            ],
        }
    )
    assert plan.title == "both"
    assert [(c.learner, c.privatizer) for c in plan.runs] == [
        ("ucb-vi", "none"), ("dp-ucbvi", "none"), ("dp-ucbvi", "central"),
    ]  # fmt: skip
    assert dict(plan.runs[1].options) == {"bonus_scale": 0.1, "cap": "H"}
    assert dict(plan.runs[0].options) == {"bonus_scale": 0.1}
    assert [c.episodes for c in plan.runs] == [10, 10, 10]
    with pytest.raises(ValueError, match="runs"):
        sweep.Sweep.from_table({"runs": [1]})


def test_a_run_that_resolves_to_another_one_is_run_once() -> None:
    plan = sweep.Sweep("x", (RunConfig(epsilon=1.0), RunConfig(epsilon=2.0), RunConfig(seed=1)))
    resolved = plan.resolved(lambda c: RunConfig(seed=c.seed))
    assert resolved.runs == (RunConfig(), RunConfig(seed=1))


def test_folder_names_tell_runs_apart(tmp_path: Path) -> None:
    one, two = (sweep.folder_name(RunConfig(options={"x": x})) for x in (1, 2))
    assert one != two
    assert one.startswith("riverswim-noise-aware-none-")
    assert sweep.folder_name(RunConfig(seeds=9)) == sweep.folder_name(RunConfig(seeds=1))


def test_folders_are_read_in_the_order_of_their_sweep(make_result: Make, tmp_path: Path) -> None:
    plan = sweep.Sweep("x", (RunConfig(learner="z"), RunConfig(learner="a"), RunConfig(learner="unfinished")))
    sweep.note_order(tmp_path, plan)
    for config in plan.runs[:2]:
        make_result(label=config.learner).save(tmp_path / sweep.folder_name(config))
    assert [result.label for result in sweep.load_results([tmp_path])] == ["z", "a"]
    (tmp_path / "sweep.json").unlink()
    assert [result.label for result in sweep.load_results([tmp_path])] == ["a", "z"]
    assert len(sweep.load_results([tmp_path, tmp_path / sweep.folder_name(plan.runs[0])])) == 3
    (tmp_path / "bare").mkdir()
    with pytest.raises(ValueError, match="contains none"):
        sweep.load_results([tmp_path / "bare"])


def test_comparison_as_text_markdown_and_latex(make_result: Make, private: Callable[..., Any]) -> None:
    results = [make_result(label="base_line"), make_result(label="other", slope=1.5, guarantee=private())]
    comparisons = sweep.compare(results)
    assert comparisons[0].paired is None
    assert comparisons[1].paired is not None
    assert comparisons[1].paired.mean.estimate == pytest.approx(675.0)
    assert comparisons[1].paired.p_value == 2 / 2**8
    markdown = sweep.to_markdown(comparisons).splitlines()
    assert len({line.count("|") for line in markdown[:4]}) == 1
    assert "joint DP, ε = 1" in markdown[3]
    latex = sweep.to_latex(comparisons)
    assert r"base\_line" in latex
    assert r"$\varepsilon$ = \num{1}" in latex
    assert r"\num{95} \%" in latex
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    assert {line.replace(r"\&", "").count("&") for line in rows} == {6}
    assert sweep.compare(results, baseline=1)[1].paired is None
    with pytest.raises(ValueError, match="at least two"):
        sweep.compare(results[:1])
    with pytest.raises(ValueError, match="baseline = 2"):
        sweep.compare(results, baseline=2)


def test_a_sweep_in_python_is_that_of_the_command_line(tmp_path: Path) -> None:
    """Here and on an executor; refused as a whole."""
    table = {
        "env": "random", "learner": "dp-ucbvi", "privatizer": ["central", "none"], "epsilon": 1.0, "seeds": 3,
        "episodes": 60,
    }  # fmt: skip
    here = dr.sweep(table, tmp_path / "a", workers=1)
    with ThreadPoolExecutor(2) as pool:
        there = dr.sweep(table, tmp_path / "b", executor=pool)
    assert [one.privatizer for one in here] == ["central", "none"]
    for one, other, kept in zip(here, there, sweep.load_results([tmp_path / "b"]), strict=True):
        np.testing.assert_array_equal(one.regret, other.regret)
        np.testing.assert_array_equal(one.regret, kept.regret)
    with pytest.raises(ValueError, match="unknown"):
        dr.sweep({**table, "learner": ["dp-ucbvi", "unknown"]}, tmp_path / "c")
    assert not (tmp_path / "c").exists()
