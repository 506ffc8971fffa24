"""The footers of all data files of a target, as columns.

Most files of a large data set are pruned. So planning reads columns of numbers and one footer of each template, and
asks for the footer of a file only when the file may hold a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, overload

from fsspeckit.core.model import Bounds, FileInfo, Footer
from fsspeckit.core.parallel import cached_property

BoundsColumn = tuple[list[Any], list[Any], list[int | None]]
"""Lower and upper bounds and nulls of a column in each row group; all `None` where nothing is known."""
UNKNOWN = Bounds(None, None, None)


class Footers(Sequence[Footer]):
    """The footers of a target, in the order of their files' paths."""

    def __init__(self, footers: Iterable[Footer] = ()) -> None:
        self._footers: list[Footer | None] = [*footers]

    def __len__(self) -> int:
        return len(self._footers)

    @overload
    def __getitem__(self, number: int) -> Footer: ...
    @overload
    def __getitem__(self, number: slice) -> list[Footer]: ...
    def __getitem__(self, number: int | slice) -> Footer | list[Footer]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        footer = self._footers[number]
        if footer is None:
            footer = self._footers[number] = self._make(range(len(self))[number])
        return footer

    def __iter__(self) -> Iterator[Footer]:
        return (footer or self[number] for number, footer in enumerate(self._footers))

    def _make(self, number: int) -> Footer:
        """The footer of a file whose place in `_footers` is empty; for subclasses that make footers on demand."""
        raise NotImplementedError

    @cached_property
    def infos(self) -> list[FileInfo]:
        return [footer.info for footer in self]

    @cached_property
    def templates(self) -> list[Footer]:
        """The first footer of each template. Footers of one template differ only in their row groups and their file."""
        first: dict[tuple[Any, ...], Footer] = {}
        for footer in self:
            shared = footer.schema, footer.ledger, footer.int96, footer.calendar, footer.collated
            first.setdefault((*map(id, shared), footer.by_spark), footer)
        return list(first.values())

    @cached_property
    def group_counts(self) -> list[int]:
        """The number of row groups of each file."""
        return [len(footer.row_groups) for footer in self]

    @cached_property
    def group_rows(self) -> list[int]:
        """The rows of each row group, file by file."""
        return [group.rows for footer in self for group in footer.row_groups]

    @cached_property
    def rows(self) -> list[int]:
        """The rows of each file."""
        if len(self.group_rows) == len(self) and 0 not in self.group_counts:
            return self.group_rows
        return [sum(self.group_rows[begin:end]) for begin, end in pairwise(accumulate(self.group_counts, initial=0))]

    def bounds(self, column: str) -> BoundsColumn:
        """The bounds of a column in each row group, file by file."""
        bounds = [group.bounds.get(column, UNKNOWN) for footer in self for group in footer.row_groups]
        return [b.lower for b in bounds], [b.upper for b in bounds], [b.nulls for b in bounds]
