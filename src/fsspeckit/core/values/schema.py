"""The unified schema of the target, and the cast of the source to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.model import Footer, Shape, Target
from fsspeckit.core.values import arrays, calendars, nested, zones
from fsspeckit.core.values.calendars import Calendar
from fsspeckit.core.values.unify import CannotUnify, is_variant, merge_type, mixed_types, unify

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_COLLATIONS = "__COLLATIONS"
_NULLABLE_ADVICE = "Fill it, or rewrite the data set with a nullable column (write_dataset, mode='overwrite')."


def unify_footers(files: Sequence[Footer]) -> pa.Schema:
    """One schema that holds the values of all files. `SchemaMismatchError` names two files that have no common type."""
    distinct: dict[pa.Schema, Footer] = {}
    for footer in one_of_each_schema(files):
        distinct.setdefault(footer.schema.remove_metadata(), footer)
    for footer in distinct.values():
        duplicates = _duplicates(footer.schema.names)
        if duplicates:
            raise SchemaMismatchError(f"{footer.path} has more than one column named {duplicates}; rename them first.")
    if len(distinct) == 1:
        return files[0].schema
    fields = _unified_fields([(footer.path, footer.schema) for footer in distinct.values()])
    return pa.schema(fields, files[0].schema.metadata)


def one_of_each_schema(files: Iterable[Footer]) -> list[Footer]:
    """The first file of each schema object. Footers that are read together share their schema."""
    first: dict[tuple[int, bool], Footer] = {}
    for footer in files:
        first.setdefault((id(footer.schema), footer.by_spark), footer)
    return list(first.values())


def _duplicates(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _unified_fields(schemas: Sequence[tuple[str, pa.Schema]]) -> list[pa.Field]:
    """The columns of all schemas in order of appearance. A column that a schema lacks is nullable."""
    unified: dict[str, tuple[str, pa.Field]] = {}
    counts: Counter[str] = Counter()
    for where, schema in schemas:
        counts.update(schema.names)
        for field in schema:
            first, known = unified.setdefault(field.name, (where, field))
            try:
                dtype = unify(known.type, field.type)
            except CannotUnify:
                raise SchemaMismatchError(
                    f"Column {field.name!r} is {known.type} in {first} and {field.type} in {where}: no common type. "
                    "Cast the files to one type first."
                ) from None
            unified[field.name] = first, known.with_type(dtype).with_nullable(known.nullable or field.nullable)
    return [field.with_nullable(field.nullable or counts[name] < len(schemas)) for name, (_, field) in unified.items()]


def unify_sources(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One plain schema for a source of several files."""
    not_in_all = sorted({n for s in schemas for n in set(s.names) ^ set(schemas[0].names)})
    if not_in_all:
        raise SchemaMismatchError(
            f"The files of the source have different columns: {not_in_all} are not in all of them."
        )
    return plain_schema(_unified_fields([(f"the source's file {n}", s) for n, s in enumerate(schemas, 1)]))


def effective_schema(footer: Footer) -> pa.Schema:
    """The schema of a file. Columns of Spark's files are nullable, since Spark reads required columns as nullable."""
    if not footer.by_spark:
        return footer.schema
    return pa.schema([_nullable(field) for field in footer.schema], footer.schema.metadata)


def _nullable(field: pa.Field) -> pa.Field:
    dtype = field.type if is_variant(field.type) else arrays.with_children(field.type, _nullable)
    return field.with_type(dtype).with_nullable(True)


