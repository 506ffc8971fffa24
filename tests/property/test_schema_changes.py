"""Schema changes of random lakes against the plain way: read all files with PyArrow, unify, add nulls, replace rows."""

from __future__ import annotations

import random
import shutil
import tempfile
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.test_common_types import READERS, who_reads
from damage import nothing_changes
from fsspeckit.core.errors import SchemaMismatchError
from readers.attempt import attempt
from support import data_files, rows

DATA = Path(__file__).parent.parent / "data"
EVOLVE: dict[str, Any] = {"on_schema_change": "evolve"}
CODECS = ("none", "snappy", "gzip", "zstd", "brotli", "lz4")
NARROW: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    # A type, the wider one, a value that fits both, and one that fits only the second
    (pa.int8(), pa.int16(), 7, 300),
    (pa.int32(), pa.int64(), 7, 2**40),
    (pa.uint16(), pa.int64(), 7, -1),
    (pa.float32(), pa.float64(), 0.5, 0.1),
    (pa.decimal128(4, 2), pa.decimal128(12, 2), Decimal("1.50"), Decimal("1234567.25")),
]
NEW: list[tuple[pa.DataType, Any]] = [
    (pa.string(), "new"),
    (pa.bool_(), True),
    (pa.date32(), 19000),
    (pa.timestamp("us", "UTC"), 10**15),
    (pa.binary(3), b"abc"),
    (pa.list_(pa.int32()), [1, None]),
    (pa.struct({"a": pa.string(), "b": pa.list_(pa.struct({"c": pa.int64()}))}), {"a": None, "b": [{"c": 1}, None]}),
    (pa.map_(pa.string(), pa.float64()), [("k", 0.5)]),
    (pa.decimal128(20, 4), Decimal("1.5000")),
]


class Case:
    """A lake of random files, and a source with other columns."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        count = choose([1, 2, 3])
        self.narrow = {f"x{i}": choose(NARROW) for i in range(count)}
        self.nested = {f"s{i}": choose(NARROW) for i in range(choose([0, 0, 1]))}
        self.in_list = choose([False, True])
        self.lacking = choose([False, False, True])
        self.new = {f"new{i}": choose(NEW) for i in range(choose([0, 1, 2]))}
        self.files = choose([1, 2, 3])

    def nested_type(self, dtype: pa.DataType, *more: pa.Field) -> pa.DataType:
        struct = pa.struct([pa.field("a", dtype), pa.field("z", pa.string()), *more])
        return pa.list_(struct) if self.in_list else struct

    def nested_value(self, value: Any, **more: Any) -> Any:
        struct = {"a": value, "z": "z", **more}
        return [struct, None] if self.in_list else struct

    def table(self, ids: list[int]) -> pa.Table:
        columns = {"id": pa.array(ids, pa.int64())}
        for name, (dtype, _, value, _) in self.narrow.items():
            columns[name] = pa.array([self.random.choice([value, None]) for _ in ids], dtype)
        for name, (dtype, _, value, _) in self.nested.items():
            values = [self.random.choice([self.nested_value(value), None, self.nested_value(None)]) for _ in ids]
            columns[name] = pa.array(values, self.nested_type(dtype))
        columns["t"] = pa.array([self.random.choice(["a", "b", None]) for _ in ids], pa.string())
        return pa.table(columns)

    def write(self, lake: Path) -> None:
        choose, at = self.random.choice, 0
        lake.mkdir()
        for number in range(self.files):
            size = choose([0, 1, 5, 40])
            table, at = self.table(list(range(at, at + size))), at + size
            pq.write_table(
                table,
                lake / f"f{number}.parquet",
                row_group_size=choose([1, 7, 1000]),
                compression=choose(CODECS),
                write_page_index=choose([False, True]),
                data_page_version=choose(["1.0", "2.0"]),
                use_dictionary=choose([False, True]),
                write_statistics=choose([False, True]),
                store_schema=choose([False, True, True]),
            )
        self.count = at

    def source(self) -> tuple[pa.Table, dict[str, pa.DataType]]:
        """The source, and the types that columns are to have."""
        choose = self.random.choice
        ids = sorted({choose(range(self.count + 3)) for _ in range(choose([1, 4]))} | {self.count + 1})
        columns: dict[str, Any] = {"id": pa.array(ids)}
        types: dict[str, pa.DataType] = {"id": pa.int64()}
        for name, (dtype, wide, value, large) in self.narrow.items():
            grows = choose([False, True])
            columns[name] = pa.array([choose([value, None, large if grows else value]) for _ in ids], wide)
            types[name] = wide if large in columns[name].to_pylist() else dtype
        for name, (dtype, wide, value, large) in self.nested.items():
            field = pa.field("n", pa.string())
            values = [self.nested_value(choose([value, large]), n="n") for _ in ids]
            columns[name] = pa.array(values, self.nested_type(wide, field))
            grew = any(self.nested_value(large, n="n") == one for one in values)
            types[name] = self.nested_type(wide if grew else dtype, field)
        if not self.lacking:
            columns["t"] = pa.array(["source"] * len(ids))
        types["t"] = pa.string()
        for name, (dtype, value) in self.new.items():
            columns[name] = pa.array([choose([value, None]) for _ in ids], dtype)
            types[name] = dtype
        return pa.table(columns), types


def plain_way(lake: Path, source: pa.Table, types: dict[str, pa.DataType]) -> dict[int, dict[str, Any]]:
    """The rows after the merge, by key: all files as tables of the wanted types, and the source's rows over them."""
    schema = pa.schema(list(types.items()))
    old: dict[int, dict[str, Any]] = {}
    for path in sorted(lake.glob("*.parquet")):
        table = pq.ParquetFile(path).read()
        columns = [
            _cast(table[f.name], f.type) if f.name in table.column_names else pa.nulls(table.num_rows, f.type)
            for f in schema
        ]
        old |= {row["id"]: row for row in pa.table(columns, schema=schema).to_pylist()}
    for row in source.to_pylist():
        missing = dict.fromkeys(types)
        old[row["id"]] = {**old.get(row["id"], missing), **row}
    return old


