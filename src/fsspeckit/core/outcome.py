"""What a merge did, or would do, in the words of the caller."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Literal

from fsspeckit.core.model import (
    Action,
    FileInfo,
    FilePlan,
    Footer,
    MergeFileMetadata,
    MergePlan,
    MergeResult,
    Rewritten,
    Staged,
    Target,
)
from fsspeckit.core.plan.planned import Planned, Request
from fsspeckit.core.plan.prune import Pruned
from fsspeckit.core.storage import Location


def entry(location: Location, staged: Staged, operation: Literal["rewritten", "inserted"]) -> MergeFileMetadata:
    return MergeFileMetadata(location.show(staged.path), staged.rows, operation, staged.size)


def result(
    location: Location,
    planned: Planned,
    rewritten: Sequence[Rewritten],
    inserted: Sequence[Staged],
    removed: Sequence[FileInfo],
) -> MergeResult:
    """Exact counts, and every file of the data set after the merge."""
    counts, before = planned.counts, planned.target.rows
    gone = {f.path for f in removed} | {r.path for r in rewritten if r.staged}
    files = [entry(location, s, "rewritten") for r in rewritten for s in r.staged]
    files += [entry(location, s, "inserted") for s in inserted]
    files += _preserved(location, planned.target, gone)
    copied = sum(r.copied for r in rewritten)
    written = sum(s.size for s in [*(s for r in rewritten for s in r.staged), *inserted])
    by = {op: [f.path for f in files if f.operation == op] for op in ("rewritten", "inserted", "preserved")}
    return MergeResult(
        strategy=planned.request.strategy.value,
        source_count=planned.source_rows,
        target_count_before=before,
        target_count_after=before + counts.inserted - counts.deleted,
        inserted=counts.inserted,
        updated=counts.updated,
        deleted=counts.deleted,
        files=files,
        rewritten_files=by["rewritten"],
        inserted_files=by["inserted"],
        preserved_files=by["preserved"],
        removed_files=[location.show(f.path) for f in removed],
        bytes_copied=copied,
        bytes_encoded=written - copied,
    )


def _preserved(location: Location, target: Target, gone: set[str]) -> list[MergeFileMetadata]:
    kept = [(f, rows) for f, rows in zip(target.files.infos, target.files.rows, strict=True) if f.path not in gone]
    return [MergeFileMetadata(location.show(f.path), rows, "preserved", f.size) for f, rows in kept]


def unchanged(location: Location, target: Target, request: Request) -> MergeResult:
    """The result of a batch that was committed before."""
    files = _preserved(location, target, set())
    kept = [f.path for f in files]
    return MergeResult(request.strategy.value, 0, target.rows, target.rows, 0, 0, 0, files, preserved_files=kept)


def describe(location: Location, planned: Planned) -> MergePlan:
    """The plan: exact counts, and what would happen to every file and why."""
    counts, touched = planned.counts, {f.path: f for f in planned.touched}
    copied = sum(_copied(planned, footer) for footer in touched.values())
    return MergePlan(
        strategy=planned.request.strategy.value,
        key_columns=planned.shape.keys,
        partition_columns=planned.shape.partitions,
        source_count=planned.source_rows,
        target_count_before=planned.target.rows,
        inserted=counts.inserted,
        updated=counts.updated,
        deleted=counts.deleted,
        files=tuple(_file_plans(location, planned, touched)),
        hints=tuple(_hints(planned)),
        bytes_copied=copied,
        bytes_encoded=sum(footer.info.size for footer in touched.values()) - copied,
    )


def _copied(planned: Planned, footer: Footer) -> int:
    """About how many bytes lie in row groups without a matched row: footers tell sizes before compression."""
    if planned.request.rewrite_mode == "full":
        return 0
    hit = planned.match.rows.get(footer.path, {})
    spared = sum(group.bytes for number, group in enumerate(footer.row_groups) if not hit.get(number))
    return footer.info.size * spared // max(1, sum(group.bytes for group in footer.row_groups))


def _file_plans(location: Location, planned: Planned, touched: Container[str]) -> Iterator[FilePlan]:
    files, folder = planned.target.files, location.show("")
    for info, pruned, rows, groups in zip(files.infos, planned.pruned, files.rows, files.group_counts, strict=True):
        action: Action = "prune"
        reason, scanned, matched = pruned.reason, len(pruned.row_groups), 0
        if scanned or info.path in touched:
            matched = planned.match.rows_in(info.path)
            action, reason = _met(pruned, matched, info.path in touched)
        yield FilePlan(folder + info.path, action, reason, rows, info.size, groups, scanned, matched)


def _met(pruned: Pruned, matched: int, touched: bool) -> tuple[Action, str]:
    """What is done with a file whose keys were compared, or that is replaced whatever they are, and why."""
    if touched:
        return "rewrite", _count(matched, "matched row")
    if pruned.guard:
        return "guard", pruned.reason
    return "scan", _count(matched, "existing key") if matched else "no key matched"


def _hints(planned: Planned) -> list[str]:
    guarded = [p for p in planned.pruned if p.guard]
    if not guarded:
        return []
    groups = sum(len(p.row_groups) for p in guarded)
    missing = " and ".join(c for c in planned.shape.partitions if c not in planned.shape.keys)
    return [
        f"The keys of {_count(len(guarded), 'file')} in other partitions ({_count(groups, 'row group')}) are read only "
        f"to make sure that no key moves. Adding {missing} to the key columns would spare this."
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
