"""Where source rows go that are new: which folder, in which layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import Footer, Shape, Staged, WriteOptions
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.rewrite.models import model_layout
from fsspeckit.core.rewrite.writer import FreshFiles
from fsspeckit.core.storage import Location
from fsspeckit.core.target.ledger import Ledger
from fsspeckit.core.target.partitions import PartitionMap
from fsspeckit.core.values import keys


@dataclass(frozen=True)
class NewFiles:
    """How new rows are written. `template` is a file of the target to write others like, if there is one."""

    shape: Shape
    partitions: PartitionMap
    staging: str
    options: WriteOptions
    template: Footer | None = None
    ledger: Ledger = field(default_factory=dict)

    def write(self, location: Location, tables: Iterable[pa.Table]) -> list[Staged]:
        """Write tables in the shape's plain schema. Rows of one partition should come close together."""
        layout = self.layout(location)
        may_loosen = self.template is not None and self.template.by_spark
        looser = self.layout(location, loose=True) if may_loosen else None
        with FreshFiles(location.storage, self.staging, layout, self.options, looser) as files:
            for table in tables:
                for folder, rows in self.by_folder(table):
                    files.write(folder, rows)
            return files.finish()

    def write_empty(self, location: Location, folder: str) -> list[Staged]:
        """One file without rows, so that the schema survives."""
        with FreshFiles(location.storage, self.staging, self.layout(location), self.options) as files:
            files.write_empty(folder)
            return files.finish()

    def layout(self, location: Location, *, loose: bool = False) -> Layout:
        return self._model(location, loose).stamped(self.ledger)

    def _model(self, location: Location, loose: bool) -> Layout:
        if self.template is not None:
            return model_layout(location, self.template, loose=loose).compressed(self.options).today()
        fields = [self.shape.schema.field(name) for name in self.shape.stored]
        return Layout.new(pa.schema(fields, self.shape.schema.metadata), self.options)

    def by_folder(self, table: pa.Table) -> Iterable[tuple[str, pa.Table]]:
        """Rows by the folder each goes to; rows keep their order within it."""
        columns = self.partitions.columns
        if not columns or not table.num_rows:
            return [("", table)]
        codes, first = keys.group([keys.canonical(table.column(c)) for c in columns])
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes))
        sorted_rows = table.take(pa.array(order))
        return [
            (self.partitions.folder({c: table.column(c)[row] for c in columns}), sorted_rows.slice(start, end - start))
            for row, start, end in zip(first.tolist(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        ]
