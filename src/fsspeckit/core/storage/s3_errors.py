"""Errors of botocore and obstore as `StoreError`s."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import botocore.exceptions
import obstore.exceptions

from fsspeckit.core.storage.objects import (
    MissingError,
    ObjectChangedError,
    RefusedError,
    StoreError,
    UnansweredError,
)

Answer = TypeVar("Answer")
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_BUSY = ("InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout", "Throttling", "ThrottlingException")
# obstore's message for a key that was not deleted. The status of the whole answer is 200.
_NOT_DELETED = re.compile(r"request failed for key .*: (.*?) \(code: (\w+)\)", re.DOTALL)
_REFUSED = ("AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "RequestTimeTooSkewed", "SignatureDoesNotMatch")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired")
_NO_CONNECTION = "HTTP error: error sending request"
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')


class _PanicError(Exception):
    """A panic in obstore, for example for a header that cannot be sent. obstore raises a `BaseException`."""


CLIENT_ERRORS = (
    _PanicError,
    obstore.exceptions.BaseError,
    botocore.exceptions.ClientError,
    botocore.exceptions.BotoCoreError,
    FileNotFoundError,
    ValueError,
)


def without_panics(request: Callable[[], Answer]) -> Answer:
    """Send a request; a panic in obstore becomes a `_PanicError`."""
    try:
        return request()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _PanicError(f"obstore failed: {one_line(str(error))}") from None


def to_store_error(error: Exception, where: str, endpoint: str) -> StoreError:
    """The error with a class that says what a caller can do. The message is the store's own."""
    code, message = code_and_message(error)
    if message == _NO_CONNECTION:
        message = f"no connection to {endpoint}: {_cause(error)}"
    message = message.rstrip(".: ")
    if isinstance(error, FileNotFoundError) and error.errno is not None:
        return RefusedError(message)  # a file with credentials is missing, not the object
    if isinstance(error, FileNotFoundError) or code in ("NoSuchKey", "NoSuchUpload", "404"):
        return MissingError(message)
    if isinstance(error, obstore.exceptions.PreconditionError) or code == "PreconditionFailed":
        return ObjectChangedError(f"{where} was changed or replaced in the meantime")
    denied = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)
    if isinstance(error, denied) or status_of(error) in (401, 403) or code in (*_REFUSED, *_EXPIRED):
        return RefusedError(message)
    return UnansweredError(message) if _is_unanswered(error, code) else StoreError(message)


def code_and_message(error: Exception) -> tuple[str, str]:
    """The store's error code, and its message in one line."""
    if isinstance(error, botocore.exceptions.ClientError):
        answer = error.response.get("Error", {})
        return str(answer.get("Code", "")), f"{answer.get('Code', '')} {answer.get('Message', '')}".strip()
    text = str(error)
    not_deleted = _NOT_DELETED.search(text)
    if not_deleted:
        return not_deleted[2], f"{not_deleted[2]} {not_deleted[1]}"
    match = _CODE.search(text)
    if match:
        return match[1], f"{match[1]} {match[2] or ''}".strip()
    first = one_line(text)
    return "", (first.partition(" - ")[2] or first).removeprefix("Server returned non-2xx status code: ")


def one_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _cause(error: Exception) -> str:
    """Why there was no connection or no answer. obstore shows the system's message as the source of its error."""
    causes = _CAUSE.findall(str(error))
    return causes[-1] if causes else "it took too long" if "TimedOut" in str(error) else "nothing came back"


def status_of(error: Exception) -> int | None:
    if isinstance(error, botocore.exceptions.ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    match = _STATUS.search(str(error))
    return int(match[1]) if match else None


def _is_unanswered(error: Exception, code: str) -> bool:
    status = status_of(error)
    if status == 501:  # not implemented: a retry is useless
        return False
    if status is None:
        network = (botocore.exceptions.HTTPClientError, obstore.exceptions.GenericError)
        is_final = code and code not in _BUSY
        return isinstance(error, network) and not is_final and not isinstance(error, botocore.exceptions.SSLError)
    return status >= 500 or status == 429 or code in _BUSY
