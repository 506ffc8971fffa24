"""The footer cache: footers of unchanged files are not read again (docs/decisions/0013).

A cached footer has the identity of its file: on a disk device, inode, size, mtime and ctime, in a store ETag and size.
A footer that was read within two seconds of its file's last change is not cached: another change in the same tick of
the clock would look the same. Files that a merge rewrites are opened and must agree with the cached footer
(`footers.open_planned`).

A cache file has three Arrow tables, written as Arrow IPC streams one after the other:

- `templates`: what the footers of many files share, such as the schema
- `files`: a row for each file, with its identity
- `row_groups`: a row for each row group, file by file, with the bounds of the key columns

A wrong footer could hide a row, so a cache file with any error is ignored. It may be wrong even if its digest is right:
the tables must have the expected columns, pass a full validation and fit each other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.dataset.partitions import parse_hive_partition_path
from fsspeckit.core.footer_columns import BoundsColumn, Footers
from fsspeckit.core.model import Bounds, FileInfo, Footer, RowGroup
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.storage import Location, cache
from fsspeckit.core.values.calendars import Calendar

# Fewer footers are read as fast as a cache file.
_MIN_FILES_ON_DISK, _MIN_FILES_IN_STORE = 64, 8
# How long ago a file must have changed last, in nanoseconds: a later change in the same clock tick looks the same.
_RACY = 2 * 10**9
# A cache file is written again when at least one footer in this many had to be read.
_MAX_FOOTERS_PER_NEW_ONE = 50

# Increased whenever the meaning of a footer, of its bounds or of this format changes.
FORMAT = 4
_DECODE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    pa.ArrowException,
    OSError,
)

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_TEMPLATES = pa.schema(
    {
        "schema": pa.binary(),
        "ledger": _TEXT_MAP,
        "int96": pa.list_(pa.string()),
        "hybrid_dates": pa.bool_(),
        "hybrid_int96": pa.bool_(),
        "collated": _TEXT_MAP,
        "by_spark": pa.bool_(),
    }
)
_IDENTITY = {
    "size": pa.int64(),
    "etag": pa.string(),
    "mtime_ns": pa.int64(),
    "ctime_ns": pa.int64(),
    "inode": pa.uint64(),
    "device": pa.uint64(),
}
_FILES = pa.schema({"path": pa.string(), **_IDENTITY, "template": pa.int64(), "row_groups": pa.int64()})
_ROW_GROUPS = pa.schema({"rows": pa.int64(), "bytes": pa.int64()})
_BOUNDS = (pa.int64(), pa.float64(), pa.binary(), pa.string())
"""The types of bounds. Values of other types, or of several types, are stored as text: see `_as_text`."""

Read = Callable[[list[FileInfo]], list[Footer]]


def cached_footers(location: Location, files: Iterable[FileInfo], columns: Sequence[str], read: Read) -> Footers:
    """The footers of files with the bounds of `columns`, from the cache or by `read`."""
    infos = list(files)
    least = _MIN_FILES_IN_STORE if location.storage.opens_by_request else _MIN_FILES_ON_DISK
    name = None if len(infos) < least or cache.folder() is None else _name(location, columns)
    if name is None:
        return Footers(read(infos))
    now, cached = time.time_ns(), CachedFooters.decode(cache.load(name), columns)
    valid = Footers() if cached is None else cached.recall(infos)
    if len(valid) == len(infos):
        return valid
    footers = {footer.path: footer for footer in valid}
    new = read([info for info in infos if info.path not in footers])
    stable = [footer for footer in new if footer.certain and _is_stable(footer.info, now)]
    if stable and len(stable) * _MAX_FOOTERS_PER_NEW_ONE >= len(infos):
        with contextlib.suppress(OverflowError, UnicodeError, pa.ArrowException):  # values that the format cannot hold
            cache.save(name, encode([*valid, *stable], columns))
    footers.update((footer.path, footer) for footer in new)
    return Footers(footers[info.path] for info in infos)


def _name(location: Location, columns: Sequence[str]) -> str | None:
    """The name of the cache file. Each set of key columns has its own file, since it needs other bounds."""
    identity = location.storage.identity(location.root)
    return None if identity is None else repr((identity, sorted(columns)))


def _is_stable(info: FileInfo, now: int) -> bool:
    return max(info.mtime_ns, info.ctime_ns) + _RACY <= now


@dataclass(frozen=True)
class CachedFooters:
    """The footers of a data set's files, in the order of their paths.

    `templates` are the fields of `Footer` that many files share, the schema first.
    """

    paths: list[str]
    identities: list[list[Any]]
    template_of: list[int]
    group_counts: list[int]
    group_rows: list[int]
    group_bytes: list[int]
    bounds: Mapping[str, BoundsColumn]
    templates: list[tuple[Any, ...]]

    @classmethod
    def decode(cls, data: bytes | None, columns: Sequence[str]) -> CachedFooters | None:
        """The footers in `data`, if it is whole, of this format and of this PyArrow; else `None`."""
        try:
            source, expected = pa.BufferReader(data or b""), _TEMPLATES.with_metadata(_version(columns))
            templates = _read(source, lambda schema: schema.equals(expected, check_metadata=True))
            files = _read(source, lambda schema: schema.equals(_FILES))
            groups = _read(source, lambda schema: _are_row_groups(schema, len(columns)))
            if source.tell() != source.size():
                raise ValueError("more than three tables")
            bounds = [_bounds(column) for column in groups.columns[len(_ROW_GROUPS) :]]
            cached = cls(
                _values(files["path"]),
                [_values(files[name]) for name in _IDENTITY],
                _values(files["template"]),
                _values(files["row_groups"]),
                _values(groups["rows"]),
                _values(groups["bytes"]),
                dict(zip(sorted(columns), zip(bounds[::3], bounds[1::3], bounds[2::3], strict=True), strict=True)),
                [_template(row) for row in templates.to_pylist()],
            )
            return cached if cached._is_consistent() else None
        except _DECODE_ERRORS:
            return None

    def _is_consistent(self) -> bool:
        """Do the tables fit each other?"""
        return (
            min(self.group_counts, default=0) >= 0
            and sum(self.group_counts) == len(self.group_rows)
            and set(self.template_of) <= set(range(len(self.templates)))
        )

    def recall(self, infos: Sequence[FileInfo]) -> Footers:
        """The footers of the files that have not changed."""
        identities = _identities(infos)
        if identities == self.identities and [info.path for info in infos] == self.paths:
            return _FootersOnDemand(self, infos)
        cached = dict(zip(self.paths, enumerate(zip(*self.identities, strict=True)), strict=True))
        footers = []
        for info, identity in zip(infos, zip(*identities, strict=True), strict=True):
            number, cached_identity = cached.get(info.path, (-1, None))
            if cached_identity == identity:
                footers.append(self.footer(number, info))
        return Footers(footers)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate(self.group_counts, initial=0))

    def footer(self, number: int, info: FileInfo) -> Footer:
        schema, ledger, int96, calendar, collated, by_spark = self.templates[self.template_of[number]]
        groups = tuple([self._row_group(group) for group in range(*self._starts[number : number + 2])])
        partition = parse_hive_partition_path(info.path)
        return Footer(info, schema, groups, partition, None, ledger, int96, calendar, collated, by_spark, True)

    def _row_group(self, group: int) -> RowGroup:
        bounds = {}
        for name, (lower, upper, nulls) in self.bounds.items():
            if lower[group] is not None or nulls[group] is not None:  # a column of nulls has a count and no bounds
                bounds[name] = Bounds(lower[group], upper[group], nulls[group])
        return RowGroup(self.group_rows[group], self.group_bytes[group], bounds)


class _FootersOnDemand(Footers):
    """The footers of files none of which has changed. Each is made at its first use."""

    def __init__(self, cached: CachedFooters, infos: Sequence[FileInfo]) -> None:
        self._cached, self._listed = cached, list(infos)
        self._footers = [None] * len(infos)

    def _make(self, number: int) -> Footer:
        return self._cached.footer(number, self._listed[number])

    @property
    def infos(self) -> list[FileInfo]:
        return self._listed

    @cached_property
    def templates(self) -> list[Footer]:
        template_of = self._cached.template_of
        return [self[template_of.index(template)] for template in dict.fromkeys(template_of)]

    @property
    def group_counts(self) -> list[int]:
        return self._cached.group_counts

    @property
    def group_rows(self) -> list[int]:
        return self._cached.group_rows

    def bounds(self, column: str) -> BoundsColumn:
        return self._cached.bounds[column] if column in self._cached.bounds else super().bounds(column)


def encode(footers: Iterable[Footer], columns: Sequence[str]) -> bytes:
    """The bytes of footers with the bounds of `columns`, for `CachedFooters.decode`."""
    numbers: dict[tuple[Any, ...], int] = {}
    rows: dict[tuple[int, ...], tuple[Any, ...] | None] = {}  # by the identity of objects that footers share
    kept, template_of = [], []
    for footer in sorted(footers, key=lambda f: f.path):
        shared = tuple(map(id, (footer.schema, footer.ledger, footer.int96, footer.calendar, footer.collated)))
        if shared not in rows:
            rows[shared] = _template_row(footer)
        row = rows[shared]
        if row is not None:
            kept.append(footer)
            template_of.append(numbers.setdefault(row, len(numbers)))
    files = Footers(kept)
    file_columns = [[info.path for info in files.infos], *_identities(files.infos), template_of, files.group_counts]
    sizes = [group.bytes for footer in kept for group in footer.row_groups]
    bounds = [_bounds_array(part) for name in sorted(columns) for part in files.bounds(name)]
    group_fields = [*_ROW_GROUPS, *(pa.field(str(place), part.type) for place, part in enumerate(bounds))]
    sink = pa.BufferOutputStream()
    _write(
        sink,
        zip(*numbers, strict=True) if numbers else [()] * len(_TEMPLATES),
        _TEMPLATES.with_metadata(_version(columns)),
    )
    _write(sink, file_columns, _FILES)
    _write(sink, [files.group_rows, sizes, *bounds], pa.schema(group_fields))
    return bytes(sink.getvalue())


def _version(columns: Iterable[str]) -> dict[str, str]:
    return {"format": str(FORMAT), "pyarrow": pa.__version__, "columns": repr(sorted(columns))}


def _write(sink: Any, columns: Iterable[Any], schema: pa.Schema) -> None:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))


def _read(source: Any, is_expected: Callable[[pa.Schema], bool]) -> pa.Table:
    """Read the next table. Its columns are checked before its values are read."""
    with pa.ipc.open_stream(source) as reader:
        if not is_expected(reader.schema):
            raise ValueError(f"unexpected columns {reader.schema.names}")
        table = reader.read_all()
    table.validate(full=True)
    return table


def _are_row_groups(schema: pa.Schema, columns: int) -> bool:
    names, types = [*_ROW_GROUPS.names, *map(str, range(3 * columns))], schema.types
    return bool(
        schema.names == names
        and types[:2] == _ROW_GROUPS.types
        and all(dtype in _BOUNDS for dtype in types)
        and all(dtype == pa.int64() for dtype in types[4::3])  # null counts
    )


def _template_row(footer: Footer) -> tuple[Any, ...] | None:
    """The row of a footer in `_TEMPLATES`; `None` if its schema does not survive serialization."""
    schema, calendar = bytes(footer.schema.serialize()), footer.calendar
    if not pa.ipc.read_schema(pa.py_buffer(schema)).equals(footer.schema, check_metadata=True):
        return None
    maps = [tuple(sorted(mapping.items())) for mapping in (footer.ledger, footer.collated)]
    int96 = tuple(sorted(footer.int96))
    return schema, maps[0], int96, calendar.dates, calendar.int96, maps[1], footer.by_spark


def _template(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A row of `_TEMPLATES` as fields of `Footer`, in their order."""
    ledger, collated = dict(row["ledger"]), dict(row["collated"])
    flags = [row[name] for name in ("hybrid_dates", "hybrid_int96", "by_spark")]
    if None in (*flags, *row["int96"], *ledger.values(), *collated.values()):
        raise ValueError("a value is missing")
    schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
    return schema, ledger, frozenset(row["int96"]), Calendar(*flags[:2]), collated, flags[2]


