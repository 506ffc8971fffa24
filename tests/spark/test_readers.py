"""Spark finds in rewritten files with filters pushed down what it finds without, and still reads their lakes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from damage import chunk_of, edit_footer
from fsspeckit.api import dataset_io
from fsspeckit.core.parquet import thrift
from readers.check import Tally
from readers.lakes import Counts
from readers.spark import differences, lake_differences
from readers.spark_files import PUSHDOWNS, SparkReader
from support import data_files, rows, write_lake

DATA = Path(__file__).parent.parent / "data"
CHANGED = 17
NAN = float("nan")
ROWS = {
    "id": range(6),
    "x": [1.0, NAN, 3.0, 4.0, 5.0, 6.0],
    "s": [{"f": value} for value in (1.0, 2.0, NAN, 4.0, None, 6.0)],
    "t": ["a", "b", None, "d", "e", "f"],
}


@pytest.fixture(scope="module")
def readers(spark: Any) -> list[SparkReader]:
    return [SparkReader(spark, name) for name in PUSHDOWNS]


def merge_and_read(
    spark: Any, readers: Sequence[SparkReader], lake: Path, source: pa.Table, read: bool = True
) -> Tally:
    """Merge, and let Spark read the lake and each new file; `read` says whether it read the lake before."""
    before = lake.parent / "before"
    shutil.copytree(lake, before)
    result = dataset_io("pyarrow").merge(source, str(lake), "upsert", ["id"])
    counts = Counts(result.target_count_before, result.inserted, result.updated, result.deleted)
    assert lake_differences(spark, before, lake, counts) == (read, [])
    tally = Tally()
    for name in data_files(lake):
        old = before / name
        if not old.exists() or old.read_bytes() != (lake / name).read_bytes():
            found = differences(str(lake / name), str(old) if old.exists() else None, readers, tally)
            assert found == [], name
    assert tally.files > 0
    return tally


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["duckdb", "fastparquet", "polars", "pyarrow", "spark", "spark_legacy"])
def test_filters_find_the_same_in_what_others_wrote(
    spark: Any, readers: list[SparkReader], tmp_path: Path, writer: str
) -> None:
    """Spark has no type for times of day and nanoseconds: only two of the lakes are read whole."""
    lake = tmp_path / "lake"
    shutil.copytree(DATA / writer, lake, ignore=shutil.ignore_patterns("*.crc", "_SUCCESS"))
    tally = merge_and_read(spark, readers[:1], lake, _changed(lake), read=writer.startswith("spark"))
    assert tally.filters["spark"] > 40


def _changed(lake: Path) -> pa.Table:
    """The row of the key `CHANGED`, with another text."""
    (changed,) = [row for row in rows(lake) if row["id"] == CHANGED]
    (name,) = [n for n in data_files(lake) if CHANGED in pq.ParquetFile(lake / n).read(["id"])["id"].to_pylist()]
    table = pq.ParquetFile(lake / name).read()
    table = table.filter(pc.equal(table["id"], CHANGED))
    at = table.schema.get_field_index("text")
    table = table.set_column(at, table.schema.field(at), pa.array(["changed"]).cast(table.schema.field(at).type))
    if "part" in changed:
        table = table.append_column("part", pa.array([changed["part"]], pa.string()))
    return table


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"write_statistics": False},
        {"write_page_index": True, "use_dictionary": False, "data_page_size": 1},
        {"use_dictionary": ["t"], "compression": "zstd"},
    ],
    ids=["plain", "no-statistics", "page-index", "dictionary"],
)
def test_filters_find_the_same_where_floats_have_nan(
    spark: Any, readers: list[SparkReader], tmp_path: Path, options: dict[str, Any]
) -> None:
    table = pa.table(ROWS)
    write_lake(tmp_path / "lake", {"f.parquet": table}, row_group_size=2, **options)
    source = table.slice(3, 2).set_column(1, "x", pa.array([NAN, -7.0])).set_column(3, "t", pa.array(["new", None]))
    tally = merge_and_read(spark, readers if "data_page_size" in options else readers[:1], tmp_path / "lake", source)
    assert min(tally.filters.values()) > 25


def test_filters_find_the_same_where_duckdb_leaves_out_bounds(
    spark: Any, readers: list[SparkReader], tmp_path: Path
) -> None:
    """The rows with NaN are not those that the merge changes."""
    rows_ = pa.table(ROWS)
    (tmp_path / "lake").mkdir()
    duckdb.sql(f"COPY (SELECT * FROM rows_) TO '{tmp_path}/lake/f.parquet' (FORMAT parquet)")
    source = rows_.slice(5).set_column(3, "t", pa.array(["new"]))
    merge_and_read(spark, readers, tmp_path / "lake", source)
    found = spark.read.parquet(str(tmp_path / "lake"))
    assert [row.id for row in found.where("x > 100").collect()] == [1]
    assert [row.id for row in found.where("s.f = CAST('NaN' AS DOUBLE)").collect()] == [2]


def test_a_lake_of_null_columns_is_read_as_before(spark: Any, readers: list[SparkReader], tmp_path: Path) -> None:
    """pandas writes a column of None as one of type null."""
    files = {f"{n}.parquet": pa.table({"id": [2 * n, 2 * n + 1], "t": pa.nulls(2)}) for n in range(3)}
    write_lake(tmp_path / "lake", files)
    source = pa.table({"id": [2, 9], "t": ["two", "nine"]})
    merge_and_read(spark, readers[:1], tmp_path / "lake", source)
    found = {row.id: row.t for row in spark.read.parquet(str(tmp_path / "lake")).collect()}
    assert found == {**dict.fromkeys(range(6)), 2: "two", 9: "nine"}


def test_false_bounds_are_found(spark: Any, readers: list[SparkReader], tmp_path: Path) -> None:
    """The check itself: an old file that is right excuses nothing, one that is as wrong does."""
    new, old = tmp_path / "new.parquet", tmp_path / "old.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "t": ["a", "b", "c"]}), old)
    pq.write_table(pa.table({"id": [1, 2, 9], "t": ["a", "b", "c"]}), new)
    assert differences(str(new), str(old), readers, Tally()) == []
    bounds = {number: (thrift.BINARY, bytes(8)) for number in (5, 6)}
    edit_footer(new, lambda footer: chunk_of(footer)[12][1].update(bounds))
    found = differences(str(new), str(old), readers, Tally())
    assert any(text.startswith("spark, id = a new value: 0 rows") for text in found)
    if spark.version >= "4":  # Spark 3.5 does not take least and greatest values from footers
        assert any(text.startswith("spark, id bounds: 1 rows") for text in found)
    assert {text.rpartition(", id")[0] for text in found} == set(PUSHDOWNS)
    tally = Tally()
    assert differences(str(new), str(new), readers, tally) == []
    assert tally.excused


def test_a_lake_that_spark_no_longer_reads_is_found(spark: Any, tmp_path: Path) -> None:
    before = write_lake(tmp_path / "before", {"a.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})
    after = write_lake(tmp_path / "after", {"a.parquet": pa.table({"id": [1, 2], "x": [b"a", b"b"]})})
    write_lake(after, {"b.parquet": pa.table({"id": [3], "x": [[1]]})})
    read, found = lake_differences(spark, Path(before), Path(after), Counts(2, 1, 0, 0))
    assert read
    assert found[0].startswith("spark read the lake before the merge, and now: ")
    assert len(lake_differences(spark, Path(before), Path(before), Counts(2, 1, 0, 0))[1]) == 1
