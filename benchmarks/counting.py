"""Transitions counted a second, on one core: into a tally, and from a file with every row checked.

    python benchmarks/counting.py [--episodes 200000] [--file]

The world has the size of ICU-Sepsis without its mask: S = 716, A = 25, H = 20, 256 million cells of
transitions by step (1 GB), 12.8 million pooled. Records are uniformly random, the worst case for the caches.
Seconds are of this process's CPU; files are read twice, the first time for the order of users only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.data.validate import episodes
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.pipeline.trajectory_files import write_trajectories

S, A, H = 716, 25, 20


def cohort(episodes: int) -> Trajectories:
    """Uniformly random records."""
    rng = np.random.default_rng(0)
    return Trajectories(
        rng.integers(0, S, (episodes, H + 1)), rng.integers(0, A, (episodes, H)), rng.random((episodes, H))
    )


def tables(trajectories: Trajectories, pooled: bool, repeats: int = 5) -> float:
    """Median transitions a second into a tally that exists."""
    tally = PartialAggregate(CountQuery(Layout(S, A, H), stationary=pooled))
    tally.add(trajectories)
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        tally.add(trajectories)
        seconds.append(time.process_time() - begin)
    return trajectories.actions.size / float(np.median(seconds))


def files(trajectories: Trajectories) -> None:
    """Read, check and count one file of each kind."""
    schema = Schema("benchmark", "person", Layout(S, A, H))
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".parquet", ".csv"):
            path = Path(folder) / f"cohort{suffix}"
            write_trajectories(trajectories, path, schema)
            source = open_source(path, schema)
            begin = time.process_time()
            rows = sum(batch.num_rows for batch in source.batches())
            read = time.process_time() - begin
            begin = time.process_time()
            tally = PartialAggregate(CountQuery(Layout(S, A, H), stationary=True))
            for batch in episodes(source):
                tally.add(batch.trajectories, batch.user)
            whole = time.process_time() - begin
            speeds = rows / read / 1e6, rows / whole / 1e6
            print(f"{suffix:9} read {speeds[0]:5.1f}   read, checked, counted {speeds[1]:5.1f}")


def main() -> None:
    """Print millions of transitions a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200_000)
    parser.add_argument("--file", action="store_true", help="from Parquet and CSV too")
    given = parser.parse_args()
    trajectories = cohort(given.episodes)
    print("millions of transitions a second")
    print(f"{H * S * A * S / 1e6:.0f} million cells: {tables(trajectories, pooled=False) / 1e6:.1f}")
    print(f"{S * A * S / 1e6:.1f} million cells, pooled: {tables(trajectories, pooled=True) / 1e6:.1f}")
    if given.file:
        files(trajectories)


if __name__ == "__main__":
    main()
