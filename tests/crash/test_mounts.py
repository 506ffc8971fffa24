"""Mounted file systems: NFS without locks, handles that went stale. The errors are injected."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import CommitUnfinishedError, StorageError
from support import all_names, fingerprint, rows, write_lake

NEW = pa.table({"id": [1, 99], "x": ["new", "new"]})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "place" / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})


def failing(code: int, real: Callable[..., Any], when: Callable[..., bool] = lambda *a: True) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        if when(*given):
            raise OSError(code, os.strerror(code))
        return real(*given, **named)

    return call


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks(lake: str, name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(lake)
    monkeypatch.setattr(fcntl, "flock", failing(code, fcntl.flock))
    for call in (lambda p: dataset_io(name).merge(NEW, p, "upsert", ["id"]), fsspeckit.recover):
        with pytest.raises(
            StorageError, match=r"cannot lock folders.*Mount it with locks.*Nothing was started"
        ) as problem:
            call(lake)
        assert problem.value.errno == code
    with pytest.raises(StorageError, match="cannot lock folders"):
        dataset_io(name).merge(NEW, f"{lake}-new", "upsert", ["id"])
    assert fingerprint(lake) == before
    assert all_names(Path(lake).parent) == ["lake", "lake/f.parquet"]
    assert dataset_io(name).read(lake).num_rows == 2, "to read it needs no lock"


def test_a_stale_handle_while_the_folder_is_listed(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(lake)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing(errno.ESTALE, os.scandir))
        with pytest.raises(StorageError, match="Stale file handle"):
            dataset_io("pyarrow").merge(NEW, lake, "upsert", ["id"])
    assert fingerprint(lake) == before
    assert all_names(Path(lake).parent) == ["lake", "lake/f.parquet"]


def test_a_stale_handle_while_files_are_staged(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(lake)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ESTALE, os.fsync))
        with pytest.raises(StorageError, match=r"a stale NFS handle.*Nothing was changed"):
            dataset_io("pyarrow").merge(NEW, lake, "upsert", ["id"])
    assert fingerprint(lake) == before
    assert all_names(Path(lake).parent) == ["lake", "lake/f.parquet"]


def test_a_stale_handle_after_the_commit(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is recorded, and finished when the server is back."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(errno.ESTALE, os.replace, lambda _, to: str(to).endswith(".parquet")))
        with pytest.raises(CommitUnfinishedError, match=r"is recorded; do not repeat it.*Stale file handle"):
            dataset_io("pyarrow").merge(NEW, lake, "upsert", ["id"])
    (said,) = fsspeckit.recover(lake)
    assert said.startswith("finished the commit")
    assert {row["id"]: row["x"] for row in rows(lake)} == {1: "new", 2: "b", 99: "new"}
