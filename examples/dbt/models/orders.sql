{{ config(
    materialized="external",
    location="staged_orders.parquet",
    plugin="fsspeckit",
    unique_key="id",
    fsspeckit={
        "path": "lake/orders",
        "delete_column": "op",
        "delete_values": ["D"],
        "sequence_by": "ts",
        "on_duplicates": "latest",
        "partition_columns": ["day"],
    },
) }}

select op, id, day, state, ts
from read_parquet('landing/*.parquet')
where ts >= {{ newest("ts", "lake/orders", 0) }}
