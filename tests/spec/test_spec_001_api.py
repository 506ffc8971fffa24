"""Spec 001, "API": every name with the signature that the spec writes, and what each of them does."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import inspect
import math
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import spoil_pages
from fsspeckit.api import recover
from fsspeckit.core import incremental as api
from fsspeckit.core.errors import ArgumentError, CommitUnfinishedError, UnreadableFileError
from fsspeckit.core.model import Bounds
from fsspeckit.core.storage import LocalStorage
from fsspeckit.core.values import python_values
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, rows, write_lake

REQUIRED = inspect.Parameter.empty

SIGNATURES: dict[str, dict[str, Any]] = {
    "merge": {
        "data": REQUIRED,
        "path": REQUIRED,
        "strategy": REQUIRED,
        "key_columns": REQUIRED,
        "partition_columns": None,
        "filesystem": None,
        "compression": "snappy",
        "max_rows_per_file": 5_000_000,
        "row_group_size": 500_000,
    },
    "list_dataset_files": {"dataset_path": REQUIRED, "filesystem": None},
    "parse_hive_partition_path": {"file_path": REQUIRED, "partition_columns": None},
    "ParquetMetadataAnalyzer.analyze_dataset_files": {"self": REQUIRED, "dataset_path": REQUIRED, "filesystem": None},
    "PartitionPruner.identify_candidate_files": {
        "self": REQUIRED,
        "file_metadata": REQUIRED,
        "key_columns": REQUIRED,
        "source_keys": REQUIRED,
        "partition_schema": None,
    },
    "ConservativeMembershipChecker.file_might_contain_keys": {
        "self": REQUIRED,
        "file_metadata": REQUIRED,
        "key_columns": REQUIRED,
        "source_keys": REQUIRED,
    },
    "confirm_affected_files": {
        "candidate_files": REQUIRED,
        "key_columns": REQUIRED,
        "source_keys": REQUIRED,
        "filesystem": None,
    },
    "IncrementalFileManager.create_staging_directory": {"self": REQUIRED, "base_path": REQUIRED},
    "IncrementalFileManager.atomic_replace_files": {
        "self": REQUIRED,
        "source_files": REQUIRED,
        "target_files": REQUIRED,
        "filesystem": None,
    },
    "IncrementalFileManager.cleanup_staging_files": {"self": REQUIRED},
    "validate_no_null_keys": {"source_table": REQUIRED, "key_columns": REQUIRED},
    "validate_partition_column_immutability": {
        "source_table": REQUIRED,
        "target_table": REQUIRED,
        "key_columns": REQUIRED,
        "partition_columns": REQUIRED,
    },
    "plan_incremental_rewrite": {
        "dataset_path": REQUIRED,
        "source_keys": REQUIRED,
        "key_columns": REQUIRED,
        "filesystem": None,
        "partition_schema": None,
    },
}

FIELDS = {
    "MergeFileMetadata": ["path", "row_count", "operation", "size_bytes"],
    "MergeResult": [
        "strategy",
        "source_count",
        "target_count_before",
        "target_count_after",
        "inserted",
        "updated",
        "deleted",
        "files",
        "rewritten_files",
        "inserted_files",
        "preserved_files",
    ],
    "ParquetFileMetadata": ["path", "row_group_count", "total_rows", "column_stats", "partition_values"],
    "IncrementalRewritePlan": ["affected_files", "unaffected_files", "new_files", "affected_rows"],
}


@pytest.mark.parametrize("name", list(SIGNATURES))
def test_signature(name: str) -> None:
    """The spec's parameters in the spec's order, with its defaults; further ones come after them and are optional."""
    found: Any = api
    for part in name.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters
    wanted = SIGNATURES[name]
    assert list(parameters)[: len(wanted)] == list(wanted)
    assert {n: parameters[n].default for n in wanted} == wanted
    assert all(p.default is not REQUIRED for n, p in parameters.items() if n not in wanted)


@pytest.mark.parametrize("name", list(FIELDS))
def test_dataclass(name: str) -> None:
    fields = dataclasses.fields(getattr(api, name))
    assert [f.name for f in fields][: len(FIELDS[name])] == FIELDS[name]


def test_every_name_is_exported() -> None:
    wanted = {name.partition(".")[0] for name in SIGNATURES} | set(FIELDS)
    assert set(api.__all__) == wanted


def once(values: list[str]) -> Any:
    """What can be read only once, where the types ask for more."""
    return iter(values)


# list_dataset_files


def test_list_dataset_files(tmp_path: Path) -> None:
    table = pa.table({"id": [1]})
    data = ["b.parquet", "a.parquet", "day=1/c.parquet", "_year=1/d.parquet", "deep/er/e.parq", "z.PARQUET"]
    other = [
        "_temporary/f.parquet",
        ".hidden/g.parquet",
        "_metadata",
        "_h.parquet",
        ".i.parquet",
        "j.csv",
        "k.parquet.crc",
    ]
    lake = write_lake(tmp_path / "lake", dict.fromkeys(data + other, table))
    Path(lake, "_SUCCESS").touch()
    assert api.list_dataset_files(lake) == sorted(f"{lake}/{name}" for name in data)
    assert api.list_dataset_files(str(tmp_path / "none")) == []


def test_list_dataset_files_of_a_file_system() -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe_file("/spec001/lake/f.parquet", b"")
    assert api.list_dataset_files("/spec001/lake", fs) == ["/spec001/lake/f.parquet"]
    assert api.list_dataset_files("memory://spec001/lake") == ["memory://spec001/lake/f.parquet"]


# parse_hive_partition_path


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/data/year=2024/month=12/file.parquet", {"year": "2024", "month": "12"}),
        ("year=2024/file.parquet", {"year": "2024"}),
        ("s3://bucket/lake/day=2025-01-01/f.parquet", {"day": "2025-01-01"}),
        ("/data/file.parquet", {}),
        ("file.parquet", {}),
        ("/data/month=01/f.parquet", {"month": "01"}),
        ("/data/p=__HIVE_DEFAULT_PARTITION__/f.parquet", {"p": None}),
        ("/data/p=/f.parquet", {"p": ""}),
        ("/data/p=a%20b%2Fc%25/f.parquet", {"p": "a b/c%"}),
        ("/data/p=a=b/f.parquet", {"p": "a=b"}),
        ("/data/na%3Dme=v/f.parquet", {"na=me": "v"}),
        ("/data/p=ü/f.parquet", {"p": "ü"}),
        ("/data/plain/p=1/more/q=2/f.parquet", {"p": "1", "q": "2"}),
        ("/data/p=1/x=y.parquet", {"p": "1"}),
        ("/data/=1/f.parquet", {}),
        (r"C:\data\year=2024\month=12\file.parquet", {"year": "2024", "month": "12"}),
        (r"year=2024\month=12\file.parquet", {"year": "2024", "month": "12"}),
        (r"\\server\share\year=2024\file.parquet", {"year": "2024"}),
        (r"C:\data/year=2024\file.parquet", {"year": "2024"}),
        (r"C:/data\year=2024\file.parquet", {"year": "2024"}),
        (r"/data/p=a\b/f.parquet", {"p": r"a\b"}),
        (r"p=a\b/f.parquet", {"p": r"a\b"}),
        ("s3://bucket/p=a\\b/f.parquet", {"p": "a\\b"}),
    ],
)
def test_parse_hive_partition_path(path: str, values: dict[str, Any]) -> None:
    assert api.parse_hive_partition_path(path) == values


def test_parse_hive_partition_path_with_columns() -> None:
    path = "/data/a=1/b=2/c=3/f.parquet"
    assert api.parse_hive_partition_path(path, ["c", "a", "z"]) == {"c": "3", "a": "1"}
    assert list(api.parse_hive_partition_path(path, ["c", "a"])) == ["c", "a"]
    assert api.parse_hive_partition_path(path, []) == {}


# ParquetMetadataAnalyzer


def analyze(lake: str) -> list[api.ParquetFileMetadata]:
    return api.ParquetMetadataAnalyzer().analyze_dataset_files(lake)


def test_metadata_with_statistics(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [3, 1, None, 9],
            "text": ["b", "a", "d", "c"],
            "day": [dt.date(1970, 1, 2)] * 4,
            "nothing": pa.nulls(4, pa.int64()),
            "s": [{"id": 1000}] * 4,
        }
    )
    (found,) = analyze(write_lake(tmp_path / "lake", {"day=x/f.parquet": table}, row_group_size=2))
    assert (found.path, found.row_group_count, found.total_rows) == (f"{tmp_path}/lake/day=x/f.parquet", 2, 4)
    assert found.column_stats["id"] == {"min": 1, "max": 9, "null_count": 1}
    assert found.column_stats["text"] == {"min": "a", "max": "d", "null_count": 0}
    assert found.column_stats["day"] == {"min": dt.date(1970, 1, 2), "max": dt.date(1970, 1, 2), "null_count": 0}
    assert found.column_stats["nothing"] == {"min": None, "max": None, "null_count": 4}
    assert "s" not in found.column_stats
    assert found.partition_values == {"day": "x"}


VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.string(), "a", "ü"),
    (pa.dictionary(pa.int32(), pa.large_string()), "a", "b"),
    (pa.binary(), b"\x00", b"\xff"),
    (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    (pa.date64(), dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    (pa.timestamp("ms"), dt.datetime(1960, 1, 1, 1, 2, 3, 4000), dt.datetime(2024, 1, 1)),
    (pa.timestamp("us", "UTC"), dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (pa.timestamp("us", "Asia/Tokyo"), dt.datetime(2023, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    (pa.time32("ms"), dt.time(0, 0, 1), dt.time(23, 59, 59, 999_000)),
    (pa.time64("us"), dt.time(0, 0, 0, 1), dt.time(12)),
    (pa.decimal128(10, 2), Decimal("-1.50"), Decimal("99.99")),
    (pa.decimal256(50, 2), Decimal("-1.50"), Decimal("99.99")),
    (pa.bool_(), False, True),
    (pa.int8(), -128, 127),
    (pa.uint64(), 0, 2**64 - 1),
    (pa.float32(), -0.5, 1.5),
]


@pytest.mark.parametrize(("dtype", "low", "high"), VALUES, ids=str)
def test_metadata_has_values_as_python_has_them(tmp_path: Path, dtype: pa.DataType, low: Any, high: Any) -> None:
    plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    table = pa.table({"x": pa.array([high, low, None], plain).cast(dtype)})
    (found,) = analyze(write_lake(tmp_path / "lake", {"f.parquet": table}, row_group_size=1))
    stats = found.column_stats["x"]
    assert stats == {"min": low, "max": high, "null_count": 1}
    assert (type(stats["min"]), type(stats["max"])) == (type(low), type(high))


def test_metadata_of_values_that_python_does_not_have(tmp_path: Path) -> None:
    """Nanoseconds are rounded outward; what cannot be rounded proves nothing."""
    table = pa.table(
        {
            "nanos": pa.array([1_999, 2_001, 5_001], pa.timestamp("ns")),
            "time": pa.array([1_999, 2_001, 5_001], pa.time64("ns")),
            "far": pa.array([0, 1, 2**62], pa.timestamp("us")),
            "day": pa.array([0, 1, 2**30], pa.date32()),
        }
    )
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    (found,) = analyze(lake)
    stats = found.column_stats
    epoch = dt.datetime(1970, 1, 1)
    assert stats["nanos"] == bounds(epoch + dt.timedelta(microseconds=1), epoch + dt.timedelta(microseconds=6))
    assert stats["time"] == bounds(dt.time(0, 0, 0, 1), dt.time(0, 0, 0, 6))
    assert {"far", "day"} & set(stats) == set()
    checker = api.ConservativeMembershipChecker()
    assert checker.file_might_contain_keys(found, ["nanos"], pa.table({"nanos": table["nanos"].slice(2)}))
    assert checker.file_might_contain_keys(found, ["day"], pa.table({"day": table["day"].slice(2)}))


def test_text_bounds_that_are_cut_within_a_character() -> None:
    assert python_values.statistics([Bounds(b"a\xc3", b"b", 0)], pa.string()) is None
    assert python_values.statistics([Bounds(b"a\xc3", b"b", 0)], pa.binary()) == bounds(b"a\xc3", b"b")


def test_metadata_without_statistics(tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})}, write_statistics=False
    )
    (found,) = analyze(lake)
    assert (found.row_group_count, found.total_rows, found.column_stats) == (1, 2, {})
    assert found.partition_values is None


def test_metadata_of_row_groups_of_which_one_has_no_bounds(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "z" * 5000], "n": [1, 2]})
    (found,) = analyze(write_lake(tmp_path / "lake", {"f.parquet": table}, row_group_size=1))
    assert list(found.column_stats) == ["n"]


def test_metadata_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {})
    Path(lake).mkdir()
    Path(lake, "f.parquet").write_text("no Parquet")
    (found,) = analyze(lake)
    assert (found.total_rows, found.column_stats) == (0, {})
    assert api.ConservativeMembershipChecker().file_might_contain_keys(found, ["id"], [1])


# PartitionPruner


def metadata(path: str, **values: Any) -> api.ParquetFileMetadata:
    return api.ParquetFileMetadata(path, 1, 10, {}, values or None)


FILES = [metadata("a", year="2024", month="01"), metadata("b", year="2024", month="02"), metadata("c", year="2025")]


@pytest.mark.parametrize(
    ("columns", "source_keys", "kept"),
    [
        (["year"], ["2024"], ["a", "b"]),
        (["year"], ["2025", "1999"], ["c"]),
        (["year"], ["1999"], []),
        (["year"], [2024], ["a", "b"]),
        (["month"], [1], ["a", "c"]),
        (["id"], [1], ["a", "b", "c"]),
        (["id", "month"], [(7, "02")], ["b", "c"]),
        (["year", "month"], [("2024", "02"), ("2025", "01")], ["b", "c"]),
        (["id"], [{"id": 1, "month": "02", "year": "2024"}], ["b"]),
        (["id"], [{"id": 1, "month": "02"}, {"id": 2, "month": "03"}], ["b", "c"]),
        (["id"], [{"id": 1, "month": "02"}, {"id": 2}], ["a", "b", "c"]),
        (["id"], pa.table({"id": [1], "month": [2], "x": ["1"]}), ["b", "c"]),
        (["id"], pa.record_batch({"id": [1], "year": ["2025"]}), ["c"]),
        (["year", "month"], [("2024", "02")], ["b"]),
        (["year", "month"], [{"month": "02", "year": "2024"}], ["b"]),
        (["month"], [1.5], ["c"]),
    ],
    ids=str,
)
def test_partition_pruner(columns: list[str], source_keys: Any, kept: list[str]) -> None:
    assert api.PartitionPruner().identify_candidate_files(FILES, columns, source_keys) == kept


def test_partition_pruner_with_a_schema() -> None:
    files = [metadata("a", month="01"), metadata("b", month="1"), metadata("c", month="2"), metadata("d", month="x")]
    pruner = api.PartitionPruner()
    assert pruner.identify_candidate_files(files, ["month"], ["01"]) == ["a"]
    schema = pa.schema({"month": pa.int32()})
    assert pruner.identify_candidate_files(files, ["month"], [1], schema) == ["a", "b", "d"]
    assert pruner.identify_candidate_files(files, ["month"], ["1"], schema) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("text", "key", "admitted"),
    [
        (None, "a", False),
        ("nan", math.nan, True),
        ("1.0", math.nan, False),
        ("2025-01-01", dt.date(2025, 1, 1), True),
        ("2025-01-01", dt.date(2025, 1, 2), False),
        ("true", True, True),
        ("1.50", Decimal("1.5"), True),
    ],
)
def test_partition_pruner_values(text: str | None, key: Any, admitted: bool) -> None:
    files = [metadata("f", p=text) if text is not None else api.ParquetFileMetadata("f", 1, 1, {}, {"p": None})]
    found = api.PartitionPruner().identify_candidate_files(files, ["p"], [key])
    assert found == (["f"] if admitted else [])


# ConservativeMembershipChecker

DAY, NOON = dt.date(2024, 5, 5), dt.datetime(2024, 5, 5, 12)


def might(stats: dict[str, Any] | None, *keys: Any, rows: int = 10) -> bool:
    found = api.ParquetFileMetadata("f", 1, rows, {} if stats is None else {"k": stats})
    return api.ConservativeMembershipChecker().file_might_contain_keys(found, ["k"], list(keys))


def bounds(low: Any, high: Any, nulls: int = 0) -> dict[str, Any]:
    return {"min": low, "max": high, "null_count": nulls}


@pytest.mark.parametrize(
    ("stats", "keys", "expected"),
    [
        (bounds(10, 20), [15], True),
        (bounds(10, 20), [10], True),
        (bounds(10, 20), [20], True),
        (bounds(10, 20), [9, 21], False),
        (bounds(10, 20), [], False),
        (None, [1], True),
        ({}, [1], True),
        ({"null_count": 0}, [1], True),
        ({"min": 10}, [1], True),
        (bounds(None, None), [1], True),
        (bounds(10, None), [1], True),
        (bounds(None, None, nulls=3), [1], True),
        (bounds(None, None, nulls=10), [1], False),
        (bounds(math.nan, math.nan), [1.0], True),
        (bounds(math.nan, 5.0), [9.0], True),
        (bounds(20, 10), [1], True),
        (bounds("d", "b"), ["x"], True),
        (bounds(10, 20, nulls=10), [1], True),
        (bounds(1.0, 5.0), [math.nan], True),
        (bounds(1.0, 5.0), [9.0], False),
        (bounds(10, 20), ["15"], True),
        (bounds(b"a", b"c"), [7], True),
        (bounds("b", "d"), ["c"], True),
        (bounds("b", "d"), ["e", "a"], False),
        (bounds(b"b", b"d"), ["c"], True),
        (bounds(b"b", b"d"), ["e"], False),
        (bounds(b"p" * 64, b"p" * 63 + b"q"), ["p" * 100], True),
        (bounds(b"p" * 64, b"p" * 63 + b"q"), ["p" * 10, "q"], False),
        (bounds(1, 2), [1.5], True),
        (bounds(1, 2), [2.5], False),
        (bounds(1, 2), [Decimal("1.5")], True),
        (bounds(Decimal("0.1"), Decimal("0.2")), [Decimal("0.15")], True),
        (bounds(Decimal("0.1"), Decimal("0.2")), [Decimal("0.3")], False),
        (bounds(dt.date(2024, 1, 1), dt.date(2024, 2, 1)), [dt.date(2024, 1, 15)], True),
        (bounds(dt.date(2024, 1, 1), dt.date(2024, 2, 1)), [dt.date(2024, 3, 15)], False),
        (bounds(False, False), [True], False),
        (bounds(False, False), [7], True),
        (bounds(DAY, DAY), [NOON], True),
        (bounds(NOON, NOON), [DAY], True),
        (bounds(NOON, NOON), [NOON.replace(tzinfo=dt.UTC)], True),
        (bounds(NOON.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC)), [NOON], True),
        (bounds(NOON, NOON), [dt.datetime(2024, 5, 6)], False),
        (bounds(19_000, 19_001), [DAY], True),
        (bounds(DAY, DAY), [dt.time(1)], True),
        (bounds(Decimal("0.1"), Decimal("0.1")), [0.1], True),
        (bounds(0.1, 0.1), [Decimal("0.1")], True),
        (bounds(1, "z"), [5], True),
    ],
    ids=str,
)
def test_membership(stats: dict[str, Any] | None, keys: list[Any], expected: bool) -> None:
    assert might(stats, *keys) is expected


def test_membership_of_composite_keys() -> None:
    found = api.ParquetFileMetadata("f", 1, 10, {"a": bounds(1, 5), "b": bounds("m", "p")})
    might_contain = api.ConservativeMembershipChecker().file_might_contain_keys
    assert might_contain(found, ["a", "b"], [(3, "n")])
    assert not might_contain(found, ["a", "b"], [(3, "z")])
    assert not might_contain(found, ["a", "b"], [(9, "n")])
    assert might_contain(found, ["a", "c"], [(3, "z")])
    assert might_contain(found, ["a", "b"], [{"b": "n", "a": 3}])


def test_membership_of_real_files(tmp_path: Path) -> None:
    """What the analyzer reads off a footer compares with Python values of the column's type."""
    moment = dt.datetime(2024, 5, 5, 12, tzinfo=dt.UTC)
    columns = {
        "date": (pa.array([dt.date(2024, 5, 5)]), dt.date(2024, 5, 5), dt.date(2024, 5, 6)),
        "zoned": (pa.array([moment], pa.timestamp("ms", "UTC")), moment, moment + dt.timedelta(seconds=1)),
        "nanos": (
            pa.array([moment.replace(tzinfo=None)], pa.timestamp("ns")),
            moment.replace(tzinfo=None),
            dt.datetime(1999, 1, 1),
        ),
        "decimal": (pa.array([Decimal("1.50")]), Decimal("1.5"), Decimal("1.51")),
        "text": (pa.array(["ü"]), "ü", "u"),
        "uint64": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1, 5),
        "time": (pa.array([dt.time(1, 2, 3)]), dt.time(1, 2, 3), dt.time(1, 2, 4)),
        "binary": (pa.array([b"\xff"]), b"\xff", b"\x01"),
        "bool": (pa.array([True]), True, False),
    }
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({name: c[0] for name, c in columns.items()})})
    (found,) = analyze(lake)
    check = api.ConservativeMembershipChecker().file_might_contain_keys
    for name, (_, inside, outside) in columns.items():
        assert check(found, [name], [inside]), name
        assert not check(found, [name], [outside]), name


