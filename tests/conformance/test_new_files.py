"""New files look like the data set's own: codec, row-group size, page index and bloom filters; options come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import incremental
from support import write_lake

NEW = pa.table({"id": pa.array(range(100, 4100)), "x": ["new"] * 4000})


def old(count: int = 40) -> pa.Table:
    return pa.table({"id": pa.array(range(count)), "x": ["old"] * count})


def lake_of(tmp_path: Path, **options: Any) -> str:
    return write_lake(tmp_path / "lake", {"a.parquet": old(), "b.parquet": old().slice(0, 0)}, **options)


def codecs(path: str) -> list[str]:
    group = pq.read_metadata(path).row_group(0)
    return [group.column(i).compression for i in range(group.num_columns)]


def group_sizes(path: str) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "none", "lz4", "snappy"])
def test_the_codec_of_the_data_set(io: Any, tmp_path: Path, codec: str) -> None:
    lake = lake_of(tmp_path, compression=codec)
    (path,) = io.merge(NEW, lake, "upsert", ["id"]).inserted_files
    assert codecs(path) == [{"none": "UNCOMPRESSED"}.get(codec, codec.upper())] * 2
    (appended,) = io.write_dataset(NEW, lake).files
    assert codecs(appended.path) == codecs(path)


def test_codecs_by_column(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, compression={"id": "zstd", "x": "gzip"})
    (path,) = io.merge(NEW, lake, "upsert", ["id"]).inserted_files
    assert codecs(path) == ["ZSTD", "GZIP"]


@pytest.mark.parametrize("codec", ["snappy", "gzip"])
def test_an_option_comes_first(io: Any, tmp_path: Path, codec: str) -> None:
    lake = lake_of(tmp_path, compression="zstd", row_group_size=10)
    result = io.merge(NEW, lake, "upsert", ["id"], compression=codec, row_group_size=1500)
    assert codecs(result.inserted_files[0]) == [codec.upper()] * 2
    assert group_sizes(result.inserted_files[0]) == [1500, 1500, 1000]


def test_rows_that_no_file_is_a_template_for(io: Any, tmp_path: Path) -> None:
    """The source needs a wider type, so that no file has the schema of the new one."""
    narrow = pa.table({"id": pa.array(range(40), pa.int32()), "x": ["old"] * 40})
    wide = old().slice(20).set_column(0, "id", pa.array(range(60, 80), pa.int64()))
    lake = write_lake(tmp_path / "lake", {"a.parquet": narrow, "b.parquet": wide.drop_columns("x")}, compression="zstd")
    result = io.merge(NEW, lake, "insert", ["id"])
    assert all(codecs(path) == ["ZSTD"] * 2 for path in result.inserted_files)


def test_a_full_rewrite(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, compression="zstd")
    result = io.write_parquet_dataset(NEW, lake, "upsert", ["id"])
    assert {codec for path in (*result.inserted_files, *result.rewritten_files) for codec in codecs(path)} == {"ZSTD"}
    result = io.write_parquet_dataset(NEW, lake, "full_merge", ["id"])
    assert {codec for path in result.inserted_files for codec in codecs(path)} == {"ZSTD"}


@pytest.mark.parametrize(
    ("rows", "in_group", "expected"),
    [(5000, 1500, [1500, 1500, 1000]), (5000, 5000, [4000]), (40, 10, [1000] * 4)],
    ids=["several row groups", "one row group is no choice", "tiny row groups are no choice"],
)
def test_the_row_groups_of_the_data_set(io: Any, tmp_path: Path, rows: int, in_group: int, expected: list[int]) -> None:
    files = {"a.parquet": old(rows), "b.parquet": old(7)}
    lake = write_lake(tmp_path / "lake", files, row_group_size=in_group)
    new = pa.table({"id": pa.array(range(5000, 9000)), "x": ["new"] * 4000})
    result = io.merge(new, lake, "insert", ["id"])
    assert [size for path in result.inserted_files for size in group_sizes(path)] == expected


def test_page_index_and_bloom_filters_of_the_data_set(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, write_page_index=True, bloom_filter_options={"id": {"ndv": 40}})
    (path,) = io.merge(NEW, lake, "upsert", ["id"]).inserted_files
    group = pq.read_metadata(path).row_group(0)
    assert group.column(0).has_offset_index and group.column(1).has_column_index
    assert b"parquet-cpp-arrow" in pq.read_metadata(path).created_by.encode()
    assert pq.ParquetFile(path).read().equals(NEW)


def test_a_new_data_set(io: Any, tmp_path: Path) -> None:
    (path,) = io.merge(NEW, str(tmp_path / "lake"), "upsert", ["id"]).inserted_files
    assert codecs(path) == ["SNAPPY"] * 2
    assert group_sizes(path) == [4000]


def test_the_defaults_of_the_specification_mean_not_given(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, compression="zstd")
    result = incremental.merge(NEW, lake, "upsert", ["id"], None, None, "snappy", 5_000_000, 500_000)
    assert codecs(result.inserted_files[0]) == ["ZSTD"] * 2


def test_a_bloom_filter_in_a_file_without_rows(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": old(0)}
    lake = write_lake(tmp_path / "lake", files, bloom_filter_options={"id": {"ndv": 40}})
    io.merge(NEW, lake, "upsert", ["id"])
    assert pq.read_table(lake).num_rows == 4000
