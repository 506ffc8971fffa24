"""Compare the matched rows of files with the source's, as a rewrite does, and write nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsspeckit.core.model import Shape
from fsspeckit.core.parallel import Pool
from fsspeckit.core.progress import FileMeter
from fsspeckit.core.rewrite.job import FileChanges, Job, OpenFile, open_file
from fsspeckit.core.rewrite.row_group import Difference, compare, find_difference
from fsspeckit.core.storage import Location


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a rewrite of one file would do: is the file `rewritten` or removed, and how many rows get other values?"""

    path: str
    rewritten: bool
    changed: int = 0


def compare_file(
    location: Location,
    shape: Shape,
    job: Job,
    changes: FileChanges,
    pool: Pool | None = None,
    meter: FileMeter | None = None,
) -> Comparison:
    """Like `file.rewrite_file`, up to the point where it would write."""
    rewritten, changed = False, 0
    with open_file(location, shape, job, changes, pool or Pool(), meter) as file:
        for group in filter(job.changes, range(file.metadata.num_row_groups)):
            difference = find_difference(file, group)
            if difference is not None:
                rewritten, changed = True, changed + _changed_rows(file, difference)
            file.meter.reach((group + 1) / file.metadata.num_row_groups)
    return Comparison(job.footer.path, rewritten, changed)


def _changed_rows(file: OpenFile, difference: Difference) -> int:
    """Compares the columns that were not read yet, until every new row is known to differ."""
    for names in difference.unread:
        if difference.differing.all():
            break
        compare(file, difference.group, difference.change, names, (), difference.differing)
    return int(np.count_nonzero(difference.differing))
