"""Numbers, sizes and sentences of reports, their files grouped by action, and their JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.core import defaults
from fsspeckit.core.report_text import LABELS, count, counts, size
from fsspeckit.core.reports import (
    CompactPlan,
    CompactResult,
    FilePlan,
    KeptCommit,
    MergePlan,
    MergeResult,
    WritePlan,
    WriteResult,
    without_map,
)
from fsspeckit.core.rewrite.compaction import choose_bins

if TYPE_CHECKING:
    from fsspeckit.core.model import Footer
    from fsspeckit.report.inspection import Inspection


def share(part: int, whole: int) -> str:
    """A fraction in per cent. It is 0 or 100 only if that is exact.

    >>> share(1, 3), share(1, 100_000), share(99_999, 100_000), share(0, 0)
    ('33.3 %', '<0.1 %', '>99.9 %', '0 %')
    """
    if part == 0 or whole == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    return ">99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def kept_commit_line(commit: KeptCommit) -> str:
    """One commit of the history, for people."""
    counted = {name: number for name, number in commit.counts.items() if not name.startswith("target_")}
    files = [counted.pop(name, None) for name in ("files_before", "files_after")]
    counts = ", ".join(f"{number:,} {name}" for name, number in counted.items())
    if None not in files:
        counts = f"{files[0]:,} → {count(files[1] or 0, 'file')}, {counts}"
    kept = f"keeps {count(len(commit.kept_files), 'file')} of {size(commit.bytes)}"
    line = f"{commit.committed_at:%Y-%m-%d %H:%M:%S} UTC  {commit.operation}  {counts}  {kept}  {commit.folder}"
    changes = f"  (cannot be undone: {'; '.join(commit.changes[:3])})" if commit.changes else ""
    return line + changes


def relative(path: str, target: str) -> str:
    """A file's path below its data set.

    >>> relative("lake/day=1/a.parquet", "lake/")
    'day=1/a.parquet'
    """
    return path.removeprefix(target.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class Group:
    """The files with the same action. `name` is the value in JSON and CSS, `label` is for people."""

    name: str
    label: str
    meaning: str
    files: int
    rows: int
    bytes: int


_PLANNED = {
    "rewrite": "have rows that change",
    "scan": "keys read, no row changes",
    "guard": "in other partitions; keys read to find rows that would move",
    "prune": "only the footer read",
}
_DONE = {
    "rewritten": "have changed rows",
    "inserted": "hold new rows",
    "preserved": "unchanged, byte for byte",
}


# The most values that a sentence lists.
_LISTED = 8

__all__ = [
    "LABELS",
    "Group",
    "compared",
    "count",
    "counts",
    "document",
    "headline",
    "partition_facts",
    "plan_groups",
    "relative",
    "result_groups",
    "retyped",
    "share",
    "size",
    "write_counts",
    "written",
]


def plan_groups(plan: MergePlan) -> list[Group]:
    return [_planned(name, [f for f in plan.files if f.action == name]) for name in _PLANNED]


def _planned(name: str, files: list[FilePlan]) -> Group:
    meaning, reasons = _PLANNED[name], Counter(f.reason for f in files)
    if name == "prune" and len(reasons) == 1:
        meaning = f"{meaning}: {files[0].reason}"
    elif name == "prune" and reasons:
        meaning = f"{meaning}: {', '.join(f'{reason} ({count(n)})' for reason, n in reasons.most_common())}"
    elif name == "rewrite" and any(not (f.updated_rows or f.deleted_rows) for f in files):
        meaning = f"{meaning}, get columns, or take the common type of a column"
    return Group(name, LABELS[name], meaning, len(files), sum(f.rows for f in files), sum(f.bytes for f in files))


def compared(plan: MergePlan) -> str | None:
    """How many of the updated rows and files would change, if the plan compared them."""
    if plan.changed is None or not plan.updated:
        return None
    equal = sum(1 for f in plan.files if f.updated_rows and f.changed_rows == 0 and f.action == "scan")
    kept = f"; {count(equal, 'file')} with matched rows would stay as {'it is' if equal == 1 else 'they are'}"
    return (
        f"{count(plan.changed)} of {count(plan.updated, 'updated row')} would get other values"
        + kept * bool(equal)
        + "."
    )


def result_groups(result: MergeResult) -> list[Group]:
    meanings = dict(_DONE)
    if result.retyped_files:
        meanings["rewritten"] += ", or got new columns" if result.added_columns else ""
        meanings["rewritten"] += ", or took the common type of a column" if result.retyped_columns else ""
    groups = []
    for name, meaning in meanings.items():
        files = [f for f in result.files if f.operation == name]
        rows, bytes_ = sum(f.row_count for f in files), sum(f.size_bytes or 0 for f in files)
        groups.append(Group(name, LABELS[name], meaning, len(files), rows, bytes_))
    return groups


def headline(report: MergePlan | MergeResult, target: str) -> str:
    """`upsert 3 rows into lake`, `delete 2 rows from lake`"""
    if report.strategy != "delete":
        return f"{report.strategy} {count(report.source_count, 'row')} into {target}"
    return f"delete {count(report.deleted, 'row')} from {target}"


def write_counts(report: WritePlan | WriteResult) -> str:
    """`3 rows written, 2 removed`"""
    removed = "an unknown number" if report.removed_rows is None else count(report.removed_rows)
    return f"{count(report.rows, 'row')} written" + ("" if report.removed_rows == 0 else f", {removed} removed")


def partition_facts(plan: MergePlan | WritePlan) -> list[tuple[str, str]]:
    """Where new rows go, and the partitions that appear and disappear."""
    new = [f"{folder} ({count(rows)})" for folder, rows in plan.new_rows.items() if folder]
    facts = [("new rows in", new), ("new", plan.new_partitions), ("emptied", plan.emptied_partitions)]
    return [(name, _listed(values)) for name, values in facts if values]


def _listed(values: Sequence[str]) -> str:
    more = f" and {count(len(values) - _LISTED)} more" if len(values) > _LISTED else ""
    return ", ".join(values[:_LISTED]) + more


def retyped(result: MergeResult) -> str | None:
    """What is new in the schema, and files that were rewritten although none of their rows changed, if any."""
    added, types = (
        ", ".join(f"{name} is {dtype}" for name, dtype in columns.items())
        for columns in (result.added_columns, result.retyped_columns)
    )
    sentences = [f"New columns: {added}."] if added else []
    sentences += [f"New types: {types}."] if types and added else []
    if result.retyped_files and added:
        sentences.append(f"{count(len(result.retyped_files), 'file')} without a changed row were rewritten for that.")
    elif result.retyped_files:
        sentences.append(
            f"{count(len(result.retyped_files), 'file')} without a changed row took the common type of a column, so "
            f"that readers can read all files together: {types}."
        )
    return " ".join(sentences) or None


def still_kept(result: MergeResult) -> str | None:
    """A sentence about kept files that may have deleted rows, if there are any."""
    if not result.kept_copies:
        return None
    return (
        f"Kept copies may still have the deleted rows: {_listed(result.kept_copies)}. `fsspeckit history --keep 0` "
        "removes them."
    )


def written(groups: Iterable[Group]) -> str:
    """`1.2 MB of 34.5 MB written (3.5 %)`"""
    shares = list(groups)
    total = sum(g.bytes for g in shares)
    new = sum(g.bytes for g in shares if g.name in ("rewrite", "rewritten", "inserted"))
    verb = "would be rewritten" if any(g.name == "prune" for g in shares) else "written"
    return f"{size(new)} of {size(total)} {verb} ({share(new, total)})"


Report = MergePlan | MergeResult | WritePlan | WriteResult | CompactPlan | CompactResult


def compaction_advice(footers: Sequence[Footer], key_overlap: float | None) -> str | None:
    """`300 files of 12 kB; a key may be in 212 of them. Compaction would …`; `None` if it is not worth it."""
    bins = choose_bins(footers, defaults.TARGET_SIZE, ())
    files = sum(len(b.files) for b in bins)
    new_files = sum(b.new_files(defaults.TARGET_SIZE) for b in bins)
    if not bins:
        return None
    average = sum(b.bytes for b in bins) // files
    overlap = f"; a key may be in {key_overlap:,.0f} of {len(footers):,}" if key_overlap is not None else ""
    return f"{count(files, 'file')} of {size(average)} could be {count(new_files)}{overlap}. Run `fsspeckit compact`."


def document(report: Report | Inspection, target: str) -> dict[str, Any]:
    """All fields of a report and the path of its data set, for JSON."""
    fields = {"target": target, **_fields(report)}
    if isinstance(report, MergePlan):
        fields |= {"target_count_after": report.target_count_after, "creates_target": report.creates_target}
    elif isinstance(report, MergeResult):
        fields |= {"total": report.total, "creates_target": report.creates_target}
    return fields


def _fields(report: Report | Inspection) -> dict[str, Any]:
    if isinstance(report, MergeResult):
        return report.to_dict()
    return without_map(report) if hasattr(report, "key_map") else asdict(report)
