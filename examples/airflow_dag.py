"""Merge the changes of each hour into a data set, as a DAG of Airflow 3.

A task may be killed and run again at any point. If it was killed before the commit, the data set is as it was. If it
was killed in the middle of the commit, the second run finishes that commit first. If it was killed after it, the second
run merges the same rows again, and `sequence_by` makes that change nothing. So retries need no further care.

`max_active_runs=1` keeps runs from waiting for each other. Runs in another order, as in a backfill, give the same rows.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import dag, task

import fsspeckit

LANDING = os.environ.get("ORDERS_LANDING", "landing")
LAKE = os.environ.get("ORDERS_LAKE", "lake/orders")


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def merge_orders() -> None:
    @task(retries=5, retry_delay=timedelta(minutes=2), retry_exponential_backoff=True)
    def merge(logical_date: datetime | None = None) -> dict[str, Any]:
        """What it returns is in the task's XCom: counts, and numbers of files."""
        hour = f"{logical_date:%Y-%m-%dT%H}"
        result = fsspeckit.merge(
            f"{LANDING}/{hour}.parquet",
            LAKE,
            key_columns=["id"],
            sequence_by="ts",
            on_duplicates="latest",
            must_exist=True,
            lock_timeout=600,
        )
        counts = {name: getattr(result, name) for name in ("inserted", "updated", "changed", "skipped")}
        return {"hour": hour, **counts, "rewritten_files": len(result.rewritten_files)}

    merge()


merge_orders_dag = merge_orders()
