"""Text that is kept in dictionaries is patched as numbers: the same file as if it had been decoded."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.parquet.dictionaries import DictionaryColumns
from fsspeckit.core.rewrite import row_group
from fsspeckit.core.rewrite.patch import patched_dictionary

CITIES = ["Ulm", "Bern", None, "Köln"]


def lake_of(folder: Path, **columns: Any) -> Path:
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "f.parquet", row_group_size=1000)
    return folder


def cities(count: int) -> list[str | None]:
    return [CITIES[i % 4] for i in range(count)]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were patched as numbers, each time."""
    lengths: list[int] = []

    def counted(old: Any, positions: Any, new: Any, deleted: Any) -> Any:
        lengths.append(len(old))
        return patched_dictionary(old, positions, new, deleted)

    monkeypatch.setattr(row_group, "patched_dictionary", counted)
    return lengths


@pytest.mark.parametrize("values", [["Rom", "Ulm", None], ["Ulm", "Ulm", "Ulm"], [None, None, None], ["", "Rom", ""]])
def test_rows_dictionary_and_bounds(tmp_path: Path, indexed: list[int], values: list[str | None]) -> None:
    lake = lake_of(tmp_path / "lake", id=list(range(3000)), city=cities(3000), x=[1] * 3000)
    ids = [0, 1700, 2999]
    fsspeckit.merge(pa.table({"id": ids, "city": values, "x": [1, 1, 1]}), str(lake), key_columns=["id"])
    assert indexed, "the column was decoded"
    assert set(indexed) == {1000}
    expected = cities(3000)
    for position, value in zip(ids, values, strict=True):
        expected[position] = value
    file = pq.ParquetFile(lake / "f.parquet")
    assert file.read().column("city").to_pylist() == expected
    for group in range(3):
        present = [v for v in expected[group * 1000 : group * 1000 + 1000] if v is not None]
        statistics = file.metadata.row_group(group).column(1).statistics
        assert (statistics.min, statistics.max) == (min(present), max(present))
        assert statistics.null_count == 1000 - len(present)


def test_a_value_that_no_row_has_any_more_is_gone_from_the_file(tmp_path: Path, indexed: list[int]) -> None:
    """Somebody's name that was overwritten must not be found in the file's bytes."""
    names = ["Anna"] * 500 + ["Bertholdine"] + ["Carl"] * 499
    lake = lake_of(tmp_path / "lake", id=list(range(1000)), name=names)
    assert b"Bertholdine" in (lake / "f.parquet").read_bytes()
    fsspeckit.merge(pa.table({"id": [500], "name": ["Carl"]}), str(lake), key_columns=["id"])
    assert indexed
    assert b"Bertholdine" not in (lake / "f.parquet").read_bytes()
    assert sorted(set(pq.read_table(lake).column("name").to_pylist())) == ["Anna", "Carl"]


@pytest.mark.parametrize("used", [4, 3], ids=["all used", "last not used"])
def test_a_dictionary_with_a_value_twice_is_decoded(tmp_path: Path, indexed: list[int], used: int) -> None:
    """PyArrow numbers distinct values, so that all after the second of a pair would be read as their neighbours."""
    folder = tmp_path / "lake"
    folder.mkdir()
    letters = ["aaa", "bbb", "ccc", "ddd"]
    rows = pa.DictionaryArray.from_arrays([i % used for i in range(1000)], letters)
    raw = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(1000)), "letter": rows}), raw, compression="none", store_schema=False)
    data = raw.getvalue()
    at = data.index(b"\x03\x00\x00\x00aaa\x03\x00\x00\x00bbb")
    data = data[: at + 4] + b"bbb" + data[at + 7 :]
    (folder / "f.parquet").write_bytes(data)
    decoded = pq.ParquetFile(folder / "f.parquet").read().column("letter").to_pylist()
    assert decoded == [["bbb", "bbb", "ccc", "ddd"][i % used] for i in range(1000)]
    fsspeckit.merge(pa.table({"id": [3], "letter": ["eee"]}), str(folder), key_columns=["id"])
    assert not indexed
    assert pq.read_table(folder).column("letter").to_pylist() == [*decoded[:3], "eee", *decoded[4:]]


def test_which_columns_are_numbered(tmp_path: Path) -> None:
    count = 70_000
    lake = lake_of(
        tmp_path / "lake",
        id=list(range(count)),
        city=cities(count),
        code=pa.array([b"x", b"y"] * (count // 2)),
        name=[f"name {i}" for i in range(count)],
        **{"a.b": cities(count)},
        tags=[["Ulm"]] * count,
        number=[i % 5 for i in range(count)],
    )
    path = lake / "f.parquet"
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=count, use_dictionary=["city", "code", "a.b", "tags", "number"])
    with pa.OSFile(str(path)) as source:
        from fsspeckit.core.parquet import footer_io as tail
        from fsspeckit.core.parquet import thrift

        footer = thrift.decode(tail.footer_bytes(source))
        indexed = DictionaryColumns.of(source, footer, pq.ParquetFile(source), [0])
    assert indexed.names == ["city", "code"]
    assert indexed.sizes == {("city", 0): 3, ("code", 0): 2}


def test_large_dictionaries_are_decoded(tmp_path: Path, indexed: list[int]) -> None:
    """To look up each of their values twice takes longer than the text."""
    lake = lake_of(tmp_path / "lake", id=list(range(1000)), few=[f"{i % 62}" for i in range(1000)], many=cities(1000))
    changes = pa.table({"id": [3], "few": ["new"], "many": ["new"]})
    fsspeckit.merge(changes, str(lake), key_columns=["id"])
    assert indexed == [1000, 1000]
    more = lake_of(tmp_path / "more", id=list(range(1000)), few=[f"{i % 63}" for i in range(1000)], many=cities(1000))
    fsspeckit.merge(changes, str(more), key_columns=["id"])
    assert indexed == [1000, 1000, 1000]
    assert pq.read_table(more).slice(3, 1).to_pylist() == [{"id": 3, "few": "new", "many": "new"}]


def test_required_columns_in_a_full_rewrite(tmp_path: Path) -> None:
    """A row group that is merged and one that is not go into one new file."""
    folder = tmp_path / "lake"
    folder.mkdir()
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string(), nullable=False)])
    pq.write_table(pa.table([list(range(10)), ["Ulm"] * 10], schema=columns), folder / "f.parquet", row_group_size=5)
    io = fsspeckit.PyArrowDatasetIO()
    source = pa.table([[1], ["Bern"]], schema=columns)
    io.write_parquet_dataset(source, str(folder), strategy="upsert", key_columns=["id"], rewrite_mode="full")
    (file,) = folder.iterdir()
    table = pq.ParquetFile(file).read()
    assert table.column("city").to_pylist() == ["Ulm", "Bern", *["Ulm"] * 8]
    assert not any(field.nullable for field in table.schema)
