"""What is refused on stores, in whose words, and that nothing was written."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import ArgumentError, DatasetLockedError, StorageError, TargetError
from fsspeckit.core.storage import StoreStorage, locate
from fsspeckit.core.storage.s3 import S3Objects
from fsspeckit.core.storage.s3_options import S3Options
from s3 import servers
from s3.bucket import Bucket
from s3.servers import BUCKET, KEY, SECRET, Moto

TABLE = pa.table({"id": [1, 2], "x": ["a", "b"]})


def merge(url: str, engine: str = "pyarrow", **options: Any) -> Any:
    return dataset_io(engine).merge(TABLE, url, "upsert", ["id"], **options)


def test_a_store_that_ignores_conditions(rclone_server: str, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    for name, value in servers.environment(rclone_server).items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(servers.client_of(rclone_server))
    url = bucket.write(prefix, {"f.parquet": TABLE})
    before = bucket.etags("")
    for call in (merge, lambda u: merge(u, "duckdb"), lambda u: dataset_io("pyarrow").write_dataset(TABLE, u)):
        with pytest.raises(StorageError, match=r"ignores conditions on writes.*Nothing was written"):
            call(url)
    assert bucket.etags("") == before
    assert dataset_io("pyarrow").read(url).num_rows == 2, "it can be read"


@pytest.mark.parametrize("url", ["s3://lake-test", "s3://lake-test/", "s3a://lake-test//"])
def test_the_root_of_a_bucket(moto_bucket: Bucket, url: str) -> None:
    for call in (merge, dataset_io("duckdb").read, fsspeckit.recover):
        with pytest.raises(TargetError, match="is a bucket's root"):
            call(url)


def test_data_sets_inside_each_other(moto_bucket: Bucket, prefix: str) -> None:
    """A head above or below."""
    assert merge(f"s3://{BUCKET}/{prefix}/inner").inserted == 2
    before = moto_bucket.etags(prefix)
    with pytest.raises(TargetError, match=r"holds \.fsspeckit-inner, the head of a data set inside it.* Nothing was"):
        dataset_io("pyarrow").write_dataset(TABLE, f"s3://{BUCKET}/{prefix}")
    with pytest.raises(TargetError, match=rf"lies inside s3://{BUCKET}/{prefix}/inner, which is a data set"):
        merge(f"s3://{BUCKET}/{prefix}/inner/deep/est")
    assert moto_bucket.etags(f"{prefix}/") == {k: v for k, v in before.items() if k.startswith(f"{prefix}/")}


def test_patterns(moto_bucket: Bucket, prefix: str) -> None:
    """A name with `*` is a name like any other, unless it is meant for what is there."""
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    before = moto_bucket.etags("")
    with pytest.raises(TargetError, match="is a pattern"):
        merge(f"{url}/*.parquet")
    assert moto_bucket.etags("") == before
    assert merge(f"{url}-*").inserted == 2


def test_in_place(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, {"f.parquet": TABLE.set_column(1, "x", pa.array(["old", "old"]))})
    before = moto_bucket.etags(prefix)
    with pytest.raises(ArgumentError, match="in an object store a file is not written in place"):
        merge(url, replace="in_place")
    assert {k: v for k, v in moto_bucket.etags(prefix).items() if "fsspeckit" not in k} == before
    assert moto_bucket.litter(prefix) == []


@pytest.mark.parametrize("url", ["gs://b/lake", "gcs://b/lake", "az://c/lake", "abfss://c@a/lake", "s3n://b/lake"])
def test_other_stores_are_refused_before_any_connection(url: str) -> None:
    scheme = url.partition(":")[0]
    for call in (merge, dataset_io("duckdb").read, fsspeckit.recover, locate):
        with pytest.raises(ArgumentError, match=rf"Cannot reach {scheme}:.*: {scheme}: is not supported"):
            call(url)


def test_a_store_that_cannot_be_reached_or_has_no_such_bucket(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="the bucket s3://nobody-has-it does not exist"):
        merge("s3://nobody-has-it/lake")
    with pytest.raises(StorageError, match="the bucket s3://nobody-has-it does not exist"):
        dataset_io("pyarrow").read("s3://nobody-has-it/lake")
    monkeypatch.setattr("fsspeckit.core.storage.s3._ATTEMPTS", 2)
    options = {"endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    from fsspeckit.core.dataset.listing import list_files

    with pytest.raises(StorageError, match="Cannot list s3://b/lake: cannot list s3://b/lake: no connec"):
        list_files(locate("s3://b/lake", storage_options=options))


def test_no_credentials(tmp_path: Path) -> None:
    code = "import fsspeckit, pyarrow as pa; fsspeckit.merge(pa.table({'id': [1]}), 's3://b/lake', 'upsert', ['id'])"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | nowhere)
    assert "StorageError: No credentials for s3://b. Set AWS_ACCESS_KEY_ID" in done.stderr
    assert "botocore" not in done.stderr


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"endpiont": "x"}, "Unknown storage option 'endpiont' for s3://"),
    "half a key": ({"key": "AK"}, "access_key_id and secret_access_key together"),
    "plain http": ({"endpoint": "http://h:1"}, "http://h:1 is not encrypted"),
    "no url": ({"endpoint": "h:1"}, "endpoint is not a URL"),
    "switch": ({"allow_http": "perhaps"}, "allow_http is true or false"),
    "seconds": ({"lease": "long"}, "number of seconds"),
    "keys in it": ({"endpoint": "https://me:word@h"}, "Credentials do not belong in the endpoint"),
    "beat": ({"lease": 5, "heartbeat": 6}, "must be shorter than lease"),
}


@pytest.mark.parametrize("options,words", OPTIONS.values(), ids=OPTIONS)
def test_storage_options(options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ArgumentError, match=words):
        locate("s3://b/lake", storage_options=options)


@pytest.mark.parametrize("path", ["s3:lake", "s3:/b/lake", "s3:///lake", "s3://b/a//b", "s3://b/../a", "s3://b/a\nb"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(ArgumentError):
        locate(path)


def test_credentials_do_not_belong_into_a_path() -> None:
    with pytest.raises(ArgumentError) as problem:
        locate("s3://AKIA:topsecret@bucket/lake")
    assert "topsecret" not in str(problem.value)


def test_storage_options_and_s3a(moto: Moto, moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is needed can be given, and `s3a` means the same."""
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    given = {"endpoint": moto.endpoint, "region": "us-east-1", "key": KEY, "secret": SECRET, "allow_http": True}
    from fsspeckit.core.dataset.listing import list_files

    for path in (url, url.replace("s3:", "s3a:")):
        location = locate(path, storage_options=given)
        assert [f.path for f in list_files(location)] == ["f.parquet"]
        assert location.shown == url


