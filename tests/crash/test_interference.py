"""A foreign program writes to the target between plan and commit: the merge refuses, and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crash import lakes
from fsspeckit.core.errors import DatasetMergeError, TargetChangedError
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO


def _rewrite(file: Path) -> None:
    pq.write_table(pa.table({"id": [0], "x": ["foreign"]}), file)


def _flip_a_byte(file: Path) -> None:
    size = file.stat().st_size
    with open(file, "r+b") as handle:
        handle.seek(5)
        byte = handle.read(1)
        handle.seek(5)
        handle.write(bytes([byte[0] ^ 1]))
    assert file.stat().st_size == size


def _touch(file: Path) -> None:
    os.utime(file)


def _replace_by_rename(file: Path) -> None:
    """Same size, same mtime, same bytes: only the file is another."""
    shutil.copy2(file, file.with_name("copy"))
    os.replace(file.with_name("copy"), file)


CHANGES = [_rewrite, _flip_a_byte, _touch, _replace_by_rename]


def _check_refused(
    monkeypatch: pytest.MonkeyPatch, lake: Path, step: str, disturb: Callable[[], object], write: Any, message: str
) -> None:
    seen: list[Any] = []

    def disturb_and_look() -> None:
        disturb()
        seen.append(lakes.fingerprint(lake))

    lakes.after(monkeypatch, step, disturb_and_look)
    with pytest.raises(TargetChangedError, match=message):
        write()
    assert lakes.fingerprint(lake) == seen[0]
    assert [p.name for p in lake.parent.iterdir()] == ["lake"]
    assert not lakes.litter(lake)


@pytest.mark.parametrize("name", ["f0.parquet", "f4.parquet"], ids=["rewritten", "untouched"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Path], None]
) -> None:
    lake = lakes.make(tmp_path / "lake")
    message = rf"{name} was changed\. Another program is writing here.*Nothing was changed"
    _check_refused(monkeypatch, lake, "rewrite", lambda: change(lake / name), lambda: lakes.merge(lake), message)


@pytest.mark.parametrize("name", ["f0.parquet", "f4.parquet"], ids=["rewritten", "untouched"])
def test_a_removed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lake = lakes.make(tmp_path / "lake")
    _check_refused(
        monkeypatch, lake, "insert", (lake / name).unlink, lambda: lakes.merge(lake), rf"lake/{name} is gone"
    )


@pytest.mark.parametrize("name", ["f0.parquet", "f4.parquet"], ids=["to be rewritten", "model of new files"])
def test_a_file_removed_before_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lake = lakes.make(tmp_path / "lake")
    before = lakes.fingerprint(lake)
    lakes.after(monkeypatch, "match", (lake / name).unlink)
    with pytest.raises(DatasetMergeError, match=rf"lake/{name}"):
        lakes.merge(lake)
    del before[name]
    assert lakes.fingerprint(lake) == before
    assert not lakes.litter(tmp_path)


@pytest.mark.parametrize("name", ["f9.parquet", "p=3/f0.parquet"])
def test_an_added_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lake = lakes.make(tmp_path / "lake")

    def add() -> None:
        (lake / name).parent.mkdir(exist_ok=True)
        _rewrite(lake / name)

    _check_refused(monkeypatch, lake, "rewrite", add, lambda: lakes.merge(lake), rf"lake/{name} is new")


@pytest.mark.parametrize("step", ["match", "rewrite", "insert"])
def test_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    lake = lakes.make(tmp_path / "lake")
    _check_refused(
        monkeypatch,
        lake,
        step,
        lambda: _touch(lake / "f3.parquet"),
        lambda: lakes.merge(lake),
        "f3.parquet was changed",
    )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_plain_writes_refuse_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    lake = lakes.make(tmp_path / "lake")

    def write() -> object:
        return PyArrowDatasetIO().write_dataset(lakes.SOURCE, str(lake), mode=mode)

    _check_refused(monkeypatch, lake, "insert", lambda: _rewrite(lake / "f1.parquet"), write, "f1.parquet was changed")


def test_files_that_are_not_data_do_not_disturb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakes.make(tmp_path / "lake")
    lakes.after(monkeypatch, "rewrite", lambda: (lake / "notes.txt").write_text("hello"))
    assert lakes.merge(lake).updated == 3
    assert lakes.holds(lake, lakes.NEW)
    assert (lake / "notes.txt").read_text() == "hello"
