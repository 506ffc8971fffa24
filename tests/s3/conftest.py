"""Servers and lakes.

`FSSPECKIT_S3_SERVER` names an endpoint to use instead (`make test-s3 SERVER=…`), or `versitygw` or `minio`;
`FSSPECKIT_S3_KEY` and `FSSPECKIT_S3_SECRET` its credentials; `FSSPECKIT_S3_WHOLE` asks for all that `make test` has no
time for.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsspeckit.api import dataset_io
from s3 import servers
from s3.bucket import Bucket
from s3.mirrored import Mirrored
from s3.proxy import Proxy
from s3.servers import Moto

GIVEN = os.environ.get("FSSPECKIT_S3_SERVER")
WHOLE = bool(os.environ.get("FSSPECKIT_S3_WHOLE"))


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[str]:
    """Its folder lies elsewhere: some tests look whether anything changes in the folder of all tests."""
    with tempfile.TemporaryDirectory() as folder, servers.seaweed(Path(folder)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Moto]:
    with Moto().running() as server:
        yield server


@pytest.fixture(scope="session")
def rclone_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, servers.rclone(Path(folder)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def versitygw_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, servers.versitygw(Path(folder)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def minio_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, servers.minio(Path(folder)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def any_server(request: pytest.FixtureRequest) -> str:
    """The endpoint that was given, or SeaweedFS."""
    if GIVEN in ("versitygw", "minio"):
        return str(request.getfixturevalue(f"{GIVEN}_server"))
    if not GIVEN:
        return str(request.getfixturevalue("seaweed_server"))
    servers.wait_for(GIVEN, Path(os.devnull))
    return GIVEN


@pytest.fixture
def mirror_bucket(any_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """For tests of other folders that run on a store (`--place=s3`)."""
    for name, value in servers.environment(any_server).items():
        monkeypatch.setenv(name, value)
    return Bucket(servers.client_of(any_server))


@pytest.fixture(params=[GIVEN] if GIVEN else ["seaweed", "moto"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """A store to test with."""
    if request.param == "moto":
        server: str = request.getfixturevalue("moto_server").endpoint
        return server
    return str(request.getfixturevalue("any_server"))


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in servers.environment(endpoint).items():
        monkeypatch.setenv(name, value)
    return Bucket(servers.client_of(endpoint))


@pytest.fixture
def proxy(endpoint: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Before the store of `bucket`, which is reached past it. It lists uploads as MinIO does."""
    with Proxy(endpoint, lists_uploads_by_key_only=True).running() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        yield running


@pytest.fixture
def moto(moto_server: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moto]:
    for name, value in servers.environment(moto_server.endpoint).items():
        monkeypatch.setenv(name, value)
    moto_server.requests.clear()
    yield moto_server
    moto_server.fault = None


@pytest.fixture
def moto_bucket(moto: Moto) -> Bucket:
    return Bucket(servers.client_of(moto.endpoint))


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4().hex[:12]}/lake"


@pytest.fixture
def io(engine: str, bucket: Bucket, request: pytest.FixtureRequest) -> Any:
    """The engine's `DatasetIO` over folders that are mirrored in the store."""
    if engine not in ("pyarrow", "duckdb"):
        pytest.skip("how DuckDB matches keys does not concern the store, and Spark takes its time")
    return Mirrored(dataset_io(engine), bucket)


@pytest.fixture
def quick_lease(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dead writer's lease is over soon."""
    monkeypatch.setenv("FSSPECKIT_LEASE", "0.2")
    monkeypatch.setenv("FSSPECKIT_HEARTBEAT", "0.05")
    return Path()
