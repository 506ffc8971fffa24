"""What a merge means, in plain Python: the model that every engine is compared with."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]
COUNTS = ("inserted", "updated", "deleted", "skipped", "moved", "changed")


@dataclass(frozen=True)
class Options:
    """The options of a merge that decide about rows, with the defaults of `merge`."""

    strategy: str = "upsert"
    delete_column: str | None = None
    delete_values: tuple[Any, ...] | None = None
    sequence_by: tuple[str, ...] | None = None
    on_duplicates: str = "refuse"
    update_columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] | None = None
    delete_missing: str | None = None
    on_move: str = "refuse"

    def arguments(self) -> dict[str, Any]:
        """The arguments of `merge` that are not the defaults, without the strategy."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        given.pop("strategy", None)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


@dataclass(frozen=True)
class Refused:
    """The merge is refused for one of these reasons: `null key`, `null sequence`, `duplicates`, `move`,
    `no row to keep` (of `delete_missing`), `no partition` (of a row to insert)."""

    reasons: frozenset[str]


@dataclass(frozen=True)
class Merged:
    """The rows of each old file, the rows of new files, the counts, and the numbers of old files that change."""

    kept: list[list[Row]]
    new: list[Row]
    counts: Counter[str]
    touched: frozenset[int]

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.kept for row in rows] + self.new


def key_of(row: Row, keys: list[str]) -> Key | None:
    """A row's key as a value that equals itself; `None` if part of it is null, which matches nothing."""
    values = tuple(row[k] for k in keys)
    if any(v is None for v in values):
        return None
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in values)


def merge(
    files: list[list[Row]], source: list[Row], keys: list[str], partitions: list[str], options: Options
) -> Merged | Refused:
    """The outcome of a merge. Rows of the source are dicts of the columns that it has, the delete column included."""
    if options.strategy == "full_merge":
        return _full_merge(files, source, keys, partitions)
    reasons = set(_problems(source, keys, options))
    if reasons:
        return Refused(frozenset(reasons))
    rows = _one_per_key(source, keys, options)
    if rows is None:
        return Refused(frozenset({"duplicates"}))
    if options.delete_missing and all(_is_delete(row, options) for row in rows.values()):
        return Refused(frozenset({"no row to keep"}))
    return _Merge(files, rows, keys, partitions, options).run()


def _problems(source: list[Row], keys: list[str], options: Options) -> Iterator[str]:
    """Nulls are refused in every row, also in one that `latest` would drop."""
    found = [key_of(row, keys) for row in source]
    if None in found:
        yield "null key"
    if any(row[name] is None for row in source for name in options.sequence_by or ()):
        yield "null sequence"
    several = len(set(found) - {None}) < len([key for key in found if key is not None])
    if several and options.on_duplicates == "refuse" and options.strategy != "delete":
        yield "duplicates"


def _is_delete(row: Row, options: Options) -> bool:
    if options.strategy == "delete":
        return True
    if options.delete_column is None:
        return False
    return row[options.delete_column] in (options.delete_values or (True,))


