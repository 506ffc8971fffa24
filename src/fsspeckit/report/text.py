"""Numbers, sizes, values and paths as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_EPOCH = date(1970, 1, 1)


def count(number: int, noun: str = "") -> str:
    """A number with thousands separators, and its noun in the singular or plural.

    >>> count(1234567), count(1, "file"), count(2, "file")
    ('1,234,567', '1 file', '2 files')
    """
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(bytes_: int) -> str:
    """A size in decimal units.

    >>> size(999), size(1_234_567), size(999_999)
    ('999 B', '1.2 MB', '1.0 MB')
    """
    value, unit = float(bytes_), 0
    while unit < len(_UNITS) - 1 and (value if unit == 0 else round(value, 1)) >= 1000:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def share(part: int, whole: int) -> str:
    """A fraction in per cent. It is 0 or 100 only if that is exact.

    >>> share(1, 3), share(1, 100_000), share(99_999, 100_000), share(0, 0)
    ('33.3 %', '<0.1 %', '>99.9 %', '0 %')
    """
    if part == 0 or whole == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    return ">99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def cells(parts: Sequence[int], width: int) -> list[int]:
    """Divide a bar of `width` cells in proportion; a part greater than zero gets at least one cell.

    >>> cells([1, 0, 999], 10)
    [1, 0, 9]
    """
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    exact = [width * part / total for part in parts]
    widths = [max(1, math.floor(e)) if part else 0 for e, part in zip(exact, parts, strict=True)]
    while sum(widths) < width:
        widths[max(range(len(widths)), key=lambda i: exact[i] - widths[i] if parts[i] else -math.inf)] += 1
    while sum(widths) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def relative(path: str, target: str) -> str:
    """A file's path below its data set.

    >>> relative("lake/day=1/a.parquet", "lake/")
    'day=1/a.parquet'
    """
    return path.removeprefix(target.rstrip("/") + "/")


def key_value(value: Any, dtype: str) -> str:
    """A bound from a footer (text is bytes, times are numbers) as its Arrow type shows it.

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
        return _moment(value, dtype)
    return str(value)


def _moment(value: int, dtype: str) -> str:
    try:
        if dtype.startswith("date"):
            return str(_EPOCH + timedelta(days=value))
        moment = datetime.fromtimestamp(value // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):  # years outside of Python's range
        return str(value)
    fraction = f".{value % 1_000_000_000:09d}".rstrip("0") if value % 1_000_000_000 else ""
    if not dtype.startswith("timestamp"):
        return f"{moment:%H:%M:%S}{fraction}"
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}{' UTC' if 'tz=' in dtype else ''}"
