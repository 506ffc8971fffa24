"""Lakes that others write and read: Spark's own, stale DataFrames, and all engines in turn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.api import dataset_io
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_frames import frame_of, table_of
from support import rows, write_lake

DATA = Path(__file__).parent.parent / "data"
ENGINES = ("pyarrow", "duckdb", "spark")


def io_of(engine: str, spark: Any) -> Any:
    return dataset_io(engine, **({"spark": spark} if engine == "spark" else {}))


def read_table(io: Any, lake: str) -> pa.Table:
    """What Spark reads, as a table."""
    return table_of(io.read(lake).orderBy("id"))


def as_source(by: str, spark: Any, table: pa.Table) -> Any:
    """A frame for Spark; for the others a table of the instants that Spark writes as INT96."""
    if by == "spark":
        return frame_of(spark, table, spark.read.parquet(str(DATA / "spark")).select(table.column_names).schema)
    return table


@pytest.mark.parametrize("by", ENGINES)
@pytest.mark.parametrize("name", ["spark", "spark_legacy"])
def test_a_lake_written_by_spark_is_still_read_by_spark(spark: Any, tmp_path: Path, by: str, name: str) -> None:
    lake = str(tmp_path / "lake")
    shutil.copytree(DATA / name, lake)
    reader = SparkDatasetIO(spark)
    before = read_table(reader, lake)
    donor = before.filter(pa.compute.equal(before["id"], 8))
    source = before.take([3, 20, 41]).set_column(1, "integer", pa.array([-1, -2, None], pa.int32()))
    new = donor.set_column(0, "id", pa.array([60], pa.int64()))
    given = pa.concat_tables([source, new])
    result = io_of(by, spark).merge(as_source(by, spark, given), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.target_count_after) == (1, 3, 61)
    after = read_table(reader, lake)
    wanted = before.to_pylist()
    for row, value in ((3, -1), (20, -2), (41, None)):
        wanted[row] = {**wanted[row], "integer": value}
    assert after.to_pylist() == [*wanted, *new.to_pylist()]
    plain = spark.read.parquet(lake)
    assert plain.count() == 61
    assert (Path(lake) / "_SUCCESS").exists()


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
@pytest.mark.parametrize("by_us", [False, True], ids=["spark.read", "io.read"])
@pytest.mark.parametrize("change", ["grow", "shrink", "beside a text file"])
def test_a_stale_frame_fails_or_is_right(spark: Any, tmp_path: Path, change: str, by_us: bool, cached: bool) -> None:
    """A file that grows under its old name loses rows in Spark; under a new name reading it fails."""
    if not by_us and change == "beside a text file":
        pytest.skip("Spark itself takes the text for Parquet")
    size = 100 if change == "grow" else 1
    files = {f"f{i}.parquet": pa.table({"id": range(i * 1000, i * 1000 + 1000), "x": ["o"] * 1000}) for i in range(3)}
    lake = write_lake(tmp_path / "lake", files, row_group_size=100)
    if change == "beside a text file":
        Path(lake, "README.txt").write_text("about this lake")
    stale = SparkDatasetIO(spark).read(lake) if by_us else spark.read.parquet(lake)
    if cached:
        stale.where("id >= 0").cache().count()
    known = {(row["id"], row["x"]) for row in stale.collect()}
    changed = pa.table({"id": range(1000), "x": [f"{n:04}" * size for n in range(1000)]})
    SparkDatasetIO(spark).merge(changed, lake, "upsert", ["id"])
    wanted = {(row["id"], row["x"]) for row in rows(lake)}
    try:
        seen = {(row["id"], row["x"]) for row in stale.collect()}
    except Exception as error:
        assert "FILE_NOT_EXIST" in str(error) or "does not exist" in str(error)
    else:
        assert seen in (known, wanted)
    fresh = SparkDatasetIO(spark).read(lake) if by_us else spark.read.parquet(lake)
    assert {(row["id"], row["x"]) for row in fresh.collect()} == wanted


def write_times(path: Path, ids: list[int], **options: Any) -> None:
    times = pa.array([n * 10**6 for n in ids], pa.timestamp("us"))
    pq.write_table(pa.table({"id": ids, "time": times}), path, **options)


@pytest.mark.parametrize("by", ENGINES)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", None])
def test_one_file_with_int96_is_enough_to_take_instants(spark: Any, tmp_path: Path, by: str, zone: str | None) -> None:
    """In Arrow's eyes both files have the same schema."""
    write_times(tmp_path / "a.parquet", [1, 2], use_deprecated_int96_timestamps=True)
    write_times(tmp_path / "b.parquet", [3, 4])
    source = pa.table({"id": [2, 3], "time": pa.array([5 * 10**6] * 2, pa.timestamp("us", zone))})
    given = frame_of(spark, source) if by == "spark" else source
    result = io_of(by, spark).merge(given, str(tmp_path), "update", ["id"])
    assert result.updated == 2
    seconds = {row["id"]: row["time"].second for row in rows(tmp_path)}
    assert seconds == {1: 1, 2: 5, 3: 5, 4: 4}


