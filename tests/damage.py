"""Break Parquet files on purpose, and watch that nothing else changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import footer_bytes
from support import all_names, fingerprint


def spoil_pages(
    path: Path | str, columns: Collection[str] | None = None, row_groups: Collection[int] | None = None
) -> None:
    """Overwrite data and dictionary pages with garbage; the footer stays as it is."""
    metadata = pq.read_metadata(path)
    with open(path, "r+b") as file:
        for g in range(metadata.num_row_groups):
            for c in range(metadata.num_columns):
                chunk = metadata.row_group(g).column(c)
                if (columns is None or chunk.path_in_schema in columns) and (row_groups is None or g in row_groups):
                    start = chunk.dictionary_page_offset or chunk.data_page_offset
                    file.seek(start)
                    file.write(b"\xff" * chunk.total_compressed_size)


def raw_footer(path: Path | str) -> thrift.Struct:
    with pa.OSFile(str(path), "rb") as file:
        return thrift.decode(footer_bytes(file))


def edit_footer(path: Path, change: Callable[[thrift.Struct], None]) -> None:
    """Write the footer anew as another writer might have written it; the pages stay as they are."""
    content, footer = path.read_bytes(), raw_footer(path)
    length = int.from_bytes(content[-8:-4], "little")
    change(footer)
    raw = thrift.encode(footer)
    path.write_bytes(content[: -8 - length] + raw + len(raw).to_bytes(4, "little") + b"PAR1")


@contextlib.contextmanager
def nothing_changes(lake: Path | str) -> Iterator[None]:
    """Neither the data set nor its parent folder gains, loses or changes anything within the block."""
    parent = Path(lake).parent
    before = all_names(parent), fingerprint(parent)
    yield
    assert (all_names(parent), fingerprint(parent)) == before


def hide_page(path: Path | str, column: int = 0, row_group: int = 0) -> None:
    """Change one byte, so that PyArrow passes over a page as one of a kind that it does not know."""
    at = pq.read_metadata(path).row_group(row_group).column(column).data_page_offset
    content = bytearray(Path(path).read_bytes())
    assert content[at : at + 2] == b"\x15\x00", "field 1 of the header: a data page"
    content[at + 1] = 2  # an index page
    Path(path).write_bytes(content)


def chunk_of(footer: thrift.Struct, column: int = 0, row_group: int = 0) -> thrift.Struct:
    """The metadata of a column chunk in a raw footer."""
    group = footer[4][1][1][row_group]
    chunk: thrift.Struct = group[1][1][1][column][3][1]
    return chunk
