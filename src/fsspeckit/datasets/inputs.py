"""What people give as a source, as something that every engine opens.

Frames, tables and paths of Parquet files stay what they are. Text files and pandas frames are `Untyped`: their columns
take the types of the target.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.ipc

from fsspeckit.core.engine import Untyped
from fsspeckit.core.errors import ArgumentError, UnreadableFileError
from fsspeckit.core.storage import Access, Location
from fsspeckit.core.values import arrays
from fsspeckit.datasets.paths import expanded, file_format
from fsspeckit.datasets.sources import chained, is_paths, path_reader, reading_errors, to_reader

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow.dataset
    import pyspark.sql

    from fsspeckit.datasets.text_files import TypeOf

Path: TypeAlias = str | os.PathLike[str]


class ArrowStream(Protocol):
    """Anything with an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Data: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | pa.dataset.Dataset | pandas.DataFrame | polars.DataFrame | "
    "polars.LazyFrame | duckdb.DuckDBPyRelation | pyspark.sql.DataFrame | ArrowStream | Path | Sequence[Path] | "
    "Sequence[Mapping[str, Any]] | Sequence[pa.RecordBatch] | Iterator[pa.RecordBatch] | Iterator[pa.Table]"
)
"""What `merge`, `plan` and the writes take as a source."""

_WAYS_OUT = {
    "dict": "Give columns as pyarrow.table(data), or rows as a list of dicts.",
    "Series": "Give a frame: data.to_frame().",
    "ndarray": "Give a table with named columns, e.g. pandas.DataFrame(data, columns=[…]).",
    "NoneType": "The source is missing.",
}


def prepared(data: Any, access: Access) -> Any:
    """The source as engines take it. `ArgumentError` with the way out if no engine takes it."""
    module, type_name = type(data).__module__.partition(".")[0], type(data).__name__
    if module == "pandas" and type_name == "DataFrame":
        return PandasFrame(data)
    if module == "polars" and type_name == "LazyFrame":
        return data.collect(engine="streaming")
    if (datasets := sys.modules.get("pyarrow.dataset")) is not None:  # nobody has one who has not imported it
        if isinstance(data, datasets.Dataset):
            data = data.scanner(batch_size=16_384, batch_readahead=4, fragment_readahead=1)
        if isinstance(data, datasets.Scanner):
            return data.to_reader()
    if is_paths(data):
        return _paths(data, access)
    if isinstance(data, (list, tuple)):
        return _listed(data)
    if isinstance(data, Iterator) and not hasattr(data, "__arrow_c_stream__"):
        return _iterated(data)
    if type_name in _WAYS_OUT:
        raise ArgumentError(f"Cannot read a source of type {type_name}. {_WAYS_OUT[type_name]}")
    return data


def source_columns(data: Any, access: Access) -> tuple[Any, list[str]]:
    """The source, still unread, and the names of its columns."""
    data = prepared(data, access)
    if isinstance(data, (PandasFrame, Files)):
        return data, list(data.typed(lambda name: None).schema.names)
    if is_paths(data):
        return data, list(to_reader(data, access).schema.names)
    if isinstance(schema := getattr(data, "schema", None), pa.Schema):
        return data, list(schema.names)
    if isinstance(columns := getattr(data, "columns", None), (list, tuple)):  # Polars, DuckDB, Spark
        return data, [str(name) for name in columns]
    data = to_reader(data, access)
    return data, list(data.schema.names)


@dataclass(frozen=True)
class PandasFrame(Untyped):
    """A pandas frame. Its index is left out, but for levels with names: they are columns."""

    frame: Any

    def typed(self, type_of: TypeOf) -> pa.Table:
        """A column of nulls only takes the type of the target: pandas has no type for it but float or object."""
        frame = self.frame
        named = [name for name in frame.index.names if name is not None]
        if named:
            doubled = [name for name in named if name in frame.columns]
            if doubled:
                raise ArgumentError(f"The pandas frame has {doubled} as index and as column; drop or rename one.")
            frame = frame.reset_index(level=named)
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                f"The pandas frame cannot be read: {'; '.join(map(str, error.args))}. Convert the column."
            ) from error
        for index, field in enumerate(table.schema):
            column, wanted = table.column(index), type_of(field.name)
            if wanted is None or len(column) == 0 or column.null_count < len(column):
                continue
            if not arrays.castable(arrays.plain_type(field.type), arrays.plain_type(wanted)):
                table = table.set_column(index, field.with_type(pa.null()), pa.nulls(len(column)))
        return table


