"""Kills at every request, lost answers, throttling and resets: old or new, once each, and nothing left behind."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.commit.finish import Finisher
from fsspeckit.core.commit.head import head_key, read_head
from fsspeckit.core.commit.lease import Runtime
from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError, StorageError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import locate
from fsspeckit.core.storage import s3 as client
from s3.bucket import Bucket, counted
from s3.conftest import WHOLE
from s3.faulty import Faulty, Killed
from s3.servers import Moto, Request

FILES = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(6)}
# Rewrites five files of six, and inserts rows into two new ones.
SOURCE = pa.table({"id": [1, 11, 21, 31, 41, *range(100, 104)], "x": ["new"] * 9})
OLD = counted([{"id": i, "x": "old"} for i in range(60)])
NEW = counted(
    [{"id": i, "x": "new" if i in (1, 11, 21, 31, 41) else "old"} for i in range(60)]
    + [{"id": i, "x": "new"} for i in range(100, 104)]
)


def merge(engine: str, url: str) -> Any:
    return dataset_io(engine).merge(SOURCE, url, "upsert", ["id"], max_rows_per_file=2)


@contextlib.contextmanager
def faulty(plan: Callable[[int, str], str | None]) -> Iterator[list[Faulty]]:
    """Whoever connects gets a store that fails as planned."""
    real, made = client.connect, list[Faulty]()

    def connect(bucket: str, options: Any) -> Any:
        made.append(Faulty(real(bucket, options), plan))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "connect", connect)
        yield made


def by_swap(turn: int, order: str, last: int | None = None) -> Callable[[int, str], str | None]:
    """What becomes of a conditional PUT by its number: 1 to 3 are the probe's, 4 takes the lease, 5 is the commit.

    6 decides that old files go, 7 gives the lease back.
    """
    swaps = itertools.count(1)

    def plan(number: int, name: str) -> str | None:
        return order if name == "put_if" and turn <= next(swaps) <= (last or turn) else None

    return plan


def dying(url: str, engine: str, point: int, order: str) -> tuple[str, bool]:
    """Merge and die at a request; the name of that request, and whether the merge was over before."""
    with faulty(lambda number, name: order if number == point else None) as made:
        try:
            merge(engine, url)
        except Killed:
            return made[0].asked[point - 1], False
        return "", True


@pytest.mark.parametrize("order", ["die before", "die after"])
def test_a_kill_at_every_request(moto_bucket: Bucket, quick_lease: Any, order: str) -> None:
    """Recovered by another engine. Of reads in a row one is tried; `make test` tries every fifth of the others."""
    seen, outcomes = list[str](), set[str]()
    for point in itertools.count(1, 1 if WHOLE else 5):
        lake = f"{order.replace(' ', '-')}-{point}/lake"
        url = moto_bucket.write(lake, FILES)
        name, over = dying(url, "pyarrow", point, order)
        if over:
            break
        rows = counted(moto_bucket.rows(lake))
        is_read = name in ("read", "get", "stat", "list_all")
        if is_read and seen[-1:] == [name]:
            continue
        seen.append(name)
        said = fsspeckit.recover(url)
        rows = counted(moto_bucket.rows(lake))
        assert rows in (OLD, NEW), f"killed at request {point}, {name}: {said}"
        assert moto_bucket.litter(lake) == [], f"killed at request {point}, {name}: {said}"
        outcomes.add("new" if rows == NEW else "old")
        if point % 7 == 0 or rows == NEW:
            merge("duckdb", url)
            assert counted(moto_bucket.rows(lake)) == NEW
            assert moto_bucket.litter(lake) == []
    assert outcomes == {"old", "new"}
    exact = {"put_if": 7, "complete": 7, "delete": 2}  # with the probe of the store
    if WHOLE:
        assert {name: seen.count(name) for name in exact} == exact
        assert all(seen.count(name) > 3 for name in ("put", "create_upload", "put_part")), "by threads, in any order"


def test_the_answer_of_every_conditional_put_is_lost(moto_bucket: Bucket, quick_lease: Any) -> None:
    """The lease, the commit, the decision, the lease given back: done or not done, the merge goes through."""
    for turn, order in itertools.product((4, 5, 6, 7), ("lost, done", "lost, not done")):
        lake = f"lost-{turn}-{order.replace(', ', '-')}/lake"
        url = moto_bucket.write(lake, FILES)
        with faulty(by_swap(turn, order)) as made:
            merge("pyarrow", url)
        assert made[0].asked.count("put_if") == (7 if order == "lost, done" else 8)
        assert counted(moto_bucket.rows(lake)) == NEW
        assert moto_bucket.litter(lake) == []
        assert fsspeckit.recover(url) == [], "the head is free"


@pytest.mark.parametrize("done", [True, False])
def test_no_answer_to_any_attempt_at_the_commit(moto_bucket: Bucket, quick_lease: Any, prefix: str, done: bool) -> None:
    """All of them lost: if none was done the lease is given back and nothing is changed, else it is a commit."""
    url = moto_bucket.write(prefix, FILES)
    plan = by_swap(5, "lost, done" if done else "lost, not done", last=10)
    with faulty(plan):
        if done:
            merge("pyarrow", url)
        else:
            with pytest.raises(StorageError, match=r"the store did not answer. Nothing was changed"):
                merge("pyarrow", url)
    assert counted(moto_bucket.rows(prefix)) == (NEW if done else OLD)
    assert moto_bucket.litter(prefix) == []


def test_a_commit_that_others_finish_before_its_writer_looks(moto_bucket: Bucket, prefix: str) -> None:
    """No answer came to it; a free head that names this session is not the one by which it gave its lease back."""
    url = moto_bucket.write(prefix, FILES)
    location = locate(url)
    store = location.in_store()
    assert store is not None
    objects, swaps, lost = store.storage.objects, itertools.count(1), [False]

    def plan(number: int, name: str) -> str | None:
        if lost[0]:
            lost[0] = False
            seen = read_head(objects, head_key(location.root))
            assert seen is not None
            assert Finisher(store, objects, Runtime()).finish_commit(seen).text.startswith("finished the commit")
        lost[0] = name == "put_if" and next(swaps) == 5
        return "lost, done" if lost[0] else None

    with faulty(plan):
        merge("pyarrow", url)
    assert counted(moto_bucket.rows(prefix)) == NEW
    assert moto_bucket.litter(prefix) == []


def test_a_store_that_is_silent_from_the_commit_on(moto_bucket: Bucket, quick_lease: Any, prefix: str) -> None:
    """It is unknown whether the commit is recorded, and the error says so. The next writer sees it."""
    url = moto_bucket.write(prefix, FILES)
    swaps = itertools.count(1)
    silent = [False]

    def plan(number: int, name: str) -> str | None:
        if name == "put_if" and next(swaps) == 5:
            silent[0] = True
            return "lost, done"
        return "lost, not done" if silent[0] else None

    with faulty(plan), pytest.raises(CommitUnfinishedError, match=r"is unknown whether.*before you repeat it"):
        merge("pyarrow", url)
    (said,) = fsspeckit.recover(url)
    assert said.startswith("finished the commit") and "7 file(s) put in place, 5 removed" in said
    assert counted(moto_bucket.rows(prefix)) == NEW
    assert moto_bucket.litter(prefix) == []


def test_throttled_and_failing_servers_are_asked_again(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    """Every fourth request meets 503, 500, a reset, or an answer that is lost although the request was done."""
    url = moto_bucket.write(prefix, FILES)
    faults = itertools.cycle(["503", None, None, None, "500", None, None, "reset", None, None, "lost", None])
    moto.fault = lambda asked: next(faults)
    result = merge("pyarrow", url)
    moto.fault = None
    assert (result.updated, result.inserted) == (5, 4)
    assert counted(moto_bucket.rows(prefix)) == NEW
    assert moto_bucket.litter(prefix) == []


def test_an_upload_that_fails_half_way(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    """Nothing is changed, and the other uploads are given up."""
    url = moto_bucket.write(prefix, FILES)
    parts = itertools.count(1)

    def fault(asked: Request) -> str | None:
        return "500" if "partNumber" in asked.query and next(parts) > 3 else None

    moto.fault = fault
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError, match="Nothing was changed"):
        patch.setattr(client, "_ATTEMPTS", 2)
        merge("pyarrow", url)
    moto.fault = None
    assert counted(moto_bucket.rows(prefix)) == OLD
    assert moto_bucket.litter(prefix) == []


def test_uploads_that_a_lifecycle_rule_aborted(moto_bucket: Bucket, quick_lease: Any, prefix: str) -> None:
    """No file is removed; the error says what happened, and `--discard` gives the commit up."""
    url = moto_bucket.write(prefix, FILES)
    plan = by_swap(5, "die after")
    with faulty(plan), pytest.raises(Killed):
        merge("pyarrow", url)
    uploads = moto_bucket.client.list_multipart_uploads(Bucket=moto_bucket.name, Prefix=f"{prefix}/")["Uploads"]
    assert len(uploads) == 7
    moto_bucket.client.abort_multipart_upload(
        Bucket=moto_bucket.name, Key=uploads[0]["Key"], UploadId=uploads[0]["UploadId"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_ATTEMPTS", 2)  # moto answers 500 to it
        with pytest.raises((CommitUnfinishedError, StorageError)):
            fsspeckit.recover(url)
        with pytest.raises(DatasetMergeError):
            merge("duckdb", url)
    assert set(counted(moto_bucket.rows(prefix))) >= set(OLD)
    (said,) = fsspeckit.recover(url, discard=True)
    assert said.startswith("gave up the commit") and said.endswith("file(s) removed again, no other file was changed")
    assert counted(moto_bucket.rows(prefix)) == OLD
    assert moto_bucket.litter(prefix) == []
    assert merge("duckdb", url).updated == 5


@pytest.mark.parametrize("call", ["get", "complete"])
def test_a_commit_that_is_given_up_while_its_writer_is_paused(
    moto_bucket: Bucket, quick_lease: Any, prefix: str, call: str
) -> None:
    """`--discard` waits for the lease's time, since a writer may be active. One that paused longer gets an error."""
    url = moto_bucket.write(prefix, FILES)
    said: list[str] = []
    swaps = itertools.count(1)
    committed = [False]

    def plan(number: int, name: str) -> None:
        if committed[0] and name == call and not said:
            said.append("")
            said[:] = fsspeckit.recover(url, discard=True)
        committed[0] |= name == "put_if" and next(swaps) == 5

    with faulty(plan), pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_ATTEMPTS", 2)  # moto answers 500 to uploads that are gone
        with pytest.raises(DatasetMergeError, match=r"was discarded in the meantime.*None of its rows are there"):
            merge("pyarrow", url)
    assert said[0].startswith("gave up the commit")
    assert counted(moto_bucket.rows(prefix)) == OLD
    assert moto_bucket.litter(prefix) == []
    assert merge("duckdb", url).updated == 5


