"""A network that fails, and stores that refuse: the first error is reported, and no file is called damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.commit.head import Addition
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError, StorageError
from fsspeckit.core.storage import object_files
from fsspeckit.core.storage import s3 as client
from fsspeckit.core.storage.object_files import UploadFile
from fsspeckit.core.storage.objects import Entry
from s3 import servers
from s3.bucket import Bucket, counted
from s3.faulty import Killed
from s3.memory import MemoryObjects
from s3.proxy import Asked, Proxy
from s3.test_faults import FILES, OLD, by_swap, faulty, merge


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_a_network_that_fails_while_footers_are_read(
    name: str, proxy: Proxy, bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damaged file: no message asks to remove one."""
    monkeypatch.setattr(client, "_ATTEMPTS", 2)
    monkeypatch.setattr(object_files, "TAILS", object_files.Tails())
    url = bucket.write(prefix, FILES)
    io = dataset_io(name)
    source = FILES["f0.parquet"]
    calls: list[Callable[[], Any]] = [
        lambda: io.merge(source, url, "upsert", ["id"]),
        lambda: io.plan(source, url, "upsert", ["id"]),
        lambda: io.read(url),
    ]
    for fault, words in {"reset": "no connection to http", "503 SlowDown": "SlowDown", "403 No": "403|No"}.items():
        proxy.fault = lambda asked, fault=fault: fault if asked.method == "GET" and ".parquet" in asked.path else None
        for call in calls:
            with pytest.raises(StorageError, match=words) as problem:
                call()
            said = str(problem.value)
            assert f"s3://{bucket.name}/{prefix}" in said and "Restore or remove" not in said
    proxy.fault = None
    assert counted(bucket.rows(prefix)) == OLD and bucket.litter(prefix) == []


