"""What a file says of its values is true after a merge: statistics, page indexes, bloom filters, key-value entries."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, nothing_changes, raw_footer
from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.metadata_entries import KNOWN
from support import data_files, rows, write_lake

NAN = math.nan
ROWS, GROUP = 12, 4
AT_NAN, CHANGED = 6, 5  # rows of the middle row group
LEAVES = {"g": "g", "h": "h", "s": "s.a", "l": "l.list.element", "m": "m.key_value.value"}


def table_of(ids: Any, nan_at: int | None = AT_NAN, change: float = 0.0) -> pa.Table:
    values = [NAN if i == nan_at else float(i) + change for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "g": pa.array(values, pa.float64()),
            "h": pa.array(values, pa.float32()).cast(pa.float16()),
            "s": pa.array([{"a": v, "b": "x"} for v in values], pa.struct({"a": pa.float32(), "b": pa.string()})),
            "l": pa.array([[v, None] for v in values], pa.list_(pa.float64())),
            "m": pa.array([[("k", v)] for v in values], pa.map_(pa.string(), pa.float64())),
        }
    )


def by_pyarrow(path: Path, **options: Any) -> None:
    """With bounds for every float chunk but those with NaN, as DuckDB and parquet-mr write them."""
    pq.write_table(table_of(range(ROWS)), path, row_group_size=GROUP, **options)

    def edit(footer: thrift.Struct) -> None:
        for entry in footer[4][1][1][1][1][1][1]:
            metadata = entry[3][1]
            if b".".join(metadata[3][1][1]).decode() in LEAVES.values() and 12 in metadata:
                entry[3] = thrift.STRUCT, {**metadata, 12: (thrift.STRUCT, {3: metadata[12][1][3]})}
                entry.pop(6, None)
                entry.pop(7, None)

    edit_footer(path, edit)


def by_duckdb(path: Path) -> None:
    with duckdb.connect() as connection:
        table = table_of(range(ROWS))
        table = table.set_column(2, "h", table.column("h").cast(pa.float32()))
        connection.register("source", table)
        connection.execute(f"COPY source TO '{path}' (ROW_GROUP_SIZE 2048)")


def one_that_is_not_spliced(path: Path) -> None:
    by_pyarrow(path, write_page_index=True)
    edit_footer(path, lambda footer: footer.update({32000: (thrift.I32, 1)}))


FILES: dict[str, Callable[[Path], None]] = {
    "pyarrow": by_pyarrow,
    "page index": lambda path: by_pyarrow(path, write_page_index=True),
    "dictionaries": lambda path: by_pyarrow(path, use_dictionary=True, data_page_version="2.0"),
    "no statistics": lambda path: by_pyarrow(path, write_statistics=False),
    "duckdb": by_duckdb,
    "written anew": one_that_is_not_spliced,
}


def answers(lake: str) -> dict[str, Any]:
    """What readers find that skip row groups by their statistics."""
    files = f"{lake}/*.parquet"
    found: dict[str, Any] = {}
    with duckdb.connect() as connection:
        for column in ("g", "h", "s.a"):
            for where in (f"{column} > 100", f"{column} = 'nan'", f"isnan({column})", f"{column} >= 'nan'"):
                query = f"SELECT id FROM '{files}' WHERE {where} ORDER BY id"
                found[f"duckdb: {where}"] = connection.execute(query).fetchall()
            query = f"SELECT max({column}), min({column}) FROM '{files}'"
            found[f"duckdb: {query}"] = repr(connection.execute(query).fetchall())
    for where in (pl.col("g") > 100, pl.col("g").is_nan(), pl.col("g") == NAN, pl.col("s").struct.field("a") > 100):
        found[f"polars: {where}"] = pl.scan_parquet(files).filter(where).collect()["id"].sort().to_list()
    for condition in (pc.is_nan(pc.field("g")), pc.is_nan(pc.field("s", "a"))):
        table = ds.dataset(lake).to_table(filter=condition, columns=["id"])
        found[f"pyarrow: {condition}"] = sorted(table.column("id").to_pylist())
    return found


def float_chunks(path: Path | str) -> dict[str, list[tuple[bool, bool, int | None]]]:
    """Of each float leaf and row group: has it bounds, has it a column index, and how many NaN does it count?"""
    found: dict[str, list[tuple[bool, bool, int | None]]] = {}
    for group in raw_footer(path)[4][1][1]:
        for entry in group[1][1][1]:
            metadata = entry[3][1]
            leaf = b".".join(metadata[3][1][1]).decode()
            statistics = metadata[12][1] if 12 in metadata else {}
            if leaf in LEAVES.values():
                bounds = not statistics.keys().isdisjoint({1, 2, 5, 6})
                found.setdefault(leaf, []).append((bounds, 6 in entry, statistics.get(9, (0, None))[1]))
    return found


@pytest.mark.parametrize("write", FILES.values(), ids=FILES)
def test_nan_is_found_after_another_row_changed(io: Any, tmp_path: Path, write: Callable[[Path], None]) -> None:
    """DuckDB and Spark skip row groups by bounds that leave NaN out."""
    lake = tmp_path / "lake"
    lake.mkdir()
    write(lake / "f.parquet")
    before, old = answers(str(lake)), float_chunks(lake / "f.parquet")
    data = table_of([CHANGED], change=0.5)
    result = io.merge(data, str(lake), "upsert", ["id"])
    assert (result.inserted, result.updated) == (0, 1)
    assert before == answers(str(lake)) and before["duckdb: g > 100"] == [(AT_NAN,)]
    assert float_chunks(lake / data_files(lake)[0]) == old


@pytest.mark.parametrize("name", ["pyarrow", "page index", "written anew"])
def test_a_chunk_gets_its_first_nan(io: Any, tmp_path: Path, name: str) -> None:
    """Then no chunk of the column has bounds: DataFusion takes those of some row groups for those of the file."""
    lake = write_lake(tmp_path / "lake", {})
    Path(lake).mkdir()
    FILES[name](Path(lake, "f.parquet"))
    assert io.merge(table_of([1], nan_at=1), lake, "upsert", ["id"]).updated == 1
    for chunks in float_chunks(Path(lake, data_files(lake)[0])).values():
        assert chunks == [(False, False, None)] * 3
    assert answers(lake)["duckdb: g > 100"] == [(1,), (AT_NAN,)]


def test_duckdbs_count_of_nan_stays_true(io: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    by_duckdb(lake / "f.parquet")
    assert set(map(tuple, float_chunks(lake / "f.parquet").values())) == {((False, False, 1),)}
    io.merge(table_of([0, 3], nan_at=3), str(lake), "upsert", ["id"])
    assert set(map(tuple, float_chunks(lake / data_files(lake)[0]).values())) == {((False, False, 2),)}
    io.merge(table_of([3, AT_NAN], nan_at=None), str(lake), "upsert", ["id"])
    assert set(map(tuple, float_chunks(lake / data_files(lake)[0]).values())) == {((False, False, 0),)}


def test_nan_in_files_of_new_rows(io: Any, tmp_path: Path) -> None:
    """Files like another one, files of a new data set, and files that replace others."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": table_of(range(4), None)}, write_page_index=True)
    new = table_of(range(100, 104), nan_at=102)
    assert io.merge(new, lake, "insert", ["id"]).inserted == 4
    fresh = str(tmp_path / "fresh")
    io.write_dataset(new, fresh)
    full = write_lake(tmp_path / "full", {"f.parquet": table_of(range(4), None), "g.parquet": new})
    io.write_parquet_dataset(table_of([101]), full, strategy="upsert", rewrite_mode="full", key_columns=["id"])
    for written in (lake, fresh, full):
        assert answers(written)["duckdb: s.a > 100"] == [(101,), (102,), (103,)]
        assert answers(written)["duckdb: g = 'nan'"] == [(102,)]
        for name in data_files(written):
            holds_nan = any(math.isnan(row["g"]) for row in pq.ParquetFile(Path(written, name)).read().to_pylist())
            for chunks in float_chunks(Path(written, name)).values():
                assert [bounds for bounds, _, _ in chunks] == [not holds_nan]
                assert not (holds_nan and any(index for _, index, _ in chunks))


