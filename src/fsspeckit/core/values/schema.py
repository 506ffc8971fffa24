"""The schemas of files: one unified schema for all of them, their case, and their collations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.model import Footer, Target
from fsspeckit.core.values import arrays
from fsspeckit.core.values.unify import CannotUnify, is_variant, unify

SPARK_ROW = b"org.apache.spark.sql.parquet.row.metadata"
"""The key-value entry in which Spark writes its own schema, as JSON."""
_COLLATIONS = "__COLLATIONS"


def unify_footers(files: Sequence[Footer]) -> pa.Schema:
    """One schema that holds the values of all files. `SchemaMismatchError` names two files that have no common type."""
    distinct: dict[pa.Schema, Footer] = {}
    for footer in one_of_each_schema(files):
        distinct.setdefault(footer.schema.remove_metadata(), footer)
    for footer in distinct.values():
        repeated = duplicates(footer.schema.names)
        if repeated:
            raise SchemaMismatchError(f"{footer.path} has more than one column named {repeated}; rename them first.")
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


def duplicates(names: Sequence[str]) -> list[str]:
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


def check_storable(name: str, dtype: pa.DataType) -> None:
    """Refuse binary and list types of fixed size 0: Parquet cannot store the former, readers fail on the latter."""
    empty_binary = t.is_fixed_size_binary(dtype) and not dtype.byte_width
    if empty_binary or (t.is_fixed_size_list(dtype) and not dtype.list_size):
        raise SchemaMismatchError(f"Column {name!r} is {dtype}, which cannot be written as Parquet; cast it.")
    for i in range(dtype.num_fields):
        check_storable(name, dtype.field(i).type)


def plain_schema(fields: Iterable[pa.Field]) -> pa.Schema:
    return pa.schema([arrays.plain_field(f) for f in fields])


def collated_columns(entries: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The columns with a collation of Spark, and its name, from the key-value entries of a footer."""
    schema = (entries or {}).get(SPARK_ROW, b"")
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
