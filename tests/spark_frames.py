"""DataFrames from Arrow tables and back, also with Spark 3.5, which does not do that by itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def frame_of(spark: Any, table: pa.Table, schema: Any = None) -> Any:
    if hasattr(spark.range(0), "toArrow"):
        return spark.createDataFrame(table, schema) if schema is not None else spark.createDataFrame(table)
    from pyspark.sql.pandas.types import from_arrow_schema

    plain = pa.schema([pa.field(f.name, _in_micros(f.type)) for f in table.schema])
    wanted = schema or from_arrow_schema(plain, prefer_timestamp_ntz=True)
    return spark.createDataFrame(
        [tuple(row.values()) for row in table.cast(plain).to_pylist(maps_as_pydicts="strict")], wanted
    )


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """What Spark has for what it has not."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_dictionary(kind):
        return _in_micros(kind.value_type)
    return pa.decimal128(20, 0) if pa.types.is_uint64(kind) else kind


def table_of(frame: Any) -> pa.Table:
    return frame.toArrow() if hasattr(frame, "toArrow") else pa.Table.from_batches(frame._collect_as_arrow())
