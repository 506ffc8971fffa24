"""Streams: a batch is committed exactly once, whatever happens between the commit and Spark's checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import MergeValidationError, recover
from fsspeckit.core.commit import forget
from fsspeckit.core.dataset.ledger import PREFIX
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_process import kill, start
from support import all_names, fingerprint, rows, write_lake


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
def test_a_batch_without_effect_writes_nothing(spark: Any, io: SparkDatasetIO, lake: str, batch: Any) -> None:
    """Given again, it is as if it had come once, later."""
    write = io.foreach_batch(lake, ["id"], app_id="events")
    write(frame(spark, {7: "first"}), 2)
    before = fingerprint(lake)
    write(frame(spark, batch), 3)
    assert fingerprint(lake) == before
    write(frame(spark, batch), 3)
    assert fingerprint(lake) == before
    write(frame(spark, {6: "next"}), 4)
    write(frame(spark, {6: "replayed"}), 4)
    assert by_id(lake) == {**dict.fromkeys(range(30), "old"), 7: "first", 6: "next"}
    with pytest.raises(MergeValidationError, match="Batch 3"):
        write(frame(spark, {6: "late"}), 3)


@pytest.mark.parametrize("strategy", ["upsert", "update"])
def test_a_batch_without_effect_makes_no_data_set(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, strategy: Any
) -> None:
    new = tmp_path / "new"
    io.foreach_batch(str(new), ["id"], strategy=strategy, app_id="events")(frame(spark, {}), 0)
    assert not new.exists()


def test_a_stream_is_forgotten_when_it_has_not_moved_for_a_week(
    spark: Any, io: SparkDatasetIO, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for app_id, batch in (("ended", {5: "A", 99: "new"}), ("other", {15: "B"})):
        io.foreach_batch(lake, ["id"], app_id=app_id)(frame(spark, batch), 4)
    before = fingerprint(lake)
    with pytest.raises(ValueError, match=r"no stream 'nobody'. It has 'ended', 'other'"):
        recover(lake, forget_stream="nobody")
    with pytest.raises(ValueError, match=r"last batch 0.0 days ago, and can be forgotten after 7"):
        recover(lake, forget_stream="ended")
    assert fingerprint(lake) == before
    later = time.time() + 8 * 86_400
    monkeypatch.setattr(forget, "time", SimpleNamespace(time=lambda: later))
    assert recover(lake, forget_stream="ended") == ["Forgot the stream 'ended'; its entry was in 3 file(s)."]
    monkeypatch.undo()
    assert by_id(lake) == {**dict.fromkeys(range(30), "old"), 5: "A", 99: "new", 15: "B"}
    untouched = [name for name in before if name in ("f2.parquet",)]
    assert {name: fingerprint(lake)[name] for name in untouched} == {name: before[name] for name in untouched}
    assert spark.read.parquet(lake).count() == 31
    io.foreach_batch(lake, ["id"], app_id="ended")(frame(spark, {5: "again"}), 0)
    assert by_id(lake)[5] == "again", "a new stream under the old name"
    io.foreach_batch(lake, ["id"], app_id="other")(frame(spark, {15: "replayed"}), 4)
    assert by_id(lake)[15] == "B", "the other stream is still known"


def test_an_entry_without_a_time_is_as_old_as_its_file(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written before entries had one."""
    table = pa.table({"id": [1], "x": ["a"]}).replace_schema_metadata({f"{PREFIX}s": '{"batch": 1, "query": null}'})
    pq.write_table(table, f"{lake}/recorded.parquet")
    with pytest.raises(ValueError, match="days ago"):
        recover(lake, forget_stream="s")
    os.utime(f"{lake}/recorded.parquet", (0, 0))
    assert recover(lake, forget_stream="s") == ["Forgot the stream 's'; its entry was in 1 file(s)."]
    assert pq.read_metadata(f"{lake}/recorded.parquet").metadata.keys() == {b"ARROW:schema"}
    assert len(rows(lake)) == 31


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


@dataclass(frozen=True)
class Stream:
    """The stream of `jobs/stream.py`: a file is a batch of ten rows."""

    raw: Path
    lake: Path
    checkpoint: Path

    def add_files(self, count: int) -> None:
        self.raw.mkdir()
        for i in range(count):
            (self.raw / f"{i}.json").write_text("".join(json.dumps({"n": i * 10 + k}) + "\n" for k in range(10)))

    @contextlib.contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        process = start("stream", str(self.raw), str(self.lake), str(self.checkpoint), *options)
        too_long = threading.Timer(200, kill, [process])
        too_long.start()
        try:
            yield process
        finally:
            too_long.cancel()
            kill(process)

    def run(self, *options: str) -> tuple[list[str], int]:
        """What a run tells, and how it ends."""
        with self.running(*options) as process:
            out, problems = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), problems[-4000:]
        return out.splitlines()[1:], process.returncode

    def die_between_commits(self, batches: int) -> None:
        """A run that dies when the last of so many batches is committed to the lake and not yet by Spark."""
        printed, ended = self.run(str(batches))
        assert ended == -signal.SIGKILL
        assert len(printed) == batches
        assert (self.checkpoint / "offsets" / printed[-1]).exists()
        assert not (self.checkpoint / "commits" / printed[-1]).exists()
        assert len(rows(self.lake)) == 10 * int(printed[-1]) + 10

    def die_at_random(self, chance: random.Random) -> None:
        """A run that is killed some moment after one of its first lines."""
        line = chance.randrange(3)
        with self.running() as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(line + 1)]
            assert seen[0] == "started\n"
            time.sleep(chance.uniform(0, 0.8 if line else 6))
            kill(process)
            assert "done\n" not in [*seen, *process.stdout]


@pytest.mark.slow
def test_a_query_that_is_killed_ends_as_if_it_had_not_been(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills, chance = request.config.getoption("--kills"), random.Random(20)
    stream = Stream(tmp_path / "raw", tmp_path / "lake", tmp_path / "checkpoint")
    stream.add_files(3 * kills)
    for number in range(kills):
        if number % 2 == 0:
            stream.die_between_commits(1 + number // 2 % 3)
        else:
            stream.die_at_random(chance)
    *printed, end = stream.run()[0]
    assert printed and end == "done"
    assert sorted(row["n"] for row in rows(stream.lake)) == list(range(30 * kills))
    assert set(os.listdir(tmp_path)) == {"raw", "lake", "checkpoint"}
    assert all(name.endswith(".parquet") for name in all_names(stream.lake))
