"""Parse the footers of many files as one footer.

PyArrow takes five times as long for the schema and the key-value entries of a footer as for one of its row groups, and
the files of one writer differ only in their row groups. So the row groups of many files are joined in one footer. A
separator, a row group without columns, follows those of each file. Damaged bytes would move it, so a separator in its
place shows that no row group was taken for one of another file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import with_end
from fsspeckit.core.parquet.format import FileMetaData, RowGroup
from fsspeckit.core.parquet.thrift import CorruptFile

_ROWS = bytes([(FileMetaData.NUM_ROWS - FileMetaData.SCHEMA) << 4 | thrift.I64])
_GROUPS = bytes([(FileMetaData.ROW_GROUPS - FileMetaData.NUM_ROWS) << 4 | thrift.LIST])
"""The field headers of num_rows and row_groups in FileMetaData."""


@dataclass(frozen=True, slots=True)
class FooterBatch:
    """The row groups of many files in one footer; `ranges` are the row groups of each file."""

    metadata: pq.FileMetaData
    ranges: list[range]

    @classmethod
    def of(cls, head: bytes, rest: bytes, footers: Sequence[bytes]) -> FooterBatch:
        """Parse footers that all begin with `head` and end with `rest`.

        `CorruptFile`, or an error of PyArrow, if one of the footers is damaged.
        """
        secret, parts, ranges, rows, count = secrets.randbits(60), [], [], [], 0
        separator = thrift.encode(
            {
                RowGroup.COLUMNS: thrift.struct_list([]),
                RowGroup.TOTAL_BYTE_SIZE: (thrift.I64, secret),
                RowGroup.NUM_ROWS: (thrift.I64, 0),
            }
        )
        for raw in footers:
            row_count, groups, encoded = _row_groups(raw, head, rest)
            parts += [encoded, separator]
            ranges.append(range(count, count + groups))
            rows.append(row_count)
            count += groups + 1
        listing = [_ROWS, b"\0", _GROUPS, thrift.list_header(thrift.STRUCT, count)]
        raw = b"".join([head, *listing, *parts, rest])
        metadata = pq.ParquetFile(pa.BufferReader(with_end(raw))).metadata
        batch = cls(metadata, ranges)
        if metadata.num_row_groups != count or list(batch._row_counts(secret)) != rows:
            raise CorruptFile("one of its footers contradicts itself")
        return batch

    def _row_counts(self, secret: int) -> Iterator[int | None]:
        """The rows of each file by its row groups; `None` if the separator is not in place or columns are missing."""
        width = self.metadata.num_columns
        for groups_of_file in self.ranges:
            separator = self.metadata.row_group(groups_of_file.stop)
            groups = [self.metadata.row_group(i) for i in groups_of_file]
            counts = [group.num_rows for group in groups]
            is_separator = (separator.num_columns, separator.total_byte_size) == (0, secret)
            is_complete = all(group.num_columns == width for group in groups) and min(counts, default=0) >= 0
            yield sum(counts) if is_separator and is_complete else None


def _row_groups(raw: bytes, head: bytes, rest: bytes) -> tuple[int, int, bytes]:
    """The number of rows and of row groups in a footer, and the encoded row groups."""
    middle = raw[len(head) : len(raw) - len(rest)]
    try:
        rows, at = thrift.number_at(middle, 1)
        element_type, count, begin = thrift.list_at(middle, at + 1)
        if (middle[:1], middle[at : at + 1], element_type) == (_ROWS, _GROUPS, thrift.STRUCT):
            return rows, count, middle[begin:]
    except IndexError:
        pass
    raise CorruptFile("its footer has no row groups where others have them")
