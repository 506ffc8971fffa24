"""The files of a data set that is to be read, and the columns that their paths name."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fsspeckit.core.commit.session import warn_unfinished
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.storage import Location


def existing_files(location: Location) -> tuple[FileInfo, ...]:
    """The files of a data set that is to be read; warns if a commit to it is unfinished."""
    warn_unfinished(location)
    infos = list_files(location)
    if not infos:
        raise ArgumentError(f"{location.shown} has no Parquet files.")
    return infos


def path_fields(footers: Sequence[Footer], stored: pa.Schema) -> list[pa.Field]:
    """The columns that only paths name."""
    named = dict.fromkeys(name for footer in footers for name in footer.partition if name not in stored.names)
    return [pa.field(name, _partition_type([f.partition.get(name) for f in footers])) for name in named]


def _partition_type(texts: Sequence[str | None]) -> pa.DataType:
    """As PyArrow infers it from paths: int32 if every value is a whole number of that size, else text."""
    try:
        pa.array(texts, pa.string()).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32()
