"""What lies beside the rows: checksum files, summary files, other files, modes and groups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crash import lakes
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names

GROUP = 4242
SUMMARIES = ("_metadata", "_common_metadata")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """With a checksum for each file, as Spark leaves them, summaries, and files that are none of our business."""
    made = lakes.make(tmp_path / "lake")
    for i in range(5):
        (made / f".f{i}.parquet.crc").write_bytes(b"crc")
    for name in (*SUMMARIES, "_SUCCESS", "._SUCCESS.crc", "notes.txt"):
        (made / name).write_text(name)
    return made


def _others(lake: Path) -> list[str]:
    return [name for name in all_names(lake) if not name.endswith(".parquet")]


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_checksums_and_summaries_of_what_changed_go(lake: Path, replace: Any) -> None:
    lakes.merge(lake, replace=replace)
    assert _others(lake) == ["._SUCCESS.crc", ".f3.parquet.crc", ".f4.parquet.crc", "_SUCCESS", "notes.txt"]
    assert lakes.holds(lake, lakes.NEW)


def test_an_overwrite_keeps_other_files(lake: Path) -> None:
    PyArrowDatasetIO().write_dataset(lakes.SOURCE, str(lake), mode="overwrite")
    assert _others(lake) == ["._SUCCESS.crc", "_SUCCESS", "notes.txt"]
    assert lakes.holds(lake, {0: "new", 10: "new", 20: "new", 99: "new"})


def _insert_existing(lake: Path) -> object:
    return PyArrowDatasetIO().merge(lakes.SOURCE.slice(0, 3), str(lake), "insert", ["id"])


def _update_to_the_same(lake: Path) -> object:
    return lakes.merge(lake, pa.table({"id": [0, 10], "x": ["old", "old"]}))


def _nothing(lake: Path) -> object:
    return lakes.merge(lake, lakes.SOURCE.slice(0, 0))


def _append_nothing(lake: Path) -> object:
    return PyArrowDatasetIO().write_dataset(lakes.SOURCE.slice(0, 0), str(lake), mode="append")


@pytest.mark.parametrize("write", [_insert_existing, _update_to_the_same, _nothing, _append_nothing])
def test_a_write_that_changes_nothing_leaves_all_as_it_is(lake: Path, write: Any) -> None:
    before = lakes.snapshot(lake.parent)
    write(lake)
    assert lakes.snapshot(lake.parent) == before


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o664, 0o444])
def test_a_rewritten_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    lake = lakes.make(tmp_path / "lake")
    (lake / "f0.parquet").chmod(mode)
    lakes.merge(lake)
    assert lakes.holds(lake, lakes.NEW)
    assert (lake / "f0.parquet").stat().st_mode & 0o7777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_a_rewritten_file_keeps_its_owner_and_group(tmp_path: Path, replace: Any) -> None:
    lake = lakes.make(tmp_path / "lake")
    os.chown(lake / "f0.parquet", 4241, GROUP)
    (name,) = [n for n in lakes.merge(lake, replace=replace).rewritten_files if "/f0." in n]
    assert (os.stat(name).st_uid, os.stat(name).st_gid) == (4241, GROUP)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving folders away needs root")
def test_new_files_of_a_setgid_folder_get_its_group(tmp_path: Path) -> None:
    """They are made elsewhere and moved in; the folder's promise to its group holds all the same."""
    lake = lakes.make(tmp_path / "lake")
    os.chown(lake, -1, GROUP)
    lake.chmod(0o2775)
    (name,) = lakes.merge(lake).inserted_files
    assert os.stat(name).st_gid == GROUP
    assert lake.stat().st_mode & 0o7777 == 0o2775


def test_staging_is_as_private_as_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakes.make(tmp_path / "lake")
    modes: list[int] = []
    lake.chmod(0o700)
    lakes.after(
        monkeypatch, "rewrite", lambda: modes.extend(p.stat().st_mode & 0o777 for p in tmp_path.glob(".fs*/.staging_*"))
    )
    lakes.merge(lake)
    assert modes == [0o700]