def test_a_profile(
    moto: Moto, moto_bucket: Bucket, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    (tmp_path / "config").write_text(f"[profile lake]\nregion = us-east-1\nendpoint_url = {moto.endpoint}\n")
    (tmp_path / "keys").write_text(f"[lake]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    location = locate(url, storage_options={"profile": "lake"})
    assert [f.path for f in location.storage.walk(location.root)] == ["f.parquet"]
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert merge(url).updated == 2


def test_an_s3fs_file_system(moto: Moto, moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")
    from fsspec.implementations.dirfs import DirFileSystem

    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    fs = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=moto.endpoint)
    for filesystem, path in ((fs, url), (fs, f"{BUCKET}/{prefix}"), (DirFileSystem(f"{BUCKET}/{prefix}", fs), "")):
        if path:
            assert fsspeckit.merge(TABLE, path, "upsert", ["id"], filesystem=filesystem).updated == 2
        location = locate(path or "/", filesystem)
        assert isinstance(location.storage, StoreStorage) and location.shown == url
    assert len(moto_bucket.rows(prefix)) == 2


def test_a_writer_that_holds_the_data_set(moto_bucket: Bucket, prefix: str) -> None:
    from fsspeckit.core.commit.session import writing

    url = f"s3://{BUCKET}/{prefix}"
    said = rf"is locked by process {os.getpid()} on .*; waited 0.3 s"
    with writing(locate(url)), pytest.raises(DatasetLockedError, match=said):
        merge(url, lock_timeout=0.3)
    assert merge(url, lock_timeout=0.3).inserted == 2


def test_a_damaged_head(moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    folder, _, name = prefix.rpartition("/")
    journal = {"additions": [], "removals": [{"path": "../x.parquet", "etag": ""}]}
    reaching = {"format": 1, "state": "committed", "session": "s", "nonce": "n", "lease": 1, "owner": {}}
    heads = [b"", b"[]", b'{"format": 2}', b"\xff", json.dumps({**reaching, "journal": journal}).encode()]
    nothing: dict[str, Any] = {"additions": [], "removals": []}
    heads += [json.dumps({**reaching, "session": s, "journal": nothing}).encode() for s in ("", "a/b", "..")]
    for body in heads:
        moto_bucket.put(f"{folder}/.fsspeckit-{name}/head", body)
        with pytest.raises(fsspeckit.DatasetMergeError, match=r"head object .* cannot be used"):
            merge(url)
        with pytest.raises(fsspeckit.DatasetMergeError, match=r"head object .* cannot be used"):
            fsspeckit.recover(url)
    assert len(moto_bucket.rows(prefix)) == 2


def test_a_lease_in_another_form(moto_bucket: Bucket, prefix: str) -> None:
    """The message names the holder as far as it is known. A lease that is no number has expired."""
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    folder, _, name = prefix.rpartition("/")
    leased = {"format": 1, "state": "leased", "session": "s", "nonce": "n", "lease": 3, "owner": {}, "journal": None}
    for who in ({}, {"since": "x", "process": 1, "host": "h"}, {"since": 1e300, "process": 1, "host": "h"}, {"x": 1}):
        moto_bucket.put(f"{folder}/.fsspeckit-{name}/head", json.dumps({**leased, "owner": who}).encode())
        with pytest.raises(DatasetLockedError, match="is locked by another process; waited 0 s"):
            merge(url, lock_timeout=0)
    moto_bucket.put(f"{folder}/.fsspeckit-{name}/head", json.dumps({**leased, "lease": float("nan")}).encode())
    assert merge(url, lock_timeout=0).updated == 2


def test_options_do_not_show_credentials() -> None:
    options = S3Options.of({"key": KEY, "secret": SECRET, "token": "a-token"})
    location = locate("s3://b/lake", storage_options={"key": KEY, "secret": SECRET})
    assert isinstance(location.storage, StoreStorage)
    for shown in (repr(options), repr(location), repr(location.storage), repr(location.storage.objects), str(options)):
        assert SECRET not in shown and KEY not in shown and "a-token" not in shown
    objects = location.storage.objects
    assert isinstance(objects, S3Objects)
    again = pickle.loads(pickle.dumps(location))
    assert again.storage.objects.options == objects.options, "executors get what they need"
