"""Dates and instants in Spark's legacy calendar.

Spark 2, and Spark's rebase mode LEGACY, use a hybrid calendar, which is Julian before 1582-10-15. Spark records this in
the footer, and rebases the values when it reads them. For other readers, earlier dates are off by up to ten days, and
instants before 1900 also by the local mean time of their zone, for which Java has two different tables. This module
rebases dates. It refuses instants that differ between the calendars, since their value is uncertain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.values import arrays, nested

_DATES, _INT96, _ZONE = (b"org.apache.spark." + name for name in (b"legacyDateTime", b"legacyINT96", b"timeZone"))
SPARK_VERSION = b"org.apache.spark.version"

# From here on the calendars are the same: dates since 1582-10-15 (in days), instants since 1900 (in seconds).
CUTOVER = -141_427
SAME_SINCE = -2_208_988_800
_JULIAN_DAY_OF_1970 = 2_440_588


@dataclass(frozen=True, slots=True)
class Calendar:
    """The columns of a file in the hybrid calendar: `dates` and 64-bit timestamps, or `int96` timestamps."""

    dates: bool = False
    int96: bool = False

    def __bool__(self) -> bool:
        return self.dates or self.int96

    @classmethod
    def of(cls, entries: Mapping[bytes, bytes] | None) -> Calendar:
        """The calendar by the rules of Spark: flags in the footer, or a version that had only the hybrid calendar."""
        entries = entries or {}
        version = entries.get(SPARK_VERSION)
        if version is None:  # Spark does not rebase the files of other writers
            return cls()
        return cls(_DATES in entries or version < b"3.0.0", _INT96 in entries or version < b"3.1.0")

    def applies_to(self, dtype: pa.DataType, int96: bool) -> bool:
        """Are values of a flat type in the hybrid calendar? Of timestamps without a zone, only INT96 are."""
        if t.is_timestamp(dtype):
            return self.int96 if int96 else self.dates and dtype.tz is not None
        return self.dates and bool(t.is_date(dtype))


def calendar_entries(entries: Mapping[bytes, bytes] | None) -> set[bytes]:
    """The names of the key-value entries that declare the hybrid calendar."""
    if entries is None or not Calendar.of(entries):
        return set()
    old_version = {SPARK_VERSION} if entries[SPARK_VERSION] < b"3.1.0" else set()
    return {_DATES, _INT96, _ZONE, *old_version} & entries.keys()


def without_calendar(entries: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return {k: v for k, v in entries.items() if k not in calendar_entries(entries)} if entries else None


def hybrid_to_gregorian_days(hybrid: Any) -> Any:
    """Rebase days since 1970. A leap day that only the Julian calendar has becomes the next day."""
    day = np.asarray(hybrid, dtype=np.int64)
    c = day + _JULIAN_DAY_OF_1970 + 32_082
    years = (4 * c + 3) // 1461
    rest = c - 1461 * years // 4
    month = (5 * rest + 2) // 153
    months = (years - 4800 + month // 10 - 1970) * 12 + month + 2 - 12 * (month // 10)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.where(day < CUTOVER, first + rest - (153 * month + 2) // 5, day)


def gregorian_to_hybrid_days(days: Any) -> Any:
    """Rebase days since 1970. Dates that the hybrid calendar skipped in October 1582 give a wrong result."""
    date = np.asarray(days, dtype=np.int64).astype("datetime64[D]")
    months = date.astype("datetime64[M]").astype(np.int64)
    day = (date - date.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
    year, month = months // 12 + 1970, months % 12 + 1
    a = (14 - month) // 12
    y, m = year + 4800 - a, month + 12 * a - 3
    julian = day + (153 * m + 2) // 5 + 365 * y + y // 4 - 32_083 - _JULIAN_DAY_OF_1970
    return np.where(np.asarray(days) < CUTOVER, julian, days)


def _differs_between_calendars(array: pa.Array) -> pa.Array:
    """In which rows of a flat array do the calendars differ?"""
    if t.is_date(array.type):
        return pc.less(array.cast(pa.date32()).view(pa.int32()), CUTOVER).fill_null(False)
    return pc.less(array.view(pa.int64()), SAME_SINCE * arrays.PER_SECOND[array.type.unit]).fill_null(False)


def from_file_calendar(table: Any, calendar: Calendar, where: str, int96: Collection[str] | None = None) -> Any:
    """Rebase the columns of a file from its calendar.

    `int96` are the names of INT96 columns. Without it, every timestamp without a zone may be INT96.
    """
    return _rebase(table, calendar, where, int96, hybrid_to_gregorian_days, gregorian_to_hybrid_days)


def to_file_calendar(table: Any, calendar: Calendar, where: str, int96: Collection[str]) -> Any:
    """Rebase columns to the calendar of a file."""
    return _rebase(table, calendar, where, int96, gregorian_to_hybrid_days, hybrid_to_gregorian_days)


def _rebase(
    table: Any, calendar: Calendar, where: str, int96: Collection[str] | None, rebase: Any, inverse: Any
) -> Any:
    if not calendar:
        return table
    columns = [
        _Rebase(calendar, name, where, int96 is None or name in int96, rebase, inverse)(column)
        for name, column in zip(table.schema.names, table.columns, strict=True)
    ]
    return type(table).from_arrays(columns, schema=table.schema)


@dataclass(frozen=True, slots=True)
class _Rebase:
    """Rebases one column; `inverse` is the inverse of `rebase`."""

    calendar: Calendar
    name: str
    where: str
    int96: bool
    rebase: Any
    inverse: Any

    def __call__(self, column: Any) -> Any:
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([self(chunk) for chunk in column.chunks], column.type)
        if t.is_date(column.type) and self.calendar.applies_to(column.type, False):
            return self._dates(column)
        self._refuse_old(column)
        return column

    def _dates(self, column: pa.Array) -> pa.Array:
        if not _differs_between_calendars(column).true_count:
            return column
        days = column.cast(pa.date32()).view(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        rebased = self.rebase(days)
        lost = np.flatnonzero((self.inverse(rebased) != days) | (rebased < np.iinfo(np.int32).min))
        if len(lost):
            raise self._refusal(column[int(lost[0])])
        mask = column.is_null().to_numpy(zero_copy_only=False)
        return pa.array(rebased.astype(np.int32), mask=mask).view(pa.date32()).cast(column.type)

    def _refuse_old(self, column: pa.Array) -> None:
        """Refuse instants, and dates within nested values, that differ between the calendars."""
        dtype = column.type
        if t.is_nested(dtype) and not t.is_union(dtype):
            for child in nested.decompose(arrays.plain(column))[1]:
                self._refuse_old(child)
        elif self.calendar.applies_to(dtype, self.int96):
            old = _differs_between_calendars(column)
            if old.true_count:
                raise self._refusal(column.filter(old)[0])

    def _refusal(self, value: pa.Scalar) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"Column {self.name!r}: {arrays.display_value(value)} lies before 1582-10-15 (dates) or 1900 (times), "
            f"where {self.where} uses Spark's legacy calendar, which counts differently. Rewrite these files first "
            "with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED (int96RebaseModeInWrite for INT96)."
        )
