"""Spec 002: MERGE with DuckDB's MERGE statement, scenario by scenario.

DuckDB cannot `MERGE INTO parquet_scan(…)` nor `COPY (MERGE …) TO` (design, "DuckDB's MERGE"): the statement merges
into a temporary table of keys and positions, and the files are rewritten from what it left there. Tests whose
scenario is changed by that say so in a line.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.core.actions import HitAction
from fsspeckit.core.rewrite import files as rewriting
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, PathValidator
from fsspeckit.datasets.duckdb import version as versions
from fsspeckit.datasets.duckdb.keys import SqlKeys
from fsspeckit.datasets.duckdb.workspace import _unregister_duckdb_table_safely
from recording import Recording, snapshot
from support import all_names, data_files, fingerprint, rows, write_lake

native = pytest.mark.skipif(
    versions.detect_version(duckdb.connect()) < (1, 4, 0), reason="this DuckDB has no MERGE statement"
)
SOURCE = pa.table({"id": [5, 12, 99], "x": ["A", "B", "C"]})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
    return write_lake(tmp_path / "lake", files)


def upsert(connection: Any, lake: str, strategy: Any = "upsert", **options: Any) -> Any:
    return DuckDBDatasetIO(connection).merge(SOURCE, lake, strategy=strategy, key_columns=["id"], **options)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Those of the engine; every merge logs its phases too."""
    ours = [record for record in caplog.records if record.name.startswith("fsspeckit.datasets")]
    return [record.getMessage() for record in ours if record.levelno >= logging.INFO]


# Merge strategies


