"""Parquet footers: schema, row groups and the bounds of key columns. Read once, passed on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.core.model import FileInfo, Footer, RowGroup
from fsspeckit.core.parallel import Threads, in_handfuls
from fsspeckit.core.storage import LocalStorage, Location
from fsspeckit.core.target.alike import Together
from fsspeckit.core.target.bounds import Leaf, row_group
from fsspeckit.core.target.chunks import check_chunks, check_flat_chunks
from fsspeckit.core.target.common import Common, Known, has_int96
from fsspeckit.core.target.partitions import parse_hive_partition_path
from fsspeckit.core.target.tail import footer_bytes, footer_of, tail_bytes
from fsspeckit.core.target.thrift import Damaged, Whole, decode_whole

# Footers at once: a mounted disk takes its time to answer, a store even more.
_DISK_THREADS = 8
_REQUESTS = 32
_MANY = 16


def read_footers(
    location: Location, files: Iterable[FileInfo], columns: Sequence[str] | None, *, all_chunks: bool = False
) -> list[Footer]:
    """Footers of all files. `columns` names those whose bounds are wanted; `None` means all.

    `all_chunks` is for callers that go on to look at the metadata of any column chunk: see `checked_footer`.
    """
    known = Known.recent()
    return _by_handfuls(
        location,
        list(files),
        lambda few: [read_footer(location, info, columns, all_chunks=all_chunks, known=known) for info in few],
    )


def read_planned(location: Location, infos: list[FileInfo], columns: Sequence[str]) -> list[Footer]:
    """Footers for a plan. Of many files without their metadata: it takes 18 kB and more, and few of them are opened."""
    if len(infos) <= _MANY:
        return read_footers(location, infos, columns)
    known = Known.recent()
    return _by_handfuls(location, infos, lambda few: _read_alike(location, few, columns, known))


def _by_handfuls(
    location: Location, infos: list[FileInfo], read: Callable[[Sequence[FileInfo]], list[Footer]]
) -> list[Footer]:
    if isinstance(location.storage, LocalStorage):
        return in_handfuls(read, infos, _DISK_THREADS)
    with Threads(_REQUESTS) as pool:
        return [footer for (footer,) in pool.map(lambda info: read([info]), infos)]


def read_footer(
    location: Location,
    info: FileInfo,
    columns: Sequence[str] | None,
    *,
    all_chunks: bool = False,
    known: Known | None = None,
) -> Footer:
    """The footer of one file; `known` is what others had in common, which is not worked out again."""
    with reading(location, info.path):
        return _parsed(_End.of(location, info), columns, known or Known(), all_chunks=all_chunks)


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a file, and whether it is certainly the one that was listed."""

    info: FileInfo
    tail: bytes
    certain: bool

    @classmethod
    def of(cls, location: Location, info: FileInfo) -> _End:
        path = location.at(info.path)
        with location.storage.open_input_end(path) as source:
            return cls(info, tail_bytes(source), location.storage.is_listed(path, source, info))

    @property
    def footer(self) -> bytes:
        return footer_of(self.tail)


def _parsed(end: _End, columns: Sequence[str] | None, known: Known, *, all_chunks: bool = False) -> Footer:
    raw, file = end.footer, pq.ParquetFile(pa.BufferReader(end.tail))  # a footer's offsets do not matter to it
    metadata = file.metadata
    _check_counts(metadata)
    common = known.find(raw, metadata) or known.learn(raw, _arrow_schema(file, end.tail), metadata)
    told = check_chunks(raw, metadata.schema) if all_chunks or columns is None else None
    groups = _row_groups(raw, metadata, range(metadata.num_row_groups), common.of_columns(columns), told)
    return _footer(end, common, groups, metadata)


def _read_alike(location: Location, infos: Sequence[FileInfo], columns: Sequence[str], known: Known) -> list[Footer]:
    """Footers without their metadata, those that have much in common parsed as one."""
    footers: dict[str, Footer] = {}
    alike: dict[Common, list[_End]] = {}

    def parse_alone(end: _End) -> None:
        with reading(location, end.info.path):
            footers[end.info.path] = replace(_parsed(end, columns, known), metadata=None)

    for info in infos:
        with reading(location, info.path):
            end = _End.of(location, info)
            common = known.find_around(end.footer)
        if common is None:
            parse_alone(end)
        else:
            alike.setdefault(common, []).append(end)
    for common, ends in alike.items():
        try:
            footers |= _parsed_together(common, ends, columns)
        except (pa.ArrowException, OSError, ValueError):  # one is odd, and will tell by itself
            for end in ends:
                parse_alone(end)
    return [footers[info.path] for info in infos]


def _parsed_together(common: Common, ends: list[_End], columns: Sequence[str]) -> dict[str, Footer]:
    raws = [end.footer for end in ends]
    leaves, together = common.of_columns(columns), Together.of(common, raws)
    return {
        end.info.path: _footer(end, common, _row_groups(raw, together.metadata, place, leaves))
        for end, raw, place in zip(ends, raws, together.places, strict=True)
    }


def _row_groups(
    raw: bytes, metadata: pq.FileMetaData, place: range, leaves: list[Leaf], told: frozenset[int] | None = None
) -> tuple[RowGroup, ...]:
    """The row groups that PyArrow has at a place. `told` are the leaves whose statistics it can be asked for."""
    if told is None:
        told = check_flat_chunks(raw, len(place), metadata.schema, leaves)
    leaves = [leaf for leaf in leaves if leaf.index in told]
    return tuple(row_group(metadata.row_group(i), leaves) for i in place)


