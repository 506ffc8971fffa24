"""Plans and results of compactions, for the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult

from fsspeckit.core.reports import CompactPlan, CompactResult
from fsspeckit.report.summary import count, size
from fsspeckit.report.terminal import MANY_FILES, left_out, line, listing, title, took


@dataclass(frozen=True)
class CompactPlanView:
    """What a compaction would do."""

    plan: CompactPlan
    target: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plan = self.plan
        yield title("Plan", f"compact {self.target}")
        if not plan.bins:
            yield line(f"Nothing to do: {count(plan.files_before, 'file')} of {size(plan.bytes_before)}.", "bold")
            return
        files, rewritten = count(plan.files_before, "file"), size(plan.bytes_to_rewrite)
        yield line(f"{files} → about {count(plan.files_after)}; {rewritten} would be rewritten", "bold")
        rows = [
            (b.folder or ".", f"{count(b.files)} → {count(b.new_files)}", count(b.rows), size(b.bytes), b.reason)
            for b in plan.bins[:MANY_FILES]
        ]
        yield from listing(("folder", "files", "rows", "size", "reason"), rows, options)
        yield from left_out(len(plan.bins) - len(rows), "group of files")


@dataclass(frozen=True)
class CompactResultView:
    """What a compaction did."""

    result: CompactResult
    target: str
    seconds: float | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = self.result
        yield title("Compacted", self.target + took(self.seconds))
        if not result.commits:
            yield line(f"Nothing to do: {count(result.files_after, 'file')} of {size(result.bytes_after)}.", "bold")
            return
        files = f"{count(result.files_before)} → {count(result.files_after, 'file')}"
        sizes = f"{size(result.bytes_before)} → {size(result.bytes_after)}"
        yield line(f"{files}, {sizes}; {count(result.rows, 'row')}", "bold")
        written, copied = size(result.bytes_written), size(result.bytes_copied)
        yield line(f"{written} written in {count(result.commits, 'commit')}, {copied} of them copied without decoding")
