"""Types that DuckDB has and Arrow or Parquet has not: merged right, or refused by name."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.duckdb.version import library_version
from support import rows, write_lake

SETTINGS = {
    "arrow_output_version": ["'1.4'", "'1.5'"],
    "arrow_large_buffer_size": ["true"],
    "arrow_lossless_conversion": ["true"],
    "produce_arrow_string_view": ["true"],
}
MERGED = {
    "HUGEINT": (f"(-{'9' * 38})::HUGEINT", Decimal(-(10**38) + 1)),
    "UHUGEINT": ("7::UHUGEINT", Decimal(7)),
    "a sum of BIGINT": ("sum(id)", Decimal(1)),
    "UUID": ("'6f0e7b0a-0000-0000-0000-00000000000a'::UUID", "6f0e7b0a-0000-0000-0000-00000000000a"),
    "ENUM": ("'b'::ENUM ('a', 'b')", "b"),
    "MAP": ("MAP {'k': [1, NULL]}", [("k", [1, None])]),
    "STRUCT": ("{'a': 1, 'A b': {'c': true}}", {"a": 1, "A b": {"c": True}}),
    "ARRAY": ("[true, NULL]::BOOLEAN[2]", [True, None]),
    "DECIMAL": ("99999999999999999999999999999999999.999::DECIMAL(38, 3)", Decimal("9" * 35 + ".999")),
    "BLOB": ("'\\x00\\xFF'::BLOB", b"\x00\xff"),
    "BOOLEAN": ("true", True),
    "text with a zero": ("chr(0) || 'a'", "\0a"),
    "lists": ("[[{'a': [false, NULL], 'b': ['x']}], []]", [[{"a": [False, None], "b": ["x"]}], []]),
}
REFUSED = {
    "TIME WITH TIME ZONE": "'10:00:00+01'::TIMETZ",
    "BIT": "'101'::BIT",
    "INTERVAL": "INTERVAL 1 DAY",
    "UNION": "union_value(a := 1)",
    "HUGEINT": "[1::HUGEINT]",
    "UHUGEINT": "{'a': 1::UHUGEINT}",
    "TIME": "MAP {'k': ['10:00:00+01'::TIMETZ]}",
}
BROKEN_BOOLEANS = (1, 2, 0) <= library_version() < (1, 5, 4)
TOO_LARGE = [f"1{'0' * 38}::HUGEINT", "'340282366920938463463374607431768211455'::UHUGEINT"]


def settings() -> list[str]:
    """None, each, and all at once; those that this DuckDB knows."""
    known = {name for (name,) in duckdb.connect().execute("SELECT name FROM duckdb_settings()").fetchall()}
    each = [f"SET {name} = {value}" for name, values in SETTINGS.items() if name in known for value in values]
    return ["", *each, "; ".join(each)]


def merge(con: Any, lake: str | Path, sql: str) -> Any:
    return DuckDBDatasetIO(con).merge(path=str(lake), strategy="upsert", key_columns=["id"], source_sql=sql)


def skip_what_duckdb_breaks(setting: str, text: str) -> None:
    """Not ours to mend: booleans within others (refused, see below), and text views that Arrow does not take."""
    nested = any(sign in text.lower() for sign in ("[true", "[false", ": true"))
    if "lossless" in setting and nested and BROKEN_BOOLEANS:
        pytest.skip("this DuckDB returns wrong booleans")
    damaged = "ENUM" in text or ("UUID" in text and library_version() < (1, 3, 0))
    if "string_view" in setting and (1, 2, 0) <= library_version() < (1, 5, 0) and damaged:
        pytest.skip("this DuckDB returns damaged text views")


def value_of(lake: str | Path) -> Any:
    (row,) = rows(lake)
    return row["x"]


@pytest.mark.parametrize("setting", settings())
@pytest.mark.parametrize("kind", MERGED)
def test_merged(kind: str, setting: str, tmp_path: Path) -> None:
    """Into a new data set, and over the row in it; from SQL and from a relation."""
    expression, expected = MERGED[kind]
    skip_what_duckdb_breaks(setting, expression)
    con = duckdb.connect()
    con.execute(setting)
    sql = f"SELECT id, {expression} AS x FROM (SELECT 1::BIGINT AS id) GROUP BY id"
    assert merge(con, tmp_path / "lake", sql).inserted == 1
    assert str(value_of(tmp_path / "lake")) == str(expected)
    null = DuckDBDatasetIO(con).merge(
        con.sql(f"SELECT id, nullif(x, x) AS x FROM ({sql})"), str(tmp_path / "lake"), "upsert", ["id"]
    )
    assert (null.updated, value_of(tmp_path / "lake")) == (1, None)
    assert merge(con, tmp_path / "lake", sql).updated == 1
    assert str(value_of(tmp_path / "lake")) == str(expected)


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind: str, tmp_path: Path) -> None:
    sql = f"SELECT 1 AS id, {REFUSED[kind]} AS x"
    with pytest.raises(SchemaMismatchError, match=rf"Column 'x' .*{kind}.* cannot be stored .*Cast it"):
        merge(duckdb.connect(), tmp_path / "lake", sql)
    assert not (tmp_path / "lake").exists()


@pytest.mark.skipif(library_version() >= (2, 0, 0), reason="DuckDB 2 names the fields")
def test_a_struct_without_names(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match=r"STRUCT\(INTEGER, INTEGER\) cannot be stored"):
        merge(duckdb.connect(), tmp_path / "lake", "SELECT 1 AS id, row(1, 2) AS x")


@pytest.mark.parametrize("expression", TOO_LARGE)
def test_a_number_that_is_too_large(expression: str, tmp_path: Path) -> None:
    """38 digits are what Arrow's and Parquet's decimals have."""
    with pytest.raises(DatasetMergeError, match=r"MERGE operation failed: Conversion Error"):
        merge(duckdb.connect(), tmp_path / "lake", f"SELECT 1 AS id, {expression} AS x")
    assert not (tmp_path / "lake").exists()


@pytest.mark.skipif(not BROKEN_BOOLEANS, reason="this DuckDB returns right booleans")
def test_wrong_booleans_are_refused(tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute("SET arrow_lossless_conversion = true")
    source = pa.table({"id": [1], "x": [[True, False]]})
    for arguments in ({"source_sql": "SELECT 1 AS id, [true, false] AS x"}, {"data": source}):
        with pytest.raises(DatasetMergeError, match=r"wrong booleans .* SET arrow_lossless_conversion = false"):
            DuckDBDatasetIO(con).merge(
                path=str(tmp_path / "lake"),
                strategy="upsert",
                key_columns=["id"],
                **arguments,
            )
    assert not (tmp_path / "lake").exists()


def test_a_sum_goes_into_a_column_of_integers(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": [0]})})
    assert merge(duckdb.connect(), lake, "SELECT 1 AS id, sum(range) AS x FROM range(10)").updated == 1
    assert rows(lake) == [{"id": 1, "x": 45}]


KEYS = {
    "int": [1, 2, 3],
    "text": ["a", "", "ü"],
    "bytes": [b"\x00", b"", b"\xff"],
    "bool": [True, False],
    "float": [1.5, -0.0, float("inf")],
    "decimal": [Decimal("1.50"), Decimal("-2.25")],
}


@pytest.mark.parametrize("use_merge", [None, False])
@pytest.mark.parametrize("setting", settings())
@pytest.mark.parametrize("kind", KEYS)
def test_plain_sources_with_settings_of_arrow(kind: str, setting: str, use_merge: bool | None, tmp_path: Path) -> None:
    """Keys, partitions and rows go through our own tables and come back whatever the settings say."""
    con = duckdb.connect()
    con.execute(setting)
    values: Any = KEYS[kind]
    size = len(values)
    old = {"id": values[:-1], "x": [b"old"] * (size - 1), "l": [["old", None]] * (size - 1), "p": ["a"] * (size - 1)}
    new = {"id": values, "x": [b"new"] * size, "l": [["new"]] * size, "p": ["a"] * size}
    io, lake = DuckDBDatasetIO(con, use_merge=use_merge), str(tmp_path / "lake")
    io.merge(pa.table(old), lake, "insert", ["id"], partition_columns=["p"])
    result = io.merge(pa.table(new), lake, "upsert", ["id"])
    assert (result.updated, result.inserted) == (size - 1, 1)
    assert {row["id"]: (row["x"], row["l"]) for row in rows(lake)} == dict.fromkeys(values, (b"new", ["new"]))
    twice = pa.concat_tables([pa.table(new)] * 2)
    done = io.write_parquet_dataset(twice, lake, "deduplicate", ["id"], dedup_order_by=["x"])
    assert (done.updated, done.inserted) == (size, 0)
