"""The examples run as scripts and print what is written here; the pages about rows and writes run.

`tests/spark/test_examples.py` runs the example job of Spark.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

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
    assert names == {*PRINTED, "events_job"}
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    linked = {name for page in pages for name in re.findall(r"\]\((?:\.\./)?examples/(\w+)\.py\)", page.read_text())}
    assert linked == names


def test_the_page_about_rows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", test_readme.activated_path())
    assert len(list(test_readme.examples(PAGE))) >= 8
    test_readme.run_all(PAGE)


@pytest.mark.slow
def test_the_page_about_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test_readme.run_all(ROOT / "docs/writes.md")


def test_the_page_about_schema_changes_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test_readme.run_all(ROOT / "docs/schema-changes.md")


def test_the_page_about_rows_has_the_current_table() -> None:
    assert combination_table() in PAGE.read_text()


def test_the_page_about_rows_explains_every_option() -> None:
    headings = re.findall(r"^## .*$", PAGE.read_text(), re.MULTILINE)
    missing = [name for name in row_options.OPTIONS if not any(f"`{name}`" in heading for heading in headings)]
    assert missing == []


@pytest.mark.parametrize("page", ["sources.md", "command-line.md", "progress.md"])
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", test_readme.activated_path())
    assert list(test_readme.examples(ROOT / "docs" / page))
    test_readme.run_all(ROOT / "docs" / page)
