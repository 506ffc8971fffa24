"""Snapshots and undo in object stores: commits are noticed, kept copies are made by the store, and records are true."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.api import dataset_io
from s3.bucket import Bucket, counted
from s3.conftest import WHOLE
from s3.faulty import Killed
from s3.servers import Moto
from s3.test_faults import faulty

FILES = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
SOURCE = pa.table({"id": [1, 11, 100], "x": ["new"] * 3})


def merge(url: str, source: pa.Table = SOURCE, **options: Any) -> Any:
    return dataset_io("pyarrow").merge(source, url, "upsert", ["id"], **{"undoable": True, **options})


def keys_beside(bucket: Bucket, lake: str) -> list[str]:
    """What is kept, below `undo/`."""
    home = f"{lake.rpartition('/')[0]}/.fsspeckit-{lake.rpartition('/')[2]}/undo/".lstrip("/")
    return [key.removeprefix(home) for key in bucket.etags(home)]


def state(bucket: Bucket, lake: str) -> Any:
    return counted(bucket.rows(lake))


def test_a_snapshot_without_a_commit(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    for _ in range(2):  # without a head, and with one
        with fsspeckit.snapshot(url) as files:
            assert files == [f"{url}/f{i}.parquet" for i in range(3)] or len(files) == 4
        merge(url, undoable=False)


def test_a_commit_during_a_snapshot(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    for change in (SOURCE, pa.table({"id": [500], "x": ["new"]})):
        with pytest.raises(fsspeckit.TargetChangedError, match="a commit in the meantime"), fsspeckit.snapshot(url):
            merge(url, change, undoable=False)


def test_a_merge_that_commits_nothing_does_not_disturb(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    merge(url, undoable=False)
    with fsspeckit.snapshot(url):
        assert merge(url, undoable=False).rewritten_files == []  # it takes the lease and gives it back
        fsspeckit.recover(url)


def test_read_reads_again_after_a_commit(moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspeckit.core.dataset.footers import read_footers
    from fsspeckit.datasets import scan

    url, merged = moto_bucket.write(prefix, FILES), list[int]()

    def footers(*arguments: Any, **options: Any) -> Any:
        found = read_footers(*arguments, **options)
        if not merged:
            merged.append(1)
            merge(url, undoable=False)
        return found

    monkeypatch.setattr(scan, "read_footers", footers)
    assert fsspeckit.read(url).num_rows == 31


def test_an_unfinished_commit_is_refused(moto_bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    url = moto_bucket.write(prefix, FILES)
    with contextlib.suppress(Killed), faulty(lambda number, name: "die before" if name == "complete" else None):
        merge(url)
    unfinished = pytest.raises(fsspeckit.CommitUnfinishedError, match="fsspeckit recover")
    with unfinished, fsspeckit.snapshot(url, timeout=0.2):
        pass


def test_one_after_the_other(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    states = [state(moto_bucket, prefix)]
    for n in range(3):
        merge(url, pa.table({"id": [1, 11, 100 + n], "x": [f"new{n}"] * 3}))
        states.append(state(moto_bucket, prefix))
    fsspeckit.delete(url, filters=[("id", "<", 5)], undoable=True)
    listed = fsspeckit.history(url)
    assert [commit.operation for commit in listed] == ["delete", "upsert", "upsert", "upsert"]
    assert listed[0].changes == () and listed[0].bytes > 0
    assert not any(key.endswith(".parquet") for key in keys_beside(moto_bucket, prefix))
    assert fsspeckit.recover(url) == []
    assert len(fsspeckit.history(url)) == 4
    for expected in reversed(states):
        fsspeckit.undo(url)
        assert state(moto_bucket, prefix) == expected
    assert keys_beside(moto_bucket, prefix) == [] and moto_bucket.litter(prefix) == []
    with pytest.raises(fsspeckit.FsspeckitError, match="no commit that can be undone"):
        fsspeckit.undo(url)


def test_the_store_copies(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    moto.requests.clear()
    merge(url)
    copies = [r for r in moto.requests if r.method == "PUT" and "/undo/" in r.path and "/file-" in r.path]
    assert len(copies) == 2


def test_a_change_since_is_named(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    merge(url)
    moto_bucket.write(prefix, {"other.parquet": FILES["f0.parquet"]})
    before = sorted(moto_bucket.etags(prefix.partition("/")[0]))
    with pytest.raises(fsspeckit.FsspeckitError, match=r"left it: other\.parquet is new"):
        fsspeckit.undo(url)
    assert sorted(moto_bucket.etags(prefix.partition("/")[0])) == before


def test_old_ones_are_dropped(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, FILES)
    for n in range(3):
        merge(url, pa.table({"id": [n], "x": ["new"]}))
    assert len(fsspeckit.history(url, keep=1)) == 1
    fsspeckit.undo(url)
    assert fsspeckit.history(url) == [] and keys_beside(moto_bucket, prefix) == []


def test_a_commit_that_is_discarded_keeps_nothing(moto_bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    url = moto_bucket.write(prefix, FILES)
    before = state(moto_bucket, prefix)
    with contextlib.suppress(Killed), faulty(lambda number, name: "die before" if name == "complete" else None):
        merge(url)
    fsspeckit.recover(url, discard=True)
    assert state(moto_bucket, prefix) == before
    assert fsspeckit.history(url) == [] and keys_beside(moto_bucket, prefix) == []


@pytest.mark.parametrize("order", ["die before", "die after"])
@pytest.mark.parametrize("operation", ["merge", "undo"])
def test_a_kill_at_every_request(moto_bucket: Bucket, quick_lease: Any, operation: str, order: str) -> None:
    """Old or new, and a record of what is there. `make test` tries every seventh request."""
    operations: dict[str, Callable[[str], Any]] = {"merge": merge, "undo": fsspeckit.undo}
    outcomes, run = set[str](), operations[operation]
    for point in itertools.count(1, 1 if WHOLE else 7):
        lake = f"{operation}-{order.replace(' ', '-')}-{point}/lake"
        url = moto_bucket.write(lake, FILES)
        first = state(moto_bucket, lake)
        merge(url, pa.table({"id": [1, 900], "x": ["first"] * 2}))
        second = state(moto_bucket, lake)
        with faulty(lambda number, name, point=point: order if number == point else None):  # type: ignore[misc]
            try:
                run(url)
                break
            except Killed:
                pass
        said = fsspeckit.recover(url)
        now, kept = state(moto_bucket, lake), fsspeckit.history(url)
        is_old = now == second
        outcomes.add("old" if is_old else "new")
        number = 1 if is_old else (2 if operation == "merge" else 0)
        assert is_old or operation == "merge" or now == first, f"killed at {point}: {said}"
        assert len(kept) == number, f"killed at {point}: {said}"
        assert all(commit.changes == () for commit in kept[:1])
        for expected in [first, second][:number][::-1]:
            fsspeckit.undo(url)
            assert state(moto_bucket, lake) == expected
        assert moto_bucket.litter(lake) == [] and keys_beside(moto_bucket, lake) == []
    assert outcomes == {"old", "new"}
