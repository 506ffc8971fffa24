"""A data set as a DataFrame that our own executors read, where Spark's readers do not reach: a store without s3a."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.spark.columns import arrow_schema, as_spark_has_it, spark_schema
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.source import Files, row_groups

_BATCH_ROWS = 16_384


def executors_frame(operation: Operation, files: Files, columns: Sequence[str] | None, zone: str) -> Any:
    """The rows of all files. Nothing is read before the frame is used, and then of the versions that are there now."""
    whole = spark_schema(files.schema)
    missing = [name for name in columns or () if name not in whole.names]
    if missing:
        raise ArgumentError(f"There is no column {missing[0]!r}. The data set has {', '.join(whole.names)}.")
    types = whole if columns is None else T.StructType([whole[name] for name in columns])
    wanted = arrow_schema(types)
    light = [(location, replace(footer, metadata=None)) for location, footer in files.files]

    def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
        for location, footer in (light[number] for number in numbers):
            for table in row_groups(location, wanted, wanted.names, footer, zone):
                arrays = [as_spark_has_it(column, field) for column, field in zip(table.columns, wanted, strict=True)]
                yield from pa.table(arrays, schema=wanted).to_batches(max_chunksize=_BATCH_ROWS)

    return operation.rows(read, [footer.info.size for _, footer in files.files], types)
