"""A proxy before a real store: it delays, drops, and answers wrongly. Other requests pass unchanged."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: str
    body: bytes = b""

    @property
    def key(self) -> str:
        """Without the bucket."""
        return self.path.lstrip("/").partition("/")[2]

    @property
    def names(self) -> frozenset[str]:
        """Of what the query asks for."""
        return frozenset(parse_qs(self.query, keep_blank_values=True))

    @property
    def is_complete(self) -> bool:
        return self.method == "POST" and "uploadId" in self.names


@dataclass
class Proxy:
    """`fault` looks at a request, may take its time, and says what becomes of it, or nothing.

    `403 <code>`: this answer, and nothing is done. `reset`: not done, no answer. `lost`: done, no answer. `empty`:
    done, 200 without a body. `not done`: 200 without a body, and nothing is done. Whatever begins with `<` is the body
    of a 200, and nothing is done.
    """

    behind: str
    fault: Callable[[Asked], str | None] | None = None
    asked: list[Asked] = field(default_factory=list)
    lists_uploads_by_key_only: bool = False
    endpoint: str = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: proxy._handle(self)
                raise AttributeError(name)

            def log_message(self, *arguments: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _handle(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        asked = Asked(handler.command, unquote(url.path), url.query, body)
        self.asked.append(asked)
        fault = self.fault(asked) if self.fault is not None else None
        if fault in (None, "lost", "empty"):
            self._pass_on(handler, asked, fault)
        elif fault == "reset":
            _hang_up(handler)
        elif fault[:3].isdigit():
            status, _, code = fault.partition(" ")
            words = f"<Error><Code>{code}</Code><Message>the test wants it so</Message></Error>".encode()
            _answer(handler, int(status), [], b"" if asked.method == "HEAD" else words)
        else:
            _answer(handler, 200, [("Content-Type", "application/xml")], b"" if fault == "not done" else fault.encode())

    def _pass_on(self, handler: Any, asked: Asked, fault: str | None) -> None:
        status, headers, content = self._forward(handler, asked.body)
        if fault == "lost":
            _hang_up(handler)
            return
        if self.lists_uploads_by_key_only and asked.method == "GET" and "uploads" in asked.names:
            content = _of_one_key(content, parse_qs(asked.query).get("prefix", [""])[0])
        _answer(handler, status, headers, b"" if fault == "empty" else content, changed=fault == "empty")

    def _forward(self, handler: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """As it came, the signed name of the host too."""
        place = urlsplit(self.behind)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                if name.lower() not in ("expect", "connection"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()


def _answer(
    handler: Any, status: int, headers: list[tuple[str, str]], content: bytes, *, changed: bool = False
) -> None:
    handler.send_response_only(status)
    is_head = handler.command == "HEAD"
    spared = ("transfer-encoding", "connection", *(() if is_head else ("content-length",)))
    for name, value in headers:
        if name.lower() not in spared and not (changed and name.lower() == "etag"):
            handler.send_header(name, value)
    if not is_head or not any(name.lower() == "content-length" for name, _ in headers):
        handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _hang_up(handler: Any) -> None:
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


def _of_one_key(listing: bytes, prefix: str) -> bytes:
    """As MinIO lists uploads: those of a key, and none of the keys that begin with it."""

    def kept(found: re.Match[bytes]) -> bytes:
        key = re.search(rb"<Key>(.*?)</Key>", found[0])
        return found[0] if key is not None and key[1].decode() == prefix else b""

    return re.sub(rb"<Upload>.*?</Upload>", kept, listing, flags=re.DOTALL)
