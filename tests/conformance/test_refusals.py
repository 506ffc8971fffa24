"""Bad input: a clear error, nothing changed and nothing left behind."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.cached import SimpleCacheFileSystem
from fsspec.implementations.local import LocalFileSystem

import fsspeckit
from damage import nothing_changes, spoil_pages
from fsspeckit import DatasetMergeError, MergeValidationError
from fsspeckit.core.errors import (
    ArgumentError,
    DuplicateKeyError,
    NullKeyError,
    SchemaMismatchError,
    TargetError,
    UnreadableFileError,
)
from fsspeckit.core.rewrite.files import FileRows
from fsspeckit.core.rewrite.job import RowGroupChange
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import rows, write_lake

GOOD = {"id": [5, 99], "x": ["A", "B"]}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
    return write_lake(tmp_path / "lake", files, row_group_size=5)


def refused(io: Any, lake: str, data: pa.Table, keys: Any, error: type[Exception], match: str) -> None:
    for strategy in ("insert", "update", "upsert"):
        with nothing_changes(lake), pytest.raises(error, match=match):
            io.merge(data, lake, strategy, keys)
    with nothing_changes(lake), pytest.raises(error, match=match):
        io.plan(data, lake, "upsert", keys)


@pytest.mark.filterwarnings("error::RuntimeWarning")  # NumPy's word of a null that was indexed
@pytest.mark.parametrize(
    ("data", "keys", "error", "match"),
    [
        pytest.param(GOOD, ["nope"], ArgumentError, r"'nope'.*not found.*'id', 'x'", id="missing key column"),
        pytest.param(GOOD, [], ArgumentError, "key_columns is empty", id="empty key_columns"),
        pytest.param(GOOD, None, ArgumentError, "key_columns is empty", id="no key_columns"),
        pytest.param(GOOD, ["id", "id"], ArgumentError, "names a column twice", id="key column twice"),
        pytest.param(GOOD, [3], ArgumentError, "takes column names, not 3", id="key column is no name"),
        pytest.param(
            {"id": [1, None, 3, None], "x": ["a"] * 4}, ["id"], NullKeyError, r"NULL.*'id' \(2 rows\)", id="null key"
        ),
        pytest.param(
            {"id": [1, 2], "x": ["a", None]}, ["id", "x"], NullKeyError, r"'x' \(1 row\)", id="null in composite key"
        ),
        pytest.param({"id": [500, 500], "x": ["a", "b"]}, ["id"], DuplicateKeyError, "500", id="duplicate new key"),
        pytest.param({"id": [5, 5], "x": ["a", "b"]}, ["id"], DuplicateKeyError, r"e\.g\. 5\.", id="duplicate key"),
        pytest.param({"id": [5, 5], "x": ["a", "a"]}, ["id"], DuplicateKeyError, "5", id="duplicate identical rows"),
        pytest.param(
            {"id": [1]}, ["id"], SchemaMismatchError, r"missing from the source: \['x'\]", id="missing column"
        ),
        pytest.param(
            {**GOOD, "y": [1, 2], "z": [1, 2]}, ["id"], SchemaMismatchError, r"\['y', 'z'\]", id="extra columns"
        ),
        pytest.param(
            {"id": ["1"], "x": ["a"]}, ["id"], SchemaMismatchError, "'id' is string .* int64 .*not comp", id="text key"
        ),
        pytest.param({"id": [1], "x": [7]}, ["id"], SchemaMismatchError, "'x' is int64 in the source", id="payload"),
        pytest.param({"id": [1.5], "x": ["a"]}, ["id"], SchemaMismatchError, "1.5 would not survive", id="lossy key"),
    ],
)
def test_bad_source(
    io: Any, lake: str, data: dict[str, list[Any]], keys: Any, error: type[Exception], match: str
) -> None:
    refused(io, lake, pa.table(data), keys, error, match)


def test_a_column_in_another_case(io: Any, lake: str, engine: str) -> None:
    """Another column, but for Spark: there case means nothing, unless `spark.sql.caseSensitive` says so."""
    source = pa.table({"id": [1], "X": ["in capitals"]})
    if engine != "spark":
        refused(io, lake, source, ["id"], SchemaMismatchError, r"\['x'\].*\['X'\]")
        return
    assert io.merge(source, lake, "upsert", ["id"]).updated == 1
    assert {"id": 1, "x": "in capitals"} in rows(lake)


def test_duplicate_samples_are_five_at_most(io: Any, lake: str) -> None:
    data = pa.table({"id": [*range(100, 108), *range(100, 108)], "x": ["a"] * 16})
    with nothing_changes(lake), pytest.raises(DuplicateKeyError, match=r"8 key\(s\).*100, 101, 102, 103, 104\."):
        io.merge(data, lake, "upsert", ["id"])


def test_two_source_columns_of_one_name(io: Any, lake: str) -> None:
    data = pa.table([[1], ["a"], ["b"]], names=["id", "x", "x"])
    refused(io, lake, data, ["id"], SchemaMismatchError, r"more than one column named \['x'\]")


NS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("target", "source", "value", "shown"),
    [
        pytest.param(pa.float32(), pa.float64(), 0.1, "0.1", id="float64 to float32"),
        pytest.param(pa.int32(), pa.int64(), 2**31, "2147483648", id="int64 to int32"),
        pytest.param(pa.uint8(), pa.int64(), -1, "-1", id="negative to unsigned"),
        pytest.param(pa.int64(), pa.float64(), 0.5, "0.5", id="float to int"),
        pytest.param(pa.float64(), pa.int64(), 2**53 + 1, "9007199254740993", id="large int to float"),
        pytest.param(pa.timestamp("us"), NS, 1001, "1970-01-01 00:00:00.000001001", id="ns to us"),
        pytest.param(pa.timestamp("ms"), pa.timestamp("us"), 1001, "1970, 1, 1, 0, 0, 0, 1001", id="us to ms"),
        pytest.param(pa.decimal128(10, 2), pa.decimal128(12, 3), Decimal("0.125"), "0.125", id="decimal scale"),
        pytest.param(pa.decimal128(4, 2), pa.decimal128(10, 2), Decimal("123.45"), "123.45", id="decimal precision"),
    ],
)
def test_lossy_cast(io: Any, tmp_path: Path, target: pa.DataType, source: pa.DataType, value: Any, shown: str) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": pa.nulls(1, target)})})
    good = 0 if not pa.types.is_decimal(source) else Decimal(0)
    data = pa.table({"id": [1, 2, 3], "x": pa.array([good, value, good], source)})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError) as caught:
        io.merge(data, lake, "upsert", ["id"])
    assert all(word in str(caught.value) for word in ("'x'", str(target), str(source), shown))


def test_naive_against_zoned_timestamp(io: Any, engine: str, tmp_path: Path) -> None:
    if engine == "spark":
        pytest.skip("Spark has the session's zone, see tests/spark/test_semantics.py")
    old = pa.table({"id": [1], "x": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    data = pa.table({"id": [1], "x": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))})
    types = r"timestamp\[us\] in the source, which has no time zone, and timestamp\[us, tz=UTC\] in the target"
    refused(io, lake, data, ["id"], SchemaMismatchError, rf"Column 'x' is {types}.* source_timezone")


def test_null_in_a_required_column(io: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("x", pa.string(), False)])
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": ["a"]}, schema=schema)})
    data = pa.table({"id": [1, 2], "x": [None, "b"]})
    refused(io, lake, data, ["id"], SchemaMismatchError, "'x' may not be null in the target.* 1 null")


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), pa.map_(pa.string(), pa.int64())], ids=str
)
def test_unsupported_key_type(io: Any, tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"id": pa.nulls(1, kind), "x": ["a"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    refused(io, lake, table, ["id"], SchemaMismatchError, "'id' of type .* cannot be a key")


def test_files_without_a_common_type(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": pa.table({"id": [1], "x": ["a"]}), "b.parquet": pa.table({"id": ["1"], "x": ["a"]})}
    lake = write_lake(tmp_path / "lake", files)
    refused(io, lake, pa.table(GOOD), ["id"], SchemaMismatchError, r"'id' is int64 in a\.parquet and string in b\.parq")


@pytest.mark.parametrize("strategy", ["replace", "", "UPSERT", None])
def test_unknown_strategy(io: Any, lake: str, strategy: Any) -> None:
    for call in (io.merge, io.plan):
        with nothing_changes(lake), pytest.raises(ArgumentError, match=r"Unknown merge strategy.*'upsert'"):
            call(pa.table(GOOD), lake, strategy, ["id"])


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"row_group_size": 0}, "row_group_size must be a positive whole number"),
        ({"max_rows_per_file": -1}, "max_rows_per_file must be a positive whole number"),
        ({"compression": "zip"}, "Unknown compression 'zip'"),
        ({"replace": "copy"}, "Unknown replace 'copy'"),
        ({"partition_columns": ["x"], "partition_by": ["id"]}, "differ; pass only one of them"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_option(io: Any, lake: str, option: dict[str, Any], match: str) -> None:
    with nothing_changes(lake), pytest.raises(ArgumentError, match=match):
        io.merge(pa.table(GOOD), lake, "upsert", ["id"], **option)


def test_partition_columns_that_the_target_does_not_have(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"day=1/f.parquet": pa.table({"id": [1], "x": ["a"]})})
    data = pa.table({"id": [1], "x": ["b"], "day": [1]})
    with (
        nothing_changes(lake),
        pytest.raises(ArgumentError, match=r"\['x'\], but the target is partitioned by \['day'\]"),
    ):
        io.merge(data, lake, "upsert", ["id"], ["x"])


def test_a_source_of_unknown_kind(io: Any, lake: str) -> None:
    with nothing_changes(lake), pytest.raises(ArgumentError, match="Cannot read a source of type object"):
        io.merge(object(), lake, "upsert", ["id"])


def test_a_text_file_named_parquet(io: Any, lake: str) -> None:
    Path(lake, "notes.parquet").write_text("not Parquet at all, but long enough")
    refused(io, lake, pa.table(GOOD), ["id"], UnreadableFileError, r"lake/notes\.parquet")


def test_an_empty_file_named_parquet(io: Any, lake: str) -> None:
    Path(lake, "empty.parquet").touch()
    refused(io, lake, pa.table(GOOD), ["id"], UnreadableFileError, r"lake/empty\.parquet")


def test_a_file_cut_in_half(io: Any, lake: str) -> None:
    path = Path(lake, "f2.parquet")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(io, lake, pa.table(GOOD), ["id"], UnreadableFileError, r"lake/f2\.parquet")


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
def test_a_corrupt_key_page_is_named(io: Any, lake: str, strategy: str) -> None:
    spoil_pages(Path(lake, "f0.parquet"), ["id"])
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f0\.parquet"):
        io.merge(pa.table(GOOD), lake, strategy, ["id"])


@pytest.mark.parametrize("strategy", ["update", "upsert"])
@pytest.mark.parametrize("row_group", [0, 1], ids=["touched", "untouched"])
def test_a_corrupt_payload_page_is_named(io: Any, lake: str, strategy: str, row_group: int) -> None:
    spoil_pages(Path(lake, "f0.parquet"), ["x"], [row_group])
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f0\.parquet"):
        io.merge(pa.table({"id": [2], "x": ["A"]}), lake, strategy, ["id"])


def test_a_flipped_bit_under_a_page_checksum(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": range(100), "x": ["old"] * 100})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, **options)
    path = Path(lake, "f.parquet")
    content = bytearray(path.read_bytes())
    content[content.index((50).to_bytes(8, "little"))] ^= 1
    path.write_bytes(content)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet"):
        io.merge(pa.table({"id": [50], "x": ["A"]}), lake, "upsert", ["id"])


@pytest.mark.parametrize(
    ("marker", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
def test_table_formats(io: Any, lake: str, marker: str, kind: str) -> None:
    path = Path(lake, marker)
    path.parent.mkdir()
    path.write_text(json.dumps({}))
    refused(io, lake, pa.table(GOOD), ["id"], TargetError, f"is a {kind} table")
    for mode in ("append", "overwrite"):
        with nothing_changes(lake), pytest.raises(TargetError, match=kind):
            io.write_dataset(pa.table(GOOD), lake, mode)


@pytest.mark.disk
def test_the_target_is_a_file(io: Any, lake: str) -> None:
    refused(io, f"{lake}/f0.parquet", pa.table(GOOD), ["id"], TargetError, r"f0\.parquet is a file")


def test_a_refusal_is_a_value_error_and_a_damage_is_not(io: Any, lake: str) -> None:
    assert issubclass(MergeValidationError, ValueError)
    assert not issubclass(DatasetMergeError, ValueError)
    Path(lake, "f0.parquet").write_bytes(b"PAR1")
    with pytest.raises(DatasetMergeError):
        io.merge(pa.table(GOOD), lake, "upsert", ["id"])


def test_a_missing_target_stays_missing(io: Any, tmp_path: Path) -> None:
    with pytest.raises(NullKeyError):
        io.merge(
            pa.table({"id": [None]}, schema=pa.schema({"id": pa.int64()})), str(tmp_path / "a/b"), "upsert", ["id"]
        )
    assert list(tmp_path.iterdir()) == []


def test_write_modes_and_rewrite_modes(io: Any, lake: str) -> None:
    with nothing_changes(lake), pytest.raises(ArgumentError, match="Unknown mode 'replace'"):
        io.write_dataset(pa.table(GOOD), lake, "replace")
    with nothing_changes(lake), pytest.raises(ArgumentError, match="Unknown rewrite_mode 'some'"):
        io.write_parquet_dataset(pa.table(GOOD), lake, "upsert", ["id"], rewrite_mode="some")
    with nothing_changes(lake), pytest.raises(ArgumentError, match="key_columns is empty"):
        io.write_parquet_dataset(pa.table(GOOD), lake, "full_merge")


def test_a_store_that_cannot_be_locked_is_left_alone(tmp_path: Path) -> None:
    """Not even the target's folder is made."""
    store = SimpleCacheFileSystem(fs=LocalFileSystem(), cache_storage=str(tmp_path))
    with pytest.raises(DatasetMergeError, match="two writers could not be kept apart"):
        PyArrowDatasetIO(filesystem=store).merge(pa.table(GOOD), str(tmp_path / "new/lake"), "upsert", ["id"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.disk
def test_a_name_that_is_not_utf_8(io: Any, lake: str) -> None:
    """On macOS such a file cannot be made."""
    name = os.fsencode(lake) + b"/\xff.parquet"
    try:
        os.rename(f"{lake}/f1.parquet", name)
    except OSError:
        pytest.skip("this file system has no such names")
    with nothing_changes(lake), pytest.raises(TargetError, match=r"not UTF-8: b'\\xff.parquet'. Rename it"):
        io.merge(pa.table(GOOD), lake, "upsert", ["id"])


UNION = pa.UnionArray.from_dense(
    pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([pa.MonthDayNano([1, 2, 3])] * 2),
        pa.array([{}, {}], pa.struct([])),
        UNION,
        pa.array([b"", b""], pa.binary(0)),
        pa.array([{"a": []}, None], pa.struct([("a", pa.list_(pa.int8(), 0))])),
    ],
    ids=["interval", "empty struct", "union", "binary(0)", "list[0]"],
)
def test_types_that_parquet_does_not_have(tmp_path: Path, values: pa.Array) -> None:
    with nothing_changes(str(tmp_path)), pytest.raises(SchemaMismatchError, match="cannot be written as Parquet"):
        PyArrowDatasetIO().merge(pa.table({"id": [1, 2], "x": values}), str(tmp_path / "new"), "upsert", ["id"])


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.duration("s")], ids=str)
def test_duplicate_keys_beyond_the_years_of_python(io: Any, tmp_path: Path, kind: pa.DataType) -> None:
    far = pa.array([2**31 - 1 if kind == pa.date32() else 2**62] * 2, pa.int32() if kind == pa.date32() else pa.int64())
    with pytest.raises(DuplicateKeyError, match="1 key"):
        io.merge(pa.table({"id": far.cast(kind), "x": ["a", "b"]}), str(tmp_path / "new"), "upsert", ["id"])


def test_a_row_is_never_replaced_by_one_of_another_key(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last guard, should an engine have mixed up its matches: one of eight files is held against its keys."""
    row_group = FileRows.row_group

    def mixed_up(self: FileRows, group: int) -> RowGroupChange:
        change = row_group(self, group)
        return replace(change, rows=change.rows.take(list(reversed(range(change.rows.num_rows)))))

    monkeypatch.setattr(FileRows, "row_group", mixed_up)
    with nothing_changes(lake), pytest.raises(DatasetMergeError, match=r"f0\.parquet would be replaced .* other keys"):
        PyArrowDatasetIO().merge(pa.table({"id": [1, 2], "x": ["a", "b"]}), lake, "upsert", ["id"])


def test_rows_in_the_place_of_the_path_are_not_printed() -> None:
    """A table's text is hundreds of lines, and hides what was wrong."""
    rows = pa.table({"id": range(1_000)})
    with pytest.raises(ArgumentError, match=r"non-empty string, not Table \(rows come first, then the path\)\.$"):
        fsspeckit.merge("lake", rows, "upsert", ["id"])
