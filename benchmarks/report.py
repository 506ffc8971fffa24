"""Tables and charts of what was measured: benchmarks/RESULTS.md, chart-*.svg and the figures in docs/performance.md.

    python benchmarks/report.py [--page docs/performance.md] [--files-only]

Every figure comes from benchmarks/results/*.json. With `--files-only`, only the section about compaction, schema
changes, undo and readers is made anew. The page is changed only by whole runs, not by tries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import file_results
import results
from chart import draw, seconds, times
from goals import outcomes
from results import Row, Suite

HERE = Path(__file__).parent
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
TITLES = {"local": "On one machine", "spark": "Spark", "pipelines": "Pipelines on Spark"}
QUOTED = ("local", "spark")
"""These have charts, and docs/performance.md quotes them."""


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def by_contender(suite: Suite, show: Callable[[Row], str]) -> list[str]:
    columns = suite.columns()
    return table(
        ["work", *columns], [[work, *[show(suite.of(work, name)) for name in columns]] for work in suite.works]
    )


def wall(suite: Suite) -> Callable[[Row], str]:
    """Seconds, and for others how many times ours."""

    def show(row: Row) -> str:
        ours = suite.ours_at(row.work).wall
        if row.wall is None:
            return "wrong" if row.note.startswith("wrong") else "–"
        return seconds(row.wall) + (f" ({times(row.wall / ours)})" if ours and row.contender not in suite.ours else "")

    return show


def cpu(row: Row) -> str:
    return "–" if row.cpu is None else f"{row.cpu:.2f}"


def peak(row: Row) -> str:
    return "–" if row.peak_mib is None else f"{row.peak_mib:.0f}"


def goal_table(suite: Suite) -> list[str]:
    reached = list(outcomes(suite))
    if not reached:
        return []
    rows = [
        [goal.text, f"≤ {goal.limit:g}", "–" if goal.reached is None else f"{goal.reached:.3g}", goal.met]
        for goal in reached
    ]
    return ["### Goals", "", *table(["ours, the better engine, as a part of", "goal", "is", ""], rows)]


def notes(suite: Suite) -> list[str]:
    """Why there is no figure, and figures of what is no contender."""
    beside = [row for row in suite.rows if row.contender not in suite.columns() and row.wall is not None]
    lines = [f"- {row.work}, {row.contender}: {seconds(row.wall or 0)}." for row in beside]
    lines += [f"- {row.work}, {row.contender}: {row.note}." for row in suite.rows if row.note]
    return ["### Notes", "", *lines, ""] if lines else []


def peaks(suite: Suite) -> list[str]:
    if all(row.peak_mib is None for row in suite.rows):
        return []
    return ["### Peak memory of a process that merges once, MiB", "", *by_contender(suite, peak)]


def section(suite: Suite) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in suite.versions.items())
    rounds = max(row.rounds for row in suite.rows)
    smaller = f"**A try, not a measurement: scale {suite.scale:g} of the rows, {rounds} rounds at most.**"
    return [
        f"## {TITLES.get(suite.suite, suite.suite)}",
        "",
        *([] if suite.whole else [smaller, ""]),
        f"{suite.date}; {suite.machine}; {versions}.",
        "",
        *picture(suite, ""),
        "### Wall seconds (times the better of ours)",
        "",
        *by_contender(suite, wall(suite)),
        "### CPU seconds, of all threads",
        "",
        *by_contender(suite, cpu),
        *peaks(suite),
        *goal_table(suite),
        *notes(suite),
        "### Works",
        "",
        *[f"- **{name}**: {about}." for name, about in suite.works.items()],
        "",
        "### Contenders",
        "",
        *[f"- **{name}**: {about}." for name, about in suite.contenders.items()],
        "",
    ]


def chart_name(suite: Suite, theme: str) -> str:
    return f"chart-{theme}.svg" if suite.suite == "local" else f"chart-{suite.suite}-{theme}.svg"


def picture(suite: Suite, folder: str) -> list[str]:
    if suite.suite not in QUOTED:
        return []
    return [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{folder}{chart_name(suite, "dark")}">',
        f'  <img alt="Time of a merge, ours and others" src="{folder}{chart_name(suite, "light")}">',
        "</picture>",
        "",
    ]


def quoted(suites: list[Suite]) -> list[str]:
    lines: list[str] = []
    for suite in suites:
        families = suite.families()
        show = wall(suite)
        rows = [[work, *[show(suite.best(work, name)) for name in families]] for work in suite.works]
        lines += [
            f"{TITLES.get(suite.suite, suite.suite)} ({suite.machine}, {suite.date}), seconds and times of ours:",
            "",
        ]
        lines += [*picture(suite, "../benchmarks/"), *table(["work", *families], rows)]
    return lines


def quote(suites: list[Suite], page: Path) -> None:
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{page} has no {START} and {END} to write between.")
    page.write_text("\n".join([before + START, "", *quoted(suites), END + after]), encoding="utf-8")


def replace_files_section() -> None:
    """Make the last section of RESULTS.md anew."""
    lines, path = file_results.section(file_results.load()), HERE / "RESULTS.md"
    before, _, _ = path.read_text(encoding="utf-8").partition(lines[0])
    path.write_text(before.rstrip() + "\n\n" + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs/performance.md")
    parser.add_argument("--files-only", action="store_true")
    options = parser.parse_args()
    if options.files_only:
        replace_files_section()
        return
    suites = [suite for name in TITLES if (suite := results.load(name)) is not None]
    if not suites:
        sys.exit(f"There is nothing in {results.FOLDER}: `make bench` measures first.")
    head = [
        "# Benchmarks",
        "",
        "Written by `make bench` (`benchmarks/report.py`) from `benchmarks/results`; not by hand.",
        "",
    ]
    lines = [line for suite in suites for line in section(suite)] + file_results.section(file_results.load())
    (HERE / "RESULTS.md").write_text("\n".join(head + lines).rstrip() + "\n", encoding="utf-8")
    suites = [suite for suite in suites if suite.suite in QUOTED]
    for suite in suites:
        for theme in ("light", "dark"):
            (HERE / chart_name(suite, theme)).write_text(draw(suite, theme), encoding="utf-8")
    if all(suite.whole for suite in suites):
        quote(suites, options.page)
    else:
        print("docs/performance.md is left as it is: one of the results is a try.")


if __name__ == "__main__":
    main()
