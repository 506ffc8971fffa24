"""The sources on the command line: Parquet files and folders, or `-` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

if TYPE_CHECKING:
    from fsspeckit.core.storage import Location

_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"


def find(path: str, storage_options: Mapping[str, str]) -> Location:
    """The location of a path or URL; `ArgumentError` if it is not supported."""
    from fsspeckit.core.storage import locate

    return locate(path, None, storage_options)


def read_sources(names: Sequence[str], storage_options: Mapping[str, str]) -> Any:
    """A source for `DatasetIO`: a path, several paths, or the table from standard input."""
    if "-" not in names:
        for name in names:
            find(name, storage_options)
        return names[0] if len(names) == 1 else list(names)
    if len(names) > 1:
        raise click.UsageError("Standard input (`-`) cannot be combined with other sources.")
    stream = sys.stdin.buffer
    if stream.isatty():
        raise click.UsageError("Standard input is a terminal; pipe Parquet or an Arrow stream into it.")
    return read_stream(stream)


def read_stream(stream: BinaryIO) -> Any:
    """Read Parquet, an Arrow file or an Arrow stream, recognised by the first bytes."""
    import pyarrow as pa
    import pyarrow.ipc

    from fsspeckit.core.errors import ArgumentError

    data = stream.read()
    readers: dict[bytes, Callable[[Any], Any]] = {
        _PARQUET: _read_parquet,
        _ARROW_FILE: lambda source: pa.ipc.open_file(source).read_all(),
        _ARROW_STREAM: lambda source: pa.ipc.open_stream(source).read_all(),
    }
    read = next((read for magic, read in readers.items() if data.startswith(magic)), None)
    if read is None:
        what = "is empty" if not data else "is neither Parquet nor Arrow"
        raise ArgumentError(f"Standard input {what}. Pipe a Parquet file or an Arrow IPC stream into it.")
    try:
        return read(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArgumentError(f"Standard input cannot be read: {str(error).rstrip('.')}. Was it cut off?") from error


def _read_parquet(source: Any) -> Any:
    from fsspeckit.core.parquet.reader import check_values, open_source, unchecked_columns

    file = open_source(source)
    table = file.read()
    check_values(table, unchecked_columns(table.schema))
    if table.num_rows != file.metadata.num_rows:
        raise ValueError(f"it has {table.num_rows} rows, and its footer says {file.metadata.num_rows}")
    return table
