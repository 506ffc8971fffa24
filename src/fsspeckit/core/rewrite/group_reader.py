"""Read the row groups of files that are joined, in the plain types of the new file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.dataset.footers import check_planned
from fsspeckit.core.dataset.ledger import without_streams
from fsspeckit.core.model import Footer
from fsspeckit.core.parquet.footer_io import footer_bytes, footer_start
from fsspeckit.core.parquet.reader import check_int96, check_rows, checked_footer, open_source, read_row_group, reading
from fsspeckit.core.parquet.splice import OldFile
from fsspeckit.core.rewrite.compaction import MAX_BYTES, MAX_ROWS, RowGroupOf
from fsspeckit.core.storage import Location
from fsspeckit.core.values.conform import to_common_type

Entries = tuple[str, Mapping[bytes, bytes]]
"""A file, and its key-value entries."""


@dataclass(frozen=True, slots=True)
class GroupFile:
    """An open file of a bin."""

    location: Location
    planned: Footer
    source: Any
    file: pq.ParquetFile

    @property
    def shown(self) -> str:
        return self.location.show(self.planned.path)

    @property
    def entries(self) -> Mapping[bytes, bytes]:
        """The key-value entries, without those of streams, which the data set gives to every new file."""
        return without_streams(self.file.metadata.metadata or {})

    def footer(self) -> tuple[dict[int, Any], int]:
        """The decoded footer, and where it begins."""
        with reading(self.location, self.planned.path):
            raw = footer_bytes(self.source)
            begin = footer_start(self.source, raw)
        return checked_footer(self.location, self.planned.path, raw, self.file.metadata), begin

    def old_file(self) -> OldFile:
        """The chunks of the file; `NotSpliceable` if they cannot be copied."""
        footer, begin = self.footer()
        return OldFile.of(self.source, footer, begin, self.file.metadata, self.file.schema_arrow)


@contextlib.contextmanager
def open_group_file(location: Location, planned: Footer) -> Iterator[GroupFile]:
    location.expect(planned.info)
    with contextlib.ExitStack() as stack:
        with reading(location, planned.path):
            source = stack.enter_context(location.storage.open_input(location.at(planned.path)))
            file = open_source(source, planned.metadata)
        check_planned(location, planned, file)
        yield GroupFile(location, planned, source, file)


def read_pieces(
    location: Location,
    columns: pa.Schema,
    groups: Sequence[RowGroupOf],
    entries: list[Entries],
    most: int = MAX_BYTES,
) -> Iterator[pa.Table]:
    """The rows of row groups in plain types: a table for each, or several for one of much more than `most` bytes.

    The key-value entries of each file are added to `entries`.
    """
    for file, own in _by_file(groups):
        with open_group_file(location, file) as opened:
            if file.int96:
                check_int96(location, file.path, opened.file, own)
            entries.append((opened.shown, opened.entries))
            if len(own) == len(file.row_groups):
                location.storage.will_read(opened.source, [(0, file.info.size)])
            for number in own:
                group = file.row_groups[number]
                if group.rows > MAX_ROWS or group.bytes > 2 * most:
                    pieces = _slices(opened, RowGroupOf(file, number), most)
                else:
                    pieces = iter([read_row_group(location, file.path, opened.file, number)])
                yield from (_fitted(opened, piece, columns) for piece in pieces)


def _by_file(groups: Iterable[RowGroupOf]) -> Iterator[tuple[Footer, list[int]]]:
    own: list[RowGroupOf] = []
    for group in groups:
        if own and own[-1].file is not group.file:
            yield own[0].file, [g.number for g in own]
            own = []
        own.append(group)
    if own:
        yield own[0].file, [g.number for g in own]


def _slices(opened: GroupFile, group: RowGroupOf, most: int) -> Iterator[pa.Table]:
    """The rows of a large row group, in pieces that fit into memory."""
    rows, size = group.group.rows, group.group.bytes
    count = max(-(-rows // MAX_ROWS), -(-size // most))
    read = 0
    with reading(opened.location, opened.planned.path):
        for batch in opened.file.iter_batches(-(-rows // count), row_groups=[group.number], use_threads=False):
            read += batch.num_rows
            yield pa.Table.from_batches([batch])
    check_rows(opened.location, opened.planned.path, read, rows, f" of row group {group.number}")


def _fitted(opened: GroupFile, table: pa.Table, columns: pa.Schema) -> pa.Table:
    """In the plain types and the order of the columns."""
    fitted = [to_common_type(table.column(f.name), f.type, f.name, opened.shown) for f in columns]
    return pa.table(fitted, schema=columns.remove_metadata())
