"""A journal or a staging folder that is not what we left there: refused, and nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crash import lakes
from fsspeckit.api import recover
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO


def _journal(additions: Any = (), removals: Any = (), version: Any = 1) -> str:
    return json.dumps({"format": version, "additions": additions, "removals": removals})


def _addition(path: Any, staged: Any = "file-00000") -> str:
    return _journal([{"staged": staged, "path": path, "size": 4}])


def _removal(path: Any) -> str:
    return _journal((), [{"path": path, "size": 6, "mtime_ns": 0}])


HOSTILE = {
    "upwards": _addition("../victim"),
    "upwards through a folder": _addition("p=1/../../victim"),
    "absolute": _addition("/tmp/victim"),
    "empty path": _addition(""),
    "empty part": _addition("p=1//f0.parquet"),
    "the folder itself": _addition("."),
    "with a NUL": _addition("f\0.parquet"),
    "not text": _addition(7),
    "staged upwards": _addition("f0.parquet", staged="../../victim"),
    "staged absolute": _addition("f0.parquet", staged="/etc/passwd"),
    "staged parent": _addition("f0.parquet", staged=".."),
    "staged not text": _addition("f0.parquet", staged=None),
    "removes upwards": _removal("../victim"),
    "removes absolute": _removal("/tmp/victim"),
    "removes upwards through a folder": _removal("p=1/../../victim"),
    "unknown format": _journal(version=2),
    "no format": json.dumps({"additions": [], "removals": []}),
    "no removals": json.dumps({"format": 1, "additions": []}),
    "a step with more in it": _journal([{"staged": "a", "path": "b", "size": 1, "run": "rm"}]),
    "a step with less in it": _journal([{"path": "b"}]),
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "cut off": _addition("f0.parquet")[:-5],
    "empty": "",
    "not text at all": "\udcff\udcfe",
}


def _plant(parent: Path, journal: str) -> Path:
    """A lake, a victim beside it, and a staging folder with a journal that someone else wrote."""
    lake = lakes.make(parent / "lake")
    (parent / "victim").write_text("victim")
    home = parent / ".fsspeckit-lake/.staging_0"
    home.mkdir(parents=True)
    (home / "file-00000").write_text("evil")
    (home / "journal.json").write_text(journal, errors="surrogateescape")
    return lake


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_journal(tmp_path: Path, kind: str) -> None:
    lake = _plant(tmp_path, HOSTILE[kind])
    before = lakes.snapshot(tmp_path)
    for write in (lambda: lakes.merge(lake), lambda: recover(str(lake))):
        with pytest.raises(CommitUnfinishedError, match=r"journal\.json cannot be used: .*Nothing was changed"):
            write()
    with pytest.warns(UserWarning, match="unfinished commit"):
        assert PyArrowDatasetIO().read(str(lake)).num_rows == 20
    assert lakes.snapshot(tmp_path) == before


def test_an_honest_journal_is_carried_out(tmp_path: Path) -> None:
    """So that the refusals above are for what they say."""
    lake = _plant(tmp_path, _addition("f9.txt"))
    assert len(recover(str(lake))) == 1
    assert (lake / "f9.txt").read_text() == "evil"
    assert not lakes.litter(tmp_path)


def test_a_journal_whose_staged_file_is_gone(tmp_path: Path) -> None:
    lake = _plant(tmp_path, _addition("f0.parquet"))
    (tmp_path / ".fsspeckit-lake/.staging_0/file-00000").unlink()
    before = lakes.snapshot(tmp_path)
    with pytest.raises(CommitUnfinishedError, match=r"f0\.parquet was to be replaced by .*file-00000, which is gone"):
        lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before


def test_a_file_to_be_removed_that_has_changed_stays(tmp_path: Path) -> None:
    lake = _plant(tmp_path, _removal("f0.parquet"))
    before = lakes.fingerprint(lake)
    recover(str(lake))
    assert lakes.fingerprint(lake) == before


@pytest.mark.parametrize("where", [".fsspeckit-lake", ".fsspeckit-lake/.staging_0", ".fsspeckit-lake/.staging_0/deep"])
def test_links_in_the_place_of_staging_are_not_followed(tmp_path: Path, where: str) -> None:
    lake = lakes.make(tmp_path / "lake")
    (tmp_path / "victim/.staging_1").mkdir(parents=True)
    (tmp_path / "victim/.staging_1/precious").write_text("precious")
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).symlink_to(tmp_path / "victim")
    before = lakes.snapshot(tmp_path / "victim")
    lakes.merge(lake)
    assert lakes.snapshot(tmp_path / "victim") == before
    assert lakes.holds(lake, lakes.NEW)


def test_folders_that_only_look_like_ours_are_left_alone(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "lake")
    for name in (".fsspeckit-lak", ".fsspeckit-lake2", ".fsspeckit-lake/mine"):
        (tmp_path / name / ".staging_0").mkdir(parents=True)
        (tmp_path / name / ".staging_0/file").write_text("mine")
    before = {k: v for k, v in lakes.fingerprint(tmp_path).items() if not k.startswith("lake/")}
    lakes.merge(lake)
    assert {k: v for k, v in lakes.fingerprint(tmp_path).items() if not k.startswith("lake/")} == before
