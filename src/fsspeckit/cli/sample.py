"""The demo's data: a year of orders, and a day's changes to them. The same every time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MONTHS = tuple(f"2026-{number:02d}" for number in range(1, 13))
FILES_PER_MONTH = 3
ROWS_PER_FILE = 400
_STATES = ("paid", "packed", "shipped", "delivered")
_START = datetime(2026, 1, 1, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("status", pa.dictionary(pa.int32(), pa.string())),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("ordered_at", pa.timestamp("us", "UTC")),
    ]
)


def orders(ids: Iterable[int], status: str | None = None) -> pa.Table:
    """Orders whose columns are computed from their numbers."""
    numbers = list(ids)
    return pa.table(
        {
            "order_id": numbers,
            "customer": [f"customer {i * 7919 % 997}" for i in numbers],
            "status": pa.array([status or _STATES[i // 10 % 4] for i in numbers]).dictionary_encode(),
            "amount": [Decimal(i * 31 % 99_999) / 100 for i in numbers],
            "ordered_at": [_START + timedelta(minutes=i) for i in numbers],
        },
        schema=SCHEMA,
    )


def build_lake(root: Path) -> None:
    """Three files per month, by order number; and one with late orders of the whole year, which cannot be pruned."""
    first = 0
    for month in MONTHS:
        for part in range(FILES_PER_MONTH):
            ids = range(first, first + 10 * ROWS_PER_FILE, 10)
            _write(root / f"month={month}" / f"orders-{part}.parquet", orders(ids))
            first += 10 * ROWS_PER_FILE
    _write(root / f"month={MONTHS[-1]}" / "late.parquet", orders(range(5, first, 1000)))


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", row_group_size=100)


def changes() -> pa.Table:
    """Forty orders of October and twenty of November are returned; one of November and fifteen of January are new."""
    return pa.concat_tables(
        [
            _in_month(orders(ids_of(9, 1)[100:140], "returned"), MONTHS[9]),
            _in_month(orders(ids_of(10, 0)[-20:], "returned"), MONTHS[10]),
            _in_month(orders([ids_of(10, 2)[200] + 3]), MONTHS[10]),
            _in_month(orders(range(ids_of(12, 0)[0], ids_of(12, 0)[15], 10)), "2027-01"),
        ]
    )


def moved() -> pa.Table:
    """An order of March that claims to be one of April."""
    return _in_month(orders(ids_of(2, 0)[:1], "returned"), MONTHS[3])


def ids_of(month: int, part: int) -> Sequence[int]:
    """The order numbers in one file of the lake."""
    first = (month * FILES_PER_MONTH + part) * 10 * ROWS_PER_FILE
    return range(first, first + 10 * ROWS_PER_FILE, 10)


def _in_month(table: pa.Table, month: str) -> pa.Table:
    return table.append_column("month", pa.array([month] * table.num_rows))
