"""How files that are rewritten are distributed over threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.parallel import Pool
from fsspeckit.core.rewrite import files as rewriting
from fsspeckit.core.rewrite.file import rewrite_file
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO


def merge_into(folder: Path, rows: Sequence[int]) -> list[str]:
    """Update the first row of files of so many rows; the files that were rewritten."""
    firsts = [sum(rows[:n]) for n in range(len(rows))]
    for n, (first, count) in enumerate(zip(firsts, rows, strict=True)):
        table = pa.table({"id": range(first, first + count), "v": [0] * count})
        pq.write_table(table, folder / f"{n:02}.parquet", use_dictionary=False, compression="none")
    source = pa.table({"id": firsts, "v": [1] * len(rows)})
    result = PyArrowDatasetIO().merge(source, str(folder), "update", ["id"])
    assert result.updated == len(rows)
    changed = [row["id"] for row in fsspeckit.read(str(folder)).to_pylist() if row["v"]]
    assert sorted(changed) == firsts
    return [Path(path).name for path in result.rewritten_files]


def test_tasks_become_smaller_so_that_all_threads_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()
    exchange = LocalEngine.exchange

    def recording(self: LocalEngine, step: Any, spool: Any, send: Any, receive: Any, tasks: Any) -> Any:
        counts.extend(len(task.item) for task in tasks)
        return exchange(self, step, spool, send, receive, tasks)

    monkeypatch.setattr(LocalEngine, "exchange", recording)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    merge_into(tmp_path, [1] * 50)
    assert sum(counts) == 50
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 1 and counts[-8:] == [1] * 8


def test_on_executors_tasks_are_alike() -> None:
    """Each reads its rows from afar, so that there should be few."""
    jobs: Any = [SimpleNamespace(footer=SimpleNamespace(path=str(n), info=SimpleNamespace(size=9))) for n in range(48)]
    hits: Any = SimpleNamespace(files={})
    tasks = rewriting._file_batches(2, hits, jobs, shrinking=False)
    assert [len(task) for task in tasks] == [6] * 8


@pytest.mark.parametrize(
    ("cores", "sizes", "threads"),
    [
        (1, [9, 3], {}),
        (2, [9], {0: 2}),
        (2, [9] * 4, {}),
        (2, [9] * 5, {4: 2}),
        (2, [1, 20], {1: 2}),
        (2, [1, 20, 2], {1: 2}),
        (2, [3] * 6 + [20], {}),
        (8, [9] * 10, {8: 4, 9: 4}),
        (8, [9] * 3, {0: 2, 1: 2, 2: 2}),
    ],
)
def test_several_threads_go_through_files_that_would_keep_one_busy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, sizes: list[int], threads: dict[int, int]
) -> None:
    given = dict[str, int]()

    def recording(location: Any, shape: Any, job: Any, replacements: Any, pool: Pool, meter: Any) -> Any:
        given[job.footer.path] = pool.workers
        return rewrite_file(location, shape, job, replacements, pool, meter)

    monkeypatch.setattr(rewriting, "rewrite_file", recording)
    monkeypatch.setattr(rewriting, "_PARALLEL_BYTES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    names = merge_into(tmp_path, [1000 * size for size in sizes])
    assert names == [f"{n:02}.parquet" for n in range(len(sizes))]
    assert given == {name: threads.get(n, 1) for n, name in enumerate(names)}
