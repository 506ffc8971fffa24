"""The Engine protocol: the three things in which engines differ.

1. **open**: how a source of their kind becomes a spool (batches here, tasks on executors there);
2. **map** and **exchange**: where the core's functions run, and how rows get there (see `spool.exchange.Runner`);
3. **keys**: how the keys of the source and of the target find each other.

Everything else is the core's. `core.merge` reads the target's footers, opens the source and spools it, lets keys meet,
and then rewrites and inserts by `map` and `exchange`; last, the footers of what was staged are read. Between driver and
engine travel only small classes, O(files) and O(parts), never O(rows).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from fsspeckit.core.footers import Footers
from fsspeckit.core.model import FileInfo, Replace, Shape
from fsspeckit.core.spool.exchange import Runner
from fsspeckit.core.spool.keyset import KeySet
from fsspeckit.core.spool.parts import Spool
from fsspeckit.core.storage import Location

Scratch = Callable[[], Location]
"""A folder for the spool, made when it is first asked for. It goes with the staging."""


class Source(Protocol):
    """A source that was opened: its columns are known, its rows are not read yet."""

    @property
    def schema(self) -> pa.Schema: ...

    def renamed(self, names: Sequence[str]) -> Source:
        """The same columns under other names: as the target spells them, where case makes no difference."""

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        """Read the source, once, and bring it to the shape (`schema.conform`); `plan`, which writes nothing, gives no
        scratch. Whoever asks for a spool closes its store."""

    def close(self) -> None:
        """Let go of the source; of one that the caller holds there is nothing to let go."""


class Engine(Runner, Protocol):
    """What a merge needs of an engine."""

    @property
    def name(self) -> str: ...

    @property
    def replace(self) -> Replace:
        """How this engine replaces a file on a local disk, if the user does not say."""

    @property
    def partition_timezone(self) -> str:
        """The zone of instants in the names of folders, if the user does not say."""

    @property
    def ignores_case(self) -> bool:
        """Are `name` and `Name` one column?"""

    def open(self, source: object) -> Source:
        """Take a source of any kind that this engine knows."""

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        """Read footers, with bounds of `columns`."""

    def keys(self, spool: Spool) -> contextlib.AbstractContextManager[KeySet]:
        """The keys of a spool, ready to meet the target's."""
