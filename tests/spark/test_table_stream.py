"""A stream into a table of Hive's: duplicates inside batches, new partitions, compactions, and two kills."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from change_stream import BATCHES_PER_DAY, kill_at_random, rows_of_files, run, table_folder, write_changes

pytestmark = pytest.mark.slow


def test_every_batch_is_committed_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Of 10 batches, compacted every 5th; of 100, every 20th, in `make torture`."""
    batches = request.config.getoption("--batches")
    compact_every, table = max(5, batches // 5), table_folder(tmp_path)
    expected = write_changes(tmp_path / "raw", batches)

    first, _ = run(tmp_path, compact_every, str(batches // 3))
    assert first == list(range(batches // 3))
    assert not (tmp_path / "checkpoint" / "commits" / str(first[-1])).exists()
    committed = rows_of_files(table)
    assert len(committed) == 10 * len(first)

    kill_at_random(tmp_path, compact_every, batches // 3, random.Random(batches))
    _, seen = run(tmp_path, compact_every)

    rows = {key: (x, day) for key, x, day, _ in seen["rows"]}
    assert len(seen["rows"]) == len(rows), "SQL sees a key twice"
    assert rows == expected
    untouched = {key: row for key, row in committed.items() if row[:2] == expected[key]}
    after = rows_of_files(table)
    assert untouched and {key: after[key] for key in untouched} == untouched, "the repeated batch was not merged again"

    days = -(-batches // BATCHES_PER_DAY)
    assert seen["partitions"] == [f"day=d{day:03d}" for day in range(days)]
    assert len(list(table.rglob("*.parquet"))) == days, "the last batch was followed by a compaction"
    strays = {path.name for path in table.parent.iterdir()} | {path.name for path in table.iterdir()}
    assert strays == {"events", *seen["partitions"]}

    log = [json.loads(line) for line in (tmp_path / "commits.jsonl").read_text().splitlines()]
    numbers = [line["batch"]["number"] for line in log]
    assert numbers == sorted(set(numbers)) and len(numbers) >= batches - 1
