"""Processes on one folder share the work: claims, and those of processes that are gone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import LIMIT, wait_until

from discreet.experiments import build_run, simulate, sweep
from discreet.experiments import file_lock as module
from discreet.experiments.file_lock import Claims
from discreet.experiments.results import About, Result
from discreet.experiments.run_config import MADE_BY, RunConfig, made_by

CONFIG = RunConfig(env="random", learner="dp-ucbvi", privatizer="central", epsilon=1.0, episodes=300, seeds=6)


def test_a_claim_is_one_process_s(tmp_path: Path) -> None:
    three, four = tmp_path / "three.parquet", tmp_path / "four.parquet"
    with Claims() as mine, Claims() as yours:
        assert mine.take(three)
        assert not yours.take(three)
        assert yours.take(four)
        mine.drop(three)
        assert yours.take(three)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("holder", "age", "gone"),
    [
        ({"host": socket.gethostname(), "process": 2**22 + 1}, 0.0, True),
        ({"host": socket.gethostname(), "process": os.getppid()}, 0.0, False),
        ({"host": socket.gethostname(), "process": os.getppid()}, module.STALE + 5, True),
        ({"host": "elsewhere", "process": 1}, module.STALE - 20, False),
        ({"host": "elsewhere", "process": 1}, module.STALE + 5, True),
        (None, 0.0, False),
        (None, module.STALE + 5, True),
    ],
)
def test_who_is_gone_loses_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Any, age: float, gone: bool
) -> None:
    path = tmp_path / ".run-00002.claim"
    path.write_text("{" if holder is None else json.dumps(holder))
    now = Claims._now(tmp_path)
    monkeypatch.setattr(Claims, "_now", staticmethod(lambda _: now))
    os.utime(path, (now - age,) * 2)
    with Claims() as mine:
        assert mine.take(tmp_path / "run-00002.parquet") is gone
    assert path.exists() is not gone


def test_a_held_claim_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.01)
    with Claims() as mine:
        assert mine.take(tmp_path / "run-00001.parquet")
        path = tmp_path / ".run-00001.claim"
        os.utime(path, (1.0, 1.0))
        wait_until(lambda: path.stat().st_mtime > 1.0)


WORKER = """
import sys
from pathlib import Path
from discreet.experiments import build_run
from discreet.experiments import simulate, sweep
from discreet.experiments.run_config import RunConfig
config = RunConfig.from_table({table!r})
setup = build_run.prepare(config)
own = type(setup).run
def told(self, seed, run, *rest):
    print(run, flush=True)
    return own(self, seed, run, *rest)
type(setup).run = told
sweep.run(setup, config, Path(sys.argv[1]), 1)
"""


def test_two_processes_do_each_run_once(tmp_path: Path) -> None:
    config = build_run.resolved(CONFIG)
    code = WORKER.format(table=config.to_table())
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    did = [one.communicate()[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sorted(map(int, did[0] + did[1])) == list(range(6))
    here = sweep.run(build_run.prepare(config), config, workers=1)
    np.testing.assert_array_equal(Result.load(tmp_path / "out").regret, here.regret)
    names = {path.name for path in (tmp_path / "out" / "seeds").iterdir()}
    assert names == {f"run-{run:05d}.parquet" for run in range(6)}


def test_a_run_that_another_process_is_at_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a thread stands for the other process: it holds run 1, and stores it late."""
    monkeypatch.setattr(module, "WAIT", 0.01)
    config = build_run.resolved(CONFIG.with_seeds(2))
    setup = build_run.prepare(config)
    sweep.run(setup, config, tmp_path / "out", 1, chosen=lambda run: run == 0)
    whole = sweep.run(setup, config, workers=1)
    folder = sweep.RunFolder(tmp_path / "out")
    with Claims() as other:
        assert other.take(folder.seed_path(1))
        asked = threading.Event()
        monkeypatch.setattr(module.time, "sleep", lambda _: asked.set())

        def late() -> None:
            asked.wait(LIMIT)
            folder.write(setup.run(0, 1))

        thread = threading.Thread(target=late)
        thread.start()
        found = sweep.run(setup, config, tmp_path / "out", 1)
        thread.join()
    assert asked.is_set()
    np.testing.assert_array_equal(found.regret, whole.regret)


