"""Streams that compact their data set: few files, every row once, and no batch fails because of a compaction."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core import compact as flow
from fsspeckit.datasets.spark import SparkDatasetIO, register
from fsspeckit.datasets.spark.datasource_options import parse_write_options
from spark_session import HAS_DATA_SOURCE
from support import data_files, rows, write_lake


def frame(spark: Any, number: int) -> Any:
    return spark.range(10 * number, 10 * number + 10).selectExpr("id", f"'batch {number}' x")


def ids(lake: str) -> list[int]:
    return sorted(row["id"] for row in rows(lake))


def test_every_fourth_batch_compacts(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    write = io.foreach_batch(lake, ["id"], app_id="events", compact_every=4)
    files = []
    for number in range(9):
        write(frame(spark, number), number)
        files.append(len(data_files(lake)))
    assert files == [1, 2, 3, 1, 2, 3, 4, 1, 2]
    assert ids(lake) == list(range(90))
    write(frame(spark, 99), 8)
    assert ids(lake) == list(range(90)), "the record of the stream survives compactions"
    with pytest.raises(fsspeckit.ArgumentError, match="compact_every must be a number of batches, 1 or more, not 0"):
        io.foreach_batch(lake, ["id"], app_id="events", compact_every=0)


def test_a_compaction_that_fails_never_fails_the_batch(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [-1], "x": ["old"]})})
    write = io.foreach_batch(lake, ["id"], app_id="events", compact_every=2)
    write(frame(spark, 0), 0)

    def fails(*arguments: Any, **options: Any) -> Any:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "fsspeckit.spark"):
        patch.setattr(flow, "_write", fails)
        write(frame(spark, 1), 1)
    assert "was not compacted after batch 1" in caplog.text and "the disk is gone" in caplog.text
    assert len(data_files(lake)) == 3 and ids(lake) == list(range(-1, 20))
    write(frame(spark, 1), 1)  # a batch that is repeated makes up for it
    assert len(data_files(lake)) == 1 and ids(lake) == list(range(-1, 20))


@pytest.mark.parametrize(
    ("options", "files"), [({"compact_every": "2"}, 2), ({"small_files": "append", "undoable": "true"}, 1)]
)
def test_the_data_source(spark: Any, tmp_path: Path, options: dict[str, str], files: int) -> None:
    if not HAS_DATA_SOURCE:
        pytest.skip("the data source needs Spark 4.1")
    register(spark)
    raw, lake = tmp_path / "raw", str(tmp_path / "lake")
    raw.mkdir()
    for number in range(5):
        (raw / f"{number}.json").write_text("".join(f'{{"id": {10 * number + n}}}\n' for n in range(10)))
    source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(str(raw))
    writer = source.writeStream.format("fsspeckit").options(key="id", strategy="upsert", stream="s", **options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start(lake).awaitTermination()
    assert (len(data_files(lake)), ids(lake)) == (files, list(range(50)))
    assert len(fsspeckit.history(lake)) == (5 if "undoable" in options else 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compact_every": "3"}, "has no effect without the option stream"),
        ({"compact_every": "0", "stream": "s"}, "1 or more, not 0"),
        ({"compact_every": "many", "stream": "s"}, "is a number, not 'many'"),
        ({"undoable": "yes"}, "true or false, not 'yes'"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(fsspeckit.ArgumentError, match=message):
        parse_write_options({"path": "lake", "key": "id", "strategy": "upsert", **options})


def test_a_session_forgets_files_that_an_undo_removes(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"f{n}.parquet": pa.table({"id": [n], "x": ["old"]}) for n in range(3)})
    io.compact(lake, undoable=True)
    frame = spark.read.parquet(lake)
    assert len(frame.inputFiles()) == 1
    cached = frame.cache()
    assert cached.count() == 3
    fsspeckit.undo(lake, engine="spark")
    assert len(data_files(lake)) == 3 and cached.count() == 3
    cached.unpersist()
    with pytest.raises(fsspeckit.ArgumentError, match="Unknown engine 'sparkle'"):
        fsspeckit.undo(lake, engine="sparkle")  # type: ignore[arg-type]
