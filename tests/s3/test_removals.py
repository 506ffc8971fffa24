"""Commits that only remove files, and deletes, change feeds and moves: killed at every request, answers lost."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from crash import row_changes
from fsspeckit.api import dataset_io
from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import CommitUnfinishedError, StorageError
from fsspeckit.core.storage import locate
from s3.bucket import Bucket
from s3.conftest import WHOLE
from s3.faulty import Killed
from s3.test_faults import by_swap, faulty

FILES = {name: row_changes.table(name) for name in row_changes.FILES}
OLD = Counter(row_changes.OLD)


def remove(url: str) -> None:
    """A commit without additions, of all files of a partition and one of another."""
    location = locate(url)
    with writing(location) as session:
        infos = list_files(location)
        session.commit([], [f for f in infos if f.path.startswith("p=1/") or f.path == "p=2/f1.parquet"], infos)


OPERATIONS: dict[str, Callable[[str], object]] = {"remove": remove, **row_changes.OPERATIONS}
NEW = {"remove": [row for row in row_changes.OLD if row[2] == "2" and not 210 <= row[0] < 220], **row_changes.NEW}
CASES = ["remove", *row_changes.CASES]


def seen(bucket: Bucket, prefix: str) -> Counter[row_changes.Row]:
    found = Counter[row_changes.Row]()
    for key in bucket.etags(f"{prefix}/"):
        if key.endswith(".parquet"):
            table = pq.ParquetFile(io.BytesIO(bucket.get(key))).read()
            found.update(row_changes.with_partition(table, key))
    return found


def _at(point: int, order: str, number: int, name: str) -> str | None:
    return order if number == point else None


@pytest.mark.parametrize("operation", CASES)
@pytest.mark.parametrize("order", ["die before", "die after"])
def test_a_kill_at_every_request(moto_bucket: Bucket, quick_lease: Any, order: str, operation: str) -> None:
    """`make test` tries every third request, and all of a commit that only removes files."""
    outcomes, step = set[str](), 1 if WHOLE or operation == "remove" else 3
    for point in itertools.count(1, step):
        lake = f"{operation}-{order.replace(' ', '-')}-{point}/lake"
        url = moto_bucket.write(lake, FILES)
        with faulty(partial(_at, point, order)) as made:
            try:
                OPERATIONS[operation](url)
                break
            except Killed:
                where = f"killed at request {point}, {made[0].asked[-1]}"
        said = fsspeckit.recover(url)
        found = seen(moto_bucket, lake)
        assert found in (OLD, Counter(NEW[operation])), f"{where}: {said}"
        assert moto_bucket.litter(lake) == [], f"{where}: {said}"
        outcomes.add("old" if found == OLD else "new")
    assert outcomes == {"old", "new"}


def test_the_answer_of_every_conditional_put_is_lost(moto_bucket: Bucket, quick_lease: Any) -> None:
    for turn, order in itertools.product((4, 5, 6, 7), ("lost, done", "lost, not done")):
        lake = f"removal-{turn}-{order.replace(', ', '-')}/lake"
        url = moto_bucket.write(lake, FILES)
        with faulty(by_swap(turn, order)):
            remove(url)
        assert seen(moto_bucket, lake) == Counter(NEW["remove"])
        assert moto_bucket.litter(lake) == []
        assert fsspeckit.recover(url) == [], "the head is free"


@pytest.mark.parametrize("done", [True, False])
def test_no_answer_to_any_attempt_at_the_commit(moto_bucket: Bucket, quick_lease: Any, prefix: str, done: bool) -> None:
    url = moto_bucket.write(prefix, FILES)
    with faulty(by_swap(5, "lost, done" if done else "lost, not done", last=10)):
        if done:
            remove(url)
        else:
            with pytest.raises(StorageError, match=r"the store did not answer. Nothing was changed"):
                remove(url)
    assert seen(moto_bucket, prefix) == (Counter(NEW["remove"]) if done else OLD)
    assert moto_bucket.litter(prefix) == []


def _recorded(bucket: Bucket, prefix: str, swap: int) -> str:
    """A lake whose writer died before a conditional PUT; its commit is recorded."""
    url = bucket.write(prefix, FILES)
    with faulty(by_swap(swap, "die before")), pytest.raises(Killed):
        remove(url)
    return url


def test_to_discard_before_the_decision(moto_bucket: Bucket, quick_lease: Any, prefix: str) -> None:
    url = _recorded(moto_bucket, prefix, swap=6)
    (said,) = fsspeckit.recover(url, discard=True)
    assert said.endswith(": 0 new file(s) removed again, no other file was changed")
    assert seen(moto_bucket, prefix) == OLD and moto_bucket.litter(prefix) == []


def test_to_discard_after_the_decision(moto_bucket: Bucket, quick_lease: Any, prefix: str) -> None:
    """Files may be gone already, so the commit is finished. It has no new files, and the text does not speak of any."""
    url = _recorded(moto_bucket, prefix, swap=7)
    (said,) = fsspeckit.recover(url, discard=True)
    assert said.endswith("0 file(s) put in place, 4 removed; files had been removed already, so it was not given up")
    assert seen(moto_bucket, prefix) == Counter(NEW["remove"]) and moto_bucket.litter(prefix) == []


def test_a_file_that_another_program_replaced(moto_bucket: Bucket, quick_lease: Any, prefix: str) -> None:
    url = _recorded(moto_bucket, prefix, swap=6)
    moto_bucket.write(prefix, {"p=1/f0.parquet": pa.table({"id": [7], "x": ["theirs"]})})
    with pytest.raises(CommitUnfinishedError, match=r"p=1/f0\.parquet: to be removed, is another file now.*--discard"):
        fsspeckit.recover(url)
    assert (7, "theirs", "1") in seen(moto_bucket, prefix)
    fsspeckit.recover(url, discard=True)
    assert Counter(OLD.keys() - seen(moto_bucket, prefix).keys()) == Counter(row_changes.rows_of("p=1/f0.parquet"))


def test_folder_marks_of_a_partition_without_files(bucket: Bucket, prefix: str) -> None:
    """Consoles make an empty object `p=1/` for a folder. It is neither data nor a partition, and a partition may come
    back there."""
    url = bucket.write(prefix, FILES)
    for key in (f"{prefix}/", f"{prefix}/p=1/", f"{prefix}/p=2/"):
        bucket.client.put_object(Bucket=bucket.name, Key=key)
    remove(url)
    assert seen(bucket, prefix) == Counter(NEW["remove"])
    assert [info.path for info in list_files(locate(url))] == ["p=2/f0.parquet", "p=2/f2.parquet"]
    assert fsspeckit.read(url).num_rows == sum(Counter(NEW["remove"]).values())
    source = pa.table({"id": [100, 200], "x": ["new", "new"], "p": [1, 2]})
    result = dataset_io("pyarrow").merge(source, url, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 1)
    assert {(100, "new", "1"), (200, "new", "2")} <= seen(bucket, prefix).keys()
    assert fsspeckit.recover(url) == []
