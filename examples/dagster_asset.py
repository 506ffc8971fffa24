"""Merge the changes of each day into a data set, as a partitioned asset of Dagster.

A partition may be materialized again at any time: rows that are older than those of the data set change nothing. The
pool lets one run merge at a time (set its limit to 1); others wait there, instead of for the lock of the data set.
"""

import os

import dagster as dg

import fsspeckit

LANDING = os.environ.get("ORDERS_LANDING", "landing")
LAKE = os.environ.get("ORDERS_LAKE", "lake/orders")


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition(start_date="2026-01-01"),
    retry_policy=dg.RetryPolicy(max_retries=5, delay=60),
    pool="orders_lake",
)
def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    result = fsspeckit.merge(
        f"{LANDING}/{context.partition_key}.parquet",
        LAKE,
        key_columns=["id"],
        sequence_by="ts",
        on_duplicates="latest",
        must_exist=True,
    )
    names = ("inserted", "updated", "skipped", "target_count_after")
    return dg.MaterializeResult(metadata={name: getattr(result, name) for name in names})


defs = dg.Definitions(assets=[orders])