# confirm_affected_files


def test_confirm_affected_files(tmp_path: Path) -> None:
    files = {f"f{i}.parquet": pa.table({"id": [i, i + 10], "x": ["a", "b"]}) for i in range(4)}
    lake = write_lake(tmp_path / "lake", files)
    paths = [f"{lake}/f{i}.parquet" for i in range(4)]
    assert api.confirm_affected_files(paths, ["id"], [2, 10, 5]) == [paths[0], paths[2]]
    assert api.confirm_affected_files(paths[1:2], ["id"], [2]) == []
    assert api.confirm_affected_files(paths, ["id", "x"], [(1, "b"), (13, "b")]) == [paths[3]]
    assert api.confirm_affected_files([], ["id"], [2]) == []
    assert api.confirm_affected_files(paths, ["id"], []) == []
    assert api.confirm_affected_files(paths, ["id"], [None, 3]) == [paths[3]]


def test_keys_and_files_that_can_be_read_only_once(tmp_path: Path) -> None:
    """A generator once answered that no file is affected."""
    lake = write_lake(
        tmp_path / "lake", {f"f{i}.parquet": pa.table({"id": [i, i + 10], "x": ["a", "b"]}) for i in range(4)}
    )
    paths = [f"{lake}/f{i}.parquet" for i in range(4)]
    assert api.confirm_affected_files(paths, ["id"], (k for k in [2, 13])) == paths[2:]
    assert api.confirm_affected_files(iter(paths), ["id"], [2, 13]) == paths[2:]
    assert api.confirm_affected_files(paths, once(["id", "x"]), ((i, "b") for i in [2, 13])) == paths[3:]
    assert api.confirm_affected_files(paths, "id", pa.array([2, 13])) == paths[2:]
    assert api.confirm_affected_files(paths[2], "id", {2, 13}) == paths[2:3]
    plan = api.plan_incremental_rewrite(lake, (k for k in [13]), ["id"])
    assert (plan.affected_files, plan.affected_rows) == (paths[3:], 2)
    assert api.plan_incremental_rewrite(lake, [13], "id").affected_files == paths[3:]
    files = api.ParquetMetadataAnalyzer().analyze_dataset_files(lake)
    assert api.PartitionPruner().identify_candidate_files(iter(files), ["id"], (k for k in [2])) == paths
    checker = api.ConservativeMembershipChecker()
    assert [checker.file_might_contain_keys(f, "id", [13]) for f in files] == [False, False, False, True]
    with pytest.raises(ArgumentError, match="only once"):
        checker.file_might_contain_keys(files[3], ["id"], (k for k in [13]))
    with pytest.raises(ArgumentError, match="give a list"):
        api.confirm_affected_files(paths, ["id"], "13")


