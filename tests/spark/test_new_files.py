"""New files under Spark: the session's codec in a new data set, and what files of Spark hand on to new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.parquet.format import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_frames import table_of

CODEC = "spark.sql.parquet.compression.codec"
INT96 = "spark.sql.parquet.outputTimestampType"


def codec(path: str) -> str:
    return str(pq.read_metadata(path).row_group(0).column(0).compression)


@pytest.mark.parametrize(
    ("setting", "stored"), [("zstd", "ZSTD"), ("uncompressed", "UNCOMPRESSED"), ("lz4_raw", "LZ4"), ("lzo", "SNAPPY")]
)
def test_a_new_data_set_has_the_codec_of_the_session(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, setting: str, stored: str
) -> None:
    was = spark.conf.get(CODEC)
    spark.conf.set(CODEC, setting)
    try:
        (path,) = io.merge(spark.range(5), str(tmp_path / "lake"), key_columns=["id"]).inserted_files
        given = io.merge(spark.range(5), str(tmp_path / "other"), key_columns=["id"], compression="gzip")
    finally:
        spark.conf.set(CODEC, was)
    assert (codec(path), codec(given.inserted_files[0])) == (stored, "GZIP")
    (path,) = io.merge(spark.range(9), str(tmp_path / "other"), key_columns=["id"]).inserted_files
    assert codec(path) == "GZIP"


def test_int96_files_name_their_writer(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    """Readers derive the unit of INT96 from `parquet-mr`, so the name stays, and the build says who wrote the file."""
    lake, was = str(tmp_path / "lake"), spark.conf.get(INT96)
    rows = spark.sql("SELECT id, timestamp'2024-01-01 12:00:00' t FROM range(5)")
    spark.conf.set(INT96, "INT96")
    try:
        rows.coalesce(1).write.parquet(lake, compression="zstd")
    finally:
        spark.conf.set(INT96, was)
    more = spark.sql("SELECT id, timestamp'2024-01-01 12:00:00' t FROM range(4, 9)")
    (path,) = io.merge(more, lake, key_columns=["id"]).inserted_files
    metadata = pq.read_metadata(path)
    assert metadata.created_by.startswith("parquet-mr version 1.")
    assert "(build fsspeckit " in metadata.created_by and "parquet-cpp-arrow" in metadata.created_by
    assert (metadata.schema.column(1).physical_type, codec(path)) == ("INT96", "ZSTD")
    again = PyArrowDatasetIO().merge(table_of(spark.sql("SELECT 99L id, now() t")), lake, key_columns=["id"])
    assert pq.read_metadata(again.inserted_files[0]).created_by == metadata.created_by
    spark.conf.set("spark.sql.parquet.int96TimestampConversion", "true")
    try:
        assert spark.read.parquet(lake).where("id < 9").select("t").distinct().count() == 1
    finally:
        spark.conf.set("spark.sql.parquet.int96TimestampConversion", "false")


def test_pages_of_version_2_stay_so(spark: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    spark.range(5).coalesce(1).write.option("parquet.writer.version", "v2").parquet(lake)
    (path,) = PyArrowDatasetIO().merge(pa.table({"id": range(5, 2000)}), lake, key_columns=["id"]).inserted_files
    (old,) = Path(lake).glob("*.snappy.parquet")
    assert first_page_type(str(old)) == first_page_type(path) == 3
    assert spark.read.parquet(lake).distinct().count() == 2000


def first_page_type(path: str) -> int:
    """The type of the first data page: 0 is version 1, 3 is version 2."""
    with pa.OSFile(path) as file:
        footer = thrift.decode(footer_bytes(file))
        (group,) = thrift.structs(footer, FileMetaData.ROW_GROUPS)
        chunk = thrift.field(thrift.structs(group, RowGroup.COLUMNS)[0], ColumnChunk.META_DATA, thrift.STRUCT)
        file.seek(thrift.field(chunk, ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64))
        kind = file.read(2)
    assert kind[0] == 0x15, "field 1, an I32, in the compact protocol"
    return kind[1] >> 1
