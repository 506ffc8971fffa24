"""What to do with one file, and what is known of the file before its rows are read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.dataset.footers import check_planned
from fsspeckit.core.dataset.ledger import Ledger
from fsspeckit.core.model import Footer, Shape, WriteOptions
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.chunk_layout import NotSpliceable
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.parquet.metadata_entries import ARROW_SCHEMA
from fsspeckit.core.parquet.reader import checked_footer, open_source, reading
from fsspeckit.core.parquet.retype import NewColumns, retyped
from fsspeckit.core.parquet.splice import OldFile
from fsspeckit.core.rewrite.patch import DictionaryText
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays, schema
from fsspeckit.core.values.unify import types_differ

# These writers take a dictionary as it is given to them, with values that occur in other row groups only.
_WRITE_WHOLE_DICTIONARIES = ("parquet-cpp", "fastparquet")


@dataclass(frozen=True, slots=True)
class Job:
    """One file to rewrite: the row groups to change, and the staged file to make of it.

    `path` is where the commit puts the file. `template` is a file whose schema is the unified one. The new file is
    laid out like it if the new values do not fit the file's own layout. `as_new_files` writes new files instead, with
    new names and sizes. `ledger` is added to the file's key-value metadata. `verify_keys` reads the keys again and
    compares them. `retyped` are the columns that take the shape's type, whatever the rows are. `added` are the columns
    that the file gets if it lacks them, each with a file that has it. `only_types` if no row changes, and the file is
    written for its types and columns alone. `deletes` if changes may delete rows.
    """

    footer: Footer
    touched: tuple[int, ...]
    staging: str
    staged: str
    path: str
    template: Footer | None = None
    as_new_files: WriteOptions | None = None
    ledger: Ledger = field(default_factory=dict)
    verify_keys: bool = True
    retyped: frozenset[str] = frozenset()
    added: Mapping[str, Footer | None] = field(default_factory=dict)
    only_types: bool = False
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class RowGroupChange:
    """The rows at `positions` become `rows`, and the rows at `deleted` go.

    Positions are ascending within the row group, and none is in both. `rows` are in the shape's plain schema.
    """

    positions: Any
    rows: pa.Table
    deleted: Any = ()


class FileChanges(Protocol):
    """The changes of one file. A rewrite does not know how rows were matched."""

    def row_group(self, group: int) -> RowGroupChange: ...


class Handles:
    """PyArrow's files are not for several threads at once: each thread opens its own, over the same source."""

    def __init__(
        self, location: Location, path: str, source: Any, file: pq.ParquetFile, dictionary_columns: Sequence[str]
    ) -> None:
        self._location, self._path, self._source, self._metadata = location, path, source, file.metadata
        self._dictionary_columns = dictionary_columns
        self._opened: dict[tuple[int, bool], pq.ParquetFile] = {(threading.get_ident(), False): file}

    def of_this_thread(self, *, dictionaries: bool = False) -> pq.ParquetFile:
        """With `dictionaries`, text is read as indices into them where that pays."""
        key = threading.get_ident(), dictionaries
        if key not in self._opened:
            columns = self._dictionary_columns if dictionaries else None
            with reading(self._location, self._path):
                self._opened[key] = open_source(self._source, self._metadata, columns)
        return self._opened[key]


@dataclass(frozen=True)
class OpenFile:
    """A file that is open to be rewritten.

    `schema` has its columns as PyArrow reads them, and `columns` names those that it is to hold, of the type `unified`.
    `footer` and, decoded, `fields` describe the layout to keep: the file's own, with other types for the columns
    `retyped`, and with the columns that are `added`. `old` is the file to copy chunks from; where there is none,
    `not_spliceable` says why.
    """

    location: Location
    shape: Shape
    job: Job
    changes: FileChanges
    pool: Pool
    source: Any
    handles: Handles
    dictionary_text: DictionaryText
    metadata: pq.FileMetaData
    schema: pa.Schema
    names: tuple[str, ...]
    columns: tuple[str, ...]
    unified: pa.Schema
    footer: Footer
    fields: thrift.Struct
    retyped: Mapping[str, pa.DataType]
    added: Sequence[tuple[pa.Field, Footer | None]]
    reencoded: frozenset[str]
    """The columns that are encoded again in every row group."""
    old: OldFile | None = None
    not_spliceable: str = ""

    @property
    def path(self) -> str:
        return self.job.footer.path

    @property
    def shown(self) -> str:
        return self.location.show(self.path)

    def rows(self, group: int) -> int:
        return int(self.metadata.row_group(group).num_rows)


