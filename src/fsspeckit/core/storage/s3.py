"""A bucket of S3 or a compatible store: obstore for objects and listings, botocore for multipart uploads.

Idempotent requests are retried after throttling, server errors, resets and time-outs, with jitter and within a bound. A
conditional PUT is sent once: if no answer arrives, the caller reads the object to find out whether it was written.
Errors are `StoreError`s, in one line, without credentials.
"""

from __future__ import annotations

import base64
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

import botocore.credentials
import botocore.exceptions
import botocore.session
import obstore
import obstore.exceptions
import obstore.store
from botocore.config import Config
from botocore.configprovider import ConfiguredEndpointProvider

from fsspeckit.core.parallel import cached_property
from fsspeckit.core.storage import s3_errors as errors
from fsspeckit.core.storage.base import RECORD_LIMIT
from fsspeckit.core.storage.objects import Entry, ObjectChangedError, RefusedError, StoreError, UnansweredError, Upload
from fsspeckit.core.storage.s3_options import S3Options, no_credentials, secrets_of, without_secrets

Answer = TypeVar("Answer")
_ATTEMPTS = 7
_MAX_PAUSE = 5.0
# The secrets of all credentials that this process used.
_USED_SECRETS: set[str] = set()


class _WithoutSecrets(logging.Filter):
    """At DEBUG, botocore logs all headers of a request. One of them is the session token."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        masked = without_secrets(message, [*_USED_SECRETS])
        if masked != message:
            record.msg, record.args = masked, ()
        return True


for _name in ("botocore.auth", "botocore.endpoint"):
    logging.getLogger(_name).addFilter(_WithoutSecrets())
# The process in which obstore started its threads. A forked child does not have them.
_started_in: int | None = None


def connect(bucket: str, options: S3Options) -> S3Objects:
    """The bucket. Callers with the same options and environment share one object. No request is sent yet."""
    return _connected(bucket, options, tuple(sorted(e for e in os.environ.items() if e[0].startswith("AWS_"))))


@lru_cache(maxsize=64)
def _connected(bucket: str, options: S3Options, environment: tuple[tuple[str, str], ...]) -> S3Objects:
    return S3Objects(bucket, options)


class S3Objects:
    """One bucket; see `Objects`."""

    def __init__(self, bucket: str, options: S3Options) -> None:
        self.bucket, self.options = bucket, options
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"S3Objects({self.place!r})"

    def __reduce__(self) -> Any:
        return connect, (self.bucket, self.options)

    @property
    def place(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def endpoint(self) -> str:
        return self._endpoint_and_region[0] or ""

    def get(self, key: str) -> tuple[bytes, str] | None:
        def request() -> tuple[bytes, str]:
            answer = obstore.get(self._quick_store, key)
            if answer.meta["size"] > RECORD_LIMIT:
                raise StoreError(f"{self.place}/{key} is too large for a record of a commit")
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

        try:
            return self._send("read", key, request)
        except FileNotFoundError:
            return None

    def put(self, key: str, data: Any) -> None:
        def request() -> None:
            if hasattr(data, "seek"):
                data.seek(0)
            obstore.put(self._store, key, data)

        self._send("write", key, request)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        mode: Any = "create" if etag is None else {"e_tag": etag}
        try:
            store = self._quick_store
            return str(
                errors.without_panics(lambda: obstore.put(store, key, data, mode=mode, use_multipart=False))["e_tag"]
            )
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return None
        except errors.CLIENT_ERRORS as error:
            store_error = self._store_error(error, "write", key)
            if isinstance(store_error, FileNotFoundError) or errors.status_of(error) == 409:
                return None
            raise store_error from None

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        data, _ = self._send("read", key, lambda: self._range(key, (start, end), {"if_match": etag}))
        if len(data) != end - start:
            raise StoreError(f"{self.place}/{key}: {len(data)} bytes received, {end - start} requested")
        return data

    def read_tail(self, key: str, count: int) -> tuple[bytes, Entry]:
        try:
            return self._send("read", key, lambda: self._range(key, {"suffix": count}, {}))
        except UnansweredError:
            raise
        except OSError:
            entry = self.stat(key)  # stores refuse every range of an empty object
            if entry is None or entry.size:
                raise
            return b"", entry

    def _range(self, key: str, wanted: Any, options: dict[str, Any]) -> tuple[bytes, Entry]:
        """Read a range. If it covers the object, some stores return all of it, which obstore reports as an error."""
        try:
            answer = obstore.get(self._store, key, options={**options, "range": wanted})
            return bytes(answer.bytes()), _entry(answer.meta)
        except obstore.exceptions.GenericError as error:
            if "non-partial response" not in str(error):
                raise
        whole = obstore.get(self._store, key, options=options)
        data, entry = bytes(whole.bytes()), _entry(whole.meta)
        return data[-wanted["suffix"] :] if isinstance(wanted, dict) else data[slice(*wanted)], entry

    def stat(self, key: str) -> Entry | None:
        try:
            return self._send("look at", key, lambda: _entry(obstore.head(self._store, key)))
        except FileNotFoundError:
            return None

    def list_all(self, prefix: str) -> list[Entry]:
        def request() -> list[Entry]:
            return [_entry(meta) for chunk in obstore.list(self._store, prefix, chunk_size=1000) for meta in chunk]

        return sorted(self._send("list", prefix, request), key=lambda entry: entry.key)

    def list_names(self, prefix: str) -> list[str]:
        answer = self._send("list", prefix, lambda: obstore.list_with_delimiter(self._store, prefix))
        paths = [*answer["common_prefixes"], *(meta["path"] for meta in answer["objects"])]
        return sorted({path.rpartition("/")[2] for path in paths} - {""})

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        if names:
            self._send("delete", names[0], lambda: obstore.delete(self._store, names))

    def copy_object(self, source: str, target: str, etag: str) -> None:
        def request() -> None:
            copied = {"Bucket": self.bucket, "Key": source}
            self._client.copy_object(Bucket=self.bucket, Key=target, CopySource=copied, CopySourceIfMatch=etag)

        self._send("copy", source, request)

    def create_upload(self, key: str) -> str:
        """Begin an upload. No other writer uses the key, so other uploads to it are attempts that got no answer."""
        attempts = 0

        def request() -> str:
            nonlocal attempts
            attempts += 1
            return str(self._client.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"])

        upload_id = self._send("begin", key, request)
        for upload in self.list_uploads(key) if attempts > 1 else ():
            if upload.upload_id != upload_id:
                self.abort(upload)
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
        checksum = base64.b64encode(md5).decode()
        part = {"Bucket": self.bucket, "Key": key, "UploadId": upload_id, "PartNumber": number, "ContentMD5": checksum}
        return str(self._send("write", key, lambda: self._client.upload_part(**part, Body=data))["ETag"])

    def complete(self, upload: Upload) -> str | None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(upload.parts, start=1)]
        whole = {**self._upload_arguments(upload), "MultipartUpload": {"Parts": parts}}
        try:
            answer = self._send("complete", upload.key, lambda: self._client.complete_multipart_upload(**whole))
        except FileNotFoundError:
            return None
        return str(answer.get("ETag") or "")

    def abort(self, upload: Upload) -> None:
        try:
            self._send(
                "give up", upload.key, lambda: self._client.abort_multipart_upload(**self._upload_arguments(upload))
            )
        except FileNotFoundError:
            return

    def list_uploads(self, key: str) -> list[Upload]:
        def request() -> list[Upload]:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=key)
            uploads = [Upload(u["Key"], u["UploadId"]) for page in pages for u in page.get("Uploads") or ()]
            return [upload for upload in uploads if upload.key == key]

        return self._send("list the uploads of", key, request)

    def _upload_arguments(self, upload: Upload) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": upload.key, "UploadId": upload.upload_id}

    def _send(self, verb: str, key: str, request: Callable[[], Answer]) -> Answer:
        """Send an idempotent request until it is answered, at most `_ATTEMPTS` times.

        No attempt begins later than two time-outs after the first one.
        """
        last = time.monotonic() + 2 * self.options.timeout
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return errors.without_panics(request)
            except errors.CLIENT_ERRORS as error:
                store_error = self._store_error(error, verb, key)
                if not isinstance(store_error, UnansweredError) or attempt == _ATTEMPTS or time.monotonic() > last:
                    raise store_error from None
            time.sleep(random.uniform(0, min(_MAX_PAUSE, 0.1 * 2**attempt)))
        raise AssertionError("the last attempt returns or raises")

    def _store_error(self, error: Exception, verb: str, key: str) -> StoreError:
        if errors.code_and_message(error)[0] == "NoSuchBucket":
            return StoreError(f"the bucket {self.place} does not exist")
        where = f"{self.place}/{key}"
        store_error = errors.to_store_error(error, where, self._endpoint_and_region[0] or "AWS")
        if isinstance(store_error, RefusedError):
            _connected.cache_clear()  # the next merge looks for credentials again
        if isinstance(store_error, ObjectChangedError):
            return store_error
        return type(store_error)(without_secrets(f"cannot {verb} {where}: {store_error}", self._secrets))

    @cached_property
    def _session(self) -> Any:
        try:
            session = botocore.session.Session(profile=self.options.profile)
            session.get_scoped_config()
        except botocore.exceptions.BotoCoreError as error:
            raise OSError(f"cannot reach {self.place}: {error}") from None
        return session

    @cached_property
    def _credentials(self) -> Any:
        """From the options, or those that botocore finds: environment, profiles, roles. `None`: anonymous."""
        options = self.options
        if options.anonymous:
            return None
        if options.access_key_id is not None:
            return botocore.credentials.Credentials(
                options.access_key_id, options.secret_access_key, options.session_token
            )
        try:
            credentials = self._session.get_credentials()
            if credentials is not None:
                credentials.get_frozen_credentials()  # requests those of a role
        except (*errors.CLIENT_ERRORS, OSError) as error:
            raise OSError(f"cannot find credentials for {self.place}: {errors.one_line(str(error))}") from None
        if credentials is None:
            raise no_credentials(self.place)
        return credentials

    @property
    def _secrets(self) -> list[str]:
        """The secrets that messages must not contain. Expired credentials are not renewed to build a message."""
        return [*self.options.secrets, *_USED_SECRETS]

    def _current_credentials(self) -> Any:
        """The current credentials."""
        frozen = self._credentials.get_frozen_credentials()
        _USED_SECRETS.update(secrets_of(frozen.secret_key, frozen.token, frozen.access_key))
        return frozen

    def _obstore_credentials(self) -> Any:
        """Credentials for obstore, which calls this again before they expire."""
        frozen = self._current_credentials()
        expires = hasattr(self._credentials, "refresh_needed")
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(minutes=5) if expires else None,
        }

    @cached_property
    def _endpoint_and_region(self) -> tuple[str | None, str]:
        """Endpoint and region, from the options or from the profile."""
        session, profile = self._session, self._session.get_scoped_config()
        endpoint = self.options.endpoint or ConfiguredEndpointProvider(session.full_config, profile, "s3").provide()
        return endpoint, self.options.region or profile.get("region") or "us-east-1"

    def _refuse_fork(self) -> None:
        """A forked child would wait forever for threads that only its parent has."""
        if _started_in not in (None, os.getpid()):
            raise OSError(
                f"{self.place} was reached by the parent of this forked process, and cannot be by the child; start "
                'processes by "spawn" or "forkserver" (multiprocessing.get_context), or fork before the first use'
            )

    @property
    def _store(self) -> Any:
        self._refuse_fork()
        with self._guard:
            return self._opened_store

    @property
    def _quick_store(self) -> Any:
        """For the head: a writer that waits longer for an answer could lose its lease."""
        self._refuse_fork()
        with self._guard:
            return self._opened_quick_store

    @cached_property
    def _opened_store(self) -> Any:
        return self._open_store(self.options.timeout)

    @cached_property
    def _opened_quick_store(self) -> Any:
        return self._open_store(min(self.options.timeout, max(self.options.heartbeat, 5)))

    def _open_store(self, timeout: float) -> Any:
        global _started_in
        _started_in = os.getpid()
        endpoint, region = self._endpoint_and_region
        options = self.options
        credentials = {"credential_provider": self._obstore_credentials} if self._credentials is not None else {}
        return obstore.store.S3Store(
            self.bucket,
            **({"endpoint": endpoint} if endpoint else {}),
            region=region,
            virtual_hosted_style_request=options.virtual_hosted or endpoint is None,
            # Set, so that obstore does not take them from the environment.
            skip_signature=options.anonymous,
            conditional_put="etag",
            s3_express=False,
            client_options={"allow_http": True, "timeout": timedelta(seconds=timeout)},
            retry_config={"max_retries": 0},
            **credentials,
        )

    @property
    def _client(self) -> Any:
        with self._guard:
            if self._credentials is not None:
                self._current_credentials()
            return self._opened_client

    @cached_property
    def _opened_client(self) -> Any:
        endpoint, region = self._endpoint_and_region
        options, credentials = self.options, self._credentials
        if credentials is None or options.access_key_id is not None:
            self._session.set_credentials(options.access_key_id, options.secret_access_key, options.session_token)
        config = Config(
            signature_version=botocore.UNSIGNED if options.anonymous else None,
            connect_timeout=5,
            read_timeout=options.timeout,
            retries={"total_max_attempts": 1},
            max_pool_connections=32,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "virtual" if options.virtual_hosted or endpoint is None else "path"},
        )
        return self._session.create_client("s3", region_name=region, endpoint_url=endpoint, config=config)


def _entry(meta: Any) -> Entry:
    return Entry(meta["path"], meta["size"], meta["e_tag"] or "", int(meta["last_modified"].timestamp() * 1e9))
