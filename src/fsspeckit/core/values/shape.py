"""The shape of a merge: the columns that source and target have, and the options that name columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.model import DEFAULT_ROW_OPTIONS, DeleteRows, RowOptions, Shape, Target
from fsspeckit.core.suggestions import closest, did_you_mean
from fsspeckit.core.values import arrays, calendars, evolve, keys, zones
from fsspeckit.core.values.schema import check_key_collations, check_storable, duplicates, one_of_each_schema
from fsspeckit.core.values.unify import merge_type, mixed_types


def shape_of(
    target: Target,
    source: pa.Schema,
    key_columns: Sequence[str],
    source_timezone: Callable[[], str | None] = lambda: None,
    options: RowOptions = DEFAULT_ROW_OPTIONS,
    *,
    evolves: bool = False,
) -> Shape:
    """The columns of the merge. `SchemaMismatchError` if the columns of source and target do not fit.

    Source timestamps without a zone become instants in `source_timezone`, which is called only if there are any. If it
    returns `None`, they are refused. With `evolves`, columns of the source are added to the target, numbers may get a
    wider type, and source rows may lack columns.
    """
    by_spark = any(footer.by_spark for footer in target.files.templates)
    added = _new_columns(target, source, options, by_spark) if evolves else []
    check_columns(target, source, key_columns, options, added if evolves else None)
    deletes = None if options.delete_column is None else _delete_rows(target, source, options)
    new_names = tuple(field.name for field in added)
    in_source = _columns_in_source(target, source, key_columns, options, new_names)
    source = pa.schema([source.field(name) for name in in_source], source.metadata)
    if not options.only_keys:
        _check_partitions(target, source)
    for field in source:
        check_storable(field.name, field.type)
    for name in options.sequence_by:
        _check_sequence_type(source.field(name))
    for footer in target.files.templates:
        check_key_collations(footer.collated, tuple(key_columns), footer.path)
    if target.schema is None:
        stored = tuple(n for n in in_source if n not in target.partition_columns)
        columns = zones.without_int96_marks(source.with_metadata(calendars.without_calendar(source.metadata)))
        partitions = tuple(n for n in target.partition_columns if n in in_source)  # keys to delete may lack some
        return Shape(
            columns,
            stored,
            tuple(key_columns),
            partitions,
            sequence=options.sequence_by,
            deletes=deletes,
            in_source=in_source,
        )
    types = {field.name: field.type for field in source}
    fields = [f.with_type(merge_type(f.type, types[f.name])) if f.name in types else f for f in target.schema]
    extended: dict[str, pa.DataType] = {}
    if evolves:
        fixed = {*key_columns, *target.partition_columns}
        may_change = {name: dtype for name, dtype in types.items() if name not in fixed}
        fields, extended = _evolved_fields(fields, may_change, by_spark)
        fields += added
    in_paths = [name for name in target.partition_columns if name not in target.schema.names]
    fields += [pa.field(name, arrays.plain_type(types.get(name, pa.string()))) for name in in_paths]
    schema = pa.schema(fields, calendars.without_calendar(target.schema.metadata))
    ordered = dict.fromkeys([*key_columns, *options.sequence_by])
    old = {name: path for name in ordered if (path := _file_with_old_instants(target, name)) is not None}
    known = [name for name in types if name not in new_names]
    zone_of = {name: _source_zone(schema.field(name), source.field(name), target, source_timezone) for name in known}
    local = {name: zone for name, zone in zone_of.items() if zone is not None}
    int96 = target.int96
    for name in known:
        _check_castable(schema.field(name), source.field(name), name in int96, name in local, evolves)
    return Shape(
        schema,
        (*target.stored, *new_names),
        tuple(key_columns),
        target.partition_columns,
        int96,
        old_instants=old,
        local_times=local,
        mixed=mixed_types((footer.schema for footer in one_of_each_schema(target.files.templates)), schema),
        in_source=in_source,
        updated=_updated_columns(target, in_source, key_columns, options, new_names),
        sequence=options.sequence_by,
        deletes=deletes,
        only_keys=options.only_keys,
        added=new_names,
        extended=extended,
        evolves=evolves,
    )


def _evolved_fields(
    fields: Sequence[pa.Field], source_types: Mapping[str, pa.DataType], by_spark: bool
) -> tuple[list[pa.Field], dict[str, pa.DataType]]:
    """Fields with wider numbers and new struct fields, and the types of the latter without the wider numbers."""
    evolved, extended = [], dict[str, pa.DataType]()
    for field in fields:
        dtype, source = field.type, source_types.get(field.name)
        if source is not None:
            dtype = evolve.evolved_type(field.type, source, by_spark=by_spark)
            with_new_fields = evolve.evolved_type(field.type, source, widen=False, by_spark=by_spark)
            if with_new_fields != field.type:
                extended[field.name] = with_new_fields
        evolved.append(field.with_type(dtype))
    return evolved, extended


def _new_columns(target: Target, source: pa.Schema, options: RowOptions, by_spark: bool) -> list[pa.Field]:
    """The columns that only the source has, as columns of the target."""
    if target.schema is None or options.only_keys:
        return []
    known = {*_target_columns(target), options.delete_column}
    return evolve.new_fields((field for field in source if field.name not in known), by_spark=by_spark)


def shape_of_target(target: Target) -> Shape:
    """The columns of the target, for a change without source rows."""
    assert target.schema is not None
    in_paths = [name for name in target.partition_columns if name not in target.schema.names]
    schema = pa.schema([*target.schema, *(pa.field(name, pa.string()) for name in in_paths)], target.schema.metadata)
    return Shape(schema, target.stored, (), target.partition_columns, target.int96, in_source=(), updated=())


def _delete_rows(target: Target, source: pa.Schema, options: RowOptions) -> DeleteRows:
    """Check the column and the values that mark delete rows."""
    column, values = options.delete_column, options.delete_values
    assert column is not None
    dtype = arrays.plain_type(source.field(column).type)
    if not keys.is_plain_value(dtype) and not t.is_null(dtype):
        raise ArgumentError(
            f"delete_column {column!r} is {dtype}, whose values cannot mean delete. Name another column."
        )
    if values is None and not (t.is_boolean(dtype) or t.is_null(dtype)):
        raise ArgumentError(
            f"delete_column {column!r} is {dtype}, not Boolean. Name the values that mean delete, e.g. "
            "delete_values=['D']."
        )
    if values is not None and not t.is_null(dtype):
        try:
            listed = pa.array(values)
            if t.is_string(listed.type) and arrays.family(dtype) != "text":
                listed = listed.cast(dtype)  # from the command line
            values = tuple(arrays.cast(pa.chunked_array([listed]), dtype).to_pylist())
        except (arrays.ValueDoesNotFit, pa.ArrowException):
            raise ArgumentError(
                f"delete_values are {list(values)}, and delete_column {column!r} is {dtype}. Give values of its type."
            ) from None
    flag, names = "is_delete", {*source.names, *_target_columns(target)}
    while flag in names:
        flag += "_"
    return DeleteRows(column, values, flag)


def _columns_in_source(
    target: Target, source: pa.Schema, key_columns: Sequence[str], options: RowOptions, added: Sequence[str]
) -> tuple[str, ...]:
    """The columns that source rows have, in the target's order; without the one that marks delete rows."""
    names = set(key_columns).union(options.sequence_by) if options.only_keys else set(source.names)
    order = source.names if target.schema is None else _target_columns(target, added)
    return tuple(name for name in order if name in names and name != options.delete_column)


