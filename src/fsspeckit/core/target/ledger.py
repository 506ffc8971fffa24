"""What streams have committed, kept in the key-value metadata of the data files themselves.

A data set holds nothing of ours but its files, so the last batch of a stream is recorded in the files that its commit
wrote. Every file that any commit of any engine writes carries all entries that the data set had: rewritten files,
new ones, and those that replace everything. Of several entries of one stream the greatest batch counts. A batch that
changes nothing is not recorded: given again it is as if it had come once, later. See `forget` for streams that ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fsspeckit.core.errors import ArgumentError, UnreadableFileError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import LEDGER_PREFIX as PREFIX
from fsspeckit.core.target.footers import read_footer

Ledger = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a stream. `query` is the identity of its checkpoint, where it is known."""

    app_id: str
    number: int
    query: str | None = None


def entries(files: Iterable[Footer]) -> dict[str, str]:
    """All streams that ever committed to these files, each with its last batch."""
    found: dict[str, str] = {}
    for footer in files:
        for name, value in footer.ledger.items():
            found[name] = max(found.get(name, value), value, key=_number)
    return found


def readable_entries(location: Location, files: Iterable[FileInfo]) -> dict[str, str]:
    """The entries of files that are about to be replaced, of which some may be broken."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return entries(f for f in pool.map(lambda info: _read(location, info), files) if f is not None)


def _read(location: Location, info: FileInfo) -> Footer | None:
    try:
        return read_footer(location, info, ())
    except UnreadableFileError:
        return None


def with_batch(known: Ledger, batch: Batch | None) -> dict[str, str]:
    if batch is None:
        return dict(known)
    entry = {"batch": batch.number, "query": batch.query, "at": int(time.time())}
    return {**known, PREFIX + batch.app_id: json.dumps(entry)}


def is_replay(batch: Batch, known: Ledger) -> bool:
    """Was this batch committed already? An older one, or one of another query, is an error: it would be lost."""
    recorded = known.get(PREFIX + batch.app_id)
    if recorded is None:
        return False
    query, last = json.loads(recorded).get("query"), _number(recorded)
    if None not in (query, batch.query) and query != batch.query:
        raise ArgumentError(
            f"Another query ({query}) has committed to this data set as app_id={batch.app_id!r}. Each query, and each "
            "new checkpoint of one, needs an app_id of its own."
        )
    if batch.number < last:
        raise ArgumentError(
            f"Batch {batch.number} of app_id={batch.app_id!r} comes after batch {last} was committed: the checkpoint "
            "is older than the data set. Restore the checkpoint, or give a new app_id to take the rows all the same."
        )
    return batch.number == last


def _number(entry: str) -> int:
    return int(json.loads(entry)["batch"])
