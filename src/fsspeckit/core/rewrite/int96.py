"""INT96 holds nanoseconds of any year; Arrow's 64 bits hold one or the other. Neither may be lost in a rewrite."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.core.errors import LayoutError
from fsspeckit.core.storage import Location
from fsspeckit.core.target.common import has_int96
from fsspeckit.core.target.footers import int96_unit, opened, reading
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.values import arrays

# Microseconds beyond this do not fit into nanoseconds.
_LIMIT = 2**63 // 1000 - 1


def check_int96(
    location: Location,
    path: str,
    file: pq.ParquetFile,
    groups: Iterable[int] | None = None,
    columns: Collection[str] | None = None,
) -> None:
    """Refuse a file whose INT96 values the chosen unit cannot hold: the other unit would tell another instant.

    Only values that are written anew matter: all, or those of some columns in some row groups.
    """
    if not has_int96(file.metadata):
        return
    other = "ns" if int96_unit(file.metadata) == "us" else "us"
    with contextlib.ExitStack() as stack:
        with reading(location, path):
            source = stack.enter_context(location.storage.open_input(location.at(path)))
            second = opened(source, file.metadata, unit=other)
        pairs = zip(file.schema_arrow, second.schema_arrow, strict=True)
        names = [a.name for a, b in pairs if a.type != b.type and pa.types.is_timestamp(a.type)]
        names = [name for name in names if columns is None or name in columns]
        for group in range(file.num_row_groups) if groups is None else groups if names else ():
            ours, theirs = (read_row_group(location, path, f, group, names) for f in (file, second))
            if not all(_agree(ours.column(n), theirs.column(n)) for n in names):
                raise LayoutError(
                    f"{location.show(path)}: INT96 timestamps with nanoseconds, or of years beyond 1677..2262, cannot "
                    "be rewritten without loss. Convert the column first; nothing was changed.",
                    operation="rewrite",
                )


def _agree(chosen: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    nanos, micros = sorted((arrays.one_array(c) for c in (chosen, other)), key=lambda c: c.type.unit)
    nanos, micros = nanos.view(pa.int64()), micros.view(pa.int64())
    inside = pc.and_(pc.less(micros, _LIMIT), pc.greater(micros, -_LIMIT))
    if chosen.type.unit == "ns":
        return pc.all(inside).as_py() is not False
    return bool(pc.multiply(micros.filter(inside), 1000).equals(nanos.filter(inside)))
