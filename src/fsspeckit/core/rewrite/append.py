"""Append new rows to small files (`small_files="append"`), which get new names.

Full row groups are copied, and an undersized last one is encoded together with the new rows.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping
from functools import partial

import pyarrow as pa

from fsspeckit.core.match.hits import Hits, rows_to_insert
from fsspeckit.core.model import Footer, Rewritten, Staged, Target
from fsspeckit.core.parallel import Pool
from fsspeckit.core.rewrite.compaction import Bin
from fsspeckit.core.rewrite.inserts import NewFiles, rows_by_folder
from fsspeckit.core.rewrite.join_files import JoinJob, join_files, layout_of
from fsspeckit.core.rows.exchange import Runner, Step
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.values.calendars import Calendar

APPEND_BYTES = 32 << 20
"""Files below this size take new rows, and more bytes of new rows than this make files of their own."""
_FILE_BYTES = 256_000_000


def files_to_append_to(target: Target, files: NewFiles, changed: Container[str]) -> dict[str, Footer]:
    """The smallest file of each folder, if it is small, has the schema of new files, and no row of it changes."""
    if files.template is None:
        return {}
    chosen: dict[str, Footer] = {}
    for number, info in enumerate(target.files.infos):
        folder = posixpath.dirname(info.path)
        if info.size >= APPEND_BYTES or info.path in changed:
            continue
        if folder in chosen and chosen[folder].info.size <= info.size:
            continue
        footer = target.files[number]
        same_schema = footer.schema.equals(files.template.schema)
        if same_schema and footer.calendar == Calendar() and footer.rows:
            chosen[folder] = footer
    return chosen


def append_rows(
    runner: Runner,
    location: Location,
    spool: Spool,
    hits: Hits,
    count: int,
    files: NewFiles,
    append_to: Mapping[str, Footer],
) -> tuple[list[Rewritten], list[Staged]]:
    """Write the `count` new rows: those of a folder with a file to append to into that file, others to new files."""
    step = Step("insert", count, spool.bytes)
    write = partial(_append, location, spool, hits, files)
    (done,) = runner.map(step, write, [dict(append_to)], lambda _: 2 * APPEND_BYTES)
    return done


def _append(
    location: Location, spool: Spool, hits: Hits, files: NewFiles, append_to: Mapping[str, Footer]
) -> tuple[list[Rewritten], list[Staged]]:
    by_folder: dict[str, list[pa.Table]] = {}
    for part in range(len(spool.parts)):
        for table in rows_to_insert(spool, hits, part, files.actions):
            for folder, rows in rows_by_folder(files.complete(table), files.partitions):
                by_folder.setdefault(folder, []).append(rows)
    rewritten: list[Rewritten] = []
    others: list[pa.Table] = []
    for folder, tables in by_folder.items():
        rows = pa.concat_tables(tables)
        appended = _appended(location, files, append_to[folder], rows) if folder in append_to else None
        if appended is None:
            others.append(rows)
        else:
            rewritten.append(appended)
    return rewritten, files.write(location, others) if others else []


def _appended(location: Location, files: NewFiles, footer: Footer, rows: pa.Table) -> Rewritten | None:
    """`None` if the file cannot hold the rows, such as nulls in a column that is not nullable."""
    name = f"append-{posixpath.basename(footer.path)}".removesuffix(".parquet")
    job = JoinJob(Bin((footer,), "small files"), files.staging, name, _FILE_BYTES, files.ledger)
    layout = layout_of(location, job).layout
    rows = rows.select(layout.rows.names)
    if rows.schema.types != layout.rows.types or not layout.holds(rows):
        return None
    joined = join_files(location, Pool(), job, rows)
    return Rewritten(footer.path, joined.staged, joined.copied, spliced=True)
