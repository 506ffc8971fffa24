"""Footers that differ in their row groups only, parsed as one.

PyArrow takes five times as long for the schema and the entries of a footer as for a row group in it, and the thousands
of files that one writer made have all but row groups in common. So the row groups of many are put into one footer. A
row group without columns behind those of each file tells that none was taken for another's: bytes that are not what
they should be would shift it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.target import thrift
from fsspeckit.core.target.common import Common
from fsspeckit.core.target.tail import MAGIC
from fsspeckit.core.target.thrift import Damaged

_ROWS, _GROUPS = b"\x16", b"\x19"
"""How num_rows and row_groups of FileMetaData begin, each one field after the one before, in parquet.thrift"""


@dataclass(frozen=True, slots=True)
class Together:
    """The row groups of many files: `metadata` has them all, `places` where those of each begin and end."""

    metadata: pq.FileMetaData
    places: list[range]

    @classmethod
    def of(cls, common: Common, footers: Sequence[bytes]) -> Together:
        """Of footers that `common` is at both ends of. `Damaged`, or an error of PyArrow's, if one is odd."""
        secret, parts, places, rows, count = secrets.randbits(60), [], [], [], 0
        mark = thrift.encode({1: (thrift.LIST, (thrift.STRUCT, [])), 2: (thrift.I64, secret), 3: (thrift.I64, 0)})
        for raw in footers:
            told, groups, listed = _groups(raw, common)
            parts += [listed, mark]
            places.append(range(count, count + groups))
            rows.append(told)
            count += groups + 1
        listing = [_ROWS, b"\0", _GROUPS, thrift.list_header(thrift.STRUCT, count)]
        raw = b"".join([common.head, *listing, *parts, common.rest or b""])
        metadata = pq.ParquetFile(pa.BufferReader(raw + len(raw).to_bytes(4, "little") + MAGIC)).metadata
        together = cls(metadata, places)
        if metadata.num_row_groups != count or list(together._told(secret)) != rows:
            raise Damaged("one of its footers contradicts itself")
        return together

    def _told(self, secret: int) -> Iterator[int | None]:
        """How many rows each file has by its row groups; `None` if these are not its own, or too narrow."""
        width = self.metadata.num_columns
        for place in self.places:
            mark, groups = self.metadata.row_group(place.stop), [self.metadata.row_group(i) for i in place]
            counts = [group.num_rows for group in groups]
            marked = (mark.num_columns, mark.total_byte_size) == (0, secret)
            whole = all(group.num_columns == width for group in groups) and min(counts, default=0) >= 0
            yield sum(counts) if marked and whole else None


def _groups(raw: bytes, common: Common) -> tuple[int, int, bytes]:
    """How many rows and row groups a footer tells of, and the row groups."""
    middle = raw[len(common.head) : len(raw) - len(common.rest or b"")]
    try:
        rows, at = thrift.number_at(middle, 1)
        kind, count, begin = thrift.list_at(middle, at + 1)
        if (middle[:1], middle[at : at + 1], kind) == (_ROWS, _GROUPS, thrift.STRUCT):
            return rows, count, middle[begin:]
    except IndexError:
        pass
    raise Damaged("its footer has no row groups where others have them")
