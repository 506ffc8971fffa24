"""Stores that delay, drop, refuse and answer wrongly, and slow recoveries: rows stand once, or an error says so."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.storage import s3 as client
from s3.bucket import Bucket, counted
from s3.faulty import Killed
from s3.proxy import Asked, Proxy
from s3.test_faults import FILES, NEW, OLD, by_swap, faulty, merge

Plan = Callable[[int, str], str | None]


def head_of(prefix: str) -> str:
    return f"{prefix.rpartition('/')[0]}/.fsspeckit-lake/head"


def begun(bucket: Bucket, prefix: str) -> list[dict[str, str]]:
    """The uploads of a recorded commit, from the head."""
    journal = json.loads(bucket.get(head_of(prefix)))["journal"]
    return [{"Key": f"{prefix}/{a['path']}", "UploadId": a["upload_id"]} for a in journal["additions"]]


def is_pending(bucket: Bucket, upload: dict[str, str]) -> bool:
    try:
        bucket.client.list_parts(Bucket=bucket.name, **upload)
    except ClientError as error:
        assert error.response["Error"]["Code"] in ("NoSuchUpload", "404"), error
        return False
    return True


def names(bucket: Bucket, prefix: str) -> set[str]:
    return {key.removeprefix(f"{prefix}/") for key in bucket.etags(f"{prefix}/")}


def commit_and_die(url: str) -> None:
    with faulty(by_swap(5, "die after")), pytest.raises(Killed):
        merge("pyarrow", url)


def after_the_commit(call: str, deed: Callable[[], Any]) -> Plan:
    """A plan in which something happens once, before the first request of a name that follows the commit."""
    swaps, committed, done = itertools.count(1), [False], [False]

    def plan(number: int, name: str) -> None:
        if committed[0] and name == call and not done[0]:
            done[0] = True
            deed()
        committed[0] |= name == "put_if" and next(swaps) == 5

    return plan


def test_a_dead_writer_s_uploads_are_given_up(proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    url = bucket.write(prefix, FILES)
    parts = itertools.count(1)
    with faulty(lambda n, name: "die after" if name == "put_part" and next(parts) == 3 else None) as made:
        made_uploads: list[tuple[str, str]] = []
        create = client.S3Objects.create_upload

        def noted(self: Any, key: str) -> str:
            made_uploads.append((key, create(self, key)))
            return made_uploads[-1][1]

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(client.S3Objects, "create_upload", noted)
            merge("pyarrow", url)
    assert made[0].is_dead
    uploads = [{"Key": key, "UploadId": upload_id} for key, upload_id in made_uploads]
    assert any(is_pending(bucket, upload) for upload in uploads)
    (said,) = fsspeckit.recover(url)
    assert "upload(s) given up" in said
    assert not any(is_pending(bucket, upload) for upload in uploads)
    assert counted(bucket.rows(prefix)) == OLD and bucket.litter(prefix) == []


def test_a_discarded_commit_cannot_be_completed_later(
    proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any
) -> None:
    """By a writer that was paused: its uploads are aborted by the ids in the journal."""
    url = bucket.write(prefix, FILES)
    commit_and_die(url)
    uploads = begun(bucket, prefix)
    assert len(uploads) == 7 and all(is_pending(bucket, upload) for upload in uploads)
    (said,) = fsspeckit.recover(url, discard=True)
    assert said.endswith("0 new file(s) removed again, no other file was changed")
    assert not any(is_pending(bucket, upload) for upload in uploads)
    assert counted(bucket.rows(prefix)) == OLD and bucket.litter(prefix) == []
    assert merge("duckdb", url).updated == 5
    assert counted(bucket.rows(prefix)) == NEW


def test_a_slow_discard_leaves_live_files_alone(proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    """It has read a commit; before it touches anything, that one is finished, and another merge follows."""
    url = bucket.write(prefix, FILES)
    commit_and_die(url)
    done: list[str] = []

    def plan(number: int, name: str) -> None:
        if name in ("abort", "put_if") and not done:
            done.append("")
            done[:] = fsspeckit.recover(url)
            assert (
                dataset_io("pyarrow").merge(pa.table({"id": [1], "x": ["newer"]}), url, "upsert", ["id"]).updated == 1
            )

    with faulty(plan):
        said = fsspeckit.recover(url, discard=True)
    assert done[0].startswith("finished the commit")
    rows = bucket.rows(prefix)
    newer = [{**row, "x": "newer"} if row["id"] == 1 else row for row in rows]
    assert counted(rows) == counted(newer) and len(rows) == NEW.total(), said
    assert said[0].endswith("was finished by another writer")
    assert bucket.litter(prefix) == []


def test_a_discard_that_is_paused_after_its_decision(
    proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any
) -> None:
    """Who comes next carries the decision out, and merges; the first one then touches nothing."""
    url = bucket.write(prefix, FILES)
    commit_and_die(url)
    done: list[str] = []

    def plan(number: int, name: str) -> None:
        if name == "abort" and not done:
            done.append("")
            assert merge("duckdb", url).updated == 5

    with faulty(plan):
        (said,) = fsspeckit.recover(url, discard=True)
    assert said.endswith("was given up by another")
    assert counted(bucket.rows(prefix)) == NEW and bucket.litter(prefix) == []


@pytest.mark.parametrize("way", ["discard", "finish"])
def test_a_file_that_another_program_wrote_meanwhile(
    way: str, proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any
) -> None:
    """Under the name of one that the commit removes. `--discard` leaves it alone, also if all uploads are complete."""
    url = bucket.write(prefix, FILES)
    commit_and_die(url)
    theirs = pa.table({"id": [1], "x": ["theirs"]})
    bucket.write(prefix, {"f0.parquet": theirs})
    with pytest.raises(CommitUnfinishedError, match=r"f0.parquet: to be removed, is another file now"):
        fsspeckit.recover(url)
    assert len(bucket.etags(f"{prefix}/")) == 13, "all new files are in place beside the old ones"
    (said,) = fsspeckit.recover(url, finish=way == "finish", discard=way == "discard")
    if way == "finish":
        assert "7 file(s) put in place, 5 removed" in said
        assert counted(bucket.rows(prefix)) == NEW
    else:
        assert said.endswith("7 new file(s) removed again, no other file was changed")
        rows = [row for name, table in FILES.items() if name != "f0.parquet" for row in table.to_pylist()]
        assert counted(bucket.rows(prefix)) == counted(rows + theirs.to_pylist())
    assert bucket.litter(prefix) == []


def test_a_new_file_that_another_program_replaced(proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    """It is not what the commit wrote: nothing is removed, and `--discard` leaves it alone and names it."""
    url = bucket.write(prefix, FILES)
    commit_and_die(url)
    name = begun(bucket, prefix)[0]["Key"]
    bucket.put(name, b"theirs")
    proxy.fault = lambda asked: "404 NoSuchUpload" if asked.is_complete and asked.key == name else None
    with pytest.raises(CommitUnfinishedError, match=r"uploads into different objects.*6 bytes.*No file was removed"):
        fsspeckit.recover(url)
    proxy.fault = None
    assert names(bucket, prefix) >= set(FILES)
    (said,) = fsspeckit.recover(url, discard=True)
    assert "6 new file(s) removed again" in said
    assert said.endswith(f"1 file(s) of other programs were kept, look at them: s3://{bucket.name}/{name}")
    assert bucket.get(name) == b"theirs"
    bucket.delete(name)
    assert counted(bucket.rows(prefix)) == OLD and bucket.litter(prefix) == []


@pytest.mark.parametrize("call", ["get", "complete", "list_all"])
def test_a_head_that_is_deleted_after_the_commit(
    call: str, proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any
) -> None:
    """What became of the commit is unknown then, to its writer and to the next one."""
    url = bucket.write(prefix, FILES)
    message = r"unknown: its head object .* look for its rows before you"
    plan = after_the_commit(call, lambda: bucket.delete(head_of(prefix)))
    with faulty(plan), pytest.raises(CommitUnfinishedError, match=message):
        merge("pyarrow", url)
    assert names(bucket, prefix) >= set(FILES), "no old file was removed"
    for attempt in (lambda: merge("duckdb", url), lambda: fsspeckit.recover(url)):
        with pytest.raises(CommitUnfinishedError, match=r"is unknown: writers left work.*recover --discard"):
            attempt()
    fsspeckit.recover(url, discard=True)
    assert bucket.litter(prefix) == []
    if call == "get":  # nothing was completed
        assert counted(bucket.rows(prefix)) == OLD
        assert merge("duckdb", url).updated == 5


def test_a_head_that_is_deleted_when_all_is_decided(proxy: Proxy, bucket: Bucket, prefix: str) -> None:
    """The new files are in place, and the writer removes the old ones: nothing is unknown."""
    url = bucket.write(prefix, FILES)
    with faulty(after_the_commit("stat", lambda: bucket.delete(head_of(prefix)))):
        assert merge("pyarrow", url).updated == 5
    assert counted(bucket.rows(prefix)) == NEW and bucket.litter(prefix) == []
    assert merge("duckdb", url).updated == 9


@pytest.mark.parametrize("call", ["get", "complete"])
def test_a_head_that_was_made_anew(call: str, proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    """Another head than the one that recorded the commit does not say that it was finished, whenever it appears."""
    url = bucket.write(prefix, FILES)

    def make_anew() -> None:
        bucket.delete(head_of(prefix))
        fsspeckit.recover(url, discard=True)

    with faulty(after_the_commit(call, make_anew)), pytest.raises(CommitUnfinishedError, match="unknown: its head"):
        merge("pyarrow", url)
    assert counted(bucket.rows(prefix)) == OLD


def test_a_head_that_is_not_found_once(proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    """A single wrong 404, at each look at the head after the commit in turn."""
    for turn in range(1, 4):
        lake = f"{prefix}-{turn}/lake"
        url, looks, puts = bucket.write(lake, FILES), itertools.count(1), itertools.count(1)
        committed = [False]

        def fault(asked: Asked, key: str = head_of(lake), turn: int = turn, looks: Any = looks,
                  puts: Any = puts, committed: Any = committed) -> str | None:  # fmt: skip
            if asked.key != key:
                return None
            if asked.method == "PUT" and next(puts) == 2:
                committed[0] = True
            if asked.method == "GET" and committed[0] and next(looks) == turn:
                return "404 NoSuchKey"
            return "503 SlowDown" if asked.method == "PUT" and committed[0] and next(puts) == 4 else None

        proxy.fault = fault
        try:
            merge("pyarrow", url)
        except CommitUnfinishedError as error:
            assert "unknown" in str(error)
            proxy.fault = None
            fsspeckit.recover(url)
        proxy.fault = None
        assert counted(bucket.rows(lake)) == NEW and bucket.litter(lake) == []


@pytest.mark.parametrize("wrong", ["empty object", "empty", "not done", "lost"])
def test_what_came_of_a_complete_is_looked_at(
    wrong: str, proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any
) -> None:
    """200 and an object of no bytes (two completes at once, in some stores); 200 without a body, done or not; lost."""
    url = bucket.write(prefix, FILES)
    made: list[str] = []

    def fault(asked: Asked) -> str | None:
        if not asked.is_complete or (made and asked.key != made[0]):
            return None
        made.append(asked.key)
        if wrong != "empty object":
            return wrong if len(made) == 1 or wrong == "not done" else None
        upload_id = parse_qs(asked.query)["uploadId"][0]
        bucket.client.abort_multipart_upload(Bucket=bucket.name, Key=asked.key, UploadId=upload_id)
        bucket.put(asked.key, b"")
        etag = "d41d8cd98f00b204e9800998ecf8427e-1"
        return f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"

    proxy.fault = fault
    if wrong in ("empty", "lost"):
        merge("pyarrow", url)
    else:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(CommitUnfinishedError) as problem:
            patch.setattr(client, "_ATTEMPTS", 2)
            merge("pyarrow", url)
        assert "recover" in str(problem.value)
        assert names(bucket, prefix) >= set(FILES), "no old file was removed"
        proxy.fault = None
        if wrong == "not done":
            assert fsspeckit.recover(url)[0].startswith("finished the commit")
        else:
            with pytest.raises(
                CommitUnfinishedError, match=r"uploads into different objects.*: 0 bytes.*No file was removed"
            ):
                fsspeckit.recover(url)
            (said,) = fsspeckit.recover(url, discard=True)
            assert said.endswith("7 new file(s) removed again, no other file was changed")
    proxy.fault = None
    assert counted(bucket.rows(prefix)) == (OLD if wrong == "empty object" else NEW)
    assert bucket.litter(prefix) == []


def test_a_complete_that_is_delayed_until_others_have_finished(
    proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any
) -> None:
    """The request reaches the store when the commit is carried out, another merge is done, and the head is free."""
    url = bucket.write(prefix, FILES)
    held: list[str] = []

    def fault(asked: Asked) -> None:
        if asked.is_complete and not held:
            held.append(asked.key)
            fsspeckit.recover(url)
            source = pa.table({"id": list(range(60)), "x": ["newer"] * 60})
            assert dataset_io("duckdb").merge(source, url, "upsert", ["id"]).updated == 60

    proxy.fault = fault
    merge("pyarrow", url)
    rows = bucket.rows(prefix)
    assert sorted(row["id"] for row in rows) == [*range(60), *range(100, 104)]
    assert {row["x"] for row in rows if row["id"] < 60} == {"newer"}
    assert bucket.litter(prefix) == []
