"""Streams that ended: their entry (see `dataset.ledger`) is taken out of the files that carry it.

Every file that was written since the stream's first batch does. Their bytes are copied in one commit, with a footer
that lacks the entry; no row is read.
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
from fsspeckit.core.parquet.footer_io import END_BYTES, footer_bytes, with_end
from fsspeckit.core.parquet.footer_override import without_entry
from fsspeckit.core.parquet.reader import reading
from fsspeckit.core.rewrite.files import new_name
from fsspeckit.core.storage import Location

# A stream that moved since may be about to give its last batch again.
IDLE_DAYS = 7
_CHUNK = 8 << 20


def forget_stream(location: Location, app_id: str, lock_timeout: float = 60) -> str:
    """Drop the entry of a stream that has not moved for `IDLE_DAYS`; says what was done."""
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
    known = entries(footers)
    entry = known.get(PREFIX + app_id)
    if entry is None:
        names = sorted(name.removeprefix(PREFIX) for name in known)
        raise ArgumentError(f"{location.shown} has no stream {app_id!r}. It has {names}.")
    moved = committed_at(entry)
    if moved is None:  # as old as the oldest file that has it, or older
        moved = min(f.info.mtime_ns for f in footers if f.ledger.get(PREFIX + app_id) == entry) / 1e9
    days = (time.time() - moved) / 86_400
    if days < IDLE_DAYS:
        raise ArgumentError(
            f"The stream {app_id!r} committed its last batch {days:.1f} days ago, and can be forgotten after "
            f"{IDLE_DAYS}: if it goes on, a batch that it gives again would be merged twice."
        )


def _copy_without(location: Location, footer: Footer, entry: str, staging: str, staged: str) -> Staged:
    """Pages stay where they are, so every offset in the footer holds. In a store no file is written in place."""
    path, target = location.at(footer.path), f"{staging}/{staged}"
    disk = location.on_disk()
    final = footer.path if disk is not None else new_name(footer.path)
    with contextlib.ExitStack() as stack:
        with reading(location, footer.path):
            source = stack.enter_context(location.storage.open_input(path))
            raw = footer_bytes(source)
            changed = without_entry(raw, entry)
            body = source.size() - len(raw) - 8
            source.seek(0)
        sink = stack.enter_context(location.storage.open_output(target, final))
        for start in range(0, body, _CHUNK):
            sink.write(source.read(min(_CHUNK, body - start)))
        sink.write(with_end(changed))
    location.storage.sync_file(target)
    if disk is not None:
        disk.storage.copy_mode(path, target)
    receipt = location.storage.receipt(target)
    return Staged(staged, final, footer.rows, body + len(changed) + END_BYTES, footer.path, receipt)
