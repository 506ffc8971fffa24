"""Columns and types: the target's unified schema, and how a source is brought to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core import arrays, calendars, collations
from fsspeckit.core.calendars import Calendar
from fsspeckit.core.equality import lacks_required
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.model import Footer, Shape, Target

_VARIANT = {"metadata", "value", "typed_value"}
_UNITS = ("s", "ms", "us", "ns")
_MAY_BE_NULL = "Fill it, or write the data set anew with a column that may be null (write_dataset, mode='overwrite')."


class CannotUnify(Exception):
    """Two types have no common one."""


def unify_footers(files: Sequence[Footer]) -> pa.Schema:
    """One schema that every file's values fit into; `SchemaMismatchError` naming two files if there is none."""
    distinct = _distinct_schemas(files)
    for footer in distinct:
        _check_names(footer)
    if len(distinct) == 1:
        return files[0].schema
    fields = _unified_fields([(footer.path, footer.schema) for footer in distinct])
    return pa.schema(fields, files[0].schema.metadata)


def _distinct_schemas(files: Sequence[Footer]) -> list[Footer]:
    """One file of every schema: a lake has thousands of files and few schemas."""
    seen: dict[pa.Schema, Footer] = {}
    for footer in files:
        seen.setdefault(footer.schema.remove_metadata(), footer)
    return list(seen.values())


def _unified_fields(schemas: Sequence[tuple[str, pa.Schema]]) -> list[pa.Field]:
    """The columns of all schemas in order of appearance; one that is not in all of them may be null."""
    found: dict[str, tuple[str, pa.Field]] = {}
    seen: Counter[str] = Counter()
    for where, schema in schemas:
        for field in schema:
            seen[field.name] += 1
            first, known = found.setdefault(field.name, (where, field))
            found[field.name] = (first, _merged(known, field, first, where))
    return [field.with_nullable(field.nullable or seen[name] < len(schemas)) for name, (_, field) in found.items()]


