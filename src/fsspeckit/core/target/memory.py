"""Footers as bytes, and back: JSON, since it can hold nothing but values."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import Bounds, FileInfo, Footer, RowGroup
from fsspeckit.core.target.partitions import parse_hive_partition_path
from fsspeckit.core.values.calendars import Calendar

# To be raised when a footer, its bounds or this form come to mean something else.
FORMAT = 1
_ODD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of the files of a data set. `commons` is what footers share, as of `common.Common`."""

    columns: tuple[str, ...]
    commons: list[Any]
    files: dict[str, list[Any]]

    @classmethod
    def of(cls, data: bytes | None, columns: Sequence[str]) -> Memory:
        """What bytes say; nothing, if they are not of this form and of this PyArrow."""
        ordered = tuple(sorted(columns))
        try:
            version, names, commons, files = json.loads(data or b"")
            if version == _version() and tuple(names) == ordered:
                return cls(ordered, commons, {file[0]: file for file in files})
        except _ODD:
            pass
        return cls(ordered, [], {})

    def encode(self) -> bytes:
        return json.dumps([_version(), self.columns, self.commons, list(self.files.values())]).encode()

    def recall(self, infos: Iterable[FileInfo]) -> list[Footer]:
        """The footers of the files that are still what they were."""
        try:
            commons = [_decoded_common(common) for common in self.commons]
            return [self._footer(info, file, commons) for info, file in self._same(infos)]
        except _ODD:
            return []

    def _same(self, infos: Iterable[FileInfo]) -> Iterator[tuple[FileInfo, list[Any]]]:
        for info in infos:
            file = self.files.get(info.path)
            if file is not None and file[1] == _identity(info):
                yield info, file

    def _footer(self, info: FileInfo, file: list[Any], commons: list[tuple[Any, ...]]) -> Footer:
        _, _, number, groups = file
        schema, ledger, int96, calendar, collated, by_spark = commons[number]
        row_groups = tuple(
            RowGroup(rows, size, {n: _bounds(b) for n, b in zip(self.columns, bounds, strict=True) if b is not None})
            for rows, size, bounds in groups
        )
        partition = parse_hive_partition_path(info.path)
        return Footer(info, schema, row_groups, partition, None, ledger, int96, calendar, collated, by_spark, True)

    def _kept(self, infos: Iterable[FileInfo]) -> tuple[dict[str, list[Any]], list[Any]]:
        """The files that are still the same, and of what footers share only what these refer to."""
        same = [file for _, file in self._same(infos)]
        used = {number: place for place, number in enumerate(sorted({number for _, _, number, _ in same}))}
        files = {path: [path, identity, used[number], groups] for path, identity, number, groups in same}
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
            groups = [[g.rows, g.bytes, [_encoded(g.bounds.get(n)) for n in self.columns]] for g in footer.row_groups]
            files[footer.path] = [footer.path, _identity(footer.info), number, groups]
        return Memory(self.columns, commons, files)


def _version() -> list[Any]:
    return [FORMAT, pa.__version__]


def _identity(info: FileInfo) -> list[Any]:
    if info.etag:
        return [info.size, info.etag]
    return [info.size, info.mtime_ns, info.ctime_ns, info.inode, info.device]


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


def _encoded(bounds: Bounds | None) -> list[Any] | None:
    return None if bounds is None else [_plain(bounds.lower), _plain(bounds.upper), bounds.nulls]


def _bounds(encoded: list[Any]) -> Bounds:
    lower, upper, nulls = encoded
    return Bounds(_value(lower), _value(upper), nulls)


def _plain(value: Any) -> Any:
    """Numbers are themselves, bytes are text of as many characters, a decimal stands in a list."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [str(value)] if isinstance(value, Decimal) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, str):
        return plain.encode("latin-1")
    return Decimal(plain[0]) if isinstance(plain, list) else plain
