"""The last look before a commit: has anyone changed the data set since it was planned for?"""

from __future__ import annotations

from collections.abc import Sequence

from fsspeckit.core.errors import TargetChangedError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import Location
from fsspeckit.core.target.listing import list_files


def check_unchanged(location: Location, expected: Sequence[FileInfo]) -> None:
    """Refuse if a data file appeared, vanished or changed since `expected` was listed."""
    before, now = ({f.path: f for f in files} for files in (expected, list_files(location)))
    changed = sorted(p for p in before.keys() | now.keys() if not _same(before.get(p), now.get(p)))
    if changed:
        what = "; ".join(f"{location.show(p)} {_change(before.get(p), now.get(p))}" for p in changed[:5])
        raise TargetChangedError(
            f"The target changed while the merge was under way: {what}. Another program writes here without our lock; "
            "nothing was changed, try again when it is done.",
            operation="commit",
        )


def _same(before: FileInfo | None, now: FileInfo | None) -> bool:
    return before is not None and now is not None and before.same_as(now)


def _change(before: FileInfo | None, now: FileInfo | None) -> str:
    if before is None:
        return "is new"
    return "is gone" if now is None else "was changed"
