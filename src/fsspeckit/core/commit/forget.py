"""Remove the entry of a stream that ended (see `dataset.ledger`) from all files that have it.

These are all files that were written since the first batch of the stream. One commit replaces them by copies whose
footers lack the entry. No row is read.
"""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Sequence

from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.ledger import PREFIX, committed_at, entries
from fsspeckit.core.dataset.listing import check_distinct, list_files
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Footer, Staged
from fsspeckit.core.parquet.footer_io import footer_bytes, footer_start
from fsspeckit.core.parquet.footer_override import without_entry
from fsspeckit.core.parquet.reader import reading
from fsspeckit.core.parquet.splice import copy_with_footer
from fsspeckit.core.rewrite.files import new_name
from fsspeckit.core.storage import Location

# A stream that committed a batch since then may be about to repeat it.
IDLE_DAYS = 7


def forget_stream(location: Location, app_id: str, lock_timeout: float = 60) -> str:
    """Remove the entry of a stream that has committed nothing for `IDLE_DAYS`. Returns a message for people."""
    with writing(location, lock_timeout) as session:
        infos = list_files(location)
        check_distinct(location, infos)
        footers = read_footers(location, infos, ())
        _check_idle(location, footers, app_id)
        holders = [footer for footer in footers if PREFIX + app_id in footer.ledger]
        staging = session.stage(sorted({posixpath.dirname(footer.path) for footer in holders}))
        staged = [
            _copy_without(location, footer, PREFIX + app_id, staging, f"file-{number:05d}")
            for number, footer in enumerate(holders)
        ]
        replaced = [footer.info for footer, file in zip(holders, staged, strict=True) if file.path != footer.path]
        session.commit(staged, replaced, [footer.info for footer in footers])
    return f"Forgot the stream {app_id!r}; its entry was in {len(holders)} file(s)."


def _check_idle(location: Location, footers: Sequence[Footer], app_id: str) -> None:
    streams = entries(footers)
    entry = streams.get(PREFIX + app_id)
    if entry is None:
        names = [repr(name.removeprefix(PREFIX)) for name in sorted(streams)]
        raise ArgumentError(f"{location.shown} has no stream {app_id!r}. It has {', '.join(names) or 'none'}.")
    committed = committed_at(entry)
    if committed is None:  # an old entry without a time: when the oldest file with it was written, or earlier
        committed = min(f.info.mtime_ns for f in footers if f.ledger.get(PREFIX + app_id) == entry) / 1e9
    days = (time.time() - committed) / 86_400
    if days < IDLE_DAYS:
        raise ArgumentError(
            f"The stream {app_id!r} committed its last batch {days:.1f} days ago, and can be forgotten after "
            f"{IDLE_DAYS}: if it continues, a batch that it sends again would be merged twice."
        )


def _copy_without(location: Location, footer: Footer, entry: str, staging: str, staged: str) -> Staged:
    """In a store the copy gets a new name."""
    path, target = location.at(footer.path), f"{staging}/{staged}"
    disk = location.on_disk()
    final = footer.path if disk is not None else new_name(footer.path)
    with contextlib.ExitStack() as stack:
        with reading(location, footer.path):
            source = stack.enter_context(location.storage.open_input(path))
            raw = footer_bytes(source)
        end, new_footer = footer_start(source, raw), without_entry(raw, entry)
        size = copy_with_footer(location.storage, source, end, new_footer, target, final)
    if disk is not None:
        disk.storage.copy_mode(path, target)
    receipt = location.storage.receipt(target)
    return Staged(staged, final, footer.rows, size, footer.path, receipt)
