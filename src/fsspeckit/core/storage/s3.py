"""A bucket of S3 or its kin: obstore for objects and listings, botocore for multipart uploads.

What may be asked twice is asked again after throttling, server errors, resets and time-outs, with jitter and within a
bound. A conditional PUT is sent once: whoever sent it has to look what became of it. Errors are ours, in one line,
without credentials.
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
_LONGEST_PAUSE = 5.0


# Secrets that were used in this process.
_USED: set[str] = set()


class _Washed(logging.Filter):
    """botocore tells its log, where that is at DEBUG, all headers of a request, and a session token is one of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        washed = without_secrets(told, [*_USED])
        if washed != told:
            record.msg, record.args = washed, ()
        return True


for _name in ("botocore.auth", "botocore.endpoint"):
    logging.getLogger(_name).addFilter(_Washed())
# The process in which obstore began its threads, which a fork leaves behind.
_started_in: int | None = None


def connect(bucket: str, options: S3Options) -> S3Objects:
    """The bucket, one for all who reach it alike in this process. Nothing is asked of it yet."""
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
        return self._place[0] or ""

    def get(self, key: str) -> tuple[bytes, str] | None:
        def ask() -> tuple[bytes, str]:
            answer = obstore.get(self._quick_store, key)
            if answer.meta["size"] > RECORD_LIMIT:
                raise StoreError(f"{self.place}/{key} is too large to be one of ours")
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

        try:
            return self._ask("read", key, ask)
        except FileNotFoundError:
            return None

    def put(self, key: str, data: Any) -> None:
        def ask() -> None:
            if hasattr(data, "seek"):
                data.seek(0)
            obstore.put(self._store, key, data)

        self._ask("write", key, ask)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        mode: Any = "create" if etag is None else {"e_tag": etag}
        try:
            store = self._quick_store
            return str(errors.calmly(lambda: obstore.put(store, key, data, mode=mode, use_multipart=False))["e_tag"])
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return None
        except errors.THEIRS as error:
            ours = self._ours(error, "write", key)
            if isinstance(ours, FileNotFoundError) or errors.status_of(error) == 409:
                return None
            raise ours from None

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        data, _ = self._ask("read", key, lambda: self._range(key, (start, end), {"if_match": etag}))
        if len(data) != end - start:
            raise StoreError(f"{self.place}/{key}: {len(data)} bytes came of the {end - start} asked for")
        return data

    def read_tail(self, key: str, count: int) -> tuple[bytes, Entry]:
        try:
            return self._ask("read", key, lambda: self._range(key, {"suffix": count}, {}))
        except UnansweredError:
            raise
        except OSError:
            entry = self.stat(key)  # no range of an object without bytes can be had
            if entry is None or entry.size:
                raise
            return b"", entry

    def _range(self, key: str, sought: Any, options: dict[str, Any]) -> tuple[bytes, Entry]:
        """Some stores answer with all of an object if it is no longer than the range, and obstore takes that ill."""
        try:
            answer = obstore.get(self._store, key, options={**options, "range": sought})
            return bytes(answer.bytes()), _entry(answer.meta)
        except obstore.exceptions.GenericError as error:
            if "non-partial response" not in str(error):
                raise
        whole = obstore.get(self._store, key, options=options)
        data, entry = bytes(whole.bytes()), _entry(whole.meta)
        return data[-sought["suffix"] :] if isinstance(sought, dict) else data[slice(*sought)], entry

    def stat(self, key: str) -> Entry | None:
        try:
            return self._ask("look at", key, lambda: _entry(obstore.head(self._store, key)))
        except FileNotFoundError:
            return None

    def list_all(self, prefix: str) -> list[Entry]:
        def ask() -> list[Entry]:
            return [_entry(meta) for chunk in obstore.list(self._store, prefix, chunk_size=1000) for meta in chunk]

        return sorted(self._ask("list", prefix, ask), key=lambda entry: entry.key)

    def list_names(self, prefix: str) -> list[str]:
        answer = self._ask("list", prefix, lambda: obstore.list_with_delimiter(self._store, prefix))
        paths = [*answer["common_prefixes"], *(meta["path"] for meta in answer["objects"])]
        return sorted({path.rpartition("/")[2] for path in paths} - {""})

    def delete(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        if doomed:
            self._ask("delete", doomed[0], lambda: obstore.delete(self._store, doomed))

    def create_upload(self, key: str) -> str:
        """The key is nobody else's, so that what an attempt without an answer began is ours to give up."""
        attempts = 0

        def ask() -> str:
            nonlocal attempts
            attempts += 1
            return str(self._client.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"])

        upload_id = self._ask("begin", key, ask)
        for upload in self.list_uploads(key) if attempts > 1 else ():
            if upload.upload_id != upload_id:
                self.abort(upload)
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
        checksum = base64.b64encode(md5).decode()
        part = {"Bucket": self.bucket, "Key": key, "UploadId": upload_id, "PartNumber": number, "ContentMD5": checksum}
        return str(self._ask("write", key, lambda: self._client.upload_part(**part, Body=data))["ETag"])

    def complete(self, upload: Upload) -> str | None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(upload.parts, start=1)]
        whole = {**self._named(upload), "MultipartUpload": {"Parts": parts}}
        try:
            answer = self._ask("complete", upload.key, lambda: self._client.complete_multipart_upload(**whole))
        except FileNotFoundError:
            return None
        return str(answer.get("ETag") or "")

    def abort(self, upload: Upload) -> None:
        try:
            self._ask("give up", upload.key, lambda: self._client.abort_multipart_upload(**self._named(upload)))
        except FileNotFoundError:
            return

    def list_uploads(self, key: str) -> list[Upload]:
        def ask() -> list[Upload]:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=key)
            found = [Upload(u["Key"], u["UploadId"]) for page in pages for u in page.get("Uploads") or ()]
            return [upload for upload in found if upload.key == key]

        return self._ask("list the uploads of", key, ask)

    def _named(self, upload: Upload) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": upload.key, "UploadId": upload.upload_id}

    def _ask(self, verb: str, key: str, request: Callable[[], Answer]) -> Answer:
        """Send a request that may be sent twice, until it is answered or patience ends.

        A store that lets every attempt wait is asked for no longer than a few of them take.
        """
        last = time.monotonic() + 2 * self.options.timeout
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return errors.calmly(request)
            except errors.THEIRS as error:
                ours = self._ours(error, verb, key)
                if not isinstance(ours, UnansweredError) or attempt == _ATTEMPTS or time.monotonic() > last:
                    raise ours from None
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.1 * 2**attempt)))
        raise AssertionError("the last attempt returns or raises")

    def _ours(self, error: Exception, verb: str, key: str) -> StoreError:
        if errors.told(error)[0] == "NoSuchBucket":
            return StoreError(f"the bucket {self.place} does not exist")
        where = f"{self.place}/{key}"
        ours = errors.in_our_words(error, where, self._place[0] or "AWS")
        if isinstance(ours, RefusedError):
            _connected.cache_clear()  # whoever comes next looks for credentials anew
        if isinstance(ours, ObjectChangedError):
            return ours
        return type(ours)(without_secrets(f"cannot {verb} {where}: {ours}", self._secrets))

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
        """Those given, or of botocore: environment, profiles, roles. `None` for a public bucket."""
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
                credentials.get_frozen_credentials()  # a role is only now asked for
        except (*errors.THEIRS, OSError) as error:
            raise OSError(f"cannot find credentials for {self.place}: {errors.one_line(str(error))}") from None
        if credentials is None:
            raise no_credentials(self.place)
        return credentials

    @property
    def _secrets(self) -> list[str]:
        """Those of credentials that were used. Expired ones are not renewed for the sake of a message."""
        return [*self.options.secrets, *_USED]

    def _frozen(self) -> Any:
        """The credentials of now."""
        frozen = self._credentials.get_frozen_credentials()
        _USED.update(secrets_of(frozen.secret_key, frozen.token, frozen.access_key))
        return frozen

    def _provide(self) -> Any:
        """Credentials for obstore, asked for again where they may expire."""
        frozen = self._frozen()
        expires = hasattr(self._credentials, "refresh_needed")
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(minutes=5) if expires else None,
        }

    @cached_property
    def _place(self) -> tuple[str | None, str]:
        """Endpoint and region, a profile's where the options say nothing."""
        session, profile = self._session, self._session.get_scoped_config()
        told = ConfiguredEndpointProvider(session.full_config, profile, "s3").provide()
        return self.options.endpoint or told, self.options.region or profile.get("region") or "us-east-1"

    def _refuse_fork(self) -> None:
        """A forked child would wait for ever for threads that only its parent has."""
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
        """For the head: whoever waits for it longer than this could lose its lease meanwhile."""
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
        endpoint, region = self._place
        options = self.options
        given = {"credential_provider": self._provide} if self._credentials is not None else {}
        return obstore.store.S3Store(
            self.bucket,
            **({"endpoint": endpoint} if endpoint else {}),
            region=region,
            virtual_hosted_style_request=options.virtual_hosted or endpoint is None,
            # What obstore would else take from the environment, for other programs' sake.
            skip_signature=options.anonymous,
            conditional_put="etag",
            s3_express=False,
            client_options={"allow_http": True, "timeout": timedelta(seconds=timeout)},
            retry_config={"max_retries": 0},
            **given,
        )

    @property
    def _client(self) -> Any:
        with self._guard:
            if self._credentials is not None:
                self._frozen()
            return self._opened_client

    @cached_property
    def _opened_client(self) -> Any:
        endpoint, region = self._place
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