def sequence_of(row: Row, options: Options) -> tuple[Any, ...]:
    """Comparable: null is least, NaN is greatest. Without `sequence_by` all rows are equally new."""
    return tuple(_rank(row[name]) for name in options.sequence_by or ())


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _one_per_key(source: list[Row], keys: list[str], options: Options) -> dict[Key, Row] | None:
    """The greatest row of each key; `None` if different rows tie for it."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in source:
        key = key_of(row, keys)
        assert key is not None
        groups[key].append(row)
    best = {key: max(rows, key=lambda row: sequence_of(row, options)) for key, rows in groups.items()}
    for key, rows in groups.items():
        ties = [row for row in rows if sequence_of(row, options) == sequence_of(best[key], options)]
        if len({_identity(row, options) for row in ties}) > 1:
            return None
    return best


def _identity(row: Row, options: Options) -> str:
    """Deletes of one key and sequence are identical; other rows are if their stored values are."""
    return "delete" if _is_delete(row, options) else shown(row, {options.delete_column})


def shown(row: Row, without: Collection[Any] = ()) -> str:
    """A row as a value that equals itself; -0.0 is not 0.0."""
    return repr(sorted((name, value) for name, value in row.items() if name not in without))


class _Merge:
    """One merge, target row by target row."""

    def __init__(
        self, files: list[list[Row]], rows: dict[Key, Row], keys: list[str], partitions: list[str], options: Options
    ) -> None:
        self.files, self.rows, self.keys, self.partitions, self.options = files, rows, keys, partitions, options
        self.source_columns = set(next(iter(rows.values()))) if rows else set()
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self.hits: dict[Key, Counter[str]] = defaultdict(Counter)
        upserts = [row for row in rows.values() if not _is_delete(row, options)]
        self.scope = {self.partition(row) for row in upserts} if options.delete_missing == "partitions" else None

    def partition(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(p) for p in self.partitions)

    def run(self) -> Merged | Refused:
        actions = [[self.action(row) for row in rows] for rows in self.files]
        kept, touched = [], set()
        for number, (rows, found) in enumerate(zip(self.files, actions, strict=True)):
            kept.append([self.updated(row) if a == "update" else row for row, a in zip(rows, found) if a in _STAY])
            if not {*found} <= {"keep", "skip", "skip elsewhere"}:
                touched.add(number)
        moved = [key for key, hits in self.hits.items() if hits["move"] and not hits["update"] + hits["skip"]]
        if self.options.on_move == "refuse" and any(hits["move"] for hits in self.hits.values()):
            return Refused(frozenset({"move"}))
        added = [key for key, row in self.rows.items() if key not in self.hits and self.inserts(row)]
        if added and not self.source_columns >= set(self.partitions):
            return Refused(frozenset({"no partition"}))
        done = Counter(action for found in actions for action in found)
        self.counts["inserted"], self.counts["moved"] = len(added), len(moved)
        self.counts["updated"] = done["update"] + len(moved)
        self.counts["changed"] += len(moved)
        self.counts["deleted"] = done["delete"] + done["missing"] + done["move"] - len(moved)
        self.counts["skipped"] = done["skip"] + done["skip elsewhere"]
        return Merged(kept, [self.stored(self.rows[key]) for key in added + moved], self.counts, frozenset(touched))

    def action(self, old: Row) -> str:
        """What happens to a row of the target; hits are noted by key."""
        key, options = key_of(old, self.keys), self.options
        new = None if key is None else self.rows.get(key)
        if key is None or new is None:
            in_scope = options.delete_missing and (self.scope is None or self.partition(old) in self.scope)
            return "missing" if in_scope else "keep"
        elsewhere = any(new[p] != old[p] for p in self.partitions if p in self.source_columns)
        if options.strategy == "insert":
            found = "keep"
        elif sequence_of(new, options) < sequence_of(old, options):
            found = "skip elsewhere" if elsewhere and not _is_delete(new, options) else "skip"
        elif _is_delete(new, options):
            found = "delete"
        else:
            found = "move" if elsewhere else "update"
        self.hits[key][found] += 1
        return found

    def updated(self, old: Row) -> Row:
        key = key_of(old, self.keys)
        assert key is not None
        new, taken = self.rows[key], self.source_columns - {self.options.delete_column}
        if self.options.update_columns is not None:
            taken = {*self.options.update_columns, *(self.options.sequence_by or ())}
        elif self.options.exclude_columns is not None:
            taken = taken - {*self.options.exclude_columns, *self.keys} | {*(self.options.sequence_by or ())}
        row = {**old, **{name: new[name] for name in taken if name in old}}
        self.counts["changed"] += shown(row) != shown(old)
        return row

    def inserts(self, row: Row) -> bool:
        return self.options.strategy in ("insert", "upsert", "deduplicate") and not _is_delete(row, self.options)

    def stored(self, row: Row) -> Row:
        """A new row. Columns of the target that the source does not have are left out: they are null."""
        return {name: value for name, value in row.items() if name != self.options.delete_column}


_STAY = ("keep", "skip", "skip elsewhere", "update")


def _full_merge(files: list[list[Row]], source: list[Row], keys: list[str], partitions: list[str]) -> Merged | Refused:
    """The source replaces the target; what was there beyond it counts as deleted."""
    target = [row for rows in files for row in rows]
    new = {key_of(row, keys): row for row in source}
    pairs = [(row, new[key_of(row, keys)]) for row in target if key_of(row, keys) in new]
    if any(old[p] != row[p] for old, row in pairs for p in partitions):
        return Refused(frozenset({"move"}))
    matched = {key_of(old, keys) for old, _ in pairs}
    counts = Counter(inserted=len(source) - len(matched), updated=len(matched), deleted=len(target) - len(matched))
    return Merged([[] for _ in files], list(source), counts, frozenset(range(len(files))))
