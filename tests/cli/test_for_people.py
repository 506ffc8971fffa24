"""What makes the command line pleasant: suggestions, lists of columns, JSON with a schema, doctor, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import fsspeckit
from fsspeckit.cli import doctor
from support import fingerprint, rows

Call = Callable[..., Result]
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/fsspeckit.schema.json").read_text())


def unknown_fields(schema: dict[str, Any], value: Any, place: str = "") -> Iterator[str]:
    """Fields of a document that its schema does not describe."""
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name not in schema["properties"]:
                yield f"{place}.{name}"
            else:
                yield from unknown_fields(schema["properties"][name], item, f"{place}.{name}")
    elif isinstance(value, list):
        for item in value[:1]:
            yield from unknown_fields(schema["items"], item, f"{place}[]")


def checked(said: Result, kind: str) -> Any:
    """The document on standard output, which fits the schema, as one kind, and has no field without a description."""
    document = json.loads(said.stdout)
    jsonschema.validate(document, SCHEMA)
    jsonschema.validate(document, {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{kind}"})
    assert list(unknown_fields(SCHEMA["$defs"][kind], document)) == [], "describe it in docs/fsspeckit.schema.json"
    assert document["version"] == fsspeckit.__version__
    return document


def test_every_document_fits_the_schema(call: Call) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    planned = checked(call("plan", "new.parquet", "lake", "-k", "id", "--json"), "plan")
    result = checked(call("merge", "new.parquet", "lake", "-k", "id", "--engine", "duckdb", "--json"), "result")
    assert (planned["engine"], result["engine"]) == ("pyarrow", "duckdb")
    assert planned["inserted"] == result["inserted"] == 1
    assert not planned["creates_target"] and not result["creates_target"]
    assert result["seconds"] > 0
    checked(call("delete", "lake", "--where", "id < 3", "--dry-run", "--json"), "plan")
    checked(call("delete", "lake", "--where", "id < 3", "--json"), "result")
    checked(call("inspect", "lake", "-k", "id", "--json"), "inspection")
    checked(call("recover", "lake", "--json"), "recovery")
    checked(call("write", "new.parquet", "written", "--dry-run", "--json"), "write_plan")
    checked(call("write", "new.parquet", "written", "--partition-by", "month", "--json"), "write_result")
    checked(
        call("write", "new.parquet", "written", "--mode", "full_merge", "-k", "id,month", "--yes", "--json"), "result"
    )
    call("delete", "lake", "--where", "id < 9", "--undoable")
    checked(call("history", "lake", "--json"), "history")
    checked(call("undo", "lake", "--json"), "undo")
    checked(call("compact", "lake", "--dry-run", "--json"), "compact_plan")
    checked(call("compact", "lake", "--json"), "compact_result")
    made = checked(call("merge", "new.parquet", "made", "-k", "id", "--json"), "result")
    assert made["creates_target"]


def test_errors_are_documents_too(call: Call) -> None:
    refused = call("merge", "new.parquet", "lake", "-k", "ID", "--json")
    error = checked(refused, "error")["error"]
    assert (refused.exit_code, error["exit_code"], error["type"]) == (1, 1, "ArgumentError")
    assert f"Error: {error['message']}\n" == refused.stderr
    misused = call("merge", "new.parquet", "lake", "--json")
    error = checked(misused, "error")["error"]
    assert (misused.exit_code, error["exit_code"], error["type"]) == (2, 2, "UsageError")
    assert "--key" in error["message"]
    assert call("merge", "new.parquet", "lake", "-k", "ID").stdout == ""


def test_a_target_that_must_exist(call: Call, here: Path) -> None:
    before = sorted(here.iterdir())
    for command in ("merge", "plan"):
        said = call(command, "new.parquet", "laek", "-k", "id", "--must-exist")
        assert said.exit_code == 1
        assert said.stderr == "Error: There is no data set at laek. Check the path. Did you mean lake?\n"
    assert sorted(here.iterdir()) == before
    assert call("merge", "new.parquet", "lake", "-k", "id", "--must-exist").exit_code == 0
    with pytest.raises(fsspeckit.TargetError, match="no data set"):
        fsspeckit.merge(pa.table({"id": [1]}), here / "nowhere", key_columns=["id"], must_exist=True)


def test_a_target_that_is_created_is_announced(call: Call) -> None:
    planned = call("plan", "new.parquet", "made", "-k", "id")
    assert "3 inserted; NEW DATA SET of 3 rows" in planned.stdout
    assert planned.stderr.startswith("Warning: made does not exist and would be created: a NEW DATA SET.")
    merged = call("merge", "new.parquet", "made", "-k", "id")
    assert "3 inserted; NEW DATA SET of 3 rows" in merged.stdout
    assert merged.stderr.startswith("Warning: made did not exist and was created: a NEW DATA SET.")
    again = call("merge", "new.parquet", "made", "-k", "id")
    assert "NEW DATA SET" not in again.stdout + again.stderr


@pytest.mark.parametrize("keys", [["-k", "a,b c"], ["-k", "a, b c"], ["-k", "a", "-k", "b c"]])
def test_several_columns_in_one_option(call: Call, here: Path, keys: list[str]) -> None:
    pq.write_table(pa.table({"a": [1, 1], "b c": [1, 2], "x": [1, 2]}), here / "two.parquet")
    assert call("merge", "two.parquet", "two", *keys).exit_code == 0
    assert call("merge", "two.parquet", "two", *keys, "--update-column", "x", "--sequence-by", "x").exit_code == 0
    assert len(rows("two")) == 2


def test_a_column_with_a_comma(call: Call, here: Path) -> None:
    pq.write_table(pa.table({"a,b": [1, 2], "p,q": [1, 2], "x": [1, 2]}), here / "comma.parquet")
    assert call("merge", "comma.parquet", "comma", "-k", '"a,b"', "-p", '"p,q"').exit_code == 0
    assert "not found" in call("merge", "comma.parquet", "comma", "-k", "a,b").stderr


SUGGESTED = {
    ("mrege",): "Did you mean 'merge'?",
    ("merge", "new.parquet", "lake", "-k", "id", "--stratgy", "insert"): "Did you mean '--strategy'?",
    ("merge", "new.parquet", "lake", "-k", "Id"): "Did you mean 'id'?",
    ("merge", "new.parquet", "lake", "-k", "id", "--update-column", "nmae"): "Did you mean 'name'?",
    ("merge", "new.parquet", "lake", "-k", "id", "--sequence-by", "mnth"): "Did you mean 'month'?",
    ("merge", "renamed.parquet", "lake", "-k", "id"): "Is 'Name' the target's 'name'? Then rename it.",
}


@pytest.mark.parametrize("arguments", SUGGESTED)
def test_suggestions(call: Call, here: Path, arguments: tuple[str, ...]) -> None:
    pq.write_table(pq.read_table("new.parquet").rename_columns(["id", "Name", "month"]), here / "renamed.parquet")
    said = call(*arguments)
    assert said.exit_code in (1, 2)
    assert SUGGESTED[arguments].replace("'", "") in said.stderr.replace("'", "")


def test_suggestions_in_python(tmp_path: Path) -> None:
    table: Any = pa.table({"id": [1]})
    merge: Any = fsspeckit.merge
    for name, meant in (("key", "key_columns"), ("on", "key_columns"), ("compresion", "compression")):
        with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
            merge(table, tmp_path, **{name: "id"})
    with pytest.raises(fsspeckit.ArgumentError) as caught:
        merge(table, tmp_path, "upsrt", ["id"])
    assert str(caught.value).endswith("'insert', 'update', 'upsert', 'delete'. Did you mean 'upsert'?")


def test_doctor(call: Call) -> None:
    said = call("doctor", "--engine", "pyarrow", "--engine", "duckdb")
    assert said.exit_code == 0, said.stdout
    assert "Everything works." in said.stdout
    assert [line.split()[:2] for line in said.stdout.splitlines()[-4:-2]] == [["ok", "pyarrow"], ["ok", "duckdb"]]
    examined = checked(call("doctor", "--engine", "pyarrow", "--json"), "examination")
    assert examined["problems"] == 0


def test_doctor_names_a_fix_for_each_problem(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (here / "notjava").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(here / "notjava"))
    monkeypatch.setattr("fsspeckit.installation.problems", lambda: ["Files of both. Remove the folder."])
    monkeypatch.setitem(sys.modules, "fsspeckit.datasets.duckdb", None)
    said = call("doctor", "--engine", "spark", "--engine", "duckdb", "--json")
    assert said.exit_code == 1
    examined = checked(said, "examination")
    problems = {check["name"]: check for check in examined["checks"] if check["state"] == "problem"}
    assert examined["problems"] == 3
    assert problems["fsspeckit"]["fix"] == "Remove the folder."
    assert "JAVA_HOME" in problems["Java"]["fix"]
    assert "pip install 'duckdb" in problems["duckdb"]["fix"]
    assert all(check["fix"] for check in problems.values())


def test_doctor_finds_an_engine_that_does_not_work(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("fsspeckit.datasets.pyarrow.PyArrowDatasetIO.merge", broken)
    said = call("doctor", "--engine", "pyarrow")
    assert said.exit_code == 1
    assert "OSError: no space left" in said.stdout
    assert "1 problem(s) found" in said.stdout


def test_doctor_reads_the_version_of_java(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = here / "jdk/bin/java"
    program.parent.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(here / "jdk"))
    said = {'openjdk version "17.0.1" 2021': "ok", 'java version "1.8.0_392"': "problem", "?": "problem"}
    for text, state in said.items():
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        program.chmod(0o755)
        assert doctor._java().state == state, text


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("fsspeckit in", "inspect"), ("fsspeckit merge --str", "--strategy"), ("fsspeckit merge -s up", "upsert")],
)
def test_completion(shell: Any, here: Path, words: str, wanted: str) -> None:
    """What bash asks for when the tab key is pressed."""
    count = len(words.split())
    env = {
        **os.environ,
        "_FSSPECKIT_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(count - 1),
    }
    program = "import sys; sys.argv[0] = 'fsspeckit'; from fsspeckit.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert f"plain,{wanted}" in done.stdout.splitlines(), done.stderr


def test_completion_scripts() -> None:
    for name in ("bash", "zsh", "fish"):
        env = {**os.environ, "_FSSPECKIT_COMPLETE": f"{name}_source"}
        program = "import sys; sys.argv[0] = 'fsspeckit'; from fsspeckit.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
        if name == "bash" and "4.4" in done.stderr:
            continue
        assert "_FSSPECKIT_COMPLETE" in done.stdout, done.stderr


def test_nothing_is_changed_by_a_wrong_call(call: Call) -> None:
    before = fingerprint("lake")
    for arguments in SUGGESTED:
        call(*arguments, "--json")
    assert fingerprint("lake") == before
