"""What streams have committed, kept in the key-value metadata of the data files themselves.

A data set holds nothing of ours but its files, so the last batch of a stream is recorded in the files that its commit
wrote. Every file that any commit of any engine writes carries all entries that the data set had: rewritten files,
new ones, and those that replace everything. Of several entries of one stream the greatest batch counts. A batch that
changes nothing is not recorded: given again it is as if it had come once, later. Streams that ended: `commit.forget`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Footer
from fsspeckit.core.target.thrift import Damaged

PREFIX = "fsspeckit.stream."

# Entries by name, which is the prefix and the stream's `app_id`.
Ledger = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a stream. `query` is the identity of its checkpoint, where it is known."""

    app_id: str
    number: int
    query: str | None = None


def recorded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The entries among a file's key-value metadata (the Arrow schema shows only what its writer knew of)."""
    pairs = (metadata or {}).items()
    streams = {key.decode(): value.decode() for key, value in pairs if key.startswith(PREFIX.encode())}
    for name, entry in streams.items():
        if not _is_batch(entry):
            raise Damaged(f"the entry {name!r}, which records what a stream has committed, is broken: {entry[:80]!r}")
    return streams


def _is_batch(entry: str) -> bool:
    try:
        fields = json.loads(entry)
    except (ValueError, RecursionError):
        return False
    number, query = (fields.get("batch"), fields.get("query")) if isinstance(fields, dict) else (None, None)
    return type(number) is int and (query is None or isinstance(query, str))


def entries(files: Iterable[Footer]) -> dict[str, str]:
    """All streams that ever committed to these files, each with its last batch."""
    last: dict[str, str] = {}
    for footer in files:
        for name, entry in footer.ledger.items():
            last[name] = max(last.get(name, entry), entry, key=_number)
    return last


def with_batch(known: Ledger, batch: Batch | None) -> dict[str, str]:
    if batch is None:
        return dict(known)
    entry = {"batch": batch.number, "query": batch.query, "at": int(time.time())}
    return {**known, PREFIX + batch.app_id: json.dumps(entry)}


def is_replay(batch: Batch, known: Ledger) -> bool:
    """Was this batch committed already? An older one, or one of another query, is an error: it would be lost."""
    entry = known.get(PREFIX + batch.app_id)
    if entry is None:
        return False
    query, last = json.loads(entry).get("query"), _number(entry)
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


def moved_at(entry: str) -> float | None:
    """When the stream last committed, in seconds since 1970; entries of the first form do not say."""
    at: float | None = json.loads(entry).get("at")
    return at


def _number(entry: str) -> int:
    return int(json.loads(entry)["batch"])
