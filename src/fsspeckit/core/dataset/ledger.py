"""The last batch of each stream, recorded in the key-value metadata of the data files.

A data set holds only its files, so the files that a commit writes record the last batch of its stream. Every commit of
every engine copies all entries of the data set into every file that it writes. If a stream has several entries, the
greatest batch counts. A batch that changes nothing is not recorded, and may be applied again. `commit.forget` removes
the entries of a stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Footer
from fsspeckit.core.parquet.thrift import CorruptFile

PREFIX = "fsspeckit.stream."

# Entries by name, which is the prefix and the stream's `app_id`.
Ledger = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a stream. `query` is the identity of its checkpoint, if it is known."""

    app_id: str
    number: int
    query: str | None = None


def stream_entries(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The entries of streams in a file's key-value metadata. (The Arrow schema does not have all of them.)"""
    pairs = (metadata or {}).items()
    streams = {key.decode(): value.decode() for key, value in pairs if key.startswith(PREFIX.encode())}
    for name, entry in streams.items():
        if not _is_batch(entry):
            raise CorruptFile(
                f"the entry {name!r}, which records what a stream has committed, is broken: {entry[:80]!r}"
            )
    return streams


def _is_batch(entry: str) -> bool:
    try:
        fields = json.loads(entry)
    except (ValueError, RecursionError):
        return False
    number, query = (fields.get("batch"), fields.get("query")) if isinstance(fields, dict) else (None, None)
    return type(number) is int and (query is None or isinstance(query, str))


def entries(files: Iterable[Footer]) -> dict[str, str]:
    """The entry of the last batch of each stream that committed to these files."""
    last: dict[str, str] = {}
    for footer in files:
        for name, entry in footer.ledger.items():
            last[name] = max(last.get(name, entry), entry, key=_number)
    return last


def without_streams(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The entries of a file that are not those of streams."""
    return {name: value for name, value in metadata.items() if not name.startswith(PREFIX.encode())}


def file_to_copy(files: Sequence[Footer], known: Ledger) -> Footer | None:
    """The file that gets the entries `known` if no other file is written; `None` if `files` record them already."""
    return None if entries(files) == known else min(files, key=lambda footer: footer.info.size)


def with_batch(known: Ledger, batch: Batch | None) -> dict[str, str]:
    if batch is None:
        return dict(known)
    entry = {"batch": batch.number, "query": batch.query, "at": int(time.time())}
    return {**known, PREFIX + batch.app_id: json.dumps(entry)}


def is_replay(batch: Batch, known: Ledger) -> bool:
    """Was this batch committed already? An older batch or another query is an error: the rows would be lost."""
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
            "is older than the data set. Restore the checkpoint, or use a new app_id to merge the rows anyway."
        )
    return batch.number == last


def committed_at(entry: str) -> float | None:
    """The time of the stream's last commit in seconds since 1970; old entries do not have it."""
    at: float | None = json.loads(entry).get("at")
    return at


def _number(entry: str) -> int:
    return int(json.loads(entry)["batch"])
