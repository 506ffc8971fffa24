"""Hive partitions: the values in paths, and the folders for new rows.

Values in paths are text and are read in the type of the source's column: `month=01` is 1 for an integer column and "01"
for a string column. A value that cannot be read in that type equals nothing, and its files are never pruned by it.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.model import Footer
from fsspeckit.core.values import arrays, keys

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# The characters that Hive and Spark escape in folder names.
_ESCAPED = frozenset("\"#%'*/:=?\\{}[]^\x7f") | {chr(c) for c in range(32)}

# Zones that Java and Spark accept beyond those of the time zone database.
_OFFSET = re.compile(r"(?:Z|(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?|UTC|GMT|UT)")
_SHORT_NAMES = {"PST": "America/Los_Angeles", "CST": "America/Chicago", "JST": "Asia/Tokyo", "IST": "Asia/Kolkata"}

_PARSE_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError)


class Unreadable:
    """A partition value that cannot be read in the column's type: equal to nothing, not even to itself."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return False


def parse_hive_partition_path(file_path: str, partition_columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Read the `column=value` folders of a path; with `partition_columns`, only those.

    >>> parse_hive_partition_path("/data/year=2024/month=12/file.parquet")
    {'year': '2024', 'month': '12'}
    """
    values: dict[str, Any] = {}
    for folder in posixpath.dirname(file_path).split("/") if "=" in file_path else ():
        name, equals, value = folder.partition("=")
        if equals and name:
            values[unquote(name)] = None if value == NULL_PARTITION else unquote(value)
    if partition_columns is None:
        return values
    return {name: values[name] for name in partition_columns if name in values}


def read_value(text: str | None, dtype: pa.DataType, zone: str = "UTC") -> Any:
    """A path's text as a comparable value of the column's type; `None` for null, `Unreadable` for other text."""
    if not text:  # a folder `p=` means null too
        return None
    try:
        return identities(_parse(text, dtype, zone))[0]
    except _PARSE_ERRORS:
        return Unreadable()


def value_array(text: str | None, dtype: pa.DataType, length: int, zone: str = "UTC") -> pa.Array:
    """A path's text as a constant column; null where it cannot be read."""
    if text:
        with contextlib.suppress(*_PARSE_ERRORS):
            return pa.repeat(_parse(text, dtype, zone)[0], length)
    return pa.nulls(length, dtype)


def _parse(text: str, dtype: pa.DataType, zone: str) -> pa.Array:
    raw = pa.array([text], pa.string())
    if arrays.family(dtype) == "binary":
        return raw.cast(pa.binary()).cast(dtype)
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        try:
            return raw.cast(dtype)
        except pa.ArrowInvalid:  # a local time without an offset; of an hour that occurs twice, the first is taken
            return pc.assume_timezone(raw.cast(pa.timestamp(dtype.unit)), zone, ambiguous="earliest").cast(dtype)
    if pa.types.is_time(dtype):
        return pa.array([f"1970-01-01 {text}"]).cast(pa.timestamp(dtype.unit)).cast(dtype)
    try:
        return raw.cast(dtype)
    except pa.ArrowInvalid:  # some programs write 1 as `1.0`, and a date as midnight
        if pa.types.is_integer(dtype):
            return raw.cast(pa.decimal128(38, 6)).cast(dtype)
        if pa.types.is_date(dtype):
            return raw.cast(pa.timestamp("us")).cast(dtype)
        raise


def identities(column: Any) -> list[Any]:
    """Comparable values. NaN is `"nan"`, so that it equals itself: all NaN are in the folder `nan`."""
    return ["nan" if value != value else value for value in keys.order_values(column)]


def timezone(name: Any, argument: str = "partition_timezone") -> str:
    """A time zone in Arrow's form; Java's `Z`, `+9` and `UTC+09:00` are accepted, too.

    >>> timezone("Asia/Tokyo"), timezone("GMT+9"), timezone("Z")
    ('Asia/Tokyo', '+09:00', 'UTC')
    """
    wrong = ArgumentError(
        f"{argument} is {name!r}, which is not a time zone. Use one such as 'Europe/Berlin', '+01:00' or 'UTC'."
    )
    if not isinstance(name, str) or not name:
        raise wrong
    zone: str = _SHORT_NAMES.get(name, name)
    offset = _OFFSET.fullmatch(zone)
    if offset:
        sign, hours, minutes = offset.groups()
        zone = "UTC" if sign is None else f"{sign}{int(hours):02d}:{int(minutes or 0):02d}"
        if sign and (int(hours) > 18 or int(minutes or 0) > 59):
            raise wrong
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), zone)
    except pa.ArrowInvalid:
        raise wrong from None
    return zone


