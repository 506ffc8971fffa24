"""Files that count dates and instants by Spark's legacy calendar. `tests/spark` has files of Spark's own."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, nothing_changes
from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.parquet import thrift
from fsspeckit.core.values.calendars import Calendar, gregorian_to_hybrid_days, hybrid_to_gregorian_days
from support import write_lake

PREFIX = "org.apache.spark."
LEGACY = {f"{PREFIX}version": "3.5.0", f"{PREFIX}legacyDateTime": "", f"{PREFIX}legacyINT96": "", "other": "kept"}
INSTANT = pa.timestamp("us", "UTC")
OLD, OLDER, NEW = dt.date(1, 1, 1), dt.date(1500, 2, 28), dt.date(2024, 1, 1)


def stored(*dates: dt.date) -> pa.Array:
    """Dates as the legacy calendar counts them."""
    days = pa.array(dates, pa.date32()).cast(pa.int32()).to_numpy()
    return pa.array(gregorian_to_hybrid_days(days), pa.int32()).view(pa.date32())


def legacy_lake(tmp_path: Path, columns: dict[str, Any], entries: dict[str, str] = LEGACY, **options: Any) -> str:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table(columns)}, store_schema=False, **options)
    pairs = [{1: (thrift.BINARY, k.encode()), 2: (thrift.BINARY, v.encode())} for k, v in entries.items()]
    edit_footer(Path(lake, "f.parquet"), lambda footer: footer.update({5: (thrift.LIST, (thrift.STRUCT, pairs))}))
    return lake


def read(lake: str) -> list[dict[str, Any]]:
    """All rows, every file in its own calendar."""
    found = []
    for path in sorted(Path(lake).glob("*.parquet")):
        table = pq.ParquetFile(path).read()
        for i, field in enumerate(table.schema):
            if pa.types.is_date(field.type) and Calendar.of(pq.read_metadata(path).metadata).dates:
                days = hybrid_to_gregorian_days(table.column(i).cast(pa.int32()).to_numpy())
                table = table.set_column(i, field.name, pa.array(days, pa.int32()).view(pa.date32()))
        found += table.to_pylist()
    return sorted(found, key=repr)


@pytest.mark.parametrize("entries", [LEGACY, {f"{PREFIX}version": "2.4.8"}], ids=["flagged", "Spark 2"])
def test_dates_are_matched_and_written_in_the_calendar_of_their_file(
    io: Any, tmp_path: Path, entries: dict[str, str]
) -> None:
    lake = legacy_lake(tmp_path, {"d": stored(OLD, OLDER, NEW), "x": stored(OLD, OLD, OLD)}, entries)
    data = pa.table({"d": [OLD, NEW, dt.date(2, 2, 2)], "x": [OLDER, OLD, OLD]})
    assert io.plan(data, lake, "upsert", ["d"]).updated == 2
    result = io.merge(data, lake, "upsert", ["d"], replace="in_place")
    assert (result.inserted, result.updated) == (1, 2)
    assert read(lake) == sorted([*data.to_pylist(), {"d": OLDER, "x": OLD}], key=repr)
    rewritten = pq.read_metadata(f"{lake}/f.parquet").metadata
    assert {k.decode(): v.decode() for k, v in rewritten.items()} == entries
    (new,) = (p for p in Path(lake).glob("*.parquet") if p.name != "f.parquet")
    assert not Calendar.of(pq.read_metadata(new).metadata)
    assert f"{PREFIX}legacyDateTime".encode() not in (pq.read_metadata(new).metadata or {})


def test_a_merge_of_equal_old_dates_spares_the_file(io: Any, tmp_path: Path) -> None:
    lake = legacy_lake(tmp_path, {"d": stored(OLD), "x": [1]})
    with nothing_changes(lake):
        assert io.merge(pa.table({"d": [OLD], "x": [1]}), lake, "upsert", ["d"]).updated == 1


def test_files_are_pruned_by_the_dates_that_they_mean(io: Any, tmp_path: Path) -> None:
    lake = legacy_lake(tmp_path, {"d": stored(OLD, dt.date(1, 1, 9)), "x": [1, 2]})
    inside, outside = dt.date(1, 1, 9), dt.date(1, 1, 10)
    assert io.plan(pa.table({"d": [inside], "x": [1]}), lake, "upsert", ["d"]).updated == 1
    (file,) = io.plan(pa.table({"d": [outside], "x": [1]}), lake, "upsert", ["d"]).files
    assert file.action == "prune"


def test_an_append_to_a_legacy_lake_is_of_today(io: Any, tmp_path: Path) -> None:
    lake = legacy_lake(tmp_path, {"d": stored(OLD), "t": pa.array([0], INSTANT)})
    moment = dt.datetime(1800, 1, 1, tzinfo=dt.UTC)
    data = pa.table({"d": [OLDER], "t": pa.array([moment], INSTANT)})
    io.write_dataset(data, lake)
    assert {"d": OLDER, "t": moment} in read(lake)
    assert {"d": OLD, "t": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)} in read(lake)


@pytest.mark.parametrize("kind", ["INT64", "INT96"])
def test_old_instants_are_refused_where_they_are_ambiguous(io: Any, tmp_path: Path, kind: str) -> None:
    old, new = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1899, 1900))
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True} if kind == "INT96" else {}
    lake = legacy_lake(tmp_path, {"id": [1, 2], "t": pa.array([old, new], INSTANT)}, **options)
    before = pq.read_table(f"{lake}/f.parquet").slice(0, 1)

    def given(ids: list[int], *moments: dt.datetime) -> pa.Table:
        return pa.table({"id": ids, "t": pa.array(moments, INSTANT)})

    message = r"'t': 1899-01-01.*f\.parquet.*legacy calendar.*CORRECTED"
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=message):
        io.merge(given([2], old), lake, "upsert", ["id"])
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=message):
        io.merge(given([9], old), lake, "upsert", ["t"])
    result = io.merge(given([1, 3], new, old), lake, "upsert", ["id"], replace="in_place")  # a new file is of today
    assert (result.inserted, result.updated) == (1, 1)
    assert io.merge(given([2], new), lake, "update", ["id"], replace="in_place").updated == 1
    assert Calendar.of(pq.read_metadata(f"{lake}/f.parquet").metadata) == Calendar(True, True)
    assert not pq.read_table(f"{lake}/f.parquet").slice(0, 1).equals(before)
    assert io.merge(given([5], dt.datetime(2024, 1, 1, tzinfo=dt.UTC)), lake, "upsert", ["t"]).inserted == 1


def test_plain_times_have_no_calendar(io: Any, tmp_path: Path) -> None:
    old = dt.datetime(1500, 1, 1)
    lake = legacy_lake(tmp_path, {"id": [1], "t": pa.array([old], pa.timestamp("us"))})
    data = pa.table({"id": [1], "t": pa.array([old.replace(hour=1)], pa.timestamp("us"))})
    assert io.merge(data, lake, "upsert", ["t"]).inserted == 1
    assert io.merge(data, lake, "upsert", ["id"]).updated == 2


def test_old_dates_within_others_are_refused(io: Any, tmp_path: Path) -> None:
    lake = legacy_lake(tmp_path, {"id": [1, 2], "l": pa.array([[NEW], None], pa.list_(pa.date32()))})
    fine = pa.table({"id": [1], "l": [[NEW, None]]})
    assert io.merge(fine, lake, "upsert", ["id"]).updated == 1
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"'l': 0001-01-01.*legacy calendar"):
        io.merge(pa.table({"id": [1], "l": [[OLD]]}), lake, "upsert", ["id"])


@pytest.mark.parametrize("day", [5, 14])
def test_dates_that_the_legacy_calendar_left_out(io: Any, tmp_path: Path, day: int) -> None:
    lake = legacy_lake(tmp_path, {"id": [1], "d": stored(NEW)})
    data = pa.table({"id": [1], "d": [dt.date(1582, 10, day)]})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=rf"'d': 1582-10-{day:02d}"):
        io.merge(data, lake, "upsert", ["id"])


@pytest.mark.parametrize("form", ["table", "file", "files", "folder"])
def test_a_legacy_source_means_what_it_says(io: Any, tmp_path: Path, form: str) -> None:
    source = legacy_lake(tmp_path / "source", {"id": [1, 2], "d": stored(OLD, NEW)})
    name = f"{source}/f.parquet"
    given: Any = {"table": pq.read_table(name), "file": name, "files": [name], "folder": source}[form]
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [2], "d": [OLD]})})
    assert io.merge(given, lake, "upsert", ["id"]).inserted == 1
    assert read(lake) == [{"id": 1, "d": OLD}, {"id": 2, "d": NEW}]
    fresh = str(tmp_path / "fresh")
    given = pq.read_table(name) if form == "table" else given
    assert io.merge(given, fresh, "upsert", ["id"]).inserted == 2
    assert read(fresh) == [{"id": 1, "d": OLD}, {"id": 2, "d": NEW}]


def test_a_legacy_source_with_old_instants_is_refused(io: Any, tmp_path: Path) -> None:
    old = pa.array([dt.datetime(1850, 1, 1, tzinfo=dt.UTC)], INSTANT)
    source = legacy_lake(tmp_path / "source", {"id": [1], "t": old})
    for given in (pq.read_table(f"{source}/f.parquet"), f"{source}/f.parquet", source):
        with pytest.raises(SchemaMismatchError, match=r"'t': 1850-01-01.*legacy calendar"):
            io.merge(given, str(tmp_path / "lake"), "upsert", ["id"])


def test_files_that_say_nothing_of_spark_are_taken_as_they_are(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"d": [OLD], "x": [1]})})
    assert io.merge(pa.table({"d": [OLD], "x": [2]}), lake, "upsert", ["d"]).updated == 1
    assert read(lake) == [{"d": OLD, "x": 2}]
