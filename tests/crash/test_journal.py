"""A journal or a staging folder that is not what we left there: refused, and nothing is touched."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from crash import lakes
from fsspeckit.api import recover
from fsspeckit.core.commit.session import unfinished
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.storage import LocalStorage, locate
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

COMMIT = "0" * 32
STATE = {"size": 4, "mtime_ns": 0, "inode": 0}


def _journal(additions: Any = (), removals: Any = (), version: Any = 2, **more: Any) -> str:
    return json.dumps(
        {"format": version, "root": "/lake", "inode": 0, "additions": additions, "removals": removals, **more}
    )


def _addition(path: Any, staged: Any = "file-00000") -> str:
    return _journal([{"staged": staged, "path": path, "after": STATE, "before": None}])


def _removal(path: Any) -> str:
    return _journal((), [{"path": path, "before": {"size": 6, "mtime_ns": 0, "inode": 0}}])


def _first_form(additions: Any = (), removals: Any = ()) -> str:
    return json.dumps({"format": 1, "additions": additions, "removals": removals})


HOSTILE = {
    "upwards": _addition("../victim"),
    "upwards through a folder": _addition("p=1/../../victim"),
    "absolute": _addition("/tmp/victim"),
    "empty path": _addition(""),
    "empty part": _addition("p=1//f0.parquet"),
    "the folder itself": _addition("."),
    "with a NUL": _addition("f\0.parquet"),
    "half a character": _addition("f\ud800.parquet"),
    "not text": _addition(7),
    "not a data file": _addition("notes.txt"),
    "hidden": _addition(".f0.parquet"),
    "through a link": _addition("out/f0.parquet"),
    "a file twice": _journal([{"staged": s, "path": "f7.parquet", "after": STATE, "before": None} for s in "ab"]),
    "staged upwards": _addition("f7.parquet", staged="../../victim"),
    "staged absolute": _addition("f7.parquet", staged="/etc/passwd"),
    "staged parent": _addition("f7.parquet", staged=".."),
    "staged not text": _addition("f7.parquet", staged=None),
    "staged half a character": _addition("f7.parquet", staged="\udfff"),
    "staged link": _addition("f7.parquet", staged="link"),
    "staged pipe": _addition("f7.parquet", staged="pipe"),
    "staged folder": _addition("f7.parquet", staged="folder"),
    "removes upwards": _removal("../victim"),
    "removes absolute": _removal("/tmp/victim"),
    "removes upwards through a folder": _removal("p=1/../../victim"),
    "removes through a link": _removal("out/secret.parquet"),
    "removes what is not data": _removal("notes.txt"),
    "removes a summary elsewhere": _removal("p=1/_metadata"),
    "unknown format": _journal(version=3),
    "no format": json.dumps({"additions": [], "removals": []}),
    "no removals": json.dumps({"format": 2, "root": "/", "inode": 0, "additions": []}),
    "first form upwards": _first_form([{"staged": "file-00000", "path": "../victim", "size": 4}]),
    "a step with less in it": _journal([{"path": "b.parquet"}]),
    "a size that is none": _journal([{"staged": "a", "path": "f7.parquet", "after": {**STATE, "size": "x"}}]),
    "an endless size": _removal("f0.parquet").replace('"size": ', '"size": Infinity, "was": '),
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "nested deeply": "[" * 100_000,
    "a long number": '{"format": ' + "9" * 10_000 + "}",
    "cut off": _addition("f7.parquet")[:-5],
    "empty": "",
    "not text at all": "\udcff\udcfe",
}


def _plant(parent: Path, journal: str) -> Path:
    """A lake, a victim beside it, and a marker and a staging folder with a journal that someone else wrote."""
    lake = lakes.make(parent / "lake")
    (parent / "victim").write_text("victim")
    (parent / "elsewhere").mkdir()
    (parent / "elsewhere/secret.parquet").write_text("secret")
    (lake / "out").symlink_to(parent / "elsewhere")
    (lake / "notes.txt").write_text("notes!")
    (lake / f".fsspeckit-commit-{COMMIT}").mkdir()
    home = parent / f".fsspeckit-lake/.staging_{COMMIT}"
    (home / "folder").mkdir(parents=True)
    (home / "file-00000").write_text("evil")
    (home / "link").symlink_to(parent / "victim")
    os.mkfifo(home / "pipe")
    (home / "journal.json").write_text(journal, errors="surrogateescape")
    return lake


def _journal_file(parent: Path) -> Path:
    return parent / f".fsspeckit-lake/.staging_{COMMIT}/journal.json"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_journal(tmp_path: Path, kind: str) -> None:
    lake = _plant(tmp_path, HOSTILE[kind])
    before = lakes.snapshot(tmp_path)
    for write in (lambda: lakes.merge(lake), lambda: recover(str(lake)), lambda: recover(str(lake), finish=True)):
        with pytest.raises(CommitUnfinishedError, match=r"journal\.json cannot be used: .*Nothing was changed"):
            write()
    assert unfinished(locate(str(lake)))
    assert lakes.snapshot(tmp_path) == before
    assert recover(str(lake), discard=True)
    assert not lakes.litter(tmp_path)
    assert (tmp_path / "victim").read_text() == "victim"
    assert (tmp_path / "elsewhere/secret.parquet").read_text() == "secret"
    assert (lake / "notes.txt").read_text() == "notes!"


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "nowhere"])
def test_something_in_the_place_of_a_journal(tmp_path: Path, kind: str) -> None:
    """Read with care: neither a pipe nor an endless device keeps a merge waiting."""
    lake = _plant(tmp_path, "")
    journal = _journal_file(tmp_path)
    journal.unlink()
    if kind == "pipe":
        os.mkfifo(journal)
    elif kind == "folder":
        journal.mkdir()
    else:
        journal.symlink_to("/dev/zero" if kind == "endless" else tmp_path / "nowhere")
    for write in (lambda: lakes.merge(lake), lambda: recover(str(lake))):
        with pytest.raises(CommitUnfinishedError, match=r"journal\.json cannot be used"):
            write()


def test_an_owner_that_is_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "lake")
    (tmp_path / ".fsspeckit-lake").mkdir()
    os.mkfifo(tmp_path / ".fsspeckit-lake/owner")
    lakes.merge(lake)
    assert lakes.holds(lake, lakes.NEW)


def test_an_honest_journal_is_carried_out(tmp_path: Path) -> None:
    """So that the refusals above are for what they say."""
    lake = _plant(tmp_path, _addition("f9.parquet"))
    assert len(recover(str(lake))) == 1
    assert (lake / "f9.parquet").read_text() == "evil"
    assert not lakes.litter(tmp_path)


def test_a_journal_whose_staged_file_is_gone(tmp_path: Path) -> None:
    lake = _plant(tmp_path, _addition("f9.parquet"))
    (_journal_file(tmp_path).parent / "file-00000").unlink()
    before = lakes.snapshot(tmp_path)
    for write in (lambda: lakes.merge(lake), lambda: recover(str(lake), finish=True)):
        with pytest.raises(
            CommitUnfinishedError, match=r"f9\.parquet: expected the 4 bytes of .*file-00000, which is go"
        ):
            write()
    assert lakes.snapshot(tmp_path) == before


def test_a_file_to_be_removed_that_has_changed_stays(tmp_path: Path) -> None:
    lake = _plant(tmp_path, _removal("f0.parquet"))
    before = lakes.snapshot(tmp_path)
    with pytest.raises(
        CommitUnfinishedError, match=r"f0\.parquet: to be removed, expected 6 bytes .*, is [\d,]+ bytes"
    ):
        recover(str(lake))
    assert lakes.snapshot(tmp_path) == before


# Journals of version 0.1: no marker, and no word on what a file replaces


def _plant_first_form(parent: Path, **stat: int) -> Path:
    lake = _plant(parent, "")
    (lake / f".fsspeckit-commit-{COMMIT}").rmdir()
    old = lake / "f0.parquet"
    removal = {"path": "f0.parquet", "size": old.stat().st_size, "mtime_ns": old.stat().st_mtime_ns, **stat}
    _journal_file(parent).write_text(
        _first_form([{"staged": "file-00000", "path": "f9.parquet", "size": 4}], [removal])
    )
    return lake


def test_a_journal_of_the_first_form_is_finished(tmp_path: Path) -> None:
    lake = _plant_first_form(tmp_path)
    (lake / "out").unlink()
    with pytest.warns(UserWarning, match="unfinished commit"):
        PyArrowDatasetIO().read(str(lake))
    assert recover(str(lake))[0].endswith(": 1 file(s) put in place, 1 removed")
    assert (lake / "f9.parquet").read_text() == "evil" and not (lake / "f0.parquet").exists()
    assert not lakes.litter(tmp_path)


def test_a_journal_of_the_first_form_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    lake = _plant_first_form(tmp_path, size=5)
    before = lakes.snapshot(tmp_path)
    with pytest.raises(CommitUnfinishedError, match=r"f0\.parquet: to be removed, expected 5 bytes"):
        lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before


def test_a_journal_of_the_first_form_is_not_for_a_folder_made_since(tmp_path: Path) -> None:
    lake = _plant_first_form(tmp_path)
    shutil.rmtree(lake)
    with pytest.warns(UserWarning, match="commit for another folder"):
        lakes.merge(lake)
    assert lakes.holds(lake, {0: "new", 10: "new", 20: "new", 99: "new"})
    assert _journal_file(tmp_path).exists()


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


def test_what_is_made_durable_before_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut keeps what was synced. No kill shows that, so the calls are looked at."""
    lake = lakes.make(tmp_path / "lake")
    calls: list[str] = []

    def watch(name: str) -> None:
        original = getattr(LocalStorage, name)

        def call(storage: LocalStorage, *paths: str) -> Any:
            calls.append(f"{name} {Path(paths[-1]).name}")
            return original(storage, *paths)

        monkeypatch.setattr(LocalStorage, name, call)

    for name in ("sync_file", "sync_folder", "rename", "make_folder", "remove_folder", "remove"):
        watch(name)
    lakes.merge(lake)
    ordered = [
        r"sync_file file-00000",
        r"sync_folder \.staging_\w+",
        r"sync_folder \.fsspeckit-lake",
        rf"sync_folder {tmp_path.name}",
        r"sync_file \.journal\.json",
        r"rename journal\.json",
        r"sync_folder \.staging_\w+",
        r"make_folder \.fsspeckit-commit-\w+",
        r"sync_folder lake",
        r"rename part-\S+\.parquet",  # a row may move from a file that is replaced to a new one
        r"rename f0\.parquet",
        r"sync_folder lake",
        r"remove_folder \.fsspeckit-commit-\w+",
        r"sync_folder lake",
        r"remove journal\.json",
        r"sync_folder \.staging_\w+",
    ]
    left = iter(calls)
    for step in ordered:
        assert any(re.fullmatch(step, call) for call in left), f"{step} is missing or too late: {calls}"