def test_uploads_of_others_are_left_alone(moto_bucket: Bucket, quick_lease: Any, prefix: str) -> None:
    """Even under names as ours: only those are given up that an intent names."""
    url = moto_bucket.write(prefix, FILES)
    for name in ("theirs.parquet", "f1.fk01234567.parquet", "part-0123456789ab-00000.parquet"):
        moto_bucket.client.create_multipart_upload(Bucket=moto_bucket.name, Key=f"{prefix}/{name}")
    with faulty(lambda n, name: "die after" if name == "put_part" else None), pytest.raises(Killed):
        merge("pyarrow", url)
    assert len(moto_bucket.uploads(prefix)) > 3
    merge("duckdb", url)
    assert len(moto_bucket.uploads(prefix)) == 3
    assert counted(moto_bucket.rows(prefix)) == NEW


def test_a_foreign_program_that_writes_meanwhile(moto_bucket: Bucket, prefix: str) -> None:
    """A file that is new, gone, or replaced by one of the same size: the merge is refused, nothing is changed."""
    url = moto_bucket.write(prefix, FILES)
    other = FILES["f5.parquet"].set_column(1, "x", pa.array(["odd"] * 10))

    def put(files: dict[str, pa.Table]) -> Callable[[], Any]:
        return lambda: moto_bucket.write(prefix, files)

    for change in (
        put({"new.parquet": other}),
        put({"f5.parquet": other}),
        lambda: moto_bucket.delete(f"{prefix}/f0.parquet"),
    ):
        lists = itertools.count(1)

        def plan(number: int, name: str, change: Any = change, lists: Any = lists) -> None:
            if name == "create_upload" and next(lists) == 3:
                change()

        with faulty(plan), pytest.raises(fsspeckit.DatasetMergeError, match="The target changed while the merge"):
            merge("pyarrow", url)
        assert moto_bucket.litter(prefix) == []
    assert [r["x"] for r in moto_bucket.rows(prefix) if r["id"] == 50] == ["odd", "odd"]