def shape_of(
    target: Target,
    source: pa.Schema,
    key_columns: Sequence[str],
    source_timezone: Callable[[], str | None] = lambda: None,
) -> Shape:
    """The columns of the merge. `SchemaMismatchError` if source and target do not have the same columns.

    Source timestamps without a zone become instants in `source_timezone`, which is called only if there are any. If it
    returns `None`, they are refused.
    """
    check_columns(target, source, key_columns)
    _check_partitions(target, source)
    for field in source:
        _check_storable(field.name, field.type)
    for footer in target.files.templates:
        check_key_collations(footer.collated, tuple(key_columns), footer.path)
    if target.schema is None:
        stored = tuple(n for n in source.names if n not in target.partition_columns)
        columns = zones.without_int96_marks(source.with_metadata(calendars.without_calendar(source.metadata)))
        return Shape(columns, stored, tuple(key_columns), target.partition_columns)
    fields = [f.with_type(merge_type(f.type, source.field(f.name).type)) for f in target.schema]
    in_paths = [name for name in target.partition_columns if name not in target.schema.names]
    fields += [pa.field(name, arrays.plain_type(source.field(name).type)) for name in in_paths]
    schema = pa.schema(fields, calendars.without_calendar(target.schema.metadata))
    old = {name: path for name in key_columns if (path := _file_with_old_instants(target, name)) is not None}
    zone_of = {f.name: _source_zone(f, source.field(f.name), target, source_timezone) for f in schema}
    local = {name: zone for name, zone in zone_of.items() if zone is not None}
    int96 = target.int96
    for field in schema:
        _check_castable(field, source.field(field.name), field.name in int96, field.name in local)
    return Shape(
        schema,
        target.stored,
        tuple(key_columns),
        target.partition_columns,
        int96,
        old_instants=old,
        local_times=local,
        mixed=mixed_types((footer.schema for footer in one_of_each_schema(target.files.templates)), schema),
    )


def _source_zone(
    field: pa.Field, source: pa.Field, target: Target, source_timezone: Callable[[], str | None]
) -> str | None:
    """The zone of source timestamps without one, if they become instants; else `None`."""
    dtype, int96 = arrays.plain_type(source.type), field.name in target.int96
    if _assumed(dtype, field, int96) == dtype:
        return None
    mark = zones.int96_mark(source)
    if mark == "all":
        return "UTC"
    zone = source_timezone()
    if int96 and zone in (None, "UTC"):  # Arrow reads INT96 as UTC times without a zone
        return None
    if int96 and t.is_nested(dtype):
        if zones.has_timestamp(dtype, zoned=True):  # of Spark: the others are TIMESTAMP_NTZ in the target, too
            return None
        raise SchemaMismatchError(
            f"Column {field.name!r} is {source.type} in the source, and the target holds instants (INT96) within it. "
            "Give the times within a zone: cast them in the source."
        )
    if mark is not None:
        raise SchemaMismatchError(
            f"Column {field.name!r} is INT96 in some files of the source, which are instants, and in others a time "
            f"without a zone; in the target it is {field.type}. Cast the source's files to one type first."
        )
    if zone is None:
        raise SchemaMismatchError(
            f"Column {field.name!r} is {source.type} in the source, which has no time zone, and {field.type} in the "
            "target, which holds instants. Name the zone of the source's times by source_timezone "
            "(--source-timezone), such as 'Europe/Berlin' or 'UTC', or cast the column."
        )
    return zone


def _assumed(dtype: pa.DataType, field: pa.Field, int96: bool) -> pa.DataType:
    """The plain source type with zones where the target has instants."""
    target = arrays.plain_type(field.type)
    return zones.assumed_type(dtype, zones.zoned_type(target) if int96 else target)


def _file_with_old_instants(target: Target, name: str) -> str | None:
    """A file of the legacy calendar that may have instants before 1900 in a column."""
    if not any(footer.calendar for footer in target.files.templates):
        return None
    for footer in target.files:
        if not footer.calendar or name not in footer.schema.names:
            continue
        dtype = arrays.plain_type(footer.schema.field(name).type)
        if not t.is_timestamp(dtype) or not footer.calendar.applies_to(dtype, name in footer.int96):
            continue
        lowest = [group.bounds.get(name) for group in footer.row_groups if group.rows]
        limit = calendars.SAME_SINCE * 10**9
        if any(b is None or (b.lower is not None and b.lower < limit) for b in lowest):
            return footer.path
    return None


