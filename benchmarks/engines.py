"""What an engine costs beside this machine's own processes: runs of a second, and many of ten milliseconds.

    python benchmarks/engines.py --engines dask ray slurm

Every engine has two workers on this machine, which have played runs before the clock starts. The local
default and the engine take turns, and change who is first, so that what else the machine does meets both;
printed are the seconds of each round, and the median of their ratios with the smallest and the largest.

    python benchmarks/engines.py --engines dask ray slurm --wait

does the same with runs that wait for as long as those take, and compute nothing: on a machine that has other
work the difference is then the engine's, and not that of whoever computes beside it. Threads of this process
are the local side.

    python benchmarks/engines.py --engines dask ray --bare 2000
    python benchmarks/engines.py --store 500

measure what limits one process that sends runs off and stores them: tasks that do nothing, one at a time, and
runs of 1 000 points that are claimed, written and read again (the folder is a temporary one).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from discreet.experiments import build_run, sweep
from discreet.experiments.engine import Engine, Job, open_engine, results
from discreet.experiments.file_lock import Claims
from discreet.experiments.results import About, RunFolder
from discreet.experiments.run_config import RunConfig

WORKERS = 2
SETTINGS = {
    "64 runs of a second": RunConfig(
        env="riverswim", learner="dp-ucbvi", privatizer="central", epsilon=1.0, episodes=60_000, seeds=64,
        by="episode", options={"replan_every": 1},
    ),
    "2 000 runs of 10 ms": RunConfig(
        env="riverswim", learner="dp-ucbvi", privatizer="central", epsilon=1.0, episodes=500, seeds=2000,
        by="episode", options={"replan_every": 1},
    ),
}  # fmt: skip
EACH = (1.0, 0.01)  # seconds of one of these


@contextlib.contextmanager
def opened(name: str) -> Iterator[Engine]:
    """An engine of this machine."""
    if name == "dask":
        from distributed import LocalCluster

        with (
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
            open_engine(cluster.scheduler_address.replace("tcp://", "dask://"), WORKERS) as engine,
        ):
            yield engine
        return
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: no match on a busy machine
    with open_engine("ray" if name == "ray" else "slurm://cluster=local,timeout_min=30", WORKERS) as engine:
        yield engine


def seconds(config: RunConfig, engine: Engine | None) -> float:
    """Of all runs."""
    setup = build_run.prepare(config)
    begin = time.perf_counter()
    if engine is None:
        sweep.run(setup, config, workers=WORKERS)
    else:
        sweep.run_all([(setup, config, None)], build_run.prepare, engine)
    return time.perf_counter() - begin


def waits(items: Sequence[int], each: float) -> Sequence[int]:
    """For so many seconds of each item."""
    time.sleep(each * len(items))
    return items


def seconds_of_waiting(runs: int, each: float, engine: Engine | None) -> float:
    """Of so many items, here in threads as compiled runs are, or there."""
    here = Engine("threads", partial(ThreadPoolExecutor, WORKERS), WORKERS, ahead=1, together=0.0)
    begin = time.perf_counter()
    with here:
        found = list(results(engine or here, [Job(partial(waits, each=each), range(runs))]))
    took = time.perf_counter() - begin
    if sorted(item for _, item in found) != list(range(runs)):
        raise SystemExit("not every item came back once")
    return took


def nothing(items: Sequence[int]) -> Sequence[int]:
    """Of each item."""
    return items


def bare(name: str, engine: Engine, tasks: int) -> None:
    """Milliseconds of this process and of the clock for a task without work."""
    engine.together = 0.0
    list(results(engine, [Job(nothing, range(2 * WORKERS))]))
    begin, processor = time.perf_counter(), time.process_time()
    list(results(engine, [Job(nothing, range(tasks))]))
    clock, busy = time.perf_counter() - begin, time.process_time() - processor
    print(
        f"{name}: a task {1e3 * clock / tasks:.2f} ms, {1e3 * busy / tasks:.2f} ms of this process",
        flush=True,
    )


def store(runs: int) -> None:
    """Milliseconds and bytes of a run's file."""
    config = build_run.resolved(replace(SETTINGS["2 000 runs of 10 ms"], episodes=1000, seeds=runs))
    setup = build_run.prepare(config)
    one = setup.run(0, 0)
    with tempfile.TemporaryDirectory() as out, Claims() as claims:
        folder = RunFolder.create(Path(out) / "runs", config.to_table(), About.of(setup))
        took = {}
        for what in ("stored", "read"):
            begin, processor = time.perf_counter(), time.process_time()
            for run in range(runs):
                if what == "stored":
                    claims.take(folder.seed_path(run))
                    folder.write(replace(one, run=run))
                    claims.drop(folder.seed_path(run))
                else:
                    folder.read(run)
            took[what] = (time.perf_counter() - begin, time.process_time() - processor)
        size = folder.seed_path(0).stat().st_size
    for what, (clock, busy) in took.items():
        print(f"a run {what}: {1e3 * clock / runs:.2f} ms, {1e3 * busy / runs:.2f} ms of the processor")
    print(f"its file: {size / 1e3:.1f} kB for {len(one.episodes)} points")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", choices=("dask", "ray", "slurm"), default=["dask"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("dear", "cheap"), help="runs of a second, or of 10 ms")
    parser.add_argument(
        "--part", type=int, default=1, metavar="N", help="an N-th of the runs: a higher ratio"
    )
    parser.add_argument("--wait", action="store_true", help="runs wait in place of computing")
    parser.add_argument("--bare", type=int, metavar="TASKS", help="only tasks without work, so many")
    parser.add_argument("--store", type=int, metavar="RUNS", help="only store so many runs, on no engine")
    given = parser.parse_args()
    if given.store is not None:
        store(given.store)
        return
    chosen = [(*one, each) for one, each in zip(SETTINGS.items(), EACH, strict=True)]
    chosen = chosen[{None: slice(None), "dear": slice(1), "cheap": slice(1, None)}[given.only]]
    for name in given.engines:
        with opened(name) as engine:
            if given.bare is not None:
                bare(name, engine, given.bare)
                continue
            for what, setting, each in chosen:
                if given.wait:
                    runs = setting.seeds // given.part
                    timed = partial(seconds_of_waiting, runs, each)
                    seconds_of_waiting(2 * WORKERS, each, engine)
                else:
                    config = build_run.resolved(setting.with_seeds(setting.seeds // given.part))
                    timed = partial(seconds, config)
                    seconds(config.with_seeds(WORKERS), None)
                    seconds(config.with_seeds(2 * WORKERS), engine)
                ratios = []
                for number in range(given.rounds):
                    turns = (None, engine) if number % 2 == 0 else (engine, None)
                    took = {turn: timed(turn) for turn in turns}
                    ratios.append(took[engine] / took[None])
                    print(
                        f"{name}, {what}: here {took[None]:.1f} s, there {took[engine]:.1f} s, "
                        f"load {os.getloadavg()[0]:.1f}",
                        flush=True,
                    )
                print(
                    f"{name}, {what}: ratio {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
