"""The Engine protocol: the few primitives in which engines differ.

An engine holds the source in whatever form suits it and runs the core's functions over files wherever it runs
things. `core.merge` calls the primitives in the order in which they stand here; a `Pinned` source is opaque to it.
Between driver and engine travel only the small classes of `core.model`: O(files), never O(rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from fsspeckit.core.model import FileInfo, Footer, Match, Profile, Replace, Rewritten, Scan, Shape, Staged
from fsspeckit.core.rewrite.kernel import Job
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.storage import Location

Pinned = Any


class Engine(Protocol):
    """What a merge needs of an engine."""

    name: str
    replace: Replace
    """How this engine replaces a file on a local disk, if the user does not say."""

    @property
    def partition_timezone(self) -> str:
        """The zone of instants in the names of folders, if the user does not say."""

    @property
    def ignores_case(self) -> bool:
        """Are `name` and `Name` one column? Then what `open` gives is a dataclass whose `schema` may be replaced."""

    wants_scratch: bool
    """Does `pin` write files? Then a merge gives it a folder; `plan`, which writes nothing, gives none."""

    def open(self, source: Any) -> Any:
        """Take a source of any kind this engine knows; the result has a `schema` attribute (`pa.Schema`)."""

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> list[Footer]:
        """Read footers, with bounds of `columns`."""

    def pin(self, opened: Any, shape: Shape, scratch: Location | None) -> Pinned:
        """A source that reads the same twice, brought to the shape by `schema.conform`."""

    def release(self, source: Pinned) -> None:
        """Let go of what `pin` took. Called once, also after a failure."""

    def profile(self, source: Pinned) -> Profile:
        """Row, null and duplicate counts, partitions and key intervals."""

    def deduplicate(self, source: Pinned, order_by: Sequence[str]) -> Pinned:
        """One row per key: the greatest by `order_by`. Ties between rows that differ are a `DuplicateKeyError`."""

    def match(self, location: Location, source: Pinned, scans: Sequence[Scan]) -> Match:
        """Compare the scanned row groups' keys (`confirm.read_keys`) with the source's; remember who met whom."""

    def rewrite(self, location: Location, source: Pinned, jobs: Sequence[Job]) -> list[Rewritten]:
        """Run the kernel over every job, with the matched source rows of its file."""

    def insert(self, location: Location, source: Pinned, files: NewFiles, rows: Literal["new", "all"]) -> list[Staged]:
        """Write source rows into new files: those that no key of the target met, or all."""