def in_target_case(target: Target, names: Sequence[str]) -> tuple[str, ...]:
    """The names in the case of the target's columns. Names that the target has, or has in two cases, do not change."""
    assert target.schema is not None
    columns = dict.fromkeys([*target.schema.names, *target.partition_columns])
    counts = Counter(name.lower() for name in columns)
    unique = {name.lower(): name for name in columns if counts[name.lower()] == 1}
    return tuple(name if name in columns else unique.get(name.lower(), name) for name in names)


def check_case_insensitive_names(names: Sequence[str]) -> None:
    """Refuse a new data set with columns `x` and `X`: engines that ignore case could not read it."""
    counts = Counter(name.lower() for name in set(names))
    ambiguous = [name for name in names if counts[name.lower()] > 1]
    if ambiguous:
        raise SchemaMismatchError(
            f"The source has columns that differ only in case, {ambiguous}; Spark could not read them. Rename them, or "
            "set spark.sql.caseSensitive."
        )


def _check_partitions(target: Target, source: pa.Schema) -> None:
    if "" in target.partition_columns:
        raise ArgumentError("A partition column needs a name; rename the column that has none.")
    if target.schema is None and set(source.names) <= set(target.partition_columns):
        raise ArgumentError("Every column is a partition column; files must have at least one other column.")


def _check_storable(name: str, dtype: pa.DataType) -> None:
    """Refuse binary and list types of fixed size 0: Parquet cannot store the former, readers fail on the latter."""
    empty_binary = t.is_fixed_size_binary(dtype) and not dtype.byte_width
    if empty_binary or (t.is_fixed_size_list(dtype) and not dtype.list_size):
        raise SchemaMismatchError(f"Column {name!r} is {dtype}, which cannot be written as Parquet; cast it.")
    for i in range(dtype.num_fields):
        _check_storable(name, dtype.field(i).type)


def check_columns(target: Target, source: pa.Schema, key_columns: Sequence[str]) -> None:
    duplicates = _duplicates(source.names)
    if duplicates:
        raise SchemaMismatchError(f"The source has more than one column named {duplicates}; rename them.")
    missing = [k for k in key_columns if k not in source.names]
    if missing:
        raise ArgumentError(f"Key column {missing} not found in the source. It has: {source.names}.")
    expected = dict.fromkeys([*(target.schema.names if target.schema is not None else ()), *target.partition_columns])
    missing = [n for n in expected if n not in source.names]
    extra = [] if target.schema is None else [n for n in source.names if n not in expected]
    if missing or extra:
        messages = [f"Columns missing from the source: {missing}."] if missing else []
        messages += [f"Columns of the source that the target does not have: {extra}."] if extra else []
        raise SchemaMismatchError(
            f"{' '.join(messages)} Source rows replace whole rows, so both must have the same columns; select or add "
            "them first."
        )


def _check_castable(field: pa.Field, source: pa.Field, int96: bool, local_times: bool) -> None:
    dtype = arrays.plain_type(source.type)
    dtype = _assumed(dtype, field, int96) if local_times else dtype
    if not arrays.castable(arrays.zoneless_type(dtype) if int96 else dtype, arrays.plain_type(field.type)):
        raise _not_comparable(field.name, source.type, field.type)


def _not_comparable(name: str, source: pa.DataType, target: pa.DataType) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {name!r} is {source} in the source and {target} in the target: "
        "values of these types are not comparable. Cast the source's column."
    )


def comparable_type(name: str, column: pa.ChunkedArray, target: pa.DataType) -> pa.DataType:
    """The type in which a source column is compared: the target's if every value fits, else the unified type."""
    try:
        common = unify(column.type, target)
    except CannotUnify:
        raise _not_comparable(name, column.type, target) from None
    target = arrays.plain_type(target)
    return target if arrays.fits(arrays.plain(column), target) else common