def test_partition_columns_that_can_be_read_only_once() -> None:
    before, after = pa.table({"id": [1], "day": [1]}), pa.table({"id": [1], "day": [2]})
    with pytest.raises(ValueError, match="cannot change for existing keys"):
        api.validate_partition_column_immutability(after, before, once(["id"]), once(["day"]))


def test_confirm_reads_only_key_columns(tmp_path: Path) -> None:
    files = {f"f{i}.parquet": pa.table({"id": [i], "x": ["a"]}) for i in range(2)}
    lake = write_lake(tmp_path / "lake", files)
    paths = api.list_dataset_files(lake)
    for path in paths:
        spoil_pages(path, ["x"])
        with pytest.raises(OSError):
            pq.read_table(path)
    assert api.confirm_affected_files(paths, ["id"], [1]) == [paths[1]]


def test_confirm_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1]})})
    spoil_pages(f"{lake}/f.parquet")
    with pytest.raises(UnreadableFileError, match=r"f\.parquet"):
        api.confirm_affected_files([f"{lake}/f.parquet"], ["id"], [1])
    with pytest.raises(FileNotFoundError, match="none"):
        api.confirm_affected_files([f"{lake}/none.parquet"], ["id"], [1])


def test_confirm_compares_by_value(tmp_path: Path) -> None:
    """Keys need not fit the column's type; those that cannot be compared with it are refused."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": pa.array([1, 2], pa.int8())})})
    paths = [f"{lake}/f.parquet"]
    assert api.confirm_affected_files(paths, ["id"], [2, 10**6]) == paths
    assert api.confirm_affected_files(paths, ["id"], [10**6]) == []
    assert api.confirm_affected_files(paths, ["id"], [2.0]) == paths
    assert api.confirm_affected_files(paths, ["id"], [1.5]) == []
    with pytest.raises(ValueError, match=r"'id'.*string.*int8"):
        api.confirm_affected_files(paths, ["id"], ["2"])
    with pytest.raises(ValueError, match="nope"):
        api.confirm_affected_files(paths, ["nope"], [1])


def test_confirm_takes_partition_values_from_the_path(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"p={p}/f.parquet": pa.table({"id": [1]}) for p in ("01", "02")})
    paths = api.list_dataset_files(lake)
    assert api.confirm_affected_files(paths, ["id", "p"], [(1, "02")]) == paths[1:]
    assert api.confirm_affected_files(paths, ["id", "p"], [(1, 1), (2, 2)]) == paths[:1]


# IncrementalFileManager


def test_staging_directory(tmp_path: Path) -> None:
    manager = api.IncrementalFileManager()
    first, second = (manager.create_staging_directory(str(tmp_path / "lake")) for _ in range(2))
    assert Path(first).parent == Path(second).parent == tmp_path / "lake"
    assert first != second
    assert all(Path(path).is_dir() and Path(path).name.startswith(".staging_") for path in (first, second))


def test_atomic_replace_files(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1]}), "b.parquet": pa.table({"id": [2]})})
    manager = api.IncrementalFileManager()
    staging = manager.create_staging_directory(lake)
    write_lake(staging, {"x": pa.table({"id": [10]}), "y": pa.table({"id": [20]})})
    targets = [f"{lake}/a.parquet", f"{lake}/b.parquet"]
    manager.atomic_replace_files([f"{staging}/x", f"{staging}/y"], targets)
    assert [row["id"] for row in rows(lake)] == [10, 20]
    manager.cleanup_staging_files()
    assert all_names(lake) == ["a.parquet", "b.parquet"]


def test_cleanup_on_failure(tmp_path: Path) -> None:
    """A staged file is missing: nothing is replaced, and clean-up removes what was staged."""
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1]}), "b.parquet": pa.table({"id": [2]})})
    manager = api.IncrementalFileManager()
    staging = manager.create_staging_directory(lake)
    write_lake(staging, {"x": pa.table({"id": [10]}), "sub/z": pa.table({"id": [30]})})
    targets = [f"{lake}/a.parquet", f"{lake}/b.parquet"]
    with pytest.raises(FileNotFoundError, match=r"staging_.*/y.*nothing was replaced"):
        manager.atomic_replace_files([f"{staging}/x", f"{staging}/y"], targets)
    assert [row["id"] for row in rows(lake) if row["id"] < 10] == [1, 2]
    with pytest.raises(ValueError, match="1 source files for 2 target files"):
        manager.atomic_replace_files([f"{staging}/x"], targets)
    manager.cleanup_staging_files()
    manager.cleanup_staging_files()
    assert all_names(lake) == ["a.parquet", "b.parquet"]


def test_replacing_files_is_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rename fails: the first is not left alone, for the commit is recorded and then finished."""
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1]}), "p=1/b.parquet": pa.table({"id": [2]})})
    manager, rename = api.IncrementalFileManager(), LocalStorage.rename
    staging = manager.create_staging_directory(lake)
    write_lake(staging, {"x": pa.table({"id": [10]}), "y": pa.table({"id": [20]})})
    sources, targets = [f"{staging}/x", f"{staging}/y"], [f"{lake}/a.parquet", f"{lake}/p=1/b.parquet"]

    def replace_failing_at(name: str) -> None:
        def fail(storage: LocalStorage, source: str, target: str) -> None:
            if target.endswith(name):
                raise OSError(errno.EIO, "broken disk")
            assert Path(source).parent != Path(staging), (
                "killed now, the next writer would clear the caller's file away"
            )
            rename(storage, source, target)

        with monkeypatch.context() as patched:
            patched.setattr(LocalStorage, "rename", fail)
            manager.atomic_replace_files(sources, targets)

    with pytest.raises(OSError, match=r"broken disk.*Nothing was changed"):
        replace_failing_at("journal.json")
    assert [row["id"] for row in rows(lake) if row["id"] < 10] == [1, 2]
    assert all(Path(source).exists() for source in sources)
    with pytest.raises(CommitUnfinishedError, match=rf"recorded; do not repeat it.*broken disk.*recover {lake}`"):
        replace_failing_at("b.parquet")
    recover(lake)
    manager.cleanup_staging_files()
    assert [row["id"] for row in rows(lake)] == [10, 20]
    assert all_names(lake) == ["a.parquet", "p=1", "p=1/b.parquet"]


