"""Paths as users of Spark and Hadoop write them: the lake that is meant is the one that is changed, or none is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pyarrow as pa
import pyarrow.fs
import pytest

import fsspeckit
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.storage import locate
from support import all_names, fingerprint, read_rows, rows, write_lake

NEW = pa.table({"id": [1], "x": ["new"]})


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake, and an empty working directory that nothing may be written to."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return write_lake(tmp_path / "lakes/orders", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})


@pytest.mark.parametrize("prefix", ["file:", "file://", "file://localhost", "FILE:"])
def test_a_file_url_with_any_number_of_slashes_is_the_local_folder(io: Any, lake: str, prefix: str) -> None:
    assert io.plan(NEW, prefix + lake, "upsert", ["id"]).updated == 1
    assert io.merge(NEW, prefix + lake, "upsert", ["id"]).updated == 1
    assert sorted(row["x"] for row in rows(lake)) == ["b", "new"]
    io.write_dataset(pa.table({"id": [3], "x": ["c"]}), prefix + lake)
    assert sorted(row["id"] for row in read_rows(io, prefix + lake)) == [1, 2, 3]
    assert all_names(os.getcwd()) == []


def test_a_source_given_as_a_file_url(io: Any, lake: str, tmp_path: Path) -> None:
    source = write_lake(tmp_path / "source", {"s.parquet": NEW})
    assert io.merge(f"file:{source}/s.parquet", lake, "upsert", ["id"]).updated == 1
    assert io.merge(f"file:{source}", f"file:{lake}", "upsert", ["id"]).updated == 1


URLS = ["hdfs://host/lake", "hdfs:/lake", "abfss://c@a.dfs.core.windows.net/lake", "gs://b/lake", "dbfs:/mnt/lake"]


@pytest.mark.parametrize("url", [*URLS, "wasbs://c@a/lake", "nonsense://lake", "nonsense:/lake", "hdfs:lake"])
def test_a_scheme_that_is_not_supported_is_refused_before_anything_is_reached(io: Any, lake: str, url: str) -> None:
    calls = [
        lambda: io.merge(NEW, url, "upsert", ["id"]),
        lambda: io.plan(NEW, url, "upsert", ["id"]),
        lambda: io.write_dataset(NEW, url),
        lambda: io.read(url),
        lambda: io.merge(url, lake, "upsert", ["id"]),
        lambda: fsspeckit.recover(url),
    ]
    before = fingerprint(lake)
    scheme = url.partition(":")[0]
    for call in calls:
        with pytest.raises(ArgumentError) as problem:
            call()
        assert str(problem.value).startswith(f"Cannot reach {url}: {scheme}: is not supported. Use a path that is")
    assert fingerprint(lake) == before
    assert all_names(os.getcwd()) == []


def test_a_file_name_with_a_colon_is_a_local_path(io: Any, lake: str) -> None:
    for path in ("a:b", "./file:/x", "12:30/lake", "day/time:/x"):
        assert io.merge(NEW, path, "upsert", ["id"]).inserted == 1
        assert [row["x"] for row in rows(path)] == ["new"]


# -- of the parser alone


def test_the_host_of_a_file_url_must_be_this_one() -> None:
    with pytest.raises(ArgumentError, match=r"host 'lake'.*Write file:///lake/orders if 'lake' is a folder"):
        locate("file://lake/orders")
    with pytest.raises(ArgumentError, match="file:lake is not absolute"):
        locate("file:lake")
    assert locate("file:///lake/a#b?c").root == "/lake/a#b?c"
    assert locate("file:/").root == "/"


def test_percent_signs_mean_the_folder_that_is_there(tmp_path: Path) -> None:
    blank, literal = tmp_path / "a b", tmp_path / "a%20b"
    encoded = quote(str(blank))
    for url in (f"file:{encoded}", f"file://{encoded}"):
        assert locate(url).root == str(blank), "a new data set: as in any URL"
    literal.mkdir()
    assert locate(f"file:{literal}").root == str(literal), "as Hadoop and Spark take it"
    blank.mkdir()
    with pytest.raises(ArgumentError, match=r"may mean '.*a%20b' or '.*a b', and both exist"):
        locate(f"file:{literal}")
    literal.rmdir()
    assert locate(f"file:{encoded}").root == str(blank)


@pytest.mark.parametrize("local", [fsspec.filesystem("file"), pyarrow.fs.LocalFileSystem()])
def test_file_urls_with_a_local_file_system(local: Any, tmp_path: Path) -> None:
    for path in (f"file:{tmp_path}", f"file://{tmp_path}", str(tmp_path)):
        assert locate(path, local).root == str(tmp_path)


def test_a_store_whose_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fsspeckit.core.storage.s3", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(
        ArgumentError, match=r"Cannot reach s3://bucket/lake: obstore is not installed\. Install the extra"
    ):
        locate("s3://bucket/lake")
