"""Recreate the small Parquet lakes that the tests read.

Run it from the root of the repository, in an environment that has pyarrow,
pandas, duckdb, polars, fastparquet and pyspark (with Java 17):

    python tests/data/make_samples.py                 # every lake
    python tests/data/make_samples.py duckdb polars   # only these

Each lake is a sub-folder of this one, written by the tool it is named after
(``spark_legacy`` is Spark with ``writeLegacyFormat``). A lake has 60 rows, the
distinct non-null key ``id`` from 0 to 59, at least two files, nulls in most
other columns, and several row groups per file.
"""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROWS = 60
FILES = 2
PER_FILE = ROWS // FILES
PER_GROUP = 10
START = dt.datetime(2024, 1, 1, 12, 30, 15, 123456)
DAY = dt.timedelta(days=1)
WORDS = ("alpha", "béta", "gamma", "日本語")


def sparse(make: Callable[[int], Any], ids: range, every: int = 7) -> list[Any]:
    """The values ``make(i)`` for the ids, with a null at each ``every``-th id."""
    return [None if i % every == every - 1 else make(i) for i in ids]


def money(i: int, scale: int) -> decimal.Decimal:
    """A decimal with the given scale, negative for odd ids."""
    return decimal.Decimal(i * 1001 * (-1) ** i).scaleb(-scale)


def file_ids(number: int) -> range:
    """The ids that go in the file of this number."""
    return range(number * PER_FILE, (number + 1) * PER_FILE)


def write_pyarrow(folder: Path) -> None:
    """PyArrow: field ids, metadata, sorting columns, page index, zstd."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _pyarrow_schema(pa)
    for number in range(FILES):
        table = pa.table(_pyarrow_columns(file_ids(number)), schema=schema)
        pq.write_table(
            table,
            folder / f"part-{number}.parquet",
            row_group_size=PER_GROUP,
            compression="zstd",
            use_dictionary=["category", "text"],
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(0)],
        )


def _pyarrow_schema(pa: Any) -> Any:
    """The Arrow schema of the PyArrow lake, with a field id for every field."""
    types = {
        "category": pa.dictionary(pa.int32(), pa.string()),
        "text": pa.large_string(),
        "unsigned": pa.uint32(),
        "time_ns": pa.timestamp("ns"),
        "time_zoned": pa.timestamp("us", tz="Europe/Berlin"),
        "decimal_small": pa.decimal128(10, 2),
        "decimal_large": pa.decimal128(25, 5),
        "numbers": pa.list_(pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "101"})),
        "nested": pa.struct(
            [
                pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "102"}),
                pa.field("name", pa.string(), nullable=False, metadata={"PARQUET:field_id": "103"}),
            ]
        ),
        "pairs": pa.map_(
            pa.field("key", pa.string(), nullable=False, metadata={"PARQUET:field_id": "104"}),
            pa.field("value", pa.float64(), metadata={"PARQUET:field_id": "105"}),
        ),
        "day": pa.date32(),
        "bytes": pa.binary(),
        "ratio": pa.float32(),
        "flag": pa.bool_(),
    }
    key = pa.field("id", pa.int64(), False, {"PARQUET:field_id": "1", "comment": "the key"})
    fields = [
        pa.field(name, kind, True, {"PARQUET:field_id": str(number), "comment": f"about {name}"})
        for number, (name, kind) in enumerate(types.items(), start=2)
    ]
    return pa.schema([key, *fields], metadata={"owner": "tests", "purpose": "sample"})


def _pyarrow_columns(ids: range) -> dict[str, list[Any]]:
    """The values of the PyArrow lake for the ids."""
    return {
        "id": list(ids),
        "category": sparse(lambda i: WORDS[i % 4], ids),
        "text": sparse(lambda i: f"{WORDS[i % 4]} {i}", ids),
        "unsigned": sparse(lambda i: 2**32 - 1 - i, ids),
        "time_ns": sparse(lambda i: START + i * DAY, ids),
        "time_zoned": sparse(lambda i: (START + i * DAY).replace(tzinfo=dt.timezone.utc), ids),
        "decimal_small": sparse(lambda i: money(i, 2), ids),
        "decimal_large": sparse(lambda i: money(i, 5), ids),
        "numbers": sparse(lambda i: [i, None, -i][: i % 4], ids),
        "nested": sparse(lambda i: {"id": 1000 - i, "name": f"n{i}"}, ids),
        "pairs": sparse(lambda i: [(f"k{j}", j / 2) for j in range(i % 3)], ids),
        "day": sparse(lambda i: (START + i * DAY).date(), ids),
        "bytes": sparse(lambda i: bytes([i, 255 - i]), ids),
        "ratio": sparse(lambda i: float("nan") if i % 5 == 0 else i / 4, ids),
        "flag": sparse(lambda i: i % 2 == 0, ids),
    }


DUCKDB_COLUMNS = """
    i::BIGINT AS id,
    n::INTEGER AS "integer",
    (4294967295 - n)::UINTEGER AS unsigned,
    ['alpha', 'béta', 'gamma', '日本語'][n % 4 + 1] || ' ' || n AS text,
    (n * 10.01 * (-1) ** n)::DECIMAL(9, 2) AS decimal_int32,
    (n * 10.01 * (-1) ** n)::DECIMAL(15, 2) AS decimal_int64,
    (n * 10.01 * (-1) ** n)::DECIMAL(25, 5) AS decimal_large,
    TIMESTAMP '2024-01-01 12:30:15.123456' + to_days(n) AS time_us,
    (TIMESTAMP '2024-01-01 12:30:15.123456' + to_days(n))::TIMESTAMPTZ AS time_zoned,
    make_timestamp_ns(1704112215123456789 + n) AS time_ns,
    (TIMESTAMP '2024-01-01 12:30:15' + to_days(n))::TIMESTAMP_MS AS time_ms,
    DATE '2024-01-01' + n AS day,
    TIME '00:00:00.000001' + to_minutes(n) AS clock,
    ('00000000-0000-4000-8000-' || lpad(n::VARCHAR, 12, '0'))::UUID AS uid,
    encode('b' || n) AS bytes,
    to_days(n) AS span,
    json_object('n', n) AS document,
    list_resize([n, NULL, -n], n % 4)::INTEGER[] AS numbers,
    CASE WHEN n IS NOT NULL THEN {'id': (1000 - n)::INTEGER, 'name': 'n' || n} END AS nested,
    map(['a', 'b'], [n, n + 1]) AS pairs,
    ['alpha', 'béta', 'gamma'][n % 3 + 1]::ENUM('alpha', 'béta', 'gamma') AS category,
    n / 4 AS ratio,
    n % 2 = 0 AS flag,
    n::HUGEINT AS huge
