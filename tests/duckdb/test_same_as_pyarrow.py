"""The same merge by PyArrow and by DuckDB leaves the same bytes, counts and plan."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.api import dataset_io
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import data_files, multiset, rows, write_lake

DATA = Path(__file__).parent.parent / "data"
LAKES = ["pyarrow", "duckdb", "polars", "fastparquet", "spark", "spark_legacy"]


def source_for(lake: str) -> pa.Table:
    """Ten rows of the lake with other values (those of other rows), and five under new ids."""
    table = dataset_io("pyarrow").read(lake)
    ids = table.column("id").to_pylist()
    place = {key: row for row, key in enumerate(ids)}
    partitioned = "part" in table.column_names
    old = list(range(3, 60, 5))
    donors = [i + 4 if partitioned and i + 4 < 60 else (i if partitioned else (i + 7) % 60) for i in old]
    rows = table.take(pa.array([place[d] for d in donors] + [place[i] for i in range(5)]))
    new_ids = pa.array([*old, *range(100, 105)], table.schema.field("id").type)
    return rows.set_column(rows.column_names.index("id"), table.schema.field("id"), new_ids)


def merged(engine: str, name: str, strategy: Any, folder: Path, **options: Any) -> tuple[Any, Any, dict[str, bytes]]:
    lake = str(shutil.copytree(DATA / name, folder))
    io = dataset_io(engine, **options)
    source = source_for(lake)
    plan = io.plan(source, lake, strategy, ["id"])
    result = io.merge(source, lake, strategy, ["id"])
    files = {}
    for path in data_files(lake):
        new = f"{lake}/{path}" in result.inserted_files
        files[path.rpartition("/")[0] + "/new" if new else path] = (folder / path).read_bytes()
    return plan, result, files


@pytest.mark.parametrize("use_merge", [None, False])
@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
@pytest.mark.parametrize("name", LAKES)
def test_same_bytes(name: str, strategy: str, use_merge: bool | None, tmp_path: Path) -> None:
    one = merged("pyarrow", name, strategy, tmp_path / "one" / "lake")
    two = merged("duckdb", name, strategy, tmp_path / "two" / "lake", use_merge=use_merge)
    assert two[2].keys() == one[2].keys()
    assert [path for path in one[2] if one[2][path] != two[2][path]] == []
    for field in ("inserted", "updated", "deleted", "source_count", "target_count_after"):
        assert getattr(two[1], field) == getattr(one[1], field)
    assert [(f.action, f.matched_rows) for f in two[0].files] == [(f.action, f.matched_rows) for f in one[0].files]


@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate", "upsert"])
@pytest.mark.parametrize("name", LAKES)
def test_same_rows_when_all_is_rewritten(name: str, strategy: Any, tmp_path: Path) -> None:
    tables = []
    for engine in ("pyarrow", "duckdb"):
        lake = str(shutil.copytree(DATA / name, tmp_path / engine / "lake"))
        source = source_for(lake)
        source = pa.concat_tables([source, source.slice(2, 4)]) if strategy == "deduplicate" else source
        io = dataset_io(engine)
        result = io.write_parquet_dataset(source, lake, strategy, ["id"])
        written = [pq.ParquetFile(path).read() for path in sorted(result.rewritten_files) + result.inserted_files]
        tables.append((result.inserted, result.updated, result.deleted, _sorted(written)))
    assert tables[0] == tables[1]


def _sorted(tables: list[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


def test_schema_of_new_files(tmp_path: Path) -> None:
    """Nothing of DuckDB's types shows through: nullability, dictionaries, large types, zones and metadata stay."""
    schema = pa.schema(
        [
            pa.field("id", pa.uint32(), nullable=False, metadata={"about": "the key"}),
            pa.field("word", pa.dictionary(pa.int8(), pa.large_string())),
            pa.field("when", pa.timestamp("ns", "Asia/Kolkata")),
            pa.field("span", pa.duration("ms")),
            pa.field("day", pa.date64()),
            pa.field("time", pa.time64("ns")),
            pa.field("amount", pa.decimal256(60, 3)),
            pa.field("half", pa.float16()),
            pa.field("code", pa.binary(3)),
            pa.field("pair", pa.list_(pa.float32(), 2)),
            pa.field("Case", pa.struct([pa.field("A", pa.int8()), pa.field("a", pa.string(), nullable=False)])),
            pa.field("tags", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ],
        metadata={"owner": "tests"},
    )
    source = pa.table([pa.nulls(0, f.type) for f in schema], schema=schema)
    for engine in ("pyarrow", "duckdb"):
        dataset_io(engine).merge(source, str(tmp_path / engine), "upsert", ["id"])
        dataset_io(engine).write_dataset(source, str(tmp_path / engine))
    one, two = (pq.read_schema(tmp_path / e / data_files(tmp_path / e)[0]) for e in ("pyarrow", "duckdb"))
    assert two.equals(one, check_metadata=True)


@pytest.mark.parametrize("use_merge", [None, False])
@pytest.mark.parametrize("strategy", ["upsert", "deduplicate"])
def test_a_database_that_sorts_backwards(tmp_path: Path, strategy: Any, use_merge: bool | None) -> None:
    """`default_order` holds for every cursor of a database, ours too."""
    connection = duckdb.connect()
    connection.execute("SET default_order = 'desc'")
    files = {f"p={i // 3}/{i}.parquet": pa.table({"id": range(10 * i, 10 * i + 6), "x": ["o"] * 6}) for i in range(6)}
    ids = [*range(1, 60, 4), *range(2, 30, 6), 99, 98]
    source = pa.table({"id": ids, "x": [f"n{i}" for i in ids], "p": [i // 30 if i < 60 else 1 for i in ids]})
    found = []
    for io in (DuckDBDatasetIO(connection, use_merge=use_merge), PyArrowDatasetIO()):
        lake = write_lake(tmp_path / type(io).__name__, files, row_group_size=2)
        result = io.write_parquet_dataset(source, lake, strategy, ["id"])
        found.append((result.inserted, result.updated, multiset(rows(lake))))
    assert found[0] == found[1]
