"""Check a raw footer before PyArrow reads a column chunk from it.

PyArrow ends the process (all seen): `row_group(i).column(j)` if the chunk's level histograms do not fit its schema,
`compression` for a codec that does not exist, `statistics` for another physical type or for bounds of too few bytes;
anything of an encrypted column in a file with a readable footer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.format import (
    Codec,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SizeStatistics,
    Statistics,
    Type,
)
from fsspeckit.core.parquet.statistics import Leaf

_OLD_AND_NEW_BOUNDS = ((Statistics.MAX, Statistics.MAX_VALUE), (Statistics.MIN, Statistics.MIN_VALUE))
_BOUNDS = tuple(number for both in _OLD_AND_NEW_BOUNDS for number in both)
_NO_LIST: tuple[int, list[int]] = (thrift.I64, [])
_SIGNED = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")
_CODECS = frozenset(codec.value for codec in Codec)
_TYPES = {dtype.value: dtype.name for dtype in Type}
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 0}


def check_not_encrypted(footer: bytes, metadata: pq.FileMetaData) -> None:
    """Refuse a file with encrypted columns and a readable footer, which a signature follows."""
    if len(footer) != metadata.serialized_size and FileMetaData.ENCRYPTION_ALGORITHM in thrift.decode(footer):
        raise thrift.CorruptFile("some of its columns are encrypted")


def check_entries(fields: thrift.Struct) -> None:
    """Refuse key-value metadata that is no list of entries with keys: PyArrow skips it. Values may be missing."""
    has_entries = FileMetaData.KEY_VALUE_METADATA in fields
    for entry in thrift.structs(fields, FileMetaData.KEY_VALUE_METADATA) if has_entries else ():
        thrift.field(entry, KeyValue.KEY, thrift.BINARY)


def check_chunks(footer: bytes | thrift.Struct, schema: pq.ParquetSchema) -> frozenset[int]:
    """Refuse column chunks that contradict the schema. Returns the leaves whose statistics PyArrow can read.

    Bounds with another width than the values are ignored, not refused: some writers truncate the bounds of long
    fixed-length values. Contradictory statistics are ignored too.
    """
    leaves = [schema.column(i) for i in range(len(schema.names))]
    fields = footer if isinstance(footer, dict) else thrift.decode(footer)
    unusable = set()
    for group in thrift.structs(fields, FileMetaData.ROW_GROUPS):
        for index, (chunk, leaf) in enumerate(zip(thrift.structs(group, RowGroup.COLUMNS), leaves, strict=True)):
            metadata = thrift.field(chunk, ColumnChunk.META_DATA, thrift.STRUCT)
            number = thrift.field(metadata, ColumnMetaData.TYPE, thrift.I32)
            if leaf.physical_type != _TYPES.get(number):
                raise thrift.CorruptFile(
                    f"a chunk of column {leaf.path!r} is not {leaf.physical_type}, as its schema says"
                )
            if not _check_chunk(metadata, leaf):
                unusable.add(index)
    return frozenset(range(len(leaves))) - unusable


def check_flat_chunks(footer: bytes, groups: int, schema: pq.ParquetSchema, leaves: Collection[Leaf]) -> frozenset[int]:
    """`check_chunks` for some top-level columns, without decoding the whole footer: a plan reads thousands of footers.

    Chunks are found by the bytes of their path. The physical type comes before it and is safe to read with PyArrow.
    """
    usable = {leaf.index for leaf in leaves}
    for leaf in leaves:
        try:
            chunks = list(_chunks_named(footer, leaf.name))
        except thrift.CorruptFile:
            chunks = []
        if len(chunks) != groups:  # the bytes of the path occur elsewhere too
            return check_chunks(footer, schema) & {leaf.index for leaf in leaves}
        are_usable = [_check_chunk(chunk, leaf) for chunk in chunks]
        if not all(are_usable):
            usable.discard(leaf.index)
    return frozenset(usable)


def _chunks_named(footer: bytes, name: str) -> Iterator[thrift.Struct]:
    """The fields after the path, in every chunk of a top-level column."""
    path = _path_field(name)
    at = footer.find(path)
    while at >= 0:
        yield thrift.decode(footer, at + len(path), after=ColumnMetaData.PATH_IN_SCHEMA)
        at = footer.find(path, at + 1)


def _path_field(name: str) -> bytes:
    """The bytes of a chunk's path. A field header has the distance from the field before, which is `encodings`."""
    step = ColumnMetaData.PATH_IN_SCHEMA - ColumnMetaData.ENCODINGS
    return thrift.encode({step: (thrift.LIST, (thrift.BINARY, [name.encode()]))})[:-1]