# Bloom filters and page indexes


def test_bloom_filters_of_booleans_are_dropped(io: Any, tmp_path: Path) -> None:
    """arrow-rs writes them, PyArrow cannot."""
    table = pa.table({"id": range(ROWS), "b": [True] * ROWS, "t": ["x"] * ROWS})
    blooms = {"t": {"ndv": ROWS, "fpp": 0.01}}
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, row_group_size=GROUP, bloom_filter_options=blooms)

    def edit(footer: thrift.Struct) -> None:
        for group in footer[4][1][1]:
            _, flag, text = (entry[3][1] for entry in group[1][1][1])
            flag.update({number: text[number] for number in (14, 15)})

    edit_footer(Path(lake, "f.parquet"), edit)
    data = pa.table({"id": [CHANGED, 100], "b": [False, False], "t": ["y", "y"]})
    result = io.merge(data, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 1)
    assert [(row["b"], row["t"]) for row in rows(lake)].count((False, "y")) == 2
    (name,) = [name for name in data_files(lake) if pq.read_metadata(Path(lake, name)).num_rows == ROWS]
    offsets = [
        [pq.read_metadata(Path(lake, name)).row_group(g).column(c).bloom_filter_offset is not None for g in range(3)]
        for c in (1, 2)
    ]
    assert offsets == [[True, False, True], [True, True, True]]


