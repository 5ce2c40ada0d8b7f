"""What an engine costs beside this machine's own processes: runs of a second, and many of ten milliseconds.

    python benchmarks/engines.py --engines dask ray slurm

Every engine has two workers on this machine, which have played runs before the clock starts. The local
default and the engine take turns, and change who is first, so that what else the machine does meets both;
printed are the seconds of each round, and the median of their ratios with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Iterator

from discreet import registry
from discreet.experiments import sweep
from discreet.experiments.config import RunConfig
from discreet.experiments.engine import Engine, open_engine

WORKERS = 2
SETTINGS = {
    "64 runs of a second": RunConfig(
        env="riverswim", learner="dp-ucbvi", privatizer="central", epsilon=1.0, episodes=60_000, seeds=64,
        by="episode",
    ),
    "2 000 runs of 10 ms": RunConfig(
        env="riverswim", learner="dp-ucbvi", privatizer="central", epsilon=1.0, episodes=500, seeds=2000,
        by="episode",
    ),
}  # fmt: skip


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
    setup = registry.prepare(config)
    begin = time.perf_counter()
    if engine is None:
        sweep.run(setup, config, workers=WORKERS)
    else:
        sweep.run_all([(setup, config, None)], registry.prepare, engine)
    return time.perf_counter() - begin


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", choices=("dask", "ray", "slurm"), default=["dask"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("dear", "cheap"), help="runs of a second, or of 10 ms")
    given = parser.parse_args()
    chosen = [*SETTINGS.items()][{None: slice(None), "dear": slice(1), "cheap": slice(1, None)}[given.only]]
    for name in given.engines:
        with opened(name) as engine:
            for what, setting in chosen:
                config = registry.resolved(setting)
                seconds(config.with_seeds(WORKERS), None)
                seconds(config.with_seeds(2 * WORKERS), engine)
                ratios = []
                for number in range(given.rounds):
                    turns = (None, engine) if number % 2 == 0 else (engine, None)
                    took = {turn: seconds(config, turn) for turn in turns}
                    ratios.append(took[engine] / took[None])
                    print(f"{name}, {what}: here {took[None]:.1f} s, there {took[engine]:.1f} s", flush=True)
                print(
                    f"{name}, {what}: ratio {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
