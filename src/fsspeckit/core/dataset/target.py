"""The target before the merge: files, unified schema, partition columns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from fsspeckit.core import defaults
from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.footers import read_footer
from fsspeckit.core.dataset.listing import check_distinct, check_not_bucketed, list_files
from fsspeckit.core.dataset.partitions import PartitionMap, parse_hive_partition_path, timezone
from fsspeckit.core.errors import ArgumentError, TargetError, UnreadableFileError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.model import FileInfo, Footer, Shape, Target, WriteOptions
from fsspeckit.core.parallel import parallel_map
from fsspeckit.core.parquet.reader import checked_metadata
from fsspeckit.core.parquet.retype import NewColumns
from fsspeckit.core.parquet.writer_options import codec_of
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.evolve import lacks_fields
from fsspeckit.core.values.schema import effective_schema, one_of_each_schema, unify_footers
from fsspeckit.core.values.unify import types_differ, unshredded

ReadFooters = Callable[[Location, Iterable[FileInfo], Sequence[str]], Footers]


def read_target(
    footers: ReadFooters,
    location: Location,
    key_columns: Sequence[str],
    partition_columns: tuple[str, ...] | None,
    ignores_case: bool = False,
) -> Target:
    """List the data files, read their footers and unify them."""
    infos = _list_changeable_files(location)
    files = footers(location, infos, key_columns)
    _check_folders(location, infos)
    columns = _partition_columns(infos, partition_columns, ignores_case)
    if not infos:
        return Target(files, None, (), columns)
    schema = unify_footers([replace(f, schema=effective_schema(f)) for f in one_of_each_schema(files.templates)])
    return Target(files, schema, tuple(schema.names), columns, ledger.entries(files.templates))


def _list_changeable_files(location: Location) -> tuple[FileInfo, ...]:
    """The data files. Refuses data sets that a merge would damage."""
    infos = list_files(location)
    check_not_bucketed(location, infos)
    check_distinct(location, infos)
    return infos


def _partition_columns(
    files: Sequence[FileInfo], requested: tuple[str, ...] | None, ignores_case: bool
) -> tuple[str, ...]:
    """The partition columns in the paths, in the order of the folders. `requested` columns must be the same."""
    in_paths = _columns_in_paths(files)
    if requested is None:
        return in_paths
    fold_case = str.lower if ignores_case else str
    if in_paths and set(map(fold_case, in_paths)) != set(map(fold_case, requested)):
        raise ArgumentError(
            f"partition_columns is {list(requested)}, but the target is partitioned by {list(in_paths)}."
        )
    if files and requested and not in_paths:
        raise ArgumentError(
            f"partition_columns is {list(requested)}, but the target's files are in no partition folders, and readers "
            "fail or lose rows if both are mixed. Leave it out, or rewrite the whole data set with these columns "
            "(write_dataset, mode='overwrite')."
        )
    return in_paths or requested


def _check_folders(location: Location, files: Iterable[FileInfo]) -> None:
    """Refuse partition folders of different columns or order: readers fail, and the folder of new rows is unclear."""
    paths = {columns: path for path, columns in _partitioned(files)}
    if len(paths) > 1:
        first, second = list(paths)[:2]
        raise TargetError(
            f"Partition folders do not agree: {list(first)} in {location.show(paths[first])}, and {list(second)} in "
            f"{location.show(paths[second])}. Move the files into folders of the same columns in the same order."
        )


def _partitioned(files: Iterable[FileInfo]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The paths of the files in partition folders, with their partition columns."""
    for path in [info.path for info in files if "=" in info.path]:
        columns = tuple(parse_hive_partition_path(path))
        if columns:
            yield path, columns


def _columns_in_paths(files: Iterable[FileInfo]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, columns in _partitioned(files) for name in columns))


def overwritten_target(
    location: Location, source: pa.Schema, partition_columns: tuple[str, ...] | None
) -> tuple[Target, int | None]:
    """The target of an overwrite, and the rows that it has before; `None` if a file is damaged.

    Of the old files it keeps partition columns and the ledger.
    """
    infos = _list_changeable_files(location)
    if partition_columns is None:
        partition_columns = tuple(c for c in _columns_in_paths(infos) if c in source.names)
    footers = parallel_map(lambda info: _readable_footer(location, info), infos, 8)
    readable = [footer for footer in footers if footer is not None]
    rows = sum(footer.rows for footer in readable) if len(readable) == len(infos) else None
    return Target(Footers(), None, (), partition_columns, ledger.entries(readable)), rows


def _readable_footer(location: Location, info: FileInfo) -> Footer | None:
    try:
        return read_footer(location, info, ())
    except UnreadableFileError:
        return None