def _identities(infos: Sequence[FileInfo]) -> list[list[Any]]:
    """The identities of files, as the columns of `_IDENTITY`: in a store ETag and size, on a disk all of them."""
    return [
        [info.size for info in infos],
        [info.etag for info in infos],
        [0 if info.etag else info.mtime_ns for info in infos],
        [info.ctime_ns for info in infos],
        [info.inode for info in infos],
        [info.device for info in infos],
    ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Numbers, text or bytes without nulls. NumPy makes a list of numbers twenty times as fast as Arrow."""
    if column.null_count:
        raise ValueError("a value is missing")
    values: list[Any] = column.to_numpy().tolist() if pa.types.is_primitive(column.type) else column.to_pylist()
    return values


def _bounds_array(values: Sequence[Any]) -> pa.Array:
    """Order values (see `values.keys`) in a type that holds all of them."""
    types = {type(value) for value in values} - {type(None)}
    arrow_types: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), bytes: pa.binary()}
    with contextlib.suppress(OverflowError):  # beyond 64 bits
        if len(types) < 2 and types <= set(arrow_types):
            return pa.array(values, arrow_types[next(iter(types), int)])
    return pa.array([None if value is None else _as_text(value) for value in values], pa.string())


def _bounds(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(column.type):
        return [None if text is None else _from_text(text) for text in column.to_pylist()]
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise ValueError("NaN is no bound")
    if not column.null_count:
        return _values(column)
    if pa.types.is_binary(column.type):
        return list(column.to_pylist())
    valid = column.is_valid().to_numpy().tolist()
    return [value if is_valid else None for value, is_valid in zip(_values(column.fill_null(0)), valid, strict=True)]


def _as_text(value: Any) -> str:
    """A value as text with a letter for its type, for `_from_text`."""
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    return f"f{value.hex()}" if isinstance(value, float) else f"{'d' if isinstance(value, Decimal) else 'i'}{value}"


def _from_text(text: str) -> Any:
    parsers: Mapping[str, Callable[[str], Any]] = {"b": bytes.fromhex, "f": float.fromhex, "d": Decimal, "i": int}
    value = parsers[text[0]](text[1:])
    if value != value:
        raise ValueError("NaN is no bound")
    return value
