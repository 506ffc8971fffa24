"""Compactions and partition overwrites in an object store, killed at every request; streams and undo of compactions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core import compact as flow
from fsspeckit.core.dataset.ledger import Batch
from s3.bucket import Bucket
from s3.conftest import WHOLE
from s3.faulty import Killed
from s3.test_faults import faulty
from s3.test_removals import seen

FILES = {f"p={p}/f{f}.parquet": pa.table({"id": [10 * p + f], "x": ["old"]}) for p in (1, 2) for f in range(3)}
OLD = Counter((10 * p + f, "old", str(p)) for p in (1, 2) for f in range(3))
SOURCE = pa.table({"id": [90, 91], "x": ["new"] * 2, "p": [1, 3]})
REPLACED = Counter({row: n for row, n in OLD.items() if row[2] == "2"}) + Counter([(90, "new", "1"), (91, "new", "3")])


def overwrite(url: str) -> Any:
    return fsspeckit.write_dataset(SOURCE, url, "overwrite_partitions")


OPERATIONS: dict[str, tuple[Callable[[str], Any], Counter[Any], set[int]]] = {
    "compact": (fsspeckit.compact, OLD, {6, 4, 2}),
    "undoable compact": (partial(fsspeckit.compact, undoable=True), OLD, {6, 2}),
    "overwrite_partitions": (overwrite, REPLACED, {6, 5}),
}


def data_keys(bucket: Bucket, lake: str) -> list[str]:
    return [key for key in bucket.etags(f"{lake}/") if key.endswith(".parquet")]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("order", ["die before", "die after"])
def test_a_kill_at_every_request(
    moto_bucket: Bucket, quick_lease: Any, order: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old or new after each commit, and the next run goes on. `make test` tries every third request."""
    monkeypatch.setattr(flow, "_COMMIT_BYTES", 1)  # a commit for each partition
    monkeypatch.setattr(flow, "_FILES_PER_TASK", 0)
    (run, new, expected), numbers = OPERATIONS[operation], set[int]()
    for point in itertools.count(1, 1 if WHOLE else 3):
        lake = f"{operation.replace(' ', '-')}-{order.replace(' ', '-')}-{point}/lake"
        url = moto_bucket.write(lake, FILES)
        with faulty(lambda number, name, point=point: order if number == point else None) as made:  # type: ignore[misc]
            try:
                run(url)
                break
            except Killed:
                where = f"killed at request {point}, {made[0].asked[-1]}"
        said = fsspeckit.recover(url)
        files = len(data_keys(moto_bucket, lake))
        assert seen(moto_bucket, lake) == (OLD if files == len(FILES) else new), f"{where}: {said}"
        numbers.add(files)
        kept = fsspeckit.history(url)
        assert len(kept) == (operation == "undoable compact" and files == 2), f"{where}: {said}"
        if kept:
            fsspeckit.undo(url)
            assert seen(moto_bucket, lake) == OLD and len(data_keys(moto_bucket, lake)) == len(FILES), where
        run(url)
        assert seen(moto_bucket, lake) == new and len(data_keys(moto_bucket, lake)) == min(expected), where
        fsspeckit.history(url, keep=0)
        assert moto_bucket.litter(lake) == [], f"{where}: {said}"
    assert numbers == expected


def test_streams_and_undo(bucket: Bucket, prefix: str) -> None:
    """The last batch survives a compaction and its undo, and a compaction during a snapshot is noticed."""
    url = bucket.write(prefix, FILES)
    rows = pa.table({"id": [50], "x": ["batch"], "p": [1]})
    fsspeckit.merge(rows, url, key_columns=["id"], batch=Batch("app", 7), small_files="append", undoable=True)
    assert len(data_keys(bucket, prefix)) == len(FILES)
    before = seen(bucket, prefix)
    with pytest.raises(fsspeckit.TargetChangedError), fsspeckit.snapshot(url):
        fsspeckit.compact(url, undoable=True)
    assert len(data_keys(bucket, prefix)) == 2 and seen(bucket, prefix) == before
    assert fsspeckit.merge(rows, url, key_columns=["id"], batch=Batch("app", 7)).replayed
    assert [fsspeckit.undo(url).operation for _ in range(2)] == ["compact", "upsert"]
    assert seen(bucket, prefix) == OLD
    assert not fsspeckit.merge(rows, url, key_columns=["id"], batch=Batch("app", 7)).replayed
    assert bucket.litter(prefix) == []