def test_replacing_files_by_files_from_anywhere(tmp_path: Path) -> None:
    """By files of the data set itself, by one file twice, from another file system, into a new folder."""
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1]}), "b.parquet": pa.table({"id": [2]})})
    replace, a, b = api.IncrementalFileManager().atomic_replace_files, f"{lake}/a.parquet", f"{lake}/b.parquet"
    replace(once([a, b]), once([b, a]))
    assert [pq.read_table(f)["id"].to_pylist() for f in (a, b)] == [[2], [1]]
    replace([a, a], [b, f"{lake}/p/c.parquet"])
    assert [row["id"] for row in rows(lake)] == [2, 2]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as elsewhere:
        write_lake(elsewhere, {"x": pa.table({"id": [3]})})
        replace([f"{elsewhere}/x"], [b])
        assert not os.listdir(elsewhere)
        with pytest.raises(ValueError, match="no folder in common"):
            replace([b, b], ["/nowhere/x.parquet", b])
        with pytest.raises(FileNotFoundError, match="nothing was replaced"):
            replace([elsewhere], [b])
    assert [row["id"] for row in rows(lake)] == [3, 2]
    assert all_names(tmp_path) == ["lake", "lake/b.parquet", "lake/p", "lake/p/c.parquet"]


def test_files_of_any_name_are_replaced(tmp_path: Path) -> None:
    for name in ("one", "two", "notes.txt", "_x.parquet"):
        (tmp_path / name).write_text(name)
    (tmp_path / "notes.txt").chmod(0o640)
    targets = [f"{tmp_path}/{name}" for name in ("notes.txt", "deep/new.csv")]
    api.IncrementalFileManager().atomic_replace_files([f"{tmp_path}/one", f"{tmp_path}/two"], targets)
    assert {n: (tmp_path / n).read_text() for n in all_names(tmp_path) if (tmp_path / n).is_file()} == {
        "notes.txt": "one",
        "deep/new.csv": "two",
        "_x.parquet": "_x.parquet",
    }
    assert (tmp_path / "notes.txt").stat().st_mode & 0o777 == 0o640


