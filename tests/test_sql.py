"""`fsspeckit.sql`: what is refused, and how; sources and options; the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fsspeckit
from fsspeckit.cli.commands import cli
from fsspeckit.datasets.sql_text import parse_statement
from support import fingerprint, rows

ORDERS = pa.table({"id": [1, 2, 3], "state": ["new", "new", "new"], "ts": [10, 10, None]})
CHANGES = pa.table({"id": [1, 2, 4], "state": ["paid", None, "new"], "ts": [20, 20, 20], "op": ["U", "D", "I"]})
ON = "MERGE INTO '{lake}' t USING changes s ON t.id = s.id "
UPDATE, INSERT = "WHEN MATCHED THEN UPDATE SET * ", "WHEN NOT MATCHED THEN INSERT *"
FEED = (
    "WHEN MATCHED AND s.op = 'D' AND (t.ts IS NULL OR s.ts >= t.ts) THEN DELETE "
    "WHEN MATCHED AND (t.ts IS NULL OR s.ts >= t.ts) THEN UPDATE SET * "
    "WHEN NOT MATCHED AND s.op IS DISTINCT FROM 'D' THEN INSERT *"
)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    fsspeckit.write_dataset(ORDERS, str(tmp_path / "lake"))
    return str(tmp_path / "lake")


REFUSED = {
    # conditions that SQL and a merge answer differently for some row
    "MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED AND (t.ts IS NULL OR s.ts >= t.ts) THEN UPDATE SET *": (
        "Refused: WHEN MATCHED AND s.op = 'D' THEN DELETE.",
        "where s.op is 'D' and s.ts < t.ts, the statement deletes the row",
        "What it can do: WHEN MATCHED AND s.op = 'D' AND (t.ts IS NULL OR s.ts >= t.ts) THEN DELETE",
    ),
    "MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *": (
        "Refused: WHEN NOT MATCHED THEN INSERT *. For a new key where s.op is 'D', the statement inserts it",
        "WHEN NOT MATCHED AND s.op IS DISTINCT FROM 'D' THEN INSERT *",
    ),
    f"MATCHED AND s.op = 'D' THEN DELETE {UPDATE} WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT *": (
        "For a new key where s.op is null, the statement does nothing",
    ),
    "MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED AND s.op = 'U' THEN UPDATE SET *": (
        "Refused: WHEN MATCHED AND s.op = 'U' THEN UPDATE SET *.",
        "s.op is not null and not 'D', 'U'",
    ),
    "MATCHED AND s.ts > t.ts THEN UPDATE SET *": ("where s.ts = t.ts, the statement does nothing", "s.ts >= t.ts"),
    "MATCHED AND s.ts >= t.ts THEN UPDATE SET *": ("where t.ts is null, the statement does nothing",),
    "MATCHED AND t.state <> s.state THEN UPDATE SET *": ("equal rows are not written anew",),
    "MATCHED THEN UPDATE SET * WHEN MATCHED AND s.op = 'D' THEN DELETE": ("s.op chooses among the rows of the source",),
    "MATCHED AND s.op = 'D' THEN DELETE": ("Give a source that has only the rows you mean",),
    "MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *": ("does nothing", "deletes the row")[1:],
    "NOT MATCHED AND s.op = 'I' THEN INSERT *": ("Refused: WHEN NOT MATCHED AND s.op = 'I' THEN INSERT *.",),
    "MATCHED AND s.a >= t.a AND s.b >= t.b AND s.c >= t.c AND s.d >= t.d THEN UPDATE SET *": ("At most 3 columns",),
    # conditions that no option stands for
    "MATCHED AND upper(s.op) = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET *": (
        "No option of a merge expresses UPPER(s.op)",
    ),
    "MATCHED AND t.final THEN DELETE WHEN MATCHED THEN UPDATE SET *": ("depends on a value of the target",),
    "MATCHED AND s.op = 'D' AND s.kind = 'x' THEN DELETE WHEN MATCHED THEN UPDATE SET *": ("only one column may say",),
    "MATCHED AND s.op IN ('D', 1) THEN DELETE WHEN MATCHED THEN UPDATE SET *": ("values of different types",),
    "MATCHED AND s.op IN ('D', NULL) THEN DELETE WHEN MATCHED THEN UPDATE SET *": ("No option", "IN ('D', NULL)"),
    'MATCHED AND s.op = "D" THEN DELETE WHEN MATCHED THEN UPDATE SET *': ("text is in single quotes",),
    "MATCHED AND op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET *": ("Write s.op or t.op",),
    "MATCHED AND s.ts >= coalesce(t.ts, 0) THEN UPDATE SET *": ("No option of a merge expresses",),
    "NOT MATCHED AND s.ts >= t.ts THEN INSERT *": ("no row of the target",),
    # actions
    "MATCHED THEN UPDATE SET state = upper(s.state)": ("In SET state = UPPER(s.state)", "Compute values in the source"),
    "MATCHED THEN UPDATE SET state = s.status": ("the source's column of the same name",),
    "MATCHED THEN UPDATE SET state = s.state, state = s.state": ("names state more than once",),
    "MATCHED THEN UPDATE SET id = s.id": ("sets only the key",),
    "MATCHED THEN UPDATE SET * EXCEPT (ts)": ("In SET * EXCLUDE (ts)",),
    "MATCHED AND (t.ts IS NULL OR s.ts >= t.ts) THEN UPDATE SET state = s.state": ("Add ts to SET",),
    "MATCHED THEN UPDATE": ("Write THEN UPDATE SET *",),
    "NOT MATCHED THEN INSERT": ("Write THEN UPDATE SET *",),
    "NOT MATCHED THEN INSERT VALUES (s.id, s.state, s.ts)": ("INSERT (id, x) VALUES (s.id, s.x)",),
    "NOT MATCHED THEN INSERT (id, state) VALUES (s.state, s.id)": ("In VALUES (… s.state …)",),
    "NOT MATCHED THEN INSERT (id, state) VALUES (s.id)": ("2 columns and 1 values",),
    "NOT MATCHED THEN INSERT BY NAME": ("columns are always matched by name",),
    "NOT MATCHED THEN DELETE": ("takes only INSERT",),
    "MATCHED THEN INSERT *": ("takes only UPDATE and DELETE",),
    "MATCHED THEN DO NOTHING": ("A merge updates",),
    "NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE": (
        "goes together with WHEN MATCHED THEN UPDATE",
    ),
    "MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE AND t.ts > 3 THEN DELETE": ("delete_missing='partitions'",),
    "MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN UPDATE SET state = 'gone'": ("takes only DELETE",),
    "MATCHED THEN UPDATE SET * WHEN MATCHED THEN UPDATE SET *": ("It is never reached",),
    "MATCHED THEN UPDATE SET * RETURNING *": ("RETURNING *, which no option stands for",),
}


@pytest.mark.parametrize("clauses", REFUSED)
def test_refused_clauses(lake: str, clauses: str) -> None:
    before = fingerprint(lake)
    with pytest.raises(fsspeckit.ArgumentError) as refused:
        fsspeckit.sql(f"{ON.format(lake=lake)} WHEN {clauses}", changes=CHANGES)
    assert [part for part in REFUSED[clauses] if part not in str(refused.value)] == [], str(refused.value)
    assert fingerprint(lake) == before


REFUSED_STATEMENTS = {
    "MERGE INTO 'a' t USING s ON t.id = s.key WHEN MATCHED THEN DELETE": "Key columns have the same name",
    "MERGE INTO 'a' t USING s ON t.ID = s.id WHEN MATCHED THEN DELETE": "upper and lower case",
    "MERGE INTO 'a' t USING s ON t.id = s.id AND t.day = 'x' WHEN MATCHED THEN DELETE": "skipped by their statistics",
    "MERGE INTO 'a' t USING s ON t.id = s.id OR t.k = s.k WHEN MATCHED THEN DELETE": "ON … t.id = s.id OR t.k = s.k",
    "MERGE INTO 'a' t USING s ON id = id WHEN MATCHED THEN DELETE": "Write s.id or t.id",
    "MERGE INTO 'a' t USING s WHEN MATCHED THEN DELETE": "MERGE has no ON",
    "MERGE INTO 'a' t USING s ON t.id = s.id": "not complete",
    "MERGE INTO 'a' s USING s ON s.id = s.id WHEN MATCHED THEN DELETE": "Give them different names",
    "MERGE INTO orders t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "MERGE INTO 'orders'",
    "MERGE INTO db.orders t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "table='db.orders'",
    "MERGE INTO delta.`/a` t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "use delta's own MERGE",
    "MERGE INTO 'a' t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE": "Give the rows of the query",
    "MERGE INTO 'a' t USING f(1) s ON t.id = s.id WHEN MATCHED THEN DELETE": "the name of a source",
    "MERGE INTO 'a' t USING s TABLESAMPLE (10) ON t.id = s.id WHEN MATCHED THEN DELETE": "Leave it out",
    "WITH s AS (SELECT 1) MERGE INTO 'a' t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "WITH s AS (SELECT 1)",
    "MERGE WITH SCHEMA EVOLUTION INTO 'a' t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "='evolve'",
    "MERGE INTO 'a' t USING s ON t.id <=> s.id WHEN MATCHED THEN DELETE": "IS NOT DISTINCT FROM",
    "MERGE INTO 'a' t USING s ON t.id = s.id WHEN MATCHED THEN DELETE; SELECT 1": "Give one statement, not 2",
    "MERGE INTO 'a' t USNG s": "not understood",
    "MERGE INTO": "not understood: Expected table name (line 1, column 10).",
    "  ": "The statement is empty",
    "INSERT INTO 'a' SELECT 1": "write_dataset",
    "UPDATE 'a' SET x = 1": "MERGE INTO",
    "SELECT * FROM 'a'": "fsspeckit.read",
    "EXPLAIN MERGE INTO 'a' t USING s ON t.id = s.id WHEN MATCHED THEN DELETE": "plan_sql",
    "": "MERGE INTO or DELETE FROM",
    "DELETE FROM 'a'": "would remove all rows",
    "DELETE FROM a WHERE id = 1": "not in quotes",
    "DELETE FROM 'a' WHERE x IS NULL": "Refused: WHERE … x IS NULL",
    "DELETE FROM 'a' WHERE NOT x = 1": "NOT x = 1",
    "DELETE FROM 'a' WHERE x = 0.1": "fsspeckit.delete(path, filters=…)",
    "DELETE FROM 'a' WHERE x < y": "x < y",
    "DELETE FROM 'a' WHERE id IN (SELECT 1)": "select the keys",
    "DELETE FROM 'a' USING b WHERE x = 1": "which no option stands for",
    "DELETE FROM 'a' WHERE x = 1 LIMIT 5": "LIMIT 5",
    "DELETE FROM 'a' WHERE s.x = 1": "s.x = 1",
    "DELETE FROM 'a' WHERE ts < TIMESTAMP '2026-01-01 00:00:00+01:00'": "+01:00",
}


@pytest.mark.parametrize("statement", REFUSED_STATEMENTS)
def test_refused_statements(statement: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(fsspeckit.ArgumentError) as refused:
        fsspeckit.sql(statement, s=ORDERS)
    assert REFUSED_STATEMENTS[statement] in str(refused.value)
    assert "\n" not in str(refused.value) and "\x1b" not in str(refused.value)
    assert capfd.readouterr().err == ""  # sqlglot logs what it does not support


ACCEPTED: dict[str, dict[str, Any]] = {
    UPDATE: {"strategy": "update"},
    INSERT: {"strategy": "insert"},
    UPDATE + INSERT: {"strategy": "upsert"},
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY TARGET THEN INSERT *;": {"strategy": "upsert"},
    "WHEN MATCHED THEN DELETE": {"strategy": "delete"},
    "WHEN MATCHED AND s.ts >= t.ts OR t.ts IS NULL THEN DELETE": {"strategy": "delete", "sequence_by": ["ts"]},
    "WHEN MATCHED THEN DO NOTHING " + INSERT: {"strategy": "insert"},
    UPDATE + "WHEN NOT MATCHED BY SOURCE THEN DELETE": {"strategy": "update", "delete_missing": "all"},
    FEED: {"strategy": "upsert", "sequence_by": ["ts"], "delete_column": "op", "delete_values": ["D"]},
    "WHEN MATCHED AND s.ts < t.ts THEN DO NOTHING " + UPDATE: {"strategy": "update", "sequence_by": ["ts"]},
    "WHEN MATCHED AND (t.a IS NULL OR s.a > t.a OR (s.a = t.a AND (t.b IS NULL OR s.b >= t.b))) THEN UPDATE SET *": {
        "strategy": "update",
        "sequence_by": ["a", "b"],
    },
    "WHEN MATCHED AND s.gone THEN DELETE " + UPDATE: {"strategy": "update", "delete_column": "gone"},
    "WHEN MATCHED AND NOT s.active THEN DELETE " + UPDATE: {
        "strategy": "update",
        "delete_column": "active",
        "delete_values": [False],
    },
    "WHEN MATCHED AND s.gone = 1 THEN DELETE " + UPDATE: {
        "strategy": "update",
        "delete_column": "gone",
        "delete_values": [1],
    },
    "WHEN MATCHED AND s.op IN ('D', 'it''s') THEN DELETE " + UPDATE: {
        "strategy": "update",
        "delete_column": "op",
        "delete_values": ["D", "it's"],
    },
    'WHEN MATCHED THEN UPDATE SET "State x" = s.`State x`, t.ts = s.ts, id = s.id -- all': {
        "strategy": "update",
        "update_columns": ["State x", "ts"],
    },
}


@pytest.mark.parametrize("clauses", ACCEPTED)
def test_accepted_clauses(clauses: str) -> None:
    statement: Any = parse_statement(ON.format(lake="lake") + clauses)
    call = statement.call
    assert {"strategy": call.strategy, **call.options} == ACCEPTED[clauses]
    assert type(call.options.get("delete_values", [None])[0]) is type(ACCEPTED[clauses].get("delete_values", [None])[0])


def test_snowflakes_by_name() -> None:
    """Older versions of sqlglot do not know it: then it is refused, with what to write."""
    clauses = "WHEN MATCHED THEN UPDATE ALL BY NAME WHEN NOT MATCHED THEN INSERT ALL BY NAME"
    try:
        statement: Any = parse_statement(ON.format(lake="lake") + clauses)
    except fsspeckit.ArgumentError as error:
        assert "Write UPDATE SET * and INSERT *: columns are always matched by name." in str(error)
    else:
        assert (statement.call.strategy, statement.call.options) == ("upsert", {})


@pytest.mark.parametrize(
    "on",
    ["ON (t.id = s.id) AND s.day = t.day", "USING (id, day)", "ON t.id IS NOT DISTINCT FROM s.id AND t.day = s.day"],
)
@pytest.mark.parametrize("target", ["'a b'", '"a b"', "`a b`", "parquet.`a b`"])
def test_spelling_of_target_and_keys(target: str, on: str) -> None:
    statement: Any = parse_statement(
        f"merge into {target} as T using Changes s {on} when matched then delete".replace("t.", "T.")
    )
    assert (statement.target, statement.source, statement.call.key_columns) == ("a b", "Changes", ("id", "day"))


def test_a_feed(lake: str) -> None:
    statement = ON.format(lake=lake) + FEED
    plan = fsspeckit.plan_sql(statement, changes=CHANGES)
    result = fsspeckit.sql(statement, changes=CHANGES.to_pandas(), undoable=True)
    assert (plan.inserted, plan.updated, plan.deleted) == (result.inserted, result.updated, result.deleted) == (1, 1, 1)
    assert sorted((row["id"], row["state"]) for row in rows(lake)) == [(1, "paid"), (3, "new"), (4, "new")]
    late = CHANGES.set_column(2, "ts", pa.array([5, 5, 5]))
    assert fsspeckit.sql(statement, changes=late, engine="duckdb").skipped == 2
    assert fsspeckit.undo(lake).operation == "upsert"


def test_sources(lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changes = CHANGES.drop_columns("op")
    pq.write_table(changes, "changes.parquet")
    by_path = "MERGE INTO 'lake' USING 'changes.parquet' AS s ON lake.id = s.id " + UPDATE.replace("t.", "lake.")
    assert fsspeckit.sql(by_path).updated == 2
    with pytest.raises(
        fsspeckit.ArgumentError, match=r"source 'changes' is missing.*changes=….*Did you mean 'change'\?"
    ):
        fsspeckit.sql(ON.format(lake=lake) + UPDATE, change=changes)
    assert fsspeckit.sql("MERGE INTO 'lake' t USING engine s ON t.id = s.id " + UPDATE, engine=changes).updated == 2
    for said in ({"key_columns": ["id"]}, {"sequence_by": "ts"}, {"delete_missing": "all"}):
        with pytest.raises(fsspeckit.ArgumentError, match=f"The statement says {next(iter(said))} itself"):
            fsspeckit.sql(ON.format(lake=lake) + UPDATE, changes=changes, **said)
    with pytest.raises(
        TypeError, match=r"sql\(\) got an unexpected keyword argument 'undoabel'. Did you mean 'undoable'"
    ):
        fsspeckit.sql(ON.format(lake=lake) + UPDATE, changes=changes, undoabel=True)


def test_the_target_must_exist(tmp_path: Path) -> None:
    statement, changes = ON.format(lake=tmp_path / "none") + UPDATE + INSERT, CHANGES.drop_columns("op")
    with pytest.raises(fsspeckit.MergeValidationError, match="There is no data set"):
        fsspeckit.sql(statement, changes=changes)
    assert not (tmp_path / "none").exists()
    assert fsspeckit.sql(statement, changes=changes, must_exist=False, partition_columns=["state"]).inserted == 3


def test_inserts_take_the_columns_that_the_statement_names(lake: str) -> None:
    update = "WHEN MATCHED THEN UPDATE SET state = s.state "
    some = CHANGES.select(["state", "id"])
    for source in (some, some.to_pandas(), some.to_reader(), some.to_pylist(), iter(some.to_batches())):
        with pytest.raises(fsspeckit.ArgumentError, match=r"INSERT \*\. The source has no \['ts'\]"):
            fsspeckit.plan_sql(ON.format(lake=lake) + update + INSERT, changes=source)
    with pytest.raises(fsspeckit.ArgumentError, match=r"does not name \['state'\]"):
        fsspeckit.sql(ON.format(lake=lake) + update + "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", changes=some)
    with pytest.raises(fsspeckit.ArgumentError, match=r"names \['ts'\]"):
        inserts = "WHEN NOT MATCHED THEN INSERT (id, state, ts) VALUES (s.id, s.state, s.ts)"
        fsspeckit.sql(ON.format(lake=lake) + update + inserts, changes=some)
    inserts = "WHEN NOT MATCHED THEN INSERT (id, state) VALUES (s.id, s.state)"
    result = fsspeckit.sql(ON.format(lake=lake) + update + inserts, changes=iter(some.to_batches()))
    assert (result.inserted, result.updated) == (1, 2)
    assert {"id": 4, "state": "new", "ts": None} in rows(lake)


def test_a_flag_of_the_wrong_type_is_refused(lake: str) -> None:
    """SQL would cast."""
    flagged = ORDERS.append_column("gone", pa.array([True, False, None]))
    with pytest.raises(
        fsspeckit.MergeValidationError, match=r"delete_values are \[1\], and delete_column 'gone' is bool"
    ):
        fsspeckit.sql(f"{ON.format(lake=lake)} WHEN MATCHED AND s.gone = 1 THEN DELETE {UPDATE}", changes=flagged)
    result = fsspeckit.sql(f"{ON.format(lake=lake)} WHEN MATCHED AND NOT s.gone THEN DELETE {UPDATE}", changes=flagged)
    assert (result.deleted, result.updated) == (1, 2)


# -- the command line


def run(*arguments: str, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(cli, ["sql", *arguments], input=stdin)


def test_the_command(lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(CHANGES, "changes.parquet")
    Path("merge.sql").write_text(ON.format(lake="lake") + FEED, encoding="utf-8-sig")
    before = fingerprint(lake)
    planned = run("-f", "merge.sql", "--source", "changes=changes.parquet", "--dry-run", "--json")
    assert (planned.exit_code, json.loads(planned.stdout)["deleted"], fingerprint(lake)) == (0, 1, before)
    result = run("-f", "merge.sql", "--source", "changes=changes.parquet", "--json")
    document = json.loads(result.stdout)
    assert (document["inserted"], document["updated"], document["deleted"], document["target"]) == (1, 1, 1, "lake")
    text = run("DELETE FROM 'lake' WHERE id >= 4 OR state IN ('paid')", "--engine", "duckdb")
    assert text.exit_code == 0 and "2" in text.stdout
    assert [row["id"] for row in rows(lake)] == [3]
    created = run(ON.format(lake="new").replace("changes", "'changes.parquet'") + UPDATE + INSERT, "--create")
    assert created.exit_code == 0, created.output
    assert len(rows("new")) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Give the statement, or a file"),
        (("DELETE FROM 'lake' WHERE id = 1", "-f", "merge.sql"), 2, "Give the statement, or a file"),
        (("DELETE FROM 'lake' WHERE id = 1", "--source", "a=b"), 2, "no source of this name"),
        (("DELETE FROM 'lake' WHERE id = 1", "--on-move", "move"), 2, "--on-move has no effect on DELETE"),
        (("DELETE FROM 'lake' WHERE id = 1", "--create"), 2, "--create has no effect on DELETE"),
        ((ON.format(lake="lake") + UPDATE,), 2, "--source changes=FILE"),
        ((ON.format(lake="lake") + UPDATE, "--source", "changes"), 2, "NAME=FILE"),
        ((ON.format(lake="lake") + UPDATE, "--source", "changes=none.parquet"), 1, "none.parquet"),
        ((ON.format(lake="none") + UPDATE, "--source", "changes=lake"), 1, "There is no data set at none"),
        (("DELETE FROM 'lake'",), 1, "would remove all rows"),
        (("-f", "utf16.sql"), 2, "utf16.sql is not text in UTF-8"),
        (("-f", "none.sql"), 2, "none.sql"),
    ],
)
def test_wrong_commands(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("merge.sql").write_text(ON.format(lake="lake") + UPDATE)
    Path("utf16.sql").write_text(ON.format(lake="lake") + UPDATE, encoding="utf-16")
    before = fingerprint(lake)
    said = run(*arguments)
    assert (said.exit_code, fingerprint(lake)) == (code, before), said.output
    assert message in said.output


def test_without_sqlglot(lake: str) -> None:
    code = "import sys; sys.modules['sqlglot'] = None\nfrom fsspeckit import *\nsql(\"DELETE FROM 'x' WHERE id = 1\")"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "SQL needs sqlglot, which is not installed. Run: pip install 'sqlglot>=" in done.stderr


def test_a_frame_with_a_named_index(lake: str) -> None:
    frame = pd.DataFrame({"state": ["paid"]}, index=pd.Index([1], name="id"))
    statement = (
        ON.format(lake=lake)
        + "WHEN MATCHED THEN UPDATE SET state = s.state WHEN NOT MATCHED THEN INSERT (id, state) VALUES (s.id, s.state)"
    )
    assert fsspeckit.sql(statement, changes=frame).updated == 1
