"""Drawing lakes and sources: all key types, odd partition values, missing statistics, null and duplicate keys."""

from __future__ import annotations

import datetime as dt
import posixpath
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from reference import Options, Row, key_of

from damage import edit_footer
from fsspeckit.core.actions import PRESETS
from fsspeckit.core.parquet import thrift

PREFIX = "a rather long prefix that all of these strings share so that bounds are cut within it, or not " + "x" * 10
BERLIN = pa.timestamp("us", "Europe/Berlin")
NAN = float("nan")


@dataclass(frozen=True)
class Kind:
    """A column's type, the values drawn for it, and the types that a source may have it in."""

    type: pa.DataType
    values: tuple[Any, ...]
    also: tuple[pa.DataType, ...] = ()


def moment(day: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=day, microseconds=day)


KEYS = {
    "int": Kind(pa.int64(), (-5, 0, 1, 7, 2**31 - 1, -(2**31)), (pa.int32(), pa.decimal128(12, 1))),
    "text": Kind(pa.string(), (*(PREFIX + c for c in "abz"), "", "ü", "\U0001f600"), (pa.large_string(),)),
    "date": Kind(pa.date32(), tuple(dt.date(2024, 1, d) for d in (1, 2, 3, 30)), (pa.date64(),)),
    "zoned": Kind(BERLIN, tuple(map(moment, (0, 1, 2, 400))), (pa.timestamp("ns", "UTC"),)),
    "decimal": Kind(
        pa.decimal128(10, 2), tuple(map(Decimal, ("-1.50", "0.00", "2.25", "99999999.99"))), (pa.decimal128(12, 3),)
    ),
    "binary": Kind(pa.binary(), (b"", b"\x00", b"\x00\xff", b"abc", b"\xff" * 5), (pa.large_binary(),)),
    "bool": Kind(pa.bool_(), (True, False)),
    "float": Kind(pa.float64(), (NAN, -0.0, 0.0, 1.5, float("inf"), -2.0)),
    "dictionary": Kind(pa.dictionary(pa.int32(), pa.string()), ("x", "y", "zz", ""), (pa.string(),)),
}

PAYLOADS = {
    "list": Kind(pa.list_(pa.int32()), (None, [], [1, None], [2, 3])),
    "struct": Kind(
        pa.struct([("k0", pa.int64()), ("f", pa.float32())]), (None, {"k0": 1, "f": NAN}, {"k0": None, "f": 1.5})
    ),
    "map": Kind(pa.map_(pa.string(), pa.int64()), (None, [], [("a", 1)], [("a", None), ("b", 2)])),
    "uint": Kind(pa.uint32(), (None, 0, 2**32 - 1), (pa.int64(),)),
    "large": Kind(pa.large_string(), (None, "", "long " * 20), (pa.string(), pa.string_view())),
    "nanos": Kind(pa.timestamp("ns"), (None, 1, 1_700_000_000_000_000_001)),
    "money": Kind(pa.decimal128(20, 5), (None, Decimal("1.00001"), Decimal("-7.50000"))),
    "real": Kind(pa.float64(), (None, NAN, -0.0, 0.0)),
}

PARTITIONS = {
    "label": Kind(pa.string(), (None, "plain", "with space", "a/b", "x=y", "50%", "ü", "01")),
    "number": Kind(pa.int32(), (None, 1, 20, 300), (pa.int64(),)),
}

NOT_STORED = ("op", "unknown")
"""Columns of the source that no target has: the delete column, and one that only `strategy="delete"` takes."""


@dataclass
class Case:
    """A drawn merge: the lake's files, the source, and what to do with them.

    `mode` is `full` or `incremental` of `write_parquet_dataset`, or `merge`. `kinds` has the source's columns too, of
    which the target may not have all; `source_columns` are those that the source has.
    """

    kinds: dict[str, Kind]
    keys: list[str]
    partitions: list[str]
    files: list[tuple[dict[str, Any], list[Row], dict[str, Any]]]
    source: list[Row]
    source_types: dict[str, pa.DataType]
    options: Options
    mode: str
    extra: list[Row]
    source_columns: list[str]

    @property
    def target(self) -> list[Row]:
        return [row for _, rows, _ in self.files for row in rows]

    @property
    def columns(self) -> list[str]:
        """The target's columns, those of its paths included."""
        return [name for name in self.kinds if name not in NOT_STORED]

    def write(self, root: Path) -> str:
        root.mkdir(parents=True, exist_ok=True)
        stored = [c for c in self.columns if c not in self.partitions]
        for number, (partition, rows, options) in enumerate(self.files):
            folder = root / posixpath.join("", *(f"{c}={spelled(v)}" for c, v in partition.items()))
            folder.mkdir(parents=True, exist_ok=True)
            path, odd = folder / f"f{number}.parquet", options.get("odd", False)
            written = {name: value for name, value in options.items() if name != "odd"}
            pq.write_table(to_table(rows, stored, self.kinds, {}), path, **written)
            if odd:
                edit_footer(path, _add_a_field)
        return str(root)

    def source_table(self) -> pa.Table:
        return to_table(self.source + self.extra, self.source_columns, self.kinds, self.source_types)


def _add_a_field(footer: thrift.Struct) -> None:
    """As a later version of Parquet might: nobody knows what it says, so nobody copies the chunk's bytes."""
    for group in footer[4][1][1]:
        for chunk in group[1][1][1]:
            chunk[3][1][60] = thrift.I64, 4


