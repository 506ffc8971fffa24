"""What Spark's UI says of our jobs: `fsspeckit merge orders: match 12 of 400 files`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fsspeckit.core.spool.exchange import Step
from fsspeckit.core.storage import Location

_DESCRIPTION = "spark.job.description"


class Jobs:
    """Descriptions of the jobs of one thread. Spark Connect has none, but tags, by which jobs can be interrupted."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._context = getattr(spark, "sparkContext", None)
        self._title, self._tag = "fsspeckit", ""
        self._root, self._files = "", 0

    @contextlib.contextmanager
    def operation(self, verb: str, location: Location) -> Iterator[None]:
        """All jobs within are of this operation; afterwards the user's own description is back."""
        before = self._title, self._root, self._files
        own = None if self._context is None else self._context.getLocalProperty(_DESCRIPTION)
        self._title, self._root, self._files = f"fsspeckit {verb} {location.name}", location.root, 0
        try:
            yield
        finally:
            self._title, self._root, self._files = before
            if self._context is not None:
                self._context.setJobDescription(own)
            else:
                self._tag_as("")

    def describe(self, step: str) -> None:
        """Of the jobs that come next in this operation."""
        if not self._root:
            return
        if self._context is not None:
            self._context.setJobDescription(f"{self._title}: {step}")
        else:
            self._tag_as(f"{self._title}: {step}".replace(",", ""))

    def _tag_as(self, tag: str) -> None:
        if self._tag:
            self._spark.removeTag(self._tag)
        if tag:
            self._spark.addTag(tag)
        self._tag = tag

    def saw_files(self, root: str, count: int) -> None:
        """The footers of a folder are about to be read; of the target's, the number is remembered."""
        if root == self._root:
            self._files = count

    def describe_footers(self, count: int) -> None:
        self.describe(f"read the footers of {_files(count)}")

    def describe_step(self, step: Step) -> None:
        """`match 12 of 400 files`, `write 1 new row`"""
        if step.name == "insert":
            self.describe(f"write {step.count:,} new row{'' if step.count == 1 else 's'}")
        elif step.name == "deduplicate":
            self.describe(f"reduce {step.count:,} rows to one per key")
        else:
            count = f"{step.count:,} of {_files(self._files)}" if self._files else _files(step.count)
            self.describe(f"{step.name} {count}")


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"