def test_files_of_any_name_are_all_replaced_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"one": "1", "two": "2", "three": "3", "a.txt": "a", "c.parquet": "c"}
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    rename = LocalStorage.rename

    def fail(storage: LocalStorage, source: str, target: str) -> None:
        if target.endswith("c.parquet"):
            raise OSError(errno.EIO, "broken disk")
        rename(storage, source, target)

    with monkeypatch.context() as patched, pytest.raises(OSError, match=r"broken disk.*Nothing was changed"):
        patched.setattr(LocalStorage, "rename", fail)
        api.IncrementalFileManager().atomic_replace_files(
            [f"{tmp_path}/{n}" for n in ("one", "two", "three")],
            [f"{tmp_path}/{n}" for n in ("a.txt", "b.txt", "c.parquet")],
        )
    assert {n: (tmp_path / n).read_text() for n in all_names(tmp_path)} == names


@pytest.mark.parametrize("target", ["a.txt", "a.parquet"])
def test_a_file_is_not_replaced_twice(tmp_path: Path, target: str) -> None:
    for name in ("one", "two", target):
        (tmp_path / name).write_text(name)
    with pytest.raises(ArgumentError, match=r"a\.\w+'\] twice; nothing was replaced"):
        api.IncrementalFileManager().atomic_replace_files(
            [f"{tmp_path}/one", f"{tmp_path}/two"], [f"{tmp_path}/{target}", f"{tmp_path}/./{target}"]
        )
    assert {n: (tmp_path / n).read_text() for n in all_names(tmp_path)} == {n: n for n in ("one", "two", target)}


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "folder.txt" / "inside").write_text("inside")
    with pytest.raises(OSError, match="Nothing was changed"):
        api.IncrementalFileManager().atomic_replace_files([f"{tmp_path}/new"], [f"{tmp_path}/folder.txt"])
    assert all_names(tmp_path) == ["folder.txt", "folder.txt/inside", "new"]


