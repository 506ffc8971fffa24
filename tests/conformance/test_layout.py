"""Files of six writers, updated: everything but the changed values is as their writer left it."""

from __future__ import annotations

import datetime as dt
import importlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, nothing_changes, raw_footer
from fsspeckit.core.parquet import thrift
from support import data_files, write_lake

DATA = Path(__file__).parent.parent / "data"
WRITERS = ["pyarrow", "duckdb", "polars", "fastparquet", "spark", "spark_legacy"]
CHANGED = (3, 17, 58)


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "polars" and pa.__version__.startswith("25."):
        pytest.skip("PyArrow 25 does not read lists of fixed size that are null; such a file is refused")
    return name


@pytest.fixture
def lake(tmp_path: Path, writer: str) -> str:
    shutil.copytree(DATA / writer, tmp_path / "lake", ignore=shutil.ignore_patterns("*.crc"))
    return str(tmp_path / "lake")


def open_file(path: Path | str) -> pq.ParquetFile:
    """INT96 as microseconds where Spark wrote it: some of its dates do not fit into nanoseconds."""
    unit = "us" if pq.read_metadata(path).created_by.startswith("parquet-mr") else "ns"
    return pq.ParquetFile(path, coerce_int96_timestamp_unit=unit)


def source_of(lake: str, ids: tuple[int, ...] = CHANGED) -> pa.Table:
    """Rows of some keys as they are, but for one text and one flag; partition columns added from the paths."""
    found = []
    for name in data_files(lake):
        table = open_file(Path(lake, name)).read()
        table = table.filter(pc.is_in(table.column("id"), pa.array(ids, table.schema.field("id").type)))
        if "part=" in name:
            value = name.split("part=")[1].split("/")[0].replace("%3A", ":")
            parts = [None if value.startswith("__") else value] * table.num_rows
            table = table.append_column("part", pa.array(parts, pa.string()))
        found.append(table)
    table = pa.concat_tables(found, promote_options="default")
    column = table.schema.get_field_index("text")
    table = table.set_column(column, table.schema.field(column), _texts(table, column))
    column = table.schema.get_field_index("flag")
    return table.set_column(column, table.schema.field(column), pa.array([True] * table.num_rows))


def _texts(table: pa.Table, column: int) -> pa.Array:
    return pa.array([f"changed {i}" for i in table.column("id").to_pylist()]).cast(table.schema.field(column).type)


Pairs = list[tuple[Path, Path]]
_MERGED: dict[tuple[str, str], Pairs] = {}


