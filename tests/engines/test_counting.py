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
from discreet.data.made_up import write_made_up
from discreet.data.readers import open_source
from discreet.data.schema import Schema

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


def check(parts: list[bytes], frame: pd.DataFrame) -> None:
    """The parts are the people of the frame."""
    merged = dr.merge_parts([dr.Part.from_bytes(one) for one in parts])
    whole = dr.count_part(open_source(frame, SCHEMA), dr.DecisionPoints(), KEY)
    assert merged.tally == whole.tally
    rows = (np.sort(one.people.view("V16").ravel()) for one in (merged, whole))
    np.testing.assert_array_equal(*rows)


def test_dask(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    frame, files = people(tmp_path, 5)
    schema = SCHEMA

    def counted(file: Path) -> bytes:
        return dr.count_part(dr.open_source(file, schema), dr.DecisionPoints(), KEY).to_bytes()

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        check(client.gather(client.map(counted, files)), frame)


def test_ray(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    frame, files = people(tmp_path, 5)
    schema, key = SCHEMA, KEY

    def counted(file: Path) -> bytes:
        return dr.count_part(dr.open_source(file, schema), dr.DecisionPoints(), key).to_bytes()

    ray.init(num_cpus=2, log_to_driver=False, configure_logging=False)
    try:
        remote = ray.remote(counted)
        check(ray.get([remote.remote(file) for file in files]), frame)
    finally:
        ray.shutdown()


def test_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two executor processes of their own; rows in any order."""
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    frame, _ = people(tmp_path, 1)
    schema, key = SCHEMA, KEY

    def counted(batches: Any) -> Any:
        tables = list(batches)
        rows = pd.concat(tables) if tables else pd.DataFrame()
        if len(rows):
            part = dr.count_part(dr.open_source(rows, schema), dr.DecisionPoints(), key)
            yield pd.DataFrame({"part": [part.to_bytes()]})

    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    for name in ("PYTHONPATH", "NUMBA_CACHE_DIR"):
        if name in os.environ:
            builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    spark = builder.getOrCreate()
    try:
        shuffled = spark.createDataFrame(frame.sample(frac=1.0, random_state=0))
        found = shuffled.repartition(5, "user").mapInPandas(counted, "part binary").collect()
        check([bytes(row.part) for row in found], frame)
    finally:
        spark.stop()