@contextlib.contextmanager
def open_file(location: Location, shape: Shape, job: Job, changes: FileChanges, pool: Pool) -> Iterator[OpenFile]:
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
        own = checked_footer(location, path, raw, file.metadata)
        dictionary_text = DictionaryText({})
        if job.as_new_files is None:
            with reading(location, path):
                dictionary_text = DictionaryText.of(source, own, file, job.touched)
        read_schema = file.schema_arrow  # PyArrow makes it anew whenever it is asked
        types = _retyped(read_schema, shape, job)
        footer, fields = replace(footer, metadata=file.metadata), own
        added = [(shape.schema.field(n), having) for n, having in job.added.items() if n not in read_schema.names]
        if types or added:
            footer, fields = retyped(location, footer, own, NewColumns(types, added), job.template)
        # A partition column that the path names may be left to the path.
        columns = tuple(n for n in shape.stored if n in job.footer.schema.names or n not in job.footer.partition)
        opened = OpenFile(
            location=location,
            shape=shape,
            job=job,
            changes=changes,
            pool=pool,
            source=source,
            handles=Handles(location, path, source, file, dictionary_text.columns),
            dictionary_text=dictionary_text,
            metadata=file.metadata,
            schema=read_schema,
            names=tuple(read_schema.names),
            columns=columns,
            unified=schema.plain_schema(shape.schema.field(n) for n in columns),
            footer=footer,
            fields=fields,
            retyped=types,
            added=added,
            reencoded=frozenset(types).union(_shared_dictionaries(file.metadata, read_schema) if job.deletes else ()),
        )
        yield _spliceable(opened, source.size() - 8 - len(raw))


def _retyped(columns: pa.Schema, shape: Shape, job: Job) -> dict[str, pa.DataType]:
    """The columns that take the shape's type, in the file's order, and the type."""
    own = {column.name: column.type for column in columns if column.name in job.retyped}
    types = {name: shape.schema.field(name).type for name in own}
    plain = {name: arrays.plain_type(dtype) for name, dtype in types.items() if own[name] != dtype}
    return {name: dtype for name, dtype in plain.items() if types_differ(own[name], dtype)}


def _spliceable(file: OpenFile, end: int) -> OpenFile:
    """The file with the chunks to copy from, or the reason why there are none; its footer begins at `end`."""
    columns = NewColumns(file.retyped, file.added).of_schema(file.schema)
    try:
        assert file.footer.metadata is not None
        return replace(file, old=OldFile.of(file.source, file.fields, end, file.footer.metadata, columns))
    except (NotSpliceable, thrift.CorruptFile) as why:
        return replace(file, not_spliceable=str(why))


def _shared_dictionaries(metadata: pq.FileMetaData, columns: pa.Schema) -> list[str]:
    """The columns whose dictionaries may hold values of other row groups: a deleted value would stay there."""
    says_types = ARROW_SCHEMA in (metadata.metadata or {})
    if not says_types and (metadata.created_by or "").startswith(_WRITE_WHOLE_DICTIONARIES):
        return [str(name) for name in columns.names]
    return [column.name for column in columns if _has_dictionary(column.type)]


def _has_dictionary(dtype: pa.DataType) -> bool:
    if t.is_dictionary(dtype):
        return True
    return any(_has_dictionary(dtype.field(i).type) for i in range(dtype.num_fields))
