"""What surrounds a process: variables meant for other programs, credentials that cannot be had, forks, policies."""

from __future__ import annotations

import multiprocessing
import os
import queue
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.commit import forget
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import StorageError
from fsspeckit.core.storage.s3 import S3Objects
from fsspeckit.core.storage.s3_options import S3Options
from s3 import servers
from s3.bucket import Bucket
from s3.servers import BUCKET, KEY, SECRET, Moto, Request

TABLE = pa.table({"id": [1, 2], "x": ["a", "b"]})
SOURCE = pa.table({"id": [2, 3], "x": ["B", "c"]})
# Meant for other programs.
OTHERS = {
    "AWS_SESSION_TOKEN": "of-other-keys",
    "AWS_CONDITIONAL_PUT": "disabled",
    "AWS_SKIP_SIGNATURE": "true",
    "AWS_S3_EXPRESS": "true",
}


def merge(url: str, **options: Any) -> Any:
    return dataset_io("pyarrow", storage_options=options or None).merge(SOURCE, url, "upsert", ["id"])


@pytest.mark.parametrize("name", OTHERS)
def test_variables_of_other_programs(
    moto: Moto, moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Keys that are given are used without a token of the environment, and obstore's own settings are ours."""
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    monkeypatch.setenv(name, OTHERS[name])
    moto.requests.clear()
    assert merge(url, **servers.options(moto.endpoint)).updated == 1
    assert {asked.token for asked in moto.requests} == {""}


@pytest.fixture
def profiles(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing but a file of profiles tells of the store."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(
        f"""[profile lake]
aws_access_key_id = {KEY}
aws_secret_access_key = {SECRET}
services = local
[services local]
s3 =
  endpoint_url = {moto.endpoint}
[profile role]
role_arn = arn:aws:iam::123456789012:role/nobody
source_profile = lake
endpoint_url = {moto.endpoint}
[profile program]
credential_process = /bin/false
[profile file]
role_arn = arn:aws:iam::123456789012:role/nobody
web_identity_token_file = {tmp_path}/gone
"""
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return tmp_path


def test_a_profile_that_names_the_endpoint_of_one_service(moto_bucket: Bucket, prefix: str, profiles: Path) -> None:
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    assert merge(url, profile="lake").updated == 1


@pytest.mark.parametrize("profile", ["role", "program", "file"])
def test_credentials_that_cannot_be_had(profiles: Path, profile: str) -> None:
    url = f"s3://{BUCKET}/nowhere/lake"
    for call in (merge, lambda u, **o: fsspeckit.read(u, storage_options=o)):
        with pytest.raises(StorageError, match=f"cannot find credentials for s3://{BUCKET}: "):
            call(url, profile=profile)


def test_our_own_variables_are_not_said_to_be_ignored() -> None:
    """fsspec takes every variable that begins with its name for its own, and warns."""
    given = {**os.environ, "FSSPECKIT_LEASE": "30"}
    done = subprocess.run(
        [sys.executable, "-c", "from fsspeckit import merge"], env=given, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_file_of_credentials_is_no_answer_of_the_store() -> None:
    """Else uploads of a commit would be taken for gone, and old files for removed."""
    objects = S3Objects("b", S3Options.of({"key": "a-key-1", "secret": "a-secret"}))
    error = objects._store_error(FileNotFoundError(2, "No such file", "/token"), "complete", "lake/f")
    assert isinstance(error, PermissionError)


def test_a_store_that_nobody_answers_for(moto: Moto) -> None:
    options = {**servers.options("http://127.0.0.1:9")}
    start = time.monotonic()
    with pytest.raises(StorageError, match=r"no connection to http://127\.0\.0\.1:9: Connection refused"):
        fsspeckit.read("s3://b/lake", storage_options=options)
    assert time.monotonic() - start < 30


def test_a_store_that_lets_everyone_wait(moto: Moto) -> None:
    """It takes the connection, and says nothing more: asked again, but not for seven times the time of a request."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        options = servers.options(f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        with pytest.raises(StorageError, match="it took too long"):
            fsspeckit.read("s3://b/lake", storage_options={**options, "timeout": 1.5})
        assert time.monotonic() - start < 8


def _child(url: str, said: Any) -> None:
    try:
        said.put(fsspeckit.read(url).num_rows)
    except Exception as error:
        said.put(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(moto_bucket: Bucket, prefix: str, method: Any) -> None:
    """obstore's threads do not come along with a fork: an error, where there was no end of waiting."""
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    assert fsspeckit.read(url).num_rows == 2
    context = multiprocessing.get_context(method)
    said = context.Queue()
    child = context.Process(target=_child, args=(url, said), daemon=True)
    child.start()
    try:
        answer = said.get(timeout=60)
    except queue.Empty:
        answer = "nothing"
    finally:
        child.kill()
    if method == "spawn":
        assert answer == 2
    else:
        assert answer.startswith("StorageError: ") and 'start processes by "spawn"' in answer


def test_who_may_not_list_uploads(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    """A merge goes through; one that fails gives up what it began, and keeps nobody waiting."""
    url = moto_bucket.write(prefix, {"f.parquet": TABLE, "g.parquet": pa.table({"id": [9], "x": ["z"]})})

    def fault(asked: Request) -> str | None:
        if asked.method == "GET" and "uploads" in asked.query:
            return "403 AccessDenied"
        return "400 InvalidRequest" if refuses_parts and "partNumber" in asked.query else None

    refuses_parts = True
    moto.fault = fault
    with pytest.raises(StorageError, match=r"InvalidRequest.*Nothing was changed"):
        merge(url)
    moto.fault = None
    assert moto_bucket.uploads(prefix) == []
    assert b'"state": "free"' in moto_bucket.get(f"{prefix.partition('/')[0]}/.fsspeckit-lake/head")
    assert merge(url).updated == 1
    refuses_parts, moto.fault = False, fault
    assert merge(url).updated == 2
    moto.fault = None
    assert moto_bucket.litter(prefix) == []


def test_a_clock_that_is_an_hour_off(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    url = moto_bucket.write(prefix, {"f.parquet": TABLE})
    before = moto_bucket.etags("")
    moto.fault = lambda asked: "403 RequestTimeTooSkewed"
    for call in (merge, fsspeckit.read, fsspeckit.recover):
        with pytest.raises(StorageError, match=r"RequestTimeTooSkewed|403 Forbidden"):
            call(url)
    moto.fault = None
    assert moto_bucket.etags("") == before


def test_names_that_stores_and_urls_write_otherwise(bucket: Bucket, prefix: str) -> None:
    """Blanks, `+`, `%2F`, what XML escapes: every client writes such keys in its own way."""
    for name in ("a+b", "a%2Fb", "a b", "ünï", "k=v", "a&b<c>", "a#b?c", "100%", "'\"`"):
        lake = f"{prefix}-{name}/lake"
        url = bucket.write(lake, {f"f {name}.parquet": TABLE})
        result = dataset_io("duckdb").merge(SOURCE, url, "upsert", ["id"])
        assert (result.updated, result.inserted) == (1, 1)
        assert sorted(row["x"] for row in bucket.rows(lake)) == ["B", "a", "c"]
        assert bucket.litter(lake) == [] and fsspeckit.recover(url) == []


def test_folder_marks_and_files_of_other_programs(bucket: Bucket, prefix: str) -> None:
    """Empty objects that consoles make for folders, also for ours; they stay, and so does a neighbour of like name."""
    url = bucket.write(prefix, {"day=1/f.parquet": TABLE})
    neighbour = bucket.write(f"{prefix}house", {"f.parquet": TABLE})
    folder, _, name = prefix.rpartition("/")
    for key in (f"{prefix}/", f"{prefix}/day=1/", f"{prefix}/day=2/", f"{folder}/.fsspeckit-{name}/"):
        bucket.client.put_object(Bucket=bucket.name, Key=key)
    for key in ("_SUCCESS", "_temporary/0/x.parquet", "day=1/.f.parquet.crc", "notes.txt"):
        bucket.put(f"{prefix}/{key}", b"theirs")
    before = bucket.etags(f"{folder}/")
    source = SOURCE.append_column("day", pa.array([1, 2]))
    result = dataset_io("pyarrow").merge(source, url, "upsert", ["id"], ["day"])
    assert (result.updated, result.inserted) == (1, 1)
    assert before.keys() - bucket.etags(f"{folder}/").keys() == {f"{prefix}/day=1/f.parquet"}
    assert fsspeckit.recover(url) == []
    assert fsspeckit.read(neighbour).num_rows == 2


def test_a_stream_that_is_forgotten(moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files without its entry get new names, as all rewritten files in a store."""
    url, io = moto_bucket.write(prefix, {"f.parquet": TABLE}), dataset_io("pyarrow")
    io.merge(SOURCE, url, "upsert", ["id"], batch=Batch("orders", 0, "q"))
    before = sorted(map(repr, moto_bucket.rows(prefix)))
    later = time.time() + 8 * 86_400
    monkeypatch.setattr(forget, "time", SimpleNamespace(time=lambda: later))
    (said,) = fsspeckit.recover(url, forget_stream="orders")
    assert said == "Forgot the stream 'orders'; its entry was in 2 file(s)."
    assert sorted(map(repr, moto_bucket.rows(prefix))) == before
    with pytest.raises(fsspeckit.MergeValidationError, match=r"no stream 'orders'\. It has none"):
        fsspeckit.recover(url, forget_stream="orders")
    assert moto_bucket.litter(prefix) == []
