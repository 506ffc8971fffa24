"""Footers as bytes, and back: JSON and numbers side by side, since these can hold nothing but values.

What is said of each file stands in a column, as does what is said of each row group: a list of whole numbers is then
read at once, where JSON takes its time for each of them.
"""

from __future__ import annotations

import base64
import json
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import Bounds, FileInfo, Footer, RowGroup
from fsspeckit.core.target.partitions import parse_hive_partition_path
from fsspeckit.core.values.calendars import Calendar

# To be raised when a footer, its bounds or this form come to mean something else.
FORMAT = 2
_ODD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException)

Identity = tuple[Any, ...]
File = tuple[Identity, int, tuple[RowGroup, ...]]
"""What tells a file from any other, which of `commons` is its own, and its row groups."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of the files of a data set. `commons` is what footers share, as of `common.Common`."""

    columns: tuple[str, ...]
    commons: list[Any]
    files: dict[str, File]

    @classmethod
    def of(cls, data: bytes | None, columns: Sequence[str]) -> Memory:
        """What bytes say; nothing, if they are not of this form and of this PyArrow."""
        ordered = tuple(sorted(columns))
        try:
            text, _, numbers = (data or b"").partition(b"\n")
            version, names, commons, paths, table = json.loads(text)
            if version == _version() and tuple(names) == ordered:
                return cls(ordered, commons, _files(ordered, paths, list(_unpacked(table, numbers))))
        except _ODD:
            pass
        return cls(ordered, [], {})

    def encode(self) -> bytes:
        table, numbers = _packed(_table(self.columns, self.files.values()))
        return json.dumps([_version(), self.columns, self.commons, list(self.files), table]).encode() + b"\n" + numbers

    def recall(self, infos: Iterable[FileInfo]) -> list[Footer]:
        """The footers of the files that are still what they were."""
        try:
            commons, footers = [_decoded_common(common) for common in self.commons], []
            for info, number, groups in self._same(infos):
                schema, ledger, int96, calendar, collated, by_spark = commons[number]
                partition = parse_hive_partition_path(info.path)
                footers.append(
                    Footer(info, schema, groups, partition, None, ledger, int96, calendar, collated, by_spark, True)
                )
            return footers
        except _ODD:
            return []

    def _same(self, infos: Iterable[FileInfo]) -> Iterator[tuple[FileInfo, int, tuple[RowGroup, ...]]]:
        for info in infos:
            file = self.files.get(info.path)
            if file is not None and file[0] == _identity(info):
                yield info, file[1], file[2]

    def _kept(self, infos: Iterable[FileInfo]) -> tuple[dict[str, File], list[Any]]:
        """The files that are still the same, and of what footers share only what these refer to."""
        same = list(self._same(infos))
        used = {number: place for place, number in enumerate(sorted({number for _, number, _ in same}))}
        files = {info.path: (_identity(info), used[number], groups) for info, number, groups in same}
        return files, [self.commons[number] for number in used]

    def with_footers(self, infos: Iterable[FileInfo], footers: Iterable[Footer]) -> Memory:
        """With footers that were read now, and without files that are no longer there, or no longer the same."""
        files, commons = self._kept(infos)
        numbers = {json.dumps(common): number for number, common in enumerate(commons)}
        texts: dict[tuple[Any, ...], str | None] = {}
        for footer in footers:
            shared = tuple(map(id, (footer.schema, footer.ledger, footer.int96, footer.calendar, footer.collated)))
            if shared not in texts:
                texts[shared] = _encoded_common(footer)
            text = texts[shared]
            if text is None:
                continue
            number = numbers.setdefault(text, len(numbers))
            if number == len(commons):
                commons.append(json.loads(text))
            files[footer.path] = (_identity(footer.info), number, footer.row_groups)
        return Memory(self.columns, commons, files)


def _version() -> list[Any]:
    return [FORMAT, pa.__version__, sys.byteorder]


def _identity(info: FileInfo) -> Identity:
    if info.etag:
        return info.size, info.etag.encode(errors="surrogatepass"), 0, 0, 0
    return info.size, info.mtime_ns, info.ctime_ns, info.inode, info.device


