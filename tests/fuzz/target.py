"""A mutant as a file of the target, of a merge or a look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core import merge as core
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.incremental import confirm_affected_files, plan_incremental_rewrite
from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.storage import locate
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine
from fsspeckit.report.inspection import inspect
from fuzz import oracle
from fuzz.case import Finding, Trial, content, engine_io, write


class TargetTrial(Trial):
    """The mutant is a file of the target; the source is healthy."""

    def prepare(self) -> None:
        (Path(self.lake) / "a.parquet").write_bytes(self.case.mutant)
        (Path(self.lake) / "b.parquet").write_bytes(self.case.sample.companion)
        healthy = pa.concat_tables(oracle.read(self.case.sample.file))
        other = pa.concat_tables(oracle.read(self.case.sample.companion))
        if self.case.operation == "stamp":
            self.source = healthy.slice(0, 0)
            return
        keys, payload = healthy.column("id"), healthy.take(pa.array([*range(1, healthy.num_rows), 0]))
        changed = payload.set_column(payload.schema.get_field_index("id"), healthy.schema.field("id"), keys)
        self.source = pa.concat_tables([changed.slice(0, healthy.num_rows // 3), other.slice(0, 2)])

    def act(self) -> Any:
        operation, engine = self.case.operation, self.case.engine
        if operation == "inspect":
            return inspect(self.lake, ["id"])
        if operation == "read":
            return engine_io(engine).read(self.lake)
        if operation == "filter":
            return engine_io(engine).read(self.lake, filter=pc.field("id") >= self._least())
        if operation == "stamp":
            request = core.Request(MergeStrategy.UPSERT, ("id",), batch=Batch("app", 8))
            return core.run(PyArrowEngine(), locate(self.lake), self.source, request)
        if operation == "confirm":
            keys = self.source.select(["id"])
            plan_incremental_rewrite(self.lake, keys, ["id"])
            return confirm_affected_files([f"{self.lake}/a.parquet", f"{self.lake}/b.parquet"], ["id"], keys)
        return write(engine, self.source, self.lake, operation)

    def verdict(self, result: Any, before: dict[str, bytes]) -> str:
        operation, after = self.case.operation, content(self.folder)
        if operation in ("plan", "inspect", "read", "filter", "confirm") and after != before:
            raise Finding(f"{operation} changed something")
        if operation == "inspect":
            return "inspected"
        if operation == "read":
            return self._read(result)
        source = oracle.rows([self.source], self.names())
        if operation == "overwrite":
            return self.expect(oracle.merged([], source, operation))
        try:
            target = oracle.rows(oracle.read(self.case.mutant), self.names()) + self._companion()
        except oracle.Unread as error:
            return self._untouched(error, after, before, source, result)
        return self._compare(result, target, source)

    def _least(self) -> Any:
        """A key in the midst of the file, to read by."""
        return pa.concat_tables(oracle.read(self.case.sample.file)).column("id")[3]

    def _companion(self) -> list[oracle.Row]:
        return oracle.rows(oracle.read(self.case.sample.companion), self.names())

    def _compare(self, result: Any, target: list[oracle.Row], source: list[oracle.Row]) -> str:
        operation = self.case.operation
        if operation == "stamp":
            return self.expect(oracle.Counter(target))
        try:
            if operation == "filter":
                return self._filtered(result, target)
            if operation == "confirm":
                return self._confirmed(result, target, source)
            if operation == "plan":
                return self._planned(result, target, source)
            return self.expect(oracle.merged(target, source, operation))
        except Finding:
            if oracle.statistics_lie(self.case.mutant, "id"):
                return "statistics lie"
            raise

    def _read(self, result: Any) -> str:
        """Files of different columns are filled up."""
        try:
            files = [oracle.read(raw) for raw in (self.case.mutant, self.case.sample.companion)]
        except oracle.Unread as error:
            raise Finding(f"read, but PyArrow does not read the file: {error}") from error
        names = list(dict.fromkeys(name for tables in files for name in tables[0].column_names))
        expected = [row for tables in files for row in oracle.rows(tables, names, loose=True)]
        if oracle.Counter(oracle.rows([result], names)) != oracle.Counter(expected):
            raise Finding("read gives other rows than PyArrow")
        return "read"

    def _filtered(self, result: Any, target: list[oracle.Row]) -> str:
        (least,) = oracle.cells(pa.array([self._least()]))
        expected = [row for row in target if row[0] is not None and row[0] >= least]
        if oracle.Counter(oracle.rows([result], self.names())) != oracle.Counter(expected):
            raise Finding("read with a filter gives other rows than PyArrow")
        return "read"

    def _confirmed(self, found: list[str], target: list[oracle.Row], source: list[oracle.Row]) -> str:
        keys = {row[0] for row in source}
        mine = target[: len(target) - len(self._companion())]
        expected = [any(row[0] in keys for row in mine), True]
        if [f"{self.lake}/{name}.parquet" in found for name in "ab"] != expected:
            raise Finding(f"confirmed {found}")
        return "confirmed"

    def _planned(self, plan: Any, target: list[oracle.Row], source: list[oracle.Row]) -> str:
        keys = {row[0] for row in source}
        updated = sum(row[0] in keys for row in target)
        inserted = len(keys - {row[0] for row in target})
        if (plan.updated, plan.inserted, plan.target_count_before) != (updated, inserted, len(target)):
            raise Finding(f"planned {plan.updated}, {plan.inserted}; PyArrow's rows give {updated}, {inserted}")
        return "planned"

    def _untouched(self, why: Exception, after: Any, before: Any, source: list[oracle.Row], result: Any) -> str:
        """PyArrow does not read the mutant: it may be left as it is, or go, if what is known of its keys is true."""
        operation, key = self.case.operation, "lake/a.parquet"
        if operation == "filter":
            return "left alone"  # what statistics exclude is not read
        if operation == "confirm":
            may_succeed = f"{self.lake}/a.parquet" in result
        elif operation == "full_merge":
            self.expect(oracle.merged([], source, operation))
            may_succeed = False
        else:
            same = after.get(key) == before[key] or (operation == "stamp" and self._same_pages(after[key], before[key]))
            if not same:
                return self._damage_stays(after[key], before[key], source, why)
            may_succeed = operation in ("append", "stamp")
        if not may_succeed and not oracle.keys_told(self.case.mutant, self.source.column("id").to_pylist()):
            raise Finding(f"{operation} succeeded, but PyArrow does not read the keys: {why}")
        return "left alone"

    def _same_pages(self, after: bytes, before: bytes) -> bool:
        end = len(before) - 8 - int.from_bytes(before[-8:-4], "little")
        return after[:end] == before[:end]

    def _damage_stays(self, after: bytes, before: bytes, source: list[oracle.Row], why: Exception) -> str:
        """Row groups that no key touches are copied unread. What cannot be read of them cannot be read afterwards
        either, and nothing else is lost."""
        names, groups = self.names(), zip(oracle.read_groups(before), oracle.read_groups(after), strict=True)
        for old, new in groups:
            if (old is None) != (new is None):
                raise Finding(f"a row group {'was' if old else 'is'} read, but PyArrow does not read the file: {why}")
            if old is not None and new is not None:
                expected = oracle.merged(oracle.rows([old], names), source, "update")
                if oracle.Counter(oracle.rows([new], names)) != expected:
                    raise Finding(f"other rows in a row group beside one that PyArrow does not read: {why}")
        return "merged around damage"


class SplicedTrial(TargetTrial):
    """The mutant is a file of the target, of which one column of one row group changes: the rest can be copied."""

    def prepare(self) -> None:
        super().prepare()
        healthy = pa.concat_tables(oracle.read(self.case.sample.file))
        names = [name for name in healthy.column_names if name != "id"]
        index = healthy.schema.get_field_index(names[self.case.number % len(names)])
        rows, others = healthy.slice(7, 2), healthy.slice(0, 2)
        self.source = rows.set_column(index, healthy.schema.field(index), others.column(index))

    def verdict(self, result: Any, before: dict[str, bytes]) -> str:
        outcome = super().verdict(result, before)
        if outcome != "merged":
            return outcome
        return "spliced" if result.bytes_copied else "written anew" if result.rewritten_files else "spared"
