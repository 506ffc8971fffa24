"""Columns of a row group that are changed within their pages: if few rows of many change, most bytes stay as they are.

Flags, and columns whose values stand in the pages themselves (`plain_pages`), are not even decoded. Of columns that go
by a small dictionary the numbers in the pages are exchanged (`renumber`), after they were decoded and compared as all
others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.rewrite.page_bytes import PatchedChunk, Unknown
from fsspeckit.core.rewrite.plain_pages import has_plain_pages, with_values
from fsspeckit.core.rewrite.renumber import goes_by_numbers, renumbered, small_chunks
from fsspeckit.core.rewrite.splice import OldFile
from fsspeckit.core.target.spans import Chunk, reader_of
from fsspeckit.core.values import arrays

# Of fewer rows, or if more of them are replaced than one in so many, it is quicker to decode them all.
MANY_ROWS, SPARSE = 8192, 8


@dataclass(frozen=True)
class InPages:
    """Columns by `names` that may be changed within their pages, where those at `positions` are to be `rows`."""

    old: OldFile
    group: int
    count: int
    positions: Any
    rows: pa.Table
    names: Collection[str]
    types: Mapping[str, pa.DataType]

    def undecoded(self, names: Collection[str]) -> dict[str, PatchedChunk | None]:
        """Those of the columns that could be changed as they are stored, or `None` if they have the values already."""
        told: dict[str, PatchedChunk | None] = {}
        for name in self._undecoded.keys() & names:
            patch = renumbered if t.is_boolean(self.types[name]) else with_values
            with contextlib.suppress(Unknown, arrays.DoesNotFit):
                told[name] = patch(*self._change(name, self._undecoded[name]), optional=self.old.may_be_null(name))
        return told

    def numbered(self, names: Collection[str]) -> dict[str, PatchedChunk]:
        """Those of the columns, which were decoded and are to change, that could be changed so."""
        told: dict[str, PatchedChunk] = {}
        for name in self._small.keys() & names if names else ():
            with contextlib.suppress(Unknown, arrays.DoesNotFit):
                chunk = renumbered(*self._change(name, self._small[name]), optional=self.old.may_be_null(name))
                told |= {name: chunk} if chunk is not None else {}
        return told

    def _change(self, name: str, chunk: Chunk) -> tuple[Any, Chunk, Any, pa.Array]:
        values = arrays.one_array(arrays.cast(self.rows.column(name), self.types[name]))
        return reader_of(self.old.file), chunk, self.positions, values

    @cached_property
    def _flat(self) -> dict[str, Chunk]:
        is_sparse = self.count >= MANY_ROWS and len(self.positions) * SPARSE <= self.count
        flat = self.old.flat_chunks(self.group) if is_sparse else {}
        return {name: flat[name] for name in flat.keys() & self.names}

    @cached_property
    def _undecoded(self) -> dict[str, Chunk]:
        return {name: chunk for name, chunk in self._flat.items() if self._is_undecoded(chunk, self.types[name])}

    def _is_undecoded(self, chunk: Chunk, dtype: pa.DataType) -> bool:
        return goes_by_numbers(chunk, dtype) if t.is_boolean(dtype) else has_plain_pages(chunk, dtype, self.positions)

    @cached_property
    def _small(self) -> dict[str, Chunk]:
        small = {name: self._flat[name] for name in small_chunks(self._flat, self.count) - self._undecoded.keys()}
        return {name: chunk for name, chunk in small.items() if goes_by_numbers(chunk, self.types[name])}