def test_an_overwrite_owes_nothing_to_the_lake_read_before(spark: Any, tmp_path: Path) -> None:
    io = SparkDatasetIO(spark)
    frame = io.read(str(DATA / "spark_legacy")).select("id", "time")
    result = io.write_dataset(frame, str(tmp_path / "new"), "overwrite")
    assert pq.read_schema(result.files[0].path).field("time").type == pa.timestamp("us", "UTC")


def test_engines_in_turn(spark: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    expected: dict[int, tuple[str, str]] = {}
    for turn, engine in enumerate([*ENGINES, *ENGINES]):
        ids = list(range(turn * 10, turn * 10 + 30))
        table = pa.table({"id": ids, "x": [f"{engine}{turn}"] * 30, "part": [f"p{i % 3}" for i in ids]})
        result = io_of(engine, spark).merge(table, lake, "upsert", ["id"], partition_columns=["part"])
        assert (result.inserted, result.updated) == (len(set(ids) - expected.keys()), len(expected.keys() & set(ids)))
        expected |= {i: (f"{engine}{turn}", f"p{i % 3}") for i in ids}
    assert {row["id"]: (row["x"], row["part"]) for row in rows(lake)} == expected
    assert len(rows(lake)) == len(expected)


def test_reading_odd_names(spark: Any, tmp_path: Path) -> None:
    """Spark expands what looks like a pattern, and silently reads `f0` for `f[0]`."""
    for number, name in enumerate(["f0", "f[0]", "f*", "a{b,c}", "q?", "back\\slash", "with space", "50%", "ü"]):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{name}.parquet")
    found = SparkDatasetIO(spark).read(str(tmp_path), filter="id >= 0", columns=["id"])
    assert sorted(row["id"] for row in found.collect()) == list(range(9))


def test_reading_files_that_spark_cannot_unify(spark: Any, tmp_path: Path) -> None:
    files = {"a.parquet": pa.table({"id": pa.array([1], pa.int32())}), "b.PARQUET": pa.table({"id": ["x"]})}
    with pytest.raises(DatasetMergeError, match=r"Spark cannot read .* as one table"):
        SparkDatasetIO(spark).read(write_lake(tmp_path / "lake", files))


def test_reading_files_that_differ(spark: Any, tmp_path: Path) -> None:
    files = {"p=1/a.parquet": pa.table({"id": [1], "x": ["a"]}), "p=2/b.parquet": pa.table({"id": [2], "y": [2.5]})}
    found = SparkDatasetIO(spark).read(write_lake(tmp_path / "lake", files)).orderBy("id").collect()
    assert [row.asDict() for row in found] == [
        {"id": 1, "x": "a", "y": None, "p": 1},
        {"id": 2, "x": None, "y": 2.5, "p": 2},
    ]
