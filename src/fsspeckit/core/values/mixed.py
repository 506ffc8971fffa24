"""Columns whose type differs from file to file, and the values that not every file can hold.

Readers take the schema of the first file for that of all files, and most cast the others to it. So a column may be
int32 in one file and int64 in another as long as every value fits both. A value that does not fit makes readers refuse
the data set, whichever file it is in. Fields that a struct lacks, and the width of offsets, are no matter to any of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.values import arrays
from fsspeckit.core.values.unify import is_variant

MixedTypes = Mapping[str, tuple[pa.DataType, ...]]
"""By column, the types of files that are not the common one."""


def mixed_types(schemas: Iterable[pa.Schema], common: pa.Schema) -> dict[str, tuple[pa.DataType, ...]]:
    """The columns that have another type than the `common` schema in one of the files.

    >>> files = [pa.schema({"n": pa.int32()}), pa.schema({"n": pa.int64()})]
    >>> mixed_types(files, files[1])
    {'n': (DataType(int32),)}
    """
    mixed: dict[str, list[pa.DataType]] = {}
    for file in schemas:
        for field in file:
            if field.name not in common.names or field.type == common.field(field.name).type:
                continue
            dtype = arrays.plain_type(common.field(field.name).type)
            own = _with_all_fields(arrays.plain_type(field.type), dtype)
            if _short(own) != _short(dtype) and own not in mixed.setdefault(field.name, []):
                mixed[field.name].append(own)
    return {name: tuple(known) for name, known in mixed.items()}


def differs(own: pa.DataType, common: pa.DataType) -> bool:
    """May a file's type hold other values than the common one? To Polars, text and categories are two types."""
    if own == common:
        return False
    if t.is_dictionary(own) != t.is_dictionary(common) and not t.is_null(own):
        return True
    own, common = arrays.plain_type(own), arrays.plain_type(common)
    return bool(_short(_with_all_fields(own, common)) != _short(common))


def columns_to_retype(rows: pa.Table, mixed: MixedTypes) -> set[str]:
    """The columns with a value that the type of one of the files cannot hold."""
    return {name for name, dtypes in mixed.items() if not all(_fits(rows.column(name), dtype) for dtype in dtypes)}


def _fits(column: pa.ChunkedArray, dtype: pa.DataType) -> bool:
    try:
        arrays.cast(column, dtype)
    except (arrays.ValueDoesNotFit, pa.ArrowNotImplementedError):
        return False
    return True


def _with_all_fields(own: pa.DataType, common: pa.DataType) -> pa.DataType:
    """A file's type with the fields of structs that only the common type has, in its order and nullability."""
    if own == common or is_variant(common) or arrays.family(own) != arrays.family(common):
        return common if is_variant(own) and is_variant(common) else own
    if t.is_struct(common) and arrays.has_names(own) and arrays.has_names(common):
        known = {field.name: field.type for field in own}
        return pa.struct([f.with_type(_with_all_fields(known.get(f.name, f.type), f.type)) for f in common])
    if t.is_map(common):
        item = common.item_field.with_type(_with_all_fields(own.item_type, common.item_type))
        return pa.map_(_with_all_fields(own.key_type, common.key_type), item)
    if arrays.family(common) == "list":
        element = common.value_field.with_type(_with_all_fields(own.value_type, common.value_type))
        return arrays.with_children(own, lambda _: element)
    return own


def _short(dtype: pa.DataType) -> pa.DataType:
    """The type with short offsets: Parquet does not know of others."""
    if t.is_large_string(dtype):
        return pa.string()
    if t.is_large_binary(dtype):
        return pa.binary()
    if t.is_large_list(dtype):
        dtype = pa.list_(dtype.value_field)
    return arrays.with_children(dtype, lambda field: field.with_type(_short(field.type)))