def test_bloom_filters_of_intervals_are_dropped(io: Any, tmp_path: Path) -> None:
    """DuckDB's hash normalised values, as an entry of the footer says."""
    lake = tmp_path / "lake"
    lake.mkdir()
    path = lake / "f.parquet"
    with duckdb.connect() as connection:
        columns = "i::INT AS id, to_days((i % 90)::INT) AS iv, i % 7 AS x"
        connection.execute(f"COPY (SELECT {columns} FROM range(4096) t(i)) TO '{path}' (ROW_GROUP_SIZE 2048)")
        old = pq.read_metadata(path)
        if old.row_group(0).column(1).bloom_filter_offset is None:
            pytest.skip("this DuckDB writes no bloom filters of intervals")
        intervals = pq.ParquetFile(path).read_row_group(0, columns=["iv"]).column("iv")  # as 12 bytes each
        data = pa.table({"id": pa.array([3, 4], pa.int32()), "iv": intervals.slice(10, 2), "x": [99, 99]})
        assert io.merge(data, str(lake), "upsert", ["id"]).updated == 2
        (name,) = data_files(lake)
        for day in (5, 10, 11, 77):
            query = f"SELECT count(*) FROM '{lake / name}' WHERE iv = INTERVAL '{day} days'"
            slow = f"SELECT count(*) FROM '{lake / name}' WHERE iv + INTERVAL '0 days' = INTERVAL '{day} days'"
            assert connection.execute(query).fetchall() == connection.execute(slow).fetchall() != [(0,)]
    new = pq.read_metadata(lake / name)
    assert new.metadata[b"duckdb.interval_bloom_filter"] == b"normalized-v1"
    assert [new.row_group(g).column(1).bloom_filter_offset is None for g in range(2)] == [True, False]


