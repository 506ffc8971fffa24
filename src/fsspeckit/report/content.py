"""What a report's page says, the same for every kind of report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fsspeckit.core.reports import (
    CompactPlan,
    CompactResult,
    FilePlan,
    KeyMap,
    MergeFileMetadata,
    MergePlan,
    MergeResult,
    WritePlan,
    WriteResult,
)
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
    count,
    counts,
    headline,
    plan_groups,
    result_groups,
    retyped,
    size,
    still_kept,
    write_counts,
    written,
)

PageReport = MergePlan | MergeResult | WritePlan | WriteResult | CompactPlan | CompactResult | Inspection


@dataclass(frozen=True)
class Record:
    """How a report was made, as far as the report does not say it itself: the page is a record of it."""

    command: str = ""
    engine: str = ""
    started: datetime | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PageFile:
    """One file. `action` is the value in JSON; `changes` are numbers of rows with a word each."""

    path: str
    action: str
    rows: int | None = None
    bytes: int | None = None
    reason: str = ""
    changes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class PageTable:
    """A small table below a heading; the columns `numeric` are aligned to the right."""

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()


@dataclass(frozen=True)
class Content:
    """`state` says whether anything was changed. `tiles` are the large numbers: their name in JSON, word and text."""

    state: str
    title: str
    sentence: str
    tiles: tuple[tuple[str, str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notices: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    written: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    places: tuple[tuple[str, str, str], ...] = ()
    tables: tuple[PageTable, ...] = ()
    files: tuple[PageFile, ...] = ()
    key_map: KeyMap | None = None


TOP = "top folder of the data set"
PLANNED = "Plan – nothing has been changed"
DONE = "Done"
SEEN = "Data set as it is"


def content_of(report: PageReport, target: str) -> Content:
    """What the page of a report says."""
    if isinstance(report, MergePlan):
        return _of_plan(report, target)
    if isinstance(report, MergeResult):
        return _of_result(report, target)
    if isinstance(report, (WritePlan, WriteResult)):
        return _of_write(report, target)
    if isinstance(report, Inspection):
        return _of_inspection(report)
    return _of_compaction(report, target)


def _of_plan(plan: MergePlan, target: str) -> Content:
    groups = tuple(group for group in plan_groups(plan) if group.files)
    return Content(
        state=PLANNED,
        title=headline(plan, target),
        sentence=counts(plan),
        tiles=_tiles(plan),
        facts=(*_facts("key", plan.key_columns), ("partitions", ", ".join(plan.partition_columns) or "none")),
        notices=(*_new_target(plan.creates_target, "would be created"), *_columns(plan), *plan.hints),
        groups=groups,
        written=written(groups),
        places=_places(plan),
        files=tuple(
            PageFile(
                f.path,
                f.action,
                f.rows,
                f.bytes,
                _reason(f),
                (("updated", f.updated_rows), ("deleted", f.deleted_rows), ("skipped", f.skipped_rows)),
            )
            for f in plan.files
        ),
        key_map=plan.key_map,
    )


def _places(plan: MergePlan | WritePlan) -> tuple[tuple[str, str, str], ...]:
    """The folders that get new rows or lose their last file: their name, the rows, and a note."""
    new = set(plan.new_partitions)
    gain = [(f or TOP, count(n, "new row"), "new partition" if f in new else "") for f, n in plan.new_rows.items()]
    return (*gain, *((folder, "", "loses its last file") for folder in plan.emptied_partitions))


def _reason(file: FilePlan) -> str:
    changed = getattr(file, "changed_rows", None)
    parts = [file.reason]
    if changed is not None and changed != file.updated_rows:
        parts.append(f"{count(changed)} with other values")
    if file.scanned_row_groups:
        parts.append(f"{count(file.scanned_row_groups)} of {count(file.row_groups, 'row group')} read")
    return "; ".join(parts)


def _columns(plan: MergePlan) -> list[str]:
    """New columns and types, unless a hint describes them."""
    changes = [("New columns", plan.added_columns), ("New types", plan.retyped_columns)]
    hints = " ".join(plan.hints)
    return [
        f"{title}: {', '.join(f'{name} is {dtype}' for name, dtype in columns.items())}."
        for title, columns in changes
        if columns and not all(name in hints for name in columns)
    ]


def _of_result(result: MergeResult, target: str) -> Content:
    groups = tuple(group for group in result_groups(result) if group.files)
    notices = [
        *_new_target(result.creates_target, "was created"),
        *(sentence for sentence in (retyped(result), still_kept(result)) if sentence),
    ]
    if result.replayed:
        notices.append("This batch was committed before; nothing was done.")
    elif result.updated and not result.rewritten_files:
        notices.append("The matched rows already equal those of the source; no file was rewritten.")
    keys = result.key_map.keys if result.key_map is not None else ()
    application = (("Spark application", result.application_id),) if result.application_id else ()
    return Content(
        state=DONE,
        title=headline(result, target),
        sentence=counts(result),
        tiles=_tiles(result),
        facts=(*_facts("key", keys), *application),
        notices=tuple(notices),
        groups=groups,
        written=written(groups),
        phases=result.phases,
        files=_files(result.files, result.removed_files),
        key_map=result.key_map,
    )


def _files(files: Iterable[MergeFileMetadata], removed: Iterable[str]) -> tuple[PageFile, ...]:
    written_files = [PageFile(f.path, f.operation, f.row_count, f.size_bytes) for f in files]
    return (*written_files, *(PageFile(path, "removed") for path in removed))


def _tiles(report: MergePlan | MergeResult) -> tuple[tuple[str, str, str], ...]:
    changed, writes = getattr(report, "changed", None), report.strategy != "delete"
    removed = len(report.removed_files) if isinstance(report, MergeResult) else 0
    shown = [
        ("updated", "updated", report.updated, writes),
        ("inserted", "inserted", report.inserted, writes),
        ("deleted", "deleted", report.deleted, bool(report.deleted) or not writes),
        ("moved", "of them moved", report.moved, bool(report.moved)),
        ("skipped", "skipped as older", report.skipped, bool(report.skipped)),
        ("changed", "with other values", changed or 0, changed is not None and changed != report.updated),
        ("source_count", "in the source", report.source_count, writes or report.source_count > 0),
        ("target_count_before", "rows before", report.target_count_before, True),
        ("target_count_after", "rows after", report.target_count_after, True),
        ("removed_files", "files removed", removed, bool(removed)),
    ]
    return tuple((name, word, count(number)) for name, word, number, is_shown in shown if is_shown)


def _facts(name: str, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return ((name, ", ".join(values)),) if values else ()


def _new_target(creates: bool, verb: str) -> list[str]:
    return [f"There was no data set at this path: a new one {verb}. Check the path."] if creates else []


def _of_write(report: WritePlan | WriteResult, target: str) -> Content:
    removed = "unknown" if report.removed_rows is None else count(report.removed_rows)
    common = {
        "title": f"{report.mode} {count(report.rows, 'row')} into {target}",
        "sentence": write_counts(report),
        "tiles": (("rows", "rows written", count(report.rows)), ("removed_rows", "rows removed", removed)),
        "notices": tuple(f"New columns: {name} is {dtype}." for name, dtype in report.added_columns.items()),
    }
    if isinstance(report, WriteResult):
        files = _files(report.files, report.removed_files)
        return Content(state=DONE, **common, groups=_groups_of(files), files=files)  # type: ignore[arg-type]
    planned = [
        *(PageFile(path, "rewrite") for path in report.retyped_files),
        *(PageFile(path, "removed") for path in report.removed_files),
    ]
    return Content(state=PLANNED, **common, places=_places(report), files=tuple(planned))  # type: ignore[arg-type]


def _groups_of(files: Sequence[PageFile]) -> tuple[Group, ...]:
    names = dict.fromkeys(f.action for f in files)
    groups = []
    for name in names:
        own = [f for f in files if f.action == name]
        rows, bytes_ = (sum(n or 0 for n in column) for column in zip(*((f.rows, f.bytes) for f in own)))
        groups.append(Group(name, LABELS[name], "", len(own), rows, bytes_))
    return tuple(groups)


def _of_compaction(report: CompactPlan | CompactResult, target: str) -> Content:
    before, after = count(report.files_before), count(report.files_after)
    tiles = [
        ("files_before", "files before", before),
        ("files_after", "files after", after),
        ("rows", "rows", count(report.rows)),
    ]
    if isinstance(report, CompactResult):
        numbers = [("bytes_written", report.bytes_written), ("bytes_copied", report.bytes_copied)]
        words = {"bytes_written": "written", "bytes_copied": "of them copied without decoding"}
        tiles += [(name, words[name], size(n)) for name, n in numbers]
        files = [
            *(PageFile(path, "inserted") for path in report.new_files),
            *(PageFile(path, "removed") for path in report.removed_files),
        ]
        sizes = (
            ("size", f"{size(report.bytes_before)} → {size(report.bytes_after)}"),
            ("commits", count(report.commits)),
        )
        return Content(DONE, f"compact {target}", "No row changed.", tuple(tiles), sizes, files=tuple(files))
    tiles[1] = ("files_after", "files after, about", after)
    bins = tuple(
        (b.folder or ".", count(b.files), count(b.new_files), count(b.rows), size(b.bytes), b.reason)
        for b in report.bins[:MAX_ROWS]
    )
    heads = ("folder", "files", "new files", "rows", "size", "reason")
    caption = "One line per group of files" + (
        f", the first {count(MAX_ROWS)} of {count(len(report.bins))}" if len(report.bins) > MAX_ROWS else ""
    )
    tables = (PageTable("What is written anew", caption, heads, bins, (1, 2, 3, 4)),) if bins else ()
    facts = (("written anew", f"{size(report.bytes_to_rewrite)} of {size(report.bytes_before)}"),)
    return Content(PLANNED, f"compact {target}", "No row would change.", tuple(tiles), facts, tables=tables)


MAX_ROWS = 500


def _of_inspection(seen: Inspection) -> Content:
    overlap, columns = overlap_text(seen), tuple(column_cells(seen))
    notices = [f"Unfinished commit: {name}. Run `fsspeckit recover`." for name in seen.unfinished]
    notices += [seen.compaction] if seen.compaction else []
    if not seen.key_columns:
        notices.append("Name the key (-k COLUMN) to see where its values lie.")
    return Content(
        state=SEEN,
        title=seen.path,
        sentence=f"{count(seen.rows, 'row')} in {count(len(seen.files), 'file')} of {size(seen.bytes)}",
        tiles=(
            ("files", "files", count(len(seen.files))),
            ("rows", "rows", count(seen.rows)),
            ("bytes", "size", size(seen.bytes)),
            ("row_groups", "row groups", count(seen.row_groups)),
        ),
        facts=(
            *_facts("key", seen.key_columns),
            ("partitions", partition_text(seen)),
            *((f"range of {name}", range_text(key_range)) for name, key_range in seen.keys.items()),
            *([("files per key", overlap)] if overlap else []),
            ("codecs", codec_text(seen)),
            ("written by", writer_text(seen)),
        ),
        notices=tuple(notices),
        tables=(PageTable("Columns", count(len(columns), "column"), ("column", "type", "partition", "null"), columns),),
        files=tuple(PageFile(f.path, "file", f.rows, f.bytes, _inspected(f)) for f in seen.files),
        key_map=seen.key_map,
    )


def _inspected(file: InspectedFile) -> str:
    return f"{count(file.row_groups, 'row group')}, {', '.join(file.codecs)}"
