"""`fsspeckit undo` and `fsspeckit history`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from support import all_names, fingerprint

Call = Callable[..., Result]
MERGE = ("merge", "new.parquet", "lake", "-k", "id", "--undoable")


def test_undo_and_history(call: Call) -> None:
    before = fingerprint("lake")
    assert call(*MERGE).exit_code == 0
    listed = call("history", "lake").stdout
    assert "upsert" in listed and "1 inserted, 2 updated" in listed and "keeps 1 file of" in listed
    (commit,) = json.loads(call("history", "lake", "--json").stdout)["commits"]
    assert commit["counts"]["target_count_after"] == 601 and commit["changes"] == [] and commit["is_next"]
    said = call("undo", "lake").stdout
    assert said.startswith("Undid the upsert of 20") and said.endswith(": 1 file put back, 1 file removed.\n")
    assert fingerprint("lake") == before
    assert call("history", "lake").stdout == "lake has no commit that can be undone.\n"
    assert not [name for name in all_names(".") if ".fsspeckit" in name]


def test_json_of_undo(call: Call) -> None:
    call(*MERGE)
    said = json.loads(call("undo", "lake", "--json").stdout)
    assert said["operation"] == "upsert" and said["restored_files"] == ["lake/month=02/part-0.parquet"]


def test_delete_names_kept_copies(call: Call) -> None:
    call(*MERGE)
    (commit,) = json.loads(call("history", "lake", "--json").stdout)["commits"]
    said = call("delete", "lake", "--where", "id = 5", "--html", "page.html").stdout
    assert f"Kept copies may still have the deleted rows: {commit['folder']}." in said
    assert commit["folder"] in Path("page.html").read_text()
    said = call("delete", "lake", "--where", "id = 6", "--json").stdout
    assert json.loads(said)["kept_copies"] == [commit["folder"]]
    assert call("history", "lake", "--keep", "0").exit_code == 0
    assert "Kept copies" not in call("delete", "lake", "--where", "id = 7").stdout


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["undo", "lake"], 1, "no commit that can be undone"),
        (["undo", "laek"], 1, "no data set at laek. Check the path. Did you mean lake?"),
        (["history", "laek"], 1, "no data set at laek. Check the path. Did you mean lake?"),
        (["history", "lake", "--older-than", "soon"], 1, "--older-than must be an age such as '7d'"),
        (["history", "lake", "--keep", "-1"], 2, "--keep"),
    ],
)
def test_refusals(call: Call, args: list[str], code: int, message: str) -> None:
    before = all_names(".")
    result = call(*args)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert all_names(".") == before


def test_undo_after_a_change(call: Call) -> None:
    call(*MERGE)
    call("delete", "lake", "--where", "id = 5")
    before = fingerprint("lake")
    result = call("undo", "lake")
    assert result.exit_code == 1 and "month=01/part-0.parquet was changed" in result.stderr
    assert "cannot be undone: month=01/part-0.parquet was changed" in call("history", "lake").stdout
    assert fingerprint("lake") == before


@pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite_partitions"])
def test_an_undoable_write(call: Call, mode: str) -> None:
    before = fingerprint("lake")
    write = ("write", "new.parquet", "lake", "--mode", mode, "--yes", "--undoable")
    assert call(*write, "--dry-run").exit_code == 0 and fingerprint("lake") == before
    assert call(*write).exit_code == 0 and fingerprint("lake") != before
    assert f"  {mode}  3 rows" in call("history", "lake").stdout
    assert call("undo", "lake").exit_code == 0 and fingerprint("lake") == before


def test_an_undoable_compaction(call: Call) -> None:
    before = fingerprint("lake")
    assert call("compact", "lake", "--undoable", "--dry-run").exit_code == 0 and fingerprint("lake") == before
    assert "6 → 3 files" in call("compact", "lake", "--undoable").stdout
    assert "  compact  6 → 3 files, 600 rows  keeps 6 files" in call("history", "lake").stdout
    assert call("undo", "lake").exit_code == 0 and fingerprint("lake") == before
