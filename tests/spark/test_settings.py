"""Settings of sessions as companies have them: adaptive execution off, and few or many shuffle partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_session import settings
from support import rows, write_lake

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


@pytest.mark.parametrize(
    ("adaptive", "partitions"), [("true", "2000"), ("false", "1"), ("false", "200"), ("true", "1")]
)
def test_a_joined_and_shuffled_merge(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, adaptive: str, partitions: str
) -> None:
    """Keys are joined and rows shuffled, although there are few."""
    files = {f"f{i}.parquet": pa.table({"id": range(i * 100, i * 100 + 100), "x": ["old"] * 100}) for i in range(4)}
    lake = write_lake(tmp_path / "lake", files)
    conf = {BROADCAST: "-1", "spark.sql.adaptive.enabled": adaptive, "spark.sql.shuffle.partitions": partitions}
    with settings(spark, **conf):
        before = spark.sql("SET").collect()
        result = io.merge(spark.range(0, 500, 5).selectExpr("id", "'new' x"), lake, "upsert", ["id"])
        assert spark.sql("SET").collect() == before
    assert (result.inserted, result.updated, result.changed) == (20, 80, 80)
    assert {row["id"]: row["x"] for row in rows(lake)} == {
        **{i: "new" if i % 5 == 0 else "old" for i in range(400)},
        **dict.fromkeys(range(400, 500, 5), "new"),
    }


@pytest.mark.slow
def test_20_000_files(spark: Any, io: SparkDatasetIO, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Executors read the footers. What it costs is in benchmarks/pipelines."""
    if not request.config.getoption("--wide"):
        pytest.skip("takes a minute or two: make torture")
    files, table = 20_000, pa.table({"id": [0, 1], "x": ["old", "old"]})
    for number in range(files):
        folder = tmp_path / "lake" / f"day={number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.set_column(0, "id", pa.array([2 * number, 2 * number + 1])), folder / f"{number}.parquet")
    lake = str(tmp_path / "lake")
    frame = spark.range(0, 2 * files, 1001).selectExpr("id", "'new' x", "CAST(id div 2 % 50 AS int) day")
    result = io.merge(frame, lake, "upsert", ["id", "day"])
    assert (result.inserted, result.updated, len(result.rewritten_files)) == (0, 40, 40)
    assert len(result.preserved_files) == files - 40
    found = spark.read.parquet(lake).where("x = 'new'").select("id").collect()
    assert sorted(row["id"] for row in found) == list(range(0, 40_000, 1001))
    assert spark.read.parquet(lake).count() == 2 * files
