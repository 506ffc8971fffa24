"""Row groups of new rows end by rows, or by bytes if rows are wide: a writer holds one row group in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import defaults
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

ROWS, WIDE = 200, 1 << 14


def row_groups(lake: Path, **options: Any) -> list[int]:
    batches = [pa.record_batch({"id": [i], "x": [bytes(WIDE)]}) for i in range(ROWS)]
    source = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    (path,) = PyArrowDatasetIO().merge(source, str(lake), key_columns=["id"], **options).inserted_files
    metadata = pq.read_metadata(path)
    assert pq.read_table(path, columns=["id"])["id"].to_pylist() == list(range(ROWS))
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def test_wide_rows_make_row_groups_of_fewer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert row_groups(tmp_path / "default") == [ROWS]
    monkeypatch.setattr(defaults, "ROW_GROUP_BYTES", 1 << 20)
    found = row_groups(tmp_path / "bytes")
    assert len(found) > 1 and max(found) * WIDE <= (1 << 20) + WIDE
    assert row_groups(tmp_path / "given", row_group_size=ROWS) == [ROWS]
