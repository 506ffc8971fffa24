"""Streams of changes: deletes, several changes of a key in a micro-batch, older rows, some columns."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from fsspeckit import MergeValidationError
from fsspeckit.core.errors import DuplicateKeyError
from fsspeckit.datasets.spark import SparkDatasetIO
from support import data_files, fingerprint, rows, write_lake

FEED: dict[str, Any] = {
    "delete_column": "op",
    "delete_values": ["D"],
    "sequence_by": "ts",
    "on_duplicates": "latest",
}
CHANGES = "op string, id bigint, x string, ts bigint"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Three files of ten rows, all at the time 100."""
    columns = {"x": ["old"] * 10, "ts": [100] * 10}
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), **columns}) for i in range(3)}
    return write_lake(tmp_path / "lake", files)


def by_id(path: str) -> dict[int, tuple[str, int]]:
    found = [(row["id"], (row["x"], row["ts"])) for row in rows(path)]
    assert len(dict(found)) == len(found)
    return dict(found)


OLD = dict.fromkeys(range(30), ("old", 100))


def changes(spark: Any, *found: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(found), CHANGES)


def test_several_changes_of_a_key_in_one_micro_batch(
    spark: Any, io: SparkDatasetIO, lake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restart, Spark puts all files that came meanwhile into one micro-batch."""
    raw = tmp_path / "raw"
    raw.mkdir()
    feed = [
        [("I", 50, "first", 101), ("U", 3, "newer", 101), ("D", 4, None, 101), ("U", 5, "late", 99)],
        [("U", 50, "second", 102), ("D", 3, None, 102), ("U", 4, "again", 103), ("U", 6, "new", 100)],
    ]
    for number, batch in enumerate(feed):
        lines = [json.dumps(dict(zip(("op", "id", "x", "ts"), change, strict=True))) for change in batch]
        (raw / f"{number}.json").write_text("\n".join(lines))
    before = fingerprint(lake)
    source = spark.readStream.schema(CHANGES).json(str(raw))
    write = io.foreach_batch(lake, ["id"], app_id="orders", **FEED)
    query = source.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(write)
    with caplog.at_level("INFO", "fsspeckit.spark"):
        query.trigger(availableNow=True).start().awaitTermination()
    model: dict[int, Any] = {**OLD, 50: ("second", 102), 4: ("again", 103), 6: ("new", 100)}
    del model[3]
    assert by_id(lake) == model
    assert "batch 0 of orders: 1 inserted, 2 updated, 1 deleted, 1 skipped" in caplog.messages
    after = fingerprint(lake)
    assert {name: after[name] for name in ("f1.parquet", "f2.parquet")}.items() <= before.items(), "incremental"


@pytest.mark.parametrize("ids", [[3], range(10), range(30)], ids=["a row", "a file", "all rows"])
@pytest.mark.parametrize("strategy", ["upsert", "delete"])
def test_a_batch_that_only_deletes_is_recorded(
    spark: Any, io: SparkDatasetIO, lake: str, strategy: Any, ids: Any
) -> None:
    """Even if no file is written, because files go as a whole. Spark may give the batch again with other rows."""
    options: dict[str, Any] = FEED if strategy == "upsert" else {}
    write = io.foreach_batch(lake, ["id"], strategy, app_id="orders", **options)
    write(changes(spark, *(("D", i, None, 101) for i in ids)), 4)
    left = {i: row for i, row in OLD.items() if i not in ids}
    assert by_id(lake) == left
    after = fingerprint(lake)
    write(changes(spark, ("D", 29, None, 102), ("D", 28, None, 102)), 4)
    assert fingerprint(lake) == after
    with pytest.raises(MergeValidationError, match="Batch 3"):
        write(changes(spark, ("D", 29, None, 102)), 3)
    write(changes(spark, ("D", 29, None, 102)), 5)
    left.pop(29, None)
    assert by_id(lake) == left
    assert data_files(lake), "the last file stays, with the schema and the record"


def test_a_later_delete_does_not_remove_the_record(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    write = io.foreach_batch(lake, ["id"], app_id="orders", **FEED)
    write(changes(spark, ("U", 3, "new", 101)), 4)
    recorded = [name for name in data_files(lake) if name not in ("f1.parquet", "f2.parquet")]
    assert len(recorded) == 1
    io.delete(lake, list(range(10)), ["id"])
    assert not set(recorded) & set(data_files(lake))
    after = fingerprint(lake)
    write(changes(spark, ("U", 13, "replayed", 101)), 4)
    assert fingerprint(lake) == after


def test_the_error_names_the_options_and_is_logged_in_one_line(
    spark: Any, io: SparkDatasetIO, lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = fingerprint(lake)
    twice = changes(spark, ("U", 1, "a", 101), ("U", 1, "b", 102)).drop("op")
    message = r"1 key\(s\) of \['id'\] occur more than once.*sequence_by=.*on_duplicates='latest'"
    with pytest.raises(DuplicateKeyError, match=message):
        io.foreach_batch(lake, ["id"], app_id="orders")(twice, 7)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1 and told[0].startswith("batch 7 of orders was not merged: The source has duplicate keys")
    tied = changes(spark, ("U", 1, "a", 102), ("U", 1, "b", 102))
    with pytest.raises(DuplicateKeyError, match=r"differing rows, and sequence_by=\['ts'\] leaves ties"):
        io.foreach_batch(lake, ["id"], app_id="orders", **FEED)(tied, 7)
    assert fingerprint(lake) == before


def test_a_failed_query_shows_our_message_first_and_goes_on_with_the_options(
    spark: Any, io: SparkDatasetIO, lake: str, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    changed = [{"op": "U", "id": 1, "x": x, "ts": ts} for x, ts in (("a", 101), ("b", 102))]
    (tmp_path / "raw" / "0.json").write_text("\n".join(map(json.dumps, changed)))
    source = spark.readStream.schema(CHANGES).json(str(tmp_path / "raw"))

    def run(frame: Any, **options: Any) -> None:
        write = io.foreach_batch(lake, ["id"], app_id="orders", **options)
        query = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(write)
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException) as problem:
        run(source.drop("op"))
    first = str(problem.value).splitlines()[0]
    assert "DuplicateKeyError: The source has duplicate keys" in first and "on_duplicates='latest'" in first
    run(source, **FEED)
    assert by_id(lake) == {**OLD, 1: ("b", 102)}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "missing rows": (
        {"delete_missing": "all"},
        "delete_missing cannot be used with batch: a batch of a stream is never",
    ),
    "full_merge": ({"strategy": "full_merge", "on_move": "move"}, "on_move cannot be used with strategy='full_merge'"),
    "deduplicate": ({"strategy": "deduplicate", "sequence_by": "ts"}, "Use upsert, update or delete; on_duplicates="),
    "no sequence": ({"on_duplicates": "latest"}, "on_duplicates needs sequence_by"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_are_checked_before_the_stream_starts(io: SparkDatasetIO, lake: str, case: str) -> None:
    options, words = REFUSED[case]
    with pytest.raises(MergeValidationError) as refused:
        io.foreach_batch(lake, ["id"], app_id="orders", **options)
    assert words in str(refused.value)


def test_some_columns_of_a_frame_that_lacks_others(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    write = io.foreach_batch(lake, ["id"], "update", app_id="orders", update_columns=["x"])
    write(changes(spark, ("U", 3, "new", 0), ("U", 99, "absent", 0)).select("X", "ID"), 0)
    assert by_id(lake) == {**OLD, 3: ("new", 100)}


def test_moves_between_partitions(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "moves", {f"day={d}/f.parquet": pa.table({"id": [d], "x": ["old"]}) for d in (1, 2)})
    write = io.foreach_batch(lake, ["id"], app_id="orders", on_move="move")
    write(spark.createDataFrame([(1, "moved", 2), (3, "new", 3)], "id bigint, x string, day int"), 0)
    found = sorted((row["id"], row["x"], row["day"]) for row in rows(lake))
    assert found == [(1, "moved", "2"), (2, "old", "2"), (3, "new", "3")]
    assert not (Path(lake) / "day=1").exists()


def test_columns_that_a_delete_ignores_are_not_computed(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    frame = spark.range(8, 12).select(
        F.udf(lambda number: number // 0)("id").alias("x"), F.col("id").alias("ID"), F.expr("array() `a.b`")
    )
    result = io.merge(frame, lake, "delete", ["id"])
    assert (result.deleted, result.source_count) == (4, 4)
    assert by_id(lake) == {i: row for i, row in OLD.items() if i not in range(8, 12)}


def test_keys_to_delete_from_files_with_other_columns(io: SparkDatasetIO, lake: str, tmp_path: Path) -> None:
    keys = pa.table({"note": [[1], [2]], "id": pa.array([5, 77], pa.int32())})
    gone = write_lake(tmp_path / "gone", {"keys.parquet": keys})
    assert io.delete(lake, gone, ["id"]).deleted == 1
    assert sorted(by_id(lake)) == [i for i in range(30) if i != 5]
