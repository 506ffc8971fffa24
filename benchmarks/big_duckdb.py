"""Larger than memory: an upsert by DuckDB whose memory limit is far below the size of its source.

    python benchmarks/big_duckdb.py [--source 5000000] [--target 10000000] [--memory 300MB] [--folder DIR]

The source (by default five million rows, 2 GB as Arrow) is given as SQL; half of its keys are in the target. Prints
rows, counts, seconds and the peak memory of the process, checks every row of the result, and fails if the process took
more than `--limit` MB.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from fsspeckit.datasets.duckdb import DuckDBDatasetIO

FILE_ROWS, GROUP_ROWS = 1_000_000, 100_000
TEXTS = 10


def columns(row: str, version: str) -> str:
    """About 400 bytes: a number, a float and ten texts that do not compress to nothing."""
    texts = ", ".join(f"'{version}-' || md5(({row} + {i})::VARCHAR) AS text{i}" for i in range(TEXTS))
    return f"{row} AS id, {row} / 7 AS ratio, {texts}"


def write_target(folder: Path, rows: int) -> None:
    """Every second number is a key; the keys lie in no order."""
    con = duckdb.connect(config={"memory_limit": "300MB", "temp_directory": str(folder.parent / "spill-target")})
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        count = min(FILE_ROWS, rows - start)
        relation = con.sql(
            f"SELECT {columns('key', 'old')} "
            f"FROM (SELECT 2 * (i * 7919 % {rows}) AS key FROM range({start}, {start + count}) AS t(i))"
        )
        path = folder / f"part-{number:03d}.parquet"
        with relation.to_arrow_reader(GROUP_ROWS) as reader, pq.ParquetWriter(path, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch, row_group_size=GROUP_ROWS)
    con.close()


def step_of(source: int, target: int) -> int:
    return max(0, 2 * target // source - 2) | 1


def source_sql(source: int, target: int) -> str:
    """Numbers with an odd step that end before the target does: half of them even, and so in the target."""
    step = step_of(source, target)
    return f"SELECT {columns('key', 'new')} FROM (SELECT (i * {step}) AS key FROM range({source}) AS t(i))"


def expected(source: int, target: int) -> tuple[int, int]:
    """Inserted and updated."""
    step = step_of(source, target)
    updated = sum(1 for i in range(source) if i * step % 2 == 0 and i * step < 2 * target)
    return source - updated, updated


def merge(arguments: argparse.Namespace, lake: Path) -> Any:
    con = duckdb.connect()
    con.execute(f"SET memory_limit = '{arguments.memory}'")
    con.execute(f"SET temp_directory = '{lake.parent / 'spill'}'")
    io = DuckDBDatasetIO(con, use_merge=False if arguments.union else None)
    sql = source_sql(arguments.source, arguments.target)
    return io.merge(path=str(lake), strategy="upsert", key_columns=["id"], source_sql=sql)


def check(lake: Path, source: int, target: int) -> None:
    """In a process of its own memory: every row is the source's if its key is, and none is there twice."""
    con = duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(lake.parent / "spill-check")})
    con.execute(f"CREATE VIEW lake AS SELECT * FROM read_parquet('{lake}/*.parquet')")
    inserted, _ = expected(source, target)
    step = step_of(source, target)
    ours = f"(id % {step} = 0 AND id < {source * step})"
    wrong = " OR ".join(
        f"text{i} <> (CASE WHEN {ours} THEN 'new-' ELSE 'old-' END) || md5((id + {i})::VARCHAR)" for i in range(TEXTS)
    )
    rows, distinct, bad = con.execute(
        f"SELECT count(*), count(DISTINCT id), count(*) FILTER ({wrong} OR ratio <> id / 7) FROM lake"
    ).fetchall()[0]
    assert (rows, distinct, bad) == (target + inserted, target + inserted, 0), (rows, distinct, bad)


def run(arguments: argparse.Namespace, lake: Path) -> None:
    """The measured process."""
    began = time.perf_counter()
    result = merge(arguments, lake)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"target rows     {result.target_count_before:>12,}")
    print(f"source rows     {result.source_count:>12,}")
    print(f"inserted        {result.inserted:>12,}")
    print(f"updated         {result.updated:>12,}")
    print(f"files           {len(result.rewritten_files):>12,} rewritten, {len(result.inserted_files)} new")
    print(f"seconds         {seconds:>12.1f}")
    print(f"peak memory     {peak:>12,.0f} MB of {arguments.limit} allowed (DuckDB: {arguments.memory})")
    assert (result.inserted, result.updated) == expected(arguments.source, arguments.target)
    assert peak <= arguments.limit, f"{peak:.0f} MB"


def parse(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=int, default=5_000_000)
    parser.add_argument("--target", type=int, default=10_000_000)
    parser.add_argument("--memory", default="300MB", help="DuckDB's memory_limit")
    parser.add_argument("--limit", type=int, default=1000, help="peak memory of the process, in MB")
    parser.add_argument("--union", action="store_true", help="without the MERGE statement")
    parser.add_argument("--folder", default=None, help="where to work; a temporary directory if left out")
    parser.add_argument("--measured", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> None:
    arguments = parse(sys.argv[1:])
    if arguments.measured:
        run(arguments, Path(arguments.measured))
        return
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    lake = folder / "lake"
    try:
        write_target(lake, arguments.target)
        width = duckdb.sql(source_sql(10_000, arguments.target)).to_arrow_table().nbytes / 10_000
        print(f"source as Arrow {arguments.source * width / 1e6:>12,.0f} MB")
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--measured", str(lake)], check=True)
        check(lake, arguments.source, arguments.target)
        print("every row is right")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