def test_only_data_files_are_replaced_where_renames_are_not_atomic() -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe({"/spec001r/new": b"new", "/spec001r/a.parquet": b"old", "/spec001r/notes.txt": b"notes"})
    replace = api.IncrementalFileManager().atomic_replace_files
    with pytest.raises(ValueError, match=r"notes\.txt.*nothing was replaced"):
        replace(["/spec001r/new"], ["/spec001r/notes.txt"], fs)
    replace(["/spec001r/new"], ["/spec001r/a.parquet"], fs)
    assert {name: fs.cat_file(name) for name in fs.find("/spec001r")} == {
        "/spec001r/a.parquet": b"new",
        "/spec001r/notes.txt": b"notes",
    }


def test_cleanup_leaves_other_writers_alone(tmp_path: Path) -> None:
    ours, theirs = api.IncrementalFileManager(), api.IncrementalFileManager()
    ours.create_staging_directory(str(tmp_path))
    other = theirs.create_staging_directory(str(tmp_path))
    ours.cleanup_staging_files()
    assert [str(path) for path in tmp_path.iterdir()] == [other]


# Validators


def test_validate_no_null_keys() -> None:
    table = pa.table({"id": [1, None, None], "b": ["x", None, "y"], "c": [None, 1, 2]})
    assert api.validate_no_null_keys(table.slice(0, 1), ["id", "b"]) is None
    with pytest.raises(ValueError, match=r"'id' \(2 rows\), 'b' \(1 row\)"):
        api.validate_no_null_keys(table, ["id", "b"])
    with pytest.raises(ValueError, match=r"'nope' not found"):
        api.validate_no_null_keys(table, ["nope"])