def _check_chunk(chunk: thrift.Struct, leaf: pq.ColumnSchema | Leaf) -> bool:
    """Refuse a chunk that contradicts the schema. Returns whether its statistics can be used."""
    codec = thrift.field(chunk, ColumnMetaData.CODEC, thrift.I32)
    if codec not in _CODECS:
        raise thrift.CorruptFile(f"a chunk of column {leaf.path!r} is compressed by {codec}, which does not exist")
    sizes = thrift.field(chunk, ColumnMetaData.SIZE_STATISTICS, thrift.STRUCT, default={})
    levels = (
        (SizeStatistics.REPETITION_LEVEL_HISTOGRAM, leaf.max_repetition_level),
        (SizeStatistics.DEFINITION_LEVEL_HISTOGRAM, leaf.max_definition_level),
    )
    for number, level in levels:
        kind, histogram = thrift.field(sizes, number, thrift.LIST, default=_NO_LIST)
        if histogram and kind != thrift.I64:
            raise thrift.CorruptFile(f"a level histogram of column {leaf.path!r} is not a list of integers")
        if len(histogram) not in (0, level + 1):
            raise thrift.CorruptFile(f"a chunk of column {leaf.path!r} counts {len(histogram)} levels of {level + 1}")
    if SizeStatistics.UNENCODED_BYTE_ARRAY_DATA_BYTES in sizes and leaf.physical_type != "BYTE_ARRAY":
        raise thrift.CorruptFile(f"a chunk of column {leaf.path!r} counts the bytes of values that have a fixed size")
    statistics = thrift.field(chunk, ColumnMetaData.STATISTICS, thrift.STRUCT, default={})
    return _has_whole_bounds(statistics, leaf) and _counts_agree(statistics, sizes, leaf)


def _has_whole_bounds(statistics: thrift.Struct, leaf: pq.ColumnSchema | Leaf) -> bool:
    """Do bounds have the width of values? Deprecated fields must equal the new ones if both have the same order."""
    bounds = {number: thrift.field(statistics, number, thrift.BINARY) for number in _BOUNDS if number in statistics}
    if leaf.physical_type == "BYTE_ARRAY":
        return True
    width = _WIDTHS.get(leaf.physical_type, leaf.length)
    pairs = [(old, new) for old, new in _OLD_AND_NEW_BOUNDS if old in bounds and new in bounds]
    return all(len(bound) == width for bound in bounds.values()) and (
        leaf.physical_type not in _SIGNED or all(bounds[old] == bounds[new] for old, new in pairs)
    )


def _counts_agree(statistics: thrift.Struct, sizes: thrift.Struct, leaf: pq.ColumnSchema | Leaf) -> bool:
    """Does the null count equal that of the level histogram? Values below the highest definition level are null."""
    _, histogram = thrift.field(sizes, SizeStatistics.DEFINITION_LEVEL_HISTOGRAM, thrift.LIST, default=_NO_LIST)
    if Statistics.NULL_COUNT not in statistics or leaf.max_repetition_level or not histogram:
        return True
    return bool(thrift.field(statistics, Statistics.NULL_COUNT, thrift.I64) == sum(histogram[:-1]))