def test_an_expired_credential(moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = moto_bucket.write(prefix, FILES)
    refusal = ClientError(
        {"Error": {"Code": "ExpiredToken", "Message": "The provided token has expired."},
         "ResponseMetadata": {"HTTPStatusCode": 400}}, "UploadPart"
    )  # fmt: skip

    def put_part(self: Any, key: str, *rest: Any) -> str:
        raise self._store_error(refusal, "write", key) from None

    monkeypatch.setattr(client.S3Objects, "put_part", put_part)
    with pytest.raises(StorageError, match=r"ExpiredToken The provided token has expired.* Nothing was changed"):
        merge("pyarrow", url)
    assert counted(moto_bucket.rows(prefix)) == OLD
    assert moto_bucket.litter(prefix) == []


def test_attempts_that_do_not_count(moto_bucket: Bucket, prefix: str) -> None:
    """A task that was tried twice, on executors, has two uploads to one key: the one without a receipt is given up."""
    url = moto_bucket.write(prefix, {"f.parquet": FILES["f0.parquet"]})
    location = locate(url)
    with writing(location) as session:
        infos = list_files(location)
        staging = session.stage([""])
        body = moto_bucket.get(f"{prefix}/f.parquet")
        staged = []
        for attempt in ("file-1", "file-2"):
            executor = pickle.loads(pickle.dumps(location.storage))
            with executor.open_output(f"{staging}/{attempt}", "new.parquet") as file:
                file.write(body)
            staged.append(
                Staged(attempt, "new.parquet", 10, len(body), receipt=executor.receipt(f"{staging}/{attempt}"))
            )
        with location.storage.open_output(f"{staging}/scratch") as scratch:
            scratch.write(b"rows of the source")
        assert len(moto_bucket.uploads(prefix)) == 2
        inside = replace(location, root=staging)
        (footer,) = read_footers(inside, [FileInfo("file-2", len(body), 0)], ())
        assert footer.rows == 10, "the driver can check what an executor wrote"
        session.commit(staged[1:], [], infos)
    assert len(moto_bucket.rows(prefix)) == 20
    assert moto_bucket.litter(prefix) == []


def test_a_file_that_is_begun_twice(moto_bucket: Bucket, prefix: str) -> None:
    """Its rows do not fit the file's own type, which is seen when it is half written: one upload, not two."""
    narrow = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())})
    url = moto_bucket.write(prefix, {"f0.parquet": narrow, "f1.parquet": pa.table({"id": [5], "v": [2]})})
    dataset_io("pyarrow").merge(pa.table({"id": [1], "v": [2**40]}), url, "upsert", ["id"])
    assert moto_bucket.litter(prefix) == []
    assert sorted(row["v"] for row in moto_bucket.rows(prefix)) == [2, 2**40]


def test_what_executors_began_goes_with_the_session(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, {"f.parquet": FILES["f0.parquet"]})
    location = locate(url)
    with pytest.raises(RuntimeError), writing(location) as session:
        executor = pickle.loads(pickle.dumps(location.storage))
        executor.open_output(f"{session.stage([''])}/file-1", "new.parquet").write(b"x")
        raise RuntimeError("the task failed")
    assert moto_bucket.litter(prefix) == []
    assert fsspeckit.recover(url) == []
