"""Sources as people have them: pandas with its index, lists of dicts, lazy frames, iterators, text files, patterns."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from fsspeckit import ArgumentError, FsspeckitError, MergeValidationError, SchemaMismatchError
from support import fingerprint, rows, write_lake

SOURCE = pa.table({"id": [1, 5], "x": ["A", "B"]})
FRAME = pd.DataFrame({"id": [1, 5], "x": ["A", "B"]})
MERGED = {0: "a", 1: "A", 2: "c", 5: "B"}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [0, 1, 2], "x": ["a", "b", "c"]})})


def text(folder: Path, name: str, content: str) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)
    return folder / name


def batches() -> Iterator[pa.RecordBatch]:
    yield from SOURCE.to_batches(max_chunksize=1)


def several(folder: Path) -> str:
    text(folder, "in/a.csv", "id,x\n1,A\n")
    text(folder, "in/b.csv", "x,id\nB,5\n")
    text(folder, "in/.hidden.csv", "nonsense")
    return str(folder / "in" / "*.csv")


def deep(folder: Path) -> str:
    text(folder, "in/2025/a.csv", "id,x\n1,A\n")
    text(folder, "in/2026/b.csv", "id,x\n5,B\n")
    return str(folder / "in" / "**" / "*.csv")


def mixed(folder: Path) -> list[Any]:
    write_lake(folder / "in", {"s.parquet": SOURCE.slice(0, 1)})
    return [folder / "in" / "s.parquet", text(folder, "t.csv", "id,x\n5,B\n")]


def partitions(folder: Path) -> str:
    write_lake(folder / "in", {"p=1/s.parquet": SOURCE.slice(0, 1), "p=2/s.parquet": SOURCE.slice(1)})
    return str(folder / "in" / "p=*" / "s.parquet")


def compressed(folder: Path) -> Path:
    (folder / "s.csv.gz").write_bytes(gzip.compress(b"id,x\n1,A\n5,B\n"))
    return folder / "s.csv.gz"


def feather(folder: Path) -> Path:
    with pa.ipc.new_file(str(folder / "s.feather"), SOURCE.schema) as sink:
        sink.write_table(SOURCE)
    return folder / "s.feather"


def stream(folder: Path) -> Path:
    with pa.ipc.new_stream(str(folder / "s.arrow"), SOURCE.schema) as sink:
        sink.write_table(SOURCE)
    return folder / "s.arrow"


KINDS: dict[str, Callable[[Path], Any]] = {
    "pandas filtered": lambda _: pd.concat([FRAME, FRAME])[[True, False, False, True]],
    "pandas sorted": lambda _: FRAME.sort_values("id", ascending=False),
    "pandas named index": lambda _: FRAME.set_index("id"),
    "pandas half named": lambda _: FRAME.assign(n=[7, 8]).set_index(["id", "n"]).rename_axis(["id", None]),
    "list of dicts": lambda _: SOURCE.to_pylist(),
    "list of batches": lambda _: SOURCE.to_batches(max_chunksize=1),
    "tables": lambda _: iter([SOURCE.slice(0, 1), SOURCE.slice(1)]),
    "generator": lambda _: batches(),
    "lazy frame": lambda _: pl.LazyFrame({"id": [1, 5], "x": ["A", "B"]}),
    "dataset": lambda folder: pa.dataset.dataset(write_lake(folder / "in", {"s.parquet": SOURCE})),
    "scanner": lambda _: pa.dataset.dataset(SOURCE).scanner(),
    "csv": lambda folder: text(folder, "s.csv", "id,x\n1,A\n5,B\n"),
    "csv of Windows": lambda folder: text(folder, "s.csv", "\ufeffid,x\r\n1,A\r\n\r\n5,B\r\n"),
    "csv.gz": compressed,
    "tsv": lambda folder: text(folder, "s.TSV", "id\tx\n1\tA\n5\tB\n"),
    "jsonl": lambda folder: text(folder, "s.jsonl", '{"id": 1, "x": "A"}\n\n{"x": "B", "id": 5}\n'),
    "feather": feather,
    "arrow stream": stream,
    "pattern": several,
    "deep pattern": deep,
    "pattern of folders": partitions,
    "csv and Parquet": mixed,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source(io: Any, lake: str, tmp_path: Path, kind: str) -> None:
    result = io.merge(KINDS[kind](tmp_path), lake, "upsert", ["id"])
    assert (result.source_count, result.inserted, result.updated) == (2, 1, 1)
    assert {row["id"]: row["x"] for row in rows(lake)} == MERGED


def test_a_pattern_that_is_a_name(io: Any, lake: str, tmp_path: Path) -> None:
    path = text(tmp_path, "s[1]*.csv", "id,x\n1,A\n5,B\n")
    text(tmp_path, "s1.csv", "id,x\n1,wrong\n")
    io.merge(path, lake, "upsert", ["id"])
    assert {row["id"]: row["x"] for row in rows(lake)} == MERGED


def test_home(io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text(tmp_path, "s.csv", "id,x\n1,A\n5,B\n")
    assert io.merge("~/s.csv", "~/made", "upsert", ["id"]).inserted == 2
    assert (tmp_path / "made").is_dir()
    assert io.read(Path("~/made")) is not None


def test_an_index_is_no_column_of_a_new_data_set(io: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [3, 1, 2], "x": list("abc")})
    io.merge(frame.sort_values("id"), str(tmp_path / "unnamed"), "upsert", ["id"])
    assert rows(tmp_path / "unnamed") == [{"id": 1, "x": "b"}, {"id": 2, "x": "c"}, {"id": 3, "x": "a"}]
    for ids in ([3, 1, 2], [0, 1, 2]):  # also if it is a range
        lake = tmp_path / f"named{ids[0]}"
        io.merge(frame.assign(id=ids).set_index("id"), str(lake), "upsert", ["id"])
        assert {row["id"] for row in rows(lake)} == set(ids)


def test_nulls_of_pandas_fit_any_type(io: Any, tmp_path: Path) -> None:
    day = datetime.date(2025, 1, 1)
    types = pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("l", pa.list_(pa.int64()))])
    old = pa.table({"id": [1, 2], "s": ["a", "b"], "d": [day, day], "l": [[1], []]}, schema=types)
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    frame = pd.DataFrame({"id": [1], "s": [float("nan")], "d": [float("nan")], "l": [None]})
    assert frame["s"].dtype == "float64"
    io.merge(frame, lake, "upsert", ["id"])
    assert {row["id"]: (row["s"], row["d"], row["l"]) for row in rows(lake)} == {1: (None,) * 3, 2: ("b", day, [])}
    before = fingerprint(lake)
    with pytest.raises(SchemaMismatchError, match="'s' is double in the source"):
        io.merge(pd.DataFrame({"id": [1, 2], "s": [float("nan"), 1.5], "d": None, "l": None}), lake, "upsert", ["id"])
    assert fingerprint(lake) == before


TYPED = pa.schema(
    [
        ("id", pa.int32()),
        ("amount", pa.decimal128(10, 2)),
        ("ratio", pa.float32()),
        ("paid", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("time", pa.time64("us")),
        ("status", pa.dictionary(pa.int32(), pa.string())),
    ]
)
INSTANT = datetime.datetime(2025, 1, 1, 12, tzinfo=datetime.UTC)
ROW = {
    "id": 1,
    "amount": Decimal("12.50"),
    "ratio": 0.25,
    "paid": True,
    "day": datetime.date(2025, 1, 1),
    "at": INSTANT,
    "local": datetime.datetime(2025, 1, 1, 12),
    "time": datetime.time(12, 30),
    "status": "new",
}
TEXT = {
    "id": "1.0",
    "amount": "12.5",
    "ratio": " 0.25",
    "paid": "TRUE",
    "day": "2025-01-01",
    "at": "2025-01-01T14:00:00+02:00",
    "local": "2025-01-01 12:00:00",
    "time": "12:30:00",
    "status": "new",
}


@pytest.fixture
def typed(tmp_path: Path) -> str:
    first = pa.Table.from_pylist([{**ROW, "id": 0}], schema=TYPED)
    return write_lake(tmp_path / "typed", {"f.parquet": first})


def test_text_takes_the_types_of_the_target(io: Any, typed: str, tmp_path: Path) -> None:
    line = {**TEXT, "id": 1, "paid": True, "ratio": 0.25, "amount": 12.5}
    for source in (
        text(tmp_path, "s.csv", f"{','.join(TEXT)}\n{','.join(TEXT.values())}\n"),
        text(tmp_path, "s.json", json.dumps(line)),
        text(tmp_path, "t.jsonl", json.dumps(TEXT)),  # numbers as text
    ):
        result = io.merge(source, typed, "upsert", ["id"])
        assert result.inserted + result.updated == 1
        assert [row for row in rows(typed) if row["id"] == 1] == [ROW]


def test_empty_fields(io: Any, lake: str, typed: str, tmp_path: Path) -> None:
    io.merge(text(tmp_path, "s.csv", 'id,x\n1,\n5,""\n6,NA\n'), lake, "upsert", ["id"])
    assert {row["id"]: row["x"] for row in rows(lake)} == {0: "a", 1: None, 2: "c", 5: "", 6: "NA"}
    io.merge(text(tmp_path, "t.csv", f"{','.join(TEXT)}\n1{',' * (len(TEXT) - 1)}\n"), typed, "upsert", ["id"])
    assert [row for row in rows(typed) if row["id"] == 1] == [{**dict.fromkeys(TEXT), "id": 1}]
    io.merge(text(tmp_path, "t.jsonl", '{"id": 7}\n{"id": 8, "x": "h"}\n'), lake, "upsert", ["id"])
    assert {row["id"]: row["x"] for row in rows(lake) if row["id"] > 6} == {7: None, 8: "h"}


def test_text_for_a_column_that_holds_only_nulls(io: Any, tmp_path: Path) -> None:
    """pandas writes a column of `None` without a type. The first values give it one."""
    lake = tmp_path / "nulls"
    write_lake(lake, {"f.parquet": pa.table({"id": [1], "n": pa.nulls(1), "x": pa.nulls(1), "m": pa.nulls(1)})})
    io.merge(text(tmp_path, "s.csv", "id,n,x,m\n2,,,\n"), str(lake), "upsert", ["id"])
    assert {row["id"] for row in rows(lake)} == {1, 2}
    assert str(pq.read_schema(lake / "f.parquet").field("x").type) == "null"
    io.merge(text(tmp_path, "t.csv", "id,n,x,m\n2,7,new,\n"), str(lake), "upsert", ["id"])
    io.merge(text(tmp_path, "t.jsonl", '{"id": 3, "n": 8, "x": "y", "m": true}\n'), str(lake), "upsert", ["id"])
    assert sorted(rows(lake), key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "x": None, "m": None},
        {"id": 2, "n": 7, "x": "new", "m": None},
        {"id": 3, "n": 8, "x": "y", "m": True},
    ]


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("id", "x7"),
        ("id", "1.5"),
        ("id", "3000000000"),
        ("amount", "1.005"),
        ("amount", "12,50"),
        ("ratio", "1e99"),
        ("paid", "perhaps"),
        ("day", "31.12.2025"),
        ("at", "2025-01-01 12:00:00"),
        ("local", "2025-01-01 12:00:00.123456"),
        ("time", "25:00:00"),
    ],
)
def test_a_value_that_does_not_fit_names_its_line(io: Any, typed: str, tmp_path: Path, column: str, wrong: str) -> None:
    good, bad = {**TEXT, "status": '"two\nlines"'}, {**TEXT, "id": "2", column: f'"{wrong}"'}
    content = f"{','.join(TEXT)}\n\n{','.join(good.values())}\n{','.join(bad.values())}\n"
    before = fingerprint(typed)
    with pytest.raises(SchemaMismatchError) as caught:
        io.merge(text(tmp_path, "s.csv", content), typed, "upsert", ["id"])
    assert "s.csv, line 5: " in str(caught.value) and f"'{column}'" in str(caught.value) and wrong in str(caught.value)
    lines = [json.dumps(TEXT), "", json.dumps({**TEXT, "id": "2", column: wrong})]
    with pytest.raises(SchemaMismatchError) as caught:
        io.merge(text(tmp_path, "s.jsonl", "\n".join(lines)), typed, "upsert", ["id"])
    assert "s.jsonl, line 3: " in str(caught.value) and f"'{column}'" in str(caught.value)
    assert fingerprint(typed) == before


def test_times_without_a_zone_need_one(io: Any, engine: str, typed: str, tmp_path: Path) -> None:
    source = text(tmp_path, "s.jsonl", json.dumps({**TEXT, "id": 1, "at": "2025-01-01T13:00:00"}))
    if engine != "spark":  # its session has a zone
        with pytest.raises(MergeValidationError, match="source_timezone"):
            io.merge(source, typed, "upsert", ["id"])
    io.merge(source, typed, "upsert", ["id"], source_timezone="Europe/Berlin")
    assert [row["at"] for row in rows(typed) if row["id"] == 1] == [INSTANT]


def test_days_and_times_for_a_column_of_times(io: Any, tmp_path: Path) -> None:
    """`-01` at the end of a day is no zone."""
    old = pa.table({"id": [1], "at": pa.array([datetime.datetime(2025, 1, 1)], pa.timestamp("ms"))})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    io.merge(text(tmp_path, "s.csv", "id,at\n1,2025-02-01\n2,2025-02-01 10:30\n3,\n"), lake, "upsert", ["id"])
    days = {row["id"]: row["at"] for row in rows(lake)}
    assert days == {1: datetime.datetime(2025, 2, 1), 2: datetime.datetime(2025, 2, 1, 10, 30), 3: None}
    with pytest.raises(SchemaMismatchError, match=r"'at' is timestamp.*UTC"):
        io.merge(text(tmp_path, "z.csv", "id,at\n1,2025-02-01T10:30-01\n"), lake, "upsert", ["id"])


def test_a_lake_with_the_row_index_of_pandas(io: Any, tmp_path: Path) -> None:
    """As `df[mask].to_parquet(…)` writes it."""
    frame = pd.DataFrame({"id": [1, 2, 3], "x": list("abc")})
    (tmp_path / "lake").mkdir()
    frame[frame.id > 1].to_parquet(tmp_path / "lake/f.parquet")
    changes = pd.DataFrame({"id": [2, 4], "x": ["new", "new"]})
    with pytest.raises(SchemaMismatchError, match=r"row index that pandas .*exclude_columns=\['__index_level_0__'\]"):
        io.merge(changes, str(tmp_path / "lake"), "upsert", ["id"])
    io.merge(changes, str(tmp_path / "lake"), "upsert", ["id"], exclude_columns=["__index_level_0__"])
    read = pd.read_parquet(tmp_path / "lake").sort_values("id")
    assert [tuple(row) for row in read[["id", "x"]].itertuples(index=False)] == [(2, "new"), (3, "c"), (4, "new")]


def test_types_of_a_new_data_set_are_inferred(io: Any, tmp_path: Path) -> None:
    content = "id,zip,ratio,paid,day,at,note\n1,0123,1,true,2025-01-01,2025-01-01 12:00:00,\n2,4567,0.5,,,,\n"
    io.merge(text(tmp_path, "s.csv", content), str(tmp_path / "made"), "upsert", ["id"])
    day = datetime.date(2025, 1, 1)
    first = (1, "0123", 1.0, True, day, datetime.datetime(2025, 1, 1, 12), None)
    assert [tuple(row.values()) for row in rows(tmp_path / "made")] == [first, (2, "4567", 0.5, None, None, None, None)]
    lines = '{"id": 1, "v": 1, "w": "0123", "b": false}\n{"id": 2, "v": 0.5, "w": null, "b": null}\n'
    io.merge(text(tmp_path, "s.jsonl", lines), str(tmp_path / "json"), "upsert", ["id"])
    assert [tuple(row.values()) for row in rows(tmp_path / "json")] == [(1, 1.0, "0123", False), (2, 0.5, None, None)]


def test_nested_json(io: Any, tmp_path: Path) -> None:
    old = pa.table({"id": [1], "v": [{"a": [1.5], "b": "x"}]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    io.merge(text(tmp_path, "s.jsonl", '{"id": 2, "v": {"a": [2, 2.5], "b": null}}\n'), lake, "upsert", ["id"])
    assert rows(lake)[1] == {"id": 2, "v": {"a": [2.0, 2.5], "b": None}}
    with pytest.raises(SchemaMismatchError, match="line 1: column 'v'"):
        io.merge(text(tmp_path, "s.jsonl", '{"id": 2, "v": 7}\n'), lake, "upsert", ["id"])
    with pytest.raises(SchemaMismatchError, match=r"s\.csv cannot hold as text"):
        io.merge(text(tmp_path, "s.csv", "id,v\n1,a\n"), lake, "upsert", ["id"])


def test_deletes_by_text(io: Any, lake: str, tmp_path: Path) -> None:
    assert io.delete(lake, text(tmp_path, "s.csv", "id,why\n1,x\n9,y\n"), ["id"]).deleted == 1
    feed = text(tmp_path, "feed.csv", "id,x,op\n0,,D\n2,C,U\n")
    result = io.merge(feed, lake, "upsert", ["id"], delete_column="op", delete_values=["D"])
    assert (result.deleted, result.updated) == (1, 1)
    assert io.delete(lake, [{"id": 2}], ["id"]).deleted == 1


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "dict": (lambda _: {"id": [1]}, "pyarrow.table"),
    "series": (lambda _: FRAME["id"], "to_frame"),
    "none": (lambda _: None, "source is missing|data or source_sql"),
    "no rows": (lambda _: [], "empty list"),
    "no batches": (lambda _: iter([]), "without batches"),
    "dicts that differ": (lambda _: [{"id": 1, "x": "a"}, {"id": 2}], r"Row 1 of the source has no \['x'\]"),
    "dicts of types": (lambda _: [{"id": 1, "x": "a"}, {"id": 2, "x": 3}], "Column 'x'.*int, str"),
    "list of numbers": (lambda _: [1, 2], "list of int"),
    "iterator of dicts": (lambda _: iter(SOURCE.to_pylist()), "given as a list"),
    "batches that differ": (lambda _: iter([SOURCE, SOURCE.rename_columns(["id", "y"])]), "Batch 1"),
    "index twice": (lambda _: FRAME.set_index("id", drop=False), "as index and as column"),
    "pandas of types": (lambda _: pd.DataFrame({"id": [1, 2], "x": ["a", 3]}), "'?x'?.*Convert the column"),
    "no match": (lambda folder: str(folder / "*.csv"), "No file matches"),
    "excel": (lambda folder: text(folder, "s.xlsx", ""), "read_excel"),
    "no file": (lambda folder: str(folder / "s.csv"), "does not exist"),
    "folder of csv": (lambda folder: text(folder, "in/s.csv", "id,x\n").parent, r"pattern .*in/\*\.csv"),
    "empty csv": (lambda folder: text(folder, "s.csv", ""), "no header"),
    "semicolons": (lambda folder: text(folder, "s.csv", "id;x\n1;A\n"), "';'"),
    "header twice": (lambda folder: text(folder, "s.csv", "id,id\n1,2\n"), r"\['id'\]"),
    "short line": (lambda folder: text(folder, "s.csv", 'id,x\n1,"a\nb"\n5\n'), "line 4: the header names 2 columns"),
    "json array": (lambda folder: text(folder, "s.json", '[\n{"id": 1}\n]'), "Write one object per line"),
    "json scalar": (lambda folder: text(folder, "s.jsonl", "{}\n"), "line 1: not a JSON object"),
    "not json": (lambda folder: text(folder, "s.jsonl", '{"id": 1, "x": "A"}\nid=1\n'), "line 2: not a JSON object"),
    "empty json": (lambda folder: text(folder, "s.jsonl", "\n"), "no rows"),
    "not arrow": (lambda folder: text(folder, "s.arrow", "hello"), "neither an Arrow file"),
    "not gzip": (lambda folder: text(folder, "s.csv.gz", "id,x\n"), "Cannot read"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_source_is_refused(io: Any, lake: str, tmp_path: Path, kind: str) -> None:
    make, message = WRONG[kind]
    before = fingerprint(lake)
    with pytest.raises(FsspeckitError, match=message):
        io.merge(make(tmp_path), lake, "upsert", ["id"])
    assert fingerprint(lake) == before


def test_text_that_is_not_utf8(io: Any, lake: str, tmp_path: Path) -> None:
    for name, content in (("s.csv", b"id,x\n1,\xff\n"), ("s.jsonl", b'{"id": 1, "x": "\xff"}\n')):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ArgumentError, match=f"{name} is not UTF-8"):
            io.merge(tmp_path / name, lake, "upsert", ["id"])
