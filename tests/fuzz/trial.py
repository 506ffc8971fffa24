"""One mutant: break a file, use it as source or as target, and hold what happened against what PyArrow reads."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.api import dataset_io
from fsspeckit.cli.sources import read_stream
from fsspeckit.core import merge as core
from fsspeckit.core.commit.ledger import Batch
from fsspeckit.core.errors import FsspeckitError
from fsspeckit.core.incremental import confirm_affected_files, plan_incremental_rewrite
from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.storage import locate
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine
from fsspeckit.report.inspection import inspect
from fuzz import oracle
from fuzz.mutations import Dice, mutate
from fuzz.samples import Sample

MERGES = ("upsert", "insert", "update", "full_merge", "deduplicate", "overwrite", "append")
LOOKS = ("plan", "inspect", "read", "filter", "confirm", "stamp")
FORMS = ("path", "paths", "directory", "stream")


@dataclass(frozen=True)
class Case:
    """What is done with which mutant; all of it follows from seed and number."""

    number: int
    sample: Sample
    role: str
    engine: str
    operation: str
    form: str
    mutant: bytes

    @classmethod
    def of(cls, seed: int, number: int, samples: list[Sample]) -> Case:
        random = Dice(f"{seed}:{number}")
        sample = random.choice(samples)
        role = random.choice(("source", "target"))
        engine = random.choices(("pyarrow", "duckdb"), (80, 20))[0]
        operation = random.choice((*MERGES, "plan") if role == "source" else (*MERGES, *LOOKS))
        form = random.choices(FORMS, (50, 20, 20, 10))[0]
        mutant = mutate(sample.file, random) if number % 50 else sample.file
        return cls(number, sample, role, engine, operation, form, mutant)

    def __str__(self) -> str:
        how = f" as {self.form}" if self.role == "source" else ""
        return f"mutant {self.number}: {self.sample.name} as {self.role}{how}, {self.operation} by {self.engine}"


class Finding(Exception):
    """Something that may not happen."""


Phase = Callable[[str], None]


def run(case: Case, folder: Path, phase: Phase) -> str:
    """What came of it, in a word or two; `Finding` if it may not be. `phase` is told who is at work."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lake").mkdir(parents=True)
    trial = (_SourceTrial if case.role == "source" else _TargetTrial)(case, folder)
    trial.prepare()
    before = _content(folder)
    phase("fsspeckit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = trial.act()
    except FsspeckitError as error:
        _check_refusal(case, error, before, _content(folder))
        phase("pyarrow")
        return f"refused: {type(error).__name__}" + (", though PyArrow reads it" if _is_read(case) else "")
    except Exception as error:
        raise Finding(f"raw {type(error).__name__}: {error}") from error
    phase("pyarrow")
    return trial.verdict(result, before)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def _check_refusal(case: Case, error: FsspeckitError, before: Any, after: Any) -> None:
    if before != after:
        raise Finding(f"{type(error).__name__}, and yet changed: {sorted(before.items() ^ after.items())[:2]}")
    if not case.number % 50:
        raise Finding(f"a healthy file refused: {type(error).__name__}: {error}")
    if "bug in fsspeckit" in str(error):
        raise Finding(str(error))


def _is_read(case: Case) -> bool:
    try:
        oracle.read(case.mutant)
    except oracle.Unread:
        return False
    return True


_ios: dict[str, Any] = {}


def _io(engine: str) -> Any:
    return _ios.setdefault(engine, dataset_io(engine))


def _write(engine: str, source: Any, lake: str, operation: str) -> Any:
    if operation in ("append", "overwrite"):
        return _io(engine).write_dataset(source, lake, operation)
    if operation in ("full_merge", "deduplicate"):
        return _io(engine).write_parquet_dataset(source, lake, operation, ["id"])
    return getattr(_io(engine), "plan" if operation == "plan" else "merge")(
        source, lake, "upsert" if operation == "plan" else operation, ["id"]
    )


@dataclass
class _Trial:
    case: Case
    folder: Path

    @property
    def lake(self) -> str:
        return str(self.folder / "lake")

    def lake_rows(self, names: list[str]) -> list[oracle.Row]:
        files = sorted(Path(self.lake).rglob("*.parquet"))
        return [row for file in files for row in oracle.rows(oracle.read(file.read_bytes()), names)]

    def names(self) -> list[str]:
        schema = pq.read_schema(io.BytesIO(self.case.sample.file))
        return ["id", *(n for n in schema.names if n != "id")]

    def _expect(self, expected: Any, names: list[str] | None = None) -> str:
        try:
            found = oracle.Counter(self.lake_rows(names or self.names()))
        except oracle.Unread as error:
            raise Finding(f"the lake cannot be read after the merge: {error}") from error
        if found != expected:
            lost, new = list((expected - found).items())[:2], list((found - expected).items())[:2]
            raise Finding(f"other rows than PyArrow reads: lacks {lost}, has {new}")
        return "merged"


class _SourceTrial(_Trial):
    """The mutant is the source; the lake is healthy."""

    def prepare(self) -> None:
        where = self.folder / "source"
        where.mkdir()
        (where / "mutant.parquet").write_bytes(self.case.mutant)
        if self.case.form in ("paths", "directory"):
            (where / "other.parquet").write_bytes(self.case.sample.companion)
        kept = Random(self.case.number).choice(("file", "companion"))
        (Path(self.lake) / "a.parquet").write_bytes(getattr(self.case.sample, kept))

    def act(self) -> Any:
        source: Any = str(self.folder / "source" / "mutant.parquet")
        if self.case.form == "paths":
            source = [source, str(self.folder / "source" / "other.parquet")]
        elif self.case.form == "directory":
            source = str(self.folder / "source")
        elif self.case.form == "stream":
            source = read_stream(io.BytesIO(self.case.mutant))
        return _write(self.case.engine, source, self.lake, self.case.operation)

    def verdict(self, result: Any, before: dict[str, bytes]) -> str:
        raw = [self.case.mutant]
        if self.case.form in ("paths", "directory"):
            raw.append(self.case.sample.companion)
        try:
            tables = [oracle.read(content) for content in raw]
            free = self.case.operation == "overwrite"  # of the target's columns
            names = list(dict.fromkeys(n for t in tables for n in t[0].column_names)) if free else self.names()
            source = [row for content in tables for row in oracle.rows(content, names, loose=free)]
        except oracle.Unread as error:
            raise Finding(f"merged, but PyArrow does not read the source: {error}") from error
        if self.case.operation == "plan":
            return self._planned(result, source, before)
        target = [] if self.case.operation == "overwrite" else oracle.rows(oracle.read(before["lake/a.parquet"]), names)
        return self._expect(oracle.merged(target, source, self.case.operation), names)

    def _planned(self, plan: Any, source: list[oracle.Row], before: dict[str, bytes]) -> str:
        if _content(self.folder) != before:
            raise Finding("a plan changed something")
        if plan.source_count != len(source):
            raise Finding(f"planned for {plan.source_count} rows, PyArrow reads {len(source)}")
        return "planned"


class _TargetTrial(_Trial):
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
            return _io(engine).read(self.lake)
        if operation == "filter":
            return _io(engine).read(self.lake, filter=pc.field("id") >= self._least())
        if operation == "stamp":
            request = core.Request(MergeStrategy.UPSERT, ("id",), batch=Batch("app", 8))
            return core.run(PyArrowEngine(), locate(self.lake), self.source, request)
        if operation == "confirm":
            keys = self.source.select(["id"])
            plan_incremental_rewrite(self.lake, keys, ["id"])
            return confirm_affected_files([f"{self.lake}/a.parquet", f"{self.lake}/b.parquet"], ["id"], keys)
        return _write(engine, self.source, self.lake, operation)

    def verdict(self, result: Any, before: dict[str, bytes]) -> str:
        operation, after = self.case.operation, _content(self.folder)
        if operation in ("plan", "inspect", "read", "filter", "confirm") and after != before:
            raise Finding(f"{operation} changed something")
        if operation == "inspect":
            return "inspected"
        if operation == "read":
            return self._read(result)
        source = oracle.rows([self.source], self.names())
        if operation == "overwrite":
            return self._expect(oracle.merged([], source, operation))
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
            return self._expect(oracle.Counter(target))
        try:
            if operation == "filter":
                return self._filtered(result, target)
            if operation == "confirm":
                return self._confirmed(result, target, source)
            if operation == "plan":
                return self._planned(result, target, source)
            return self._expect(oracle.merged(target, source, operation))
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
            told = f"{self.lake}/a.parquet" in result
        elif operation == "full_merge":
            self._expect(oracle.merged([], source, operation))
            told = False
        else:
            same = after.get(key) == before[key] or (operation == "stamp" and self._same_pages(after[key], before[key]))
            if not same:
                raise Finding(f"rewritten, but PyArrow does not read the file: {why}")
            told = operation in ("append", "stamp")
        if not told and not oracle.keys_told(self.case.mutant, self.source.column("id").to_pylist()):
            raise Finding(f"{operation} succeeded, but PyArrow does not read the keys: {why}")
        return "left alone"

    def _same_pages(self, after: bytes, before: bytes) -> bool:
        end = len(before) - 8 - int.from_bytes(before[-8:-4], "little")
        return after[:end] == before[:end]


def scratch_folder() -> Path:
    """In memory if the system has such a folder."""
    return Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
