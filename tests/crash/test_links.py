"""Links in a data set: a file under two names is refused, a link that leads out is replaced or refused."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import fsspeckit
from crash import lakes
from fsspeckit.core.errors import DatasetMergeError, TargetError
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import rows, write_lake

SOURCE = pa.table({"id": [0, 1, 99], "x": ["new"] * 3})


def _link_folder(lake: Path) -> str:
    (lake / "latest").symlink_to("2026-01")
    return "latest is a link"


def _link_file(lake: Path) -> str:
    (lake / "current.parquet").symlink_to("2026-01/f0.parquet")
    return "current.parquet is a link"


def _hard_link(lake: Path) -> str:
    os.link(lake / "2026-01/f0.parquet", lake / "copy.parquet")
    return "a hard link or a mount"


def _two_links_to_outside(lake: Path) -> str:
    (lake / "2026-01").rename(lake.parent / "elsewhere")
    (lake / "2026-01").symlink_to(lake.parent / "elsewhere")
    (lake / "latest").symlink_to(lake.parent / "elsewhere")
    return "2026-01 is a link"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_lake(tmp_path / "lake", {"2026-01/f0.parquet": pa.table({"id": range(10), "x": ["old"] * 10})})
    return tmp_path / "lake"


@pytest.mark.parametrize("link", [_link_folder, _link_file, _hard_link, _two_links_to_outside])
@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_a_file_under_two_names_is_refused(lake: Path, link: Callable[[Path], str], replace: str) -> None:
    why, before = link(lake), lakes.snapshot(lake.parent)
    with pytest.raises(TargetError, match=rf"are one file under two names: .*{why}.*Nothing was changed") as refused:
        lakes.merge(lake, SOURCE, replace=replace)
    assert "2026-01/f0.parquet" in str(refused.value)
    with pytest.raises(TargetError, match="one file under two names"):
        fsspeckit.plan(SOURCE, str(lake), key_columns=["id"])
    for mode in ("append", "overwrite"):
        with pytest.raises(TargetError, match="one file under two names"):
            PyArrowDatasetIO().write_dataset(SOURCE, str(lake), mode=mode)
    assert lakes.snapshot(lake.parent) == before


def test_a_folder_that_is_mounted_twice_in_one_data_set(lake: Path) -> None:
    (lake / "latest").mkdir()
    if subprocess.run(["mount", "--bind", lake / "2026-01", lake / "latest"], capture_output=True).returncode:
        pytest.skip("no right to mount")
    try:
        with pytest.raises(TargetError, match="a hard link or a mount"):
            lakes.merge(lake, SOURCE)
    finally:
        subprocess.run(["umount", lake / "latest"], check=True)
    assert len(rows(lake)) == 10


def test_links_that_name_no_file_twice(lake: Path) -> None:
    """A backup of hard links beside the lake, a link to a folder without data, and one that leads back up."""
    (lake.parent / "backup").mkdir()
    os.link(lake / "2026-01/f0.parquet", lake.parent / "backup/f0.parquet")
    (lake / "empty").mkdir()
    (lake / "nothing").symlink_to("empty")
    (lake / "2026-01/up").symlink_to("..")
    lakes.merge(lake, SOURCE)
    assert sorted(row["id"] for row in rows(lake)) == [*range(10), 99]
    assert {row["x"] for row in rows(lake.parent / "backup")} == {"old"}


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_a_link_to_a_file_outside_is_replaced_by_a_file(lake: Path, replace: str) -> None:
    """The file that it led to is not the data set's, and stays as it is."""
    outside = lake.parent / "outside.parquet"
    (lake / "2026-01/f0.parquet").rename(outside)
    (lake / "2026-01/f0.parquet").symlink_to(outside)
    before = outside.read_bytes()
    lakes.merge(lake, SOURCE, replace=replace)
    assert sorted(row["id"] for row in rows(lake)) == [*range(10), 99]
    assert not any(path.is_symlink() for path in lake.rglob("*"))
    assert outside.read_bytes() == before


def test_a_changed_file_behind_a_link_to_a_folder_outside_is_refused(lake: Path) -> None:
    (lake / "2026-01").rename(lake.parent / "outside")
    (lake / "2026-01").symlink_to(lake.parent / "outside")
    before = lakes.snapshot(lake.parent)
    with pytest.raises(
        DatasetMergeError, match=r"lies behind a link that leads out of the data set.*Nothing was changed"
    ):
        lakes.merge(lake, SOURCE)
    assert lakes.snapshot(lake.parent) == before
    lakes.merge(lake, pa.table({"id": [99], "x": ["new"]}))
    assert len(fsspeckit.read(str(lake))) == 11
