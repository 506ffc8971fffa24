"""The files of a plan or a result in groups: what is drawn as a bar, in the terminal and in HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fsspeckit.core.model import FilePlan, MergeFileMetadata, MergePlan, MergeResult
from fsspeckit.report.text import count, share, size


@dataclass(frozen=True, slots=True)
class Group:
    """Files with one fate. `name` is also the name of its colour."""

    name: str
    meaning: str
    files: int
    rows: int
    bytes: int


_PLANNED = {
    "rewrite": "hold rows that the source replaces",
    "scan": "keys read, nothing to replace",
    "guard": "in other partitions; keys read so that none moves",
    "prune": "never opened beyond their footer",
}
_DONE = {
    "rewritten": "hold rows that were replaced",
    "inserted": "new files with new rows",
    "preserved": "same bytes as before",
}


def plan_groups(plan: MergePlan) -> list[Group]:
    return [_planned(name, [f for f in plan.files if f.action == name]) for name in _PLANNED]


def _planned(name: str, files: list[FilePlan]) -> Group:
    meaning = _PLANNED[name]
    if name == "prune" and files:
        meaning = f"{meaning}: {_reasons(files)}"
    return Group(name, meaning, len(files), sum(f.rows for f in files), sum(f.bytes for f in files))


def _reasons(files: list[FilePlan]) -> str:
    reasons = Counter(f.reason for f in files)
    return (
        next(iter(reasons)) if len(reasons) == 1 else ", ".join(f"{r} ({count(n)})" for r, n in reasons.most_common())
    )


def result_groups(result: MergeResult) -> list[Group]:
    return [_done(name, [f for f in result.files if f.operation == name]) for name in _DONE]


def _done(name: str, files: list[MergeFileMetadata]) -> Group:
    rows, size_ = sum(f.row_count for f in files), sum(f.size_bytes or 0 for f in files)
    return Group(name, _DONE[name], len(files), rows, size_)


def counts(report: MergePlan | MergeResult) -> str:
    """`3 updated, 1 inserted; 100 → 101 rows`: what a merge comes to."""
    parts = [("updated", report.updated), ("inserted", report.inserted), ("deleted", report.deleted)]
    done = ", ".join(f"{count(n)} {word}" for word, n in parts if n) or "nothing changes"
    before, after = count(report.target_count_before), count(report.target_count_after)
    rows = f"{before} rows" if report.target_count_before == report.target_count_after else f"{before} → {after} rows"
    return f"{done}; {rows}"


def written(groups: Iterable[Group]) -> str:
    """`1.2 MB of 34.5 MB (3.5 %) is written`: the point of it all."""
    shares = list(groups)
    total = sum(g.bytes for g in shares)
    new = sum(g.bytes for g in shares if g.name in ("rewrite", "rewritten", "inserted"))
    verb = "would be rewritten" if any(g.name == "prune" for g in shares) else "written"
    return f"{size(new)} of {size(total)} {verb} ({share(new, total)})"
