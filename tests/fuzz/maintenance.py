"""A mutant as a file of a data set that is compacted, gets a column, loses rows, or is put back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from fsspeckit.commits import undo
from fsspeckit.core.rewrite import compaction
from fuzz import oracle
from fuzz.case import Finding, content, engine_io
from fuzz.target import TargetTrial

_FULL_ROWS = compaction.FULL_ROWS
_NEW = "extra"


class MaintenanceTrial(TargetTrial):
    """The source of `evolve` has rows of the companion only, so that the mutant gets the column and nothing else."""

    def prepare(self) -> None:
        super().prepare()
        if self.case.operation == "evolve":
            other = pa.concat_tables(oracle.read(self.case.sample.companion)).slice(0, 2)
            self.source = other.append_column(_NEW, pa.array(["a", None]))

    def act(self) -> Any:
        io, operation = engine_io(self.case.engine), self.case.operation
        compaction.FULL_ROWS = 1 if operation in ("copy", "cut") else _FULL_ROWS  # the files to break have few rows
        if operation in ("compact", "copy"):
            return io.compact(self.lake)
        if operation == "sort":
            return io.compact(self.lake, sort_by="id")
        if operation == "cut":
            return io.compact(self.lake, target_size=100)
        if operation == "evolve":
            return io.merge(self.source, self.lake, "upsert", ["id"], on_schema_change="evolve")
        if operation == "delete":
            return io.delete(self.lake, self.source, ["id"])
        if operation == "delete filter":
            return io.delete(self.lake, filters=[("id", "<", self._least())])
        if operation == "append rows":
            return io.merge(self.source, self.lake, "upsert", ["id"], small_files="append")
        result = io.merge(self.source, self.lake, "upsert", ["id"], undoable=True)
        undo(self.lake)
        return result

    def verdict(self, result: Any, before: dict[str, bytes]) -> str:
        operation, after = self.case.operation, content(self.folder)
        if operation == "undo":
            if after != before:
                raise Finding(f"other files after undo: {sorted(after.keys() ^ before.keys())}")
            return "undone"
        old = [before["lake/a.parquet"], before["lake/b.parquet"]]
        new = [path.read_bytes() for path in sorted(Path(self.lake).rglob("*.parquet"))]
        try:
            names = list(dict.fromkeys(name for raw in old for name in oracle.read(raw)[0].column_names))
        except oracle.Unread as error:
            return self._same_damage(old, new, error)
        names = ["id", *(name for name in names if name != "id"), *([_NEW] if operation == "evolve" else [])]
        target = [row for raw in old for row in oracle.rows(oracle.read(raw), names, loose=True)]
        expected = self._expected(target, names)
        try:
            found = Counter(row for raw in new for row in oracle.rows(oracle.read(raw), names, loose=True))
        except oracle.Unread as error:
            raise Finding(f"the lake cannot be read after {operation}: {error}") from error
        if found != expected:
            if operation in ("delete", "delete filter", "append rows", "evolve") and oracle.statistics_lie(
                old[0], "id"
            ):
                return "statistics lie"
            lost, more = list((expected - found).items())[:2], list((found - expected).items())[:2]
            raise Finding(f"other rows than PyArrow reads: lacks {lost}, has {more}")
        return f"{operation}: {len(new)} file(s)"

    def _expected(self, target: list[oracle.Row], names: list[str]) -> Counter[oracle.Row]:
        operation = self.case.operation
        if operation in ("delete filter", "compact", "copy", "sort", "cut"):
            (least,) = oracle.cells(pa.array([self._least()]))
            gone = operation == "delete filter"
            return Counter(row for row in target if not gone or row[0] is None or row[0] >= least)
        return oracle.merged(target, oracle.rows([self.source], names, loose=True), self._strategy)

    @property
    def _strategy(self) -> str:
        return "delete" if self.case.operation == "delete" else "upsert"

    def _same_damage(self, old: list[bytes], new: list[bytes], why: Exception) -> str:
        """PyArrow does not read the mutant. What it does not read of it is still not read, and nothing else is lost."""
        operation = self.case.operation
        names = [*self.names(), *([_NEW] if operation == "evolve" else [])]
        groups_before, groups_after = (_groups(files, names) for files in (old, new))
        expected = self._expected([row for rows in groups_before if rows is not None for row in rows], names)
        found = Counter(row for rows in groups_after if rows is not None for row in rows)
        unread = [sum(rows is None for rows in groups) for groups in (groups_before, groups_after)]
        if unread[0] > unread[1] and operation.startswith("delete"):  # a row group may lose all its rows unread
            unread = [len(self._keys_after(old)), len(self._keys(new))]
        if unread[0] != unread[1] or found != expected:
            lost, more = list((expected - found).items())[:2], list((found - expected).items())[:2]
            raise Finding(
                f"{unread[0]} row groups were not read and {unread[1]} are not; lacks {lost}, has {more}: {why}"
            )
        return f"{operation} around damage"

    def _keys_after(self, files: list[bytes]) -> list[oracle.Row]:
        """The keys that the delete leaves."""
        return list(self._expected(self._keys(files), ["id"]).elements())

    def _keys(self, files: list[bytes]) -> list[oracle.Row]:
        return [row for raw in files for row in oracle.rows(oracle.read(raw, ["id"]), ["id"])]


def _groups(files: list[bytes], names: list[str]) -> list[list[oracle.Row] | None]:
    return [
        None if table is None else oracle.rows([table], names, loose=True)
        for raw in files
        for table in oracle.read_groups(raw)
    ]
