"""Rewrite one file: its changed rows in place, all others as they were, in row order.

Read, compare, encode. A row group with changes is read once and its rows are asked for once (`row_group`). The others
are copied as bytes, and so are the columns in which nothing changed (`encode`). Where that cannot be, the whole file is
read and written.
"""

from __future__ import annotations

import logging

from fsspeckit.core.model import Rewritten, Shape
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet.chunk_layout import NotSpliceable
from fsspeckit.core.parquet.thrift import CorruptFile
from fsspeckit.core.rewrite.encode import RowsDoNotFit, as_new_files, layouts, reencode, splice
from fsspeckit.core.rewrite.job import FileChanges, Job, OpenFile, open_file
from fsspeckit.core.rewrite.row_group import Difference, first_difference
from fsspeckit.core.storage import Location

logger = logging.getLogger("fsspeckit.rewrite")


def rewrite_file(
    location: Location, shape: Shape, job: Job, changes: FileChanges, pool: Pool | None = None
) -> Rewritten:
    """Write the new file into staging, unless every matched row already equals its source row.

    Threads of the `pool` decode and encode column batches of a row group side by side.
    """
    with open_file(location, shape, job, changes, pool or Pool()) as file:
        if job.as_new_files is not None:
            return as_new_files(file, job.as_new_files)
        first = first_difference(file)
        if first is not None:
            return _write(file, first.group, first)
        return _write(file, file.metadata.num_row_groups, None) if job.only_types else Rewritten(file.path, ())


def _write(file: OpenFile, start: int, ahead: Difference | None) -> Rewritten:
    """Spliced if the file keeps its own layout and can be copied from, else re-encoded.

    Nothing was written until the row group `start`: all before it stay as they are. A value that the layout cannot
    hold may be in any later one. Then the file is begun again in the next layout.
    """
    reasons = [file.not_spliceable] if file.not_spliceable else []
    for attempt in layouts(file):
        try:
            if attempt.own and file.old is not None:
                try:
                    return splice(file, attempt, start, ahead)
                except (NotSpliceable, CorruptFile) as why:
                    reasons.append(str(why))
                    ahead = None  # its columns were taken
            rewritten = reencode(file, attempt, start, ahead)
        except RowsDoNotFit as why:
            reasons.append(str(why))
            ahead = None
        else:
            logger.info("%s is re-encoded, not spliced: %s", file.shown, "; ".join(dict.fromkeys(reasons)))
            return rewritten
    raise AssertionError("the last layout takes every row")
