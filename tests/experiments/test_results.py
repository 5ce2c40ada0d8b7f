import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from discreet.core.guarantee import no_guarantee
from discreet.experiments.labels import short_labels
from discreet.experiments.results import About, Result, RunFolder
from discreet.experiments.run_config import RunConfig
from discreet.experiments.seed_run import SeedRun

Make = Callable[..., Result]


def run_of(index: int, episodes: int = 5) -> SeedRun:
    at = np.arange(1, episodes + 1)
    return SeedRun(index, at, at * (1.0 + index), at * 2.0, 0.5)


ABOUT = About("dp-ucbvi", "none", "riverswim", "dp-ucbvi", 3.0, 1.0, no_guarantee("seeded"))
TABLE = RunConfig(seeds=2).to_table()


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_numbers_of_a_result(make_result: Make) -> None:
    result = make_result(seeds=8)
    assert result.final_regret.tolist() == pytest.approx([1000 * (1 + 0.1 * r) for r in range(8)])
    assert result.uniform_regret == 2000.0
    assert result.seconds == 2.0
    summary = result.summary()
    assert summary.mean.estimate == pytest.approx(1350.0)
    assert summary.late_share == pytest.approx(1.35 / 2)  # mean slope 1.35 where the uniform policy loses 2
    assert summary.verdict.startswith("hardly learning: 68 %")
    assert make_result(slope=2.0).summary().verdict.startswith("nothing learned")
    assert make_result(slope=0.1).summary().verdict.startswith("learning")
    assert "mean 1,350" in str(result)
    assert "No privacy guarantee" in str(result)


def test_runs_are_put_in_order_and_must_match() -> None:
    result = Result.collect(ABOUT, 0, [run_of(3), run_of(1)], TABLE)
    assert result.runs.tolist() == [1, 3]
    assert result.final_regret.tolist() == [10.0, 20.0]
    with pytest.raises(ValueError, match="at least one"):
        Result.collect(ABOUT, 0, [], TABLE)
    with pytest.raises(ValueError, match="must be there once"):
        Result.collect(ABOUT, 0, [run_of(1), run_of(1)], TABLE)
    with pytest.raises(ValueError, match="other episodes"):
        Result.collect(ABOUT, 0, [run_of(0), run_of(1, episodes=4)], TABLE)


