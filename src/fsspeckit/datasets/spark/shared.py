"""Driver and executors must see the same files. Whether they do is looked at when a task failed: it costs nothing."""

from __future__ import annotations

import base64
import os
import pickle
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from fsspeckit.core.errors import DatasetMergeError, FsspeckitError, StorageError
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class Shared:
    """Paths that the driver made or saw: the scratch folder, and the target with one of its files."""

    scratch: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    store: str = ""
    """The target, if it is in a store."""

    def explain(self, error: FsspeckitError | OSError) -> FsspeckitError | Unseen:
        """On an executor, after an error: what to tell the driver. An error that is not ours is raised again."""
        unseen = _absent((*self.scratch, *self.target))
        if unseen:
            return Unseen(tuple(unseen), socket.gethostname(), error)
        if isinstance(error, FsspeckitError):
            return error
        if self.store:  # another executor may reach it
            message = f"Spark's executors cannot work on {self.store}: {error}. Nothing was changed."
            raise carried(StorageError(message, error, operation="spark")) from error
        raise error


@dataclass(frozen=True, slots=True)
class Unseen:
    """An executor on `host` did not see `paths`, and met `error`."""

    paths: tuple[str, ...]
    host: str
    error: FsspeckitError | OSError

    def on_driver(self) -> Exception:
        """Files that are gone for all of us are another matter."""
        gone = _absent(self.paths)
        only_there = [path for path in self.paths if path not in gone]
        if not only_there:
            return self.error
        return DatasetMergeError(
            f"Spark's executors do not see {only_there[0]}, which is here: {self.host} looked for it in vain. Driver "
            "and executors must share the file system that the data set is on, under the same path; a disk of the "
            "driver's own will do for a local master only. For `plan`, name a shared folder by scratch=. Nothing was "
            "changed.",
            operation="spark",
        )


def carried(error: FsspeckitError | Unseen) -> RuntimeError:
    """An error that Spark can take to the driver: the message carries ours."""
    text = base64.b64encode(pickle.dumps(error)).decode()
    return RuntimeError(f"fsspeckit-error:{text}: {error}")


def local_paths(storage: Storage, path: str) -> tuple[str, ...]:
    """The path, if it is one that `os` can look for."""
    local = storage.local_path(path)
    return () if local is None else (local,)


def _absent(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not os.path.exists(path)]
