"""The changes of a file from which rows are deleted that a filter selects."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fsspeckit.core.dataset.footers import open_planned
from fsspeckit.core.match.filter_scan import selected_rows
from fsspeckit.core.match.filters import RowFilter
from fsspeckit.core.model import Footer
from fsspeckit.core.rewrite.job import RowGroupChange
from fsspeckit.core.storage import Location


@dataclass(slots=True)
class FilterChanges:
    """`job.FileChanges` of one file. The filter's columns of a row group are read again when it is rewritten."""

    location: Location
    footer: Footer
    row_filter: RowFilter

    def row_group(self, group: int) -> RowGroupChange:
        self.location.expect(self.footer.info)
        with open_planned(self.location, self.footer) as file:
            deleted = selected_rows(self.location, self.footer, file, group, self.row_filter)
            if self.footer.metadata is None:  # parsed once, and not for each row group
                self.footer = replace(self.footer, metadata=file.metadata)
        return RowGroupChange(np.zeros(0, dtype=np.int64), pa.table({}), deleted)
