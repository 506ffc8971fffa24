"""Spark reads files of which most was copied as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from spliced_files import FILES, Rows, Spliced, halves

NOT_READ = {"codec brotli", "fastparquet", "fastparquet gzip"}
"""Spark has no such codec and no nanoseconds, and does not read the originals either."""


def read(spark: Any, path: Path) -> Rows:
    frame = spark.read.parquet(str(path))
    rows = sorted(frame.collect(), key=lambda row: row["id"])
    return frame.columns, [list(column) for column in zip(*rows, strict=True)]


def test_spark_reads_spliced_files(spark: Any, tmp_path: Path) -> None:
    not_read = NOT_READ | ({"delta"} if spark.version < "4.1" else set())  # older ones have no BYTE_STREAM_SPLIT
    for number, name in enumerate(sorted(FILES.keys() - not_read)):
        columns = halves(name)[number % 2]
        file = Spliced(PyArrowDatasetIO(), tmp_path / name, FILES[name], columns)
        assert file.result.bytes_copied > 0 or columns == ["word", "at"], name
        assert repr(read(spark, file.new)) == repr(file.expected(read(spark, file.old))), name


def test_spark_skips_pages_by_the_indexes_of_spliced_files(spark: Any, tmp_path: Path) -> None:
    """Its reader goes by column and offset indexes: with wrong ones it would miss rows, or fail."""
    file = Spliced(PyArrowDatasetIO(), tmp_path, FILES["page index"], ["text", "whole", "list"])
    table = pq.ParquetFile(file.new).read()
    frame = spark.read.parquet(str(file.new))
    for name in ("text", "whole", "day"):
        column = table.column(name).to_pylist()
        for place in (min(file.swapped), 3, 57):
            expected = [i for i, value in enumerate(column) if value is not None and value == column[place]]
            found = frame.filter(frame[name] == column[place]).select("id", "word", "list").collect()
            found.sort(key=lambda row: row["id"])
            assert [row["id"] for row in found] == expected, (name, place)
            assert [row["word"] for row in found] == table.column("word").take(expected).to_pylist()
            assert [row["list"] for row in found] == table.column("list").take(expected).to_pylist()


def test_nan_is_found(spark: Any, tmp_path: Path) -> None:
    """Spark takes NaN for the greatest value, and skips row groups and pages by bounds that leave it out."""
    lake = str(tmp_path / "lake")
    columns = "id", "if(id = 3, double('NaN'), double(id)) AS g", "named_struct('a', if(id = 3, float('NaN'), 1)) AS s"
    spark.range(8).repartition(1).selectExpr(*columns).write.parquet(lake)

    def found() -> list[list[int]]:
        frame, conditions = spark.read.parquet(lake), ("g > 100", "g = double('NaN')", "isnan(g)", "s.a > 100")
        return [sorted(row["id"] for row in frame.filter(condition).collect()) for condition in conditions]

    assert found() == [[3]] * 4
    data = pa.table({"id": [5], "g": [5.5], "s": pa.array([{"a": 1.5}], pa.struct({"a": pa.float32()}))})
    assert PyArrowDatasetIO().merge(data, lake, "update", ["id"], replace="new_file").updated == 1
    assert found() == [[3]] * 4
    assert spark.read.parquet(lake).selectExpr("max(g)").collect()[0][0] != 7.0
