"""Describe a data set from its footers."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

from fsspeckit.core.commit.session import unfinished
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.key_map import MAX_FILES, file_spans
from fsspeckit.core.model import Bounds, Footer
from fsspeckit.core.report_text import count
from fsspeckit.core.reports import KeyMap, without_map
from fsspeckit.core.storage import Access, Location
from fsspeckit.core.suggestions import did_you_mean
from fsspeckit.core.validate import column_names
from fsspeckit.core.values.schema import unify_footers
from fsspeckit.report.summary import compaction_advice

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class KeyRange:
    """The smallest and greatest value of a column, as text; `known` is false where statistics are missing."""

    lower: str | None
    upper: str | None
    nulls: int | None
    known: bool


@dataclass(frozen=True)
class InspectedFile:
    path: str
    rows: int
    bytes: int
    row_groups: int
    codecs: tuple[str, ...]
    written_by: str
    keys: Mapping[str, KeyRange]


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    partition: bool
    nullable: bool


@dataclass(frozen=True)
class Inspection:
    """The files and columns of a data set.

    `key_overlap` is the average number of files whose key range includes a given key. `compaction` says why `compact`
    is worth it, if it is. `key_map` has the ranges of one key column for the map on the page.
    """

    path: str
    rows: int
    bytes: int
    row_groups: int
    partition_columns: tuple[str, ...]
    partitions: int
    key_columns: tuple[str, ...]
    keys: Mapping[str, KeyRange]
    key_overlap: float | None
    columns: tuple[Column, ...]
    files: tuple[InspectedFile, ...]
    unfinished: tuple[str, ...]
    compaction: str | None = None
    key_map: KeyMap | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """All fields but `key_map`, as JSON has them."""
        return without_map(self)


def inspect(
    path: str,
    key_columns: Sequence[str] | str = (),
    filesystem: Any = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Describe a data set: files, rows, sizes, partitions and, for `key_columns`, the ranges that pruning uses.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [7, 3], "status": ["new", "paid"]})
    >>> _ = fsspeckit.merge(orders, "memory://inspect/orders", key_columns=["id"])
    >>> seen = fsspeckit.inspect("memory://inspect/orders", "id")
    >>> seen.rows, len(seen.files), seen.keys["id"].lower, seen.keys["id"].upper
    (2, 1, '3', '7')
    """
    key_columns = column_names("key_columns", key_columns) or ()
    location = Access(filesystem, storage_options).locate(path)
    infos = list_files(location)
    if not location.storage.is_dir(location.root):
        raise ArgumentError(f"{location.shown} does not exist.")
    footers = read_footers(location, infos, key_columns, all_chunks=True)
    columns = _columns(footers)
    types = _types(columns, key_columns)
    partition_columns = tuple(dict.fromkeys(name for footer in footers for name in footer.partition))
    overlap = _overlap(footers, key_columns)
    return Inspection(
        path=location.shown,
        rows=sum(f.rows for f in footers),
        bytes=sum(f.info.size for f in footers),
        row_groups=sum(len(f.row_groups) for f in footers),
        partition_columns=partition_columns,
        partitions=len({tuple(f.partition.items()) for f in footers}) if partition_columns else 0,
        key_columns=key_columns,
        keys={k: _shown(_range(footers, k), types[k]) for k in key_columns},
        key_overlap=overlap,
        columns=columns,
        files=tuple(_file(location.show(f.path), f, types) for f in footers),
        unfinished=tuple(unfinished(location)),
        compaction=compaction_advice(footers, overlap),
        key_map=_key_map(location, footers, key_columns, types),
    )


def _key_map(
    location: Location, footers: Sequence[Footer], key_columns: tuple[str, ...], types: Mapping[str, str]
) -> KeyMap | None:
    """The ranges of the first key column that is in the files."""
    stored = [k for k in key_columns if not any(k in footer.partition for footer in footers)]
    if not stored:
        return None
    spans = zip(footers, file_spans(Footers(footers), stored[0]), strict=True)
    ranges = {location.show(footer.path): span for footer, span in islice(spans, MAX_FILES)}
    return KeyMap(stored[0], types[stored[0]], key_columns, ranges)


def _columns(footers: Sequence[Footer]) -> tuple[Column, ...]:
    if not footers:
        return ()
    schema = unify_footers(footers)
    paths = dict.fromkeys(name for footer in footers for name in footer.partition)
    stored = [Column(f.name, str(f.type), f.name in paths, f.nullable) for f in schema]
    return (*stored, *(Column(name, "from the path", True, True) for name in paths if name not in schema.names))


def _types(columns: Sequence[Column], key_columns: Sequence[str]) -> dict[str, str]:
    types = {c.name: c.type for c in columns}
    missing = [k for k in key_columns if k not in types]
    if missing and columns:
        hint = did_you_mean(missing, types)
        raise ArgumentError(f"Key columns not found: {missing}. The data set has {list(types)}.{hint}")
    return {k: types.get(k, "") for k in key_columns}


def _file(path: str, footer: Footer, types: Mapping[str, str]) -> InspectedFile:
    metadata = footer.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)] if metadata is not None else []
    codecs = {g.column(i).compression.lower() for g in groups for i in range(g.num_columns)}
    return InspectedFile(
        path=path,
        rows=footer.rows,
        bytes=footer.info.size,
        row_groups=len(footer.row_groups),
        codecs=tuple(sorted(codecs)),
        written_by=(metadata.created_by or "unknown") if metadata is not None else "unknown",
        keys={k: _shown(_range([footer], k), type_name) for k, type_name in types.items()},
    )


