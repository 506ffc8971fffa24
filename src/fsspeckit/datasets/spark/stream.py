"""Streams: each micro-batch is a merge that is committed exactly once.

The commit of a batch records `app_id`, the query and the batch number in the files it writes (`core.dataset.ledger`).
When Spark gives a batch again, because it died between our commit and its checkpoint, the record tells and nothing is
done, whatever rows the batch now has. Record and rows are one commit, so there is no moment between them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from fsspeckit.core import merge as core
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.storage import Access
from fsspeckit.datasets.spark.engine import operation
from fsspeckit.datasets.spark.session import Cluster

log = logging.getLogger("fsspeckit.spark")


@dataclass(frozen=True)
class BatchMerge:
    """What `writeStream.foreachBatch` calls. It holds no session, so that Spark Connect can send it to its server."""

    path: str
    access: Access
    app_id: str
    request: core.Request

    def __call__(self, frame: Any, batch_id: int) -> None:
        spark = frame.sparkSession
        batch = Batch(self.app_id, batch_id, query_id(spark))
        location = self.access.locate(self.path)
        with operation(Cluster(spark), self.access, "merge", location) as engine:
            result = core.run(engine, location, frame, replace(self.request, batch=batch))
        log.info("batch %d of %s: %d inserted, %d updated", batch_id, self.app_id, result.inserted, result.updated)


def query_id(spark: Any) -> str | None:
    """The identity that a query keeps with its checkpoint. Spark Connect does not tell it."""
    context = getattr(spark, "sparkContext", None)
    found: str | None = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return found