def test_an_overwrite_that_cannot_read_the_record_of_a_stream(
    proxy: Proxy, bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overwrite takes damaged files for files without a record. With a network that fails it must not: the record
    would be lost, and the stream's last batch would be merged twice."""
    monkeypatch.setattr(client, "_ATTEMPTS", 2)
    url, io, batch = bucket.write(prefix, FILES), dataset_io("pyarrow"), Batch("orders", 7, "q")
    data = FILES["f0.parquet"]
    io.merge(data.set_column(1, "x", [["streamed"] * len(data)]), url, "upsert", ["id"], batch=batch)
    before = bucket.etags(f"{prefix}/")
    for fault in ("reset", "503 SlowDown", "403 No"):
        monkeypatch.setattr(object_files, "TAILS", object_files.Tails())
        proxy.fault = lambda asked, fault=fault: fault if asked.method == "GET" and ".parquet" in asked.path else None
        with pytest.raises(StorageError, match=r"Cannot read .*\.parquet.*nothing was changed"):
            io.write_dataset(data, url, mode="overwrite")
        proxy.fault = None
        assert bucket.etags(f"{prefix}/") == before and bucket.litter(prefix) == []
    io.write_dataset(data, url, mode="overwrite")
    assert io.merge(FILES["f1.parquet"], url, "upsert", ["id"], batch=batch).inserted == 0
    assert counted(bucket.rows(prefix)) == counted(data.to_pylist())


def test_the_first_refusal_is_told_and_not_repeated(proxy: Proxy, bucket: Bucket, prefix: str) -> None:
    url = bucket.write(prefix, FILES)
    for code in ("AccessDenied", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "InvalidAccessKeyId"):
        proxy.fault = lambda asked, code=code: f"403 {code}" if asked.method in ("PUT", "POST", "DELETE") else None
        proxy.asked.clear()
        with pytest.raises(StorageError, match=rf"cannot write .*/probe-.*: {code}") as problem:
            merge("pyarrow", url)
        assert "delete" not in str(problem.value)
        assert [asked.method for asked in proxy.asked if asked.method != "HEAD"] == ["PUT"]
    proxy.fault = None
    assert counted(bucket.rows(prefix)) == OLD


def test_a_key_that_may_not_be_deleted(proxy: Proxy, bucket: Bucket, prefix: str) -> None:
    """Stores say so of each key, in an answer that says 200 as a whole. It is a refusal: nobody asks again."""
    url = bucket.write(prefix, FILES)

    def fault(asked: Asked) -> str | None:
        if asked.method != "POST" or "delete" not in asked.names:
            return None
        key = asked.body.decode().partition("<Key>")[2].partition("</Key>")[0]
        error = f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>No.</Message></Error>"
        return f"<DeleteResult>{error}</DeleteResult>"

    proxy.fault = fault
    with pytest.raises(StorageError, match=r"cannot delete .*/probe-.*: AccessDenied No\. Nothing was started"):
        merge("pyarrow", url)
    assert len([asked for asked in proxy.asked if "delete" in asked.names]) == 1


def test_a_wrong_secret(any_server: str, mirror_bucket: Bucket, prefix: str) -> None:
    """Not on moto, which takes every secret."""
    url = mirror_bucket.write(prefix, FILES)
    options = {**servers.options(any_server), "secret_access_key": "wrong"}
    with pytest.raises(StorageError, match=r"cannot write .*/probe-.*: SignatureDoesNotMatch"):
        dataset_io("pyarrow", storage_options=options).merge(FILES["f0.parquet"], url, "upsert", ["id"])


@pytest.mark.parametrize("option", ["token", "access_key_id"])
def test_what_obstore_panics_at_is_an_error_of_ours(option: str, endpoint: str, bucket: Bucket, prefix: str) -> None:
    """A header that cannot be sent: a line break at the end of a token, for example."""
    url = bucket.write(prefix, FILES)
    options = {**servers.options(endpoint), option: "broken\nword"}
    io = dataset_io("pyarrow", storage_options=options)
    for call in (lambda: io.merge(FILES["f0.parquet"], url, "upsert", ["id"]), lambda: io.read(url)):
        with pytest.raises(StorageError, match="obstore failed") as problem:
            call()
        assert isinstance(problem.value, DatasetMergeError) and "broken" not in str(problem.value)


def test_a_recovery_that_the_store_refuses(proxy: Proxy, bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    """Half-way: no message says that nothing was begun. The next writer carries the decision out."""
    url = bucket.write(prefix, FILES)
    with faulty(by_swap(5, "die after")), pytest.raises(Killed):
        merge("pyarrow", url)
    proxy.fault = lambda asked: "403 AccessDenied" if asked.method == "DELETE" else None
    with pytest.raises(CommitUnfinishedError, match=r"could not be given up: .*AccessDenied.*Remove the cause"):
        fsspeckit.recover(url, discard=True)
    proxy.fault = None
    (said,) = fsspeckit.recover(url)
    assert said.startswith("gave up the commit"), "it was decided"
    assert counted(bucket.rows(prefix)) == OLD and bucket.litter(prefix) == []


def test_etags_that_are_no_hashes() -> None:
    """Of encrypted objects, and in some stores: then what the store answered counts, or the size alone."""

    class Opaque(MemoryObjects):
        def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
            super().put_part(key, upload_id, number, data, md5)
            return '"opaque"'

    for objects, known in ((MemoryObjects(), True), (Opaque(), False)):
        with UploadFile(objects, "home/f.upload", "lake/f.parquet") as file:
            file.write(b"abc")
        assert file.upload is not None and bool(file.upload.etag) is known
        addition = Addition("f.parquet", file.upload.upload_id, file.upload.parts, 3, file.upload.etag)
        assert objects.complete(file.upload)
        made = objects.stat("lake/f.parquet")
        assert made is not None and addition.matches(made)
        other = Entry("lake/f.parquet", 3, '"of another"')
        assert addition.matches(other) is not known
        assert addition.matches(other, "of another") and addition.matches(other, "answered") is False
        assert not addition.matches(Entry("lake/f.parquet", 0, made.etag))
