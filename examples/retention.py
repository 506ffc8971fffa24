"""Retention: delete what is older than a day, and within what stays, what no longer may be kept.

A filter on a partition column removes whole folders without reading a file. A filter on other columns reads these
columns only, and only where statistics cannot exclude a row.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow as pa

import fsspeckit

TODAY = dt.date(2026, 3, 31)


def build(lake: str) -> None:
    """Ten events on each of the last 60 days, one folder per day."""
    days = [TODAY - dt.timedelta(days=n) for n in range(60)]
    events = pa.table(
        {
            "id": range(600),
            "day": [day for day in days for _ in range(10)],
            "kind": ["login", "order"] * 300,
        }
    )
    fsspeckit.merge(events, lake, key_columns=["id"], partition_columns=["day"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = str(Path(folder) / "events")
        build(lake)
        month_ago, week_ago = TODAY - dt.timedelta(days=30), TODAY - dt.timedelta(days=7)
        old = fsspeckit.delete(lake, filters=[("day", "<", month_ago)])
        print(f"older than 30 days: {old.deleted} rows, {len(old.removed_files)} files removed")
        logins = fsspeckit.delete(lake, filters=[("day", "<", week_ago), ("kind", "=", "login")])
        print(f"logins older than 7 days: {logins.deleted} rows, {len(logins.rewritten_files)} files rewritten")
        print(f"left: {logins.total} rows in {len(list(Path(lake).iterdir()))} folders")


if __name__ == "__main__":
    main()