def _updated_columns(
    target: Target, in_source: Sequence[str], key_columns: Sequence[str], options: RowOptions, added: Sequence[str]
) -> tuple[str, ...] | None:
    """The columns that matched rows get; `None` if that is all that source rows have."""
    if options.only_keys:
        return ()
    if not options.some_columns:
        return None
    named = {*_named_columns(target, key_columns, options, added), *options.sequence_by}
    return tuple(name for name in in_source if name in named and name not in target.partition_columns)


def _named_columns(
    target: Target, key_columns: Sequence[str], options: RowOptions, added: Sequence[str] = ()
) -> list[str]:
    if options.update_columns is not None:
        return list(options.update_columns)
    excluded = {*key_columns, *target.partition_columns, *(options.exclude_columns or ())}
    return [name for name in (*_target_columns(target), *added) if name not in excluded]


def _target_columns(target: Target, added: Sequence[str] = ()) -> list[str]:
    """The columns of the target: stored ones, `added` ones, and those that only paths have."""
    stored = target.schema.names if target.schema is not None else ()
    return list(dict.fromkeys([*stored, *added, *target.partition_columns]))


def _check_sequence_type(field: pa.Field) -> None:
    if not keys.is_plain_value(field.type):
        raise ArgumentError(f"sequence_by names {field.name!r} of type {field.type}, whose values have no order.")


