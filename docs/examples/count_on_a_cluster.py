"""Count users on the workers of a cluster: Dask, Ray or Spark. Adapt one of these functions.

Call ``discreet aggregate --new-key run.key`` once, and read the key with ``dr.pipeline.read_aggregate_key``.
Then pass ``dr.pipeline.merge_aggregates(parts)`` to ``dr.learn(..., schema=schema)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow

import discreet as dr


def counted(table: Any, schema: Any, key: bytes) -> bytes:
    """Return the part of a file, a data frame or an Arrow table. All rows of a user must be in one part."""
    source = dr.data.open_source(table, schema)
    return dr.pipeline.aggregate_part(source, dr.DecisionPoints(), key, workers=1).to_bytes()


def parts_of(found: Iterable[bytes]) -> list[Any]:
    """Return the parts from the bytes that the workers sent."""
    return [dr.pipeline.PartialAggregateFile.from_bytes(bytes(one)) for one in found]


def on_dask(client: Any, files: list[str], schema: Any, key: bytes) -> list[Any]:
    """Count one file per task; ``client`` is a Dask client."""
    tasks = client.map(counted, files, schema=schema, key=key, pure=False)
    return parts_of(client.gather(tasks))


def on_ray(ray: Any, files: list[str], schema: Any, key: bytes) -> list[Any]:
    """Count one file per task; ``ray`` is the module."""
    task = ray.remote(counted)
    return parts_of(ray.get([task.remote(file, schema, key) for file in files]))


def on_spark(context: Any, files: list[str], schema: Any, key: bytes) -> list[Any]:
    """Count one file per task, if each file has whole users; ``context`` is a SparkContext."""
    return parts_of(
        context.parallelize(files, len(files)).map(lambda file: counted(file, schema, key)).collect()
    )


def on_spark_frame(
    frame: Any, layout: pyarrow.Schema, schema: Any, key: bytes, partitions: int = 200
) -> list[Any]:
    """Count a Spark data frame, which is divided by user first. layout : Arrow schema of the frame."""

    def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = pyarrow.Table.from_batches(list(batches), layout)
        if rows.num_rows:  # an empty partition has no users
            yield pyarrow.RecordBatch.from_pydict({"part": [counted(rows, schema, key)]})

    found = frame.repartition(partitions, "user").mapInArrow(count, "part binary").collect()
    return parts_of(row.part for row in found)
