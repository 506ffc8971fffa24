"""Streams: a batch is committed exactly once, whatever happens between the commit and Spark's checkpoint."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit import MergeValidationError
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_process import kill, start
from support import data_files, fingerprint, rows, write_lake

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def io(spark: Any) -> SparkDatasetIO:
    return SparkDatasetIO(spark)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
    return write_lake(tmp_path / "lake", files)


def by_id(path: str) -> dict[int, str]:
    found = [(row["id"], row["x"]) for row in rows(path)]
    assert len(dict(found)) == len(found)
    return dict(found)


def frame(spark: Any, found: dict[int, str]) -> Any:
    return spark.createDataFrame(list(found.items()) or [], "id bigint, x string")


def test_a_batch_given_again_with_other_rows_changes_nothing(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    write = io.foreach_batch(lake, ["id"], app_id="events")
    write(frame(spark, {5: "A", 99: "new"}), 0)
    before = fingerprint(lake)
    write(frame(spark, {5: "B", 6: "C", 100: "more"}), 0)
    assert fingerprint(lake) == before
    write(frame(spark, {6: "C"}), 1)
    assert by_id(lake) | {5: "A", 6: "C", 99: "new"} == by_id(lake)


def test_an_update_between_commit_and_replay_survives(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    write = io.foreach_batch(lake, ["id"], app_id="events")
    write(frame(spark, {5: "stream"}), 7)
    PyArrowDatasetIO().merge(pa.table({"id": [5], "x": ["by hand"]}), lake, "upsert", ["id"])
    write(frame(spark, {5: "stream"}), 7)
    assert by_id(lake)[5] == "by hand"


@pytest.mark.parametrize("batch", [{}, {5: "old"}], ids=["empty", "changes nothing"])
def test_a_batch_without_effect_is_recorded_too(spark: Any, io: SparkDatasetIO, lake: str, batch: Any) -> None:
    before = sorted(map(repr, rows(lake)))
    write = io.foreach_batch(lake, ["id"], app_id="events")
    write(frame(spark, batch), 3)
    assert sorted(map(repr, rows(lake))) == before
    PyArrowDatasetIO().merge(pa.table({"id": [5], "x": ["by hand"]}), lake, "upsert", ["id"])
    write(frame(spark, {5: "replayed"}), 3)
    assert by_id(lake)[5] == "by hand"


@pytest.mark.parametrize("strategy", ["upsert", "update"])
def test_a_batch_without_effect_on_a_new_data_set_is_recorded(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, strategy: str
) -> None:
    new = str(tmp_path / "new")
    write = io.foreach_batch(new, ["id"], strategy=strategy, app_id="events")
    write(frame(spark, {}), 0)
    assert rows(new) == []
    write(frame(spark, {1: "replayed with a row"}), 0)
    assert rows(new) == []


def overwrite(lake: str) -> None:
    PyArrowDatasetIO().write_dataset(pa.table({"id": [1], "x": ["one"]}), lake, "overwrite")


def full_merge(lake: str) -> None:
    PyArrowDatasetIO().write_parquet_dataset(pa.table({"id": [1], "x": ["one"]}), lake, "full_merge", ["id"])


def full_rewrite(lake: str) -> None:
    PyArrowDatasetIO().write_parquet_dataset(pa.table({"id": [1], "x": ["one"]}), lake, "upsert", ["id"])


def rewrite_twice(lake: str) -> None:
    for value in ("a", "b"):
        table = pa.table({"id": range(30), "x": [value] * 30})
        PyArrowDatasetIO().merge(table, lake, "upsert", ["id"])


@pytest.mark.parametrize("other", [overwrite, full_merge, full_rewrite, rewrite_twice], ids=lambda f: f.__name__)
def test_the_record_survives_other_writers(spark: Any, io: SparkDatasetIO, lake: str, other: Any) -> None:
    write = io.foreach_batch(lake, ["id"], app_id="events")
    write(frame(spark, {29: "stream"}), 4)
    other(lake)
    before = fingerprint(lake)
    write(frame(spark, {29: "again", 7: "more"}), 4)
    assert fingerprint(lake) == before


def test_a_batch_older_than_the_record_is_an_error(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    write = io.foreach_batch(lake, ["id"], app_id="events")
    write(frame(spark, {5: "A"}), 4)
    before = fingerprint(lake)
    with pytest.raises(MergeValidationError, match=r"Batch 3 .*after batch 4 was committed.*new app_id"):
        write(frame(spark, {5: "B"}), 3)
    assert fingerprint(lake) == before
    io.foreach_batch(lake, ["id"], app_id="other")(frame(spark, {5: "B"}), 3)
    assert by_id(lake)[5] == "B"


def test_another_query_needs_another_app_id(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    raw, lake = tmp_path / "raw", str(tmp_path / "lake")
    raw.mkdir()
    (raw / "a.json").write_text('{"id": 1, "x": "a"}\n')
    run_query(spark, io, raw, lake, tmp_path / "checkpoint")
    assert by_id(lake) == {1: "a"}
    with pytest.raises(Exception, match="Another query"):
        run_query(spark, io, raw, lake, tmp_path / "new checkpoint")


def run_query(spark: Any, io: SparkDatasetIO, raw: Path, lake: str, checkpoint: Path) -> None:
    source = spark.readStream.schema("id bigint, x string").json(str(raw))
    write = io.foreach_batch(lake, ["id"], app_id="events")
    query = source.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    query.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.slow
@pytest.mark.xdist_group("spark-stream")
def test_a_query_that_is_killed_ends_as_if_it_had_not_been(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    raw, lake, kills = tmp_path / "raw", tmp_path / "lake", request.config.getoption("--kills")
    raw.mkdir()
    for i in range(4 * kills):
        (raw / f"{i}.json").write_text("".join(json.dumps({"n": i * 10 + k}) + "\n" for k in range(10)))
    survive_kills(kills, random.Random(20), str(raw), str(lake), str(tmp_path / "checkpoint"))
    assert sorted(row["n"] for row in rows(lake)) == list(range(40 * kills))
    assert [name for name in data_files(tmp_path) if not name.startswith("lake/")] == []


def survive_kills(times: int, chance: random.Random, *folders: str) -> None:
    """Run the stream, killing it at random moments; the last run goes to its end."""
    for kills_left in range(times, -1, -1):
        process = start("stream", *folders)
        try:
            if kills_left:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n"
                time.sleep(chance.uniform(3, 9))
            else:
                out, problems = process.communicate(timeout=300)
                assert out.endswith("done\n"), problems[-4000:]
        finally:
            kill(process)
