"""File systems that show a folder of a local disk are the local path: locked, committed and recovered as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.fs
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.storage import LocalStorage, locate
from support import all_names, read_rows, rows, write_lake

LOCAL = fsspec.filesystem("file")
ARROW = pyarrow.fs.LocalFileSystem()


def wrapped(folder: Path) -> dict[str, Any]:
    """Ways to hide a folder behind a file system."""
    handler = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(LOCAL))
    return {
        "dir": DirFileSystem(str(folder), LOCAL),
        "dir in dir": DirFileSystem(folder.name, DirFileSystem(str(folder.parent), LOCAL)),
        "subtree": pyarrow.fs.SubTreeFileSystem(str(folder), ARROW),
        "subtree of subtree": pyarrow.fs.SubTreeFileSystem(
            folder.name, pyarrow.fs.SubTreeFileSystem(str(folder.parent), ARROW)
        ),
        "handler": pyarrow.fs.SubTreeFileSystem(str(folder), handler),
        "arrow in fsspec": DirFileSystem(str(folder), fsspec.implementations.arrow.ArrowFSWrapper(ARROW)),
    }


@pytest.mark.parametrize("name", list(wrapped(Path("/a/b"))))
def test_a_folder_behind_a_file_system(engine: str, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options: dict[str, Any] = {"use_merge": False} if engine == "duckdb-union" else {}
    if engine == "spark":
        options = {"spark": request.getfixturevalue("spark")}
    base = tmp_path / "base"
    write_lake(base / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})
    io = dataset_io(engine.partition("-")[0], wrapped(base)[name], **options)
    source = pa.table({"id": [2, 3], "x": ["B", "C"]})
    assert io.plan(source, "lake", "upsert", ["id"]).updated == 1
    result = io.merge(source, "lake", "upsert", ["id"])
    assert (result.updated, result.inserted) == (1, 1)
    assert {row["id"]: row["x"] for row in rows(base / "lake")} == {1: "a", 2: "B", 3: "C"}
    assert all(n.startswith("lake") for n in all_names(base)), "nothing of ours is left"
    assert sorted(row["id"] for row in read_rows(io, "/lake")) == [1, 2, 3]


@pytest.mark.parametrize("name", list(wrapped(Path("/a/b"))))
def test_it_is_the_local_path(name: str, tmp_path: Path) -> None:
    location = locate("lake", wrapped(tmp_path)[name])
    assert isinstance(location.storage, LocalStorage)
    assert (location.root, location.shown) == (str(tmp_path / "lake"), str(tmp_path / "lake"))
    with pytest.raises(ArgumentError, match="leads out of the folder"):
        locate("a/../../secret", wrapped(tmp_path)[name])
    assert fsspeckit.recover("lake", wrapped(tmp_path)[name]) == []
