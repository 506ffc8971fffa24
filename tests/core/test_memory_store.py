"""An object store in a dict: the core needs no more of a store than these sixty lines, and one entry in `SCHEMES`."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.commit.session import unfinished, writing
from fsspeckit.core.errors import DatasetLockedError, StorageError
from fsspeckit.core.storage import Location, StoreStorage, locate
from fsspeckit.core.storage.location import SCHEMES, in_bucket
from fsspeckit.core.storage.objects import Entry, MissingError, ObjectChangedError, Objects, Upload


class DictObjects:
    """One bucket. See `core.storage.objects.Objects`. A version number is the ETag of an object."""

    endpoint = "this process"

    def __init__(self, bucket: str) -> None:
        self.place = f"dict://{bucket}"
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.uploads: dict[Upload, dict[int, bytes]] = {}
        self._numbers = itertools.count()

    def get(self, key: str) -> tuple[bytes, str] | None:
        return self.objects.get(key)

    def put(self, key: str, data: Any) -> None:
        self.objects[key] = (data if isinstance(data, bytes) else data.read(), str(next(self._numbers)))

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        if (self.objects[key][1] if key in self.objects else None) != etag:
            return None
        self.put(key, data)
        return self.objects[key][1]

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        data, version = self.objects.get(key, (b"", ""))
        if version != etag:
            raise ObjectChangedError(key)
        return data[start:end]

    def read_tail(self, key: str, count: int) -> tuple[bytes, Entry]:
        entry = self.stat(key)
        if entry is None:
            raise MissingError(key)
        return self.objects[key][0][-count:], entry

    def stat(self, key: str) -> Entry | None:
        return next((entry for entry in self._entries() if entry.key == key), None)

    def list_all(self, prefix: str) -> list[Entry]:
        return [entry for entry in self._entries() if entry.key.startswith(f"{prefix}/")]

    def list_names(self, prefix: str) -> list[str]:
        return sorted({entry.key[len(prefix) + 1 :].partition("/")[0] for entry in self.list_all(prefix)})

    def _entries(self) -> list[Entry]:
        return [Entry(key, len(data), etag) for key, (data, etag) in sorted(self.objects.items())]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def copy_object(self, source: str, target: str, etag: str) -> None:
        found = self.get(source)
        if found is None or found[1] != etag:
            raise ObjectChangedError(f"{source} is another object now")
        self.put(target, found[0])

    def create_upload(self, key: str) -> str:
        upload_id = f"upload-{next(self._numbers)}"
        self.uploads[Upload(key, upload_id)] = {}
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
        self.uploads[Upload(key, upload_id)][number] = data
        return f"part-{number}"

    def complete(self, upload: Upload) -> str | None:
        parts = self.uploads.pop(Upload(upload.key, upload.upload_id), None)
        if parts is None:
            return None
        self.put(upload.key, b"".join(parts[number] for number in sorted(parts)))
        return self.objects[upload.key][1]

    def abort(self, upload: Upload) -> None:
        self.uploads.pop(Upload(upload.key, upload.upload_id), None)

    def list_uploads(self, key: str) -> list[Upload]:
        return [upload for upload in self.uploads if upload.key == key]


# The tests

NEW = {3: "A", 22: "B", 99: "C"}
ROWS = pa.table({"id": list(NEW), "x": list(NEW.values())})


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> DictObjects:
    """A bucket with a lake of four files, and the scheme that leads to it."""
    made = DictObjects("bucket")
    checked: Objects = made

    def open_url(url: str, storage_options: Mapping[str, Any] | None) -> Location:
        return in_bucket("dict", url, lambda name, whole: StoreStorage(checked))

    monkeypatch.setitem(SCHEMES, "dict", open_url)
    for i in range(4):
        file = io.BytesIO()
        table = pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10})
        pq.write_table(table, file, row_group_size=5)
        made.put(f"lake/f{i}.parquet", file.getvalue())
    return made


def rows_of(bucket: DictObjects) -> dict[int, str]:
    files = [data for key, (data, _) in bucket.objects.items() if key.startswith("lake/")]
    rows = [row for data in files for row in pq.read_table(io.BytesIO(data)).to_pylist()]
    found = {row["id"]: row["x"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_merge(bucket: DictObjects) -> None:
    before = dict(bucket.objects)
    plan = fsspeckit.plan(ROWS, "dict://bucket/lake", strategy="upsert", key_columns=["id"])
    assert bucket.objects == before
    result = fsspeckit.merge(ROWS, "dict://bucket/lake", strategy="upsert", key_columns=["id"])
    assert (plan.inserted, plan.updated) == (result.inserted, result.updated) == (1, 2)
    assert rows_of(bucket) == dict.fromkeys(range(40), "old") | NEW
    kept = {"lake/f1.parquet", "lake/f3.parquet"}
    assert {key: bucket.objects[key] for key in kept} == {key: before[key] for key in kept}
    assert not kept.isdisjoint(bucket.objects) and before.keys() - bucket.objects.keys() == before.keys() - kept
    assert [key for key in bucket.objects if not key.startswith("lake/")] == [".fsspeckit-lake/head"]
    assert bucket.uploads == {}
    assert fsspeckit.read("dict://bucket/lake").num_rows == 41


def test_a_session_that_ends_without_a_commit_leaves_nothing(bucket: DictObjects) -> None:
    before, location = rows_of(bucket), locate("dict://bucket/lake")
    with writing(location) as session:
        with location.storage.open_output(f"{session.stage([''])}/file", "new.parquet") as file:
            file.write(b"rows")
        with pytest.raises(DatasetLockedError, match="locked by process"), writing(location, lock_timeout=0):
            pass
    assert rows_of(bucket) == before
    assert bucket.uploads == {} and unfinished(location) == []
    assert [key for key in bucket.objects if not key.startswith("lake/")] == [".fsspeckit-lake/head"]


def test_a_store_that_ignores_conditions_is_refused(bucket: DictObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_always(self: DictObjects, key: str, data: bytes, etag: str | None) -> str:
        self.put(key, data)
        return self.objects[key][1]

    monkeypatch.setattr(DictObjects, "put_if", put_always)
    before = dict(bucket.objects)
    with pytest.raises(StorageError, match="dict://bucket ignores conditions on writes"):
        fsspeckit.merge(ROWS, "dict://bucket/lake", strategy="upsert", key_columns=["id"])
    assert bucket.objects == before


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dict:bucket/lake", "names no bucket. Write dict://bucket/folder"),
        ("dict://bucket", "is a bucket's root"),
        ("dict://user@bucket/lake", "give them as storage_options"),
        ("dict://bucket/a/../lake", "has a folder that is empty"),
    ],
)
def test_paths_that_are_refused(bucket: DictObjects, url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        locate(url)