def conform(table: pa.Table, shape: Shape) -> pa.Table:
    """The source in the column order and plain types of the shape. `SchemaMismatchError` if a value does not fit."""
    table = calendars.from_file_calendar(table, Calendar.of(table.schema.metadata), "the source")
    for name, path in shape.old_instants.items():
        calendars.from_file_calendar(table.select([name]), Calendar(dates=True, int96=True), path)
    columns = [_conformed(table.column(f.name), f, shape) for f in shape.schema]
    return pa.table(columns, schema=plain_schema(shape.schema))


def plain_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([arrays.plain_field(f) for f in fields])


def _conformed(column: pa.ChunkedArray, field: pa.Field, shape: Shape) -> pa.ChunkedArray:
    dtype, values = arrays.plain_type(field.type), arrays.plain(column)
    if field.name in shape.local_times:
        assumed = _assumed(values.type, field, field.name in shape.int96)
        values = _as_instants(values, assumed, field, shape.local_times[field.name])
    if field.name in shape.int96:
        values = values.cast(arrays.zoneless_type(values.type))
    try:
        result = arrays.cast(values, dtype)
        has_null = nested.has_null_in_required_field(result)
    except arrays.NullInRequiredField:
        has_null = True
    except arrays.ValueDoesNotFit as error:
        raise SchemaMismatchError(
            f"Column {field.name!r} is {column.type} in the source and {field.type} in the target: the value "
            f"{error.args[0]!r} would not survive. Change the value, or the target's type."
        ) from None
    if has_null:
        raise SchemaMismatchError(
            f"Column {field.name!r} ({field.type}) has a null in a nested field that may not be null. "
            f"{_NULLABLE_ADVICE}"
        )
    if field.name in shape.partitions:
        result = _empty_is_null(result, field.name, field.name in shape.keys)
    if not field.nullable and result.null_count and field.name in shape.stored:
        raise SchemaMismatchError(
            f"Column {field.name!r} may not be null in the target; the source has {result.null_count} null(s) in it. "
            f"{_NULLABLE_ADVICE}"
        )
    return arrays.fill_under_nulls(result)


def _as_instants(values: pa.ChunkedArray, dtype: pa.DataType, field: pa.Field, zone: str) -> pa.ChunkedArray:
    try:
        return zones.as_instants(values, dtype, zone)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"Column {field.name!r} has a time in {zone} that {dtype} cannot hold: {error}. Change the value."
        ) from error


def _empty_is_null(column: pa.ChunkedArray, name: str, key: bool) -> pa.ChunkedArray:
    """Replace empty partition values by null, as Hive and Spark do: no folder can have an empty value in its name."""
    if arrays.family(column.type) not in ("text", "binary"):
        return column
    empty = pc.equal(pc.binary_length(column), 0).fill_null(False)
    rows = pc.sum(empty).as_py()
    if not rows:
        return column
    if key:
        raise SchemaMismatchError(
            f"Partition column {name!r} is a key column, and its value is empty in {rows} row(s) of the source. An "
            "empty value is stored as null, and null matches nothing; give these rows another value."
        )
    return pc.if_else(empty, pa.scalar(None, column.type), column)


def collated_columns(entries: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The columns with a collation of Spark, and its name, from the key-value entries of a footer."""
    schema = (entries or {}).get(_SPARK_SCHEMA, b"")
    if _COLLATIONS.encode() not in schema:
        return {}
    try:
        columns = {field["name"]: field["metadata"] for field in json.loads(schema)["fields"]}
        return {name: own[_COLLATIONS].get(name) or "…" for name, own in columns.items() if _COLLATIONS in own}
    except (ValueError, LookupError, TypeError, AttributeError):  # not written by Spark
        return {}


def check_key_collations(collations: Mapping[str, str], key_columns: Sequence[str], where: str) -> None:
    """Refuse key columns with a collation: equal text may have different bytes, and keys are compared by bytes."""
    for name in key_columns:
        if name in collations:
            raise SchemaMismatchError(
                f"Key column {name!r} has the collation {collations[name].removeprefix('spark.')} in {where}. Keys are "
                "compared byte by byte, so values that are equal by the collation would be stored twice. Use a key "
                "column of plain text (UTF8_BINARY), such as lower(…)."
            )