@dataclass(frozen=True)
class Files(Untyped):
    """Files of which some are not Parquet."""

    locations: tuple[tuple[Path, Location, str], ...]
    access: Access

    def typed(self, type_of: TypeOf) -> pa.RecordBatchReader:
        readers = [self._reader(path, location, form, type_of) for path, location, form in self.locations]
        return readers[0] if len(readers) == 1 else chained(readers)

    def _reader(self, path: Path, location: Location, form: str, type_of: TypeOf) -> pa.RecordBatchReader:
        if form == "parquet":
            return path_reader(path, self.access)
        if form == "arrow":
            return _arrow_reader(location)
        from fsspeckit.datasets.text_files import CsvFile, JsonLines

        text = JsonLines(location) if form == "json" else CsvFile(location, "\t" if form == "tsv" else ",")
        return text.reader(type_of)


def _paths(data: Any, access: Access) -> Any:
    """Paths of Parquet files as they are; patterns are expanded, and other formats become `Files`."""
    patterns = list(data) if isinstance(data, (list, tuple)) else [data]
    files = tuple(file for pattern in patterns for file in _located(pattern, access))
    paths = [path for path, _, _ in files]
    if all(form == "parquet" for _, _, form in files):
        return paths[0] if len(paths) == 1 else paths
    return Files(files, access)


def _located(pattern: Path, access: Access) -> list[tuple[Path, Location, str]]:
    """The paths that a pattern matches, with their formats. This looks at the files before anything else does."""
    with reading_errors(pattern):
        located = [(path, access.locate(path)) for path in expanded(pattern, access)]
        return [(path, location, file_format(location)) for path, location in located]


def _arrow_reader(location: Location) -> pa.RecordBatchReader:
    """An Arrow file (Feather) or an Arrow stream, which differ in their first bytes."""
    source = location.storage.open_input(location.root)
    try:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        if not is_file:
            return pa.ipc.open_stream(source)
        file = pa.ipc.open_file(source)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(
            f"Cannot read {location.shown}: it is neither an Arrow file nor an Arrow stream, or its end is missing."
        ) from error
    return pa.RecordBatchReader.from_batches(file.schema, _arrow_batches(file, location))


def _arrow_batches(file: Any, location: Location) -> Iterator[pa.RecordBatch]:
    for number in range(file.num_record_batches):
        try:
            batch = file.get_batch(number)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFileError(f"Cannot read {location.shown}: its batch {number} is damaged.") from error
        yield batch


def _listed(data: Sequence[Any]) -> Any:
    if not data:
        raise ArgumentError("The source is an empty list, which has no columns. Give a table with columns and no rows.")
    if all(isinstance(row, Mapping) for row in data):
        return _rows(data)
    if all(isinstance(part, (pa.RecordBatch, pa.Table)) for part in data):
        return _iterated(iter(data))
    type_name = type(next(row for row in data if not isinstance(row, Mapping))).__name__
    raise ArgumentError(f"Cannot read a source that is a list of {type_name}. Give a list of dicts, tables or paths.")


def _rows(data: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Every row must name every column: a row replaces a whole row, and a null is a value."""
    names = dict.fromkeys(name for row in data for name in row)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None or not names:
        raise ArgumentError(f"Rows need columns with names of type str, not {wrong!r}.")
    for number, row in enumerate(data):
        missing = [name for name in names if name not in row]
        if missing:
            raise ArgumentError(
                f"Row {number} of the source has no {missing}, but other rows do. Give every row every column, with "
                "None for null."
            )
    return pa.table({name: _column(name, [row[name] for row in data]) for name in names})


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        reason = str(error).rstrip(".")
    type_names = sorted({type(value).__name__ for value in values if value is not None})
    raise ArgumentError(
        f"Column {name!r} of the source has no single type: its values are {', '.join(type_names)} ({reason}). Convert "
        "them, or give a PyArrow table."
    )


def _iterated(data: Iterator[Any]) -> pa.RecordBatchReader:
    """An iterator of record batches or tables of one schema."""
    first = next(data, None)
    if first is None:
        raise ArgumentError("The source is an iterator without batches, so its columns are unknown.")
    if not isinstance(first, (pa.RecordBatch, pa.Table)):
        raise ArgumentError(
            f"Cannot read a source that iterates over {type(first).__name__}. Give an iterator of PyArrow record "
            "batches; rows as dicts are given as a list."
        )
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        for number, part in enumerate(chain([first], data)):
            if not isinstance(part, (pa.RecordBatch, pa.Table)) or not part.schema.equals(schema):
                schema_or_type = part.schema if isinstance(part, (pa.RecordBatch, pa.Table)) else type(part).__name__
                raise ArgumentError(
                    f"Batch {number} of the source differs from the first: {_one_line(schema_or_type)}, not "
                    f"{_one_line(schema)}. Cast the batches to one schema."
                )
            yield from part.to_batches() if isinstance(part, pa.Table) else [part]

    return pa.RecordBatchReader.from_batches(schema, batches())


def _one_line(schema: Any) -> str:
    return ", ".join(f"{f.name}: {f.type}" for f in schema) if isinstance(schema, pa.Schema) else str(schema)
