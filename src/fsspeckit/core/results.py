"""Results and plans, as callers get them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fsspeckit.core.actions import MatchedRows
from fsspeckit.core.commit.session import CommitNote
from fsspeckit.core.dataset.ledger import file_to_copy, with_batch
from fsspeckit.core.dataset.target import files_of_other_types
from fsspeckit.core.execution_plan import ExecutionPlan, Request
from fsspeckit.core.key_map import map_of_plan
from fsspeckit.core.layout_hints import layout_hints
from fsspeckit.core.match.prune import Pruned
from fsspeckit.core.model import FileInfo, Footer, Rewritten, Shape, Staged, Target
from fsspeckit.core.report_text import count
from fsspeckit.core.reports import Action, FilePlan, MergeFileMetadata, MergePlan, MergeResult, WritePlan, WriteResult
from fsspeckit.core.rewrite.compare import Comparison
from fsspeckit.core.storage import Location
from fsspeckit.core.values.evolve import added_paths
from fsspeckit.core.write_plan import PlannedWrite


def entry(location: Location, staged: Staged, operation: Literal["rewritten", "inserted"]) -> MergeFileMetadata:
    return MergeFileMetadata(location.show(staged.path), staged.rows, operation, staged.size)


def result(
    location: Location,
    planned: ExecutionPlan,
    rewritten: Sequence[Rewritten],
    inserted: Sequence[Staged],
    removed: Sequence[FileInfo],
) -> MergeResult:
    """The result of a merge: exact counts, and every file of the data set after it."""
    counts, before = planned.counts, planned.target.rows
    replaced = {f.path for f in removed} | {r.path for r in rewritten if r.staged}
    files = [entry(location, s, "rewritten") for r in rewritten for s in r.staged]
    files += [entry(location, s, "inserted") for s in inserted]
    files += _preserved(location, planned.target, replaced)
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
        spliced_files=sum(r.spliced for r in rewritten),
        reencoded_files=sum(bool(r.staged) and not r.spliced for r in rewritten),
        retyped_files=[location.show(s.path) for r in rewritten if r.keeps_rows and planned.retyped for s in r.staged],
        retyped_columns=_retyped_columns(planned) if written else {},
        added_columns=_added_columns(planned) if written else {},
        skipped=counts.skipped,
        moved=counts.moved,
        changed=None if planned.request.actions.replaces_target else sum(r.changed for r in rewritten) + counts.moved,
    )


def _retyped_columns(planned: ExecutionPlan) -> dict[str, str]:
    """Columns that change their type, and the type that they have in all files afterwards."""
    retyped = planned.retyped.difference(planned.new_columns)
    return {name: str(planned.shape.schema.field(name).type) for name in sorted(retyped)}


def _added_columns(planned: ExecutionPlan) -> dict[str, str]:
    evolves = planned.new_columns or planned.extended
    return added_columns(planned.target, planned.shape) if evolves else {}


def added_columns(target: Target, shape: Shape) -> dict[str, str]:
    """New columns of the data set, and new struct fields as `column.field`, with their types."""
    added = {name: str(shape.schema.field(name).type) for name in shape.added}
    for name in sorted(shape.extended):
        assert target.schema is not None
        fields = added_paths(target.schema.field(name).type, shape.schema.field(name).type, name)
        added |= {path: str(dtype) for path, dtype in fields}
    return added


def _preserved(location: Location, target: Target, replaced: set[str]) -> list[MergeFileMetadata]:
    kept = [(f, rows) for f, rows in zip(target.files.infos, target.files.rows, strict=True) if f.path not in replaced]
    return [MergeFileMetadata(location.show(f.path), rows, "preserved", f.size) for f, rows in kept]


def written(
    location: Location,
    mode: str,
    inserted: Sequence[Staged],
    retyped: Sequence[Rewritten],
    removed: Sequence[FileInfo],
    planned: PlannedWrite,
) -> WriteResult:
    """The result of a plain write."""
    rewritten = [entry(location, s, "rewritten") for r in retyped for s in r.staged]
    return WriteResult(
        mode,
        sum(s.rows for s in inserted),
        [*rewritten, *(entry(location, s, "inserted") for s in inserted)],
        [location.show(f.path) for f in removed],
        [f.path for f in rewritten],
        planned.removed_rows,
        write_columns(planned),
    )


def write_columns(planned: PlannedWrite) -> dict[str, str]:
    """New columns of the data set, if the write has rows."""
    return added_columns(planned.target, planned.shape) if planned.spool.rows else {}


def describe_write(location: Location, mode: str, planned: PlannedWrite, new_rows: Mapping[str, int]) -> WritePlan:
    """The plan of a plain write."""
    removed = {info.path for info in planned.removed}
    folders = {posixpath.dirname(info.path) for info in planned.infos}
    kept = {posixpath.dirname(info.path) for info in planned.infos if info.path not in removed}
    return WritePlan(
        mode=mode,
        rows=planned.spool.rows,
        removed_rows=planned.removed_rows,
        removed_files=tuple(location.show(info.path) for info in planned.removed),
        retyped_files=tuple(location.show(footer.path) for footer in planned.rewritten),
        new_rows=new_rows,
        new_partitions=tuple(sorted(new_rows.keys() - folders - {""})),
        emptied_partitions=tuple(sorted(folders - kept - new_rows.keys() - {""})),
        added_columns=write_columns(planned),
    )


def note(result: MergeResult | WriteResult) -> CommitNote:
    """What the record of an undoable commit says."""
    if isinstance(result, WriteResult):
        return CommitNote(result.mode, {"rows": result.rows})
    names = ("inserted", "updated", "deleted", "target_count_before", "target_count_after")
    return CommitNote(result.strategy, {name: getattr(result, name) for name in names})


def unchanged(location: Location, target: Target, request: Request) -> MergeResult:
    """The result of a batch that was committed before."""
    files = _preserved(location, target, set())
    kept = [f.path for f in files]
    rows = target.rows
    strategy = request.strategy.value
    return MergeResult(strategy, 0, rows, rows, 0, 0, 0, files, preserved_files=kept, changed=0, replayed=True)


@dataclass(frozen=True)
class _Written:
    """The files of the target that a merge writes anew: those with `changed` rows, those `brought_along` without one,
    and one that is `copied` for the records of streams."""

    changed: Sequence[Footer]
    brought_along: Sequence[Footer]
    copied: Footer | None

    @classmethod
    def of(cls, planned: ExecutionPlan, compared: Mapping[str, Comparison] | None) -> _Written:
        """If rows were `compared`, without files whose rows are equal. They may be brought along all the same."""
        if compared is None:
            return cls(planned.touched, planned.brought_along, planned.copied)
        changed = [f for f in planned.touched if f.path not in compared or compared[f.path].rewritten]
        new_rows = planned.counts.new_rows
        if not (changed or new_rows or planned.evolves_all):
            return cls([], [], None)
        paths = {footer.path for footer in changed}
        others = files_of_other_types(planned.target, planned.shape, planned.retyped, planned.added_to_all)
        brought_along = [footer for footer in others if footer.path not in paths]
        if not changed or new_rows or brought_along or paths - planned.emptied:
            return cls(changed, brought_along, None)
        left = [footer for footer in planned.target.files if footer.path not in paths]
        return cls(changed, [], file_to_copy(left, with_batch(planned.target.ledger, planned.request.batch)))

    @property
    def files(self) -> dict[str, Footer]:
        copied = [] if self.copied is None else [self.copied]
        return {footer.path: footer for footer in [*self.changed, *self.brought_along, *copied]}


def describe(
    location: Location,
    planned: ExecutionPlan,
    new_rows: Mapping[str, int],
    compared: Mapping[str, Comparison] | None = None,
) -> MergePlan:
    """The plan of a merge: exact counts, and for every file what would happen and why."""
    counts, written = planned.counts, _Written.of(planned, compared)
    brought_along, touched = written.brought_along, written.files
    copied_files = [] if written.copied is None else [written.copied]
    copied = sum(_copied(planned, footer) for footer in [*written.changed, *copied_files])
    folders = {posixpath.dirname(info.path) for info in planned.target.files.infos}
    types_change = compared is None or bool(touched) or counts.inserted > 0
    return MergePlan(
        strategy=planned.request.strategy.value,
        key_columns=planned.shape.keys,
        partition_columns=planned.shape.partitions,
        source_count=planned.source_rows,
        target_count_before=planned.target.rows,
        inserted=counts.inserted,
        updated=counts.updated,
        deleted=counts.deleted,
        files=tuple(_file_plans(location, planned, written, compared)),
        hints=(
            *(_type_hints(planned, brought_along) if types_change else ()),
            *_hints(planned),
            *layout_hints(location.shown, planned),
        ),
        bytes_copied=copied,
        bytes_encoded=sum(footer.info.size for footer in touched.values()) - copied,
        retyped_columns=_retyped_columns(planned) if types_change else {},
        added_columns=_added_columns(planned) if types_change else {},
        skipped=counts.skipped,
        moved=counts.moved,
        changed=None if compared is None else sum(c.changed for c in compared.values()) + counts.moved,
        new_rows=new_rows,
        new_partitions=tuple(sorted(set(new_rows) - folders - {""})),
        emptied_partitions=tuple(sorted(planned.emptied_partitions.difference(new_rows))),
        key_map=map_of_plan(location, planned),
    )


def _copied(planned: ExecutionPlan, footer: Footer) -> int:
    """An estimate of the bytes in row groups without a matched row: footers have uncompressed sizes only."""
    if planned.request.rewrite_mode == "full":
        return 0
    hit = planned.match.groups.get(footer.path, {})
    unmatched = sum(group.bytes for number, group in enumerate(footer.row_groups) if number not in hit)
    return footer.info.size * unmatched // max(1, sum(group.bytes for group in footer.row_groups))


def _file_plans(
    location: Location, planned: ExecutionPlan, written: _Written, compared: Mapping[str, Comparison] | None
) -> Iterator[FilePlan]:
    files, folder, touched = planned.target.files, location.show(""), written.files
    changed_files = {footer.path for footer in written.changed}
    columns = zip(files.infos, planned.pruned, files.rows, files.group_counts, strict=True)
    for number, (info, pruned, rows, groups) in enumerate(columns):
        action: Action = "prune"
        reason, scanned, matched, all_deleted = pruned.reason, len(pruned.row_groups), MatchedRows(), 0
        if scanned or info.path in touched:
            matched = planned.match.rows_in(info.path)
            all_deleted = matched.deleted + sum(planned.missing_rows(number).values())
            action, reason = _action(pruned, matched, all_deleted, info.path in touched, planned)
            if compared is not None and info.path in compared and info.path not in changed_files:
                equal = f"{count(matched.updated, 'matched row')}, equal already"
                reason = f"{equal}; {_reason_to_retype(planned)}" if info.path in touched else equal
            elif compared is not None and info.path in compared and compared[info.path].changed < matched.updated:
                reason = f"{reason}, {compared[info.path].changed:,} with other values"
        yield FilePlan(
            folder + info.path,
            action,
            reason,
            rows,
            info.size,
            groups,
            scanned,
            matched.total,
            matched.updated,
            all_deleted,
            matched.skipped,
            None if compared is None else compared[info.path].changed if info.path in compared else 0,
        )


def _action(
    pruned: Pruned, matched: MatchedRows, deleted: int, touched: bool, planned: ExecutionPlan
) -> tuple[Action, str]:
    """The action for a file that was scanned or is rewritten, and the reason."""
    counts = [(matched.updated, "updated"), (deleted, "deleted"), (matched.skipped, "skipped")]
    summary = ", ".join(f"{number:,} {word}" for number, word in counts if number)
    if planned.request.actions.replaces_target:
        return "rewrite", "all files are replaced"
    if touched and not (matched.updated or deleted) and planned.request.rewrite_mode == "incremental":
        if planned.copied is not None:
            return "rewrite", "keeps the record of a stream"
        return "rewrite", _reason_to_retype(planned)
    if touched:
        return "rewrite", summary if deleted or matched.skipped else count(matched.total, "matched row")
    if matched.skipped:
        return "scan", summary
    if pruned.guard:
        return "guard", pruned.reason
    return "scan", count(matched.total, "existing key") if matched.total else "no key matched"


def _reason_to_retype(planned: ExecutionPlan) -> str:
    """Why a file without a changed row is rewritten."""
    added, retyped = [*planned.added_to_all, *planned.extended], _retyped_columns(planned)
    parts = [f"gets {' and '.join(dict.fromkeys(added))}"] if added else []
    if common := [name for name in retyped if name not in added]:
        parts.append(f"takes the common type of {' and '.join(common)}")
    return ", ".join(parts)


def _type_hints(planned: ExecutionPlan, brought_along: Sequence[Footer]) -> Iterator[str]:
    """Columns that change their type, and files that are rewritten only for that."""
    yield from _evolution_hints(planned, brought_along)
    if planned.new_columns or planned.extended:
        return
    for name, dtype in _retyped_columns(planned).items():
        if name in planned.added:
            continue
        if name in planned.profile.columns_to_retype:
            others = " and ".join(str(own) for own in planned.shape.mixed[name])
            reason = f"The source has values of {name} that do not fit into files in which its type is {others}"
        else:
            reason = f"A file with a narrower type of {name} than others may become the first one"
        yield (
            f"{reason}. All files take {dtype}, because readers refuse files of different types. "
            f"{count(len(brought_along), 'file')} without a matched row would be rewritten for this."
        )
    if planned.added:
        yield (
            f"Some files lack {' and '.join(planned.added)}, and the first file would have them after the merge. All "
            f"files get them, because DuckDB expects the columns of the first file in all files. "
            f"{count(len(brought_along), 'file')} without a matched row would be rewritten for that."
        )


def _evolution_hints(planned: ExecutionPlan, brought_along: Sequence[Footer]) -> Iterator[str]:
    """New columns, and what readers have to know about files that do not get them."""
    added = _added_columns(planned)
    if not added:
        return
    names, size = " and ".join(added), sum(footer.info.size for footer in brought_along)
    if planned.evolves_all:
        yield (
            f"New in the data set: {names}. All files get them, since readers disagree on files with different "
            f"columns. {count(len(brought_along), 'file')} ({size:,} bytes) without a matched row would be rewritten "
            "for that."
        )
    if planned.new_columns and not planned.request.schema.all_files:
        yield (
            f"New in the data set: {' and '.join(planned.new_columns)}. Files without a changed row do not get them "
            "(evolve_files='touched'). Spark then needs mergeSchema=true, DuckDB union_by_name=true, and Polars "
            "missing_columns='insert'; PyArrow and pandas take the columns of the first file."
        )


def _hints(planned: ExecutionPlan) -> list[str]:
    guards = [p for p in planned.pruned if p.guard]
    if not guards:
        return []
    groups = sum(len(p.row_groups) for p in guards)
    missing = " and ".join(c for c in planned.shape.partitions if c not in planned.shape.keys)
    return [
        f"The keys of {count(len(guards), 'file')} in other partitions ({count(groups, 'row group')}) are read only "
        f"to make sure that no key moves. Add {missing} to the key columns to avoid this."
    ]