def test_validate_partition_column_immutability() -> None:
    target = pa.table({"id": [1, 2, 2, None], "day": ["a", "b", "b", "c"], "h": [0, 0, 0, 0]})
    same = pa.table({"id": [1, 2, 9], "day": ["a", "b", "z"], "h": [0, 0, 5]})
    check = api.validate_partition_column_immutability
    assert check(same, target, ["id"], ["day", "h"]) is None
    moved = pa.table({"id": [1, 2], "day": ["a", "c"], "h": [0, 0]})
    with pytest.raises(ValueError, match=r"\['day'\] cannot change for existing keys.*e\.g\. 2"):
        check(moved, target, ["id"], ["day"])
    assert check(moved, target, ["id"], ["h"]) is None
    assert check(moved, target, ["id", "day"], ["day"]) is None
    with pytest.raises(ValueError, match="NULL"):
        check(target, target, ["id"], ["day"])
    assert check(same.slice(0, 0), target, ["id"], ["day"]) is None
    assert check(same, target.slice(0, 0), ["id"], ["day"]) is None


def test_immutability_compares_by_value_and_null_is_a_value() -> None:
    target = pa.table({"id": pa.array([1, 2], pa.int8()), "day": pa.array([None, 5], pa.int8())})
    check = api.validate_partition_column_immutability
    wide = pa.table({"id": [1, 2, 1000], "day": [None, 5, 10**6]})
    assert check(wide, target, ["id"], ["day"]) is None
    for day in ([5, 5], [None, None], [None, 10**6]):
        with pytest.raises(ValueError, match="cannot change"):
            check(pa.table({"id": [1, 2], "day": pa.array(day, pa.int64())}), target, ["id"], ["day"])
    with pytest.raises(ValueError, match=r"'id'.*string.*int8"):
        check(pa.table({"id": ["1"], "day": [5]}), target, ["id"], ["day"])


# plan_incremental_rewrite


def test_plan_incremental_rewrite(tmp_path: Path) -> None:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["a"] * 10}) for i in range(4)}
    lake = write_lake(tmp_path / "lake", files)
    write_lake(lake, {"blind.parquet": pa.table({"id": [1000], "x": ["a"]})}, write_statistics=False)
    for name in all_names(lake):
        spoil_pages(f"{lake}/{name}")  # metadata alone
    plan = api.plan_incremental_rewrite(lake, [5, 35], ["id"])
    assert plan.affected_files == [f"{lake}/{name}.parquet" for name in ("blind", "f0", "f3")]
    assert plan.unaffected_files == [f"{lake}/f1.parquet", f"{lake}/f2.parquet"]
    assert (plan.new_files, plan.affected_rows) == ([], 21)
    assert "known when the keys of the affected files are read" in plan.new_files_reason
    assert "no keys" in api.plan_incremental_rewrite(lake, [], ["id"]).new_files_reason
    assert api.plan_incremental_rewrite(str(tmp_path / "none"), [1], ["id"]).affected_files == []


def test_plan_incremental_rewrite_of_partitions(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"m={m}/f.parquet": pa.table({"id": [1, 5]}) for m in ("01", "02", "x")})
    keys = [(3, 1)]
    plan = api.plan_incremental_rewrite(lake, keys, ["id", "m"], partition_schema=pa.schema({"m": pa.int64()}))
    assert plan.affected_files == [f"{lake}/m=01/f.parquet", f"{lake}/m=x/f.parquet"]
    assert api.plan_incremental_rewrite(lake, [(9, 1)], ["id", "m"]).affected_files == []


