"""May a data set be written to where it lies in a store? No other one around or inside it, and a store that refuses."""

from __future__ import annotations

import posixpath
import time
import uuid
import weakref
from collections.abc import Callable

from fsspeckit.core.commit.head import head_key, home_of
from fsspeckit.core.commit.shared import HOME, refuse_pattern
from fsspeckit.core.errors import StorageError, TargetError
from fsspeckit.core.storage import StoreLocation
from fsspeckit.core.storage.objects import Objects, UnansweredError

# Buckets that were seen to refuse what they have to refuse.
PROBED: weakref.WeakSet[Objects] = weakref.WeakSet()
# How long a probe waits for its answer.
_PATIENCE = (0.1, 0.2, 0.4, 0.8)


def check_place(location: StoreLocation) -> None:
    """Refuse a pattern, a data set inside another one, and a store that ignores conditions."""
    objects = location.storage.objects
    refuse_pattern(location)
    parts = location.root.split("/")
    for folder in ("/".join(parts[:depth]) for depth in range(1, len(parts))):
        if _is_there(objects, head_key(folder)):
            raise TargetError(
                f"{location.shown} lies inside {objects.place}/{folder}, which is a data set with a head of its own "
                f"({head_key(folder)}). Merge into that one; or, if it is none any more, delete that object."
            )
    if objects not in PROBED:
        _probe(objects, location)
        PROBED.add(objects)


def _is_there(objects: Objects, key: str) -> bool:
    """What may not be looked at, above the folders that a user was given, is not there for them."""
    try:
        return objects.stat(key) is not None
    except PermissionError:
        return False


def refuse_inner_heads(location: StoreLocation) -> None:
    for folder in location.storage.folders(location.root):
        if posixpath.basename(folder).startswith(HOME):
            raise TargetError(
                f"{location.shown} holds {folder}, the head of a data set inside it. Merge into that one; or, if it is "
                "none any more, delete that folder. Nothing was changed."
            )


def _probe(objects: Objects, location: StoreLocation) -> None:
    """Does the store refuse what it has to refuse? Else two writers could not be kept apart.

    If it fails the first error is told: what it may have left is cleared away by the next writer.
    """
    key = f"{home_of(location.root)}/probe-{uuid.uuid4().hex}"
    _answered(lambda: objects.put_if(key, b"1", None))
    created = _answered(lambda: objects.put_if(key, b"2", None))
    swapped = _answered(lambda: objects.put_if(key, b"3", '"0"'))
    objects.delete([key])
    if created or swapped:
        raise StorageError(
            f"{objects.place} ignores conditions on writes (If-None-Match, If-Match), so that two writers could not be "
            "kept apart. Nothing was written. Use a store that has conditional writes, as S3 itself does.",
            operation="lock",
        )


def _answered(request: Callable[[], str | None]) -> str | None:
    for pause in _PATIENCE:
        try:
            return request()
        except UnansweredError:
            time.sleep(pause)
    return request()
