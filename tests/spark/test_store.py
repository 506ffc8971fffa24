"""Few rows stay in the memory of the driver; executors get them in the shared folder when a job needs them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.rows.store import SharedFolder, _FileWriter
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.store import DriverStore
from spark_session import settings
from support import rows, write_lake


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": list(values)})


def values(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [value for b in batches for value in b.column("x").to_pylist()]


def test_a_store_of_the_driver_is_a_folder_for_executors(tmp_path: Path) -> None:
    made = list[str]()

    def folder() -> SharedFolder:
        made.append("folder")
        (tmp_path / "scratch").mkdir()
        return SharedFolder(LocalStorage(), str(tmp_path / "scratch"), temporary=True)

    store = DriverStore(folder)
    writer = store.writer("rows")
    for numbers in ((1, 2), (3,)):
        writer.write(batch(*numbers))
    first = writer.finish()
    assert (values(store.read(first)), values(store.read(first, [1])), made) == ([1, 2, 3], [3], [])
    with pytest.raises(AssertionError, match="before every job"):
        pickle.dumps(store)

    store.share()
    later = store.writer("hits")
    later.write(batch(4))
    second = later.finish()
    with pytest.raises(AssertionError, match="before every job"):
        pickle.dumps(store)
    store.share()
    executor: SharedFolder = pickle.loads(pickle.dumps(store))
    assert values(executor.read(first)) == [1, 2, 3]
    assert values(executor.read(first, [1])) == [3]
    assert values(executor.read(second)) == [4]
    back = executor.writer("parts")
    back.write(batch(5))
    assert values(store.read(back.finish())) == [5]
    assert made == ["folder"]
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_batches_is_shared(tmp_path: Path) -> None:
    store = DriverStore(lambda: SharedFolder(LocalStorage(), str(tmp_path)))
    empty = store.writer("hits").finish()
    store.share()
    assert values(store.read(empty)) == values(pickle.loads(pickle.dumps(store)).read(empty)) == []


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The batch files that the driver writes into a shared folder."""
    names = list[str]()
    write = _FileWriter.finish

    def finish(self: _FileWriter) -> Any:
        names.append(self.file.name.split("-")[0])
        return write(self)

    monkeypatch.setattr(_FileWriter, "finish", finish)
    return names


def frame(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table.to_pandas())


@pytest.mark.parametrize("kind", ["table", "path", "frame"])
@pytest.mark.parametrize("driver_bytes", ["8m", "64k"])
def test_few_rows_reach_the_target_without_a_file_between(
    spark: Any, tmp_path: Path, kind: str, driver_bytes: str, written: list[str]
) -> None:
    """With 64 kB the rows are few, but opening a file is work for executors: they are sent the rows."""
    lake = write_lake(
        tmp_path / "lake", {f"f{i}.parquet": pa.table({"id": [i, i + 10], "x": ["a", "b"]}) for i in range(3)}
    )
    new = pa.table({"id": [1, 12, 99], "x": ["n"] * 3})
    pq.write_table(new, tmp_path / "new.parquet")
    source = {"table": new, "path": str(tmp_path / "new.parquet"), "frame": frame(spark, new)}[kind]
    with settings(spark, spark__fsspeckit__driverBytes=driver_bytes):
        planned = SparkDatasetIO(spark).plan(source, lake, "upsert", ["id"])
        result = SparkDatasetIO(spark).merge(source, lake, "upsert", ["id"])
    assert (planned.inserted, planned.updated) == (result.inserted, result.updated) == (1, 2)
    found = {row["id"]: row["x"] for row in rows(lake)}
    assert found == {0: "a", 10: "b", 1: "n", 11: "b", 2: "a", 12: "n", 99: "n"}
    if driver_bytes == "8m":
        assert written == []
    else:
        assert {"rows", "keys"} <= set(written) or kind == "path"  # a path of 64 kB is not read by the driver
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "new.parquet"]
