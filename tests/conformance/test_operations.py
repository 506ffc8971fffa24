"""What operators see of a merge: times by phase in the result, a log line, and a line in the commit log."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import ArgumentError
from support import fingerprint, rows, write_lake

CHANGES = pa.table({"id": [2, 3], "x": ["new", "new"]})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["old", "old"]})})


def test_a_result_has_its_times(io: Any, lake: str) -> None:
    begin = datetime.now(UTC)
    result = io.merge(CHANGES, lake, key_columns=["id"])
    assert begin <= result.started <= datetime.now(UTC)
    assert list(result.phases) == ["lock", "footers", "source", "match", "write", "sync", "commit"]
    assert result.seconds == pytest.approx(sum(result.phases.values())) and min(result.phases.values()) >= 0
    assert result.version == fsspeckit.__version__
    assert type(io).__name__.lower().startswith(result.engine)
    assert (result.application_id is not None) == (result.engine == "spark")
    fields = json.loads(json.dumps(result.to_dict()))
    assert (fields["inserted"], fields["started"]) == (1, result.started.isoformat())
    assert "commit" not in io.merge(CHANGES, lake, key_columns=["id"]).phases, "nothing changed"


def test_a_merge_is_one_line_in_the_log(io: Any, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "fsspeckit.merge"):
        result = io.merge(CHANGES, lake, key_columns=["id"])
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fsspeckit.merge"]
    removed = len(result.removed_files)
    assert line.startswith(
        f"upsert into {lake}: 1 inserted, 1 updated, 0 deleted, 0 skipped; files: 1 rewritten, 1 new, "
        f"{removed} removed, 0 kept; bytes: {result.bytes_encoded} encoded, {result.bytes_copied} copied; "
    )
    assert line.endswith(f" {result.seconds:.2f} s ({', '.join(f'{p} {s:.2f}' for p, s in result.phases.items())})")


def test_the_commit_log_has_a_line_per_commit(io: Any, lake: str, tmp_path: Path) -> None:
    log = tmp_path / "commits.jsonl"
    log.write_text('{"path": "other"}\n')
    io.merge(CHANGES, lake, key_columns=["id"], commit_log=str(log), batch=Batch("orders", 7))
    io.merge(CHANGES, lake, key_columns=["id"], commit_log=log)
    io.delete(lake, [1], ["id"], commit_log=str(log))
    first, *lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert first == {"path": "other"}
    assert [(line["path"], line["strategy"], line["inserted"], line["deleted"]) for line in lines] == [
        (lake, "upsert", 1, 0),
        (lake, "delete", 0, 1),
    ], "a merge without effect commits nothing"
    assert [line["batch"] for line in lines] == [{"app_id": "orders", "number": 7}, None]
    assert (lines[0]["rewritten_files"], lines[0]["inserted_files"], lines[0]["preserved_files"]) == (1, 1, 0)
    assert "files" not in lines[0] and lines[0]["phases"]["commit"] >= 0


def test_a_commit_log_that_cannot_be_written_is_refused_first(io: Any, lake: str, tmp_path: Path) -> None:
    before = fingerprint(lake)
    for wrong, message in {
        "s3://bucket/log": "object stores cannot append",
        f"{lake}/log.jsonl": "in the data set",
        str(tmp_path / "no" / "log"): "cannot be written: No such file",
        str(tmp_path): "cannot be written: Is a directory",
        7: "is the path of a file, not 7",
    }.items():
        with pytest.raises(ArgumentError, match=message):
            io.merge(CHANGES, lake, key_columns=["id"], commit_log=wrong)
    with pytest.raises(ArgumentError, match="commit_log without a strategy has no effect"):
        io.write_parquet_dataset(CHANGES, lake, commit_log=str(tmp_path / "log"))
    assert fingerprint(lake) == before


def test_a_commit_log_that_fails_after_the_commit_is_a_warning(
    io: Any, lake: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    result = io.merge(CHANGES, lake, key_columns=["id"], commit_log="/dev/full")
    assert result.inserted == 1 and len(rows(lake)) == 3
    assert any("/dev/full could not be written" in record.getMessage() for record in caplog.records)


def test_a_batch_again_reads_footers_only(io: Any, lake: str) -> None:
    """Neither a row of the source nor a data page: those of all files are overwritten with zeros."""
    io.merge(CHANGES, lake, key_columns=["id"], batch=Batch("orders", 7))
    for path in Path(lake).glob("*.parquet"):
        content = path.read_bytes()
        footer = int.from_bytes(content[-8:-4], "little") + 8
        path.write_bytes(content[:4] + bytes(len(content) - 4 - footer) + content[-footer:])
    before = fingerprint(lake)

    def unread() -> pa.RecordBatch:
        raise AssertionError("the source is read")

    source = pa.RecordBatchReader.from_batches(CHANGES.schema, (unread() for _ in range(1)))
    assert io.merge(source, lake, key_columns=["id"], batch=Batch("orders", 7)).replayed
    assert fingerprint(lake) == before
    with pytest.raises(Exception, match="parquet"):
        io.merge(CHANGES, lake, key_columns=["id"], batch=Batch("orders", 8))


def test_the_same_rows_again_change_nothing(io: Any, lake: str) -> None:
    """`updated` counts keys, `changed` rows that differ; equal rows are not written."""
    first = io.merge(CHANGES, lake, key_columns=["id"])
    assert (first.inserted, first.updated, first.changed) == (1, 1, 1)
    before = fingerprint(lake)
    again = io.merge(CHANGES, lake, key_columns=["id"])
    assert (again.inserted, again.updated, again.changed) == (0, 2, 0)
    assert not again.files_changed and "commit" not in again.phases and fingerprint(lake) == before


def test_a_batch_again_says_so(io: Any, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch("orders", 7)
    assert not io.merge(CHANGES, lake, key_columns=["id"], batch=batch).replayed
    with caplog.at_level("INFO", "fsspeckit.merge"):
        result = io.merge(CHANGES, lake, key_columns=["id"], batch=batch)
    assert result.replayed and (result.updated, result.changed) == (0, 0)
    assert list(result.phases) == ["lock", "footers"]
    assert "the batch was committed before" in caplog.messages[-1]
