"""Days and instants in the calendar of their file.

Spark 2, and Spark's rebase mode LEGACY, count by the hybrid calendar of old: Julian before 1582-10-15. Spark says so
in the footer and undoes it when it reads; to everybody else a date before that day is off by up to ten days, and an
instant before 1900 also by what clocks were off before time zones (Java's two sets of tables differ there). Dates are
brought from one calendar to the other here. Instants that it concerns are refused, never guessed.
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

# Where the calendars meet: 1582-10-15 in days, 1900-01-01 in seconds. From then on they are the same.
CUTOVER = -141_427
SAME_SINCE = -2_208_988_800
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_JULIAN_DAY_OF_1970 = 2_440_588


@dataclass(frozen=True, slots=True)
class Calendar:
    """What a file counts in the hybrid calendar: `dates` (with instants in 64 bits), `int96` timestamps."""

    dates: bool = False
    int96: bool = False

    def __bool__(self) -> bool:
        return self.dates or self.int96

    @classmethod
    def of(cls, entries: Mapping[bytes, bytes] | None) -> Calendar:
        """As Spark tells it from a footer: by flags, or by a version that knew no other calendar."""
        known = entries or {}
        version = known.get(SPARK_VERSION)
        if version is None:  # not Spark's, which takes it as it is
            return cls()
        return cls(_DATES in known or version < b"3.0.0", _INT96 in known or version < b"3.1.0")

    def concerns(self, dtype: pa.DataType, int96: bool) -> bool:
        """Does this calendar count values of a flat type? A plain time is in no calendar, unless it is INT96."""
        if t.is_timestamp(dtype):
            return self.int96 if int96 else self.dates and dtype.tz is not None
        return self.dates and bool(t.is_date(dtype))


def flags(entries: Mapping[bytes, bytes] | None) -> set[bytes]:
    """The entries by which a reader would take a file for one of the hybrid calendar."""
    known = entries or {}
    if not Calendar.of(known):
        return set()
    old = known[SPARK_VERSION] < b"3.1.0"
    return {name for name in (_DATES, _INT96, _ZONE, *([SPARK_VERSION] if old else [])) if name in known}


def without_flags(entries: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return {k: v for k, v in entries.items() if k not in flags(entries)} if entries else None


def hybrid_to_gregorian_days(hybrid: Any) -> Any:
    """Days since 1970 of the dates that hybrid days since 1970 are called; a leap day too many is the day after."""
    day = np.asarray(hybrid, dtype=np.int64)
    c = day + _JULIAN_DAY_OF_1970 + 32_082
    years = (4 * c + 3) // 1461
    rest = c - 1461 * years // 4
    month = (5 * rest + 2) // 153
    months = (years - 4800 + month // 10 - 1970) * 12 + month + 2 - 12 * (month // 10)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.where(day < CUTOVER, first + rest - (153 * month + 2) // 5, day)


def gregorian_to_hybrid_days(days: Any) -> Any:
    """The other way round; nine dates of October 1582 were never in the hybrid calendar and come out wrong."""
    date = np.asarray(days, dtype=np.int64).astype("datetime64[D]")
    months = date.astype("datetime64[M]").astype(np.int64)
    day = (date - date.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
    year, month = months // 12 + 1970, months % 12 + 1
    a = (14 - month) // 12
    y, m = year + 4800 - a, month + 12 * a - 3
    julian = day + (153 * m + 2) // 5 + 365 * y + y // 4 - 32_083 - _JULIAN_DAY_OF_1970
    return np.where(np.asarray(days) < CUTOVER, julian, days)


def is_old(array: pa.Array) -> pa.Array:
    """Which values of a flat array the calendars do not count alike?"""
    if t.is_date(array.type):
        return pc.less(array.cast(pa.date32()).view(pa.int32()), CUTOVER).fill_null(False)
    return pc.less(array.view(pa.int64()), SAME_SINCE * _PER_SECOND[array.type.unit]).fill_null(False)


def from_file_calendar(table: Any, calendar: Calendar, where: str, int96: Collection[str] | None = None) -> Any:
    """Columns read from a file of a calendar, as the values that they stand for.

    Without `int96`, the names of such columns, every plain time may be one.
    """
    return _changed(table, calendar, where, int96, hybrid_to_gregorian_days)


def to_file_calendar(table: Any, calendar: Calendar, where: str, int96: Collection[str]) -> Any:
    """Columns as a file of a calendar stores them."""
    return _changed(table, calendar, where, int96, gregorian_to_hybrid_days)


def _changed(table: Any, calendar: Calendar, where: str, int96: Collection[str] | None, change: Any) -> Any:
    if not calendar:
        return table
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        read = _Change(calendar, name, where, int96 is None or name in int96, change)
        columns.append(read(column))
    made: Any = type(table)
    return made.from_arrays(columns, schema=table.schema)


@dataclass(frozen=True, slots=True)
class _Change:
    calendar: Calendar
    name: str
    where: str
    int96: bool
    days: Any

    def __call__(self, column: Any) -> Any:
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([self(chunk) for chunk in column.chunks], column.type)
        if t.is_date(column.type) and self.calendar.concerns(column.type, False):
            return self._dates(column)
        self._refuse_old(column)
        return column

    def _dates(self, column: pa.Array) -> pa.Array:
        old = is_old(column)
        if not old.true_count:
            return column
        days = column.cast(pa.date32()).view(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        moved = self.days(days)
        other = hybrid_to_gregorian_days if self.days is gregorian_to_hybrid_days else gregorian_to_hybrid_days
        lost = np.flatnonzero((other(moved) != days) | (moved < np.iinfo(np.int32).min))
        if len(lost):
            raise self._refusal(column[int(lost[0])])
        mask = column.is_null().to_numpy(zero_copy_only=False)
        return pa.array(moved.astype(np.int32), mask=mask).view(pa.date32()).cast(column.type)

    def _refuse_old(self, column: pa.Array) -> None:
        """Instants, and dates within others."""
        dtype = column.type
        if t.is_nested(dtype) and not t.is_union(dtype):
            for part in nested.parts(arrays.plain(column))[1]:
                self._refuse_old(part)
        elif self.calendar.concerns(dtype, self.int96):
            old = is_old(column)
            if old.true_count:
                raise self._refusal(column.filter(old)[0])

    def _refusal(self, value: pa.Scalar) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"Column {self.name!r}: {arrays.display_value(value)} lies before 1582-10-15 (dates) or 1900 (times), "
            f"where {self.where} uses Spark's legacy calendar, which counts differently. Rewrite these files first "
            "with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED (int96RebaseModeInWrite for INT96)."
        )
