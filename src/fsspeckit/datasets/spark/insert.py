"""New rows into new files: few files, few small ones, and no single task for much work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import Staged
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.storage import Location
from fsspeckit.datasets.spark import route
from fsspeckit.datasets.spark.match import Hits, Source
from fsspeckit.datasets.spark.parts import PART_BYTES
from fsspeckit.datasets.spark.route import Section
from fsspeckit.datasets.spark.scratch import Scratch
from fsspeckit.datasets.spark.session import Cluster, spread


def insert(
    cluster: Cluster, location: Location, source: Source, files: NewFiles, hits: Sequence[Hits] | None, rows: int
) -> list[Staged]:
    """Write the `rows` rows that `hits` leave, or all. A little is one task's work; much is spread, and where rows of
    one partition have to come together, or few rows out of many, they are routed first."""
    numbers = range(len(source.parts))
    size = source.bytes * rows // max(1, source.rows)
    if source.bytes <= PART_BYTES:
        tasks = [list(numbers)]
    elif not source.shape.partitions and 2 * size >= source.bytes:
        tasks = spread([part.bytes for part in source.parts], min(len(numbers), -(-size // PART_BYTES)))
    else:
        return _insert_routed(cluster, location, source, files, hits)
    write = partial(_write_parts, location, source, files, hits)
    return [s for staged in cluster.run("insert", write, [sorted(task) for task in tasks]) for s in staged]


def _write_parts(
    location: Location, source: Source, files: NewFiles, hits: Sequence[Hits] | None, numbers: list[int]
) -> list[Staged]:
    tables: Iterator[pa.Table] = (t for number in numbers for t in route.new_rows(source, hits, number))
    if files.partitions.columns:  # rows of one partition have to come together; it is little
        tables = iter([pa.concat_tables(tables)])
    return files.write(location, tables)


def _insert_routed(
    cluster: Cluster, location: Location, source: Source, files: NewFiles, hits: Sequence[Hits] | None
) -> list[Staged]:
    known = sorted({values for part in source.parts for values in part.partitions}, key=repr)
    found = cluster.map(
        "route", partial(_route, source, hits, known), range(len(source.parts)), lambda n: source.parts[n].bytes
    )
    tasks = _packed([section for sections in found for section in sections])
    write = partial(_write_sections, location, source.scratch, files)
    return [s for staged in cluster.run("insert", write, tasks) for s in staged]


def _route(source: Source, hits: Sequence[Hits] | None, known: Any, numbers: list[int]) -> list[list[Section]]:
    return [route.route(source, partial(route.new_rows_by_partition, source, hits, known), [n]) for n in numbers]


def _packed(sections: Sequence[Section]) -> list[list[Section]]:
    """Sections of one label together, unless they are too many for one task."""
    tasks: list[list[Section]] = []
    filled = PART_BYTES
    for section in sorted(sections, key=lambda s: (s.label, s.name)):
        if filled >= PART_BYTES:
            tasks.append([])
            filled = 0
        tasks[-1].append(section)
        filled += section.bytes
    return tasks


def _write_sections(location: Location, scratch: Scratch, files: NewFiles, sections: list[Section]) -> list[Staged]:
    def tables() -> Iterator[pa.Table]:
        for section in sections:
            for _, table in scratch.read_labelled(section.name, {section.label}):
                yield table

    return files.write(location, tables())
