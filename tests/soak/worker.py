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
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crash.dying import Killer
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import CommitUnfinishedError, FsspeckitError
from fsspeckit.core.storage import LocalStorage

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string()), ("n", pa.int64()), ("p", pa.int64())])
_COLUMNS = SCHEMA.append(pa.field("op", pa.string()))
COUNTS = ("inserted", "updated", "deleted", "skipped", "moved")


@dataclass(frozen=True)
class Operation:
    """A merge or a write, and what befalls it: `kill` or `fail` at call `point`, after the commit point or before."""

    lake: str
    rows: list[dict[str, Any]]
    strategy: str
    options: dict[str, Any]
    fate: str = "live"
    recorded: bool = False
    point: int = 0

    @property
    def source(self) -> pa.Table:
        """The columns that the rows have: a delete has only keys, and a feed has one more that says what to do."""
        names = self.rows[0].keys() if self.rows else SCHEMA.names
        return pa.Table.from_pylist(self.rows, pa.schema([field for field in _COLUMNS if field.name in names]))

    def run(self, io: Any, source: Any) -> dict[str, int]:
        if self.strategy in ("append", "overwrite"):
            io.write_dataset(source, self.lake, mode=self.strategy, partition_columns=["p"])
            return {}
        if self.strategy in ("full_merge", "deduplicate"):
            result = io.write_parquet_dataset(source, self.lake, self.strategy, ["id"])
        else:
            result = io.merge(source, self.lake, self.strategy, ["id"], **self.options)
        return {name: getattr(result, name) for name in COUNTS}


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
        return {"outcome": "done", "counts": operation.run(io, operation.source)}
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
    run = functools.partial(_in_a_child, engine=engine)
    if engine == "spark":
        from spark_session import SMALL, local_session

        run = functools.partial(perform, io=dataset_io("spark", spark=local_session("local[2]", **SMALL)))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(Operation(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