"""


def write_duckdb(folder: Path) -> None:
    """DuckDB: every type it can COPY, field ids and key-value metadata."""
    import duckdb

    con = duckdb.connect(config={"threads": "1"})
    con.execute("SET TimeZone = 'UTC'")
    for number in range(FILES):
        # DuckDB ends a row group only between two batches of rows that reach it, and a
        # batch has up to 2048 rows: each arm of a UNION ALL is a batch of its own.
        groups = range(number * PER_FILE, (number + 1) * PER_FILE, PER_GROUP)
        batches = " UNION ALL ".join(
            f"SELECT i FROM range({first}, {first + PER_GROUP}) AS t(i)" for first in groups
        )
        con.execute(
            f"""
            COPY (
                SELECT {DUCKDB_COLUMNS}
                FROM (SELECT i, CASE WHEN i % 7 <> 6 THEN i END::INTEGER AS n FROM ({batches}))
            ) TO '{folder / f"part-{number}.parquet"}' (
                FORMAT parquet, ROW_GROUP_SIZE {PER_GROUP}, COMPRESSION zstd,
                FIELD_IDS {{id: 1, text: 4, numbers: {{__duckdb_field_id: 17, element: 101}}}},
                KV_METADATA {{owner: 'tests', purpose: 'sample'}}
            )
            """
        )
    con.close()


def write_polars(folder: Path) -> None:
    """Polars: its own types, zstd, three row groups per file."""
    import polars as pl

    kinds: dict[str, Any] = {
        "id": pl.Int64,
        "category": pl.Categorical,
        "level": pl.Enum(["alpha", "béta", "gamma"]),
        "text": pl.String,
        "small": pl.Int8,
        "unsigned": pl.UInt32,
        "time_ns": pl.Datetime("ns"),
        "time_us": pl.Datetime("us"),
        "time_ms": pl.Datetime("ms"),
        "time_zoned": pl.Datetime("us", "Europe/Berlin"),
        "day": pl.Date,
        "clock": pl.Time,
        "span": pl.Duration("us"),
        "decimal_small": pl.Decimal(9, 2),
        "decimal_large": pl.Decimal(25, 5),
        "numbers": pl.List(pl.Int32),
        "pair": pl.Array(pl.Float32, 2),
        "nested": pl.Struct({"id": pl.Int32, "name": pl.String}),
        "bytes": pl.Binary,
        "ratio": pl.Float64,
        "flag": pl.Boolean,
        "nothing": pl.Null,
    }
    for number in range(FILES):
        frame = pl.DataFrame(_polars_columns(file_ids(number)), schema=kinds)
        frame.write_parquet(
            folder / f"part-{number}.parquet",
            compression="zstd",
            row_group_size=PER_GROUP,
            statistics="full",
        )


def _polars_columns(ids: range) -> dict[str, list[Any]]:
    """The values of the Polars lake for the ids."""
    return {
        "id": list(ids),
        "category": sparse(lambda i: WORDS[i % 4], ids),
        "level": sparse(lambda i: WORDS[i % 3], ids),
        "text": sparse(lambda i: f"{WORDS[i % 4]} {i}", ids),
        "small": sparse(lambda i: i - 30, ids),
        "unsigned": sparse(lambda i: 2**32 - 1 - i, ids),
        "time_ns": sparse(lambda i: START + i * DAY, ids),
        "time_us": sparse(lambda i: START + i * DAY, ids),
        "time_ms": sparse(lambda i: START + i * DAY, ids),
        "time_zoned": sparse(lambda i: (START + i * DAY).replace(tzinfo=dt.timezone.utc), ids),
        "day": sparse(lambda i: (START + i * DAY).date(), ids),
        "clock": sparse(lambda i: dt.time(i % 24, i, 1, i), ids),
        "span": sparse(lambda i: dt.timedelta(minutes=i), ids),
        "decimal_small": sparse(lambda i: money(i, 2), ids),
        "decimal_large": sparse(lambda i: money(i, 5), ids),
        "numbers": sparse(lambda i: [i, None, -i][: i % 4], ids),
        "pair": sparse(lambda i: [i / 2, i / 4], ids),
        "nested": sparse(lambda i: {"id": 1000 - i, "name": f"n{i}"}, ids),
        "bytes": sparse(lambda i: bytes([i, 255 - i]), ids),
        "ratio": sparse(lambda i: float("nan") if i % 5 == 0 else i / 4, ids),
        "flag": sparse(lambda i: i % 2 == 0, ids),
        "nothing": [None] * len(ids),
    }


def write_fastparquet(folder: Path) -> None:
    """fastparquet: INT96 times, gzip, categories and nullable integers."""
    import fastparquet
    import pandas as pd

    encodings = {"text": "utf8", "category": "utf8", "bytes": "bytes", "document": "json"}
    for number in range(FILES):
        ids = file_ids(number)
        frame = pd.DataFrame(
            {
                "id": pd.Series(ids, dtype="int64"),
                "text": pd.Series(sparse(lambda i: f"{WORDS[i % 4]} {i}", ids), dtype="object"),
                "bytes": pd.Series(sparse(lambda i: bytes([i, 255 - i]), ids), dtype="object"),
                "document": pd.Series(sparse(lambda i: {"n": i}, ids), dtype="object"),
                "category": pd.Categorical(sparse(lambda i: WORDS[i % 4], ids)),
                # Without nulls: Polars cannot read the INT96 nulls that fastparquet writes.
                "time": pd.Series([START + i * DAY for i in ids], dtype="datetime64[ns]"),
                "maybe": pd.Series(sparse(lambda i: i * 3, ids), dtype="Int32"),
                "unsigned": pd.Series(sparse(lambda i: 2**32 - 1 - i, ids), dtype="UInt32"),
                "small": pd.Series([i - 30 for i in ids], dtype="int8"),
                "maybe_flag": pd.Series(sparse(lambda i: i % 2 == 0, ids), dtype="boolean"),
                "span": pd.Series(sparse(lambda i: dt.timedelta(minutes=i), ids)).astype(
                    "timedelta64[ns]"
                ),
                "ratio": pd.Series(sparse(lambda i: i / 4, ids), dtype="float64"),
                "half": pd.Series([i / 4 for i in ids], dtype="float16"),
                "flag": pd.Series([i % 2 == 0 for i in ids], dtype="bool"),
            }
        )
        fastparquet.write(
            str(folder / f"part-{number}.parquet"),
            frame,
            row_group_offsets=[0, PER_GROUP, PER_GROUP * 2],
            compression="GZIP",
            times="int96",
            has_nulls=[name for name in frame if name not in ("id", "small", "half", "flag")],
            object_encoding=encodings,
            write_index=False,
            custom_metadata={"owner": "tests", "purpose": "sample"},
            stats=True,
        )


SPARK_QUERY = """
SELECT
    id,
    CAST(n AS INT) AS `integer`,
    CAST(n % 100 AS SMALLINT) AS small,
    concat(element_at(array('alpha', 'béta', 'gamma', '日本語'), CAST(n % 4 + 1 AS INT)), ' ', n)
        AS text,
    CAST(n * 10.01 * pow(-1, n) AS DECIMAL(9, 2)) AS decimal_tiny,
    CAST(n * 10.01 * pow(-1, n) AS DECIMAL(10, 2)) AS decimal_small,
    CAST(n * 10.01 * pow(-1, n) AS DECIMAL(20, 3)) AS decimal_large,
    date_add(DATE '2024-01-01', CAST(n AS INT)) AS day,
    TIMESTAMP '2024-01-01 12:30:15.123456' + make_dt_interval(CAST(n AS INT)) AS time,
    TIMESTAMP_NTZ '2024-01-01 12:30:15.123456' + make_dt_interval(CAST(n AS INT)) AS time_ntz,
    slice(array(n, NULL, -n), 1, CAST(n % 4 AS INT)) AS numbers,
    CASE WHEN n IS NOT NULL
        THEN array(named_struct('id', CAST(n AS INT), 'name', concat('n', n))) END AS items,
    CASE WHEN n IS NOT NULL THEN map('a', n, 'b', NULL) END AS pairs,
    CASE WHEN n IS NOT NULL
        THEN named_struct('id', CAST(1000 - n AS INT), 'name', concat('n', n)) END AS nested,
    n % 2 = 0 AS flag,
    encode(concat('b', n), 'UTF-8') AS bytes,
    n / 4D AS ratio,
    CASE id % 4 WHEN 0 THEN 'plain' WHEN 1 THEN 'with space' WHEN 2 THEN 'with:colon' END AS part
