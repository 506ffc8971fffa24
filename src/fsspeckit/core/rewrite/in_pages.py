"""Columns of a row group that are changed within their pages: if few rows of many change, most bytes stay as they are.

These are columns that go by a small dictionary, or are flags, whose numbers are exchanged (`renumber`), and columns
whose values stand in the pages themselves (`plain_pages`). They are not decoded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.cached import cached_property
from fsspeckit.core.rewrite.page_bytes import PatchedChunk, Unknown
from fsspeckit.core.rewrite.plain_pages import has_plain_pages, with_values
from fsspeckit.core.rewrite.renumber import goes_by_numbers, renumbered, small_chunks
from fsspeckit.core.rewrite.splice import OldFile
from fsspeckit.core.target.spans import Chunk, reader_of
from fsspeckit.core.values import arrays

# Of fewer rows, or if more of them are replaced than one in so many, it is quicker to decode them all.
MANY_ROWS, SPARSE = 8192, 8

Patch = Callable[..., PatchedChunk | None]


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
            patch, chunk = self._undecoded[name]
            with contextlib.suppress(Unknown, arrays.DoesNotFit):
                values = arrays.one_array(arrays.cast(self.rows.column(name), self.types[name]))
                optional = self.old.may_be_null(name)
                told[name] = patch(reader_of(self.old.file), chunk, self.positions, values, optional=optional)
                self.old.walked.add((chunk.start, chunk.size))
        return told

    @cached_property
    def _undecoded(self) -> dict[str, tuple[Patch, Chunk]]:
        """The columns that may be changed so, as far as the footer tells."""
        if self.count < MANY_ROWS or len(self.positions) * SPARSE > self.count:
            return {}
        flat = self.old.flat_chunks(self.group)
        chunks = {name: flat[name] for name in flat.keys() & self.names}
        small, told = small_chunks(chunks, self.count), {}
        for name, chunk in chunks.items():
            if name in small and goes_by_numbers(chunk, self.types[name]):
                told[name] = renumbered, chunk
            elif has_plain_pages(chunk, self.types[name], self.positions):
                told[name] = with_values, chunk
        return told
