"""What Spark's UI says of our jobs, asked of Spark's own list of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit import MergeValidationError
from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.spark import SparkDatasetIO
from support import write_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(4)}
    return write_lake(tmp_path / "orders", files)


@pytest.fixture
def described(spark: Any) -> Any:
    """The descriptions of all jobs since the last call."""
    seen = {job.jobId() for job in jobs(spark)}

    def since() -> list[str | None]:
        found = [job for job in jobs(spark) if job.jobId() not in seen]
        seen.update(job.jobId() for job in found)
        return [text(job.description()) for job in sorted(found, key=lambda job: job.jobId())]

    return since


def jobs(spark: Any) -> list[Any]:
    """Spark's UI is off in tests; this is the store that it shows."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(30_000)
    found = context._jsc.sc().statusStore().jobsList(None)
    return [found.apply(i) for i in range(found.size())]


def text(description: Any) -> str | None:
    return description.get() if description.isDefined() else None


def test_every_job_of_a_merge_says_what_it_does(spark: Any, io: SparkDatasetIO, lake: str, described: Any) -> None:
    spark.sparkContext.setJobDescription("the user's own")
    frame = spark.range(5, 25, 10).selectExpr("id", "'new' x").union(spark.sql("select 99L, 'new'"))
    described()
    io.merge(frame, lake, "upsert", ["id"])
    found = described()
    assert found and all(one.startswith("fsspeckit merge orders: ") for one in found)
    for step in ("pin the source", "match 2 of 4 files", "rewrite 2 of 4 files", "write 1 new row"):
        assert f"fsspeckit merge orders: {step}" in found
    io.plan(frame, lake, "upsert", ["id"])
    assert "fsspeckit plan orders: match 3 of 5 files" in described()
    spark.range(3).collect()
    assert set(described()) == {"the user's own"}


def test_the_users_description_is_back_after_an_error(
    spark: Any, io: SparkDatasetIO, lake: str, described: Any
) -> None:
    for own in ("mine", None):
        spark.sparkContext.setJobDescription(own)
        with pytest.raises(MergeValidationError, match="duplicate"):
            io.merge(spark.sql("select 1L id, 'a' x union all select 1L, 'b'"), lake, "upsert", ["id"])
        assert spark.sparkContext.getLocalProperty("spark.job.description") == own
        described()
        spark.range(3).collect()
        assert not any("fsspeckit" in str(one) for one in described())


def test_a_batch_of_a_stream_is_told_too(spark: Any, io: SparkDatasetIO, lake: str, described: Any) -> None:
    spark.sparkContext.setJobDescription("stream")
    io.foreach_batch(lake, ["id"], app_id="events")(spark.range(5, 6).selectExpr("id", "'new' x"), 0)
    assert "fsspeckit merge orders: match 1 of 4 files" in described()
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "stream"
    spark.sparkContext.setJobDescription(None)


def test_a_session_that_was_stopped_is_told(spark: Any, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    io = SparkDatasetIO(spark)
    with monkeypatch.context() as stopped:
        stopped.setattr(spark.sparkContext, "_jsc", None)  # what `stop` leaves; others still need this one
        targets: list[Any] = [{"path": lake}, {"table": "orders"}]
        for target in targets:
            with pytest.raises(ArgumentError, match="The Spark session was stopped"):
                io.merge(pa.table({"id": [1], "x": ["new"]}), strategy="upsert", key_columns=["id"], **target)
    assert io.merge(pa.table({"id": [1], "x": ["new"]}), lake, "upsert", ["id"]).updated == 1