def _range(footers: Iterable[Footer], column: str) -> Bounds | None:
    """Bounds over all row groups, or `None` if one has no statistics; those of a partition column are in the paths."""
    bounds: list[Bounds | None] = []
    for footer in footers:
        if column in footer.partition:
            bounds.append(_path_bounds(footer.partition[column]))
        else:
            bounds += [group.bounds.get(column) for group in footer.row_groups if group.rows]
    known = [b for b in bounds if b is not None]
    filled = [b for b in known if b.lower is not None]
    nulls = None if any(b.nulls is None for b in known) else sum(b.nulls or 0 for b in known)
    if len(known) < len(bounds):
        return None
    if not filled:
        return Bounds(None, None, nulls)
    try:
        return Bounds(min(b.lower for b in filled), max(b.upper for b in filled), nulls)
    except TypeError:  # some files store the column, others have it in their path
        return None


def _path_bounds(text: str | None) -> Bounds:
    """The value in a folder name, ordered as a number if it is one: `month=9` comes before `month=10`."""
    if text is None:
        return Bounds(None, None)
    value = (0, int(text), text) if _INTEGER.fullmatch(text) else (1, 0, text)
    return Bounds(value, value)


def _shown(bounds: Bounds | None, type_name: str) -> KeyRange:
    if bounds is None:
        return KeyRange(None, None, None, known=False)
    if bounds.lower is None:
        return KeyRange(None, None, bounds.nulls, known=True)
    lower, upper = (b[-1] if isinstance(b, tuple) else key_value(b, type_name) for b in (bounds.lower, bounds.upper))
    return KeyRange(lower, upper, bounds.nulls, known=True)


def partition_text(seen: Inspection) -> str:
    return f"{count(seen.partitions)} by {', '.join(seen.partition_columns)}" if seen.partitions else "none"


def codec_text(seen: Inspection) -> str:
    return ", ".join(sorted({codec for file in seen.files for codec in file.codecs})) or "none"


def writer_text(seen: Inspection) -> str:
    return "; ".join(sorted({file.written_by for file in seen.files})) or "nobody"


def overlap_text(seen: Inspection) -> str | None:
    if seen.key_overlap is None:
        return None
    return f"a key may be in {seen.key_overlap:,.1f} of {count(len(seen.files), 'file')} on average"


def column_cells(seen: Inspection) -> list[tuple[str, str, str, str]]:
    """Name, type, and two notes about each column."""
    return [
        (c.name, c.type, "partition" if c.partition else "", "" if c.nullable else "not null") for c in seen.columns
    ]


def range_text(key_range: KeyRange) -> str:
    """A range for people: `1 … 9, 2 nulls`."""
    if not key_range.known:
        return "no statistics"
    nulls = f", {count(key_range.nulls, 'null')}" if key_range.nulls else ""
    if key_range.lower is None:
        return "only nulls" if key_range.nulls else "no values"
    upper = f" … {key_range.upper}" if key_range.upper != key_range.lower else ""
    return f"{key_range.lower}{upper}{nulls}"


def _overlap(footers: Sequence[Footer], key_columns: Sequence[str]) -> float | None:
    """The average number of files whose key range overlaps a file's own: 1 is best, the number of files is worst."""
    if not key_columns or not footers:
        return None
    overlaps = [_overlaps(footers, column) for column in key_columns]
    fewest: list[int] = [min(counts) for counts in zip(*overlaps, strict=True)]
    return round(sum(fewest) / len(footers), 1)


def _overlaps(footers: Sequence[Footer], column: str) -> list[int]:
    """For each file, the number of files whose range of one column overlaps its own."""
    ranges = [_range([footer], column) for footer in footers]
    filled = [r for r in ranges if r is not None and r.lower is not None]
    try:
        lowers, uppers = sorted(r.lower for r in filled), sorted(r.upper for r in filled)
    except TypeError:
        return [len(footers)] * len(footers)
    unknown = sum(r is None for r in ranges)

    def overlapping(own: Bounds | None) -> int:
        if own is None:
            return len(footers)
        if own.lower is None:
            return 1
        return bisect_right(lowers, own.upper) - bisect_left(uppers, own.lower) + unknown

    return [overlapping(own) for own in ranges]


def key_value(value: Any, dtype: str) -> str:
    """A bound from a footer, where text is bytes and times are numbers, formatted by its Arrow type.

    >>> key_value(b"abc", "string"), key_value(20000, "date32[day]"), key_value(1, "bool")
    ('abc', '2024-10-04', 'true')
    """
    if value is None:
        return "–"
    if isinstance(value, bytes):
        return value.decode(errors="replace") if "string" in dtype or "utf8" in dtype else f"0x{value.hex()}"
    if dtype == "bool":
        return "true" if value else "false"
    if dtype.startswith(("date", "timestamp", "time")):
        return _time_text(value, dtype)
    return str(value)


def _time_text(value: int, dtype: str) -> str:
    try:
        if dtype.startswith("date"):
            return str(_EPOCH + timedelta(days=value))
        moment = datetime.fromtimestamp(value // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):  # a year outside Python's range
        return str(value)
    fraction = f".{value % 1_000_000_000:09d}".rstrip("0") if value % 1_000_000_000 else ""
    if not dtype.startswith("timestamp"):
        return f"{moment:%H:%M:%S}{fraction}"
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}{' UTC' if 'tz=' in dtype else ''}"
