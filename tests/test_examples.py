"""The examples run as scripts and print what is written here.

`tests/spark/test_examples.py` runs the example job of Spark, `tests/test_readme.py` the code in the documents.
"""

from __future__ import annotations

import re
import runpy
import sys
import types
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
import test_readme
from fsspeckit.datasets import row_options
from fsspeckit.datasets.row_options import combination_table

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs/rows.md"

PRINTED = {
    "debezium_unwrapped": """\
first feed: 2 inserted
second feed: 1 inserted, 1 updated, 1 deleted
all events again: 0 rows changed
{'id': 1, 'name': 'Ada', 'city': 'Turin', 'lsn': 102}
{'id': 3, 'name': 'Cy', 'city': 'Rome', 'lsn': 103}
""",
    "debezium_envelope": """\
2 inserted, 0 updated, 0 deleted
0 inserted, 1 updated, 1 deleted
[{'id': 1, 'name': 'Ada', 'city': 'Turin', 'lsn': 102}]
""",
    "aws_dms": """\
LOAD00000001.parquet: 2 inserted, 0 updated, 0 deleted
20260501-093500000.parquet: 0 inserted, 1 updated, 1 deleted
[{'id': 1, 'city': 'Rome'}]
""",
    "late_and_repeated_feeds": """\
Monday:        2 inserted, 0 updated, 0 deleted, 0 skipped
Tuesday:       0 inserted, 1 updated, 1 deleted, 0 skipped
Tuesday again: 0 inserted, 1 updated, 0 deleted, 0 skipped
in the lake:   [{'id': 1, 'state': 'paid', 'ts': 20}]
Monday again:  1 inserted, 0 updated, 0 deleted, 1 skipped
order 2 is back: True
""",
    "soft_deletes": """\
6 orders of the feeds, all with the same end: True
in the lake: {'id': 1, 'state': 'paid', 'ts': 20, 'deleted': False}
in the lake: {'id': 2, 'state': None, 'ts': 21, 'deleted': True}
readers see: {'id': 1, 'state': 'paid', 'ts': 20, 'deleted': False}
purged: 1 row
""",
    "gdpr_erasure": """\
customers: 2 rows to delete, partitions that go: ['country=de', 'country=fr']
customers: 2 rows left, bytes of erased people: []
orders: 4 rows to delete, partitions that go: []
orders: 4 rows left, bytes of erased people: []
""",
    "retention": """\
older than 30 days: 290 rows, 29 files removed
logins older than 7 days: 115 rows, 23 files rewritten
left: 195 rows in 31 folders
""",
    "scd_type_2": """\
first: 1 ended, 2 begun
again: 0 ended, 0 begun
1 Rome 2026-01-01 2026-02-01
1 Turin 2026-02-01 -
2 Bonn 2026-01-01 -
3 Graz 2026-02-01 -
""",
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_example_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == PRINTED[name]


def test_every_example_is_tested_and_named_in_the_documents() -> None:
    names = {file.stem for file in EXAMPLES.glob("*.py")}
    assert names == {*PRINTED, "events_job", "airflow_dag", "dagster_asset"}
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    linked = {name for page in pages for name in re.findall(r"\]\((?:\.\./)?examples/(\w+)\.py\)", page.read_text())}
    assert linked == names


def test_the_page_about_rows_has_the_current_table() -> None:
    assert combination_table() in PAGE.read_text()


def test_the_page_about_rows_explains_every_option() -> None:
    headings = re.findall(r"^## .*$", PAGE.read_text(), re.MULTILINE)
    missing = [name for name in row_options.OPTIONS if not any(f"`{name}`" in heading for heading in headings)]
    assert missing == []


def test_pages_with_many_examples_have_them() -> None:
    counted = {page.stem: len(list(test_readme.examples(page))) for page in test_readme.WITH_CODE}
    least = {"rows": 8, "writes": 6, "schema-changes": 1, "sources": 1, "command-line": 1, "start": 9, "recipes": 10}
    assert {name: counted[name] for name, number in least.items() if counted[name] < number} == {}


def called(*arguments: Any, **options: Any) -> Any:
    """A decorator without effect, with options or without."""
    return arguments[0] if arguments else lambda function: function


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set, and changes that land twice: for an hour and for a day."""
    lake = tmp_path / "lake/orders"
    fsspeckit.merge(
        [{"id": 1, "state": "new", "ts": 10}, {"id": 2, "state": "new", "ts": 30}], lake, key_columns=["id"]
    )
    changes = pa.table({"id": [1, 1, 2, 3], "state": ["paid", "sent", "late", "new"], "ts": [20, 21, 20, 20]})
    (tmp_path / "landing").mkdir()
    for name in ("2026-03-01T05", "2026-03-01"):
        pq.write_table(changes, tmp_path / f"landing/{name}.parquet")
    monkeypatch.setenv("ORDERS_LANDING", str(tmp_path / "landing"))
    monkeypatch.setenv("ORDERS_LAKE", str(lake))
    return lake


def states(lake: Path) -> dict[int, str]:
    return {row["id"]: row["state"] for row in fsspeckit.read(lake).to_pylist()}


def test_the_task_of_airflow(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With decorators that do nothing: Airflow is not installed here. Retries give the same rows."""
    returned: list[dict[str, Any]] = []

    def task(**options: Any) -> Any:
        assert options["retries"] == 5
        return lambda function: lambda: returned.append(function(logical_date=datetime(2026, 3, 1, 5)))

    monkeypatch.setitem(sys.modules, "airflow", types.ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", types.SimpleNamespace(dag=called, task=task))
    for _ in range(2):
        runpy.run_path(str(EXAMPLES / "airflow_dag.py"))
    assert states(orders) == {1: "sent", 2: "new", 3: "new"}
    counts = [(done["inserted"], done["updated"], done["changed"], done["skipped"]) for done in returned]
    assert counts == [(1, 1, 1, 1), (0, 2, 0, 1)]


def test_the_asset_of_dagster(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a module that only has the names that are used: Dagster is not installed here."""
    names = ("DailyPartitionsDefinition", "RetryPolicy", "MaterializeResult", "Definitions")
    module = types.SimpleNamespace(asset=called, AssetExecutionContext=Any)
    for name in names:
        setattr(module, name, types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "dagster", module)
    asset = runpy.run_path(str(EXAMPLES / "dagster_asset.py"))["orders"]
    for inserted in (1, 0):
        result = asset(types.SimpleNamespace(partition_key="2026-03-01"))
        assert result.metadata["inserted"] == inserted
    assert states(orders) == {1: "sent", 2: "new", 3: "new"}