def test_json_has_what_the_command_line_promises(make_result: Make, private: Callable[..., Any]) -> None:
    document = make_result(seeds=2, guarantee=private()).to_json()
    text = json.loads(json.dumps(document, allow_nan=False))
    assert text["final_regret"] == pytest.approx([1000.0, 1100.0])
    for key in ("optimal_value", "uniform_value", "episodes", "seconds"):
        assert isinstance(text[key], float | int)
    keys = {
        "trust", "epsilon", "epsilon_nominal", "delta", "rho", "mu", "unit", "neighbours", "randomness",
        "users_public", "statement",
    }  # fmt: skip
    assert keys <= set(text["guarantee"])
    assert text["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert make_result(seeds=1).to_json()["mean"]["low"] is None
    assert make_result().to_json()["guarantee"]["epsilon"] is None


def test_long_form(make_result: Make) -> None:
    result = make_result(seeds=3)
    frame = result.to_pandas()
    assert len(frame) == 3 * len(result.episodes)
    last = frame[frame["episode"] == result.users].set_index("run")["regret"]
    assert last.tolist() == result.final_regret.tolist()
    assert frame["epsilon"].isna().all()


def test_pairs_are_of_the_same_users(make_result: Make) -> None:
    ours, theirs = make_result(seeds=8), make_result(seeds=10, slope=2.0)
    found = ours.paired(theirs)
    assert found.differences == pytest.approx(tuple(-1000 * (1 + 0.1 * r) for r in range(8)))
    for other in (make_result(episodes=500), make_result(seed=1), make_result(world="elsewhere")):
        with pytest.raises(ValueError, match="must be"):
            ours.paired(other)


def test_saved_results_are_read_as_they_were(
    make_result: Make, private: Callable[..., Any], tmp_path: Path
) -> None:
    result = make_result(seeds=3, guarantee=private())
    result.save(tmp_path / "one")
    loaded = Result.load(tmp_path / "one")
    for name in ("episodes", "regret", "gap_regret", "runs", "seconds_per_seed"):
        assert np.array_equal(getattr(loaded, name), getattr(result, name)), name
    assert loaded.guarantee == result.guarantee
    assert loaded.about == result.about
    assert len(Result.load(tmp_path / "one", seeds=2).runs) == 2
    before = files(tmp_path / "one")
    loaded.save(tmp_path / "one")
    assert files(tmp_path / "one") == before
    with pytest.raises(ValueError, match="another configuration"):
        make_result(seeds=3, episodes=999).save(tmp_path / "one")
    assert files(tmp_path / "one") == before


def test_parquet_columns(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, TABLE, ABOUT).write(run_of(7))
    table = pq.read_table(tmp_path / "seeds" / "run-00007.parquet")
    assert table.column_names == ["run", "episode", "regret", "gap_regret"]
    assert table["regret"].to_pylist() == [8.0, 16.0, 24.0, 32.0, 40.0]


def test_folder_of_another_configuration_is_left_alone(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, TABLE, ABOUT).write(run_of(0))
    before = files(tmp_path)
    with pytest.raises(ValueError, match="episodes = 20000 there, 100 here"):
        RunFolder.create(tmp_path, RunConfig(episodes=100).to_table(), ABOUT)
    with pytest.raises(ValueError, match="other compiled code"):
        RunFolder.create(tmp_path, {**TABLE, "made_by": {"kernels": "0"}}, ABOUT)
    changed = no_guarantee("seeded", reason="something else")
    with pytest.raises(ValueError, match="another guarantee"):
        RunFolder.create(tmp_path, TABLE, About(**{**ABOUT.to_json(), "guarantee": changed}))
    assert files(tmp_path) == before
    RunFolder.create(tmp_path, {**TABLE, "seeds": 10}, ABOUT)  # more seeds: the same run
    assert RunFolder(tmp_path).table()["seeds"] == 10
    RunFolder.create(tmp_path, TABLE, ABOUT)  # fewer: the folder keeps the larger number
    assert RunFolder(tmp_path).table()["seeds"] == 10


def test_what_is_no_folder_of_results(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a result folder"):
        Result.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        RunFolder.create(tmp_path / "file", TABLE, ABOUT)
    (tmp_path / "stray" / "seeds").mkdir(parents=True)
    (tmp_path / "stray" / "seeds" / "run-00000.parquet").touch()
    with pytest.raises(ValueError, match="no config.toml"):
        RunFolder.create(tmp_path / "stray", TABLE, ABOUT)
    folder = RunFolder.create(tmp_path / "empty", TABLE, ABOUT)
    with pytest.raises(ValueError, match="no finished seed"):
        Result.load(folder.path)


def test_half_written_files_are_never_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path, TABLE, ABOUT)
    folder.write(run_of(0))
    (tmp_path / "seeds" / ".run-00001.parquet.123.tmp").write_bytes(b"half")
    assert folder.runs() == (0,)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.write(run_of(2))
    assert folder.runs() == (0,)
    assert not [p for p in (tmp_path / "seeds").iterdir() if "run-00002" in p.name]
    (tmp_path / "seeds" / "run-00003.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(ValueError, match="run-00003.parquet: cannot be read .* delete it"):
        folder.read(3)
    (tmp_path / "seeds" / "run-00003.parquet").write_bytes(
        (tmp_path / "seeds" / "run-00000.parquet").read_bytes()
    )
    with pytest.raises(ValueError, match="holds run 0, must hold run 3"):
        folder.read(3)


def test_labels_come_from_the_configuration(make_setup: Callable[..., Any]) -> None:
    config = RunConfig(
        learner="ucb-vi",
        privatizer="central",
        preset="paper",
        options={"learner.bonus_scale": 0.1},
        env_options={"x": 2},
    ).to_table()
    about = About.of(make_setup(label="NoPrivacy (ignores the noise law)"), config)
    assert about.label == "ucb-vi (paper, bonus_scale=0.1) (ignores the noise law)"
    assert (about.learner, about.privatizer, about.environment) == ("ucb-vi", "central", "riverswim (x=2)")
    assert About.of(make_setup(label="public code"), config).label == "public code"
    plain = About.of(make_setup())
    assert (plain.learner, plain.privatizer, plain.environment) == ("NoPrivacy", "NoPrivacy", "riverswim")


def test_labels_leave_out_what_all_share(make_setup: Callable[..., Any], tmp_path: Path) -> None:
    results = []
    for i, cap in enumerate(("H", "none")):
        options = {"learner.bonus_scale": 0.1, "learner.cap": cap}
        config = RunConfig(learner="dp-ucbvi", options=options, preset="paper").to_table()
        setup = make_setup(label="NoPrivacy")
        Result.from_runs(setup, 0, [run_of(0)], config).save(tmp_path / str(i))
        results.append(Result.load(tmp_path / str(i)))
    assert results[0].label == "dp-ucbvi (paper, bonus_scale=0.1, cap=H)"
    assert short_labels(results) == (["dp-ucbvi (cap=H)", "dp-ucbvi (cap=none)"], "paper, bonus_scale=0.1")
    assert short_labels(results[:1]) == ([results[0].label], "")
    python = Result.from_runs(make_setup(label="NoPrivacy"), 0, [run_of(0)])
    assert short_labels([results[0], python]) == ([results[0].label, "NoPrivacy"], "")
