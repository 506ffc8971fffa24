"""The first file of a data set, of which readers take the types of all columns.

A data set of int64 and int32 files is readable as long as the first file is int64. If that file is removed, readers
cast the int64 values of the others to int32, and fail. So if a file with a narrower type may come first, all files get
the common type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import Target
from fsspeckit.core.values.schema import one_of_each_schema
from fsspeckit.core.values.unify import types_differ

_Order = Callable[[str], Any]


def columns_to_unify(
    target: Target, rewritten: Collection[str], removed: Collection[str], *, any_name: bool = False
) -> frozenset[str]:
    """The columns that get one type in all files, because a file with a narrower type may come first.

    `rewritten` are the paths of files that may get new names (`any_name` at all, or one like the old one), `removed`
    those of files that go.
    """
    narrow = _narrow_columns(target) if target.files and (rewritten or removed) else {}
    if not any(narrow.values()):
        return frozenset()
    schemas = {info.path: footer.schema for info, footer in zip(target.files.infos, target.files, strict=True)}
    kept = {id(schema): schema for path, schema in schemas.items() if path not in removed}
    found = set[str]()
    for order in ORDERS:
        first = schemas[min(schemas, key=order)]
        may_come_first = rewritten if any_name else _may_come_first(schemas, rewritten, removed, order)
        for path in may_come_first:
            for name, dtype in narrow[id(schemas[path])].items():
                is_new = name not in first.names or first.field(name).type != dtype
                if is_new and any(name in s.names and narrow[i].get(name) != dtype for i, s in kept.items()):
                    found.add(name)
    return frozenset(found)


def _narrow_columns(target: Target) -> dict[int, dict[str, pa.DataType]]:
    """Of each schema, the columns with a type that may not hold all values of the target's type."""
    assert target.schema is not None
    common = {field.name: field.type for field in target.schema}
    return {
        id(footer.schema): {f.name: f.type for f in footer.schema if types_differ(f.type, common.get(f.name, f.type))}
        for footer in one_of_each_schema(target.files.templates)
    }


def _may_come_first(
    paths: Iterable[str], rewritten: Collection[str], removed: Collection[str], order: _Order
) -> Iterator[str]:
    """The files of which each may be the first one, whatever names rewritten files get."""
    lowest, highest = dict[str, Any](), list[Any]()
    for path in paths:
        if path not in removed:
            names = [path, lowest_new_name(path), f"{lowest_new_name(path)}g"] if path in rewritten else [path]
            lowest[path] = min(map(order, names))
            highest.append(max(map(order, names)))
    bound = min(highest, default=None)
    yield from (path for path, place in lowest.items() if place <= bound)


def lowest_new_name(path: str) -> str:
    """No new name of the file sorts before this one (see `rewrite.files.new_name`)."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0].partition('.fk')[0]}.fk"


def _by_path(path: str) -> Any:
    """The order of object stores."""
    return path.encode()


def _by_folder(path: str) -> Any:
    """The order of DuckDB on disks: the files of a folder, then its folders."""
    *folders, name = path.encode().split(b"/")
    return [*((1, folder) for folder in folders), (0, name)]


ORDERS: Iterable[_Order] = (_by_path, _by_folder)
