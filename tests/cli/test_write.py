"""`fsspeckit write`: modes, partitions, dry runs, and the question before rows are removed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from support import data_files, fingerprint, rows

Call = Callable[..., Result]
NEW = ("write", "new.parquet", "lake")
PARTITIONS = (*NEW, "--mode", "overwrite_partitions")


def ids(month: str | None = None) -> list[int]:
    return sorted(row["id"] for row in rows("lake") if month in (None, row["month"]))


def test_append_is_the_default(call: Call) -> None:
    result = call(*NEW)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Written: append 3 rows into lake in ")
    assert "3 rows written\n" in result.stdout
    assert len(ids()) == 603


def test_a_new_data_set(call: Call) -> None:
    result = call("write", "new.parquet", "fresh", "--partition-by", "month", "--compression", "zstd")
    assert (result.exit_code, result.stderr) == (
        0,
        "Warning: fresh did not exist and was created: a NEW DATA SET. Check the path.\n",
    )
    (name,) = data_files("fresh")
    assert name.startswith("month=02/")
    assert pq.read_metadata(Path("fresh", name)).row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("options", "removed", "left"),
    [
        (["--mode", "overwrite"], 600, 3),
        (["--mode", "overwrite_partitions"], 200, 403),
        (["-m", "overwrite_partitions", "--partition", "month=02", "--partition", "month=03/"], 400, 203),
        (["--mode", "full_merge", "--key", "id"], 598, 3),
    ],
)
def test_rows_are_removed_only_with_yes(call: Call, options: list[str], removed: int, left: int) -> None:
    before = fingerprint(".")
    refused = call(*NEW, *options)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"Error: This write would remove {removed} rows of lake. Nothing was changed. Add --yes to remove them, "
        "--dry-run to see the files.\n"
    )
    planned = call(*NEW, *options, "--dry-run", "--json")
    said = json.loads(planned.stdout)
    assert (planned.exit_code, said.get("removed_rows", said.get("deleted"))) == (0, removed)
    assert fingerprint(".") == before
    done = call(*NEW, *options, "--yes", "--json")
    said = json.loads(done.stdout)
    assert (done.exit_code, said.get("removed_rows", said.get("deleted")), len(ids())) == (0, removed, left)


def test_a_write_that_removes_no_rows_needs_no_yes(call: Call) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["x"], "month": ["12"]}), "december.parquet")
    assert call("write", "december.parquet", "lake", "-m", "overwrite_partitions").exit_code == 0
    assert call("write", "new.parquet", "other", "-m", "overwrite").exit_code == 0


def test_reports(call: Call) -> None:
    plan = call(*PARTITIONS, "--partition", "month=02", "--partition", "month=01", "--dry-run").stdout
    assert plan.startswith("Plan: overwrite_partitions 3 rows into lake\n")
    assert "  new rows in  month=02 (3)\n" in plan
    assert "  emptied      month=01\n" in plan
    assert "  3 rows written, 400 removed\n" in plan
    assert "month=01/part-0.parquet  removed" in plan
    done = call(*PARTITIONS, "--yes").stdout
    assert "  3 rows written, 200 removed\n" in done
    assert "month=02/part-0.parquet" in done


def test_a_new_target_of_a_dry_run(call: Call) -> None:
    planned = call("write", "new.parquet", "nowhere", "--dry-run")
    assert planned.stderr == "Warning: nowhere does not exist and would be created: a NEW DATA SET. Check the path.\n"
    assert not Path("nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*NEW, "--mode", "full_merge"], "full_merge needs the key columns"),
        ([*NEW, "-k", "id"], "-k is for --mode full_merge"),
        ([*NEW, "--partition", "month=01"], "--partition is for --mode overwrite_partitions"),
        ([*PARTITIONS, "--partition", "month"], "not of the form column=value"),
        ([*PARTITIONS, "--partition", "lake/month=01"], "not of the form column=value"),
        ([*NEW, "--mode", "replace"], "replace"),
    ],
)
def test_wrong_usage(call: Call, arguments: list[str], message: str) -> None:
    before = fingerprint(".")
    result = call(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert fingerprint(".") == before


def test_refusals(call: Call) -> None:
    outside = call(*PARTITIONS, "--yes", "--partition", "month=01")
    assert (outside.exit_code, "outside of the partitions that are named, e.g. in month=02" in outside.stderr) == (
        1,
        True,
    )
    unknown = call(*PARTITIONS, "--yes", "--partition", "day=1")
    assert (unknown.exit_code, "not partition columns" in unknown.stderr) == (1, True)


def test_the_null_partition_is_named_as_its_folder(call: Call) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["x"], "month": pa.array([None], pa.string())}), "null.parquet")
    write = ("write", "null.parquet", "lake", "-m", "overwrite_partitions")
    assert call(*write, "--partition", "month=__HIVE_DEFAULT_PARTITION__").exit_code == 0
    assert "This write would remove 1 row of lake" in call(*write).stderr


def test_standard_input(call: Call) -> None:
    data = Path("new.parquet").read_bytes()
    assert "--yes" in call("write", "-", "lake", "-m", "overwrite_partitions", stdin=data).stderr
    assert call("write", "-", "lake", "-m", "overwrite_partitions", "--yes", stdin=data).exit_code == 0
    assert ids("02") == [201, 202, 900]


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_a_terminal_is_asked(here: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "fsspeckit", *PARTITIONS, "--json"]
    done = subprocess.run(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, timeout=300)
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "This write would remove 200 rows of lake. Go on? [y/N]" in said
    assert done.returncode == code
    assert ids("02") == ([201, 202, 900] if code == 0 else list(range(200, 400)))
    assert bool(done.stdout) == (code == 0)


def test_no_more_rows_than_agreed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer adds rows while the user thinks: the answer was about fewer rows."""
    from fsspeckit.cli import commands

    def agree(target: str, removed: int | None) -> None:
        assert removed == 200
        pq.write_table(pa.table({"id": [7], "name": ["late"]}), "lake/month=02/late.parquet")

    monkeypatch.setattr(commands, "confirm_removal", agree)
    result = call(*PARTITIONS)
    assert (result.exit_code, "would remove 201 row(s); max_removed_rows is 200" in result.stderr) == (1, True)
    assert 7 in ids("02")
