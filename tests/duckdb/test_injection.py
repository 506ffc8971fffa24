"""Hostile text in paths, column names, values, partitions and the strategy: refused, or just text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit.datasets.duckdb import DuckDBDatasetIO, PathValidator
from recording import Recording
from support import rows, write_lake

HOSTILE = [
    "'",
    '"',
    "';",
    '";',
    "--",
    "/*",
    "*/",
    "' --",
    '" --',
    "'; DROP TABLE victim; --",
    '"; DROP TABLE victim; --',
    "x'; DELETE FROM victim; --",
    'x"; DELETE FROM victim; --',
    "') ; DROP TABLE victim; --",
    '") ; DROP TABLE victim; --',
    "')); DROP TABLE victim; --",
    "' OR '1'='1",
    '" OR "1"="1',
    "' OR 1=1 --",
    "1; DROP TABLE victim",
    "1 OR 1=1",
    "id = id OR true",
    "' UNION SELECT * FROM victim --",
    '" UNION ALL SELECT * FROM victim --',
    "' AND (SELECT count(*) FROM victim) > 0 --",
    "'||(SELECT error('pwned'))||'",
    "\"||error('pwned')||\"",
    "{view}",
    "{0}",
    "{__class__}",
    "%s %d %(x)s",
    "$1",
    "$name",
    "?",
    "??",
    ":name",
    "@var",
    "*",
    "**",
    "[ab]*",
    "f?.parquet",
    "{a,b}",
    "\\",
    "\\'",
    '\\"',
    "\\'; DROP TABLE victim; --",
    "a\nb",
    "a\r\n; DROP TABLE victim; --",
    "\t",
    " leading",
    "trailing ",
    "select",
    "row",
    "k0",
    "source_row",
    "place",
    "victim",
    "read_csv('secret')",
    "getenv('HOME')",
    "; ATTACH 'evil.db'; --",
    "; COPY victim TO 'stolen.csv'; --",
    "; INSTALL httpfs; LOAD httpfs; --",
    "; PRAGMA enable_profiling; --",
    "; SET memory_limit='1KB'; --",
    "$$; DROP TABLE victim; $$",
    "＇; DROP TABLE victim; --",
    "\u2019; DROP TABLE victim; --",
    "\u202e; DROP TABLE victim",
    "ü.ß",
    "日本語",
    "🦆",
    "../../etc",
    "%27%3B",
    "a.b.c",
]


@pytest.fixture
def record() -> Recording:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE victim AS SELECT range AS a FROM range(3)")
    return Recording(connection)


def unharmed(record: Recording, *texts: str) -> None:
    """The table is still there with its rows, and no statement has any of the hostile text in it."""
    assert record.connection.execute("SELECT count(*) FROM victim").fetchone() == (3,)
    names = {"row", "k0", "source_row", "place", "select"}
    for text in texts:
        if len(text) > 2 and text not in names:
            assert not record.having(text)


def test_enough_of_them() -> None:
    assert len(set(HOSTILE)) >= 50


@pytest.mark.parametrize("use_merge", [None, False])
@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_values(text: str, use_merge: bool | None, record: Recording, tmp_path: Path) -> None:
    """The key column, another column and a key value are hostile at once."""
    key, other = text, f"{text}2"
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({key: ["a", text], other: ["old", "old"]})})
    source = pa.table({other: ["new", text], key: [text, f"{text}3"]})
    result = DuckDBDatasetIO(record, use_merge=use_merge).merge(source, lake, "upsert", [key])
    assert (result.updated, result.inserted) == (1, 1)
    assert {row[key]: row[other] for row in rows(lake)} == {"a": "old", text: "new", f"{text}3": text}
    unharmed(record, text)


@pytest.mark.parametrize("text", [t for t in HOSTILE if t != "../../etc"])
def test_paths_and_partition_values(text: str, record: Recording, tmp_path: Path) -> None:
    """The data set's folder, a file's name, the partition column and its value are hostile at once."""
    folder = tmp_path / text.replace("/", "_").replace("\0", "")
    part = f"{text}p"
    source = pa.table({"id": [1, 2], part: [text, "other"], "x": ["a", "b"]})
    io = DuckDBDatasetIO(record)
    io.merge(source, str(folder), "upsert", ["id"], partition_columns=[part])
    changed = source.set_column(2, "x", pa.array(["A", "B"]))
    assert io.merge(changed, str(folder), "upsert", ["id"]).updated == 2
    assert {row["id"]: (row[part], row["x"]) for row in rows(folder)} == {1: (text, "A"), 2: ("other", "B")}
    unharmed(record, text)


@pytest.mark.parametrize("text", HOSTILE)
def test_strategies(text: str, record: Recording, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": ["old"]})})
    source = pa.table({"id": [1], "x": ["new"]})
    calls: list[Any] = [DuckDBDatasetIO(record).merge, DuckDBDatasetIO(record).write_parquet_dataset]
    for call in calls:
        with pytest.raises(ValueError, match="Unknown merge strategy"):
            call(source, lake, text, ["id"])
    assert rows(lake) == [{"id": 1, "x": "old"}]
    assert record.statements == []


@pytest.mark.parametrize("text", [t for t in HOSTILE if re.search(r"[^\w.:]", t) or not t.isascii()])
def test_paths_that_would_enter_sql(text: str) -> None:
    with pytest.raises(ValueError, match="Path"):
        PathValidator.validate_path_for_sql(f"/lake/{text}/f.parquet")
    literal = PathValidator.escape_for_sql(text)
    assert duckdb.connect().execute(f"SELECT '{literal}'").fetchone() == (text,)


def test_a_name_is_never_a_pattern(tmp_path: Path) -> None:
    """`f[0].parquet` and `*.parquet` are files like any other."""
    tables = {name: pa.table({"id": [i], "x": ["old"]}) for i, name in enumerate(["f[0].parquet", "*.parquet"])}
    tables |= {name: pa.table({"id": [i + 10], "x": ["old"]}) for i, name in enumerate(["f0.parquet", "a?.parquet"])}
    lake = write_lake(tmp_path / "lake", tables)
    result = DuckDBDatasetIO().merge(pa.table({"id": [0, 1], "x": ["a", "b"]}), lake, "upsert", ["id"])
    assert sorted(result.rewritten_files) == [f"{lake}/*.parquet", f"{lake}/f[0].parquet"]
    assert {row["id"]: row["x"] for row in rows(lake)} == {0: "a", 1: "b", 10: "old", 11: "old"}
