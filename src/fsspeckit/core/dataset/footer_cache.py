"""The footer cache: footers of unchanged files are not read again (docs/decisions/0013).

A cached footer has the identity of its file: on a disk device, inode, size, mtime and ctime, in a store ETag and size.
A footer that was read within two seconds of its file's last change is not cached: another change in the same tick of
the clock would look the same. Files that a merge rewrites are opened and must agree with the cached footer
(`footers.open_planned`). A wrong footer could hide a row, so a cache file with any error is ignored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from fsspeckit.core.dataset.cache_format import CachedFooters, encode
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.storage import Location, cache

# Fewer footers are read as fast as a cache file.
_LEAST_ON_DISK, _LEAST_IN_STORE = 64, 8
_RACY = 2 * 10**9
# A cache file is written again when at least one of so many footers had to be read.
_WRITTEN_FOR_ONE_IN = 50

Read = Callable[[list[FileInfo]], list[Footer]]


def cached_footers(location: Location, files: Iterable[FileInfo], columns: Sequence[str], read: Read) -> Footers:
    """The footers of files with the bounds of `columns`, from the cache or by `read`."""
    infos = list(files)
    least = _LEAST_IN_STORE if location.storage.opens_by_request else _LEAST_ON_DISK
    name = None if len(infos) < least or cache.folder() is None else _name(location, columns)
    if name is None:
        return Footers(read(infos))
    now, cached = time.time_ns(), CachedFooters.decode(cache.load(name), columns)
    valid = Footers() if cached is None else cached.recall(infos)
    if len(valid) == len(infos):
        return valid
    footers = {footer.path: footer for footer in valid}
    new = read([info for info in infos if info.path not in footers])
    stable = [footer for footer in new if footer.certain and _is_stable(footer.info, now)]
    if stable and len(stable) * _WRITTEN_FOR_ONE_IN >= len(infos):
        with contextlib.suppress(OverflowError, UnicodeError, pa.ArrowException):  # values that the format cannot hold
            cache.save(name, encode([*valid, *stable], columns))
    footers.update((footer.path, footer) for footer in new)
    return Footers(footers[info.path] for info in infos)


def _name(location: Location, columns: Sequence[str]) -> str | None:
    """The name of the cache file. Each set of key columns has its own, as it needs other bounds."""
    identity = location.storage.identity(location.root)
    return None if identity is None else repr((identity, sorted(columns)))


def _is_stable(info: FileInfo, now: int) -> bool:
    return max(info.mtime_ns, info.ctime_ns) + _RACY <= now