def unify_sources(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One plain schema for a source given as several files."""
    odd = sorted({n for s in schemas for n in set(s.names) ^ set(schemas[0].names)})
    if odd:
        raise SchemaMismatchError(f"The files of the source have different columns: {odd} are not in all of them.")
    return plain_schema(_unified_fields([(f"the source's file {n}", s) for n, s in enumerate(schemas, 1)]))


def declared(footer: Footer) -> pa.Schema:
    """A file's schema with what it requires, if that is meant."""
    if not footer.by_spark:
        return footer.schema
    return pa.schema([_nullable(field) for field in footer.schema], footer.schema.metadata)


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type if is_variant(field.type) else arrays.with_children(field.type, _nullable)
    return field.with_type(kind).with_nullable(True)


def _check_names(footer: Footer) -> None:
    names = footer.schema.names
    if len(set(names)) < len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise SchemaMismatchError(f"{footer.path} has more than one column named {twice}; rename them first.")


def _merged(known: pa.Field, field: pa.Field, first: str, second: str) -> pa.Field:
    try:
        kind = unify(known.type, field.type)
    except CannotUnify:
        raise SchemaMismatchError(
            f"Column {field.name!r} is {known.type} in {first} and {field.type} in {second}: no common type. "
            "Bring the files to one type first."
        ) from None
    return known.with_type(kind).with_nullable(known.nullable or field.nullable)


def unify(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The smallest type that holds the values of both.

    >>> unify(pa.int32(), pa.int64())
    DataType(int64)
    """
    if a == b:
        return a
    a, b = arrays.plain_type(a), arrays.plain_type(b)
    if a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    kind = arrays.family(a)
    if kind != arrays.family(b):
        raise CannotUnify
    if kind == "number":
        return _unify_numbers(a, b)
    if kind == "text":
        return pa.large_string()
    if kind == "binary":
        return pa.large_binary() if t.is_large_binary(a) or t.is_large_binary(b) else pa.binary()
    if kind == "date":
        return pa.date32()
    if kind in ("zoned timestamp", "naive timestamp"):
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if kind == "time":
        return pa.time64(max(a.unit, b.unit, "us", key=_UNITS.index))
    if kind == "duration":
        return pa.duration(max(a.unit, b.unit, key=_UNITS.index))
    return _unify_nested(kind, a, b)


def _unify_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if t.is_floating(a) or t.is_floating(b):
        return max(a, b, key=lambda k: k.bit_width) if t.is_floating(a) and t.is_floating(b) else pa.float64()
    if t.is_decimal(a) or t.is_decimal(b):
        return _unify_decimals(*(k if t.is_decimal(k) else pa.decimal128(20, 0) for k in (a, b)))
    for candidate in (pa.int16(), pa.int32(), pa.int64()):
        if all(k.bit_width + t.is_unsigned_integer(k) <= candidate.bit_width for k in (a, b)):
            return candidate
    return pa.uint64() if t.is_unsigned_integer(a) and t.is_unsigned_integer(b) else pa.decimal128(20, 0)


def _unify_decimals(a: Any, b: Any) -> pa.DataType:
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    if precision > 76:
        raise CannotUnify
    wide = precision > 38 or t.is_decimal256(a) or t.is_decimal256(b)
    return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)


def _unify_nested(kind: str, a: Any, b: Any) -> pa.DataType:
    if kind == "list":
        element = _both(a.value_field, b.value_field)
        return pa.large_list(element) if t.is_large_list(a) or t.is_large_list(b) else pa.list_(element)
    if kind == "map":
        return pa.map_(unify(a.key_type, b.key_type), _both(a.item_field, b.item_field))
    if is_variant(a) and is_variant(b):
        return unshredded(a)
    if kind == "struct" and arrays.has_names(a) and arrays.has_names(b):
        ours, theirs = ({f.name: f for f in k} for k in (a, b))
        shared = {name: _both(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
        return pa.struct([shared.get(name, field.with_nullable(True)) for name, field in {**ours, **theirs}.items()])
    raise CannotUnify


def is_variant(kind: pa.DataType) -> bool:
    """Spark's VARIANT, as Arrow shows it: bytes, and maybe some values shredded into a type."""
    if not t.is_struct(kind) or not {"metadata", "value"} <= {f.name for f in kind} <= _VARIANT:
        return False
    return all(t.is_binary(kind.field(name).type) for name in ("metadata", "value"))


def unshredded(kind: pa.DataType) -> pa.DataType:
    """The form that fits into every file of a VARIANT: a row need not be shredded."""
    if is_variant(kind):
        return pa.struct([kind.field("metadata"), kind.field("value").with_nullable(True)])
    return arrays.with_children(kind, lambda field: field.with_type(unshredded(field.type)))


def _both(a: pa.Field, b: pa.Field) -> pa.Field:
    return a.with_type(unify(a.type, b.type)).with_nullable(a.nullable or b.nullable)


def shape_of(target: Target, source: pa.Schema, key_columns: Sequence[str]) -> Shape:
    """The columns of the merge. `SchemaMismatchError` if source and target do not have the same ones."""
    check_columns(target, source, key_columns)
    _check_partitions(target, source)
    for field in source:
        _check_storable(field.name, field.type)
    for footer in target.files:
        collations.check_keys(footer.collated, tuple(key_columns), footer.path)
    if target.schema is None:
        stored = tuple(n for n in source.names if n not in target.partition_columns)
        columns = source.with_metadata(calendars.without_flags(source.metadata))
        return Shape(columns, stored, tuple(key_columns), target.partition_columns)
    fields = [f.with_type(_merge_type(f.type, source.field(f.name).type)) for f in target.schema]
    fields += [_loose(source.field(p)) for p in target.partition_columns if p not in target.schema.names]
    schema = pa.schema(fields, calendars.without_flags(target.schema.metadata))
    old = {name: path for name in key_columns if (path := _old_instants(target, name)) is not None}
    shape = Shape(schema, target.stored, tuple(key_columns), target.partition_columns, target.int96, old_instants=old)
    for field in schema:
        _check_castable(field, source.field(field.name), field.name in shape.int96)
    return shape


def _old_instants(target: Target, name: str) -> str | None:
    """A file of another calendar that may hold instants before 1900 in a column."""
    for footer in target.files:
        if not footer.calendar or name not in footer.schema.names:
            continue
        kind = arrays.plain_type(footer.schema.field(name).type)
        if not t.is_timestamp(kind) or not footer.calendar.concerns(kind, name in footer.int96):
            continue
        lowest = [group.bounds.get(name) for group in footer.row_groups if group.rows]
        limit = calendars.SAME_SINCE * 10**9
        if any(b is None or (b.lower is not None and b.lower < limit) for b in lowest):
            return footer.path
    return None


def _merge_type(kind: pa.DataType, source: pa.DataType) -> pa.DataType:
    """The target's type, unless it has none, or is shredded in a way that the source is not."""
    kind = _typed(kind, source)
    loose = unshredded(kind)
    return loose if loose != kind and arrays.castable(arrays.plain_type(source), loose) else kind


def _typed(kind: pa.DataType, source: pa.DataType) -> pa.DataType:
    """The target's type, where it is null the source's: nulls without a type agree with any."""
    if not _holds_null(kind):
        return kind
    kind, source = arrays.plain_type(kind), arrays.plain_type(source)
    if t.is_null(kind) or arrays.family(kind) != arrays.family(source):
        return source if t.is_null(kind) else kind
    if t.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(_typed(item.type, source.item_type)), kind.keys_sorted)
    if t.is_struct(kind):
        known = {f.name: f.type for f in source}
        return pa.struct([f.with_type(_typed(f.type, known.get(f.name, f.type))) for f in kind])
    return arrays.with_children(kind, lambda field: field.with_type(_typed(field.type, source.value_type)))


def _holds_null(kind: pa.DataType) -> bool:
    return bool(t.is_null(kind)) or any(_holds_null(kind.field(i).type) for i in range(kind.num_fields))


def spelled_like(target: Target, names: Sequence[str]) -> tuple[str, ...]:
    """Names without regard to case, as the target spells them; those that it has as they are, or twice, stay."""
    assert target.schema is not None
    own = dict.fromkeys([*target.schema.names, *target.partition_columns])
    folded = Counter(name.lower() for name in own)
    known = {name.lower(): name for name in own if folded[name.lower()] == 1}
    return tuple(name if name in own else known.get(name.lower(), name) for name in names)


def _check_partitions(target: Target, source: pa.Schema) -> None:
    if "" in target.partition_columns:
        raise ArgumentError("A partition column needs a name; rename the column that has none.")
    if target.schema is None and set(source.names) <= set(target.partition_columns):
        raise ArgumentError("Every column is a partition column; a file has to hold at least one of its own.")


def _check_storable(name: str, kind: pa.DataType) -> None:
    """Values of no length: Parquet cannot hold the one, and nobody reads back the other."""
    if (t.is_fixed_size_binary(kind) and not kind.byte_width) or (t.is_fixed_size_list(kind) and not kind.list_size):
        raise SchemaMismatchError(f"Column {name!r} is {kind}, which cannot be written as Parquet; cast it.")
    for i in range(kind.num_fields):
        _check_storable(name, kind.field(i).type)


def _loose(field: pa.Field) -> pa.Field:
    return pa.field(field.name, arrays.plain_type(field.type))


def check_columns(target: Target, source: pa.Schema, key_columns: Sequence[str]) -> None:
    twice = sorted({n for n in source.names if source.names.count(n) > 1})
    if twice:
        raise SchemaMismatchError(f"The source has more than one column named {twice}; rename them.")
    _check_keys(source.names, key_columns, "the source")
    wanted = list(target.partition_columns)
    if target.schema is not None:
        wanted = list(dict.fromkeys([*target.schema.names, *target.partition_columns]))
    missing = [n for n in wanted if n not in source.names]
    extra = [] if target.schema is None else [n for n in source.names if n not in wanted]
    if missing or extra:
        raise SchemaMismatchError(_columns_message(missing, extra))


def _check_keys(names: Sequence[str], key_columns: Sequence[str], where: str) -> None:
    missing = [k for k in key_columns if k not in names]
    if missing:
        raise ArgumentError(f"Key column {missing} not found in {where}. It has: {list(names)}.")


def _columns_message(missing: list[str], extra: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"Columns missing from the source: {missing}.")
    if extra:
        parts.append(f"Columns of the source that the target does not have: {extra}.")
    return " ".join(
        [*parts, "Source rows replace whole rows, so both must have the same columns; select or add them first."]
    )


def _check_castable(wanted: pa.Field, given: pa.Field, int96: bool) -> None:
    kind = arrays.plain_type(given.type)
    if not arrays.castable(arrays.zoneless_type(kind) if int96 else kind, arrays.plain_type(wanted.type)):
        raise _not_comparable(wanted.name, given.type, wanted.type)


def _not_comparable(name: str, source: pa.DataType, target: pa.DataType) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {name!r} is {source} in the source and {target} in the target: "
        "values of these are not comparable. Cast the source's column."
    )


