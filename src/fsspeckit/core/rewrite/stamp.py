"""A file's bytes with another ledger in its footer, for a stream that is forgotten."""

from __future__ import annotations

import contextlib

from fsspeckit.core.model import Footer, Staged
from fsspeckit.core.rewrite.graft import without_entry
from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import reading
from fsspeckit.core.target.tail import MAGIC, footer_bytes

_CHUNK = 8 << 20


def copy_without(location: Location, footer: Footer, entry: str, staging: str, staged: str) -> Staged:
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
