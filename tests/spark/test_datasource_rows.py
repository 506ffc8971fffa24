"""`format("fsspeckit")` with the options about rows: deletes, feeds, older rows, some columns, missing rows, moves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.spark import register
from support import fingerprint, rows, write_lake

FEED = {"delete_column": "op", "delete_values": "D,d", "sequence_by": "ts", "on_duplicates": "latest"}
CHANGES = "op string, id bigint, x string, ts bigint"
OLD = dict.fromkeys(range(30), ("old", 100))


@pytest.fixture(autouse=True)
def registered(spark: Any) -> None:
    register(spark)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Three files of ten rows, all at the time 100."""
    columns = {"x": ["old"] * 10, "ts": [100] * 10}
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), **columns}) for i in range(3)}
    return write_lake(tmp_path / "lakes/orders", files)


def save(frame: Any, path: str, **options: str) -> None:
    frame.write.format("fsspeckit").options(**options).mode("append").save(path)


def by_id(path: str) -> dict[int, tuple[str, int]]:
    found = [(row["id"], (row["x"], row["ts"])) for row in rows(path)]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_feed(spark: Any, lake: str) -> None:
    feed = [("D", 1, None, 101), ("d", 2, None, 99), ("U", 3, "a", 101), ("U", 3, "b", 102), ("I", 50, "new", 1)]
    save(spark.createDataFrame(feed, CHANGES), lake, key="id", strategy="upsert", **FEED)
    model: dict[int, Any] = {**OLD, 3: ("b", 102), 50: ("new", 1)}
    del model[1]
    assert by_id(lake) == model


def test_deletes_with_columns_that_are_ignored(spark: Any, lake: str) -> None:
    frame = spark.range(8, 12).selectExpr("interval '1' day pause", "id", "'x' x", "99L ts")
    save(frame, lake, key="id", strategy="delete", sequence_by="ts")
    assert by_id(lake) == OLD
    save(frame, lake, key="id", strategy="delete")
    assert by_id(lake) == {i: row for i, row in OLD.items() if i not in range(8, 12)}


def test_some_columns_and_missing_rows(spark: Any, lake: str) -> None:
    frame = spark.createDataFrame([(3, "new"), (4, "new")], "id bigint, x string")
    save(frame, lake, key="id", strategy="update", update_columns='["x"]')
    assert by_id(lake) == {**OLD, 3: ("new", 100), 4: ("new", 100)}
    kept = spark.createDataFrame([(3, "kept", 1)], "id bigint, x string, ts bigint")
    save(kept, lake, key="id", strategy="upsert", exclude_columns="x,ts", delete_missing="all")
    assert by_id(lake) == {3: ("new", 100)}


def test_moves_and_values_of_other_types(spark: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "moves", {f"day={d}/f.parquet": pa.table({"id": [d]}) for d in (1, 2, 3)})
    frame = spark.createDataFrame([(1, 2, 0), (3, None, 7)], "id bigint, day int, gone int")
    options = {"on_move": "move", "delete_column": "gone", "delete_values": "[7, 8]"}
    save(frame, lake, key="id", strategy="upsert", **options)
    assert sorted((row["id"], row["day"]) for row in rows(lake)) == [(1, "2"), (2, "2")]


WRONG = {
    "no strategy": ({"sequence_by": "ts"}, "The option sequence_by has no effect without a strategy"),
    "not a list": ({"key": "id", "strategy": "update", "update_columns": "[x"}, "'[x' is not a JSON list"),
    "combination": ({"key": "id", "strategy": "delete", "on_move": "move"}, "on_move cannot be used with strategy="),
    "value": ({"key": "id", "strategy": "upsert", "on_move": "yes"}, "Unknown on_move 'yes'"),
    "type": (
        {"key": "id", "strategy": "upsert", "delete_column": "op", "delete_values": "[1]"},
        "delete_values are [1], and delete_column 'op' is string",
    ),
    "duplicates": ({"key": "id", "strategy": "update", "update_columns": "x"}, "on_duplicates='latest'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_say_our_words_first_and_change_nothing(spark: Any, lake: str, case: str) -> None:
    options, words = WRONG[case]
    before = fingerprint(lake)
    frame = spark.createDataFrame([("D", 1, "x", 1), ("D", 1, "y", 2)], CHANGES)
    frame = frame.drop("op") if case == "duplicates" else frame
    with pytest.raises(Exception, match="fsspeckit") as problem:
        save(frame, lake, **options)
    first = str(problem.value).splitlines()[0]
    assert "fsspeckit.core.errors." in first and words in first
    assert fingerprint(lake) == before
    assert os.listdir(Path(lake).parent) == ["orders"]


def query(spark: Any, raw: Path, lake: str, checkpoint: Path, **options: str) -> None:
    frame = spark.readStream.schema(CHANGES).json(str(raw))
    writer = frame.writeStream.format("fsspeckit").options(key="id", strategy="upsert", stream="orders", **options)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(lake).awaitTermination()


def test_a_stream_with_several_changes_of_a_key_in_one_micro_batch(spark: Any, lake: str, tmp_path: Path) -> None:
    raw, checkpoint = tmp_path / "raw", tmp_path / "checkpoint"
    raw.mkdir()

    def arrive(name: str, *changes: tuple[Any, ...]) -> None:
        lines = [json.dumps(dict(zip(("op", "id", "x", "ts"), change, strict=True))) for change in changes]
        (raw / f"{name}.json").write_text("\n".join(lines))

    arrive("0", ("U", 3, "a", 101), ("U", 4, "a", 101), ("I", 50, "a", 101))
    arrive("1", ("U", 3, "b", 102), ("D", 4, None, 102), ("U", 50, "b", 99))
    with pytest.raises(Exception, match=r"DuplicateKeyError: The source has duplicate keys.*on_duplicates='latest'"):
        query(spark, raw, lake, checkpoint, delete_column="op", delete_values="D")
    assert by_id(lake) == OLD
    query(spark, raw, lake, checkpoint, **FEED)
    model: dict[int, Any] = {**OLD, 3: ("b", 102), 50: ("a", 101)}
    del model[4]
    assert by_id(lake) == model, "the query goes on from its checkpoint with the options that the error names"
    arrive("2", *(("D", i, None, 103) for i in range(20, 30)))
    query(spark, raw, lake, checkpoint, **FEED)
    model = {i: row for i, row in model.items() if not 20 <= i < 30}
    assert by_id(lake) == model
    after = fingerprint(lake)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    query(spark, raw, lake, checkpoint, **FEED)
    assert fingerprint(lake) == after, "the batch of deletes is recorded, and was given twice"


def test_missing_rows_are_refused_in_streams(spark: Any, lake: str, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/0.json").write_text("{}")
    with pytest.raises(Exception, match="delete_missing cannot be used with batch: a batch of a stream is never"):
        query(spark, tmp_path / "raw", lake, tmp_path / "checkpoint", delete_missing="all")