def _footer(end: _End, common: Common, groups: tuple[RowGroup, ...], metadata: pq.FileMetaData | None = None) -> Footer:
    return Footer(
        end.info,
        common.schema,
        groups,
        parse_hive_partition_path(end.info.path),
        metadata,
        common.ledger,
        common.int96,
        common.calendar,
        common.collated,
        common.by_spark,
        end.certain,
    )


def _arrow_schema(file: pq.ParquetFile, tail: bytes) -> pa.Schema:
    """The schema of a footer that is the first of its kind, whose words are looked at too."""
    _check_words(file)
    return _with_int96(pa.BufferReader(tail), file).schema_arrow


def open_parquet(location: Location, path: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a data file, with INT96 read in the unit that its writer used; a failure names the file."""
    with reading(location, path), contextlib.ExitStack() as opened:
        file = open_source(opened.enter_context(location.storage.open_input(location.at(path))), metadata)
        opened.pop_all()
    return file


def open_planned(location: Location, footer: Footer) -> pq.ParquetFile:
    """Open a file of the plan. Where the footer at hand came without its metadata, the file has to agree with it."""
    file = open_parquet(location, footer.path, footer.metadata)
    try:
        check_planned(location, footer, file)
    except UnreadableFileError:
        file.close(force=True)
        raise
    return file


def check_planned(location: Location, footer: Footer, file: pq.ParquetFile) -> None:
    """Is this the file whose footer was planned with, in another process or another day?"""
    if footer.metadata is None:
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        if [(g.num_rows, g.total_byte_size) for g in groups] != [(g.rows, g.bytes) for g in footer.row_groups]:
            raise unreadable(location, footer.path, "it was changed or replaced since its footer was read")


def open_source(
    source: Any, metadata: pq.FileMetaData | None = None, numbered: Sequence[str] | None = None
) -> pq.ParquetFile:
    """Open Parquet from anything that PyArrow reads; `metadata` is the footer, if it was read before.

    Columns named by `numbered` are read as dictionaries.
    """
    file = opened(source, metadata, numbered)
    if metadata is None:
        _check_counts(file.metadata)
        _check_words(file)
    return _with_int96(source, file, numbered)


def _with_int96(source: Any, file: pq.ParquetFile, numbered: Sequence[str] | None = None) -> pq.ParquetFile:
    return opened(source, file.metadata, numbered, int96_unit(file.metadata)) if has_int96(file.metadata) else file


def opened(
    source: Any, metadata: pq.FileMetaData | None, numbered: Sequence[str] | None = None, unit: str | None = None
) -> pq.ParquetFile:
    """As every file is read: whole pages, and by whoever asks for them.

    Buffered ahead, they would be read by PyArrow's threads, which is no quicker; `storage.pinned` tells why else not.
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=numbered,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
        pre_buffer=False,
    )


def _check_counts(metadata: pq.FileMetaData) -> None:
    """Does the footer agree with itself? PyArrow looks only when it needs it."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if metadata.num_rows != sum(rows) or min(rows, default=0) < 0:
        raise Damaged(f"its footer says {metadata.num_rows} rows, and {sum(rows)} in the row groups together")
    width = next((group.num_columns for group in groups if group.num_columns != metadata.num_columns), None)
    if width is not None:
        raise Damaged(f"a row group has {width} columns, and its schema {metadata.num_columns}")


def _check_words(file: pq.ParquetFile) -> None:
    """Are the footer's words text? This, too, PyArrow looks at only when it needs it."""
    for leaf in range(file.metadata.num_columns):
        _ = file.metadata.schema.column(leaf).path
    _ = file.metadata.created_by
    for dtype in file.schema_arrow.types:
        _check_zones(dtype)


def _check_zones(dtype: pa.DataType) -> None:
    if t.is_timestamp(dtype):
        _ = dtype.tz
    if t.is_dictionary(dtype):
        _check_zones(dtype.value_type)
    for i in range(dtype.num_fields):
        _check_zones(dtype.field(i).type)


def raw_footer(location: Location, path: str) -> bytes:
    with reading(location, path), location.storage.open_input(location.at(path)) as source:
        return footer_bytes(source)


def checked_footer(location: Location, path: str, raw: bytes, metadata: pq.FileMetaData) -> Whole:
    """The raw footer of a file, decoded. PyArrow can be asked for any of its column chunks, but not for statistics."""
    with reading(location, path):
        fields = decode_whole(raw)
        check_chunks(fields, metadata.schema)
    return fields


@contextlib.contextmanager
def reading(location: Location, path: str) -> Iterator[None]:
    """Whatever PyArrow says of a file that it cannot read becomes an error of ours that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise unreadable(location, path, error) from error


def unreadable(location: Location, path: str, why: object) -> UnreadableFileError:
    of_the_system = isinstance(why, OSError) and why.errno is not None
    what, way_out = ("", "Remove the cause") if of_the_system else (" as Parquet", "Restore or remove the file")
    return UnreadableFileError(
        f"Cannot read {location.show(path)}{what}: {str(why).strip().rstrip('.')}. {way_out}; nothing was changed.",
        operation="read",
        path=path,
    )


def int96_unit(metadata: pq.FileMetaData) -> str:
    """Spark and Hive write microseconds, of years that nanoseconds cannot reach; others write nanoseconds."""
    return "us" if (metadata.created_by or "").startswith("parquet-mr") else "ns"
