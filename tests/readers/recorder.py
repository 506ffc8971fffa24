"""Copies of lakes before and after every merge of a test."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import compact as compaction
from fsspeckit.core import merge as core
from fsspeckit.core.reports import CompactResult, WriteResult
from fsspeckit.core.storage import LocalStorage
from readers.lakes import Counts

MOST_FILES, MOST_BYTES = 300, 32 << 20


@dataclass(frozen=True)
class Merge:
    """A lake on a disk before and after one merge. Not `all_files`: only some got a new column, as the caller wished;
    the documentation names the readers that then need an option."""

    before: Path
    after: Path
    counts: Counts
    all_files: bool = True


@dataclass
class Recorder:
    """Records merges, writes and compactions that succeed. Two at the same time cannot be distinguished, so neither is
    recorded."""

    folder: Path
    merges: list[Merge] = field(default_factory=list)
    _begun: int = 0
    _running: int = 0
    _crowded: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def patched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core, "run", self._recording(core.run))
            patch.setattr(core, "write", self._recording(core.write))
            patch.setattr(compaction, "compact", self._recording(compaction.compact))
            yield

    def _recording(self, call: Any) -> Any:
        def recorded(engine: Any, location: Any, *given: Any, **named: Any) -> Any:
            if not isinstance(location.storage, LocalStorage):
                return call(engine, location, *given, **named)
            with self._alone() as alone:
                before, after = (self.folder / f"{self._begun}-{name}" for name in ("before", "after"))
                copied = _copy(Path(location.root), before)
                result = call(engine, location, *given, **named)
                if copied and alone() and _copy(Path(location.root), after):
                    all_files = all(getattr(getattr(asked, "schema", None), "all_files", True) for asked in given)
                    self.merges.append(Merge(before, after, _counts(result, before), all_files))
            return result

        return recorded

    @contextmanager
    def _alone(self) -> Iterator[Any]:
        with self._lock:
            self._begun += 1
            self._running += 1
            self._crowded = self._running > 1
        try:
            yield lambda: not self._crowded
        finally:
            with self._lock:
                self._running -= 1


def _copy(lake: Path, copy: Path) -> bool:
    """Copy the files that readers see; not of lakes that are too large, or that this user may not read."""
    names = [Path(folder, name) for folder, _, names in os.walk(lake) for name in names]
    try:
        if len(names) > MOST_FILES or sum(name.stat().st_size for name in names) > MOST_BYTES:
            return False
        copy.mkdir(parents=True)
        for name in names:
            target = copy / name.relative_to(lake)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, target)
    except OSError:
        return False
    return True


def _counts(result: Any, before: Path) -> Counts:
    if isinstance(result, CompactResult):
        return Counts(result.rows, 0, 0, 0)
    if isinstance(result, WriteResult):
        rows = _rows(before)
        return Counts(rows, result.rows, 0, rows if result.removed_rows is None else result.removed_rows)
    return Counts(result.target_count_before, result.inserted, result.updated, result.deleted)


def _rows(lake: Path) -> int:
    """The rows of all footers; -1 if one of them cannot be read."""
    try:
        return sum(pq.read_metadata(file).num_rows for file in lake.rglob("*.parquet"))
    except (pa.ArrowException, OSError):
        return -1
