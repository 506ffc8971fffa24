"""Times of the source without a zone, for columns of the target that hold instants."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import nothing_changes
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from support import write_lake

NOON = dt.datetime(2024, 1, 1, 12)
INSTANT = dt.datetime(2024, 1, 1, 17, tzinfo=dt.UTC)
NAIVE, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
NEW_YORK = "America/New_York"
BY_SPARK = {"org.apache.spark.version": "4.1.0"}


def naive(column: str = "t", moment: dt.datetime = NOON) -> pa.Table:
    return pa.table({"id": [1, 2], column: pa.array([moment, None], NAIVE)})


def times(lake: str) -> list[Any]:
    return pq.read_table(lake).sort_by("id").column("t").to_pylist()


def refuses(io: Any) -> bool:
    """Under Spark the session has a zone."""
    return type(io).__name__ != "SparkDatasetIO"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    table = pa.table({"id": [1], "t": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], ZONED)})
    return write_lake(tmp_path / "lake", {"a.parquet": table})


def test_a_time_without_a_zone_is_refused(io: Any, lake: str) -> None:
    if not refuses(io):
        pytest.skip("Spark has the session's zone, see tests/spark/test_semantics.py")
    message = r"Column 't' is timestamp\[us\] in the source.*no time zone.*timestamp\[us, tz=UTC\].*source_timezone"
    for call in (
        lambda: io.merge(naive(), lake, "upsert", ["id"]),
        lambda: io.plan(naive(), lake, "upsert", ["id"]),
        lambda: io.write_dataset(naive(), lake),
        lambda: io.write_parquet_dataset(naive(), lake, "full_merge", ["id"]),
    ):
        with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=message):
            call()


def test_a_time_without_a_zone_is_local_to_the_zone_that_is_named(io: Any, lake: str) -> None:
    assert io.plan(naive(), lake, "upsert", ["id"], source_timezone=NEW_YORK).updated == 1
    assert io.merge(naive(), lake, "upsert", ["id"], source_timezone=NEW_YORK).updated == 1
    assert times(lake) == [INSTANT, None]
    assert io.write_dataset(naive(), lake, source_timezone="+05:30").rows == 2
    assert dt.datetime(2024, 1, 1, 6, 30, tzinfo=dt.UTC) in times(lake)
    io.write_parquet_dataset(naive(), lake, "full_merge", ["id"], source_timezone="Asia/Tokyo")
    assert times(lake) == [dt.datetime(2024, 1, 1, 3, tzinfo=dt.UTC), None]


def test_a_key_and_a_partition(io: Any, tmp_path: Path) -> None:
    """An instant that is the key is found by its local time."""
    day = pa.array(["a"])
    old = pa.table({"id": [1], "t": pa.array([INSTANT], ZONED), "day": day})
    lake = write_lake(tmp_path / "lake", {"day=a/a.parquet": old.drop_columns("day")})
    source = pa.table({"id": [7], "t": pa.array([NOON], NAIVE), "day": day})
    assert io.merge(source, lake, "upsert", ["t"], source_timezone=NEW_YORK).updated == 1
    assert pq.read_table(lake, columns=["id", "t"]).to_pylist() == [{"id": 7, "t": INSTANT}]
    folders = str(tmp_path / "folders")
    io.merge(source, folders, "upsert", ["id"], ["t"], source_timezone=NEW_YORK)  # a new data set stays without zones
    assert io.merge(source, folders, "upsert", ["id"], source_timezone="Asia/Tokyo").updated == 1


def test_times_within(io: Any, tmp_path: Path) -> None:
    """In structs, lists and maps; beside times that have no zone in the target either."""
    within = pa.struct([("a", ZONED), ("b", pa.list_(ZONED)), ("c", NAIVE), ("d", pa.map_(pa.string(), ZONED))])
    bare = pa.struct([("c", NAIVE), ("d", pa.map_(pa.string(), NAIVE)), ("b", pa.list_(NAIVE)), ("a", NAIVE)])
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [0], "t": pa.array([None], within)})})
    value = {"a": NOON, "b": [NOON, None], "c": NOON, "d": [("x", NOON)]}
    source = pa.table({"id": [1, 2, 3], "t": pa.array([value, None, {**value, "b": None}], bare)})
    assert io.merge(source, lake, "upsert", ["id"], source_timezone=NEW_YORK).inserted == 3
    expected = {"a": INSTANT, "b": [INSTANT, None], "c": NOON, "d": [("x", INSTANT)]}
    assert times(lake) == [None, expected, None, {**expected, "b": None}]


def test_an_instant_does_not_lose_its_zone(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": naive()})
    source = pa.table({"id": [1], "t": pa.array([INSTANT], ZONED)})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="not comparable"):
        io.merge(source, lake, "upsert", ["id"], source_timezone=NEW_YORK)


@pytest.mark.parametrize("zone", ["Nowhere", "", 7, "+25:00"])
def test_a_zone_that_there_is_none_of(io: Any, lake: str, zone: Any) -> None:
    for call in (io.merge, io.plan):
        with nothing_changes(lake), pytest.raises(ArgumentError, match=r"source_timezone is .*not a time zone"):
            call(naive(), lake, "upsert", ["id"], source_timezone=zone)
    with pytest.raises(ValueError, match="source_timezone is"):
        io.write_dataset(naive(), lake, source_timezone=zone)


LOCAL = {
    # As Java and Spark do: what the clocks leave out is moved on, and of an hour that comes twice the first is meant.
    ("2024-03-10T02:30:00", NEW_YORK): "2024-03-10T07:30:00",
    ("2024-03-10T02:00:00", NEW_YORK): "2024-03-10T07:00:00",
    ("2024-03-10T01:59:59.999999", NEW_YORK): "2024-03-10T06:59:59.999999",
    ("2024-03-10T03:00:00", NEW_YORK): "2024-03-10T07:00:00",
    ("2024-11-03T01:30:00", NEW_YORK): "2024-11-03T05:30:00",
    ("2024-11-03T02:00:00", NEW_YORK): "2024-11-03T07:00:00",
    ("2024-10-06T02:15:00", "Australia/Lord_Howe"): "2024-10-05T15:45:00",
    ("2011-12-30T12:00:00", "Pacific/Apia"): "2011-12-30T22:00:00",
    ("1850-01-01T00:00:00", NEW_YORK): "1850-01-01T04:56:02",
    # Arrow knows no summers after 2037.
    ("2037-07-01T12:00:00", NEW_YORK): "2037-07-01T16:00:00",
    ("2050-07-01T12:00:00", NEW_YORK): "2050-07-01T16:00:00",
    ("2050-03-13T02:30:00", NEW_YORK): "2050-03-13T07:30:00",
    ("2050-11-06T01:30:00", NEW_YORK): "2050-11-06T05:30:00",
    ("9999-07-01T12:00:00", "Europe/Berlin"): "9999-07-01T10:00:00",
    ("9999-12-31T12:00:00", "+05:30"): "9999-12-31T06:30:00",
}


@pytest.mark.parametrize(("local", "zone"), LOCAL)
def test_times_at_a_change_of_clocks(io: Any, lake: str, local: str, zone: str) -> None:
    io.merge(naive(moment=dt.datetime.fromisoformat(local)), lake, "upsert", ["id"], source_timezone=zone)
    expected = dt.datetime.fromisoformat(LOCAL[local, zone]).replace(tzinfo=dt.UTC)
    assert times(lake) == [expected, None]


# INT96, which has no zone: Spark writes instants in it, and PyArrow and DuckDB read them as plain times in UTC


def int96(path: Path, by_spark: bool, moment: dt.datetime = NOON) -> str:
    path.mkdir()
    table = pa.table({"id": [1], "t": pa.array([moment], NAIVE)})
    table = table.replace_schema_metadata(BY_SPARK if by_spark else None)
    pq.write_table(table, path / "a.parquet", use_deprecated_int96_timestamps=True)
    return str(path)


@pytest.mark.parametrize("by_spark", [True, False])
def test_int96_is_in_utc_unless_a_zone_is_named(io: Any, tmp_path: Path, by_spark: bool) -> None:
    """So that what PyArrow and DuckDB read of it can be merged again. The tests' session of Spark is in UTC."""
    lake = int96(tmp_path / "lake", by_spark, moment=dt.datetime(2020, 1, 1))
    io.merge(naive(), lake, "upsert", ["id"])
    assert times(lake) == [NOON, None]
    io.merge(naive(), lake, "upsert", ["id"], source_timezone=NEW_YORK)
    assert times(lake) == [INSTANT.replace(tzinfo=None), None]


