"""The record of streams, without Spark: what is written, what counts, what is refused and how it is forgotten."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.ledger import PREFIX, Batch
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.parquet.thrift import CorruptFile
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, rows

ROOT = Path(fsspeckit.__file__).parent


def footer(**streams: Any) -> Footer:
    entries = {PREFIX + name: json.dumps(entry) for name, entry in streams.items()}
    return Footer(FileInfo("f.parquet", 1, 1), pa.schema([]), (), ledger=entries)


def written(lake: str, name: str) -> dict[str, Any]:
    entries = ledger.stream_entries(pq.read_metadata(f"{lake}/{name}").metadata)
    return {key.removeprefix(PREFIX): json.loads(value) for key, value in entries.items()}


def test_two_modules_know_how_a_stream_is_recorded() -> None:
    """`target.ledger` alone spells the name and the entry; `commit.forget` takes entries out."""
    spelled = {str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py") if "fsspeckit.stream." in p.read_text()}
    prefixed = {str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py") if "ledger import PREFIX" in p.read_text()}
    assert spelled == {"core/dataset/ledger.py"}
    assert prefixed == {"core/commit/forget.py"}


def test_the_greatest_batch_counts() -> None:
    """As a number: batch 10 comes after batch 9."""
    files = [footer(a={"batch": 9}, b={"batch": 1}), footer(a={"batch": 10}), footer(a={"batch": 2})]
    assert {n: json.loads(e)["batch"] for n, e in ledger.entries(files).items()} == {PREFIX + "a": 10, PREFIX + "b": 1}


@pytest.mark.parametrize(
    "entry", ["", "{", "[]", "{}", '{"batch": "1"}', '{"batch": true}', '{"batch": 1, "query": 2}']
)
def test_a_broken_entry_is_damage(entry: str) -> None:
    with pytest.raises(CorruptFile, match=r"'fsspeckit\.stream\.orders', which records what a stream has committed"):
        ledger.stream_entries({b"fsspeckit.stream.orders": entry.encode(), b"other": b"x"})


def test_replays() -> None:
    known = ledger.with_batch({}, Batch("orders", 7, "q1"))
    assert ledger.is_replay(Batch("orders", 7, "q1"), known)
    assert ledger.is_replay(Batch("orders", 7), known)
    assert not ledger.is_replay(Batch("orders", 8, "q1"), known)
    assert not ledger.is_replay(Batch("other", 1, "q2"), known)
    with pytest.raises(ArgumentError, match=r"Batch 6 .*after batch 7"):
        ledger.is_replay(Batch("orders", 6, "q1"), known)
    with pytest.raises(ArgumentError, match=r"Another query \(q1\)"):
        ledger.is_replay(Batch("orders", 8, "q2"), known)


def test_a_stream_is_carried_along_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, io = str(tmp_path / "lake"), PyArrowDatasetIO()
    io.merge(pa.table({"id": [1, 2]}), lake, "upsert", ["id"], batch=Batch("orders", 0, "q"))
    assert io.merge(pa.table({"id": [1, 9]}), lake, "upsert", ["id"], batch=Batch("orders", 0, "q")).inserted == 0
    io.merge(pa.table({"id": [3]}), lake, "insert", ["id"])
    assert [written(lake, name)["orders"]["batch"] for name in all_names(lake)] == [0, 0]
    with pytest.raises(ArgumentError, match=r"'orders' committed its last batch 0\.0 days ago"):
        fsspeckit.recover(lake, forget_stream="orders")
    with pytest.raises(ArgumentError, match=r"no stream 'order'\. It has 'orders'"):
        fsspeckit.recover(lake, forget_stream="order")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * 86_400)
    before = rows(lake)
    assert fsspeckit.recover(lake, forget_stream="orders")[-1] == (
        "Forgot the stream 'orders'; its entry was in 2 file(s)."
    )
    assert [written(lake, name) for name in all_names(lake)] == [{}, {}]
    assert rows(lake) == before
    assert sorted(row["id"] for row in before) == [1, 2, 3]


def test_an_overwrite_keeps_the_record_and_passes_over_broken_files(tmp_path: Path) -> None:
    lake, io = str(tmp_path / "lake"), PyArrowDatasetIO()
    io.merge(pa.table({"id": [1]}), lake, "upsert", ["id"], batch=Batch("orders", 4))
    Path(lake, "broken.parquet").write_bytes(b"no Parquet")
    io.write_dataset(pa.table({"id": [5]}), lake, "overwrite")
    (name,) = all_names(lake)
    assert written(lake, name)["orders"]["batch"] == 4
