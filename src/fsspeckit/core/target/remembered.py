"""Footers that need not be read again: the user's cache folder remembers them (docs/decisions/0060).

A footer is remembered with all that tells its file from any other: of a disk device, inode, size, mtime and ctime, of a
store ETag and size. One that was read within two seconds of its file's last change is not: another change in the same
tick of the clock would look the same. Files that are touched are opened all the same, and have to agree
(`footers.open_planned`). What is remembered wrongly could hide a row, so whatever is odd counts as forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from fsspeckit.core.footers import Footers
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.storage import LocalStorage, Location, cache
from fsspeckit.core.target.memory import Memory, encode

# So few footers are read as quickly as a cache file.
_FEW_ON_DISK, _FEW_IN_STORE = 64, 8
_RACY = 2 * 10**9
# A cache file is written anew when so many of its footers (one in fifty) would have to be read again.
_WORTH_IT = 50

Read = Callable[[list[FileInfo]], list[Footer]]


def remembered(location: Location, files: Iterable[FileInfo], columns: Sequence[str], read: Read) -> Footers:
    """The footers of files, with bounds of `columns`: out of the cache, else by `read`."""
    infos, few = list(files), _FEW_ON_DISK if isinstance(location.storage, LocalStorage) else _FEW_IN_STORE
    name = None if len(infos) < few or cache.folder() is None else _name(location, columns)
    if name is None:
        return Footers(read(infos))
    now, memory = time.time_ns(), Memory.of(cache.load(name), columns)
    known = Footers() if memory is None else memory.recall(infos)
    if len(known) == len(infos):
        return known
    footers = {footer.path: footer for footer in known}
    fresh = read([info for info in infos if info.path not in footers])
    settled = [footer for footer in fresh if footer.certain and _is_settled(footer.info, now)]
    if settled and len(settled) * _WORTH_IT >= len(infos):
        cache.save(name, encode([*known, *settled], columns))
    footers.update((footer.path, footer) for footer in fresh)
    return Footers(footers[info.path] for info in infos)


def _name(location: Location, columns: Sequence[str]) -> str | None:
    """Each key has a cache file of its own: bounds of other columns are of no use to it."""
    identity = location.storage.identity(location.root)
    return None if identity is None else repr((identity, sorted(columns)))


def _is_settled(info: FileInfo, now: int) -> bool:
    return max(info.mtime_ns, info.ctime_ns) + _RACY <= now
