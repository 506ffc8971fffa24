"""How files that are rewritten are dealt out to threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.local import LocalEngine
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO


def test_tasks_become_smaller_so_that_all_threads_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, dealt = 50, list[int]()
    exchange = LocalEngine.exchange

    def recording(self: LocalEngine, step: Any, spool: Any, send: Any, receive: Any, tasks: Any) -> Any:
        dealt.extend(len(task.item) for task in tasks)
        return exchange(self, step, spool, send, receive, tasks)

    monkeypatch.setattr(LocalEngine, "exchange", recording)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for n in range(files):
        pq.write_table(pa.table({"id": [n], "v": [0]}), tmp_path / f"{n:02}.parquet")
    source = pa.table({"id": range(files), "v": [1] * files})
    result = PyArrowDatasetIO().merge(source, str(tmp_path), "update", ["id"])
    assert (result.updated, sum(dealt)) == (files, files)
    assert dealt == sorted(dealt, reverse=True)
    assert dealt[0] > 1 and dealt[-8:] == [1] * 8
