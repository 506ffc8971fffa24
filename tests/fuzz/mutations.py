"""Ways to break a file. Most of them strike where structure lies: the footer and the headers of pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift

_NUMBERS = (0, 1, -1, 2, 3, 5, 7, 8, 15, 16, 100, 127, 128, 255, 1 << 15, 1 << 31, -(1 << 31), (1 << 31) - 1, 1 << 40)
_BYTES = (0x00, 0x01, 0x0B, 0x0C, 0x0D, 0x0E, 0x15, 0x18, 0x19, 0x7F, 0x80, 0xC3, 0xFF)


class Dice(Random):
    """Random numbers, where the pages of the file begin, and how often each region is struck."""

    headers: tuple[int, ...] = ()
    regions: tuple[int, ...] = (60, 25, 2, 13)


def mutate(raw: bytes, random: Dice) -> bytes:
    """One to three changes; the same of the same random numbers."""
    changed, random.headers = raw, _headers(raw)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        changed = random.choices(_WAYS, _WEIGHTS)[0](changed or b"\0", random)
    return changed


def _footer(raw: bytes) -> tuple[int, int]:
    """Where the footer begins and ends, as far as the file says so itself."""
    length = int.from_bytes(raw[-8:-4], "little")
    end = max(0, len(raw) - 8)
    return (end - length, end) if 0 < length <= end else (max(0, end - 400), end)


@cache
def _headers(raw: bytes) -> tuple[int, ...]:
    """Where pages begin in a healthy file."""
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    chunks = [group.column(c) for group in groups for c in range(group.num_columns)]
    return tuple(s for c in chunks for s in (c.dictionary_page_offset, c.data_page_offset) if s is not None)


def _place(raw: bytes, random: Dice) -> int:
    """A byte: of the footer, of a page's header, of the last eight, or any."""
    begin, end = _footer(raw)
    region = random.choices(("footer", "header", "tail", "any"), random.regions)[0]
    if region == "header":
        return min(len(raw) - 1, random.choice(random.headers) + random.randrange(40))
    if region == "tail":
        return len(raw) - 1 - random.randrange(min(8, len(raw)))
    return random.randrange(begin, end) if region == "footer" and begin < end else random.randrange(len(raw))


def _flip_bit(raw: bytes, random: Dice) -> bytes:
    at = _place(raw, random)
    return raw[:at] + bytes([raw[at] ^ (1 << random.randrange(8))]) + raw[at + 1 :]


def _set_byte(raw: bytes, random: Dice) -> bytes:
    at = _place(raw, random)
    value = random.choice(_BYTES) if random.random() < 0.5 else random.randrange(256)
    return raw[:at] + bytes([value]) + raw[at + 1 :]


def _truncate(raw: bytes, random: Dice) -> bytes:
    return raw[: random.randrange(len(raw))] if random.random() < 0.5 else raw[: -random.randint(1, 12)] or b"\0"


def _insert(raw: bytes, random: Dice) -> bytes:
    at = _place(raw, random)
    return raw[:at] + random.randbytes(random.randint(1, 8)) + raw[at:]


def _remove(raw: bytes, random: Dice) -> bytes:
    at = _place(raw, random)
    return raw[:at] + raw[at + random.randint(1, 8) :] or b"\0"


def _swap(raw: bytes, random: Dice) -> bytes:
    size = random.choice((1, 4, 16, 64))
    a, b = sorted((_place(raw, random), _place(raw, random)))
    if a + size > b or b + size > len(raw):
        return raw
    return raw[:a] + raw[b : b + size] + raw[a + size : b] + raw[a : a + size] + raw[b + size :]


def _zero(raw: bytes, random: Dice) -> bytes:
    at, size = _place(raw, random), random.choice((1, 4, 16, 512))
    return raw[:at] + bytes(len(raw[at : at + size])) + raw[at + size :]