@pytest.fixture
def pairs(io: Any, engine: str, writer: str, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Old and new file of every rewritten one. Many tests look at one merge."""
    if (engine, writer) not in _MERGED:
        folder = tmp_path_factory.mktemp("layout")
        for name in ("lake", "old"):
            shutil.copytree(DATA / writer, folder / name)
        _MERGED[engine, writer] = merged(io, folder / "lake", folder / "old")
    return _MERGED[engine, writer]


def merged(io: Any, lake: Path, old: Path) -> Pairs:
    result = io.merge(source_of(str(lake)), str(lake), "update", ["id"])
    assert (result.updated, result.inserted) == (len(CHANGED), 0)
    assert len(result.rewritten_files) >= 2
    return [(_before(Path(path), lake, old), Path(path)) for path in result.rewritten_files]


def _before(path: Path, lake: Path, old: Path) -> Path:
    stem = path.name.split(".fk")[0].removesuffix(".parquet")
    (found,) = [p for p in (old / path.parent.relative_to(lake)).glob("*.parquet") if p.name.startswith(stem)]
    return found


def test_schema_elements_and_metadata_byte_for_byte(pairs: Pairs) -> None:
    for old, new in pairs:
        before, after = raw_footer(old), raw_footer(new)
        assert after[2] == before[2]  # the schema, element by element
        assert after.get(5) == before.get(5)  # key-value metadata
        assert after[3] == before[3]  # number of rows
        for ours, theirs in zip(after[4][1][1], before[4][1][1], strict=True):
            assert ours[3] == theirs[3]
            assert [c[3][1][1] for c in ours[1][1][1]] == [c[3][1][1] for c in theirs[1][1][1]]  # physical types
            assert [c[3][1][3] for c in ours[1][1][1]] == [c[3][1][3] for c in theirs[1][1][1]]  # paths


def test_columns_as_pyarrow_sees_them(pairs: Pairs) -> None:
    for old, new in pairs:
        before, after = open_file(old), open_file(new)
        assert after.schema.equals(before.schema)
        assert str(after.schema).splitlines()[1:] == str(before.schema).splitlines()[1:]  # field ids too
        assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
        assert after.metadata.metadata == before.metadata.metadata
        for i in range(before.metadata.num_columns):
            ours, theirs = after.schema.column(i), before.schema.column(i)
            names = (
                "path",
                "physical_type",
                "converted_type",
                "length",
                "max_definition_level",
                "max_repetition_level",
            )
            assert [getattr(ours, n) for n in names] == [getattr(theirs, n) for n in names]
            assert str(ours.logical_type) == str(theirs.logical_type)


def test_row_groups_codecs_sorting_page_index_and_bloom_filters(pairs: Pairs) -> None:
    for old, new in pairs:
        before, after = pq.read_metadata(old), pq.read_metadata(new)
        assert after.num_row_groups == before.num_row_groups
        for g in range(before.num_row_groups):
            ours, theirs = after.row_group(g), before.row_group(g)
            assert ours.num_rows == theirs.num_rows
            assert ours.sorting_columns == theirs.sorting_columns
            for c in range(before.num_columns):
                mine, other = ours.column(c), theirs.column(c)
                assert mine.compression == other.compression, mine.path_in_schema
                assert mine.has_offset_index >= other.has_offset_index, mine.path_in_schema
                assert mine.has_column_index >= _index_possible(other), mine.path_in_schema
                assert (mine.bloom_filter_offset is None) == (other.bloom_filter_offset is None), mine.path_in_schema


def _index_possible(chunk: pq.ColumnChunkMetaData) -> bool:
    """A column index is made of page bounds, which INT96 and columns of the null type do not have."""
    return chunk.has_column_index and chunk.statistics is not None and chunk.statistics.has_min_max


def test_values(pairs: Pairs) -> None:
    """Every row is at its place; only the texts and flags of three rows differ."""
    for old, new in pairs:
        before, after = open_file(old).read(), open_file(new).read()
        ids = before.column("id").to_pylist()
        assert after.column("id").to_pylist() == ids
        for name in before.column_names:
            ours, theirs = (repr(v) for v in (after.column(name).to_pylist(), before.column(name).to_pylist()))
            if name in ("text", "flag"):
                kept = [i for i, key in enumerate(ids) if key not in CHANGED]
                ours, theirs = (repr(t.column(name).take(pa.array(kept)).to_pylist()) for t in (after, before))
                found = after.filter(pc.is_in(after.column("id"), pa.array(CHANGED)))
                expected = [f"changed {i}" if name == "text" else True for i in found.column("id").to_pylist()]
                assert found.column(name).to_pylist() == expected
            assert ours == theirs, name


def test_statistics_bound_every_value(pairs: Pairs) -> None:
    for old, new in pairs:
        file, was = open_file(new), pq.read_metadata(old)
        names = file.schema_arrow.names
        checked = 0
        for g in range(file.num_row_groups):
            table = file.read_row_group(g)
            for c in range(file.metadata.num_columns):
                chunk = file.metadata.row_group(g).column(c)
                before = was.row_group(g).column(c).statistics
                stats = chunk.statistics
                if before is not None and before.has_min_max and chunk.path_in_schema not in ("text", "flag"):
                    assert stats is not None, chunk.path_in_schema
                    assert stats.has_min_max, chunk.path_in_schema
                if stats is None or not stats.has_min_max or chunk.path_in_schema not in names:
                    continue
                values = [v for v in _values(table, chunk.path_in_schema, stats) if v is not None and v == v]
                assert all(stats.min <= v <= stats.max for v in values), chunk.path_in_schema
                assert stats.null_count == table.column(chunk.path_in_schema).null_count, chunk.path_in_schema
                checked += 1
        assert checked > file.num_row_groups * 3


def _values(table: pa.Table, name: str, stats: pq.Statistics) -> list[Any]:
    """The column's values in the Python type that PyArrow shows its statistics in."""
    column = table.column(name)
    timed = pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type) or pa.types.is_duration(column.type)
    if isinstance(stats.min, int) and timed:
        return list(column.cast(pa.int64()).to_pylist())
    if isinstance(stats.min, bytes):
        return [v.encode() if isinstance(v, str) else getattr(v, "bytes", v) for v in column.to_pylist()]
    return list(column.to_pylist())


def test_int96_stays_int96(pairs: Pairs, writer: str) -> None:
    times = {"fastparquet": ["time"], "spark": ["time"], "spark_legacy": ["time"]}.get(writer, [])
    for _, new in pairs:
        schema = pq.ParquetFile(new).schema
        found = [c.path for c in (schema.column(i) for i in range(len(schema.names))) if c.physical_type == "INT96"]
        assert found == times


