"""Who holds a data set, written down for those who wait for it. The lock itself is the storage's."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

from fsspeckit.core.storage import Storage

NAME = "owner"


def this_process(since: float) -> dict[str, Any]:
    return {"process": os.getpid(), "host": socket.gethostname(), "since": since}


def words(who: Mapping[str, Any]) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(who["since"]))
    age = max(0, time.time() - who["since"])
    return f"process {who['process']} on {who['host']}, since {since} ({age:.0f} s ago)"


def told(who: Mapping[str, Any]) -> str:
    """The same of one that others wrote down, maybe in another form."""
    try:
        return words(who)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "another process"


def announce(storage: Storage, home: str, since: float) -> bool:
    """Write this process down in a folder beside the data set, if that can be; it goes with the folder."""
    with contextlib.suppress(OSError):
        storage.make_folder(home)
        storage.write_bytes(posixpath.join(home, NAME), json.dumps(this_process(since)).encode())
        return True
    return False


def describe(storage: Storage, homes: Iterable[str]) -> str:
    """The owner's host, process and age, as far as they are known."""
    for home in homes:
        try:
            return words(json.loads(storage.read_bytes(posixpath.join(home, NAME))))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return "another process"
