"""What a merge asks of a store: counted, since every request has its price and its time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.api import dataset_io
from fsspeckit.core.storage import locate, object_files
from fsspeckit.core.storage.objects import ObjectChangedError
from s3.bucket import Bucket
from s3.servers import Moto

FILES = {f"f{i:03d}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(200)}
SOURCE = pa.table({"id": [1234], "x": ["new"]})


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_one_file_of_two_hundred(
    name: str, moto: Moto, moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = moto_bucket.write(prefix, FILES)
    monkeypatch.setattr(object_files, "TAILS", object_files.Tails())
    moto.requests.clear()
    result = dataset_io(name).merge(SOURCE, url, "update", ["id"])
    asked = list(moto.requests)
    assert (result.updated, len(result.rewritten_files), len(result.preserved_files)) == (1, 1, 199)
    footers = [r for r in asked if r.method == "GET" and ".parquet" in r.path]
    assert len({r.path for r in footers}) == 200
    assert len(footers) <= 203, "one request for each footer, and no more than three for the rows of one file"
    assert len(asked) <= 230, moto.counts()
    moto.requests.clear()
    plan = dataset_io(name).plan(SOURCE, url, "update", ["id"])
    assert plan.updated == 1
    assert len(moto.requests) <= 30, "the ends of files are known by their ETags"


def test_requests_of_a_rewritten_file(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    """docs/object-stores.md says what a merge costs: so many requests, and four for each file."""
    url = moto_bucket.write(prefix, {name: FILES[name] for name in sorted(FILES)[:20]})
    dataset_io("pyarrow").merge(pa.table({"id": [199], "x": ["new"]}), url, "update", ["id"])  # reads all footers
    needed = []
    for ids in ([55], [5, 25, 45, 65, 85]):
        moto.requests.clear()
        result = dataset_io("pyarrow").merge(pa.table({"id": ids, "x": ["new"] * len(ids)}), url, "update", ["id"])
        assert len(result.rewritten_files) == len(ids)
        needed.append(len(moto.requests))
    assert needed[0] <= 25 and needed[1] <= 44, needed


PLAN = """
import sys, pyarrow as pa
from fsspeckit.api import dataset_io
source = pa.table({"id": [1234], "x": ["new"]})
plan = dataset_io(sys.argv[1]).plan(source, sys.argv[2], "upsert", ["id"])
print(plan.updated, plan.inserted)
"""


def plan_in_a_new_process(name: str, url: str) -> list[int]:
    """How many rows would be updated, and inserted."""
    done = subprocess.run([sys.executable, "-c", PLAN, name, url], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_a_new_process_remembers_footers(
    name: str, moto: Moto, moto_bucket: Bucket, prefix: str, cache_folder: Path
) -> None:
    url = moto_bucket.write(prefix, FILES)
    time.sleep(3.1)  # stores tell times in whole seconds, and the last two are not trusted
    assert plan_in_a_new_process(name, url) == [1, 0]
    assert len(moto.requests) >= 200
    moto.requests.clear()
    assert plan_in_a_new_process(name, url) == [1, 0]
    assert len(moto.requests) <= 30, moto.counts()
    moto_bucket.write(prefix, {"f123.parquet": FILES["f123.parquet"].slice(0, 3)})
    moto.requests.clear()
    assert plan_in_a_new_process(name, url) == [0, 1]
    assert len(moto.requests) <= 30, "one footer more"


def test_columns_that_lie_together_are_one_request(
    moto: Moto, moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = pa.table({f"c{i}": [float(n * i) for n in range(5000)] for i in range(20)} | {"id": range(5000)})
    url = moto_bucket.write(prefix, {"wide.parquet": wide})
    monkeypatch.setattr(object_files, "TAILS", object_files.Tails())
    moto.requests.clear()
    assert dataset_io("pyarrow").read(url).num_rows == 5000
    assert len([r for r in moto.requests if r.path.endswith("wide.parquet")]) <= 4


def test_columns_of_a_rewritten_row_group_are_one_request(moto: Moto, moto_bucket: Bucket, prefix: str) -> None:
    """Each is larger than what is read ahead: these are asked for together because they are expected together."""
    noise = np.random.default_rng(1)
    columns: dict[str, Any] = {f"c{i}": noise.random(100_000) for i in range(8)}
    url = moto_bucket.write(prefix, {"f.parquet": pa.table(columns | {"id": range(100_000)})})
    source = pa.table({f"c{i}": [0.5] for i in range(8)} | {"id": [7]})
    moto.requests.clear()
    assert dataset_io("pyarrow").merge(source, url, "upsert", ["id"]).updated == 1
    pages = [r for r in moto.requests if r.method == "GET" and r.path.endswith("/f.parquet")]
    assert len(pages) <= 6, "the footer, the keys, the dictionaries and the columns"


def test_ranges_that_lie_together() -> None:
    file = object_files.PinnedFile(Any, "key", None)  # type: ignore[arg-type]
    near, far = object_files.MAX_GAP, 4 * object_files.MAX_GAP
    file.will_read([(far, far + 10), (0, 5), (5 + near, 9 + near), (2, 4)])
    assert file._requests == [(0, 9 + near), (far, far + 10)]
    file.will_read([(0, object_files.MAX_REQUEST), (object_files.MAX_REQUEST, object_files.MAX_REQUEST + 1)])
    assert file._requests == [(0, object_files.MAX_REQUEST), (object_files.MAX_REQUEST, object_files.MAX_REQUEST + 1)]


def test_ranges_of_one_object_are_of_one_version(moto_bucket: Bucket, prefix: str) -> None:
    """The object is replaced between two reads: an error, and no mixture."""
    moto_bucket.put(f"{prefix}/f.parquet", b"a" * 3_000_000)
    location = locate(f"s3://{moto_bucket.name}/{prefix}")
    assert [f.size for f in location.storage.walk(location.root)] == [3_000_000]
    with location.storage.open_input(location.at("f.parquet")) as file:
        assert file.read(10) == b"a" * 10
        moto_bucket.put(f"{prefix}/f.parquet", b"b" * 3_000_000)
        file.seek(1_500_000)
        with pytest.raises(ObjectChangedError, match="was changed or replaced in the meantime"):
            file.read(10)
    with location.storage.open_input(location.at("f.parquet")) as file, pytest.raises(ObjectChangedError):
        file.read(10)


def test_an_object_that_was_not_listed_is_pinned_by_its_end(moto_bucket: Bucket, prefix: str) -> None:
    moto_bucket.put(f"{prefix}/f.parquet", b"a" * 200_000)
    location = locate(f"s3://{moto_bucket.name}/{prefix}")
    with location.storage.open_input(location.at("f.parquet")) as file:
        assert file.size() == 200_000
        moto_bucket.put(f"{prefix}/f.parquet", b"b" * 200_000)
        file.seek(0)
        with pytest.raises(ObjectChangedError):
            file.read(10)
    moto_bucket.put(f"{prefix}/empty.parquet", b"")
    with location.storage.open_input(location.at("empty.parquet")) as file:
        assert (file.size(), file.read()) == (0, b"")
