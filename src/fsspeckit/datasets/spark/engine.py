"""Spark's primitives: the source is pinned by executors, who match, rewrite and insert; the driver sees counts.

Nothing that an executor holds has to last: every step leaves its outcome in the scratch folder, under a name that is
the attempt's own. So executors may be lost between steps, and failing or speculative attempts leave only litter.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import FileInfo, Footer, Match, Profile, Replace, Rewritten, Scan, Shape, Staged
from fsspeckit.core.plan import validate
from fsspeckit.core.rewrite.kernel import Job, rewrite_file
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.storage import FsspecStorage, LocalStorage, Location
from fsspeckit.core.target.footers import read_footer, read_footers
from fsspeckit.core.values.ordering import merged
from fsspeckit.datasets.pyarrow.engine import PinnedTable, deduplicated
from fsspeckit.datasets.spark import catalog, join, match, route
from fsspeckit.datasets.spark import parts as pinned
from fsspeckit.datasets.spark.insert import insert
from fsspeckit.datasets.spark.match import Hits, Source
from fsspeckit.datasets.spark.parts import PART_BYTES, Part, PartWriter
from fsspeckit.datasets.spark.scratch import Scratch, unique
from fsspeckit.datasets.spark.session import Cluster, spark_path, start_session
from fsspeckit.datasets.spark.shared import Shared
from fsspeckit.datasets.spark.source import check_seen, open_source

log = logging.getLogger("fsspeckit.spark")

# From here on executors read the footers; below, threads of the driver are faster.
MANY_FILES = 256


@dataclass
class PinnedSource:
    """The source in parts, and after `match` who met whom: `numbers` are the files' numbers in the hits."""

    cluster: Cluster
    source: Source
    folder: str | None = None
    hits: list[Hits] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    met: int = 0


