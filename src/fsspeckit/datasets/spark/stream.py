"""Each micro-batch of a stream is a merge that is committed exactly once."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field, replace
from typing import Any

from fsspeckit.core import compact as compaction
from fsspeckit.core import merge as core
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import FsspeckitError
from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.reports import MergeResult
from fsspeckit.core.storage import Access, Location
from fsspeckit.datasets.spark import catalog
from fsspeckit.datasets.spark.engine import operation, refresh
from fsspeckit.datasets.spark.session import Cluster

log = logging.getLogger("fsspeckit.spark")


@dataclass(frozen=True)
class BatchMerge:
    """The function for `writeStream.foreachBatch`: each micro-batch is a merge that is committed exactly once.

    The commit records `app_id`, the query and the batch number in the files that it writes (`core.dataset.ledger`), so
    record and rows are one commit. If Spark dies between our commit and its checkpoint, it repeats the batch. The
    record shows that the batch is committed, and nothing is done, even if it now has other rows.

    A streaming query runs in a copy of the user's session, and each of the two remembers the files of its tables.
    `session` is the user's, which is not sent to the server of Spark Connect.
    """

    path: str | None
    access: Access
    app_id: str
    request: core.Request
    table: str | None = None
    compact_every: int | None = None
    session: Any = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchMerge, (self.path, self.access, self.app_id, self.request, self.table, self.compact_every)

    def __call__(self, frame: Any, batch_id: int) -> None:
        spark = frame.sparkSession
        context = getattr(spark, "sparkContext", None)
        # The id that a query keeps with its checkpoint; Spark Connect does not report it.
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        request = replace(self.request, batch=Batch(self.app_id, batch_id, query_id))
        try:
            target = None if self.table is None else self._find_table(spark, frame, self.table)
            path = self.path if target is None else target.path
            assert path is not None
            location = self.access.locate(path)
            with operation(Cluster(spark), self.access, "merge", location) as engine:
                result = core.run(engine, location, frame, request)
        except FsspeckitError as error:
            log.error("batch %d of %s was not merged: %s", batch_id, self.app_id, error)
            log.debug("batch %d of %s", batch_id, self.app_id, exc_info=True)
            # Spark shows the error as Python prints it, with its cause first. A cause without a traceback of its own is
            # one line: so the message comes first, and not below the stacks of Java and Python.
            raise error from copy.copy(error)
        counts = (result.inserted, result.updated, result.deleted, result.skipped)
        log.info("batch %d of %s: %d inserted, %d updated, %d deleted, %d skipped", batch_id, self.app_id, *counts)
        is_due = self.compact_every is not None and (batch_id + 1) % self.compact_every == 0
        compacted = is_due and self._compact(spark, location, batch_id)
        # A batch that is repeated may have been killed before it refreshed the table.
        if result.files_changed or result.replayed or compacted:
            self._refresh(spark, location, target, result)

    def _find_table(self, spark: Any, frame: Any, name: str) -> catalog.Table:
        target = catalog.find_table(spark, name)
        if self.request.strategy is not MergeStrategy.DELETE:
            catalog.check_columns(spark, name, target, frame, self.request.rows.delete_column)
        return target

    def _compact(self, spark: Any, location: Location, batch_id: int) -> bool:
        """The batch is committed, so no error of the compaction may fail it."""
        request = compaction.CompactRequest(lock_timeout=self.request.lock_timeout)
        try:
            with operation(Cluster(spark), self.access, "merge", location) as engine:
                done = compaction.compact(engine, location, request)
        except Exception:
            log.warning("%s was not compacted after batch %d", location.shown, batch_id, exc_info=True)
            return True  # some of its commits may be done
        log.info("compaction after batch %d: %d -> %d files", batch_id, done.files_before, done.files_after)
        return done.commits > 0

    def _refresh(self, spark: Any, location: Location, target: catalog.Table | None, result: MergeResult) -> None:
        if target is not None:
            catalog.update_table(spark, target, result.added_columns)
        if self.session is None or self.session is spark:
            return
        if target is not None:
            catalog.refresh_files(self.session, target)
        else:
            refresh(self.session, location)
