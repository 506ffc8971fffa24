"""Group the files of a plan or a result by what happens to them, for the bars in the terminal and in HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fsspeckit.core.model import FilePlan, MergeFileMetadata, MergePlan, MergeResult
from fsspeckit.report.text import count, share, size


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are treated alike. `name` is the value in JSON and the name of the colour, `label` is for people."""

    name: str
    label: str
    meaning: str
    files: int
    rows: int
    bytes: int


LABELS = {"rewrite": "rewritten", "scan": "scanned", "guard": "checked", "prune": "skipped"}
"""The actions of a plan, as people read them."""
_PLANNED = {
    "rewrite": "contain rows that the source replaces",
    "scan": "key columns read, no row to replace",
    "guard": "in other partitions; key columns read to find moved keys",
    "prune": "only the footer read",
}
_DONE = {
    "rewritten": "contain replaced rows",
    "inserted": "new files with new rows",
    "preserved": "unchanged, byte for byte",
}


def plan_groups(plan: MergePlan) -> list[Group]:
    return [_planned(name, [f for f in plan.files if f.action == name]) for name in _PLANNED]


def _planned(name: str, files: list[FilePlan]) -> Group:
    meaning = _PLANNED[name]
    if name == "prune" and files:
        meaning = f"{meaning}: {_reasons(files)}"
    if name == "rewrite" and any(not f.matched_rows for f in files):
        meaning = f"{meaning}, or take the common type of a column"
    rows, size_ = sum(f.rows for f in files), sum(f.bytes for f in files)
    return Group(name, LABELS[name], meaning, len(files), rows, size_)


def _reasons(files: list[FilePlan]) -> str:
    reasons = Counter(f.reason for f in files)
    return (
        next(iter(reasons)) if len(reasons) == 1 else ", ".join(f"{r} ({count(n)})" for r, n in reasons.most_common())
    )


def result_groups(result: MergeResult) -> list[Group]:
    meanings = dict(_DONE)
    if result.retyped_files:
        meanings["rewritten"] += ", or took the common type of a column"
    return [_done(name, m, [f for f in result.files if f.operation == name]) for name, m in meanings.items()]


def _done(name: str, meaning: str, files: list[MergeFileMetadata]) -> Group:
    rows, size_ = sum(f.row_count for f in files), sum(f.size_bytes or 0 for f in files)
    return Group(name, name, meaning, len(files), rows, size_)


def counts(report: MergePlan | MergeResult) -> str:
    """`3 updated, 1 inserted; 100 → 101 rows`: the outcome of a merge."""
    parts = [("updated", report.updated), ("inserted", report.inserted), ("deleted", report.deleted)]
    done = ", ".join(f"{count(n)} {word}" for word, n in parts if n) or "nothing changes"
    before, after = count(report.target_count_before), count(report.target_count_after)
    rows = f"{before} rows" if report.target_count_before == report.target_count_after else f"{before} → {after} rows"
    return f"{done}; {rows}"


def retyped(result: MergeResult) -> str | None:
    """A sentence about the files that were rewritten although none of their rows changed, if there are any."""
    if not result.retyped_files:
        return None
    types = ", ".join(f"{name} is {dtype}" for name, dtype in result.retyped_columns.items())
    return (
        f"{count(len(result.retyped_files), 'file')} without a changed row took the common type of a column, so that "
        f"readers can read all files together: {types}."
    )


def written(groups: Iterable[Group]) -> str:
    """`1.2 MB of 34.5 MB (3.5 %) is written`: how much the merge writes."""
    shares = list(groups)
    total = sum(g.bytes for g in shares)
    new = sum(g.bytes for g in shares if g.name in ("rewrite", "rewritten", "inserted"))
    verb = "would be rewritten" if any(g.name == "prune" for g in shares) else "written"
    return f"{size(new)} of {size(total)} {verb} ({share(new, total)})"
