"""Every command, its output and its exit codes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import fsspeckit
from support import data_files, fingerprint, rows

Call = Callable[..., Result]
NAMES = {0: "name 0", 201: "A", 202: "B", 900: "C", 599: "name 599"}


def names(lake: str = "lake") -> dict[int, str]:
    return {row["id"]: row["name"] for row in rows(lake)}


def test_version(call: Call) -> None:
    said = call("--version")
    assert said.stdout.splitlines()[0] == f"fsspeckit {fsspeckit.__version__}"
    assert "not the project of that name on PyPI" in said.stdout
    assert str(Path(fsspeckit.__file__).parent) in said.stdout
    assert said.stderr == ""


def test_help_names_every_command(call: Call) -> None:
    help_ = call("--help").stdout
    assert all(f"\n  {name} " in help_ for name in ("demo", "inspect", "merge", "plan", "recover"))
    assert "Exit codes" in help_


@pytest.mark.parametrize(
    ("strategy", "counts", "total"),
    [("upsert", (1, 2), 601), ("insert", (1, 0), 601), ("update", (0, 2), 600)],
)
def test_merge_changes_the_lake(call: Call, strategy: str, counts: tuple[int, int], total: int) -> None:
    result = call("merge", "new.parquet", "lake", "--key", "id", "--strategy", strategy, "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert (said["inserted"], said["updated"]) == counts
    assert said["target_count_after"] == len(rows("lake")) == total
    assert names().get(201) == ("A" if strategy != "insert" else "name 201")
    assert (900 in names()) == (strategy != "update")


def test_merge_says_what_happened(call: Call) -> None:
    result = call("merge", "new.parquet", "lake", "-k", "id")
    assert "2 updated, 1 inserted; 600 → 601 rows" in result.stdout
    assert "month=02/part-0.parquet" in result.stdout
    assert "rewritten   1" in result.stdout
    assert result.stderr == ""


def test_instants_in_folders_follow_a_zone(call: Call) -> None:
    moment = pa.array([dt.datetime(2024, 1, 1, 3, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": [1], "t": moment}), "moment.parquet")
    asked = ["moment.parquet", "zoned", "-k", "id", "--partition-timezone", "Asia/Tokyo", "--json"]
    assert call("merge", *asked, "-p", "t").exit_code == 0
    (name,) = data_files("zoned")
    assert name.startswith("t=2024-01-01 12%3A00%3A00/")
    assert json.loads(call("plan", *asked).stdout)["updated"] == 1
    assert json.loads(call("merge", *asked).stdout)["updated"] == 1
    wrong = call("plan", *asked[:-2], "Nowhere")
    assert wrong.exit_code == 1
    assert "--partition-timezone is 'Nowhere'" in wrong.stderr


def test_times_without_a_zone_follow_a_zone(call: Call) -> None:
    moment = dt.datetime(2024, 1, 1, 12)
    pq.write_table(pa.table({"id": [1], "t": pa.array([moment], pa.timestamp("us"))}), "moment.parquet")
    Path("zoned").mkdir()
    pq.write_table(pa.table({"id": [1], "t": pa.array([moment], pa.timestamp("us", "UTC"))}), "zoned/a.parquet")
    asked = ["moment.parquet", "zoned", "-k", "id"]
    for command in ("plan", "merge"):
        refused = call(command, *asked)
        assert refused.exit_code == 1
        assert "Column 't'" in refused.stderr and "--source-timezone" in refused.stderr
    zone = ["--source-timezone", "Asia/Tokyo", "--json"]
    assert json.loads(call("plan", *asked, *zone).stdout)["updated"] == 1
    assert json.loads(call("merge", *asked, *zone).stdout)["updated"] == 1
    assert pq.read_table("zoned").column("t").to_pylist() == [dt.datetime(2024, 1, 1, 3, tzinfo=dt.UTC)]


def test_merge_again_says_that_rows_were_equal(call: Call) -> None:
    call("merge", "new.parquet", "lake", "-k", "id")
    before = fingerprint("lake")
    result = call("merge", "new.parquet", "lake", "-k", "id")
    assert "The matched rows already equal those of the source; no file was rewritten." in result.stdout
    assert fingerprint("lake") == before


@pytest.mark.parametrize("command", [["plan"], ["merge", "--dry-run"]])
def test_plan_changes_nothing_and_tells_each_file(call: Call, command: list[str]) -> None:
    before = fingerprint("lake")
    result = call(*command, "new.parquet", "lake", "-k", "id", "--json")
    said = json.loads(result.stdout)
    assert fingerprint("lake") == before
    assert (said["inserted"], said["updated"], said["target_count_after"]) == (1, 2, 601)
    assert {f["path"]: f["action"] for f in said["files"]}["lake/month=02/part-0.parquet"] == "rewrite"
    assert len(said["files"]) == 6
    text = call(*command, "new.parquet", "lake", "-k", "id").stdout
    assert "2 matched rows" in text
    assert "1 of 2" in text
    assert all(name in text for name in data_files("lake"))


def test_composite_key_and_partition_of_a_new_data_set(call: Call) -> None:
    result = call("merge", "new.parquet", "fresh", "-k", "id", "-k", "month", "-p", "month", "--compression", "zstd")
    assert result.exit_code == 0
    assert "did not exist and was created" in result.stderr
    (name,) = data_files("fresh")
    assert name.startswith("month=02/")
    metadata = pq.ParquetFile(Path("fresh") / name).metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_replace_new_file_renames_the_rewritten_file(call: Call) -> None:
    result = call("merge", "new.parquet", "lake", "-k", "id", "--replace", "new_file", "--json")
    said = json.loads(result.stdout)
    (rewritten,) = said["rewritten_files"]
    assert (said["spliced_files"], said["reencoded_files"]) == (1, 0)
    assert rewritten.startswith("lake/month=02/part-0.fk")
    assert "month=02/part-0.parquet" not in data_files("lake")
    assert {k: v for k, v in names().items() if k in NAMES} == NAMES


def test_several_sources(call: Call) -> None:
    more = pa.table({"id": [901], "name": ["D"], "month": ["03"]})
    pq.write_table(more, "more.parquet")
    assert call("merge", "new.parquet", "more.parquet", "lake", "-k", "id").exit_code == 0
    assert names()[901] == "D"
    assert names()[900] == "C"


def test_a_folder_as_source(call: Call) -> None:
    assert call("merge", "lake", "copy", "-k", "id", "-p", "month").exit_code == 0
    assert names("copy") == names("lake")


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("encode", [None, _stream, _file])
def test_standard_input(call: Call, encode: Callable[[pa.Table], bytes] | None) -> None:
    data = Path("new.parquet").read_bytes() if encode is None else encode(pq.read_table("new.parquet"))
    assert call("merge", "-", "lake", "-k", "id", stdin=data).exit_code == 0
    assert {k: v for k, v in names().items() if k in NAMES} == NAMES


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "is empty"), (b"id,name\n1,a\n", "neither Parquet nor Arrow"), (b"PAR1 cut off", "Was it cut off?")],
)
def test_standard_input_that_cannot_be_read(call: Call, data: bytes, words: str) -> None:
    result = call("merge", "-", "lake", "-k", "id", stdin=data)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stdout == ""


def test_inspect(call: Call) -> None:
    text = call("inspect", "lake", "--key", "id").stdout
    assert "600" in text
    assert "3 by month" in text
    assert "0 … 599" in text
    assert "200 … 299" in text
    assert "a key may be in 1.0 of 6 files" in text
    said = json.loads(call("inspect", "lake", "--key", "id", "--json").stdout)
    assert (said["rows"], len(said["files"]), said["row_groups"], said["partitions"]) == (600, 6, 12, 3)
    assert said["files"][2]["keys"]["id"] == {"lower": "200", "upper": "299", "nulls": 0, "known": True}
    assert said["files"][2]["codecs"] == ["snappy"]
    assert said["unfinished"] == []


def test_inspect_of_an_empty_folder(call: Call) -> None:
    Path("empty").mkdir()
    said = json.loads(call("inspect", "empty", "--json").stdout)
    assert (said["rows"], said["files"]) == (0, [])


def test_recover_of_a_data_set_that_was_deleted(call: Call) -> None:
    """What a writer left beside it can be cleared away, and the folder does not come back."""
    staging = Path(".fsspeckit-gone/.staging_" + "0" * 32)
    staging.mkdir(parents=True)
    (staging / "file-00000").write_text("half a file")
    assert "removed the unfinished work" in call("recover", "gone", "--discard").stdout
    assert not staging.parent.exists() and not Path("gone").exists()


def test_recover_with_nothing_to_do(call: Call) -> None:
    assert "Nothing to recover" in call("recover", "lake").stdout
    said = json.loads(call("recover", "lake", "--json").stdout)
    assert (said["target"], said["done"]) == ("lake", [])


def test_html(call: Call) -> None:
    assert call("plan", "new.parquet", "lake", "-k", "id", "--html", "plan.html").exit_code == 0
    assert call("merge", "new.parquet", "lake", "-k", "id", "--html", "done.html").exit_code == 0
    plan, done = Path("plan.html").read_text(), Path("done.html").read_text()
    assert "2 updated, 1 inserted; 600 → 601 rows" in plan
    assert "month=02/part-0.parquet" in plan
    assert "month=02/part-0.parquet" in done
    assert "http:" not in plan + done and "https:" not in plan + done


USAGE = [
    ["merge", "new.parquet", "lake"],
    ["merge", "new.parquet", "-k", "id"],
    ["merge", "new.parquet", "lake", "-k", "id", "--strategy", "upsrt"],
    ["merge", "new.parquet", "lake", "-k", "id", "--strategy", "full_merge"],
    ["merge", "new.parquet", "lake", "-k", "id", "--engine", "sqlite"],
    ["merge", "new.parquet", "lake", "-k", "id", "--compression", "zip"],
    ["merge", "new.parquet", "lake", "-k", "id", "--lock-timeout", "-1"],
    ["merge", "new.parquet", "lake", "-k", "id", "--row-group-size", "0"],
    ["merge", "new.parquet", "lake", "-k", "id", "--master", "local[2]"],
    ["merge", "new.parquet", "lake", "-k", "id", "--engine", "spark", "--conf", "nothing"],
    ["merge", "new.parquet", "lake", "-k", "id", "--html", "no/such/folder.html"],
    ["merge", "new.parquet", "-", "lake", "-k", "id"],
    ["merg", "new.parquet", "lake"],
    ["inspect"],
]


@pytest.mark.parametrize("args", USAGE, ids=" ".join)
def test_wrong_usage_is_2(call: Call, args: list[str]) -> None:
    before = fingerprint("lake")
    result = call(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert fingerprint("lake") == before


REFUSED = {
    "key": (["merge", "new.parquet", "lake", "-k", "idd"], "'idd'"),
    "source": (["merge", "nwe.parquet", "lake", "-k", "id"], "nwe.parquet does not exist"),
    "target is a file": (["merge", "new.parquet", "new.parquet", "-k", "id"], "new.parquet is a file"),
    "partition": (["merge", "new.parquet", "lake", "-k", "id", "-p", "day"], "['day']"),
    "duplicate": (["merge", "new.parquet", "new.parquet", "lake", "-k", "id"], "201, 202, 900"),
    "moved": (["merge", "moved.parquet", "lake", "-k", "id"], "cannot change for existing keys"),
    "empty name": (["merge", "new.parquet", "", "-k", "id"], "must be a non-empty string"),
    "sources of different types": (["merge", "new.parquet", "words.parquet", "lake", "-k", "id"], "id"),
    "text": (["merge", "text.parquet", "lake", "-k", "id"], "text.parquet"),
    "protocol": (["merge", "new.parquet", "nope://lake", "-k", "id"], "Cannot reach nope://lake"),
    "source protocol": (["merge", "nope://new", "lake", "-k", "id"], "Cannot reach nope://new"),
    "hadoop target": (["plan", "new.parquet", "hdfs:/lake", "-k", "id"], "Cannot reach hdfs:/lake: hdfs: is not"),
    "hadoop source": (["merge", "dbfs:/new", "lake", "-k", "id"], "on Databricks /dbfs/new"),
    "hadoop inspect": (["inspect", "abfss://c@a/lake"], "Cannot reach abfss://c@a/lake: abfss: is not supported"),
    "hadoop recover": (["recover", "gs://b/lake"], "Cannot reach gs://b/lake: gs: is not supported"),
    "inspect": (["inspect", "laek"], "laek does not exist"),
    "inspect a file": (["inspect", "new.parquet"], "new.parquet is a file"),
    "inspect key": (["inspect", "lake", "-k", "idd"], "'idd'"),
    "recover": (["recover", "laek"], "laek does not exist"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_line_and_1(call: Call, case: str) -> None:
    pq.write_table(pa.table({"id": [201], "name": ["A"], "month": ["03"]}), "moved.parquet")
    pq.write_table(pa.table({"id": ["one"], "name": ["A"], "month": ["03"]}), "words.parquet")
    Path("text.parquet").write_text("not Parquet")
    before = fingerprint(".")
    args, words = REFUSED[case]
    for extra in ([], ["--json"]):
        result = call(*args, *extra)
        assert result.exit_code == 1
        if extra:
            error = json.loads(result.stdout)["error"]
            assert (error["exit_code"], f"Error: {error['message']}\n") == (1, result.stderr)
        else:
            assert result.stdout == ""
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        assert words in result.stderr
    assert fingerprint(".") == before


def test_a_missing_target_is_mentioned(call: Call) -> None:
    assert "would be created" in call("plan", "new.parquet", "laek", "-k", "id").stderr
    assert "nothing to update" in call("merge", "new.parquet", "laek", "-k", "id", "-s", "update").stderr
    assert not Path("laek").exists()