@pytest.mark.parametrize("spliced", [True, False])
def test_a_first_row_group_without_rows(io: Any, tmp_path: Path, spliced: bool) -> None:
    """It has no page index and no bloom filter, and says nothing of the others."""
    table = table_of(range(4), None)
    path = tmp_path / "lake" / "f.parquet"
    path.parent.mkdir()
    options = {"compression": "zstd", "write_page_index": True, "bloom_filter_options": {"id": {"ndv": 4}}}
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        writer.write_table(table.slice(0, 0))
        writer.write_table(table)
    old = pq.read_metadata(path)
    assert [old.row_group(g).num_rows for g in range(old.num_row_groups)] == [0, 4]
    assert not old.row_group(0).column(1).has_offset_index

    def edit(footer: thrift.Struct) -> None:
        for entry in footer[4][1][1][0][1][1][1]:
            for number in (14, 15):
                entry[3][1].pop(number, None)
        if not spliced:
            footer[32000] = thrift.I32, 1

    edit_footer(path, edit)
    assert io.merge(table_of([2], None, 0.5), str(path.parent), "upsert", ["id"]).updated == 1
    new = pq.read_metadata(path.parent / data_files(path.parent)[0])
    assert [new.row_group(g).num_rows for g in range(new.num_row_groups)] == [0, 4]
    group = new.row_group(1)
    for column in range(new.num_columns):
        assert group.column(column).has_offset_index and group.column(column).has_column_index
        assert group.column(column).compression == "ZSTD"
    assert group.column(0).bloom_filter_offset is not None


# Key-value entries


GEOMETRY = {
    "encoding": "WKB",
    "geometry_types": ["Point"],
    "bbox": [0.0, 0.0, 3.0, 3.0],
    "orientation": "counterclockwise",
    "crs": {"id": {"authority": "EPSG", "code": 4326}, "ü": 0.1},
    "covering": {"bbox": {"xmin": ["box", "xmin"], "ymin": ["box", "ymin"]}},
}
GEO = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": GEOMETRY, "other": GEOMETRY}}
KEPT = {key: GEOMETRY[key] for key in ("encoding", "crs", "covering")}


def point(x: float) -> bytes:
    return b"\x01\x01\x00\x00\x00" + pa.array([x, x]).buffers()[1].to_pybytes()


def geo_table(ids: list[int], move: float = 0.0, schema: pa.Schema | None = None) -> pa.Table:
    points = [point(i + move) for i in ids]
    boxes = [{"xmin": float(i), "ymin": float(i)} for i in ids]
    columns = {"id": ids, "geometry": points, "other": [point(i) for i in ids], "box": boxes, "x": ["a"] * len(ids)}
    return pa.table(columns, schema=schema)


def geo_of(path: Path) -> list[Any]:
    """The entry as readers find it: in the footer, and in the Arrow schema, which PyArrow believes."""
    return [json.loads(pq.read_metadata(path).metadata[b"geo"]), json.loads(pq.read_schema(path).metadata[b"geo"])]


@pytest.mark.parametrize("spliced", [True, False])
def test_geoparquet(io: Any, tmp_path: Path, spliced: bool) -> None:
    table = geo_table([0, 1, 2, 3])
    table = table.replace_schema_metadata({"geo": json.dumps(GEO), "mine": "kept"})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    if not spliced:
        edit_footer(Path(lake, "f.parquet"), lambda footer: footer.update({32000: (thrift.I32, 1)}))
    other = geo_table([2])
    other = other.set_column(4, "x", pa.array(["changed"]))
    io.merge(other, lake, "update", ["id"])
    path = Path(lake, data_files(lake)[0])
    assert geo_of(path) == [GEO, GEO], "no geometry changed"
    io.merge(geo_table([2], move=500.0), lake, "update", ["id"])
    path = Path(lake, data_files(lake)[0])
    unknown = {**KEPT, "geometry_types": []}
    expected = {**GEO, "columns": {"geometry": unknown, "other": GEOMETRY}}
    assert geo_of(path) == [expected, expected]
    assert pq.read_metadata(path).metadata[b"mine"] == b"kept"
    io.merge(geo_table([10], move=500.0), lake, "insert", ["id"])
    (path,) = [Path(lake, name) for name in data_files(lake) if pq.read_metadata(Path(lake, name)).num_rows == 1]
    expected = {**GEO, "columns": {"geometry": unknown, "other": unknown}}
    assert geo_of(path) == [expected, expected]
    io.write_parquet_dataset(other, lake, strategy="upsert", rewrite_mode="full", key_columns=["id"])
    for name in data_files(lake):
        assert geo_of(Path(lake, name)) == [expected, expected]


