"""Counting in parts on real engines: the same sums as in one place (`make test-engines`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.pipeline.synthetic_data import write_made_up

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}
)  # fmt: skip
KEY = bytes(range(32))


def people(folder: Path, parts: int) -> tuple[pd.DataFrame, list[Path]]:
    """Made-up people, and files of whole ones."""
    write_made_up(SCHEMA, 400, folder / "all.parquet", seed=4)
    frame = pd.read_parquet(folder / "all.parquet")
    who = frame["user"].astype("category").cat.codes % parts
    paths = [folder / f"part-{i}.parquet" for i in range(parts)]
    for i, path in enumerate(paths):
        frame[who == i].to_parquet(path)
    return frame, paths


def check(parts: list[Any], frame: pd.DataFrame) -> None:
    """The parts are the people of the frame."""
    merged = dr.pipeline.merge_aggregates(parts)
    whole = dr.pipeline.aggregate_part(open_source(frame, SCHEMA), dr.DecisionPoints(), KEY)
    assert merged.tally == whole.tally
    rows = (np.sort(one.people.view("V16").ravel()) for one in (merged, whole))
    np.testing.assert_array_equal(*rows)


def example() -> dict[str, Any]:
    """Names of the example that pages show, run as a script: engines send its functions by value."""
    own: dict[str, Any] = {"__name__": "__main__"}
    path = Path(__file__).parents[2] / "docs" / "examples" / "count_on_a_cluster.py"
    exec(compile(path.read_text("utf-8"), str(path), "exec"), own)
    return own


def test_dask(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    frame, files = people(tmp_path, 5)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        check(example()["on_dask"](client, files, SCHEMA, KEY), frame)


def test_ray(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    frame, files = people(tmp_path, 5)
    ray.init(num_cpus=2, log_to_driver=False, configure_logging=False)
    try:
        check(example()["on_ray"](ray, files, SCHEMA, KEY), frame)
    finally:
        ray.shutdown()


def test_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two executor processes of their own; files of whole people, and a frame with rows in any order."""
    sql = pytest.importorskip("pyspark.sql")
    import pyarrow.parquet

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    frame, files = people(tmp_path, 5)
    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    for name in ("PYTHONPATH", "NUMBA_CACHE_DIR"):
        if name in os.environ:
            builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    spark = builder.getOrCreate()
    try:
        check(example()["on_spark"](spark.sparkContext, [*map(str, files)], SCHEMA, KEY), frame)
        frame.sample(frac=1.0, random_state=0).to_parquet(tmp_path / "shuffled.parquet", index=False)
        layout = pyarrow.parquet.read_schema(tmp_path / "shuffled.parquet")
        read = spark.read.parquet(str(tmp_path / "shuffled.parquet"))
        check(example()["on_spark_frame"](read, layout, SCHEMA, KEY, partitions=5), frame)
    finally:
        spark.stop()
