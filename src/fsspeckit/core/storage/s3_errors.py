"""What botocore and obstore say of a request that failed, as an error of ours."""

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
# obstore's words for a key that was not deleted, in an answer that says 200 as a whole.
_NOT_DELETED = re.compile(r"request failed for key .*: (.*?) \(code: (\w+)\)", re.DOTALL)
_REFUSED = ("AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "RequestTimeTooSkewed", "SignatureDoesNotMatch")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired")
_NO_CONNECTION = "HTTP error: error sending request"
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')


class _PanicError(Exception):
    """obstore's Rust gave up, on a header that cannot be sent for example: no `Exception` as it comes."""


THEIRS = (
    _PanicError,
    obstore.exceptions.BaseError,
    botocore.exceptions.ClientError,
    botocore.exceptions.BotoCoreError,
    FileNotFoundError,
    ValueError,
)


def calmly(request: Callable[[], Answer]) -> Answer:
    try:
        return request()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _PanicError(f"obstore gave up: {one_line(str(error))}") from None


def in_our_words(error: Exception, where: str, endpoint: str) -> StoreError:
    """An error whose class says what can be done, and whose words are the store's."""
    code, words = told(error)
    if words == _NO_CONNECTION:
        words = f"no connection to {endpoint}: {_cause(error)}"
    words = words.rstrip(".: ")
    if isinstance(error, FileNotFoundError) and error.errno is not None:
        return RefusedError(words)  # a file with credentials is gone, and not what was asked for
    if isinstance(error, FileNotFoundError) or code in ("NoSuchKey", "NoSuchUpload", "404"):
        return MissingError(words)
    if isinstance(error, obstore.exceptions.PreconditionError) or code == "PreconditionFailed":
        return ObjectChangedError(f"{where} was changed or replaced meanwhile")
    denied = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)
    if isinstance(error, denied) or status_of(error) in (401, 403) or code in (*_REFUSED, *_EXPIRED):
        return RefusedError(words)
    return UnansweredError(words) if _is_unanswered(error, code) else StoreError(words)


def told(error: Exception) -> tuple[str, str]:
    """The store's code for what went wrong, and its words in one line."""
    if isinstance(error, botocore.exceptions.ClientError):
        said = error.response.get("Error", {})
        return str(said.get("Code", "")), f"{said.get('Code', '')} {said.get('Message', '')}".strip()
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
    """Why nothing was sent, or no answer came: the system's word for it is in what obstore shows of its source."""
    causes = _CAUSE.findall(str(error))
    return causes[-1] if causes else "it took too long" if "TimedOut" in str(error) else "nothing came back"


def status_of(error: Exception) -> int | None:
    if isinstance(error, botocore.exceptions.ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    match = _STATUS.search(str(error))
    return int(match[1]) if match else None


def _is_unanswered(error: Exception, code: str) -> bool:
    status = status_of(error)
    if status == 501:  # it will never be done
        return False
    if status is None:
        network = (botocore.exceptions.HTTPClientError, obstore.exceptions.GenericError)
        said = code and code not in _BUSY
        return isinstance(error, network) and not said and not isinstance(error, botocore.exceptions.SSLError)
    return status >= 500 or status == 429 or code in _BUSY
