"""What planning needs to know of the source: small, whatever the source's size."""

from __future__ import annotations

from fsspeckit.core.model import Profile
from fsspeckit.core.spool.keyset import KeySet
from fsspeckit.core.spool.parts import Spool
from fsspeckit.core.values.ordering import merged


def profile_of(spool: Spool, keys: KeySet) -> Profile:
    names = spool.shape.keys
    nulls = {name: sum(part.nulls[i] for part in spool.parts) for i, name in enumerate(names)}
    count, rows = (0, []) if any(nulls.values()) or not spool.parts else keys.duplicates()
    return Profile(
        rows=spool.rows,
        null_keys=nulls,
        duplicate_keys=count,
        duplicate_samples=spool.samples(rows),
        partitions=frozenset(partition for part in spool.parts for partition in part.partitions if partition),
        intervals={name: merged([part.intervals[i] for part in spool.parts]) for i, name in enumerate(names)},
    )
