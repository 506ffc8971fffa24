"""What `make bench` writes comes from its results, all of it, and a try does not get into docs/performance.md.

Every goal is about a work and contenders that exist, and the rows that the works expect are those that a merge leaves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import contenders
import goals
import report
import results
import spark_works
import works
from chart import draw
from contenders import Contender, DuckDB, OursDuckDB, OursPyArrow, Polars
from file_results import Part, Ratio
from results import Row, Suite


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(report, "HERE", tmp_path)
    (tmp_path / "page.md").write_text(f"before\n{report.START}\nold figures\n{report.END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["report.py", "--page", str(tmp_path / "page.md")])
    ours = ["fsspeckit, PyArrow", "fsspeckit, DuckDB"]
    names = [*ours, "delta-rs, streamed", "delta-rs, pruned", "PyIceberg"]
    suite = Suite("local", ours, "PyArrow read+write", {"tiny": "a <few> rows"}, dict.fromkeys(names, "merges"))
    walls = [0.03, 0.02, 0.05, 0.04, None]
    suite.rows = [Row("tiny", name, wall, wall, 300.0, 5) for name, wall in zip(names, walls)]
    suite.rows[-1].note = "not run: too slow"
    return suite


def test_the_best_of_a_family_is_quoted_and_a_second_report_changes_nothing(suite: Suite, tmp_path: Path) -> None:
    suite.save()
    report.main()
    once = (tmp_path / "page.md").read_text()
    assert "| tiny | 0.020 s | 0.040 s (2.00×) | – |" in once
    assert once.startswith("before\n") and once.endswith("\nafter\n") and "old figures" not in once
    report.main()
    assert (tmp_path / "page.md").read_text() == once


def test_a_try_says_so_and_leaves_the_page_alone(suite: Suite, tmp_path: Path) -> None:
    suite.whole, suite.scale = False, 0.05
    suite.save()
    report.main()
    assert "old figures" in (tmp_path / "page.md").read_text()
    assert "**A try, not a measurement: scale 0.05" in (tmp_path / "RESULTS.md").read_text()
    assert "not run: too slow" in (tmp_path / "RESULTS.md").read_text()


def test_benchmarks_of_files_have_a_section(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each benchmark replaces its own part."""
    suite.save()
    Part("undo", "undo_cost.py 2", [Ratio("a merge", 1.5, 1.02)], whole=False).save()
    Part("compaction", "compaction.py", [Ratio("joined", 1.25, 1.5, 0.9, "2.0 s")], whole=True).save()
    Part("undo", "undo_cost.py 10", [Ratio("a merge", 1.01, 1.02), Ratio("more", None, 1)], whole=True).save()
    report.main()
    text = (tmp_path / "RESULTS.md").read_text()
    _, _, section = text.partition("## Compaction, schema changes, undo, readers")
    assert section.index("### Compaction") < section.index("### Undo") and "A try" not in section
    assert "| joined | 1.25 | 0.90 | 1.5 | met | 2.0 s |" in section
    assert "| a merge | 1.01 | – | 1.02 | met |" in section and "| more | – | – | 1 | not measured |" in section
    Part("undo", "undo_cost.py 2", [Ratio("a merge", 1.5, 1.02)], whole=False).save()
    report.main()
    section = (tmp_path / "RESULTS.md").read_text().partition("### Undo")[2]
    assert "**A try, not a measurement.**" in section and "| 1.02 | **not met** |" in section
    before = (tmp_path / "RESULTS.md").read_text()
    monkeypatch.setattr(sys, "argv", ["report.py", "--files-only"])
    report.main()
    assert (tmp_path / "RESULTS.md").read_text() == before


def test_pipelines_have_a_section_and_no_chart(suite: Suite, tmp_path: Path) -> None:
    """Contenders that were not given a work have no figure there; the page quotes the others only."""
    suite.save()
    names = ["fsspeckit, Spark", "fsspeckit, Spark, executors killed", "dynamic partition overwrite"]
    pipelines = Suite("pipelines", names[:1], names[2], {"daily": "60 days", "cluster": "2"}, dict.fromkeys(names, "x"))
    pipelines.rows = [Row("daily", names[0], 1.0, 2.0, 300.0, 3), Row("daily", names[2], 2.5, 4.0, None, 3)]
    pipelines.rows += [Row("cluster", names[0], 2.0, rounds=1), Row("cluster", names[1], 3.0, None, None, 1, "2 kills")]
    pipelines.whole = False
    pipelines.save()
    report.main()
    section = (tmp_path / "RESULTS.md").read_text().partition("## Pipelines on Spark")[2]
    assert (
        "| daily | 1.00 s | – | 2.50 s (2.50×) |" in section and "| cluster | 2.00 s | 3.00 s (1.50×) | – |" in section
    )
    assert "- cluster, fsspeckit, Spark, executors killed: 2 kills." in section and "<picture>" not in section
    assert "daily" not in (tmp_path / "page.md").read_text()
    assert not list(tmp_path.glob("chart-pipelines*"))


def test_without_results_there_is_no_report(suite: Suite) -> None:
    with pytest.raises(SystemExit, match="`make bench` measures first"):
        report.main()


def test_goals_are_met_or_not_or_not_measured(suite: Suite) -> None:
    met = {outcome.text: outcome.met for outcome in goals.outcomes(suite)}
    assert met["tiny: fsspeckit to delta-rs"] == "met"
    assert met["5 of 50 files: fsspeckit to delta-rs"] == "not measured"
    suite.rows[1].wall = suite.rows[0].wall = 0.039
    met = {outcome.text: outcome.met for outcome in goals.outcomes(suite)}
    assert met["tiny: fsspeckit to delta-rs"] == "**not met**"


def test_goals_name_works_and_contenders() -> None:
    names = {"local": {work.name for work in works.WORKS}, "spark": {work.name for work in spark_works.WORKS}}
    assert not {(goal.suite, goal.work) for goal in goals.GOALS if goal.work not in names[goal.suite]}
    everyone = {contender.name for contender in contenders.EVERYONE}
    known = everyone | {results.family(name) for name in everyone} | {"fsspeckit, plan first", "fsspeckit, plan again"}
    assert not {goal.against for goal in goals.GOALS if goal.suite == "local"} - known


@pytest.mark.parametrize("contender", [OursPyArrow, OursDuckDB, Polars, DuckDB])
@pytest.mark.parametrize("kind", ["upsert", "delete", "feed"])
def test_the_expected_rows_are_those_after_a_merge(kind: str, contender: type[Contender], tmp_path: Path) -> None:
    work = next(work for work in works.WORKS if work.kind == kind).small()
    (tmp_path / "lakes").mkdir()
    works.build(work, tmp_path)
    lake, place = tmp_path / "lakes" / work.lake.name, tmp_path / work.name
    expected = works.Sums(**json.loads((place / "expected.json").read_text()))
    assert works.sums_of_files(work.lake, contender().files(lake)) != expected
    contender().merge(lake, pq.read_table(place / "source.parquet"), work)
    assert works.sums_of_files(work.lake, contender().files(lake)) == expected


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chart_is_a_picture(suite: Suite, theme: str) -> None:
    words = [element.text for element in ElementTree.fromstring(draw(suite, theme)).iter() if element.text]
    assert {"a <few> rows", "0.020 s", "0.040 s · 2.00×", "–"} <= set(words)