# No bounds. Those of a column of nothing but nulls tell how many there are.
_UNKNOWN = Bounds(None, None, None)
# Columns that tell of a file: five of its identity, the number of its common, how many row groups it has.
_OF_FILE = 7


def _table(columns: Sequence[str], files: Collection[File]) -> list[list[Any]]:
    """What is said of each file, then what of each row group, column by column."""
    rows = [(*identity, number, len(groups)) for identity, number, groups in files]
    each = [group for _, _, groups in files for group in groups]
    table = [[row[at] for row in rows] for at in range(_OF_FILE)]
    table += [[group.rows for group in each], [group.bytes for group in each]]
    for name in columns:
        bounds = [group.bounds.get(name, _UNKNOWN) for group in each]
        table += [[b.lower for b in bounds], [b.upper for b in bounds], [b.nulls for b in bounds]]
    return table


def _files(columns: Sequence[str], paths: list[str], table: list[list[Any]]) -> dict[str, File]:
    *identity, numbers, counts = table[:_OF_FILE]
    groups = _row_groups(columns, *table[_OF_FILE:])
    ends = list(accumulate(counts, initial=0))
    if len(set(paths)) < len(paths) or ends[-1] != len(groups) or min(counts, default=0) < 0:
        raise ValueError("row groups that are not of one file")
    own = [tuple(groups[begin:end]) for begin, end in pairwise(ends)]
    return dict(zip(paths, zip(zip(*identity, strict=True), numbers, own, strict=True), strict=True))


def _row_groups(columns: Sequence[str], rows: list[int], sizes: list[int], *of_bounds: list[Any]) -> list[RowGroup]:
    bounds: list[dict[str, Bounds]] = [{} for _ in rows]
    for name, (lowers, uppers, nulls) in zip(columns, zip(*[iter(of_bounds)] * 3, strict=True), strict=True):
        for of_group, lower, upper, count in zip(bounds, lowers, uppers, nulls, strict=True):
            if lower is not None or count is not None:
                of_group[name] = Bounds(lower, upper, count)
    return [RowGroup(*group) for group in zip(rows, sizes, bounds, strict=True)]


def _packed(table: list[list[Any]]) -> tuple[list[Any], bytes]:
    """Columns of whole numbers as bytes, in the table their length in their place; the others as JSON takes them."""
    numbers, columns = bytearray(), list[Any]()
    for column in table:
        try:
            numbers += array("q", column).tobytes()
            columns.append(len(column))
        except (TypeError, OverflowError):
            columns.append([_plain(value) for value in column])
    return columns, bytes(numbers)


def _unpacked(columns: list[Any], numbers: bytes) -> Iterator[list[Any]]:
    begin = 0
    for column in columns:
        if isinstance(column, int):
            yield array("q", numbers[begin : begin + 8 * column]).tolist()
            begin += 8 * column
        else:
            yield [_value(value) for value in column]
    if begin != len(numbers):
        raise ValueError("other numbers than those that are told of")


def _encoded_common(footer: Footer) -> str | None:
    """As JSON; `None` if its schema does not come back as it was."""
    schema = footer.schema.serialize()
    if not pa.ipc.read_schema(schema).equals(footer.schema, check_metadata=True):
        return None
    calendar = [footer.calendar.dates, footer.calendar.int96]
    text = base64.b64encode(schema).decode()
    return json.dumps([text, footer.ledger, sorted(footer.int96), calendar, footer.collated, footer.by_spark])


def _decoded_common(common: list[Any]) -> tuple[Any, ...]:
    """As `Footer` has them, the schema first."""
    schema, ledger, int96, calendar, collated, by_spark = common
    read = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    return read, ledger, frozenset(int96), Calendar(*calendar), collated, by_spark


def _plain(value: Any) -> Any:
    """Numbers are themselves, bytes are text of as many characters, a decimal stands in a list."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [str(value)] if isinstance(value, Decimal) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, str):
        return plain.encode("latin-1")
    return Decimal(plain[0]) if isinstance(plain, list) else plain
