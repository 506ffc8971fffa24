"""The input of a file rewrite: the `Job`, the changed rows, and the open file with its decoded footer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.dataset.footers import check_planned
from fsspeckit.core.dataset.ledger import Ledger
from fsspeckit.core.dataset.target import column_differs
from fsspeckit.core.match.filters import RowFilter
from fsspeckit.core.model import Footer, Shape, WriteOptions
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.chunk_layout import NotSpliceable
from fsspeckit.core.parquet.dictionaries import DictionaryColumns, shared_dictionaries
from fsspeckit.core.parquet.footer_io import footer_bytes, footer_start
from fsspeckit.core.parquet.reader import checked_footer, open_source, reading
from fsspeckit.core.parquet.retype import NewColumns, footer_with_columns
from fsspeckit.core.parquet.splice import OldFile
from fsspeckit.core.progress import SILENT, FileMeter
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays, schema


@dataclass(frozen=True, slots=True)
class Job:
    """One file to rewrite, and the staged file to write.

    `changed_groups` are the row groups with rows to replace or delete. `path` is where the commit puts the new file.
    `template` is a file with the unified schema; the new file gets its layout if new values do not fit the file's own.
    `as_new_files` writes new files with new names and sizes instead. `ledger` is added to the key-value metadata.
    `verify_keys` reads the keys again and compares them. `retyped` columns get the type in the shape. `added` columns
    are added if the file lacks them, each with a file that has the column. `keeps_rows`: no row changes, the file only
    gets new types and columns, or another ledger. `deletes`: changes may delete rows. `deleted_groups` lose all rows,
    and their changes are never requested. `delete_missing` deletes the rows that have no hit, `row_filter` those that
    it selects. `keep_empty`: if the file loses all rows, it is written without rows instead of being removed.
    """

    footer: Footer
    changed_groups: tuple[int, ...]
    staging: str
    staged: str
    path: str
    template: Footer | None = None
    as_new_files: WriteOptions | None = None
    ledger: Ledger = field(default_factory=dict)
    verify_keys: bool = True
    retyped: frozenset[str] = frozenset()
    added: Mapping[str, Footer | None] = field(default_factory=dict)
    keeps_rows: bool = False
    deletes: bool = False
    deleted_groups: frozenset[int] = frozenset()
    delete_missing: bool = False
    row_filter: RowFilter | None = None
    keep_empty: bool = False

    @property
    def staged_path(self) -> str:
        return f"{self.staging}/{self.staged}"

    def changes(self, group: int) -> bool:
        """Has the row group rows to replace or delete?"""
        return group in self.changed_groups or group in self.deleted_groups


@dataclass(frozen=True, slots=True)
class RowGroupChange:
    """`rows` replace the rows at `positions`, and the rows at `deleted` are removed.

    Positions are ascending within the row group, and no position is in both. `rows` have the shape's plain types. A
    column that is not in `rows` keeps its values.
    """

    positions: Any
    rows: pa.Table
    deleted: Any = ()


class FileChanges(Protocol):
    """The changed rows of one file. A rewrite does not know how rows were matched."""

    def row_group(self, group: int) -> RowGroupChange: ...


class FilePerThread:
    """A `ParquetFile` for each thread, over one source: PyArrow's files are not thread-safe."""

    def __init__(
        self, location: Location, path: str, source: Any, file: pq.ParquetFile, dictionary_columns: Sequence[str]
    ) -> None:
        self._location, self._path, self._source, self._metadata = location, path, source, file.metadata
        self._dictionary_columns = dictionary_columns
        self._opened: dict[tuple[int, bool], pq.ParquetFile] = {(threading.get_ident(), False): file}

    def get(self, *, dictionaries: bool = False) -> pq.ParquetFile:
        """The file of the calling thread; with `dictionaries`, it reads the dictionary columns as indices."""
        key = threading.get_ident(), dictionaries
        if key not in self._opened:
            columns = self._dictionary_columns if dictionaries else None
            with reading(self._location, self._path):
                self._opened[key] = open_source(self._source, self._metadata, columns)
        return self._opened[key]


