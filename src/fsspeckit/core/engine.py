"""The Engine protocol. Engines differ in three things:

1. **open**: how a source becomes a spool (batches of one process, or tasks on executors);
2. **map** and **exchange**: where functions of the core run, and how rows reach them (see `rows.exchange.Runner`);
3. **keys**: how the keys of source and target are matched.

The core does everything else. `core.merge` reads the target's footers, opens and spools the source, matches keys,
rewrites and inserts by `map` and `exchange`, and reads the footers of the staged files. Core and engine exchange small
values, O(files) and O(parts), never O(rows).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self

import pyarrow as pa

from fsspeckit.core.actions import Actions
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.key_index import KeySet
from fsspeckit.core.model import FileInfo, Replace, Shape
from fsspeckit.core.progress import Progress
from fsspeckit.core.rows.exchange import Runner
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Location

Scratch = Callable[[], Location]
"""Creates a folder for the spool when it is first called. The folder is removed with the staging."""


class Source(Protocol):
    """An open source: its schema is known, its rows are not read yet."""

    @property
    def schema(self) -> pa.Schema: ...

    def renamed(self, names: Sequence[str]) -> Source:
        """The same columns under the names of the target, if the engine ignores case."""

    def spool(self, shape: Shape, scratch: Scratch | None, progress: Progress) -> Spool:
        """Read the source once and cast it to the shape (`values.conform`). `plan` writes nothing: it has no scratch.
        The caller closes the store of the spool. `progress` counts the rows."""

    def close(self) -> None:
        """Close what `open` has opened; sources of the caller stay open."""


class Untyped(ABC):
    """A source whose columns have no types of their own, such as a CSV file. They take the types of the target.

    Not a protocol: a DataFrame of Spark Connect seems to have every method.
    """

    @abstractmethod
    def typed(self, type_of: Callable[[str], pa.DataType | None]) -> object:
        """A source that engines open. `type_of` gives the type of a column, or `None` if the target lacks it."""


class Engine(Runner, Protocol):
    """What a merge needs from an engine."""

    @property
    def name(self) -> str: ...

    @property
    def replace(self) -> Replace:
        """How a file on a local disk is replaced by default."""

    @property
    def application_id(self) -> str | None:
        """The application of a cluster that the merge is part of."""

    @property
    def compression(self) -> str | None:
        """The codec of new files if neither the caller nor the data set's own files give one."""

    @property
    def partition_timezone(self) -> str:
        """The default zone of instants in folder names."""

    @property
    def source_timezone(self) -> str | None:
        """The default zone of times without one that become instants; `None` refuses them."""

    @property
    def ignores_case(self) -> bool:
        """Are `name` and `Name` one column?"""

    def running(self, progress: Progress) -> contextlib.AbstractContextManager[Self]:
        """The engine of one merge; its resources, such as threads, end with the block."""

    def open(self, source: object) -> Source:
        """Open a source of any type that this engine accepts."""

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        """Read footers, with bounds of `columns`."""

    def keys(self, spool: Spool, actions: Actions) -> contextlib.AbstractContextManager[KeySet]:
        """The keys of a spool, ready to be matched with the target's. `actions` decide what happens to hits."""
