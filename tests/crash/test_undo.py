"""Undo: byte for byte, in one commit, and a record that is true wherever a process dies."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from crash import lakes
from crash.dying import Server
from fsspeckit.core.commit import undo_records
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import fingerprint, write_lake


def bytes_of(lake: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every data file with its bytes, time and mode."""
    files = [path for path in lake.rglob("*.parquet") if not path.relative_to(lake).parts[0].startswith(".")]
    return {str(f.relative_to(lake)): (f.read_bytes(), f.stat().st_mtime_ns, f.stat().st_mode) for f in files}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return lakes.make(tmp_path / "lake")


def operations(lake: Path) -> list[str]:
    return [commit.operation for commit in fsspeckit.history(str(lake))]


WRITES: dict[str, Any] = {
    "in_place": lambda lake: lakes.merge(lake, undoable=True),
    "new_file": lambda lake: lakes.merge(lake, replace="new_file", undoable=True),
    "append": lambda lake: PyArrowDatasetIO().write_dataset(lakes.SOURCE, str(lake), undoable=True),
    "overwrite": lambda lake: PyArrowDatasetIO().write_dataset(lakes.SOURCE, str(lake), "overwrite", undoable=True),
    "delete": lambda lake: fsspeckit.delete(str(lake), filters=[("id", "<", 15)], undoable=True),
    "full_merge": lambda lake: PyArrowDatasetIO().write_parquet_dataset(
        lakes.SOURCE, str(lake), "full_merge", ["id"], undoable=True
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_byte_for_byte(lake: Path, write: str) -> None:
    (lake / "f1.parquet").chmod(0o640)
    (lake / "_metadata").write_bytes(b"PAR1 of another program")
    before, names = bytes_of(lake), lakes.snapshot(lake.parent)
    WRITES[write](lake)
    assert bytes_of(lake) != before
    assert len(fsspeckit.history(str(lake))) == 1
    undone = fsspeckit.undo(str(lake))
    assert bytes_of(lake) == before
    assert lakes.snapshot(lake.parent) == names
    assert undone.operation == {"in_place": "upsert", "new_file": "upsert"}.get(write, write)


def test_one_after_the_other(lake: Path) -> None:
    states = [bytes_of(lake)]
    for write in ("in_place", "delete", "append", "overwrite", "in_place"):
        WRITES[write](lake)
        states.append(bytes_of(lake))
        lakes.merge(lake, pa.table({"id": [0], "x": [f"later{len(states)}"]}), replace="new_file", undoable=True)
        states.append(bytes_of(lake))
    listed = fsspeckit.history(str(lake))
    named = [commit.operation for commit in reversed(listed)][::2]
    assert named == ["upsert", "delete", "append", "overwrite", "upsert"]
    assert [commit.is_next for commit in listed] == [True] + 9 * [False]
    assert listed[-1].counts["updated"] == 3 and listed[-1].counts["inserted"] == 1
    for state in reversed(states[:-1]):
        fsspeckit.undo(str(lake))
        assert bytes_of(lake) == state
    with pytest.raises(fsspeckit.FsspeckitError, match="no commit that can be undone"):
        fsspeckit.undo(str(lake))
    assert not lakes.litter(lake.parent)


def test_kept_files_are_links_and_private(lake: Path) -> None:
    inode = (lake / "f0.parquet").stat().st_ino
    lakes.merge(lake, undoable=True)
    (folder,) = [Path(commit.folder) for commit in fsspeckit.history(str(lake))]
    kept = sorted(folder.glob("file-*"))
    assert [file.stat().st_nlink for file in kept] == [1, 1, 1]
    assert inode in [file.stat().st_ino for file in kept]
    assert not any(name.endswith(".parquet") for name in os.listdir(folder))
    for private in (folder, folder.parent):
        assert stat.S_IMODE(private.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("code", [errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP])
def test_copies_where_there_are_no_links(lake: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    (lake / "f0.parquet").chmod(0o604)
    before = bytes_of(lake)
    monkeypatch.setattr(os, "link", refuse)
    lakes.merge(lake, undoable=True)
    lakes.merge(lake, pa.table({"id": [0], "x": ["newer"]}), undoable=True)
    fsspeckit.undo(str(lake))
    fsspeckit.undo(str(lake))
    assert bytes_of(lake) == before and not lakes.litter(lake.parent)


def test_no_space_for_copies_changes_nothing(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    before = lakes.snapshot(lake.parent)
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(fsspeckit.StorageError, match="Nothing was changed"):
        lakes.merge(lake, undoable=True)
    assert lakes.snapshot(lake.parent) == before


CHANGES: dict[str, Any] = {
    "f0.parquet was changed": lambda lake: pq.write_table(pa.table({"id": [0], "x": ["o"]}), lake / "f0.parquet"),
    "f4.parquet is gone": lambda lake: (lake / "f4.parquet").unlink(),
    "new.parquet is new": lambda lake: pq.write_table(pa.table({"id": [7], "x": ["o"]}), lake / "new.parquet"),
    "f1.parquet was changed": lambda lake: lakes.merge(lake, pa.table({"id": [11], "x": ["later"]})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_since_is_named(lake: Path, change: str) -> None:
    lakes.merge(lake, undoable=True)
    CHANGES[change](lake)
    before = lakes.snapshot(lake.parent)
    with pytest.raises(fsspeckit.FsspeckitError, match=f"is not as the upsert of .* left it: {change}") as raised:
        fsspeckit.undo(str(lake))
    assert "Nothing was changed" in str(raised.value)
    assert lakes.snapshot(lake.parent) == before
    assert fsspeckit.history(str(lake))[0].changes == (change,)


def test_a_kept_file_that_is_gone(lake: Path) -> None:
    lakes.merge(lake, undoable=True)
    next(Path(fsspeckit.history(str(lake))[0].folder).glob("file-*")).unlink()
    before = lakes.snapshot(lake.parent)
    with pytest.raises(fsspeckit.StorageError, match=r"kept copy .* is missing or damaged"):
        fsspeckit.undo(str(lake))
    assert lakes.snapshot(lake.parent) == before


def test_without_the_option_nothing_is_kept(lake: Path) -> None:
    lakes.merge(lake)
    assert fsspeckit.history(str(lake)) == [] and not lakes.litter(lake.parent)


def test_a_merge_that_changes_nothing_keeps_nothing(lake: Path) -> None:
    lakes.merge(lake, pa.table({"id": [0], "x": ["old"]}), undoable=True)
    assert fsspeckit.history(str(lake)) == [] and not lakes.litter(lake.parent)


def test_old_ones_are_dropped(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(4):
        lakes.merge(lake, pa.table({"id": [n], "x": [f"n{n}"]}), undoable=True)
    assert len(fsspeckit.history(str(lake), keep=3, older_than="7d")) == 3
    assert len(fsspeckit.history(str(lake), keep=2)) == 2
    assert fsspeckit.undo(str(lake)).counts["updated"] == 1
    assert fsspeckit.history(str(lake), older_than=0.0) == []
    assert not lakes.litter(lake.parent)
    for bad in ({"keep": -1}, {"keep": True}, {"older_than": "week"}, {"older_than": -1}):
        with pytest.raises(fsspeckit.ArgumentError):
            fsspeckit.history(str(lake), **bad)


def test_delete_names_the_copies_that_may_have_its_rows(lake: Path) -> None:
    lakes.merge(lake, undoable=True)
    (kept,) = fsspeckit.history(str(lake))
    assert fsspeckit.delete(str(lake), filters=[("id", "=", -5)]).kept_copies == []
    assert fsspeckit.delete(str(lake), filters=[("id", "=", 1)]).kept_copies == [kept.folder]
    assert fsspeckit.delete(str(lake), filters=[("id", "=", 2)], undoable=True).kept_copies == [
        kept.folder,
        fsspeckit.history(str(lake))[0].folder,
    ]
    assert lakes.merge(lake, pa.table({"id": [3], "x": ["n"]})).kept_copies == []


def test_a_data_set_that_was_renamed(lake: Path) -> None:
    before = bytes_of(lake)
    lakes.merge(lake, undoable=True)
    renamed = lake.rename(lake.with_name("renamed"))
    other = lakes.make(lake)
    assert fsspeckit.history(str(other)) == [], "the record belongs to the folder that has another name now"
    fsspeckit.undo(str(renamed))
    assert bytes_of(renamed) == before
    assert not lakes.litter(lake.parent)


def test_a_copy_of_the_whole_tree(lake: Path) -> None:
    before = bytes_of(lake)
    lakes.merge(lake, undoable=True)
    shutil.copytree(lake.parent, lake.parent.with_name("with times"))
    copy = lake.parent.with_name("with times") / lake.name
    fsspeckit.undo(str(copy))
    assert bytes_of(copy) == before
    plain = shutil.copytree(lake.parent, lake.parent.with_name("without times"), copy_function=shutil.copy) / lake.name
    for number, file in enumerate(sorted(plain.glob("*.parquet"))):
        os.utime(file, (number, number))
    with pytest.raises(fsspeckit.FsspeckitError, match="was changed"):
        fsspeckit.undo(str(plain))
    fsspeckit.undo(str(lake))
    assert bytes_of(lake) == before
    for name in ("with times", "without times"):
        shutil.rmtree(lake.parent.with_name(name))


def test_an_undo_in_a_copy_that_is_finished_under_another_name(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the inode nor the name in the record is that of the folder then."""
    before = bytes_of(lake)
    lakes.merge(lake, undoable=True)
    shutil.copytree(lake.parent, lake.parent.with_name("copied"))
    shutil.rmtree(lake.parent)
    lake.parent.with_name("copied").rename(lake.parent)
    with monkeypatch.context() as patch, pytest.raises(fsspeckit.CommitUnfinishedError):
        patch.setattr(undo_records, "publish", raise_io_error)
        fsspeckit.undo(str(lake))
    renamed = lake.rename(lake.with_name("renamed"))
    fsspeckit.recover(str(renamed))
    renamed.rename(lake)
    assert operations(lake) == []
    assert bytes_of(lake) == before
    assert not lakes.litter(lake.parent)


def raise_io_error(*arguments: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_copy_of_the_data_set_alone_has_no_history(lake: Path) -> None:
    lakes.merge(lake, undoable=True)
    copy = shutil.copytree(lake, lake.with_name("copy"))
    assert fsspeckit.history(str(copy)) == []
    with pytest.raises(fsspeckit.FsspeckitError, match="no commit that can be undone"):
        fsspeckit.undo(str(copy))
    assert operations(lake) == ["upsert"]


def test_a_data_set_that_was_deleted_and_made_again(lake: Path) -> None:
    lakes.merge(lake, undoable=True)
    shutil.rmtree(lake)
    lakes.make(lake)
    with pytest.raises(fsspeckit.FsspeckitError, match="is not as the upsert"):
        fsspeckit.undo(str(lake))


def test_an_undo_of_the_first_write(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    fsspeckit.merge(lakes.SOURCE, str(lake), key_columns=["id"], undoable=True)
    fsspeckit.undo(str(lake))
    assert list(lake.iterdir()) == [] and not lakes.litter(tmp_path)


def test_partitions_that_became_empty_come_back(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    table = pa.table({"id": [1, 2, 3], "x": ["a", "b", "c"]})
    write_lake(lake, {"p=1/a.parquet": table, "p=2/b.parquet": pa.table({"id": [4], "x": ["d"]})})
    before = bytes_of(lake)
    fsspeckit.delete(str(lake), filters=[("p", "=", 2)], undoable=True)
    assert not (lake / "p=2").exists()
    fsspeckit.undo(str(lake))
    assert bytes_of(lake) == before


def test_records_of_others_are_ignored(lake: Path) -> None:
    """A broken record, one of an unknown format, one that names files outside, and a link."""
    lakes.merge(lake, undoable=True)
    (kept,) = fsspeckit.history(str(lake))
    record = (Path(kept.folder) / "record.json").read_text()
    undo = Path(kept.folder).parent
    for name, text in {
        "a1": "{",
        "a2": record.replace('"format": 1', '"format": 99').replace(kept.id, "a2"),
        "a3": record.replace("f0.parquet", "../f0.parquet").replace(kept.id, "a3"),
        "a4": record,
    }.items():
        (undo / name).mkdir()
        (undo / name / "record.json").write_text(text)
    (undo / "a5").symlink_to(kept.folder)
    assert [commit.id for commit in fsspeckit.history(str(lake))] == [kept.id]
    fsspeckit.undo(str(lake))
    assert lakes.holds(lake, lakes.OLD)


def test_streams_forget_a_batch_that_is_undone(lake: Path) -> None:
    from fsspeckit.core.dataset.ledger import Batch

    batches = [Batch("app", number) for number in (1, 2)]
    lakes.merge(lake, batch=batches[0], undoable=True)
    later = pa.table({"id": [0, 500], "x": ["second", "second"]})
    assert lakes.merge(lake, later, batch=batches[1], undoable=True).inserted == 1
    assert lakes.merge(lake, later, batch=batches[1]).source_count == 0  # skipped
    fsspeckit.undo(str(lake))
    assert lakes.merge(lake, lakes.SOURCE, batch=batches[0]).source_count == 0
    assert lakes.merge(lake, later, batch=batches[1]).inserted == 1


# Killed at every step


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def _template(folder: Path) -> Path:
    tables = {
        f"p={p}/f{f}.parquet": pa.table({"id": [100 * p + 10 * f + i for i in range(4)], "x": ["old"] * 4})
        for p in (1, 2)
        for f in range(2)
    }
    write_lake(folder / "lake", tables)
    return folder


@pytest.mark.parametrize("operation", ["undoable", "undoable_delete", "undoable_compact", "undo", "drop"])
def test_a_kill_at_every_step(server: Server, ground: Path, operation: str) -> None:
    template, scratch = _template(ground / "template"), ground / "scratch"
    first = bytes_of(template / "lake")
    if operation in ("undo", "drop"):
        PyArrowDatasetIO().merge(
            pa.table({"id": [100, 999], "x": ["n", "n"], "p": [1, 2]}),
            str(template / "lake"),
            undoable=True,
            key_columns=["id"],
        )
    before = fingerprint(template / "lake")

    def fresh() -> Path:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(template, scratch)
        return scratch / "lake"

    points = server.points(operation, fresh())
    kept_after, outcomes = {"undo": 0, "drop": 0}.get(operation, 1), set()
    for point in range(len(points)):
        lake = fresh()
        assert server.run(operation, lake, point)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an unfinished commit
            kept_early = len(fsspeckit.history(str(lake)))
        said = fsspeckit.recover(str(lake))
        kept = fsspeckit.history(str(lake))
        is_old = fingerprint(lake) == before
        where = f"killed at {points[point]}: {said}"
        outcomes.add(is_old)
        if operation == "drop":
            assert is_old and kept_early == len(kept) <= 1, where
        else:
            assert len(kept) == (kept_after if not is_old else 1 - kept_after), where
            assert is_old or operation != "undo" or bytes_of(lake) == first, where
        if kept:
            assert kept[0].changes == (), where
            fsspeckit.undo(str(lake))
            assert bytes_of(lake) == first, where
        assert not lakes.litter(scratch), where
    assert outcomes == ({True} if operation == "drop" else {True, False})
