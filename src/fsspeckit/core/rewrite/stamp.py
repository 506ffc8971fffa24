"""A file's bytes with another ledger in its footer: a batch that changed no row is recorded all the same."""

from __future__ import annotations

import contextlib

from fsspeckit.core.model import Rewritten, Staged
from fsspeckit.core.plan.footers import reading
from fsspeckit.core.rewrite.graft import MAGIC, footer_bytes, with_entries
from fsspeckit.core.rewrite.kernel import Job
from fsspeckit.core.storage import Location

_CHUNK = 8 << 20


def stamped_copy(location: Location, job: Job) -> Rewritten:
    """Pages stay where they are, so every offset in the footer holds."""
    path, target = location.at(job.footer.path), f"{job.staging}/{job.staged}"
    with contextlib.ExitStack() as stack:
        with reading(location, job.footer.path):
            source = stack.enter_context(location.storage.open_input(path))
            raw = footer_bytes(source)
            footer = with_entries(raw, job.ledger)
            body = source.size() - len(raw) - 8
            source.seek(0)
        sink = stack.enter_context(location.storage.open_output(target))
        for start in range(0, body, _CHUNK):
            sink.write(source.read(min(_CHUNK, body - start)))
        sink.write(footer + len(footer).to_bytes(4, "little") + MAGIC)
    location.storage.sync_file(target)
    location.storage.copy_mode(path, target)
    size = body + len(footer) + 8
    return Rewritten(job.footer.path, (Staged(job.staged, job.path, job.footer.rows, size, job.footer.path),))