@pytest.mark.parametrize("value", ["", "[1]", "{", '{"columns": 7}', '{"columns": {"geometry": 7}}'])
def test_an_entry_geo_that_is_no_geoparquet_is_kept(io: Any, tmp_path: Path, value: str) -> None:
    table = geo_table([0, 1]).replace_schema_metadata({"geo": value})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    assert io.merge(geo_table([1], move=500.0), lake, "update", ["id"]).updated == 1
    assert pq.read_metadata(Path(lake, data_files(lake)[0])).metadata[b"geo"] == value.encode()


def test_pandas_index_of_row_numbers(io: Any, tmp_path: Path) -> None:
    """It stays where the rows stay, and is not handed on to files of other rows."""
    lake = tmp_path / "lake"
    lake.mkdir()
    frame = pd.DataFrame({"id": [1, 2, 3], "x": ["a", "b", "c"]}, index=pd.RangeIndex(100, 103, name="row"))
    frame.to_parquet(lake / "f.parquet")
    data = pa.table({"id": [2, 7, 8, 9], "x": ["B", "G", "H", "I"]})
    assert io.merge(data, str(lake), "upsert", ["id"]).inserted == 3
    by_id = {frame["id"].iloc[0]: frame for frame in (pd.read_parquet(lake / name) for name in data_files(lake))}
    old, new = by_id[1], by_id[7]
    assert (list(old.index), old.index.name, list(old["x"])) == ([100, 101, 102], "row", ["a", "B", "c"])
    assert (list(new.index), list(new.columns), list(new["x"])) == ([0, 1, 2], ["id", "x"], ["G", "H", "I"])


@pytest.mark.parametrize("strategy", ["update", "insert"])
def test_more_categories_than_their_index_type_takes(io: Any, tmp_path: Path, strategy: Any) -> None:
    """pandas writes few categories with indices of int8, and PyArrow reads no more than 128 values by them."""
    ids = range(200) if strategy == "update" else range(200, 400)
    lake = tmp_path / "lake"
    lake.mkdir()
    pd.DataFrame({"id": range(200), "c": pd.Categorical(["a", "b"] * 100)}).to_parquet(lake / "f.parquet")
    most = pa.table({"id": ids, "c": [f"value {i % 128}" for i in ids]})
    assert io.merge(most, str(lake), strategy, ["id"]).target_count_after in (200, 400)
    assert sorted(pd.read_parquet(lake)["c"].unique())[-1] == "value 99"
    more = pa.table({"id": [i + 1000 * (strategy == "insert") for i in ids], "c": [f"new {i % 129}" for i in ids]})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"'c'.*int8.*more than 128.*write_dataset"):
        io.merge(more, str(lake), strategy, ["id"])
    io.write_dataset(more, str(lake), mode="overwrite")
    assert pd.read_parquet(lake)["c"].nunique() == 129


def test_entries_of_others(io: Any, tmp_path: Path) -> None:
    """Bounds and filters of record keys go; what nobody knows is the user's."""
    entries = {"hoodie_min_record_key": "1", "org.apache.hudi.bloomfilter": "AAAA", "iceberg.schema": "{}", "mine": "1"}
    table = pa.table({"id": [1, 2], "x": ["a", "b"]}).replace_schema_metadata(entries)
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    io.merge(pa.table({"id": [2, 3], "x": ["B", "C"]}), lake, "upsert", ["id"])
    assert len(data_files(lake)) == 2
    for name in data_files(lake):
        for found in (pq.read_metadata(Path(lake, name)).metadata, pq.read_schema(Path(lake, name)).metadata):
            assert found.keys() - {b"ARROW:schema"} == {b"iceberg.schema", b"mine"}


def test_every_known_entry_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()
    assert [name.decode() for name in KNOWN if f"`{name.decode()}`" not in text] == []
