"""Rewrite one file: replace or delete changed rows, and keep all others in their order.

Row groups without changes are copied as bytes, and so are unchanged columns of the others (`encode`). A row group with
changes is read once, and its new rows are fetched once (`row_group`). If a file cannot be spliced, it is re-encoded:
read and written whole.
"""

from __future__ import annotations

import logging

from fsspeckit.core.model import Rewritten, Shape
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet.chunk_layout import NotSpliceable
from fsspeckit.core.parquet.thrift import CorruptFile
from fsspeckit.core.progress import FileMeter
from fsspeckit.core.rewrite.encode import RowsDoNotFit, append, as_new_files, copy, layouts, reencode, splice
from fsspeckit.core.rewrite.job import FileChanges, Job, OpenFile, open_file, with_added_columns
from fsspeckit.core.rewrite.row_group import Difference, first_difference
from fsspeckit.core.storage import Location

logger = logging.getLogger("fsspeckit.rewrite")


def rewrite_file(
    location: Location,
    shape: Shape,
    job: Job,
    changes: FileChanges,
    pool: Pool | None = None,
    meter: FileMeter | None = None,
) -> Rewritten:
    """Write the new file into staging, unless every matched row already equals its source row.

    Threads of the `pool` decode and encode batches of columns in parallel. The `meter` counts row groups.
    """
    with open_file(location, shape, job, changes, pool or Pool(), meter) as file:
        groups = [group for group in range(file.metadata.num_row_groups) if file.rows(group)]
        if groups and job.deleted_groups.issuperset(groups) and not job.keep_empty:
            return Rewritten(file.path, (), removed=True)
        if job.as_new_files is not None:
            return as_new_files(file, job.as_new_files)
        if job.keeps_rows and not file.retyped and not file.added:
            return copy(file)
        if file.only_adds_columns:
            if (appended := append(file)) is not None:
                return appended
            file = with_added_columns(file)
        first = first_difference(file)
        if first is not None:
            return _write(file, first.group, first)
        return _write(file, file.metadata.num_row_groups, None) if job.keeps_rows else Rewritten(file.path, ())


def _write(file: OpenFile, start: int, already_read: Difference | None) -> Rewritten:
    """Splice if the file keeps its own layout and its chunks can be copied, else re-encode.

    No row group before `start` changes. A value that does not fit the layout may be in any later row group. Then the
    file is written from the beginning in the next layout.
    """
    reasons = [file.not_spliceable] if file.not_spliceable else []
    for attempt in layouts(file):
        try:
            if attempt.can_splice and file.old is not None:
                try:
                    return splice(file, attempt, start, already_read)
                except (NotSpliceable, CorruptFile) as error:
                    reasons.append(str(error))
                    already_read = None  # its columns were consumed
            rewritten = reencode(file, attempt, start, already_read)
        except RowsDoNotFit as error:
            reasons.append(str(error))
            already_read = None
        else:
            logger.info("%s is re-encoded, not spliced: %s", file.shown, "; ".join(dict.fromkeys(reasons)))
            return rewritten
    raise AssertionError("the last layout holds every row")
