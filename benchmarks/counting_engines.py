"""Rows counted a second by the workers of an engine, beside processes of this machine; tallies are compared.

    python benchmarks/counting_engines.py --make /somewhere/rows
    python benchmarks/counting_engines.py /somewhere/rows --engines dask ray spark spark-rows spark-frame

``--make`` writes a made-up cohort of 40 million rows (2.5 million people, 16 steps, a world of the size of
ICU-Sepsis) in 8 Parquet files of whole people; delete them afterwards. Then each engine counts all files with
two worker processes of one thread, in turns with two processes of this machine that do the same; both have
counted a file before the clock starts. ``spark`` counts a file a task; ``spark-rows`` reads the files as
frames of Spark, brings each person's rows together and counts partitions: what it costs where files do not
hold whole people. ``spark-frame`` counts a frame that Spark holds already, rows of a person together.

    python benchmarks/counting_engines.py /somewhere/rows --merge 100

counts that many parts of one file, writes them beside it, and merges the files: seconds of the processor, and
the most memory that the process took before and during it.

Printed are rows a second and worker, the ratio to the local rate (median, smallest and largest of the
rounds), the same for seconds of the workers' processors inside the counting, and whether sums and people are
those of one part counted in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.schema import Schema
from discreet.envs.rollouts.rollout import rollouts
from discreet.pipeline.synthetic_data import made_up_world
from discreet.pipeline.trajectory_files import TrajectoryWriter

WORKERS, PARTS, HORIZON = 2, 8, 16
SCHEMA = Schema("benchmark", "person", Layout(716, 25, HORIZON), stationary=True)
KEY = bytes(range(32))
Counted = tuple[bytes, float]  # a part, seconds of the processor
_CHUNK = 2**14
# Rewards are multiples of 1 / 64: what is left to be earned, as a share of 16, is then one of 1 / 1024.
# Others are rounded to such multiples at random whenever they are counted, and no two tallies would be equal.
_GRID = 64


def make(folder: Path, rows: int) -> None:
    """The files."""
    folder.mkdir(parents=True, exist_ok=True)
    mdp, behaviour = made_up_world(SCHEMA, seed=3)
    each = rows // HORIZON // PARTS
    for part in range(PARTS):
        with TrajectoryWriter(folder / f"part-{part}.parquet", SCHEMA) as writer:
            writer.users = part * each
            for first in range(0, each, _CHUNK):
                size = min(_CHUNK, each - first)
                played = rollouts(mdp, behaviour, size, 3, 0, part * each + first)
                writer.write(replace(played, rewards=np.rint(played.rewards * _GRID) / _GRID))
        print(f"part {part + 1} of {PARTS}: {each * HORIZON:,} rows", flush=True)


def counted(rows: Any) -> Counted:
    """One part, counted in one thread: what a task does."""
    begin = time.process_time()
    part = dr.pipeline.aggregate_part(dr.data.open_source(rows, SCHEMA), dr.DecisionPoints(), KEY, workers=1).to_bytes()
    return part, time.process_time() - begin


# ------------------------------------------------------------------------------------------ engines
Run = Callable[[Sequence[str]], list[Counted]]


@contextlib.contextmanager
def local() -> Iterator[Run]:
    """Two processes of this machine."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        yield lambda files: list(pool.map(counted, files))


@contextlib.contextmanager
def dask() -> Iterator[Run]:
    """A scheduler and two workers that return memory as the system does (benchmarks/engines.md)."""
    import dask.config
    from distributed import Client, LocalCluster

    kept = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": kept}),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield lambda files: client.gather(client.map(counted, files, pure=False))


@contextlib.contextmanager
def ray() -> Iterator[Run]:
    """A head and two workers."""
    import ray as engine

    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: no match on a busy machine
    engine.init(num_cpus=WORKERS, log_to_driver=False, configure_logging=False, include_dashboard=False)
    remote = engine.remote(counted)
    try:
        yield lambda files: engine.get([remote.remote(file) for file in files])
    finally:
        engine.shutdown()


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """Spark: a driver, and two executors of one core, processes of their own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false", "spark.driver.memory": "3g", "spark.driver.maxResultSize": "3g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }  # fmt: skip
    for name in ("PYTHONPATH", "NUMBA_CACHE_DIR", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        if name in os.environ:
            settings[f"spark.executorEnv.{name}"] = os.environ[name]
    spark = SparkSession.builder.master(f"local-cluster[{WORKERS},1,2048]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def spark() -> Iterator[Run]:
    """A file a task."""
    with session() as found:
        context = found.sparkContext
        yield lambda files: context.parallelize(list(files), len(files)).map(counted).collect()


@contextlib.contextmanager
def spark_rows(kept: bool = False) -> Iterator[Run]:
    """Rows as Spark reads them, those of a person brought together; or a frame that is so already."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def partitions(batches: Any) -> Any:
        rows = pa.Table.from_batches(list(batches), schema)
        if rows.num_rows:
            part, seconds = counted(rows)
            yield pa.RecordBatch.from_pydict({"part": [part], "seconds": [seconds]})

    with session() as found:
        schema: Any = None
        frames: dict[tuple[str, ...], Any] = {}

        def frame(files: Sequence[str]) -> Any:
            rows = found.read.parquet(*files).repartition(PARTS, "user")
            if not kept:
                return rows
            if tuple(files) not in frames:
                frames[tuple(files)] = rows.cache()
                rows.count()
            return frames[tuple(files)]

        def run(files: Sequence[str]) -> list[Counted]:
            nonlocal schema
            schema = pq.read_schema(files[0])
            parts = frame(files).mapInArrow(partitions, "part binary, seconds double").collect()
            return [(bytes(one.part), one.seconds) for one in parts]

        yield run