def _source_zone(
    field: pa.Field, source: pa.Field, target: Target, source_timezone: Callable[[], str | None]
) -> str | None:
    """The zone of source timestamps without one, if they become instants; else `None`."""
    dtype, int96 = arrays.plain_type(source.type), field.name in target.int96
    if assumed_type(dtype, field, int96) == dtype:
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
            "target, which holds instants. Name the time zone of the source with source_timezone "
            "(--source-timezone), such as 'Europe/Berlin' or 'UTC', or cast the column."
        )
    return zone


def assumed_type(dtype: pa.DataType, field: pa.Field, int96: bool) -> pa.DataType:
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


def _check_partitions(target: Target, source: pa.Schema) -> None:
    if "" in target.partition_columns:
        raise ArgumentError("A partition column needs a name; rename the column that has none.")
    missing = [name for name in target.partition_columns if name not in source.names]
    if target.schema is None and missing:
        hint = did_you_mean(missing, source.names)
        raise ArgumentError(f"Partition columns {missing} are not in the source. It has {source.names}.{hint}")
    if target.schema is None and set(source.names) <= set(target.partition_columns):
        raise ArgumentError("Every column is a partition column; files must have at least one other column.")


def check_columns(
    target: Target,
    source: pa.Schema,
    key_columns: Sequence[str],
    options: RowOptions = DEFAULT_ROW_OPTIONS,
    added: Sequence[pa.Field] | None = None,
) -> None:
    """Do source and target have the columns that the merge needs? `added` are new columns, if it may have some."""
    repeated = duplicates(source.names)
    if repeated:
        raise SchemaMismatchError(f"The source has more than one column named {repeated}; rename them.")
    missing = [k for k in key_columns if k not in source.names]
    if missing:
        raise ArgumentError(
            f"Key column {missing} not found in the source. It has: {source.names}."
            f"{did_you_mean(missing, source.names)}"
        )
    _check_option_columns(target, source, key_columns, options, [field.name for field in added or ()])
    if options.only_keys or target.schema is None:
        return
    if added is not None:
        _check_evolution(target, source, key_columns, options, added)
        return
    needed = _target_columns(target)
    if options.some_columns:
        needed = _named_columns(target, key_columns, options)
    known = {*_target_columns(target), options.delete_column}
    absent = [] if options.delete_column is not None else [name for name in needed if name not in source.names]
    extra = [name for name in source.names if name not in known]
    if absent or extra:
        raise columns_differ(absent, extra, options)


def _check_evolution(
    target: Target, source: pa.Schema, key_columns: Sequence[str], options: RowOptions, added: Sequence[pa.Field]
) -> None:
    """Check the new columns, and those that the source lacks although it must have them."""
    assert target.schema is not None
    _check_names("key_columns", key_columns, _target_columns(target), "the target")
    evolve.check_new_names([field.name for field in added], _target_columns(target))
    missing = [field for field in target.schema if field.name not in source.names]
    absent = [name for name in options.update_columns or () if name not in source.names]
    if not key_columns:  # all rows are new
        absent += [name for name in target.partition_columns if name not in source.names]
    if absent:
        raise columns_differ(absent, (), options)
    if not options.some_columns and options.delete_column is None:
        evolve.check_not_renamed(missing, added, matches=bool(key_columns))