def test_nobody_waits_while_there_is_something_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process is at the only run of the first configuration: the second one is done meanwhile."""
    configs = [build_run.resolved(replace(CONFIG, episodes=n).with_seeds(1)) for n in (300, 301)]
    runs = [(build_run.prepare(one), one, tmp_path / str(one.episodes)) for one in configs]
    for setup, one, out in runs:
        sweep.RunFolder.create(out, {**one.to_table(), MADE_BY: made_by()}, About.of(setup))
    first, second = (sweep.RunFolder(out) for _, _, out in runs)
    waited = list[bool]()

    def late(_: float) -> None:
        waited.append(second.seed_path(0).exists())
        first.write(runs[0][0].run(0, 0))

    monkeypatch.setattr(module.time, "sleep", late)
    with Claims() as other:
        assert other.take(first.seed_path(0))
        found = sweep.run_each(runs, 1)
    assert waited == [True]
    assert [one.users for one in found] == [300, 301]


def test_a_claim_that_cannot_be_written_is_not_left(tmp_path: Path) -> None:
    with pytest.raises(TypeError), Claims() as mine:  # noqa: PT012 (a full disk, in the place of which:)
        mine._text = None  # type: ignore[assignment]
        mine.take(tmp_path / "run.parquet")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------ shards, and what they leave
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_shards_are_a_partition(parts: int) -> None:
    chosen = [sweep.shard(f"{i}/{parts}") for i in range(1, parts + 1)]
    for config in range(3):
        for run in range(10):
            assert sum(one(config, run) for one in chosen) == 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "1", "a/b", "-1/2", "1/2/3"])
def test_bad_shards(text: str) -> None:
    with pytest.raises(ValueError, match="shard = .*: must be i/n"):
        sweep.shard(text)


def test_shards_meet(tmp_path: Path) -> None:
    config = build_run.resolved(CONFIG)
    setup = build_run.prepare(config)
    for part in (1, 2):
        own = sweep.shard(f"{part}/2")
        sweep.run(setup, config, tmp_path / f"part-{part}", 1, chosen=lambda run, own=own: own(0, run))
    assert sweep.merge([tmp_path / "part-1", tmp_path / "part-2"], tmp_path / "all") == 6
    assert sweep.merge([tmp_path / "part-2"], tmp_path / "all") == 0
    here = sweep.run(setup, config, workers=1)
    np.testing.assert_array_equal(Result.load(tmp_path / "all").regret, here.regret)
    with pytest.raises(ValueError, match="must not be merged with itself"):
        sweep.merge([tmp_path / "all"], tmp_path / "all")
    with pytest.raises(ValueError, match="is not a result folder"):
        sweep.merge([tmp_path / "all" / "seeds"], tmp_path / "none")
    other = build_run.resolved(CONFIG.with_seeds(1))
    changed = RunConfig.from_table({**other.to_table(), "episodes": 301})
    sweep.run(build_run.prepare(changed), changed, tmp_path / "changed", 1)
    with pytest.raises(ValueError, match="episodes = 300 there, 301 here"):
        sweep.merge([tmp_path / "changed"], tmp_path / "all")


def test_two_truths_of_one_run_are_refused(tmp_path: Path) -> None:
    config = build_run.resolved(CONFIG.with_seeds(1))
    setup = build_run.prepare(config)
    for name in ("a", "b"):
        sweep.run(setup, config, tmp_path / name, 1)
    folder = sweep.RunFolder(tmp_path / "b")
    run = folder.read(0)
    (folder.seeds / "run-00000.parquet").unlink()
    folder.write(type(run)(0, run.episodes, run.regret + 1.0, run.gap_regret, run.seconds))
    with pytest.raises(ValueError, match=r"b: run 0 has other numbers than in .*a"):
        sweep.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_a_merge_that_is_refused_leaves_nothing_half_done(tmp_path: Path) -> None:
    """Two configurations in sweeps of two machines: the later one disagrees, or is damaged, in one seed."""
    config = build_run.resolved(CONFIG)
    for number, one in enumerate((config, build_run.resolved(replace(config, learner="ucb-vi")))):
        setup = build_run.prepare(one)
        sweep.run(setup, one, tmp_path / "a" / str(number), 1, chosen=lambda run: run < 3)
        sweep.run(setup, one, tmp_path / "b" / str(number), 1, chosen=lambda run: run >= 2)
        sweep.run(setup, one, tmp_path / "all" / str(number), 1, chosen=lambda run: run == 5)
    for name in ("a", "b"):
        (tmp_path / name / "sweep.json").write_text('{"title": "t", "runs": ["0", "1"]}')
    last = sweep.RunFolder(tmp_path / "b" / "1").seed_path(2)
    before, good = sorted((tmp_path / "all").rglob("*")), last.read_bytes()
    run = sweep.RunFolder(tmp_path / "b" / "1").read(2)
    sweep.RunFolder(tmp_path / "b" / "1").write(replace(run, gap_regret=run.gap_regret + 1.0))
    for said in ("b/1: run 2 has other numbers than in .*a/1", "cannot be read"):
        with pytest.raises(ValueError, match=said):
            sweep.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
        assert sorted((tmp_path / "all").rglob("*")) == before
        last.write_bytes(b"damaged")
    last.write_bytes(good)
    assert sweep.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all") == 2 * 5
    assert Result.load(tmp_path / "all" / "1").runs.tolist() == [*range(6)]


def test_progress_of_a_part_is_of_the_part(tmp_path: Path) -> None:
    config = build_run.resolved(CONFIG)
    setup, heard = build_run.prepare(config), set[int]()
    sweep.run(setup, config, tmp_path / "out", 1, chosen=lambda run: run < 4)
    found = sweep.run(
        setup, config, tmp_path / "out", 1, lambda run, _: heard.add(run), lambda run: run in (3, 4)
    )
    assert found.runs.tolist() == [0, 1, 2, 3, 4]
    assert heard == {3, 4}


def test_nothing_is_made_ready_while_others_are_at_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "packed", None)  # what sends a set-up to other processes
    own, probed = simulate._warn_of_time, list[int]()
    monkeypatch.setattr(simulate, "_warn_of_time", lambda *how: probed.append(1) or own(*how))
    config = build_run.resolved(CONFIG)
    setup = build_run.prepare(config)
    setup = type(setup)(setup.mdp, setup.learner, setup.privatizer, setup.episodes, stepwise=True)
    assert list(simulate.iterate_runs(setup, 0, range(6), 2, take=lambda _: False)) == []
    assert probed == []
    with pytest.raises(TypeError):
        next(simulate.iterate_runs(setup, 0, range(6), 2, take=lambda run: run == 5))


def test_a_run_is_asked_for_once_and_whoever_claims_it_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in processes beside this one, whose first had been claimed twice and left to nobody."""
    config = build_run.resolved(replace(CONFIG, options={}, episodes=30).with_seeds(2))
    setup = build_run.prepare(config)
    setup = type(setup)(setup.mdp, setup.learner, setup.privatizer, setup.episodes, stepwise=True)
    assert not setup.fused
    asked, take = list[str](), Claims.take

    def told(self: Claims, wanted: Path) -> bool:
        asked.append(wanted.name)
        return take(self, wanted)

    monkeypatch.setattr(Claims, "take", told)
    found = sweep.run(setup, config, tmp_path / "out", 2)
    assert found.runs.tolist() == [0, 1]
    assert sorted(asked) == ["run-00000.parquet", "run-00001.parquet"]


def test_what_this_process_claimed_and_left_is_not_waited_for(tmp_path: Path) -> None:
    class Part:
        claims = Claims()
        missing = (0,)

        def read(self) -> tuple[int, ...]:
            return ()

        def keep(self, found: Any) -> None:
            raise AssertionError(found)

    one = Part()

    def once() -> Any:
        assert one.claims.take(tmp_path / "run.parquet")
        yield from ()

    with pytest.raises(RuntimeError, match="claimed by this process, which has left it undone"):
        module.shared([one], once)
    assert not list(tmp_path.iterdir())