def comparable_type(name: str, column: pa.ChunkedArray, target: pa.DataType) -> pa.DataType:
    """The type to compare a source column in: the target's if every value fits it, else one that holds both."""
    try:
        common = unify(column.type, target)
    except CannotUnify:
        raise _not_comparable(name, column.type, target) from None
    try:
        arrays.cast(arrays.plain(column), arrays.plain_type(target))
    except arrays.DoesNotFit:
        return common
    return arrays.plain_type(target)


def conform(table: pa.Table, shape: Shape) -> pa.Table:
    """The source in the target's column order and plain types; every value survives or `SchemaMismatchError`."""
    table = calendars.corrected(table, Calendar.of(table.schema.metadata), "the source")
    for name, path in shape.old_instants.items():
        calendars.corrected(table.select([name]), Calendar(dates=True, int96=True), path)
    columns = [_conformed(table.column(f.name), f, shape) for f in shape.schema]
    return pa.table(columns, schema=plain_schema(shape.schema))


def plain_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([arrays.plain_field(f) for f in fields])


def _conformed(column: pa.ChunkedArray, wanted: pa.Field, shape: Shape) -> pa.ChunkedArray:
    kind, given = arrays.plain_type(wanted.type), arrays.plain(column)
    if wanted.name in shape.int96:
        given = given.cast(arrays.zoneless_type(given.type))
    try:
        result = arrays.cast(given, kind)
        lacking = lacks_required(result)
    except arrays.NullWithin:
        lacking = True
    except arrays.DoesNotFit as error:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} is {column.type} in the source and {wanted.type} in the target: the value "
            f"{error.args[0]!r} would not survive. Change the value, or the target's type."
        ) from None
    if lacking:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} ({wanted.type}) has a null within that may not be null. {_MAY_BE_NULL}"
        )
    if wanted.name in shape.partitions:
        result = _empty_is_null(result, wanted.name, wanted.name in shape.keys)
    if not wanted.nullable and result.null_count and wanted.name in shape.stored:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} may not be null in the target; the source has {result.null_count} null(s) in it. "
            f"{_MAY_BE_NULL}"
        )
    return arrays.settled(result)


def _empty_is_null(column: pa.ChunkedArray, name: str, key: bool) -> pa.ChunkedArray:
    """Partition values: a folder cannot be named by the empty text, which Hive and Spark take for null."""
    if arrays.family(column.type) not in ("text", "binary"):
        return column
    empty = pc.equal(pc.binary_length(column), 0).fill_null(False)
    rows = pc.sum(empty).as_py()
    if not rows:
        return column
    if key:
        raise SchemaMismatchError(
            f"Partition column {name!r} is a key column, and its value is empty in {rows} row(s) of the source. No "
            "folder can be named so, and null matches nothing; give these rows another value."
        )
    return pc.if_else(empty, pa.scalar(None, column.type), column)
