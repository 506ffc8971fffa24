"""Run one operation in a child process that kills itself at a storage call of one's choice.

A small server (`python -m crash.dying`) has everything imported and forks a child per request; the child wraps every
method of `LocalStorage`, counts, and at its point sends itself SIGKILL: before the call, or half-way through bytes
that are being written. The product has no hooks for this.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crash import row_changes
from fsspeckit.api import recover
from fsspeckit.commits import history, undo
from fsspeckit.core import compact as flow
from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.storage import LocalStorage, locate
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

SOURCE = pa.table(
    {"id": [100, 110, 120, 200, 210, 190, 290], "x": [f"new{i}" for i in range(7)], "p": [1, 1, 1, 2, 2, 1, 2]}
)
EVOLVING = pa.table({"id": [110, 500], "x": ["newer", "newest"], "p": [1, 2], "new": [1.5, None]})
NEXT = pa.table({"id": [100, 500], "x": ["next0", "next1"], "p": [1, 2]})


def _merge(lake: str) -> object:
    return PyArrowDatasetIO().merge(SOURCE, lake, "upsert", ["id"])


def _new_file(lake: str) -> object:
    return PyArrowDatasetIO().merge(SOURCE, lake, "upsert", ["id"], replace="new_file")


def _overwrite(lake: str) -> object:
    return PyArrowDatasetIO().write_dataset(SOURCE, lake, mode="overwrite")


def _overwrite_partitions(lake: str) -> object:
    """One partition gets new rows, the other becomes empty."""
    named = [{"p": 1}, {"p": 2}]
    data = SOURCE.filter(pc.field("p") == 1)
    return PyArrowDatasetIO().write_dataset(data, lake, mode="overwrite_partitions", partitions=named)


def _overwrite_one_partition(lake: str) -> object:
    return PyArrowDatasetIO().write_dataset(SOURCE.filter(pc.field("p") == 1), lake, mode="overwrite_partitions")


def _full_merge(lake: str) -> object:
    return PyArrowDatasetIO().write_parquet_dataset(SOURCE, lake, "full_merge", ["id"])


def _create(lake: str) -> object:
    return PyArrowDatasetIO().merge(SOURCE, lake, "upsert", ["id"], ["p"])


def _evolve(lake: str) -> object:
    return PyArrowDatasetIO().merge(EVOLVING, lake, "upsert", ["id"], on_schema_change="evolve")


def _evolve_append(lake: str) -> object:
    return PyArrowDatasetIO().write_dataset(EVOLVING.slice(1), lake, on_schema_change="evolve")


def remove_files(lake: str) -> object:
    """A commit without additions: some files go, and with them all of the first partition."""
    location = locate(lake)
    with writing(location) as session:
        infos = list_files(location)
        doomed = [f for f in infos if f.path.startswith(("p=1/", "y=1/")) or f.path.endswith("f1.parquet")]
        session.commit([], doomed, infos)
    return None


def _undoable(lake: str) -> object:
    return PyArrowDatasetIO().merge(SOURCE, lake, "upsert", ["id"], undoable=True)


def _undoable_delete(lake: str) -> object:
    return PyArrowDatasetIO().delete(lake, filters=[("id", "<", 115)], replace="new_file", undoable=True)


def _drop(lake: str) -> object:
    return history(lake, keep=0)


def _compact(lake: str) -> object:
    """In two commits: one for each partition."""
    flow._COMMIT_BYTES, flow._FILES_PER_TASK = 1, 0
    return PyArrowDatasetIO().compact(lake)


def _undoable_compact(lake: str) -> object:
    return PyArrowDatasetIO().compact(lake, undoable=True)


OPERATIONS: dict[str, Callable[[str], object]] = {
    "compact": _compact,
    "merge": _merge,
    "new_file": _new_file,
    "overwrite": _overwrite,
    "overwrite_partitions": _overwrite_partitions,
    "overwrite_one_partition": _overwrite_one_partition,
    "full_merge": _full_merge,
    "create": _create,
    "remove": remove_files,
    "evolve": _evolve,
    "evolve_append": _evolve_append,
    **row_changes.OPERATIONS,
    "undoable": _undoable,
    "undoable_delete": _undoable_delete,
    "undoable_compact": _undoable_compact,
    "undo": undo,
    "drop": _drop,
    "recover": recover,
}


class Killer:
    """Counts what may be interrupted; `trace` names every point."""

    def __init__(self, point: int | None) -> None:
        self.point = point
        self.trace: list[str] = []

    def arrive(self, label: str) -> bool:
        """Is this the point to die at?"""
        self.trace.append(label)
        return len(self.trace) - 1 == self.point

    def install(self) -> None:
        for name, method in list(vars(LocalStorage).items()):
            if callable(method) and not name.startswith("_"):
                setattr(LocalStorage, name, self._wrapped(name, method))

    def _wrapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(storage: LocalStorage, *arguments: Any) -> Any:
            """`copy_range` has open files where the others have paths."""
            path = next((argument for argument in arguments[:1] if isinstance(argument, str)), "")
            label = f"{name} {'/'.join(Path(path).parts[-2:])}"
            if self.arrive(label):
                die()
            if name == "write_bytes" and self.arrive(f"half of {label}"):
                method(storage, path, arguments[1][: len(arguments[1]) // 2])
                die()
            result = method(storage, *arguments)
            return DyingSink(result, self, label) if name == "open_output" else result

        return call


class DyingSink:
    """A file being written: every write may be its last, half of it done."""

    def __init__(self, file: Any, killer: Killer, label: str) -> None:
        self._file, self._killer, self._label = file, killer, label

    def write(self, data: Any) -> int:
        if self._killer.arrive(f"half of write to {self._label}"):
            self._file.write(memoryview(data)[: len(data) // 2])
            self._file.flush()
            die()
        return int(self._file.write(data))

    def __enter__(self) -> DyingSink:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def with_tests_on_path() -> dict[str, str]:
    """The environment of a child that imports from `tests`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Server:
    """The process that forks the children, seen from the test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.dying"],
            env=with_tests_on_path(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, operation: str, lake: Path | str, point: int | None = None) -> bool:
        """Run an operation in a child; says whether it was killed. Failing otherwise is an error."""
        code = self._ask(operation, str(lake), point)["code"]
        assert code in (0, -signal.SIGKILL), f"{operation} failed at point {point}; see stderr"
        return bool(code)

    def points(self, operation: str, lake: Path | str) -> list[str]:
        """Run an operation to its end and name the points at which it could have been killed."""
        found: list[str] = self._ask(operation, str(lake), None)["trace"]
        return found

    def _ask(self, operation: str, lake: str, point: int | None) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([operation, lake, point]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _serve() -> None:
    for line in sys.stdin:
        operation, lake, point = json.loads(line)
        readable, writable = os.pipe()
        child = os.fork()
        if not child:
            os.close(readable)
            _run_and_exit(operation, lake, point, writable)
        os.close(writable)
        with open(readable, "rb") as trace:
            said = trace.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"code": code, "trace": json.loads(said or b"[]")}), flush=True)


def _run_and_exit(operation: str, lake: str, point: int | None, writable: int) -> None:
    killer = Killer(point)
    killer.install()
    try:
        OPERATIONS[operation](lake)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os.write(writable, json.dumps(killer.trace).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve()