def test_int96_within_needs_a_cast(io: Any, tmp_path: Path) -> None:
    """Which of the times within are INT96 and which are plain, nobody says; instants tell them apart."""
    lake, dtype = tmp_path / "lake", pa.struct([("a", NAIVE), ("b", pa.int8())])
    lake.mkdir()
    table = pa.table({"id": [1], "t": pa.array([{"a": NOON, "b": 1}], dtype)})
    pq.write_table(table, lake / "a.parquet", use_deprecated_int96_timestamps=True)
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"holds instants \(INT96\) within it"):
        io.merge(table, str(lake), "upsert", ["id"], source_timezone=NEW_YORK)
    zoned = pa.struct([("a", ZONED), ("b", pa.int8())])
    source = pa.table({"id": [1, 2], "t": pa.array([{"a": INSTANT, "b": 2}] * 2, zoned)})
    assert io.merge(source, str(lake), "upsert", ["id"], source_timezone=NEW_YORK).inserted == 1
    assert times(str(lake)) == [{"a": INSTANT.replace(tzinfo=None), "b": 2}] * 2


@pytest.mark.parametrize("files", ["a file", "a folder", "several"])
@pytest.mark.parametrize("target", ["INT96", "zoned", "naive"])
def test_a_source_of_int96(io: Any, tmp_path: Path, files: str, target: str) -> None:
    """Its values are in UTC, whatever the zone of times without one is."""
    folder, more = (int96(tmp_path / name, by_spark=True) for name in ("source", "more"))
    source: Any = {"a file": f"{folder}/a.parquet", "a folder": folder, "several": [f"{folder}/a.parquet", more]}[files]
    if target == "INT96":
        lake = int96(tmp_path / "lake", by_spark=True, moment=dt.datetime(2020, 1, 1))
    else:
        column = pa.array([None], ZONED if target == "zoned" else NAIVE)
        lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1], "t": column})})
    strategy = "deduplicate" if files == "several" else "upsert"
    io.write_parquet_dataset(source, lake, strategy, ["id"], source_timezone=NEW_YORK)
    assert [t.replace(tzinfo=None) for t in times(lake)] == [NOON]


def test_a_source_of_int96_beside_plain_times(io: Any, tmp_path: Path, lake: str) -> None:
    folder = int96(tmp_path / "source", by_spark=True)
    pq.write_table(naive().slice(1), f"{folder}/b.parquet")
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match="INT96 in some files of the source"):
        io.merge(folder, lake, "upsert", ["id"], source_timezone=NEW_YORK)


def test_a_new_data_set_is_not_marked(io: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "new")
    io.merge(int96(tmp_path / "source", by_spark=True), lake, "upsert", ["id"])
    fields = [field for path in Path(lake).glob("*.parquet") for field in pq.read_schema(path)]
    assert not any(key.startswith(b"fsspeckit") for field in fields for key in field.metadata or {})