def test_plan_incremental_rewrite_of_partitions_beside_the_key(tmp_path: Path) -> None:
    """Spec: the source has rows of one partition only, and so only its files are candidates."""
    lake = write_lake(tmp_path / "lake", {f"day=2025-01-0{d}/f.parquet": pa.table({"id": [1, 5]}) for d in (1, 2, 3)})
    write_lake(lake, {"day=2025-01-02/far.parquet": pa.table({"id": [100]}), "loose.parquet": pa.table({"id": [1]})})
    source = pa.table({"id": [3], "day": [dt.date(2025, 1, 2)], "x": ["new"]})
    wanted = [f"{lake}/day=2025-01-02/f.parquet"]
    assert api.plan_incremental_rewrite(lake, source, ["id"]).affected_files == wanted
    assert api.plan_incremental_rewrite(lake, source.select(["id", "day"]).to_pylist(), "id").affected_files == wanted
    typed = pa.schema({"day": pa.dictionary(pa.int32(), pa.string())})
    named = [{"id": 3, "day": "2025-01-02"}]
    assert api.plan_incremental_rewrite(lake, named, "id", partition_schema=typed).affected_files == wanted
    without = api.plan_incremental_rewrite(lake, [3], "id").affected_files
    assert without == [f"{lake}/day=2025-01-0{d}/f.parquet" for d in (1, 2, 3)]
    candidates = api.PartitionPruner().identify_candidate_files(analyze(lake), ["id"], source)
    assert candidates == [
        f"{lake}/day=2025-01-02/f.parquet",
        f"{lake}/day=2025-01-02/far.parquet",
        f"{lake}/loose.parquet",
    ]


@pytest.mark.parametrize("source_keys", [[3, 25], [7], [1_000], [0.5], [None], []], ids=str)
def test_the_plan_is_that_of_a_merge(tmp_path: Path, source_keys: list[Any]) -> None:
    """Row group by row group: a key in the gap between two of them is in no file."""
    files = {f"f{i}.parquet": pa.table({"id": [*range(i * 10, i * 10 + 5), *range(500, 505)]}) for i in range(4)}
    lake = write_lake(tmp_path / "lake", files, row_group_size=5)
    write_lake(lake, {"empty.parquet": pa.table({"id": pa.array([], pa.int64())})})
    plan = api.plan_incremental_rewrite(lake, source_keys, ["id"])
    if None in source_keys or 0.5 in source_keys:
        assert plan.affected_files == ([f"{lake}/f0.parquet"] if 0.5 in source_keys else [])
        return
    merge = PyArrowDatasetIO().plan(pa.table({"id": pa.array(source_keys, pa.int64())}), lake, "upsert", ["id"])
    assert plan.affected_files == [f.path for f in merge.files if f.action != "prune"]
    assert plan.unaffected_files == [f.path for f in merge.files if f.action == "prune"]


def test_plan_incremental_rewrite_of_keys_of_another_type(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [NOON], "d": [Decimal("0.10")]})})
    for column, key in (("id", DAY), ("id", "2024"), ("id", 5), ("d", 0.1), ("d", "0.1")):
        assert api.plan_incremental_rewrite(lake, [key], [column]).affected_files == [f"{lake}/f.parquet"]
    assert api.plan_incremental_rewrite(lake, [dt.datetime(1999, 1, 1)], ["id"]).affected_files == []


def test_plan_incremental_rewrite_with_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"f{i}.parquet": pa.table({"id": [i]}) for i in range(3)})
    Path(lake, "f1.parquet").write_text("no Parquet")
    plan = api.plan_incremental_rewrite(lake, [2], ["id"])
    assert plan.affected_files == [f"{lake}/f1.parquet", f"{lake}/f2.parquet"]
    assert (plan.unaffected_files, plan.affected_rows) == ([f"{lake}/f0.parquet"], 1)


@pytest.mark.parametrize(
    ("columns", "source_keys", "message"),
    [
        (["a", "b"], [(1,)], r"\(1,\), which is not a key of \['a', 'b'\]"),
        (["a", "b"], [(1, 2, 3)], r"\(1, 2, 3\), which is not a key"),
        (["a", "b"], [{"a": 1}], r"which is not a key"),
        (["a", "b"], [5], r"5, which is not a key"),
        (["a"], [1, "x"], "not values of one type"),
        (["a"], pa.table({"b": [1]}), r"'a' not found; the table has \['b'\]"),
    ],
    ids=str,
)
def test_keys_that_make_no_sense(columns: list[str], source_keys: Any, message: str) -> None:
    for ask in (
        lambda: api.PartitionPruner().identify_candidate_files(FILES, columns, source_keys),
        lambda: api.ConservativeMembershipChecker().file_might_contain_keys(FILES[0], columns, source_keys),
        lambda: api.confirm_affected_files([], columns, source_keys),
    ):
        with pytest.raises(ArgumentError, match=message):
            ask()


# merge


def test_it_is_the_module_that_the_spec_names() -> None:
    assert Path(api.__file__).name == "incremental.py"
    assert len(Path(api.__file__).read_text().splitlines()) < 400


def test_merge(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})
    result = api.merge(pa.table({"id": [2, 3], "x": ["B", "C"]}), lake, "upsert", ["id"], None, None, "zstd", 10, 5)
    assert isinstance(result, api.MergeResult)
    assert (result.strategy, result.inserted, result.updated, result.deleted) == ("upsert", 1, 1, 0)
    assert {row["x"] for row in rows(lake)} == {"a", "B", "C"}
    assert pq.read_metadata(result.inserted_files[0]).row_group(0).column(0).compression == "ZSTD"
