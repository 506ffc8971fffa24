"""Credentials are in no object, message, log, repr or pickled error."""

from __future__ import annotations

import logging
import pickle
import traceback
import warnings
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.storage import s3 as client
from s3 import servers
from s3.bucket import Bucket
from s3.faulty import Killed
from s3.servers import KEY, SECRET, Moto
from s3.test_faults import FILES, by_swap, faulty

WRONG = "wrong-secret-that-nobody-may-see"


def full_text(error: BaseException) -> str:
    """All that a user, a log or another process gets to see of an error."""
    words = [str(error), repr(error), "".join(traceback.format_exception(error))]
    for link in (error, error.__cause__, error.__context__):
        if link is not None:
            words += [str(link), repr(vars(link)), repr(pickle.dumps(type(link)(str(link))))]
    return "\n".join(words) + repr(pickle.dumps(error))


def errors(url: str) -> list[BaseException]:
    """Errors of many kinds."""
    source = pa.table({"id": [1], "x": ["new"]})
    calls: list[Any] = [
        lambda: dataset_io("pyarrow").merge(source, url, "upsert", ["id"]),
        lambda: dataset_io("duckdb").merge(source, url, "upsert", ["id"]),
        lambda: dataset_io("pyarrow").read(url),
        lambda: dataset_io("duckdb").plan(source, url, "upsert", ["id"]),
        lambda: fsspeckit.recover(url),
    ]
    raised: list[BaseException] = []
    for call in calls:
        try:
            call()
        except Exception as error:
            raised.append(error)
    return raised


def test_no_secret_in_errors(
    seaweed_server: str, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a server that checks signatures: a wrong secret, and a key that nobody has."""
    caplog.set_level(logging.DEBUG)
    bucket = Bucket(servers.client_of(seaweed_server))
    url = bucket.write(prefix, FILES)
    for key in (KEY, "AKIANOBODY"):
        for name, value in servers.environment(seaweed_server).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WRONG)
        raised = errors(url)
        assert len(raised) == 5
        for error in raised:
            assert isinstance(error, fsspeckit.FsspeckitError)
            assert "SignatureDoesNotMatch" in str(error) or "InvalidAccessKeyId" in str(error)
            assert not any(word in full_text(error) for word in (WRONG, SECRET, KEY, "AKIANOBODY"))
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("fsspeckit")]
    assert not any(word in message for message in ours for word in (WRONG, SECRET, KEY))


def test_no_secret_in_the_store(moto: Moto, moto_bucket: Bucket, prefix: str, quick_lease: Any) -> None:
    """Heads, journals and intents, as a killed writer leaves them."""
    url = moto_bucket.write(prefix, FILES)
    source = pa.table({"id": [1, 11], "x": ["new"] * 2})
    for turn in (4, 5):
        with faulty(by_swap(turn, "die after")), pytest.raises(Killed):
            dataset_io("pyarrow").merge(source, url, "upsert", ["id"])
        folder = prefix.rpartition("/")[0]
        ours = [key for key in moto_bucket.etags(f"{folder}/") if ".fsspeckit-" in key]
        assert ours
        for key in ours:
            body = moto_bucket.get(key).decode()
            assert SECRET not in body and KEY not in body
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dataset_io("pyarrow").read(url).num_rows >= 60
    (warning,) = [str(w.message) for w in caught if "unfinished commit" in str(w.message)]
    assert SECRET not in warning and KEY not in warning and "/.fsspeckit-lake/head" in warning


def test_no_secret_in_the_log_of_the_client(
    moto: Moto, moto_bucket: Bucket, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """botocore's own, at DEBUG: it shows all headers, and a session token is one."""
    url = moto_bucket.write(prefix, FILES)
    token = "a-session-token-that-nobody-may-see"
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    options = {**servers.options(moto.endpoint), "session_token": token}
    io = dataset_io("pyarrow", storage_options=options)
    assert io.merge(pa.table({"id": [1], "x": ["new"]}), url, "upsert", ["id"]).updated == 1
    assert {asked.token for asked in moto.requests} >= {token}
    messages = [record.getMessage() for record in caplog.records]
    assert any(record.name == "botocore.endpoint" for record in caplog.records)
    assert not any(word in message for message in messages for word in (token, SECRET, KEY))


def test_messages_of_the_client_are_washed() -> None:
    from fsspeckit.core.storage.s3_options import S3Options

    objects = client.S3Objects("b", S3Options.of({"key": KEY, "secret": SECRET, "token": "tok-en", "region": "r"}))
    words = f"The key {KEY} with {SECRET} and tok-en is wrong"
    answer = {"Error": {"Code": "InvalidAccessKeyId", "Message": words}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    error = objects._store_error(ClientError(answer, "PutObject"), "write", "lake/f")
    assert isinstance(error, PermissionError)
    assert str(error) == "cannot write s3://b/lake/f: InvalidAccessKeyId The key *** with *** and *** is wrong"