def in_timezone(shape: Shape, zone: Callable[[], str]) -> Shape:
    """The shape with the time zone of timestamps in partition folders; `zone` is called only if there are any."""
    dtypes = [arrays.plain_type(shape.schema.field(name).type) for name in shape.partitions]
    if not any(pa.types.is_timestamp(dtype) and dtype.tz is not None for dtype in dtypes):
        return shape
    return replace(shape, partition_timezone=timezone(zone()))


def partition_map(target: Target, shape: Shape) -> PartitionMap:
    types = [arrays.plain_type(shape.schema.field(name).type) for name in shape.partitions]
    return PartitionMap.of(target.files, shape.partitions, types, shape.partition_timezone)


def files_of_other_types(
    target: Target, shape: Shape, columns: Iterable[str], added: Container[str] = ()
) -> list[Footer]:
    """The files that do not have the shape's type in one of the columns, or lack one that is `added` to all files."""
    types = {name: shape.schema.field(name).type for name in columns}
    if not types:
        return []
    has_other_type: dict[int, bool] = {}  # by schema object: thousands of files share few
    for footer in one_of_each_schema(target.files.templates):
        own = {f.name: f.type for f in footer.schema}
        has_other_type[id(footer.schema)] = any(
            column_differs(own[name], dtype, shape, name) if name in own else name in added
            for name, dtype in types.items()
        )
    return [footer for footer in target.files if has_other_type[id(footer.schema)]]


def column_differs(own: pa.DataType, dtype: pa.DataType, shape: Shape, name: str) -> bool:
    """Does a column of a file have another type than in the shape, or lack new struct fields?"""
    return types_differ(own, dtype) or (name in shape.extended and lacks_fields(own, dtype))


def shape_of_files(target: Target, shape: Shape, retyped: Container[str]) -> Shape:
    """The shape of files after the merge. Columns that are not `retyped` keep the type of the target."""
    if target.schema is None:
        return shape
    columns = shape.schema
    for name in (name for name in shape.mixed if name not in retyped):
        index = columns.get_field_index(name)
        dtype = shape.extended.get(name, target.schema.field(name).type)
        columns = columns.set(index, columns.field(index).with_type(dtype))
    return replace(shape, schema=columns)


def new_file_options(
    location: Location, target: Target, like: Footer | None, options: WriteOptions, codec: str | None
) -> WriteOptions:
    """What the caller did not give, as in the data set's own files.

    New files get the codecs of the file `like`, their template. Without a template, they get the codec of the last
    file, and in an empty data set `codec`. Their row groups get as many rows as the largest row group of files with
    several.
    """
    files, filled = target.files, dict[str, Any]()
    last = next((footer for footer in _last_files(target) if footer.schema.names), None)
    if last is None:
        filled["compression"] = codec
    elif like is None and options.compression is None:
        own_codec = codec_of(checked_metadata(location, last.path))
        filled["compression"] = own_codec if own_codec in defaults.CODECS else codec
    ends = accumulate(files.group_counts)
    several = [files.group_rows[end - n : end] for end, n in zip(ends, files.group_counts, strict=True) if n > 1]
    if several:
        least, most = defaults.ROW_GROUP_SIZES
        filled["row_group_size"] = min(max(least, *map(max, several)), most)
    return replace(options, **{name: value for name, value in filled.items() if getattr(options, name) is None})


def template(target: Target, shape: Shape) -> Footer | None:
    """The last file that has the merge's schema. New files are written like it."""
    return _file_with_columns(target, _unshredded(shape.schema.field(name) for name in shape.stored))


def evolved_template(target: Target, shape: Shape) -> tuple[Footer, NewColumns] | None:
    """The last file that has the target's schema, and the columns in which new files differ from it."""
    if target.schema is None:
        return None
    old = {field.name: field.type for field in target.schema}
    columns = {name: shape.schema.field(name) for name in shape.stored}
    differing = [n for n, f in columns.items() if n in old and column_differs(old[n], f.type, shape, n)]
    types = {name: arrays.plain_type(columns[name].type) for name in differing}
    added = [(columns[name], None) for name in shape.added]
    footer = _file_with_columns(target, _unshredded(target.schema)) if types or added else None
    return None if footer is None else (footer, NewColumns(types, added))


def _file_with_columns(target: Target, columns: pa.Schema) -> Footer | None:
    files = _last_files(target)
    return next((footer for footer in files if columns.equals(_unshredded(effective_schema(footer)))), None)


def _last_files(target: Target) -> Iterator[Footer]:
    """The files with row groups, the last first, and those without rows after all others."""
    files = target.files
    numbers = sorted(range(len(files)), key=lambda number: (not files.rows[number], -number))
    return (files[number] for number in numbers if files.group_counts[number])


def _unshredded(fields: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([field.with_type(unshredded(field.type)) for field in fields])
