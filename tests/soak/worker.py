"""A writer of the soak: `python -m soak.worker <engine>` takes operations on standard input, one JSON line each.

PyArrow's and DuckDB's worker forks a child for each operation, so that a death costs nothing; Spark's driver does the
work itself and dies with it. An operation may carry a fate: kill or fail at a storage call, counted from the beginning
or from the moment at which the commit is recorded.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import sys
from typing import Any

import pyarrow as pa

from crash.dying import Killer
from fsspeckit.api import dataset_io
from fsspeckit.commits import history, undo
from fsspeckit.core import compact as compaction
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import CommitUnfinishedError, FsspeckitError
from fsspeckit.core.storage import LocalStorage
from soak.model import COUNTS, WRITES, Operation

TEXTS = ("x", "op")


def schema(columns: list[str], *, is_wide: bool) -> pa.Schema:
    """Text, or int64; `w` is int32 until a value does not fit."""
    types = {**dict.fromkeys(TEXTS, pa.string()), "w": pa.int64() if is_wide else pa.int32()}
    return pa.schema([(name, types.get(name, pa.int64())) for name in columns])


def run(operation: Operation, io: Any) -> dict[str, int]:
    """Run an operation to its end, and return its counts if it has any."""
    source = pa.Table.from_pylist(operation.rows, schema(operation.columns, is_wide=operation.is_wide))
    lake, strategy, options = operation.lake, operation.strategy, dict(operation.options)
    if strategy == "undo":
        undo(lake)
    elif strategy == "forget":
        history(lake, keep=1)
    elif strategy == "compact":
        # A commit for each partition
        compaction._COMMIT_BYTES, compaction._FILES_PER_TASK = 1, 0
        io.compact(lake, **{name: value for name, value in options.items() if value is not None})
    elif strategy in WRITES:
        io.write_dataset(source, lake, mode=strategy, partition_columns=["p"], **options)
    else:
        if strategy == "filter":
            result = io.delete(lake, **options)
        elif strategy in ("full_merge", "deduplicate"):
            result = io.write_parquet_dataset(source, lake, strategy, ["id"], **options)
        else:
            if "batch" in options:
                options["batch"] = Batch("soak", options["batch"])
            result = io.merge(source, lake, strategy, ["id"], **options)
        return {name: getattr(result, name) for name in COUNTS}
    return {}


class Fate(Killer):
    """Dies, or fails, at the operation's point."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(None)
        self._operation, self._calls, self._armed = operation, 0, not operation.recorded

    def arrive(self, label: str) -> bool:
        due = self._armed and self._calls == self._operation.point
        self._calls += self._armed
        self._armed = self._armed or (label.startswith("sync_folder") and self._is_recorded())
        if not due or self._operation.fate == "live":
            return False
        if self._operation.fate == "fail":
            raise OSError(errno.EIO, "injected", label)
        return True

    def _is_recorded(self) -> bool:
        return any(name.startswith(".fsspeckit-commit-") for name in os.listdir(self._operation.lake))


def perform(operation: Operation, io: Any) -> dict[str, Any]:
    """Run an operation to its end, if it comes to one; says what came out."""
    methods = {n: m for n, m in vars(LocalStorage).items() if callable(m) and not n.startswith("_")}
    Fate(operation).install()
    try:
        return {"outcome": "done", "counts": run(operation, io)}
    except CommitUnfinishedError as error:
        return {"outcome": "recorded", "error": str(error)}
    except FsspeckitError as error:
        return {"outcome": "refused", "error": str(error)}
    except Exception as error:
        return {"outcome": "raw", "error": f"{type(error).__name__}: {error}"}
    finally:
        for name, method in methods.items():
            setattr(LocalStorage, name, method)


def _in_a_child(operation: Operation, engine: str) -> dict[str, Any]:
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        said = perform(operation, dataset_io(engine))
        os.write(writable, json.dumps(said).encode()[:60_000])
        os._exit(0)
    os.close(writable)
    with open(readable, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGKILL:
        return {"outcome": "killed"}
    return json.loads(answer) if code == 0 else {"outcome": "raw", "error": f"exit code {code}"}


def _serve(engine: str) -> None:
    answer = functools.partial(_in_a_child, engine=engine)
    if engine == "spark":
        from spark_session import SMALL, local_session

        answer = functools.partial(perform, io=dataset_io("spark", spark=local_session("local[2]", **SMALL)))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(Operation(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