def folder_text(value: pa.Scalar, zone: str = "UTC") -> str:
    """The text of a value in a folder's name. `read_value` reads it back in the same type."""
    if not value.is_valid:
        return NULL_PARTITION
    dtype = value.type
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        value = pc.local_timestamp(value.cast(pa.timestamp(dtype.unit, zone)))
    if pa.types.is_timestamp(dtype) and dtype.unit != "s":  # Spark reads `12:00:00.000000` as text
        return escape(value.cast(pa.string()).as_py().rstrip("0").rstrip("."))
    if pa.types.is_floating(dtype):
        return escape(repr(float(value.as_py())))
    if arrays.family(dtype) == "binary":
        try:
            return escape(bytes(value.as_py()).decode())
        except UnicodeDecodeError:
            raise SchemaMismatchError(
                f"Binary partition value {value.as_py()!r} is not UTF-8 and cannot name a folder; choose another "
                "column."
            ) from None
    return escape(value.cast(pa.string()).as_py())


def escape(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


@dataclass(frozen=True)
class PartitionMap:
    """The partition columns of a target with their types, and the existing folder of each tuple of values."""

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    folders: Mapping[tuple[Any, ...], str]
    zone: str = "UTC"

    @classmethod
    def of(
        cls, files: Iterable[Footer], columns: Sequence[str], types: Sequence[pa.DataType], zone: str = "UTC"
    ) -> PartitionMap:
        bare = cls(tuple(columns), tuple(types), {}, zone)
        if not columns:
            return bare
        folders: dict[tuple[Any, ...], str] = {}
        for footer in files:
            values, folder = bare.values(footer), posixpath.dirname(footer.path)
            if values is not None and not f"{folder}/".count("=/"):  # Spark refuses a data set with `p=/`
                folders.setdefault(values, folder)
        return cls(tuple(columns), tuple(types), folders, zone)

    def values(self, footer: Footer) -> tuple[Any, ...] | None:
        """The partition values of a file, comparable; `None` if its path does not have every column."""
        if not self.columns or not set(self.columns) <= set(footer.partition):
            return None
        pairs = zip(self.columns, self.types, strict=True)
        return tuple(read_value(footer.partition[c], t, self.zone) for c, t in pairs)

    def folder_of(self, values: tuple[Any, ...]) -> str | None:
        """The folder of comparable partition values; `None` if it cannot be derived from them."""
        try:
            row = {c: keys.of_order_value(v, t) for c, t, v in zip(self.columns, self.types, values, strict=True)}
            return self.folder(row) if self.columns else ""
        except (pa.ArrowException, TypeError, SchemaMismatchError):
            return None

    def folder(self, row: Mapping[str, pa.Scalar]) -> str:
        """The folder of a row: the existing folder of its partition, or a new one."""
        values = tuple(identities(_single(row[c], t))[0] for c, t in zip(self.columns, self.types, strict=True))
        known = self.folders.get(values)
        if known is not None:
            return known
        return "/".join(
            f"{escape_name(c)}={_checked_folder_text(c, row[c], t, value, self.zone)}"
            for c, t, value in zip(self.columns, self.types, values, strict=True)
        )


def escape_name(column: str) -> str:
    """A column's name in a folder's name. A leading dot is escaped: it would hide the folder from readers."""
    return "%2E" + escape(column[1:]) if column.startswith(".") else escape(column)


def _checked_folder_text(column: str, value: pa.Scalar, dtype: pa.DataType, expected: Any, zone: str) -> str:
    """The text of a value in a folder's name. Refuses a value that is not the same when it is read back."""
    text = folder_text(value, zone)
    if read_value(None if text == NULL_PARTITION else unquote(text), dtype, zone) != expected:
        raise SchemaMismatchError(
            f"Partition column {column!r}: {arrays.display_value(value)!r} of type {value.type} cannot be read back "
            "from a folder's name. Choose another column or value."
        )
    return text


def _single(value: pa.Scalar, dtype: pa.DataType) -> pa.Array:
    return pa.repeat(value, 1).cast(dtype) if value.is_valid else pa.nulls(1, dtype)
