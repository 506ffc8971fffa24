"""What must be known of a footer before PyArrow is asked for a column chunk in it.

`metadata.row_group(i).column(j)` ends the process if the chunk's level histograms do not fit its schema; `compression`
does for a codec that does not exist, and `statistics` for another physical type or bounds of too few bytes (all seen).
PyArrow cannot be asked, so the raw footer is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

import pyarrow.parquet as pq

from fsspeckit.core.target import thrift
from fsspeckit.core.target.bounds import Leaf

# Field numbers of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and Statistics in parquet.thrift
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_TYPE, _PATH, _CODEC, _STATISTICS, _SIZES = 1, 3, 4, 12, 16
_BOUNDS = (1, 2, 5, 6)
_CODECS = range(8)
_TYPES = dict(
    enumerate(("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"))
)
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 0}


def check_chunks(footer: bytes | thrift.Struct, schema: pq.ParquetSchema) -> frozenset[int]:
    """Refuse column chunks that contradict the schema. Returns the leaves whose statistics can be asked for.

    Bounds of too few bytes prove nothing, and are no damage: some writers cut those of long fixed-length values.
    """
    leaves = [schema.column(i) for i in range(len(schema.names))]
    fields = footer if isinstance(footer, dict) else thrift.decode(footer)
    cut = set()
    for group in thrift.structs(fields, _ROW_GROUPS):
        for index, (chunk, leaf) in enumerate(zip(thrift.structs(group, _COLUMNS), leaves, strict=True)):
            metadata = thrift.field(chunk, _META_DATA, thrift.STRUCT)
            number = thrift.field(metadata, _TYPE, thrift.I32)
            if leaf.physical_type != _TYPES.get(number):
                raise thrift.Damaged(f"a chunk of column {leaf.path!r} is not {leaf.physical_type}, as its schema says")
            if not _check_chunk(metadata, leaf):
                cut.add(index)
    return frozenset(range(len(leaves))) - cut


def check_flat_chunks(footer: bytes, groups: int, schema: pq.ParquetSchema, leaves: Collection[Leaf]) -> frozenset[int]:
    """The same of some top-level columns, without reading all of the footer: plans look at thousands of them.

    The physical type comes before the name; PyArrow tells it without harm.
    """
    whole = {leaf.index for leaf in leaves}
    for leaf in leaves:
        try:
            chunks = list(_chunks_named(footer, leaf.name))
        except thrift.Damaged:
            chunks = []
        if len(chunks) != groups:  # the name stands elsewhere, too
            return check_chunks(footer, schema) & {leaf.index for leaf in leaves}
        are_whole = [_check_chunk(chunk, leaf) for chunk in chunks]
        if not all(are_whole):
            whole.discard(leaf.index)
    return frozenset(whole)


def _chunks_named(footer: bytes, name: str) -> Iterator[thrift.Struct]:
    """What follows the path of every chunk of a top-level column."""
    sought = _path_field(name)
    at = footer.find(sought)
    while at >= 0:
        yield thrift.decode(footer, at + len(sought), after=_PATH)
        at = footer.find(sought, at + 1)


@lru_cache
def _path_field(name: str) -> bytes:
    """A chunk's path as it is written: one further than field 2, which every chunk has."""
    return thrift.encode({1: (thrift.LIST, (thrift.BINARY, [name.encode()]))})[:-1]


def _check_chunk(chunk: thrift.Struct, leaf: pq.ColumnSchema | Leaf) -> bool:
    """Are the bounds in its statistics whole?"""
    codec = thrift.field(chunk, _CODEC, thrift.I32)
    if codec not in _CODECS:
        raise thrift.Damaged(f"a chunk of column {leaf.path!r} is compressed by {codec}, which does not exist")
    sizes = thrift.field(chunk, _SIZES, thrift.STRUCT) if _SIZES in chunk else {}
    for number, level in ((2, leaf.max_repetition_level), (3, leaf.max_definition_level)):
        histogram = thrift.field(sizes, number, thrift.LIST)[1] if number in sizes else []
        if len(histogram) not in (0, level + 1):
            raise thrift.Damaged(f"a chunk of column {leaf.path!r} counts {len(histogram)} levels of {level + 1}")
    if 1 in sizes and leaf.physical_type != "BYTE_ARRAY":
        raise thrift.Damaged(f"a chunk of column {leaf.path!r} counts the bytes of values that have a fixed size")
    statistics = thrift.field(chunk, _STATISTICS, thrift.STRUCT) if _STATISTICS in chunk else {}
    width = _WIDTHS.get(leaf.physical_type, leaf.length)
    bounds = [thrift.field(statistics, number, thrift.BINARY) for number in _BOUNDS if number in statistics]
    return all(len(bound) >= width for bound in bounds)
