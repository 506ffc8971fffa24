"""Streams that ended: their entry (see `target.ledger`) is taken out of the files that carry it.

Every file that was written since the stream's first batch does. Their bytes are copied in one commit, with a footer
that lacks the entry; no row is read.
"""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Sequence

from fsspeckit.core.commit.session import writing
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Footer, Staged
from fsspeckit.core.rewrite.graft import without_entry
from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import read_footers, reading
from fsspeckit.core.target.ledger import PREFIX, entries, moved_at
from fsspeckit.core.target.listing import list_files
from fsspeckit.core.target.tail import MAGIC, footer_bytes

# A stream that moved since may be about to give its last batch again.
IDLE_DAYS = 7
_CHUNK = 8 << 20


def forget_stream(location: Location, app_id: str, lock_timeout: float = 60) -> str:
    """Drop the entry of a stream that has not moved for `IDLE_DAYS`; says what was done."""
    with writing(location, lock_timeout) as session:
        footers = read_footers(location, list_files(location), ())
        _check_idle(location, footers, app_id)
        holders = [footer for footer in footers if PREFIX + app_id in footer.ledger]
        staging = session.stage(sorted({posixpath.dirname(footer.path) for footer in holders}))
        staged = [
            _copy_without(location, footer, PREFIX + app_id, staging, f"file-{number:05d}")
            for number, footer in enumerate(holders)
        ]
        session.commit(staged, [], [footer.info for footer in footers])
    return f"Forgot the stream {app_id!r}; its entry was in {len(holders)} file(s)."


def _check_idle(location: Location, footers: Sequence[Footer], app_id: str) -> None:
    known = entries(footers)
    entry = known.get(PREFIX + app_id)
    if entry is None:
        names = sorted(name.removeprefix(PREFIX) for name in known)
        raise ArgumentError(f"{location.shown} has no stream {app_id!r}. It has {names}.")
    moved = moved_at(entry)
    if moved is None:  # as old as the oldest file that has it, or older
        moved = min(f.info.mtime_ns for f in footers if f.ledger.get(PREFIX + app_id) == entry) / 1e9
    days = (time.time() - moved) / 86_400
    if days < IDLE_DAYS:
        raise ArgumentError(
            f"The stream {app_id!r} committed its last batch {days:.1f} days ago, and can be forgotten after "
            f"{IDLE_DAYS}: if it goes on, a batch that it gives again would be merged twice."
        )


def _copy_without(location: Location, footer: Footer, entry: str, staging: str, staged: str) -> Staged:
    """Pages stay where they are, so every offset in the footer holds."""
    path, target = location.at(footer.path), f"{staging}/{staged}"
    with contextlib.ExitStack() as stack:
        with reading(location, footer.path):
            source = stack.enter_context(location.storage.open_input(path))
            raw = footer_bytes(source)
            stamped = without_entry(raw, entry)
            body = source.size() - len(raw) - 8
            source.seek(0)
        sink = stack.enter_context(location.storage.open_output(target, footer.path))
        for start in range(0, body, _CHUNK):
            sink.write(source.read(min(_CHUNK, body - start)))
        sink.write(stamped + len(stamped).to_bytes(4, "little") + MAGIC)
    location.storage.sync_file(target)
    location.storage.copy_mode(path, target)
    receipt = location.storage.receipt(target)
    return Staged(staged, footer.path, footer.rows, body + len(stamped) + 8, footer.path, receipt)