FROM (SELECT id, CASE WHEN id % 7 <> 6 THEN id END AS n FROM range(0, {rows}, 1, 1))
"""


def write_spark(folder: Path) -> None:
    """Spark: a Hive-partitioned lake with INT96 and INT64 timestamps."""
    spark = _spark_session()
    frame = spark.sql(SPARK_QUERY.format(rows=ROWS))
    writer = frame.write.mode("overwrite").partitionBy("part")
    # Small row groups: parquet-mr looks at the size only every so many records.
    writer = writer.option("parquet.block.row.count.limit", PER_GROUP)
    writer.parquet(str(folder))


def write_spark_legacy(folder: Path) -> None:
    """Spark with ``writeLegacyFormat``: old list names, fixed-length decimals."""
    spark = _spark_session()
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    frame = spark.sql(SPARK_QUERY.format(rows=ROWS)).drop("part")
    frame = frame.repartitionByRange(FILES, "id").sortWithinPartitions("id")
    writer = frame.write.mode("overwrite").option("parquet.block.row.count.limit", PER_GROUP)
    writer.parquet(str(folder))
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "false")


def _spark_session() -> Any:
    """A small local Spark session, shared by the two Spark lakes."""
    from pyspark.sql import SparkSession

    scratch = tempfile.gettempdir()
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", f"{scratch}/spark-warehouse")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.parquet.outputTimestampType", "INT96")
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


LAKES: dict[str, Callable[[Path], None]] = {
    "pyarrow": write_pyarrow,
    "duckdb": write_duckdb,
    "polars": write_polars,
    "fastparquet": write_fastparquet,
    "spark": write_spark,
    "spark_legacy": write_spark_legacy,
}


def main(names: list[str]) -> None:
    """Write the named lakes anew, or all of them."""
    for name in names or list(LAKES):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        LAKES[name](folder)
        print(name, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


if __name__ == "__main__":
    main(sys.argv[1:])