ENGINES = {"dask": dask, "ray": ray, "spark": spark, "spark-rows": spark_rows}
ENGINES["spark-frame"] = partial(spark_rows, kept=True)


# -------------------------------------------------------------------------------------------- the clock
def timed(run: Run, files: Sequence[str]) -> tuple[float, float, list[bytes]]:
    """(seconds of all, processor seconds inside the tasks, the parts)."""
    begin = time.perf_counter()
    found = run(files)
    return time.perf_counter() - begin, sum(seconds for _, seconds in found), [part for part, _ in found]


def said(name: str, ratios: Sequence[float]) -> str:
    """The median, and what is around it."""
    return f"{name} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def equal(one: dr.pipeline.PartialAggregateFile, other: dr.pipeline.PartialAggregateFile) -> bool:
    """The same sums of the same people."""
    rows = (np.sort(part.people.view("V16").ravel()) for part in (one, other))
    return bool(one.tally == other.tally and np.array_equal(*rows))


def measure(name: str, files: Sequence[str], rows: int, rounds: int, here: Run, whole: dr.pipeline.PartialAggregateFile) -> None:
    """One engine's lines of the table."""
    with ENGINES[name]() as there:
        here(files[:WORKERS])
        there(files if name == "spark-frame" else files[:WORKERS])
        walls, inside = [], []
        same = True
        for number in range(rounds):
            order = (here, there) if number % 2 == 0 else (there, here)
            took = {run: timed(run, files) for run in order}
            walls.append(took[here][0] / took[there][0])
            inside.append(took[here][1] / took[there][1])
            parts = map(partial(dr.pipeline.PartialAggregateFile.from_bytes, name=name), took[there][2])
            same = same and equal(dr.pipeline.merge_aggregates(parts), whole)
            speeds = (rows / took[run][0] / WORKERS / 1e6 for run in (here, there))
            print(
                "{}: million rows a second and worker: here {:.2f}, there {:.2f}".format(name, *speeds),
                flush=True,
            )
    print(
        f"{name}: {said('rate there / here', walls)}, {said('inside the tasks', inside)}, {rounds} rounds, "
        f"{'the same tally' if same else 'ANOTHER TALLY'}",
        flush=True,
    )


def merge(file: Path, parts: int) -> None:
    """Seconds and memory of merging parts that lie in files."""
    import pyarrow.parquet as pq

    rows = pq.read_table(file)
    each = rows.num_rows // HORIZON // parts * HORIZON
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        paths = [Path(folder) / f"{i}.tally" for i in range(parts)]
        for i, path in enumerate(paths):
            dr.pipeline.PartialAggregateFile.from_bytes(counted(rows.slice(i * each, each))[0]).save(path)
        size, before = sum(path.stat().st_size for path in paths), _peak()
        begin, processor = time.perf_counter(), time.process_time()
        merged = dr.pipeline.merge_aggregates(paths)
        took, busy = time.perf_counter() - begin, time.process_time() - processor
    print(
        f"{parts} parts of {size / parts / 1e6:.1f} MB, {len(merged.people):,} people: {took:.1f} s, "
        f"{busy:.1f} s of the processor, {busy / parts:.3f} s each; most memory {before:.0f} MB before, "
        f"{_peak():.0f} MB during the merge"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true", help="write the files")
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--engines", nargs="+", choices=tuple(ENGINES), default=["dask"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--merge", type=int, metavar="PARTS", help="only merge so many parts of a file")
    given = parser.parse_args()
    if given.make:
        make(given.folder, given.rows)
        return
    if given.merge is not None:
        merge(given.folder / "part-0.parquet", given.merge)
        return
    files = sorted(str(path) for path in given.folder.glob("part-*.parquet"))
    begin = time.process_time()
    whole = dr.pipeline.aggregate_part(dr.data.open_source(files, SCHEMA), dr.DecisionPoints(), KEY, workers=1)
    seconds, rows = time.process_time() - begin, len(whole.people) * HORIZON
    print(f"{rows:,} rows in {len(files)} files; in this process, one thread: {rows / seconds / 1e6:.2f}")
    begin = time.perf_counter()
    with local() as here:
        parts = [dr.pipeline.PartialAggregateFile.from_bytes(part) for part, _ in here(files)]
        size = sum(len(part.to_bytes()) for part in parts) / len(parts)
        begin = time.perf_counter()
        merged = dr.pipeline.merge_aggregates(parts)
        took = time.perf_counter() - begin
        print(f"a part: {size / 1e6:.1f} MB; {len(parts)} merged in {took:.2f} s", flush=True)
        if not equal(merged, whole):
            raise SystemExit("the parts of the local processes are not the whole")
        for name in given.engines:
            measure(name, files, rows, given.rounds, here, whole)


if __name__ == "__main__":
    main()
