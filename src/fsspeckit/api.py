"""`fsspeckit.merge` and `fsspeckit.plan`: the engine is chosen by the source's type, or by name."""

from __future__ import annotations

import importlib
from typing import Any

from fsspeckit.core.commit import forget, session
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergePlan, MergeResult
from fsspeckit.core.storage import locate
from fsspeckit.datasets.io import DatasetIO

_ENGINES = {"pyarrow": "PyArrowDatasetIO", "duckdb": "DuckDBDatasetIO", "spark": "SparkDatasetIO"}
_NEEDS = {"duckdb": "'duckdb>=1.1.3'", "spark": "'pyspark[connect]>=4.0,<5' 'pandas>=2.2,<3'"}


def engine_for(source: Any) -> str:
    """`spark` for Spark DataFrames, `duckdb` for DuckDB relations, else `pyarrow`."""
    module = type(source).__module__.partition(".")[0]
    return {"pyspark": "spark", "duckdb": "duckdb", "_duckdb": "duckdb"}.get(module, "pyarrow")


def dataset_io(engine: str, filesystem: Any = None, **options: Any) -> DatasetIO[Any]:
    """The `DatasetIO` of an engine, which must be installed."""
    if engine not in _ENGINES:
        raise ArgumentError(f"Unknown engine {engine!r}. Choose one of {', '.join(map(repr, _ENGINES))}.")
    try:
        module = importlib.import_module(f"fsspeckit.datasets.{engine}")
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"The {engine} engine is not installed ({error}). Run: pip install {_NEEDS[engine]}"
        ) from error
    made: DatasetIO[Any] = getattr(module, _ENGINES[engine])(filesystem=filesystem, **options)
    return made


def merge(
    data: Any,
    path: str | None = None,
    strategy: str | None = None,
    key_columns: Any = None,
    partition_columns: Any = None,
    *,
    engine: str | None = None,
    filesystem: Any = None,
    **options: Any,
) -> MergeResult:
    """Merge `data` into the Parquet data set at `path`; `options` are those of `DatasetIO.merge`.

    With Spark, `table="db.orders"` in place of the path names a table of its catalog.
    """
    io = dataset_io(engine or engine_for(data), filesystem)
    return io.merge(data, path, strategy, key_columns, partition_columns, **options)  # type: ignore[arg-type]


def plan(
    data: Any,
    path: str | None = None,
    strategy: str | None = None,
    key_columns: Any = None,
    partition_columns: Any = None,
    *,
    engine: str | None = None,
    filesystem: Any = None,
    **options: Any,
) -> MergePlan:
    """What `merge` would do, file by file and with exact counts; `options` are those of `DatasetIO.plan`."""
    io = dataset_io(engine or engine_for(data), filesystem)
    return io.plan(data, path, strategy, key_columns, partition_columns, **options)  # type: ignore[arg-type]


def recover(
    path: str,
    filesystem: Any = None,
    lock_timeout: float = 60,
    *,
    finish: bool = False,
    discard: bool = False,
    forget_stream: str | None = None,
) -> list[str]:
    """Finish or clear away what a killed writer left in the data set at `path`; says what was done.

    A recorded commit is finished if every file is as it expects. Where one is not, nothing is changed and a
    `CommitUnfinishedError` tells what was found; then `finish` carries the commit out all the same, and `discard` gives
    it up. `forget_stream` names a stream whose record is then dropped, if it has not moved for seven days.
    """
    if finish and discard:
        raise ArgumentError("A commit can be finished or discarded, not both.")
    location = locate(path, filesystem)
    done = session.recover(location, lock_timeout, "finish" if finish else "discard" if discard else None)
    return done if forget_stream is None else [*done, forget.forget_stream(location, forget_stream, lock_timeout)]
