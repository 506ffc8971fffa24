"""The pictures: numbers, bars, key ranges and the web page."""

from __future__ import annotations

import io
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import fsspeckit
from fsspeckit.core.reports import FilePlan, MergeFileMetadata, MergePlan, MergeResult
from fsspeckit.report.files import MAX_FILES
from fsspeckit.report.html import page
from fsspeckit.report.inspection import inspect
from fsspeckit.report.summary import document, plan_groups, result_groups, size, written
from fsspeckit.report.terminal import MANY_FILES, PlanView, ResultView, cells
from support import write_lake


def a_plan(actions: dict[str, int], bytes_: int = 1000) -> MergePlan:
    files = [
        FilePlan(f"lake/{action}-{i}.parquet", action, f"why {action}", 10, bytes_, 4, 2, 1)  # type: ignore[arg-type]
        for action, number in actions.items()
        for i in range(number)
    ]
    return MergePlan("upsert", ("id",), (), 5, 1_234_567, 2, 3, 0, tuple(files), ("Try this.",))


def shown(view: object, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(view)
    return out.getvalue()


def test_few_files_are_all_listed() -> None:
    text = shown(PlanView(a_plan({"rewrite": 2, "scan": 1, "guard": 1, "prune": 3}), "lake"))
    assert [f"{n}.parquet" in text for n in ("rewrite-0", "rewrite-1", "scan-0", "guard-0", "prune-2")] == [True] * 5
    assert "3 updated, 2 inserted; 1,234,567 → 1,234,569 rows" in text
    assert "2.0 kB of 7.0 kB would be rewritten (28.6 %)" in text
    assert "Hint: Try this." in text


def test_many_files_are_summed_up_and_only_rewritten_ones_listed() -> None:
    text = shown(PlanView(a_plan({"rewrite": 2, "scan": 5, "prune": 10_000}), "lake"))
    assert text.count(".parquet") == 2
    assert "10,000" in text
    assert "and 10,005 more files" in text
    assert len(text.splitlines()) < 20


def test_many_rewritten_files_are_cut_short() -> None:
    text = shown(PlanView(a_plan({"rewrite": 500}), "lake"))
    assert text.count(".parquet") == MANY_FILES
    assert f"and {500 - MANY_FILES} more files" in text


def test_a_bar_shows_what_is_small_and_keeps_its_width() -> None:
    assert cells([1, 0, 0, 100_000], 60) == [1, 0, 0, 59]
    assert sum(cells([1, 1, 1, 1_000_000], 60)) == 60
    assert cells([0, 0], 60) == [0, 0]
    text = shown(PlanView(a_plan({"rewrite": 1, "prune": 9999}), "lake"))
    (files,) = [line for line in text.splitlines() if line.startswith("  files")]
    assert (files.count("█"), files.count("░")) == (1, 59)


def test_groups_add_up() -> None:
    groups = plan_groups(a_plan({"rewrite": 1, "guard": 2, "prune": 3}))
    assert {g.name: (g.files, g.rows, g.bytes) for g in groups} == {
        "rewrite": (1, 10, 1000),
        "scan": (0, 0, 0),
        "guard": (2, 20, 2000),
        "prune": (3, 30, 3000),
    }
    assert "why prune" in groups[-1].meaning


def a_result() -> MergeResult:
    files = [
        MergeFileMetadata("lake/a.parquet", 10, "rewritten", 100),
        MergeFileMetadata("lake/b.parquet", 1, "inserted", 50),
        MergeFileMetadata("lake/<c>&.parquet", 10, "preserved", 850),
    ]
    return MergeResult(
        "upsert", 2, 20, 21, 1, 1, 0, files, ["lake/a.parquet"], ["lake/b.parquet"], ["lake/<c>&.parquet"]
    )


def test_result() -> None:
    assert written(result_groups(a_result())) == "150 B of 1.0 kB written (15.0 %)"
    text = shown(ResultView(a_result(), "lake", 1.5))
    assert "in 1.50 s" in text
    assert "a.parquet" in text
    assert "<c>" not in text


def test_no_files_no_bar() -> None:
    assert shown(PlanView(a_plan({}), "lake")).count("\n") < 7


class _Checked(HTMLParser):
    """Every tag is closed, nothing is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag not in ("link", "img", "iframe")
        assert "src" not in given and "style" not in given
        assert (given.get("href") or "#").startswith("#")
        assert not [name for name in given if name.startswith("on")]
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if given.get("role") == "img":
            self.images.append(given["aria-label"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("report", [a_plan({"rewrite": 1, "scan": 1, "guard": 2, "prune": 3}), a_result(), a_plan({})])
def test_html_is_whole_and_needs_nothing_else(report: MergePlan | MergeResult) -> None:
    text = page(report, "lake")
    checked = _Checked()
    checked.feed(text)
    assert checked.open == []
    assert "prefers-color-scheme: dark" in text
    if report.files:
        assert [image.partition(":")[0] for image in checked.images] == ["Files", "Bytes"]
        groups: list[Any] = list(_groups(report))
        assert all(f"{g.label}: {g.files} file" in checked.images[0] for g in groups)


def _groups(report: MergePlan | MergeResult) -> list[object]:
    return plan_groups(report) if isinstance(report, MergePlan) else result_groups(report)  # type: ignore[return-value]


def test_html_escapes_paths() -> None:
    text = page(a_result(), "lake")
    assert "&lt;c&gt;&amp;.parquet" in text
    assert "<c>" not in text


def test_html_stays_small() -> None:
    text = page(a_plan({"prune": 5000}), "lake")
    assert text.count(".parquet") == MAX_FILES
    assert "The first 500 of 5,000 files, changes first. Left out: 4,500 not read; --json lists all." in text
    assert len(text) < 500_000


def test_sizes_round_up_to_the_next_unit() -> None:
    assert [size(n) for n in (0, 999, 1000, 999_949, 999_950, 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "999.9 kB",
        "1.0 MB",
        "1.0 PB",
    ]


KEYS = {
    "text": (pa.array(["Zoë", "abc", None]), "Zoë", "abc", 1),
    "date": (pa.array([date(2026, 1, 2), date(1969, 12, 31)]), "1969-12-31", "2026-01-02", 0),
    "zoned": (
        pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(1960, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "1960-01-01 00:00:00 UTC",
        "2026-01-02 03:04:05.000006 UTC",
        0,
    ),
    "naive": (pa.array([0, 1_500], pa.timestamp("ms")), "1970-01-01 00:00:00", "1970-01-01 00:00:01.5", 0),
    "decimal": (pa.array([Decimal("-1.50"), Decimal("2.25")]), "-1.50", "2.25", 0),
    "binary": (pa.array([b"\x00\xff", b"\x01"]), "0x00ff", "0x01", 0),
    "bool": (pa.array([True, False]), "false", "true", 0),
    "nulls": (pa.array([None, None], pa.int64()), None, None, 2),
}


@pytest.mark.parametrize("case", KEYS)
def test_key_ranges_in_the_words_of_their_type(tmp_path: Path, case: str) -> None:
    column, lower, upper, nulls = KEYS[case]
    write_lake(tmp_path, {"a.parquet": pa.table({"k": column})})
    found = inspect(str(tmp_path), ["k"]).keys["k"]
    assert (found.lower, found.upper, found.nulls, found.known) == (lower, upper, nulls, True)


def test_a_key_range_without_statistics_is_unknown(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2]})
    write_lake(tmp_path, {"a.parquet": table})
    pq.write_table(table, tmp_path / "b.parquet", write_statistics=False)
    found = inspect(str(tmp_path), ["k"])
    assert not found.keys["k"].known
    assert [f.keys["k"].known for f in found.files] == [True, False]


def test_key_overlap_counts_the_files_that_a_key_may_be_in(tmp_path: Path) -> None:
    write_lake(tmp_path, {f"{n}.parquet": pa.table({"k": [n * 10, n * 10 + 9]}) for n in range(4)})
    assert inspect(str(tmp_path), ["k"]).key_overlap == 1.0
    write_lake(tmp_path, {"wide.parquet": pa.table({"k": [0, 39]})})
    assert inspect(str(tmp_path), ["k"]).key_overlap == pytest.approx((4 * 2 + 5) / 5)


def test_partition_columns_are_ranged_by_their_folders(tmp_path: Path) -> None:
    table = pa.table({"k": [1]})
    write_lake(tmp_path, {f"month={m}/a.parquet": table for m in ("9", "10", "02")})
    found = inspect(str(tmp_path), ["k", "month"])
    assert (found.keys["month"].lower, found.keys["month"].upper) == ("02", "10")
    assert found.key_overlap == 1.0


def test_a_plan_and_a_result_are_short_tables_in_python_and_notebooks() -> None:
    plan = a_plan({"rewrite": 2, "scan": 1, "guard": 1, "prune": 5000})
    assert repr(plan).splitlines() == [
        "plan of upsert: 3 updated, 2 inserted; 1,234,567 → 1,234,569 rows",
        "  rewrite           2 files      20 rows  2.0 kB",
        "  keys read          1 file      10 rows  1.0 kB",
        "  keys checked       1 file      10 rows  1.0 kB",
        "  not read      5,000 files  50,000 rows  5.0 MB",
        "  Try this.",
    ]
    assert len(plan._repr_html_()) < 1000
    for word in ("3 updated, 2 inserted", "not read", "5,000 files", "Try this."):
        assert word in plan._repr_html_()
    files = [MergeFileMetadata(f"lake/<{i}>.parquet", 10, "preserved", 1000) for i in range(5000)]
    files += [MergeFileMetadata("lake/new.parquet", 1, "inserted", 500)]
    result = MergeResult("insert", 1, 50_000, 50_001, 1, 0, 0, files, removed_files=["lake/old.parquet"])
    assert repr(result).splitlines() == [
        "insert: 1 inserted; 50,000 → 50,001 rows",
        "  new             1 file        1 row   500 B",
        "  untouched  5,000 files  50,000 rows  5.0 MB",
        "  removed         1 file       0 rows     0 B",
    ]
    assert "untouched" in result._repr_html_()
    assert "<0>" not in result._repr_html_()


def test_every_plan_and_result_is_short(tmp_path: Path) -> None:
    write_lake(tmp_path, {f"{n:03}.parquet": pa.table({"k": [n]}) for n in range(300)})
    rows, lake = pa.table({"k": [0]}), str(tmp_path)
    reports: list[Any] = [
        fsspeckit.plan_compact(lake),
        fsspeckit.compact(lake, undoable=True),
        *fsspeckit.history(lake),
    ]
    assert repr(reports[0]).splitlines()[0] == "plan of compact: 300 files → about 1"
    assert repr(reports[1]).startswith("compact: 300 → 1 file, ")
    assert "; keeps 300 files, " in repr(reports[2])
    reports.append(fsspeckit.undo(lake))
    assert repr(reports[3]).splitlines()[1] == "  300 files put back, 1 file removed"
    reports += [
        fsspeckit.plan_write(rows, lake, mode="overwrite"),
        fsspeckit.write_dataset(rows, lake, mode="overwrite"),
    ]
    reports += [fsspeckit.plan(rows, lake, key_columns=["k"]), fsspeckit.merge(rows, lake, key_columns=["k"])]
    reports.append(fsspeckit.compact(lake))
    assert repr(reports[-1]).startswith("compact: nothing to do; 1 file of ")
    for report in reports:
        assert len(repr(report)) < 500 and len(report._repr_html_()) < 1000
        assert "299.parquet" not in repr(report)


def test_words_of_machines_are_in_json_only(tmp_path: Path) -> None:
    plan = a_plan({"rewrite": 1, "scan": 1, "guard": 1, "prune": 1})
    shown_to_people = shown(PlanView(plan, "lake")) + repr(plan) + plan._repr_html_()
    told = HTMLText()
    told.feed(page(plan, "lake"))
    shown_to_people += told.text
    cleaned = re.sub(r"(why )?(rewrite|scan|guard|prune)(-0\.parquet)|why \w+", "", shown_to_people)
    assert not re.search(r"\b(prune|pruned|guard|scan|scanned)\b", cleaned)
    assert {file["action"] for file in document(plan, "lake")["files"]} == {"rewrite", "scan", "guard", "prune"}


class HTMLText(HTMLParser):
    """The text of a page, without its styles and its script."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self._in_style = "", False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._in_style = tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        self.text += "" if self._in_style else f" {data}"