def columns_differ(missing: Sequence[str], extra: Sequence[str], options: RowOptions) -> SchemaMismatchError:
    messages = [f"Columns missing from the source: {list(missing)}."] if missing else []
    messages += [f"Columns of the source that the target does not have: {list(extra)}."] if extra else []
    if options.some_columns:
        advice = "The source must have the key, the columns to update, and no others than the target"
    else:
        advice = "Source rows replace whole rows, so both must have the same columns"
        advice += ", or let the target get new columns (on_schema_change='evolve')" if extra else ""
        advice += "" if extra else ", or name those to update (update_columns)"
    index = [name for name in missing if name.startswith("__index_level_")]
    if index and not options.some_columns:
        advice = f"It is a row index that pandas stored. exclude_columns={index} keeps it, and null in new rows."
        return SchemaMismatchError(f"{' '.join(messages)} {advice}")
    similar = [(name, other) for name in extra if (other := closest(name, missing)) is not None]
    rename = "".join(f" Is {name!r} the target's {other!r}? Then rename it." for name, other in similar)
    return SchemaMismatchError(f"{' '.join(messages)} {advice}; select or add them first.{rename}")


def missing_columns(target: Target, shape: Shape) -> list[str]:
    """Columns of the target that source rows do not have, although rows to write need them."""
    return [name for name in _target_columns(target) if name not in shape.source_columns]


def _check_option_columns(
    target: Target, source: pa.Schema, key_columns: Sequence[str], options: RowOptions, added: Sequence[str]
) -> None:
    """Check the columns that options name."""
    in_target = _target_columns(target)
    columns = [*in_target, *added] if target.schema is not None else source.names
    if options.only_keys:
        _check_names("key_columns", key_columns, columns, "the target")
    _check_names("sequence_by", options.sequence_by, source.names, "the source")
    ordered = in_target if target.schema is not None else columns
    _check_names("sequence_by", options.sequence_by, ordered, "the target")
    _check_names("update_columns", options.update_columns or (), columns, "the target")
    _check_names("exclude_columns", options.exclude_columns or (), columns, "the target")
    named_keys = [name for name in options.update_columns or () if name in key_columns]
    if named_keys:
        raise ArgumentError(f"update_columns names key column {named_keys}. Keys do not change; leave it out.")
    name = options.delete_column
    if name is None:
        return
    _check_names("delete_column", [name], source.names, "the source")
    if name in in_target:
        raise ArgumentError(
            f"The target stores the delete_column {name!r}. Rename it in the source, or keep it as an ordinary column: "
            "a soft delete."
        )
    if name in (*key_columns, *options.sequence_by, *(options.update_columns or ()), *target.partition_columns):
        raise ArgumentError(f"delete_column {name!r} is also named as a column to store. It is not stored.")


def _check_names(argument: str, names: Sequence[str], columns: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise ArgumentError(
            f"{argument} names {missing}, which {where} does not have. It has: {list(columns)}."
            f"{did_you_mean(missing, columns)}"
        )


def _check_castable(field: pa.Field, source: pa.Field, int96: bool, local_times: bool, evolves: bool) -> None:
    dtype = evolve.without_untyped(source.type, field.type) if evolves else arrays.plain_type(source.type)
    dtype = assumed_type(dtype, field, int96) if local_times else dtype
    if not arrays.castable(arrays.zoneless_type(dtype) if int96 else dtype, arrays.plain_type(field.type)):
        evolve.check_fields(field, dtype)
        raise not_comparable(field.name, source.type, field.type)


def not_comparable(name: str, source: pa.DataType, target: pa.DataType) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {name!r} is {source} in the source and {target} in the target: "
        "values of these types are not comparable. Cast the source's column."
    )
