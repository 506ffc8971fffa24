"""What operators see of a merge: a line in the log `fsspeckit.merge`, and one in the commit log, a file of JSON lines.

The commit log is for dashboards, not for decisions. A line is written after the commit and before the next writer gets
the lock, so lines are in the order of commits. A process that is killed in between leaves no line.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from typing import Any

from fsspeckit import __version__
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.execution_plan import Request
from fsspeckit.core.progress import Progress
from fsspeckit.core.reports import MergeResult
from fsspeckit.core.storage import Location

log = logging.getLogger("fsspeckit.merge")

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


def check_commit_log(path: str | None, location: Location) -> None:
    """Refuse a commit log that could not be written, before anything is done."""
    if path is None:
        return
    if "://" in path:
        raise ArgumentError(f"commit_log is {path!r}. It must be a file on a disk: object stores cannot append lines.")
    root = location.storage.local_path(location.root)
    if root is not None and os.path.realpath(path).startswith(os.path.realpath(root) + os.sep):
        raise ArgumentError(f"commit_log is {path!r}, in the data set, where readers would take it for data.")
    try:
        os.close(os.open(path, _FLAGS, 0o666))
    except OSError as error:
        raise ArgumentError(f"commit_log is {path!r}, which cannot be written: {error.strerror}.") from error


def finished(
    engine: Engine, location: Location, request: Request, progress: Progress, result: MergeResult
) -> MergeResult:
    """The result with its times. It is logged, and appended to the commit log if something was committed."""
    phases = progress.seconds_by_phase()
    result = replace(
        result,
        started=progress.started,
        seconds=sum(phases.values()),
        phases=phases,
        engine=engine.name,
        version=__version__,
        application_id=engine.application_id,
    )
    log.info("%s", _line(location, result))
    if request.commit_log is not None and result.files_changed:
        _append(request.commit_log, _entry(location, request, result))
    return result


def _line(location: Location, result: MergeResult) -> str:
    """One line for people."""
    if result.replayed:
        return f"{result.strategy} into {location.shown}: the batch was committed before; {result.seconds:.2f} s"
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in result.phases.items())
    return (
        f"{result.strategy} into {location.shown}: {result.inserted} inserted, {result.updated} updated, "
        f"{result.deleted} deleted, {result.skipped} skipped; files: {len(result.rewritten_files)} rewritten, "
        f"{len(result.inserted_files)} new, {len(result.removed_files)} removed, {len(result.preserved_files)} kept; "
        f"bytes: {result.bytes_encoded} encoded, {result.bytes_copied} copied; {result.seconds:.2f} s ({phases})"
    )


def _entry(location: Location, request: Request, result: MergeResult) -> dict[str, Any]:
    """One line for programs: numbers of files instead of their names, so that lines stay short."""
    fields = result.to_dict()
    names = ("rewritten_files", "inserted_files", "removed_files", "preserved_files", "retyped_files")
    counts = {name: len(fields[name]) for name in names}
    batch = None if request.batch is None else {"app_id": request.batch.app_id, "number": request.batch.number}
    del fields["files"]
    return {"path": location.shown, **fields, **counts, "batch": batch}


def _append(path: str, entry: dict[str, Any]) -> None:
    """Append a line with one write, so that lines of several writers do not mix.

    The rows are committed, so an error is only logged.
    """
    line = json.dumps(entry).encode() + b"\n"
    try:
        file = os.open(path, _FLAGS, 0o666)
        try:
            if os.write(file, line) < len(line):
                raise OSError("the disk is full")
        finally:
            os.close(file)
    except OSError:
        log.warning("The merge is committed, but %s could not be written", path, exc_info=True)