def _footer_length(raw: bytes, random: Dice) -> bytes:
    length = int.from_bytes(raw[-8:-4], "little")
    other = random.choice((length + random.randint(-9, 9), 0, 1, len(raw), len(raw) + 1, 2**31, 2**32 - 1, length // 2))
    return raw[:-8] + (other % 2**32).to_bytes(4, "little") + raw[-4:]


def _restructure(raw: bytes, random: Dice) -> bytes:
    """A footer that is well formed and says something else: another number, type or name, one entry more or less."""
    begin, end = _footer(raw)
    try:
        footer = thrift.decode(raw[begin:end])
        places = list(_values(footer))
        _change(random.choice(places), random)
        written = thrift.encode(footer)
    except (ValueError, IndexError, KeyError, TypeError):  # an earlier change broke it
        return _flip_bit(raw, random)
    return raw[:begin] + written + len(written).to_bytes(4, "little") + raw[-4:]


def _values(value: Any) -> Any:
    """Every field of every struct and every element of every list, with what holds it."""
    if isinstance(value, dict):
        for number, (_, inner) in value.items():
            yield value, number
            yield from _values(inner)
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):
        for index, inner in enumerate(value[1]):
            yield value[1], index
            yield from _values(inner)


def _change(place: tuple[Any, Any], random: Dice) -> None:
    holder, at = place
    kind, value = holder[at] if isinstance(holder, dict) else (None, holder[at])
    if random.random() < 0.2:
        _drop_or_double(holder, at, random)
    elif isinstance(value, int):
        new = random.choice(_NUMBERS) if random.random() < 0.6 else value + random.choice((-2, -1, 1, 2))
        holder[at] = (kind, new) if isinstance(holder, dict) else new
    elif isinstance(value, bytes):
        other = _other_bytes(value, random)
        holder[at] = (kind, other) if isinstance(holder, dict) else other
    else:
        _drop_or_double(holder, at, random)


def _other_bytes(value: bytes, random: Dice) -> bytes:
    choices = (b"", value + b"x", value[:-1], b"\xff" + value[1:], bytes(len(value)), b"\xff" * len(value), value * 3)
    return random.choice(choices) if random.random() < 0.7 else random.randbytes(len(value))


def _drop_or_double(holder: Any, at: Any, random: Dice) -> None:
    if isinstance(holder, dict):
        other = random.choice(list(holder))
        holder[at] = holder[other]
        if random.random() < 0.5:
            del holder[at]
    elif random.random() < 0.5:
        holder.insert(at, holder[random.randrange(len(holder))])
    else:
        del holder[at]


def _describe(raw: bytes, random: Dice) -> bytes:
    """A footer that says something else of its values: statistics, indexes, sizes, or a key-value entry."""
    begin, end = _footer(raw)
    try:
        footer = thrift.decode(raw[begin:end])
        if random.random() < 0.25:
            _change_entry(footer, random)
        else:
            groups = footer[4][1][1]
            _change_description(random.choice(random.choice(groups)[1][1][1]), random)
        written = thrift.encode(footer)
    except (ValueError, IndexError, KeyError, TypeError):  # an earlier change broke it, or there is no such thing
        return _flip_bit(raw, random)
    return raw[:begin] + written + len(written).to_bytes(4, "little") + raw[-4:]


def _change_entry(footer: Any, random: Dice) -> None:
    """Another key or value of one of the file's entries, or an entry that says what readers act upon."""
    entries = footer[5][1][1] if 5 in footer else []
    if not entries or random.random() < 0.3:
        value = random.choice((b"", b"{}", b"x", b"null", b"\xff"))
        entries.append({1: (thrift.BINARY, random.choice(_ENTRIES)), 2: (thrift.BINARY, value)})
        footer[5] = thrift.LIST, (thrift.STRUCT, entries)
    else:
        entry = random.choice(entries)
        at = random.choice(list(entry))
        entry[at] = entry[at][0], _other_bytes(entry[at][1], random)


def _change_description(chunk: Any, random: Dice) -> None:
    """Of a column chunk: its bounds contradict each other, counts are beyond its rows, an index lies elsewhere."""
    metadata = chunk[3][1]
    statistics = metadata[12][1]
    way = random.choice(("swap", "swap", "count", "count", "length", "exact", "index", "size"))
    if way == "swap":
        statistics[5], statistics[6] = statistics[6], statistics[5]
    elif way == "count":
        values = metadata[5][1]
        statistics[random.choice((3, 3, 4, 9))] = thrift.I64, random.choice((values + 1, -1, 1 << 40, -(1 << 40)))
    elif way == "length":
        at = random.choice((5, 6))
        statistics[at] = thrift.BINARY, random.choice((b"", statistics[at][1][:-1], statistics[at][1] + b"\0"))
    elif way == "exact":
        statistics[random.choice((7, 8))] = random.choice(((thrift.TRUE, True), (thrift.FALSE, False)))
    elif way == "index":
        at = random.choice([number for number in (4, 5, 6, 7) if number in chunk])
        chunk[at] = chunk[at][0], random.choice(_NUMBERS)
    else:
        _change(random.choice(list(_values(metadata[16][1]))), random)


_ENTRIES = (b"ARROW:schema", b"pandas", b"geo", b"org.apache.spark.sql.parquet.row.metadata", b"fsspeckit.stream.app")

_WEIGHTED: dict[Callable[[bytes, Dice], bytes], int] = {
    _flip_bit: 30,
    _set_byte: 25,
    _restructure: 25,
    _describe: 25,
    _truncate: 3,
    _insert: 4,
    _remove: 4,
    _swap: 3,
    _zero: 3,
    _footer_length: 2,
}
_WAYS, _WEIGHTS = list(_WEIGHTED), list(_WEIGHTED.values())