NOT_READ = {
    ("duckdb", "polars"): "Polars has no INTERVAL: it does not read the original either",
    ("duckdb", "fastparquet"): "fastparquet does not read INTERVAL: it does not read the original either",
}


@pytest.mark.parametrize("reader", ["duckdb", "polars", "pandas", "fastparquet"])
def test_other_readers_still_read_it(pairs: Pairs, writer: str, reader: str) -> None:
    if (writer, reader) in NOT_READ:
        pytest.skip(NOT_READ[writer, reader])
    module = importlib.import_module(reader)
    for old, new in pairs:
        before, after = _read(module, old), _read(module, new)
        assert len(after) == len(before)
        changed = [i for i, (a, b) in enumerate(zip(after, before, strict=True)) if repr(a) != repr(b)]
        assert len(changed) == sum(1 for i in _ids(new) if i in CHANGED)


def _ids(path: Path) -> list[int]:
    return list(open_file(path).read(["id"]).column("id").to_pylist())


def _read(module: Any, path: Path) -> list[Any]:
    if module.__name__ == "duckdb":
        found: list[Any] = module.connect().execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
        return found
    if module.__name__ == "polars":
        return list(module.read_parquet(path, hive_partitioning=False).rows())
    if module.__name__ == "fastparquet":
        frame = module.ParquetFile(str(path)).to_pandas()
        frame = frame.astype(object).where(frame.notna(), None)  # a category's null is shown as NaN, a text's as None
    else:
        frame = module.read_parquet(path, engine="pyarrow", partitioning=None)
    return list(frame.itertuples(index=False))


def test_a_second_and_a_third_merge(io: Any, lake: str) -> None:
    """Nothing grows or drifts with the number of merges."""
    sizes, footers = [], []
    for turn in range(3):
        data = source_of(lake, (3,))
        data = data.set_column(
            data.schema.get_field_index("text"),
            data.schema.field("text"),
            pa.array([f"turn {turn}"]).cast(data.schema.field("text").type),
        )
        (path,) = io.merge(data, lake, "update", ["id"]).rewritten_files
        sizes.append(Path(path).stat().st_size)
        footers.append((raw_footer(path)[2], raw_footer(path).get(5), pq.read_metadata(path).num_row_groups))
    assert footers[0] == footers[1] == footers[2]
    assert max(sizes) - min(sizes) < 64


def test_an_insert_is_written_like_its_neighbours(io: Any, lake: str) -> None:
    data = source_of(lake, (3,))
    data = data.set_column(
        data.schema.get_field_index("id"), data.schema.field("id"), pa.array([9999]).cast(data.schema.field("id").type)
    )
    (path,) = io.merge(data, lake, "upsert", ["id"]).inserted_files
    (neighbour, *_) = [Path(lake, name) for name in data_files(lake) if f"{lake}/{name}" != path]
    assert raw_footer(path)[2] == raw_footer(neighbour)[2]
    assert pq.read_metadata(path).num_rows == 1


def test_identical_rows_spare_every_file(io: Any, lake: str) -> None:
    """Rows read and merged back unchanged are recognised as the same, whatever their types."""
    table = source_of(lake)
    originals = []
    for name in data_files(lake):
        found = open_file(Path(lake, name)).read()
        originals.append(found.filter(pc.is_in(found.column("id"), pa.array(CHANGED, found.schema.field("id").type))))
    whole = pa.concat_tables(originals, promote_options="default").sort_by("id")
    table = table.sort_by("id")
    for name in ("text", "flag"):
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), whole.column(name))
    with nothing_changes(lake):
        result = io.merge(table, lake, "upsert", ["id"])
    assert (result.updated, result.rewritten_files) == (len(CHANGED), [])


def test_int96_beyond_the_years_of_nanoseconds(io: Any, tmp_path: Path) -> None:
    """Spark's year 9999 does not fit into 64 bits of nanoseconds; merging again and again does not harm it."""
    end = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    table = pa.table({"id": [1, 2], "x": ["a", "b"], "at": pa.array([end, dt.datetime(1, 1, 1)], pa.timestamp("us"))})
    path = write_like_spark(tmp_path / "lake/f.parquet", table)
    for turn in ("first", "second", "third"):
        data = pa.table({"id": [2], "x": [turn], "at": pa.array([dt.datetime(1, 1, 1)], pa.timestamp("us"))})
        (path,) = map(Path, io.merge(data, str(tmp_path / "lake"), "upsert", ["id"]).rewritten_files)
        found = open_file(path)
        assert found.schema.column(2).physical_type == "INT96"
        assert found.read().to_pylist() == [table.to_pylist()[0], data.to_pylist()[0]]
    by_time = pa.table({"id": [9, 3], "x": ["new"] * 2, "at": pa.array([end, end.replace(year=9998)])})
    result = io.merge(by_time, str(tmp_path / "lake"), "upsert", ["at"])
    assert (result.inserted, result.updated) == (1, 1)