@dataclass(frozen=True)
class OpenFile:
    """An open file that is rewritten.

    `schema` are its columns as PyArrow reads them, `columns` the names of the columns that the new file stores, and
    `unified` their types. `footer` and `decoded_footer` describe the layout of the new file: the file's own, with new
    types for `retyped` columns and with `added` columns. `reencoded` columns are encoded again in every row group.
    Chunks are copied from `old`. If that is `None`, `not_spliceable` is the reason.
    """

    location: Location
    shape: Shape
    job: Job
    changes: FileChanges
    pool: Pool
    source: Any
    per_thread: FilePerThread
    dictionary_columns: DictionaryColumns
    metadata: pq.FileMetaData
    schema: pa.Schema
    names: tuple[str, ...]
    columns: tuple[str, ...]
    unified: pa.Schema
    footer: Footer
    decoded_footer: thrift.Struct
    retyped: Mapping[str, pa.DataType]
    added: Sequence[tuple[pa.Field, Footer | None]]
    reencoded: frozenset[str]
    old: OldFile | None = None
    not_spliceable: str = ""
    pages_end: int = 0
    meter: FileMeter = field(default_factory=lambda: SILENT.meter(0))

    @property
    def only_adds_columns(self) -> bool:
        """Does the file change in nothing but columns of nulls, which are added? Then the footer is the old one."""
        return self.job.keeps_rows and bool(self.added) and not self.reencoded

    @property
    def path(self) -> str:
        return self.job.footer.path

    @property
    def shown(self) -> str:
        return self.location.show(self.path)

    def rows(self, group: int) -> int:
        return int(self.metadata.row_group(group).num_rows)


@contextlib.contextmanager
def open_file(
    location: Location, shape: Shape, job: Job, changes: FileChanges, pool: Pool, meter: FileMeter | None = None
) -> Iterator[OpenFile]:
    """Open a file, and decode and check its footer."""
    path, footer = job.footer.path, job.footer
    location.expect(footer.info)
    with contextlib.ExitStack() as stack:
        with reading(location, path):
            source = stack.enter_context(location.storage.open_input(location.at(path)))
            file = open_source(source, footer.metadata)
        check_planned(location, footer, file)
        with reading(location, path):
            raw = footer_bytes(source)
        decoded = checked_footer(location, path, raw, file.metadata)
        dictionary_columns, shared = DictionaryColumns({}), list[str]()
        read_schema = file.schema_arrow  # PyArrow computes it at every access
        with reading(location, path):
            if job.as_new_files is None:
                dictionary_columns = DictionaryColumns.of(source, decoded, file, job.changed_groups)
            if job.deletes:
                shared = shared_dictionaries(decoded, file.metadata, read_schema)
        types = _new_types(read_schema, shape, job)
        added = [(shape.schema.field(n), other) for n, other in job.added.items() if n not in read_schema.names]
        footer = replace(footer, metadata=file.metadata)
        if types or (added and not job.keeps_rows):
            footer, decoded = footer_with_columns(location, footer, decoded, NewColumns(types, added), job.template)
        # The path may name a partition column that the file does not store.
        only_in_path = job.footer.partition.keys() - {*job.footer.schema.names}
        columns = tuple(name for name in shape.stored if name not in only_in_path)
        opened = OpenFile(
            location=location,
            shape=shape,
            job=job,
            changes=changes,
            pool=pool,
            source=source,
            per_thread=FilePerThread(location, path, source, file, dictionary_columns.names),
            dictionary_columns=dictionary_columns,
            metadata=file.metadata,
            schema=read_schema,
            names=tuple(read_schema.names),
            columns=columns,
            unified=schema.plain_schema(shape.schema.field(n) for n in columns),
            footer=footer,
            decoded_footer=decoded,
            retyped=types,
            added=added,
            reencoded=frozenset((*types, *shared)),
            pages_end=footer_start(source, raw),
            meter=meter or SILENT.meter(0),
        )
        yield opened if opened.only_adds_columns else _with_old_file(opened)


def _new_types(columns: pa.Schema, shape: Shape, job: Job) -> dict[str, pa.DataType]:
    """The types of the columns that get another type from the shape, in the file's order."""
    own = {column.name: column.type for column in columns if column.name in job.retyped}
    types = {name: shape.schema.field(name).type for name in own}
    plain = {name: arrays.plain_type(dtype) for name, dtype in types.items() if own[name] != dtype}
    return {name: dtype for name, dtype in plain.items() if column_differs(own[name], dtype, shape, name)}


def with_added_columns(file: OpenFile) -> OpenFile:
    """A file that only adds columns, with the footer for them, to write it like one that changes in other ways."""
    new = NewColumns(file.retyped, file.added)
    changed = footer_with_columns(file.location, file.footer, file.decoded_footer, new, file.job.template)
    return _with_old_file(replace(file, footer=changed[0], decoded_footer=changed[1]))


def _with_old_file(file: OpenFile) -> OpenFile:
    """The file with the chunks to copy, or with the reason why there are none."""
    columns = NewColumns(file.retyped, file.added).of_schema(file.schema)
    metadata = file.footer.metadata
    try:
        assert metadata is not None
        return replace(file, old=OldFile.of(file.source, file.decoded_footer, file.pages_end, metadata, columns))
    except (NotSpliceable, thrift.CorruptFile) as error:
        return replace(file, not_spliceable=str(error))
