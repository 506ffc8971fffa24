"""A mutant as the source of a merge into a healthy lake."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

from fsspeckit.cli.sources import read_stream
from fuzz import oracle
from fuzz.case import Finding, Trial, content, write


class SourceTrial(Trial):
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
        return write(self.case.engine, source, self.lake, self.case.operation)

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
        return self.expect(oracle.merged(target, source, self.case.operation), names)

    def _planned(self, plan: Any, source: list[oracle.Row], before: dict[str, bytes]) -> str:
        if content(self.folder) != before:
            raise Finding("a plan changed something")
        if plan.source_count != len(source):
            raise Finding(f"planned for {plan.source_count} rows, PyArrow reads {len(source)}")
        return "planned"