@native
def test_user_calls_merge_with_duckdb_1_4_0_auto_detect(lake: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    record = Recording()
    result = upsert(record, lake)
    assert record.having("SELECT * FROM pragma_version()")
    assert record.having("MERGE INTO")
    assert not record.having("UNION ALL") and not record.having("NOT EXISTS")
    assert "Using DuckDB MERGE for merge operation (auto-detected)" in messages(caplog)
    assert (result.inserted, result.updated) == (1, 2)


@native
def test_user_calls_merge_with_duckdb_1_4_0_explicit_request(lake: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    record = Recording()
    result = upsert(record, lake, use_merge=True)
    assert record.having("pragma_version()") and record.having("MERGE INTO") and not record.having("UNION ALL")
    assert "Using DuckDB MERGE (explicitly requested)" in messages(caplog)
    assert (result.inserted, result.updated) == (1, 2)
    with pytest.raises(DatasetMergeError, match=re.escape("Required version: >= 1.4.0, Current: 1.3.2")):
        upsert(Recording(version="v1.3.2"), lake, use_merge=True)


def test_user_calls_merge_with_duckdb_before_1_4_0_auto_detect_fallback(
    lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    record = Recording(version="v1.3.2")
    result = upsert(record, lake)
    assert record.having("pragma_version()") and not record.having("MERGE INTO")
    assert record.having("UNION ALL") and record.having("NOT EXISTS")
    assert "Using UNION ALL fallback for merge operation (DuckDB < 1.4.0 or MERGE unavailable)" in messages(caplog)
    assert (result.inserted, result.updated) == (1, 2)


def test_user_calls_merge_with_duckdb_before_1_4_0_explicit_fallback(
    lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    record = Recording(version="v1.3.2")
    result = upsert(record, lake, use_merge=False)
    assert not record.having("pragma_version") and not record.having("MERGE INTO")
    choices = [message for message in messages(caplog) if message.startswith("Using")]
    assert choices == ["Using UNION ALL (explicitly requested)"]
    assert (result.inserted, result.updated) == (1, 2)


@native
def test_merge_insert_strategy_execution(lake: str) -> None:
    """Design: INTO is the table of keys and positions; the new keys' rows are then written."""
    record = Recording()
    before = fingerprint(lake)
    result = upsert(record, lake, "insert", use_merge=True)
    (statement,) = record.having("MERGE INTO")
    assert "WHEN NOT MATCHED THEN INSERT" in statement and "WHEN MATCHED" not in statement
    assert (result.inserted, result.updated) == (1, 0)
    assert before.items() <= fingerprint(lake).items()


@native
def test_merge_update_strategy_execution(lake: str) -> None:
    """Design: INTO is the table of keys and positions; UPDATE notes the source row that replaces each position."""
    record = Recording()
    result = upsert(record, lake, "update", use_merge=True)
    (statement,) = record.having("MERGE INTO")
    assert "WHEN MATCHED THEN UPDATE SET" in statement and "NOT MATCHED" not in statement
    assert (result.inserted, result.updated) == (0, 2)
    assert {r["id"]: r["x"] for r in rows(lake)} == dict.fromkeys(range(30), "old") | {5: "A", 12: "B"}


@native
def test_merge_upsert_strategy_execution(lake: str) -> None:
    record = Recording()
    result = upsert(record, lake, "upsert", use_merge=True)
    (statement,) = record.having("MERGE INTO")
    assert "WHEN MATCHED THEN UPDATE SET" in statement and "WHEN NOT MATCHED THEN INSERT" in statement
    assert statement.endswith("RETURNING merge_action")
    assert not record.having("UNION ALL")
    assert (result.updated, result.inserted) == (2, 1)


@native
def test_multi_column_key_handling_with_merge(tmp_path: Path) -> None:
    """Design: the columns of ON are canonical keys, so no name of the user's needs quoting to be safe."""
    names = ['it"s', "b; --", "ü x.y"]
    target = {names[0]: [1, 1, 2], names[1]: ["a", "b", "a"], names[2]: ["old", "old", "old"]}
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table(target)})
    source = pa.table({names[0]: [1, 2], names[1]: ["b", "b"], names[2]: ["new", "new"]})
    record = Recording()
    result = DuckDBDatasetIO(record).merge(source, lake, "upsert", names[:2], use_merge=True)
    (statement,) = record.having("MERGE INTO")
    assert "ON (target.k0 = source.k0 AND target.k1 = source.k1)" in statement
    assert (result.updated, result.inserted) == (1, 1)
    assert [row[names[2]] for row in rows(lake)].count("new") == 2


@native
def test_returning_clause_audit_trail(lake: str, caplog: pytest.LogCaptureFixture) -> None:
    """Design: RETURNING comes back as Arrow and is counted there; every statement is in the debug log."""
    caplog.set_level(logging.DEBUG, "fsspeckit")
    result = upsert(Recording(), lake, use_merge=True)
    assert any("RETURNING merge_action" in r.getMessage() for r in caplog.records)
    assert (result.updated, result.inserted) == (2, 1)


# Version detection


def test_duckdb_version_detection_succeeds() -> None:
    for text, expected in {"1.4.0": (1, 4, 0), "v1.4.1": (1, 4, 1), "10.2.3": (10, 2, 3)}.items():
        record = Recording(version=text)
        assert versions.detect_version(record) == expected
        assert versions.detect_version(record) == expected
        assert len(record.having("SELECT * FROM pragma_version()")) == 1, "asked once for a connection"
    assert versions.detect_version(duckdb.connect()) == versions.parse_version(duckdb.__version__)


@pytest.mark.parametrize("answer", [duckdb.CatalogException("gone"), "nightly", "1.x.0", "", 1.4, 7])
def test_duckdb_version_detection_fails_gracefully(answer: Any, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    record = Recording(version=answer)
    result = upsert(record, lake)
    assert versions.detect_version(record) == (0, 0, 0)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings[0].startswith("Could not determine DuckDB version")
    assert record.having("UNION ALL") and not record.having("MERGE INTO")
    assert (result.inserted, result.updated) == (1, 2)


def test_merge_support_check() -> None:
    known = {(1, 4, 0): True, (1, 4, 1): True, (10, 2, 0): True, (2, 0, 0): True, (1, 3, 9): False, (0, 0, 0): False}
    assert {version: versions.supports_merge(version) for version in known} == known


# Explicit control


def test_explicit_merge_request_with_incompatible_duckdb(lake: str) -> None:
    before = fingerprint(lake)
    message = "DuckDB MERGE requested but not available. Required version: >= 1.4.0, Current: 1.1.3"
    with pytest.raises(DatasetMergeError, match=re.escape(message)) as caught:
        upsert(Recording(version="v1.1.3"), lake, use_merge=True)
    assert "Upgrade" in str(caught.value) and "use_merge=False" in str(caught.value)
    assert fingerprint(lake) == before


def test_explicit_fallback_request(lake: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    record = Recording()
    DuckDBDatasetIO(record, use_merge=False).merge(SOURCE, lake, "upsert", ["id"])
    assert not record.having("pragma_version") and not record.having("MERGE INTO")
    assert record.having("NOT EXISTS") and record.having("UNION ALL")
    assert "Using UNION ALL (explicitly requested)" in messages(caplog)


@native
@pytest.mark.parametrize(("version", "statement"), [("v1.4.0", "MERGE INTO"), ("v1.3.9", "UNION ALL")])
def test_auto_detect_mode_default(version: str, statement: str, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fsspeckit")
    record = Recording(version=version)
    upsert(record, lake)
    assert {part for part in ("MERGE INTO", "UNION ALL") if record.having(part)} == {statement}
    assert len([m for m in messages(caplog) if m.startswith("Using ")]) == 1
    overridden = Recording(version=version)
    upsert(overridden, lake, use_merge=False)
    assert not overridden.having("MERGE INTO")


# PyArrow tables


def test_register_pyarrow_table_as_temporary_view(tmp_path: Path) -> None:
    """Design: the view feeds temporary tables, and these stand in USING, so that a source reads the same twice."""
    names = {'quo"te': [1, 2], "semi;colon": ["a", None], "dot.ted": [1.5, None], "ünïcode": [True, None]}
    lake = str(tmp_path / "lake")
    record = Recording()
    DuckDBDatasetIO(record).merge(pa.table(names), lake, "upsert", ['quo"te'])
    assert all(re.fullmatch("source_view_[0-9a-f]{32}", view) for view in record.views)
    assert sorted(record.views) == sorted(record.gone)
    assert rows(lake) == pa.table(names).to_pylist()


def test_views_share_the_memory_of_the_source(tmp_path: Path) -> None:
    """No copy is made to register: the view's keys lie where the source's do."""
    source = pa.table({"id": list(range(1000)), "x": [f"text {i}" for i in range(1000)]})
    record = Recording()
    DuckDBDatasetIO(record).merge(source, str(tmp_path / "lake"), "upsert", ["id"])
    ours = {b.address for c in source.columns for chunk in c.chunks for b in chunk.buffers() if b is not None}
    seen = [v for v in record.views.values() if v.num_rows == 1000 and "row" in v.column_names]
    addresses = {b.address for c in seen[0].select(["k0"]).columns for b in c.chunk(0).buffers() if b is not None}
    assert addresses <= ours


@pytest.mark.parametrize("fail_at", [None, "INSERT INTO", "GROUP BY file_no"])
def test_clean_up_temporary_views_after_merge(fail_at: str | None, lake: str, caplog: pytest.LogCaptureFixture) -> None:
    record = Recording(fail_at=fail_at)
    if fail_at is None:
        upsert(record, lake)
    else:
        with pytest.raises(DatasetMergeError):
            upsert(record, lake)
    assert record.views and sorted(record.views) == sorted(record.gone)
    assert record.cursors == record.closed
    caplog.set_level(logging.DEBUG, "fsspeckit")
    _unregister_duckdb_table_safely(duckdb.connect(), "source_view_never_registered")


# Files


@native
def test_build_merge_with_parquet_scan_in_into_clause(lake: str) -> None:
    """Design: INTO is a temporary table of keys and positions; no statement names a file, and no file is loaded."""
    record = Recording()
    upsert(record, lake, use_merge=True)
    (statement,) = record.having("MERGE INTO")
    assert re.match(r"MERGE INTO fsspeckit_target_\w+ AS target USING \(.*\) AS source ON \(", statement)
    assert not record.having("parquet") and not record.having(lake)
    (name,) = re.findall(r"MERGE INTO (\w+)", statement)
    merged = [v for v in record.views.values() if "file_no" in v.column_names and v.num_rows]
    columns = ("k0", "file_no", "row_group", "row_no", "source_row", "action")
    assert name and {tuple(v.column_names) for v in merged} == {columns}


def test_validate_and_escape_file_paths() -> None:
    for good in ["/lake/part-0.parquet", "C:/lake/year=2024/a_b.parquet", "s3://bucket/a=1/b-2.parquet"]:
        PathValidator.validate_path_for_sql(good)
        assert PathValidator.escape_for_sql(good) == good
    bad = [
        "a'b",
        'a"b',
        "a;b",
        "a--b",
        "a/*b*/",
        "../a",
        "a/../b",
        "a b",
        "a\nb",
        "a\x00b",
        "a\u202eb",
        "a\u200bb",
        "＇",
        "",
    ]
    for path in bad:
        with pytest.raises(ValueError, match="Path"):
            PathValidator.validate_path_for_sql(path)
    assert PathValidator.escape_for_sql("it's") == "it''s"


@native
def test_merge_output_to_staging_file(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design: no COPY; counts come from `_merge_using_duckdb_merge`, files from the one writer, through staging."""
    counts: list[tuple[int, int]] = []
    original = SqlKeys._merge_using_duckdb_merge
    before = fingerprint(lake)

    def spy(self: SqlKeys, target: str) -> Any:
        merged = original(self, target)
        counts.append((merged.counts[HitAction.UPDATE], merged.counts[None]))
        assert fingerprint(lake) == before, "nothing is replaced directly"
        return merged

    monkeypatch.setattr(SqlKeys, "_merge_using_duckdb_merge", spy)
    upsert(Recording(), lake, use_merge=True)
    assert counts == [(2, 1)]
    assert all_names(Path(lake).parent) == ["lake", *(f"lake/{name}" for name in data_files(lake))], "no staging left"


@pytest.mark.parametrize("use_merge", [None, False])
def test_integration_with_incremental_rewrite_workflow(
    use_merge: bool | None, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files are affected; when the second cannot be staged, neither is replaced. One way is used for both."""
    before = fingerprint(lake)
    original = rewriting.rewrite_file  # type: ignore[attr-defined]

    def failing(location: Any, shape: Any, job: Any, *more: Any) -> Any:
        if job.footer.path == "f1.parquet":
            raise OSError("no space left")
        return original(location, shape, job, *more)

    monkeypatch.setattr(rewriting, "rewrite_file", failing)
    with pytest.raises(OSError, match="no space left"):
        upsert(Recording(), lake, use_merge=use_merge)
    assert fingerprint(lake) == before
    assert all_names(Path(lake).parent)[0] == "lake"
    monkeypatch.undo()
    record = Recording()
    result = upsert(record, lake, use_merge=use_merge)
    assert len(result.rewritten_files) == 2
    assert not (record.having("MERGE INTO") and record.having("UNION ALL"))


# RETURNING


@native
@pytest.mark.parametrize(
    ("ids", "counts"), [([100, 101], (2, 0)), ([1, 11, 21], (0, 3)), ([1, 100], (1, 1)), ([], (0, 0))]
)
def test_count_merge_actions_via_returning(ids: list[int], counts: tuple[int, int], lake: str) -> None:
    source = pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array(["new"] * len(ids))})
    for keys in (["id"], ["id", "x"]):
        result = DuckDBDatasetIO(use_merge=True).merge(source, lake, "upsert", keys)
        assert (result.inserted, result.updated) == counts
        counts = (0, len(ids))  # all are there now


@native
def test_temporary_table_cleanup_after_counting(lake: str) -> None:
    connection = duckdb.connect()
    before = snapshot(connection)
    record = Recording(connection)
    upsert(record, lake, use_merge=True)
    created = {name for s in record.statements for name in re.findall(r"CREATE TEMP TABLE (\w+)", s)}
    assert created
    assert record.cursors == record.closed, "temporary tables go with their cursor"
    assert snapshot(connection) == before


# Errors


@native
@pytest.mark.parametrize("kind", [duckdb.ParserException, duckdb.InvalidInputException, duckdb.OutOfMemoryException])
def test_merge_syntax_error(
    kind: Any, lake: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = fingerprint(lake)

    def note(self: Recording, text: str) -> None:
        if "MERGE INTO" in text:
            raise kind("near SELEC")

    monkeypatch.setattr(Recording, "note", note)
    with pytest.raises(DatasetMergeError, match="MERGE operation failed: near SELEC") as caught:
        upsert(Recording(version="v1.4.0"), lake)
    assert isinstance(caught.value.__cause__, kind)
    assert caught.value.context == {"strategy": "upsert", "key_columns": ["id"], "operation": "merge"}
    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(logged) == 1
    assert all(part in logged[0] for part in (kind.__name__, "near SELEC", "upsert", lake))
    scanned = [f.path for f in DuckDBDatasetIO().plan(SOURCE, lake, "upsert", ["id"]).files if f.action != "prune"]
    assert scanned
    assert all(path in logged[0] for path in scanned)
    assert fingerprint(lake) == before


@native
def test_a_failed_merge_of_many_files_names_some_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = {f"f{i:02d}.parquet": pa.table({"id": [i], "x": ["old"]}) for i in range(30)}
    lake = write_lake(tmp_path / "lake", files)

    def note(self: Recording, text: str) -> None:
        if "MERGE INTO" in text:
            raise duckdb.ParserException("near SELEC")

    monkeypatch.setattr(Recording, "note", note)
    with pytest.raises(DatasetMergeError, match="near SELEC"):
        DuckDBDatasetIO(Recording(version="v1.4.0")).merge(
            pa.table({"id": range(30), "x": ["new"] * 30}), lake, "upsert", ["id"]
        )
    (logged,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert f"{lake}/f00.parquet" in logged
    assert f"{lake}/f09.parquet and 20 more" in logged
    assert "f10.parquet" not in logged


def test_version_detection_error(lake: str, caplog: pytest.LogCaptureFixture) -> None:
    result = upsert(Recording(version=duckdb.BinderException("no such function")), lake)
    assert "no such function" in caplog.text
    assert (result.inserted, result.updated) == (1, 2)


@pytest.mark.parametrize("value", ["auto", 1, 0, [], "True"])
def test_invalid_use_merge_parameter(value: Any, lake: str) -> None:
    before = fingerprint(lake)
    message = re.escape(f"Invalid use_merge value: {value}") + "\nMust be True, False, or None for auto-detect"
    with pytest.raises(ValueError, match=message):
        DuckDBDatasetIO(use_merge=value)
    for call in (DuckDBDatasetIO().merge, DuckDBDatasetIO().plan, DuckDBDatasetIO().write_parquet_dataset):
        with pytest.raises(ValueError, match=message):
            call(SOURCE, lake, "upsert", ["id"], use_merge=value)
    assert fingerprint(lake) == before