def write_like_spark(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir()
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=False)
    edit_footer(path, lambda footer: footer.update({6: (thrift.BINARY, b"parquet-mr version 1.16.0 (build 0)")}))
    return path


def _encodings(path: Path | str) -> dict[str, tuple[bool, frozenset[str]]]:
    """Per column: has it a dictionary, and the encodings that say something."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    named = {c.path_in_schema: (c.has_dictionary_page, frozenset(c.encodings) - {"RLE", "PLAIN"}) for c in chunks}
    return {name: (has, encodings) for name, (has, encodings) in named.items()}


def test_columns_are_encoded_as_they_ended_up(io: Any, tmp_path: Path) -> None:
    """A dictionary that failed, or spared nothing, is not tried again; one that paid, and what is none, stays.

    The key does not change, so its bytes are copied as they are.
    """
    rows = 150_000
    table = pa.table(
        {
            "id": range(rows),
            "city": [f"city{i % 50}" for i in range(rows)],
            "unique": [f"{i:030d}" for i in range(rows)],
            "in_vain": pa.array(range(rows), pa.int32()),
            "paid": [i * 11 % 90_000 for i in range(rows)],
            "delta": range(rows),
            "split": [i / 7 for i in range(rows)],
            "tags": [[f"t{i % 9}"] for i in range(rows)],
        }
    )
    tried = ["id", "city", "unique", "in_vain", "paid", "tags.list.element"]
    others = {"delta": "DELTA_BINARY_PACKED", "split": "BYTE_STREAM_SPLIT"}
    write_lake(tmp_path / "lake", {"f.parquet": table}, use_dictionary=tried, column_encoding=others)
    assert all(has for name, (has, _) in _encodings(tmp_path / "lake/f.parquet").items() if name in tried)
    row = {"id": 7, "city": "Ulm", "unique": "u", "in_vain": -1, "paid": -1, "delta": -1, "split": 0.5, "tags": ["u"]}
    io.merge(pa.Table.from_pylist([row], table.schema), str(tmp_path / "lake"), "upsert", ["id"])
    (name,) = data_files(tmp_path / "lake")
    dictionary = (True, frozenset({"RLE_DICTIONARY"}))
    assert _encodings(tmp_path / "lake" / name) == {
        "id": dictionary,
        "city": dictionary,
        "unique": (False, frozenset()),
        "in_vain": (False, frozenset()),
        "paid": dictionary,
        "delta": (False, frozenset({"DELTA_BINARY_PACKED"})),
        "split": (False, frozenset({"BYTE_STREAM_SPLIT"})),
        "tags.list.element": dictionary,
    }
    after = pq.ParquetFile(tmp_path / "lake" / name).read()
    assert after.column("city").to_pylist()[6:9] == ["city6", "Ulm", "city8"]
    assert after.slice(7, 1).to_pylist() == [row]


def test_a_new_data_set_has_dictionaries_where_values_repeat(io: Any, tmp_path: Path) -> None:
    """Extension types, dictionaries of Arrow's and nested values keep theirs; few rows too."""
    rows = 120_000
    table = pa.table(
        {
            "id": range(rows),
            "city": [f"city{i % 50}" for i in range(rows)],
            "unique": [f"{i * 7919 % rows:030d}" for i in range(rows)],
            "real": [i / 7 for i in range(rows)],
            "runs": [i // 9 for i in range(rows)],
            "tags": [[f"t{i}"] for i in range(rows)],
            "none": pa.nulls(rows, pa.int32()),
        }
    )
    repeated = {"city", "runs", "tags.list.element", "none"}
    for lake, part in (("large", table), ("small", table.slice(0, 3000))):
        io.merge(part, str(tmp_path / lake), "upsert", ["id"])
        (name,) = data_files(tmp_path / lake)
        encoded = {path for path, (has, _) in _encodings(tmp_path / lake / name).items() if has}
        assert encoded == (repeated if lake == "large" else set(_encodings(tmp_path / lake / name)))
        assert pq.ParquetFile(tmp_path / lake / name).read().to_pydict() == part.to_pydict()