def spelled(value: Any) -> str:
    """A folder's name as Hive writes it, spelled out here so that the code under test is not its own judge."""
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return "".join(f"%{ord(c):02X}" if c in "/=%" else c for c in str(value))


def to_table(rows: list[Row], columns: list[str], kinds: dict[str, Kind], types: dict[str, pa.DataType]) -> pa.Table:
    arrays = {}
    for name in columns:
        array = pa.array([row[name] for row in rows], kinds[name].type)
        arrays[name] = array if name not in types else _recast(array, types[name])
    return pa.table(arrays)


def _recast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(kind) and pa.types.is_integer(array.type):
        return array.cast(pa.decimal128(38, kind.scale)).cast(kind)
    return array.cast(kind)


_COIN: Any = st.booleans()


@st.composite
def cases(draw: st.DrawFn, strategies: tuple[str, ...]) -> Case:
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    payload = draw(st.lists(st.sampled_from(sorted(PAYLOADS)), min_size=1, max_size=3, unique=True))
    partitions = draw(st.lists(st.sampled_from(sorted(PARTITIONS)), max_size=2, unique=True))
    kinds = {n: (KEYS | PAYLOADS | PARTITIONS)[n] for n in (*keys, *payload, *partitions)}
    if partitions and draw(_COIN):
        keys = [*keys, partitions[0]]
    row = st.fixed_dictionaries({n: st.sampled_from(k.values) for n, k in kinds.items()})
    files = draw(drawn_files(kinds, keys, partitions, row))
    source = draw(_source(kinds, keys, partitions, row, [r for _, rows, _ in files for r in rows]))
    strategy = draw(st.sampled_from(strategies))
    actions = PRESETS[strategy]
    mode = draw(st.sampled_from(("incremental", "incremental", "full"))) if actions.incremental else "full"
    extra = draw(st.lists(st.sampled_from(source), max_size=3)) if actions.reduce_source and source else []
    types = {n: draw(st.sampled_from((k.type, *k.also))) for n, k in kinds.items()}
    return Case(kinds, keys, partitions, files, source, types, Options(strategy), mode, extra, list(kinds))


@st.composite
def updates(draw: st.DrawFn) -> Case:
    """Updates of rows that exist, most columns of which stay as they are: what is copied, and what is not?"""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))
    payload = draw(st.lists(st.sampled_from(sorted(PAYLOADS)), min_size=1, max_size=4, unique=True))
    kinds = {n: (KEYS | PAYLOADS)[n] for n in (*keys, *payload)}
    row = st.fixed_dictionaries({n: st.sampled_from(k.values) for n, k in kinds.items()})
    files = draw(drawn_files(kinds, keys, [], row, least=1))
    existing = [r for _, rows, _ in files for r in rows if key_of(r, keys) is not None]
    source = {}
    for old in draw(st.lists(st.sampled_from(existing), min_size=1, max_size=6)) if existing else []:
        changed = draw(st.lists(st.sampled_from(payload), unique=True))
        source[key_of(old, keys)] = {**old, **{n: draw(st.sampled_from(kinds[n].values)) for n in changed}}
    types = {n: draw(st.sampled_from((k.type, *k.also))) for n, k in kinds.items()}
    return Case(kinds, keys, [], files, list(source.values()), types, Options(), "incremental", [], list(kinds))


@st.composite
def drawn_files(
    draw: st.DrawFn, kinds: dict[str, Kind], keys: list[str], partitions: list[str], row: Any, least: int = 0
) -> Any:
    """A few files; keys may be null or stand twice."""
    files = []
    for _ in range(draw(st.integers(least, 4))):
        partition = {p: draw(st.sampled_from(kinds[p].values)) for p in partitions}
        rows = [{**r, **partition} for r in draw(st.lists(row, min_size=2 * least, max_size=8))]
        for r in rows:
            if draw(st.integers(0, 9)) == 0:
                r[draw(st.sampled_from(keys))] = None
        rows = [{**r, **partition} for r in rows]
        options = {
            "write_statistics": draw(st.booleans()),
            "row_group_size": draw(st.sampled_from((1, 3, 100))),
            "compression": draw(st.sampled_from(("snappy", "zstd", "none"))),
            "store_schema": draw(st.booleans()),
            "data_page_version": draw(st.sampled_from(("1.0", "2.0"))),
            "write_page_index": draw(st.booleans()),
            "odd": draw(st.integers(0, 4)) < 2,
        }
        files.append((partition, rows, options))
    return files


@st.composite
def _source(
    draw: st.DrawFn, kinds: dict[str, Kind], keys: list[str], partitions: list[str], row: Any, target: list[Row]
) -> list[Row]:
    """Rows with keys of the target and new ones, one per key; a key that exists mostly keeps its partition."""
    rows: dict[Any, Row] = {}
    homes = {key_of(r, keys): {p: r[p] for p in partitions} for r in target}
    for drawn in draw(st.lists(row, max_size=8)):
        chosen = dict(drawn)
        if target and draw(_COIN):
            existing = draw(st.sampled_from(target))
            chosen |= {k: existing[k] for k in keys}
        key = key_of(chosen, keys)
        if key is None:
            continue
        if key in homes and draw(st.integers(0, 9)):
            chosen |= {p: homes[key][p] for p in partitions if p not in keys}
        rows[key] = chosen
    return list(rows.values())
