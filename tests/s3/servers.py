"""Object stores on loopback, started by the tests and gone with them, also when pytest is killed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

KEY = os.environ.get("FSSPECKIT_S3_KEY") or "AKIAFSSPECKITTEST"
SECRET = os.environ.get("FSSPECKIT_S3_SECRET") or "fsspeckit-test-secret-0123456789"
BUCKET = "lake-test"


def free_port() -> int:
    """SeaweedFS takes the port ten thousand above for itself, too."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            if port < 50_000:
                with contextlib.suppress(OSError):
                    two.bind(("127.0.0.1", port + 10_000))
                    return port
    raise RuntimeError("no free ports")


def environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def options(endpoint: str) -> dict[str, Any]:
    """The same as `storage_options`."""
    return {"endpoint": endpoint, "allow_http": True, "access_key_id": KEY, "secret_access_key": SECRET}


def client_of(endpoint: str, key: str = KEY, secret: str = SECRET) -> Any:
    """A client of another make than the code under test uses for objects."""
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 3}, connect_timeout=5, read_timeout=30)
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=config,
    )


def _dies_with_us() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def _process(
    arguments: list[str], folder: Path, endpoint: str, variables: Mapping[str, str] | None = None
) -> Iterator[str]:
    binary = Path(sysconfig.get_path("scripts")) / arguments[0]
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            [str(binary), *arguments[1:]],
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=_dies_with_us,
            env={**os.environ, **(variables or {})},
        )
    try:
        wait_for(endpoint, folder / "server.log")
        yield endpoint
    finally:
        server.kill()
        server.wait()


def wait_for(endpoint: str, log: Path) -> None:
    """Until the bucket is there."""
    client = client_of(endpoint)
    deadline = time.monotonic() + 90
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"1")
            client.delete_object(Bucket=BUCKET, Key="ready")
            return
        except ClientError as error:
            if error.response["Error"]["Code"] in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
                return
            problem: Exception = error
        except BotoCoreError as error:
            problem = error
        if time.monotonic() > deadline:
            raise RuntimeError(f"{problem}; the server said: {log.read_text()[-2000:]}")
        time.sleep(0.2)


@contextlib.contextmanager
def seaweed(folder: Path) -> Iterator[str]:
    ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
    identity = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    arguments = ["weed", "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    arguments += [f"-s3.port={ports['s3']}", f"-s3.config={folder}/s3.json", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    arguments += [f"-{name}.port={ports[name]}" for name in ("master", "volume", "filer")]
    arguments += ["-master.volumeSizeLimitMB=256", "-volume.max=50", f"-metricsPort={free_port()}"]
    with _process(arguments, folder, f"http://127.0.0.1:{ports['s3']}") as endpoint:
        yield endpoint


@contextlib.contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    """Built by `scripts/versitygw`. What it knows of objects it keeps beside them: not every disk has attributes."""
    port = free_port()
    for name in ("data", "known"):
        (folder / name).mkdir()
    arguments = [os.environ.get("VERSITYGW") or "versitygw", "--quiet", "--access", KEY, "--secret", SECRET]
    arguments += ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "known"), str(folder / "data")]
    with _process(arguments, folder, f"http://127.0.0.1:{port}") as endpoint:
        yield endpoint


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[str]:
    """Built by `scripts/minio`. It lists uploads by their very key only."""
    port, console = free_port(), free_port()
    (folder / "data").mkdir()
    arguments = [os.environ.get("MINIO") or "minio", "server", "--quiet", "--address", f"127.0.0.1:{port}"]
    arguments += ["--console-address", f"127.0.0.1:{console}", str(folder / "data")]
    users = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
    with _process(arguments, folder, f"http://127.0.0.1:{port}", users) as endpoint:
        yield endpoint


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[str]:
    """The negative control: it ignores all conditions."""
    port = free_port()
    (folder / "data").mkdir()
    arguments = ["rclone", "serve", "s3", "--auth-key", f"{KEY},{SECRET}", "--addr", f"127.0.0.1:{port}"]
    arguments += ["--config", os.devnull, str(folder / "data")]
    with _process(arguments, folder, f"http://127.0.0.1:{port}") as endpoint:
        yield endpoint


Fault = Callable[["Request"], str | None]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    conditional: bool
    token: str = ""


@dataclass
class Moto:
    """A server in this process that counts its requests, and can fail on demand.

    `fault` looks at a request and says `503`, `500`, `403 <code>`, `reset` (not done), `lost` (done, and no answer)
    or nothing.
    """

    requests: list[Request] = field(default_factory=list)
    fault: Fault | None = None
    endpoint: str = ""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        asked = Request(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ.get("QUERY_STRING", ""),
            "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ,
            environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""),
        )
        self.requests.append(asked)
        fault = self.fault(asked) if self.fault is not None else None
        if fault is not None and fault[:3].isdigit():
            status, _, named = fault.partition(" ")
            code = named or {"500": "InternalError", "503": "SlowDown"}[status]
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(f"{status} {code}", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>Reduce your request rate.</Message></Error>".encode()]
        if fault == "reset":
            _hang_up(environ)
        answer = self._app(environ, start_response)
        if fault == "lost":
            _hang_up(environ)
        return answer

    def counts(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for asked in self.requests:
            counted[asked.method] = counted.get(asked.method, 0) + 1
        return counted

    @contextlib.contextmanager
    def running(self) -> Iterator[Moto]:
        from moto.server import DomainDispatcherApplication, create_backend_app  # type: ignore[attr-defined]
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_request(self, *arguments: Any) -> None: ...

            def make_environ(self) -> Any:
                return {**super().make_environ(), "fsspeckit.socket": self.connection}

        os.environ.setdefault("MOTO_S3_DEFAULT_MAX_KEYS", "1000")
        self._app = DomainDispatcherApplication(create_backend_app)
        server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=Quiet)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            wait_for(self.endpoint, Path(os.devnull))
            self.requests.clear()
            yield self
        finally:
            server.shutdown()
            thread.join()


def _hang_up(environ: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        environ["fsspeckit.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionError("the test wants it so")
