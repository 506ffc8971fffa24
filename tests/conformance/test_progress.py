"""`on_progress`: the same phases with every engine, numbers that only grow, and what its own errors do."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit import ProgressEvent
from fsspeckit.core.errors import ArgumentError
from support import fingerprint, write_lake

MERGE = ["lock", "footers", "source", "match", "write", "sync", "commit", "done"]
CHANGES = pa.table({"id": [2, 25, 99], "x": ["new", "new", "new"]})
FILES = 4


@pytest.fixture
def lake(tmp_path: Path) -> str:
    tables = {f"f{n}.parquet": pa.table({"id": range(10 * n, 10 * n + 10), "x": ["old"] * 10}) for n in range(FILES)}
    return write_lake(tmp_path / "lake", tables, row_group_size=5)


def check(events: list[ProgressEvent]) -> list[str]:
    """The phases, in order, of events that only grow and end at 100 %."""
    for before, after in pairwise(events):
        assert after.fraction >= before.fraction and after.seconds >= before.seconds
        if before.phase == after.phase:
            assert after.files >= before.files and after.bytes >= before.bytes and after.rows >= before.rows
    for event in events:
        assert 0 <= event.fraction <= 1
        assert event.files <= event.files_total and event.bytes <= event.bytes_total
    ends = [before for before, after in pairwise(events) if before.phase != after.phase]
    assert all((end.files, end.bytes) == (end.files_total, end.bytes_total) for end in ends)
    assert (events[-1].phase, events[-1].fraction) == ("done", 1.0)
    return [event.phase for before, event in pairwise([None, *events]) if before is None or before.phase != event.phase]


def last(events: list[ProgressEvent], phase: str) -> ProgressEvent:
    return [event for event in events if event.phase == phase][-1]


def test_a_merge(io: Any, lake: str) -> None:
    events: list[ProgressEvent] = []
    io.merge(CHANGES, lake, key_columns=["id"], on_progress=events.append)
    assert check(events) == MERGE
    assert last(events, "source").rows == 3
    matched, written = last(events, "match"), last(events, "write")
    assert (matched.files_total, matched.bytes_total) == (2, 2 * 5 * 16), "one row group of two files may have a key"
    assert written.files_total == 2
    assert written.bytes_total > sum(os.path.getsize(f"{lake}/f{n}.parquet") for n in (1, 3))
    events.clear()
    io.merge(CHANGES, lake, key_columns=["id"], on_progress=events.append)
    assert check(events) == [p for p in MERGE if p not in ("sync", "commit")], "nothing changed"
    with pytest.raises(FrozenInstanceError):
        events[0].files = 1  # type: ignore[misc]


def test_plan_delete_write_compact_and_undo(io: Any, lake: str) -> None:
    phases: dict[str, list[str]] = {}

    def run(name: str, work: Callable[[Any], object]) -> None:
        events: list[ProgressEvent] = []
        work(events.append)
        phases[name] = check(events)

    run("plan", lambda seen: io.plan(CHANGES, lake, key_columns=["id"], on_progress=seen))
    run("compare", lambda seen: io.plan(CHANGES, lake, key_columns=["id"], compare=True, on_progress=seen))
    run("plan_delete", lambda seen: io.plan_delete(lake, filters=[("id", "<", 3)], on_progress=seen))
    run("delete", lambda seen: io.delete(lake, filters=[("id", "<", 3)], on_progress=seen))
    run("delete keys", lambda seen: io.delete(lake, [7], ["id"], on_progress=seen))
    run("write", lambda seen: io.write_dataset(CHANGES, lake, on_progress=seen))
    run("full_merge", lambda seen: io.write_parquet_dataset(CHANGES, lake, "full_merge", ["id"], on_progress=seen))
    run("plan_write", lambda seen: io.plan_write(CHANGES, lake, on_progress=seen))
    io.write_dataset(CHANGES, lake)
    run("plan_compact", lambda seen: io.plan_compact(lake, on_progress=seen))
    run("compact", lambda seen: io.compact(lake, on_progress=seen))
    io.delete(lake, [2], ["id"], undoable=True)
    run("undo", lambda seen: fsspeckit.undo(lake, on_progress=seen))
    assert phases == {
        "plan": ["footers", "source", "match", "done"],
        "compare": ["footers", "source", "match", "compare", "done"],
        "plan_delete": ["footers", "source", "match", "done"],
        "delete": MERGE,
        "delete keys": MERGE,
        "write": [p for p in MERGE if p != "match"],
        "full_merge": MERGE,
        "plan_write": ["footers", "source", "done"],
        "plan_compact": ["footers", "done"],
        "compact": ["lock", "footers", "write", "sync", "commit", "lock", "footers", "done"],
        "undo": ["lock", "footers", "write", "commit", "done"],
    }


def test_an_error_of_the_callback_stops_the_merge_before_its_commit(io: Any, lake: str) -> None:
    before, names = fingerprint(lake), sorted(os.listdir(Path(lake).parent))
    for phase in MERGE[:6]:
        seen: list[str] = []

        def fail(event: ProgressEvent, phase: str = phase, seen: list[str] = seen) -> None:
            seen.append(event.phase)
            if event.phase == phase:
                raise RuntimeError(f"no more {phase}")

        with pytest.raises(RuntimeError, match=f"no more {phase}"):
            io.merge(CHANGES, lake, key_columns=["id"], on_progress=fail)
        assert seen[-1] == "failed"
        assert fingerprint(lake) == before
        assert sorted(os.listdir(Path(lake).parent)) == names


def test_later_errors_of_the_callback_are_logged(io: Any, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: ProgressEvent) -> None:
        if event.phase in ("commit", "done"):
            raise RuntimeError("too late")

    with caplog.at_level("WARNING", "fsspeckit.progress"):
        assert io.merge(CHANGES, lake, key_columns=["id"], on_progress=fail).updated == 2
    assert [r.getMessage().split(" of ")[0] for r in caplog.records if r.name == "fsspeckit.progress"] == [
        "on_progress failed in phase commit",
        "on_progress failed in phase done",
    ]


def test_calls_come_one_at_a_time(tmp_path: Path, io: Any) -> None:
    files = {f"f{n}.parquet": pa.table({"id": range(n * 1000, n * 1000 + 1000)}) for n in range(40)}
    lake, busy = write_lake(tmp_path / "many", files, row_group_size=100), threading.Lock()

    def slow(event: ProgressEvent) -> None:
        assert busy.acquire(blocking=False), "two calls at once"
        time.sleep(0.005)
        busy.release()

    io.merge(pa.table({"id": range(0, 40_000, 3)}), lake, key_columns=["id"], on_progress=slow)


def test_a_merge_that_is_refused_ends_with_failed(io: Any, lake: str) -> None:
    events: list[ProgressEvent] = []
    with pytest.raises(ValueError):
        io.merge(pa.table({"id": [1, 1], "x": ["a", "b"]}), lake, key_columns=["id"], on_progress=events.append)
    assert events[-1].phase == "failed" and events[-1].fraction < 1


def test_waiting_names_the_owner(io: Any, lake: str) -> None:
    events: list[ProgressEvent] = []
    code = (
        "import sys, time; from fsspeckit.core.commit.session import writing; from fsspeckit.core.storage import locate"
    )
    code += f"\nwith writing(locate({lake!r})):\n    print('locked', flush=True); sys.stdin.read()"

    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdin is not None and owner.stdout.readline() == "locked\n"

    def release(event: ProgressEvent) -> None:
        events.append(event)
        if event.waiting_for:
            owner.stdin.close()

    io.merge(CHANGES, lake, key_columns=["id"], on_progress=release)
    assert owner.wait(60) == 0
    waiting = [event for event in events if event.waiting_for]
    assert waiting and all(event.phase == "lock" for event in waiting)
    assert str(waiting[0].waiting_for).startswith(f"process {owner.pid} on ")
    assert check(events) == MERGE


def test_every_phase_is_a_line_in_the_log(io: Any, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fsspeckit"):
        io.merge(CHANGES, lake, key_columns=["id"])
    lines = [record.getMessage() for record in caplog.records if record.name == "fsspeckit.progress"]
    assert [line.removeprefix(f"upsert into {lake}: ").split(",")[0] for line in lines] == MERGE
    assert any(": write, 2 files, " in line for line in lines)


@pytest.mark.parametrize("wrong", [True, "bar", 3])
def test_something_else_is_refused(io: Any, lake: str, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="on_progress is a function that takes a ProgressEvent"):
        io.merge(CHANGES, lake, key_columns=["id"], on_progress=wrong)