class SparkEngine:
    """See `core.engine.Engine`."""

    name = "spark"
    # A DataFrame planned before the merge remembers file lengths: under a new name it fails instead of losing rows.
    replace: Replace = "new_file"
    wants_scratch = True

    def __init__(self, spark: Any = None, filesystem: Any = None, scratch: str | None = None) -> None:
        self._spark, self._filesystem, self._scratch = spark, filesystem, scratch

    @property
    def partition_timezone(self) -> str:
        """Spark reads and writes the names of folders in the session's zone."""
        return str(self.cluster.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def ignores_case(self) -> bool:
        return str(self.cluster.spark.conf.get("spark.sql.caseSensitive")).lower() == "false"

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self._spark or start_session())

    @contextlib.contextmanager
    def operation(self, verb: str, location: Location) -> Iterator[None]:
        """What is done within is told in Spark's UI under this name."""
        self.cluster.check_running()
        self.cluster.shared = Shared(target=_local(location, ""))
        with self.cluster.jobs.operation(verb, location):
            yield

    def open(self, source: Any) -> Any:
        self.cluster.jobs.describe("look at the source")
        return open_source(source, self._filesystem, self.footers)

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> list[Footer]:
        _check_shared(location)
        infos, shared = list(files), self.cluster.shared
        self.cluster.jobs.saw_files(location.root, len(infos))
        if infos and location.root in shared.target[:1]:
            self.cluster.shared = replace(shared, target=(location.root, location.at(infos[0].path)))
        if len(infos) < MANY_FILES:
            return read_footers(location, infos, columns)
        read = partial(_read_footers, location, tuple(columns))
        return self.cluster.map("footers", read, infos, lambda info: 1 << 20)

    def pin(self, opened: Any, shape: Shape, scratch: Location | None) -> PinnedSource:
        folder = tempfile.mkdtemp(prefix="fsspeckit-", dir=self._scratch) if scratch is None else None
        try:
            where = Scratch(scratch.storage, scratch.root) if scratch else Scratch(LocalStorage(), str(folder))
            self.cluster.shared = replace(self.cluster.shared, scratch=_local(where, ""))
            self.cluster.jobs.describe("pin the source")
            parts = opened.pin(self.cluster, shape, where)
            check_seen(where, parts)
        except BaseException:
            _remove(folder)
            raise
        return PinnedSource(self.cluster, Source(where, shape, tuple(parts)), folder)

    def release(self, source: PinnedSource) -> None:
        source.hits.clear()
        _remove(source.folder)

    def profile(self, source: PinnedSource) -> Profile:
        parts, names = source.source.parts, source.source.shape.keys
        nulls = {name: sum(part.nulls[i] for part in parts) for i, name in enumerate(names)}
        count, samples = (0, ()) if any(nulls.values()) or not parts else self._duplicates(source)
        return Profile(
            rows=source.source.rows,
            null_keys=nulls,
            duplicate_keys=count,
            duplicate_samples=samples,
            partitions=frozenset(values for part in parts for values in part.partitions),
            intervals={name: merged([part.intervals[i] for part in parts]) for i, name in enumerate(names)},
        )

    def _duplicates(self, source: PinnedSource) -> tuple[int, Any]:
        whole, cluster = source.source, source.cluster
        cluster.jobs.describe("look for duplicate keys")
        count, rows = match.duplicates_small(whole) if _is_small(source) else join.duplicates_large(cluster, whole)
        return count, pinned.samples(whole.scratch, whole.parts, whole.shape, rows)

    def deduplicate(self, source: PinnedSource, order_by: Sequence[str]) -> PinnedSource:
        whole, cluster = source.source, source.cluster
        cluster.jobs.describe(f"reduce {whole.rows:,} rows to one per key")
        buckets = max(1, 2 * whole.bytes // PART_BYTES)
        sections: list[Any] = [None]
        if buckets > 1:
            by_key = partial(_route_by_key, whole, buckets)
            routed = cluster.map("route", by_key, range(len(whole.parts)), lambda n: whole.parts[n].bytes)
            sections = [[] for _ in range(buckets)]
            for section in (s for found in routed for s in found):
                sections[section.label].append(section)
        kept = cluster.run("deduplicate", partial(_deduplicate, whole, tuple(order_by)), sections)
        samples = [sample for _, _, some in kept for sample in some][:5]
        validate.no_differing_duplicates(sum(n for _, n, _ in kept), samples, whole.shape.keys, order_by)
        parts = tuple(part for some, _, _ in kept for part in some)
        return PinnedSource(cluster, replace(whole, parts=parts), source.folder)

    def match(self, location: Location, source: PinnedSource, scans: Sequence[Scan]) -> Match:
        lean = [Scan(_lean(scan.footer), scan.row_groups) for scan in scans]
        source.numbers = {scan.footer.path: number for number, scan in enumerate(scans)}
        if not scans:
            return Match({}, 0)
        source.cluster.jobs.describe_files("match", len(scans))
        find = match.match_small if _is_small(source) else join.match_large
        found, source.hits = find(source.cluster, location, source.source, lean)
        source.met = found.keys
        return found

    def rewrite(self, location: Location, source: PinnedSource, jobs: Sequence[Job]) -> list[Rewritten]:
        whole, cluster = source.source, source.cluster
        numbered = [(source.numbers.get(job.footer.path, -1), _lean_job(job)) for job in jobs]
        files = [number for number, job in numbered if job.touched]
        cluster.jobs.describe_files("rewrite", len(jobs))
        routed = None
        if files and whole.bytes > cluster.broadcast_bytes:
            send = partial(_route_matched, whole, source.hits, files)
            found = cluster.map("route", send, range(len(whole.parts)), lambda n: whole.parts[n].bytes)
            routed = sorted({section.name for sections in found for section in sections})
        work = partial(_rewrite, location, whole, source.hits, routed)
        return cluster.map("rewrite", work, numbered, lambda job: job[1].footer.info.size)

    def insert(
        self, location: Location, source: PinnedSource, files: NewFiles, rows: Literal["new", "all"]
    ) -> list[Staged]:
        if not source.source.rows:
            return []
        lean = replace(files, template=_lean(files.template) if files.template else None)
        hits, met = (source.hits, source.met) if rows == "new" else (None, 0)
        count = source.source.rows - met
        source.cluster.jobs.describe(f"write {count:,} new row{'' if count == 1 else 's'}")
        return insert(source.cluster, location, source.source, lean, hits, count)

    def refresh(self, location: Location) -> None:
        """After a commit: what Spark has cached of this path is stale. The rows are written, so this may not fail."""
        try:
            self.cluster.spark.catalog.refreshByPath(spark_path(location, ""))
            catalog.refresh_tables_at(self.cluster.spark, location)
        except Exception:
            log.warning("Spark could not forget what it cached of %s", location.shown, exc_info=True)


def _local(place: Location | Scratch, path: str) -> tuple[str, ...]:
    """A path that `os` can look for."""
    return (place.at(path),) if isinstance(place.storage, LocalStorage) else ()


def _is_small(source: PinnedSource) -> bool:
    return source.source.key_bytes <= source.cluster.broadcast_bytes


def _check_shared(location: Location) -> None:
    if isinstance(location.storage, FsspecStorage) and isinstance(location.storage.fs, MemoryFileSystem):
        raise ArgumentError(
            f"{location.shown} is in this process's memory, where Spark's executors cannot see it. Use a path that "
            "driver and executors share, or the pyarrow engine."
        )


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _lean(footer: Footer) -> Footer:
    """Without the bulk that whoever opens the file reads anyway."""
    return replace(footer, metadata=None)


def _lean_job(job: Job) -> Job:
    return replace(job, footer=_lean(job.footer), template=_lean(job.template) if job.template else None)


# -- what runs on executors


def _read_footers(location: Location, columns: tuple[str, ...], infos: list[FileInfo]) -> list[Footer]:
    """Equal schemas are one object, so that they travel once."""
    known: dict[bytes, pa.Schema] = {}
    footers = read_footers(location, infos, columns) if len(infos) > 1 else [read_footer(location, infos[0], columns)]
    return [
        replace(f, metadata=None, schema=known.setdefault(f.schema.serialize().to_pybytes(), f.schema)) for f in footers
    ]


def _route_matched(source: Source, hits: list[Hits], files: list[int], numbers: list[int]) -> list[list[route.Section]]:
    return [route.write_sections(source.scratch, route.matched_rows(source, hits, files, [n])) for n in numbers]


def _route_by_key(source: Source, buckets: int, numbers: list[int]) -> list[list[route.Section]]:
    return [route.route(source, partial(route.rows_by_key, source, buckets), [n]) for n in numbers]


def _rewrite(
    location: Location, source: Source, hits: list[Hits], routed: list[str] | None, jobs: list[tuple[int, Job]]
) -> list[Rewritten]:
    """Merge some files, one after the other. A small source is read as it is, a large one where it was routed to."""
    wanted = {number for number, job in jobs if job.touched}
    whole: dict[int, list[pa.Table]] = {number: [] for number in wanted}
    if routed is None and wanted:
        for number, table in route.matched_rows(source, hits, sorted(wanted), range(len(source.parts))):
            whole[number].append(table)
    done = []
    for number, job in jobs:
        pieces = whole.get(number, [])
        for name in routed or ():
            pieces += [table for _, table in source.scratch.read_labelled(name, {number})]
        attempt = replace(job, staged=unique(job.staged))
        done.append(rewrite_file(location, source.shape, attempt, route.FileRows(pieces)))
        pieces.clear()
    return done


def _deduplicate(
    source: Source, order_by: tuple[str, ...], sections: list[route.Section] | None
) -> tuple[list[Part], int, Any]:
    """One row per key, of all rows or of those whose keys hash alike; how many keys are undecided, and which."""
    if sections is None:
        tables = [table for part in source.parts for table in pinned.read_rows(source.scratch, part)]
    else:
        tables = [t for s in sections for _, t in source.scratch.read_labelled(s.name, {s.label})]
    if not tables:
        return [], 0, ()
    writer, whole = PartWriter(source.scratch, source.shape), PinnedTable(pa.concat_tables(tables), source.shape)
    rows, ties = deduplicated(whole, order_by)
    writer.write(rows)
    return writer.finish(), len(ties), whole.samples(ties[:5])
