"""Schema changes in an object store: killed at every request, all files have the old columns or all the new ones."""

from __future__ import annotations

import io
import itertools
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from s3.bucket import Bucket
from s3.conftest import WHOLE
from s3.faulty import Killed
from s3.test_faults import faulty

FILES = {
    f"p={p}/f.parquet": pa.table({"id": [10 * p, 10 * p + 1], "n": pa.array([1, 2], pa.int32())}) for p in (1, 2, 3)
}
SOURCE = pa.table({"id": [20, 99], "n": [2**40, 7], "p": ["2", "9"], "new": ["x", None]})


def evolve(url: str) -> Any:
    return fsspeckit.merge(SOURCE, url, "upsert", ["id"], on_schema_change="evolve")


def seen(bucket: Bucket, prefix: str) -> tuple[set[pa.Schema], list[Any]]:
    files = [pq.ParquetFile(io.BytesIO(bucket.get(k))) for k in bucket.etags(f"{prefix}/") if k.endswith(".parquet")]
    rows = [row for file in files for row in file.read().to_pylist()]
    return {file.schema_arrow.remove_metadata() for file in files}, sorted(rows, key=lambda row: int(row["id"]))


def test_all_files_get_the_columns(bucket: Bucket, prefix: str) -> None:
    url = bucket.write(prefix, FILES)
    result = evolve(url)
    assert result.added_columns == {"new": "string"} and result.retyped_columns == {"n": "int64"}
    (schema,), rows = seen(bucket, prefix)
    assert schema.names == ["id", "n", "new"] and schema.field("n").type == pa.int64()
    assert [row["new"] for row in rows] == [None, None, "x", None, None, None, None] and len(result.retyped_files) == 2
    assert fsspeckit.read(url).num_rows == 7 and bucket.litter(prefix) == []


@pytest.mark.parametrize("order", ["die before", "die after"])
def test_a_kill_at_every_request(moto_bucket: Bucket, quick_lease: Any, order: str) -> None:
    """`make test` tries every third request."""
    outcomes = set[str]()
    for point in itertools.count(1, 1 if WHOLE else 3):
        lake = f"evolve-{order.replace(' ', '-')}-{point}/lake"
        url = moto_bucket.write(lake, FILES)
        old = seen(moto_bucket, lake)
        with faulty(partial(_at, point, order)) as made:
            try:
                evolve(url)
                break
            except Killed:
                where = f"killed at request {point}, {made[0].asked[-1]}"
        said = fsspeckit.recover(url)
        schemas, rows = seen(moto_bucket, lake)
        is_new = len(rows) == 7 and all(schema.names == ["id", "n", "new"] for schema in schemas)
        assert (is_new or (schemas, rows) == old) and len(schemas) == 1, f"{where}: {said}"
        assert moto_bucket.litter(lake) == [], f"{where}: {said}"
        outcomes.add("new" if is_new else "old")
    assert outcomes == {"old", "new"}


def _at(point: int, order: str, number: int, name: str) -> str | None:
    return order if number == point else None
