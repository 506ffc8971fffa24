"""Drawing change feeds: deletes, sequences, duplicates, some columns, missing rows and moves, in all combinations."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from cases import BERLIN, KEYS, NAN, PARTITIONS, PAYLOADS, Case, Kind, drawn_files, moment
from hypothesis import strategies as st
from reference import Options, Row, key_of

SEQUENCES = {
    "version": Kind(pa.int64(), (-1, 0, 1, 2), (pa.int32(), pa.decimal128(12, 1))),
    "at": Kind(BERLIN, tuple(map(moment, (0, 1, 2))), (pa.timestamp("ns", "UTC"),)),
    "score": Kind(pa.float64(), (NAN, -0.0, 0.0, 1.5, float("-inf"))),
    "tag": Kind(pa.string(), ("", "a", "ab", "b", "ü"), (pa.large_string(),)),
    "price": Kind(pa.decimal128(10, 2), tuple(map(Decimal, ("-1.50", "0.00", "2.25"))), (pa.decimal128(12, 3),)),
    "on": Kind(pa.date32(), tuple(dt.date(2024, 1, d) for d in (1, 2, 3)), (pa.date64(),)),
}

# Delete columns, and the values that mean "delete".
FLAGS: dict[str, tuple[Kind, tuple[Any, ...] | None]] = {
    "bool": (Kind(pa.bool_(), (True, False, None)), None),
    "bool values": (Kind(pa.bool_(), (True, False, None)), (False,)),
    "text": (Kind(pa.string(), ("D", "U", "d", None)), ("D",)),
    "several": (Kind(pa.large_string(), ("D", "X", "", None)), ("D", "X")),
    "number": (Kind(pa.int32(), (0, 1, 2, None)), (1,)),
    "dictionary": (Kind(pa.dictionary(pa.int8(), pa.string()), ("true", "false", None)), ("true",)),
}

_COIN: Any = st.booleans()


def once_in(times: int) -> Any:
    """Hypothesis prefers small numbers, so the rare outcome is the greatest one."""
    return st.sampled_from((False,) * (times - 1) + (True,))


@st.composite
def feeds(draw: st.DrawFn) -> Case:
    """A merge with options that go together."""
    keys, payload, partitions = draw(_names())
    least = 0 if draw(once_in(3)) else 1
    sequences = draw(st.lists(st.sampled_from(sorted(SEQUENCES)), min_size=least, max_size=2, unique=True))
    kinds = {n: (KEYS | PAYLOADS | PARTITIONS | SEQUENCES)[n] for n in (*keys, *payload, *sequences, *partitions)}
    if partitions and draw(_COIN):
        keys = [*keys, partitions[0]]
    options, flag = draw(_options(payload, sequences, partitions))
    if flag is not None:
        kinds["op"] = flag
    row = st.fixed_dictionaries({n: st.sampled_from(k.values) for n, k in kinds.items()})
    some = options.update_columns or options.exclude_columns
    files = draw(drawn_files(kinds, keys, partitions, row, least=0 if not some and draw(once_in(8)) else 1))
    files = [(folder, [draw(_stored(r, sequences)) for r in rows], how) for folder, rows, how in files]
    columns = draw(_source_columns(kinds, keys, partitions, options))
    source = draw(_changes(row, keys, partitions, options, [r for _, rows, _ in files for r in rows]))
    if options.strategy == "delete" and draw(_COIN):
        kinds["unknown"], columns = Kind(pa.int64(), (1,)), [*columns, "unknown"]
    source = [{name: r.get(name, 1) for name in columns} for r in source]
    types = {n: draw(st.sampled_from((k.type, *k.also))) for n, k in kinds.items()}
    return Case(kinds, keys, partitions, files, source, types, options, "merge", [], columns)


@st.composite
def two_feeds(draw: st.DrawFn) -> tuple[Case, Case]:
    """Two whole-row upserts with a sequence that differs for each key, into a target with one row per key."""
    keys, payload, partitions = draw(_names())
    kinds = {n: (KEYS | PAYLOADS | PARTITIONS | SEQUENCES)[n] for n in (*keys, *payload, "version", *partitions)}
    options = Options(sequence_by=("version",), on_move="move" if partitions else "refuse")
    row = st.fixed_dictionaries({n: st.sampled_from(k.values) for n, k in kinds.items()})
    files: list[Any] = []
    known: set[Any] = set()
    for folder, rows, how in draw(drawn_files(kinds, keys, partitions, row, least=1)):
        new = [r for n, r in enumerate(rows) if key_of(r, keys) not in {*known, *(key_of(o, keys) for o in rows[:n])}]
        known |= {key_of(r, keys) for r in rows} - {None}
        files.append((folder, [draw(_stored(r, ["version"])) for r in new], how))
    target = [r for _, rows, _ in files for r in rows]
    first = {key_of(r, keys): r for r in draw(_changes(row, keys, partitions, options, target, nulls=False))}
    second = {key_of(r, keys): r for r in draw(_changes(row, keys, partitions, options, target, nulls=False))}
    for key in first.keys() & second.keys():
        if first[key]["version"] == second[key]["version"]:
            second[key] = {**second[key], "version": first[key]["version"] + draw(st.sampled_from((-1, 1)))}
    types = {n: draw(st.sampled_from((k.type, *k.also))) for n, k in kinds.items()}
    case = Case(kinds, keys, partitions, files, list(first.values()), types, options, "merge", [], list(kinds))
    return case, replace(case, source=list(second.values()))


@st.composite
def _names(draw: st.DrawFn) -> tuple[list[str], list[str], list[str]]:
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))
    payload = draw(st.lists(st.sampled_from(sorted(PAYLOADS)), min_size=1, max_size=3, unique=True))
    least = 0 if draw(once_in(3)) else 1
    return keys, payload, draw(st.lists(st.sampled_from(sorted(PARTITIONS)), min_size=least, max_size=2, unique=True))


@st.composite
def _options(
    draw: st.DrawFn, payload: list[str], sequences: list[str], partitions: list[str]
) -> tuple[Options, Kind | None]:
    """Options that are allowed together, and the kind of the delete column."""
    strategy = draw(st.sampled_from(("upsert", "upsert", "update", "upsert", "delete", "insert")))
    by = tuple(draw(st.permutations(sequences))) if sequences else None
    latest = by is not None and draw(_COIN)
    if strategy in ("insert", "delete"):
        ordered = by if strategy == "delete" or latest else None
        return Options(strategy, sequence_by=ordered, on_duplicates="latest" if latest else "refuse"), None
    name = draw(st.sampled_from((None, *FLAGS)))
    flag, values = (None, None) if name is None else FLAGS[name]
    some = tuple(draw(st.lists(st.sampled_from(payload), min_size=1, unique=True)))
    how = draw(st.sampled_from(("whole", "update", "whole", "exclude")))
    scopes = ("all", "partitions") if partitions else ("all",)
    options = Options(
        strategy,
        delete_column=None if flag is None else "op",
        delete_values=values,
        sequence_by=by,
        on_duplicates="latest" if latest else "refuse",
        update_columns=some if how == "update" else None,
        exclude_columns=some if how == "exclude" else None,
        delete_missing=draw(st.sampled_from(scopes)) if draw(once_in(4)) else None,
        on_move="move" if how == "whole" and partitions and not draw(once_in(3)) else "refuse",
    )
    return options, flag


@st.composite
def _stored(draw: st.DrawFn, row: Row, sequences: list[str]) -> Row:
    """A row of the target: without a delete flag, and sometimes with a null sequence."""
    nulls = {name: None for name in sequences if draw(once_in(6))}
    return {name: value for name, value in {**row, **nulls}.items() if name != "op"}


@st.composite
def _source_columns(
    draw: st.DrawFn, kinds: dict[str, Kind], keys: list[str], partitions: list[str], options: Options
) -> list[str]:
    """All columns; without some of those that nobody asks for, if the options allow that."""
    free: list[str] = []
    sequence = options.sequence_by or ()
    if options.strategy == "delete":
        free = [n for n in kinds if n not in (*keys, *sequence)]
    elif options.exclude_columns is not None:
        free = [n for n in options.exclude_columns if n not in sequence]
    elif options.update_columns is not None:
        free = [n for n in kinds if n not in (*keys, *partitions, *sequence, *options.update_columns, "op")]
        if options.delete_missing != "partitions" and draw(once_in(4)):
            free += [p for p in partitions if p not in keys]
    away = draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    if options.update_columns is not None and set(away) & set(partitions):
        away = list({*away, *(p for p in partitions if p not in keys)})
    return [n for n in kinds if n not in away]


@st.composite
def _changes(
    draw: st.DrawFn,
    row: Any,
    keys: list[str],
    partitions: list[str],
    options: Options,
    target: list[Row],
    nulls: bool = True,
) -> list[Row]:
    """Rows with keys of the target and new ones; mostly in the partition of their key, and mostly one per key."""
    rows: dict[Any, Row] = {}
    homes = {key_of(r, keys): {p: r[p] for p in partitions if p not in keys} for r in target}
    for drawn in draw(st.lists(row, min_size=0 if draw(once_in(10)) else 4, max_size=8)):
        chosen = dict(drawn)
        if target and not draw(once_in(3)):
            existing = draw(st.sampled_from(target))
            chosen |= {k: existing[k] for k in keys}
            if draw(once_in(4)):
                chosen |= {k: v for k, v in existing.items() if v is not None}
        key = key_of(chosen, keys)
        if key in homes and not draw(once_in(2 if options.on_move == "move" else 12)):
            chosen |= homes[key]
        if key is not None:
            rows[key] = chosen
    source = list(rows.values())
    several = options.on_duplicates == "latest" or options.strategy == "delete"
    for again in draw(st.lists(st.sampled_from(source), max_size=3)) if source else []:
        if several or (nulls and draw(once_in(40))):
            other = {k: v for k, v in draw(row).items() if k not in (*keys, *partitions)}
            source.append({**again, **draw(st.sampled_from((other, {}, _part_of(other, options))))})
    if nulls and source and draw(once_in(25)):
        source[0] = {**source[0], draw(st.sampled_from((*keys, *(options.sequence_by or ())))): None}
    return draw(st.permutations(source))


def _part_of(row: Row, options: Options) -> Row:
    """The delete flag and the sequence of a row."""
    return {name: row[name] for name in ("op", *(options.sequence_by or ())) if name in row}