def _cast(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """By way of Python values where structs get fields."""
    return (
        column.cast(dtype) if not pa.types.is_nested(dtype) else pa.chunked_array([pa.array(column.to_pylist(), dtype)])
    )


def check_case(io: Any, seed: int, folder: Path) -> None:
    case, lake = Case(seed), folder / "lake"
    case.write(lake)
    source, types = case.source()
    if case.lacking and len(case.new) == 1 and _looks_renamed(types):
        with nothing_changes(str(lake)), pytest.raises(SchemaMismatchError, match="not renamed"):
            io.merge(source, str(lake), "upsert", ["id"], **EVOLVE)
        return
    expected = plain_way(lake, source, types)
    result = io.merge(source, str(lake), "upsert", ["id"], **EVOLVE)
    found = {row["id"]: row for row in rows(lake)}
    assert found == expected, seed
    for name in data_files(lake):
        own = pq.ParquetFile(lake / name).schema_arrow
        assert {f.name: f.type for f in own} == types, (seed, name)
    assert {n: t for n, t in result.added_columns.items() if "." not in n} == {n: str(types[n]) for n in case.new}
    assert set(who_reads(str(lake)).values()) == {len(expected)} and len(who_reads(str(lake))) == 6, seed
    for name in data_files(lake):
        _check_indexes(lake / name)


def _looks_renamed(types: dict[str, pa.DataType]) -> bool:
    (new,) = (dtype for name, dtype in types.items() if name.startswith("new"))
    return bool(pa.types.is_string(new))


def _check_indexes(path: Path) -> None:
    """Row groups add up, and each chunk has as many values as rows where it is flat."""
    metadata = pq.read_metadata(path)
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        assert group.total_byte_size == sum(group.column(c).total_uncompressed_size for c in range(group.num_columns))
        for c in range(group.num_columns):
            assert metadata.schema.column(c).max_repetition_level or group.column(c).num_values == group.num_rows


def test_schema_changes_equal_the_plain_way(io: Any, engine: str, request: pytest.FixtureRequest) -> None:
    examples = request.config.getoption("--examples") or {"pyarrow": 150, "spark": 8}.get(engine, 40)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_case(io, seed, Path(folder))

    check()


def readers(lake: str) -> dict[str, int]:
    """The rows that each reader gives. Polars panics at DuckDB's intervals."""
    found = {name: attempt(partial(read, lake)) for name, read in READERS.items()}
    return {name: len(table) for name, table in found.items() if not isinstance(table, str)}


@pytest.mark.parametrize("writer", ["duckdb", "polars", "pyarrow", "fastparquet"])
def test_files_of_other_writers(io: Any, tmp_path: Path, writer: str) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(DATA / writer, lake)
    before, old = readers(str(lake)), {row["id"]: row for row in rows(lake)}
    template = pq.ParquetFile(lake / "part-0.parquet").read().slice(0, 1)
    source = template.append_column("new", pa.array(["x"])).append_column("s", pa.array([{"a": [1]}]))
    source = source.set_column(0, "id", pa.array([10**6], source.schema.field("id").type))
    assert source.column_names[0] == "id"
    result = io.merge(source, str(lake), "insert", ["id"], **EVOLVE)
    assert set(result.added_columns) == {"new", "s"} and result.reencoded_files == 0
    found = {row["id"]: row for row in rows(lake)}
    assert {key: {**row, "new": None, "s": None} for key, row in old.items()}.keys() < found.keys()
    for key, row in old.items():
        assert repr(found[key]) == repr({**row, "new": None, "s": None})
    assert readers(str(lake)) == {name: count + 1 for name, count in before.items()}
