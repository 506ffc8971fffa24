"""Plans, results and inspections for the terminal.

A wide console shows files as a table, a narrow one as a list. Long paths are wrapped, not truncated. Bars can be read
without colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fsspeckit.core.reports import FilePlan, MergeFileMetadata, MergePlan, MergeResult, WritePlan, WriteResult
from fsspeckit.report.inspection import (
    InspectedFile,
    Inspection,
    codec_text,
    column_cells,
    overlap_text,
    partition_text,
    range_text,
    writer_text,
)
from fsspeckit.report.summary import (
    LABELS,
    Group,
    compared,
    count,
    counts,
    headline,
    partition_facts,
    plan_groups,
    relative,
    result_groups,
    retyped,
    share,
    size,
    still_kept,
    write_counts,
    written,
)

MANY_FILES = 24
NARROW = 90
TINY = 44
_BAR = 60

# By label: style, block character, and its replacement in ASCII.
_STYLES = {
    "rewrite": ("red", "█", "#"),
    "keys read": ("yellow", "▓", "="),
    "keys checked": ("magenta", "▒", "+"),
    "not read": ("green", "░", "."),
    "rewritten": ("red", "█", "#"),
    "new": ("cyan", "▓", "="),
    "untouched": ("green", "░", "."),
}


@dataclass(frozen=True)
class PlanView:
    """What a merge would do."""

    plan: MergePlan
    target: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plan, groups = self.plan, plan_groups(self.plan)
        yield title("Plan", headline(plan, self.target))
        columns = [("key", ", ".join(plan.key_columns)), ("partitions", ", ".join(plan.partition_columns) or "none")]
        yield _facts([*(fact for fact in columns if fact[1]), *partition_facts(plan)])
        yield line(counts(plan), "bold")
        if sentence := compared(plan):
            yield line(sentence)
        yield from _groups(groups, options)
        rows = [_plan_row(f, self.target) for f in _worthlisting(plan.files)]
        yield from listing(("file", "action", "matched", "row groups", "rows", "size", "reason"), rows, options)
        yield from left_out(len(plan.files) - len(rows))
        for hint in plan.hints:
            yield line(f"Hint: {hint}", "italic", indent=0)


@dataclass(frozen=True)
class ResultView:
    """What a merge did."""

    result: MergeResult
    target: str
    seconds: float | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result, groups = self.result, result_groups(self.result)
        verb = "Deleted" if result.strategy == "delete" else "Merged"
        yield title(verb, headline(result, self.target) + took(self.seconds))
        yield line(counts(result), "bold")
        if result.updated and not result.rewritten_files:
            yield line("The matched rows already equal those of the source; no file was rewritten.")
        if sentence := retyped(result):
            yield line(sentence)
        if sentence := still_kept(result):
            yield line(sentence)
        yield from _groups(groups, options)
        changed = [f for f in result.files if f.operation != "preserved"]
        rows = [_result_row(f, self.target) for f in changed[:MANY_FILES]]
        yield from listing(("file", "", "rows", "size"), rows, options)
        yield from left_out(len(changed) - len(rows), "changed file")


@dataclass(frozen=True)
class WritePlanView:
    """What a plain write would do."""

    plan: WritePlan
    target: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plan, rewritten = self.plan, set(self.plan.retyped_files)
        yield title("Plan", f"{plan.mode} {count(plan.rows, 'row')} into {self.target}")
        yield _facts(partition_facts(plan))
        yield line(write_counts(plan), "bold")
        files = [*((path, "removed") for path in plan.removed_files), *((path, "rewritten") for path in rewritten)]
        rows = [(relative(path, self.target), action) for path, action in sorted(files)[:MANY_FILES]]
        yield from listing(("file", "action"), rows, options)
        yield from left_out(len(files) - len(rows), "changed file")


@dataclass(frozen=True)
class WriteResultView:
    """What a plain write did."""

    result: WriteResult
    target: str
    seconds: float | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = self.result
        rest = f"{result.mode} {count(result.rows, 'row')} into {self.target}{took(self.seconds)}"
        yield title("Written", rest)
        yield line(write_counts(result), "bold")
        files = [_result_row(file, self.target) for file in result.files]
        files += [(relative(path, self.target), "removed", "", "") for path in result.removed_files]
        yield from listing(("file", "", "rows", "size"), files[:MANY_FILES], options)
        yield from left_out(len(files) - MANY_FILES, "changed file")


@dataclass(frozen=True)
class InspectionView:
    """The files and columns of a data set."""

    inspection: Inspection

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        seen = self.inspection
        yield title("Data set", seen.path)
        yield _facts(_inspection_facts(seen))
        yield from listing(("column", "type", "", ""), column_cells(seen), options)
        files = seen.files if len(seen.files) <= MANY_FILES else seen.files[: MANY_FILES // 2]
        heads = ("file", "rows", "size", "row groups", "codec", *seen.key_columns)
        yield from listing(heads, [_inspection_row(f, seen) for f in files], options)
        yield from left_out(len(seen.files) - len(files))


def _inspection_facts(seen: Inspection) -> list[tuple[str, str]]:
    facts = [
        ("files", count(len(seen.files))),
        ("rows", count(seen.rows)),
        ("size", size(seen.bytes)),
        ("row groups", count(seen.row_groups)),
        ("partitions", partition_text(seen)),
        ("codecs", codec_text(seen)),
        ("written by", writer_text(seen)),
    ]
    facts += [(f"range of {name}", range_text(key_range)) for name, key_range in seen.keys.items()]
    if overlap := overlap_text(seen):
        facts.append(("pruning", overlap))
    if seen.compaction is not None:
        facts.append(("compaction", seen.compaction))
    return facts


def _inspection_row(file: InspectedFile, seen: Inspection) -> tuple[str, ...]:
    ranges = [range_text(file.keys[k]) for k in seen.key_columns]
    base = (relative(file.path, seen.path), count(file.rows), size(file.bytes), count(file.row_groups))
    return (*base, ", ".join(file.codecs), *ranges)


def _plan_row(file: FilePlan, target: str) -> tuple[str, ...]:
    read = f"{count(file.scanned_row_groups)} of {count(file.row_groups)}"
    matched = count(file.matched_rows) if file.scanned_row_groups else ""
    label, rows, bytes_ = LABELS[file.action], count(file.rows), size(file.bytes)
    return relative(file.path, target), label, matched, read, rows, bytes_, file.reason


def _result_row(file: MergeFileMetadata, target: str) -> tuple[str, ...]:
    return relative(file.path, target), LABELS[file.operation], count(file.row_count), size(file.size_bytes or 0)


def _worthlisting(files: Sequence[FilePlan]) -> Sequence[FilePlan]:
    """Every file if there are few, otherwise the files to rewrite."""
    if len(files) <= MANY_FILES:
        return files
    return [f for f in files if f.action == "rewrite"][:MANY_FILES]


def left_out(number: int, what: str = "file") -> Iterable[Padding]:
    if number > 0:
        yield line(f"… and {count(number, f'more {what}')}; --json lists all of them.", "dim")


def took(seconds: float | None) -> str:
    return "" if seconds is None else f" in {seconds:.2f} s"


def title(verb: str, rest: str) -> Text:
    return Text.assemble((f"{verb}: ", "bold cyan"), (rest, "bold"), overflow="fold")


def line(text: str, style: str = "", indent: int = 2) -> Padding:
    return Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, indent), expand=False)


def _facts(facts: Iterable[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(Text(f"  {name}"), Text(value))
    return grid


def _groups(groups: Sequence[Group], options: ConsoleOptions) -> RenderResult:
    """Two bars, for files and for bytes, with a legend."""
    files, total = sum(g.files for g in groups), sum(g.bytes for g in groups)
    if not files:
        return
    ascii_only, width = options.ascii_only, max(10, min(_BAR, options.max_width - 12))
    yield Text()
    yield _bar("files", groups, cells([g.files for g in groups], width), ascii_only)
    yield _bar("bytes", groups, cells([g.bytes for g in groups], width), ascii_only)
    legend = Table.grid(padding=(0, 2, 0, 0))
    for side in ("left", "left", "right", "right", "right"):
        legend.add_column(justify="right" if side == "right" else "left", no_wrap=True)
    legend.add_column(overflow="fold", style="dim")
    for group in groups:
        style, *blocks = _STYLES[group.label]
        mark = Text(f"  {blocks[ascii_only]}", style=style)
        part = share(group.bytes, total) if options.max_width >= TINY else ""
        meaning = group.meaning if options.max_width >= NARROW else ""
        legend.add_row(mark, group.label, count(group.files), size(group.bytes), part, meaning)
    yield legend
    yield line(written(groups), "bold")


def cells(parts: Sequence[int], width: int) -> list[int]:
    """Divide a bar of `width` cells in proportion; a part greater than zero gets at least one cell.

    >>> cells([1, 0, 999], 10)
    [1, 0, 9]
    """
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    exact = [width * part / total for part in parts]
    widths = [max(1, math.floor(e)) if part else 0 for e, part in zip(exact, parts, strict=True)]
    while sum(widths) < width:
        widths[max(range(len(widths)), key=lambda i: exact[i] - widths[i] if parts[i] else -math.inf)] += 1
    while sum(widths) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def _bar(label: str, groups: Sequence[Group], widths: Sequence[int], ascii_only: bool) -> Text:
    bar = Text(f"  {label:<7}", no_wrap=True)
    for group, width in zip(groups, widths, strict=True):
        style, *blocks = _STYLES[group.label]
        bar.append(blocks[ascii_only] * width, style=style)
    return bar


def listing(heads: Sequence[str], rows: Sequence[Sequence[str]], options: ConsoleOptions) -> RenderResult:
    if not rows:
        return
    yield Text()
    needed = 2 + sum(max(len(row[i]) for row in [heads, *rows]) + 2 for i in range(len(heads)))
    if needed <= options.max_width:
        yield _table(heads, rows)
    else:
        yield from _stack(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for number, head in enumerate(heads):
        numeric = head in ("rows", "size", "matched", "row groups")
        title = Text(f"  {head}" if number == 0 else head)
        table.add_column(title, justify="right" if numeric else "left", no_wrap=True)
    for first, *rest in rows:
        table.add_row(Text(f"  {first}"), *(Text(cell, style=_STYLES.get(cell, ("",))[0]) for cell in rest))
    return table


def _stack(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[Padding]:
    """Each path on its own line, with its details below."""
    for first, *rest in rows:
        details = [(h, cell) for h, cell in zip(heads[1:], rest, strict=True) if cell]
        text = ", ".join(cell if h in ("", "action", "reason") else f"{h} {cell}" for h, cell in details)
        yield line(first)
        yield line(text, indent=4)
