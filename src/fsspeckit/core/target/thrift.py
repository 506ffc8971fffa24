"""Thrift's compact protocol, generically: enough to read a Parquet footer and write it back byte for byte.

A struct is a dict of field id to `(wire type, value)`, a list is `(element type, values)`, a map is
`(key type, value type, pairs)`. Keeping wire types makes the round trip exact without knowing Parquet's definitions,
so fields of a future format version survive too. What is no such struct is `Damaged`.

The chunks of a footer say much the same. What stands there again byte for byte is not read again, but is the same
object, so nothing within a struct may be changed in place; and what is the same object is not written again either. A
footer of 200 columns takes two thirds of the time for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_NUMBERS, _TRUTHS = frozenset((I32, I64)), frozenset((TRUE, FALSE))

Struct = dict[int, tuple[int, Any]]

# Numbers of one byte are in every footer by the hundred: they are not made anew, for Python's collector to look at.
_SMALL = {kind: [(kind, (byte >> 1) ^ -(byte & 1)) for byte in range(0x80)] for kind in _NUMBERS}

_NOTHING = (-1, b"", None)


class _Seen(dict[int, tuple[int, bytes, Any]]):
    """By number of field: the wire type, bytes and value of what was last read; and the bytes of all that was."""

    def __init__(self, before: dict[int, tuple[int, bytes, Any]] | None = None) -> None:
        super().__init__(before or {})
        self.all: _Written = {}


# The schema and the orders of columns, which are the same in most footers of a data set: as they were in the last one.
_ALIKE = {2, 7}
_last: dict[int, tuple[int, bytes, Any]] = {}

_Written = dict[int, bytes]
"""By `id` of a value: its bytes."""

_DEEPEST = 64


class Whole(Struct):
    """A struct that remembers the bytes of what was read in it, for `encode`."""

    def __init__(self, fields: Struct, written: _Written) -> None:
        super().__init__(fields)
        self.written = written


class Damaged(ValueError):
    """Bytes that are not what they should be, or contradict each other."""


def decode(data: bytes, at: int = 0, after: int = 0) -> Struct:
    """Read the struct that begins at a position, or the rest of one after the field of a number."""
    try:
        return _read_struct(data, at, _DEEPEST, _Seen(), after)[0]
    except IndexError:
        raise Damaged("its footer is cut off") from None


def decode_whole(data: bytes) -> Whole:
    """Read the struct that the bytes are, from the first to the last.

    Other readers do not look at the types that lists name: where one is wrong, they read on and this would end early.
    """
    before = dict(_last)
    seen = _Seen(before)
    with contextlib.suppress(IndexError):
        fields, end = _read_struct(data, 0, _DEEPEST, seen)
        if end == len(data):
            for number in _ALIKE & fields.keys():
                kind, value = fields[number]
                _, raw, known = before.get(number, _NOTHING)
                if known is value:
                    seen.all[id(value)] = raw  # of values that live as long as this struct, and of no others
                elif id(value) in seen.all:
                    _last[number] = kind, seen.all[id(value)], value
            return Whole(fields, seen.all)
    raise Damaged("its footer does not end where it should")


def decode_at(data: bytes, at: int) -> tuple[Struct, int] | None:
    """The struct that begins at a position, and where it ends; `None` if the bytes end before it does."""
    try:
        return _read_struct(data, at, _DEEPEST, _Seen())
    except IndexError:
        return None


def numbers_at(data: bytes, at: int) -> tuple[dict[int, Any], int] | None:
    """The whole numbers (of 32 bits) and truths in a struct, and where it ends; structs in it stand under minus their
    number.

    Quicker than `decode_at`, for headers of pages, of which a file has thousands. `None` if the bytes end before.
    """
    try:
        return _read_numbers(data, at, _DEEPEST)
    except IndexError:
        return None


def _read_numbers(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while header := data[at]:
        at += 1
        if header >> 4:
            number += header >> 4
        else:
            number, at = _read_zigzag(data, at)
            if number < 1:  # minus a number is where a struct stands
                raise Damaged(f"a struct has field {number}")
        kind = header & 0x0F
        if kind == I32:
            value = data[at]
            at += 1
            if value >= 0x80:
                value, at = _read_varint(data, at - 1)
            fields[number] = (value >> 1) ^ -(value & 1)
        elif kind == STRUCT and depth:
            fields[-number], at = _read_numbers(data, at, depth - 1)
        elif kind in _TRUTHS:
            fields[number] = kind == TRUE
        elif kind == BINARY:
            size, at = _read_varint(data, at)
            at += size
        else:
            _, at = _read_value(data, at, kind, depth, _Seen())
    return fields, at + 1


def of_numbers(fields: Mapping[int, Any]) -> bytes:
    """The bytes of a struct as `numbers_at` gives it."""
    out = bytearray()
    last = 0
    for number in sorted(fields, key=abs):
        value = fields[number]
        if number < 0:
            kind, number = STRUCT, -number
        else:
            kind = (TRUE if value else FALSE) if isinstance(value, bool) else I32
        if number - last < 16:
            out.append(number - last << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        last = number
        if kind == I32:
            _write_zigzag(out, value)
        elif kind == STRUCT:
            out += of_numbers(value)
    out.append(0)
    return bytes(out)


def end_of_field(data: bytes, number: int) -> int:
    """Where a field of the struct that begins the bytes ends."""
    at = last = 0
    try:
        while header := data[at]:
            last, at = (last + (header >> 4), at + 1) if header >> 4 else _read_zigzag(data, at + 1)
            kind = header & 0x0F
            at = at if kind in (TRUE, FALSE) else _read_value(data, at, kind, _DEEPEST, _Seen())[1]
            if last == number:
                return at
    except IndexError:
        raise Damaged("its footer is cut off") from None
    raise Damaged(f"its footer has no field {number}")


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A whole number, and where it ends."""
    return _read_zigzag(data, at)


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """A number that cannot be negative, and where it ends."""
    return _read_varint(data, at)


def list_at(data: bytes, at: int) -> tuple[int, int, int]:
    """Of which type the elements of a list are, how many, and where the first one begins."""
    header = data[at]
    count, at = (header >> 4, at + 1) if header >> 4 < 15 else _read_varint(data, at + 1)
    return header & 0x0F, count, at


def list_header(kind: int, count: int) -> bytes:
    """What stands before the elements of a list."""
    out = bytearray()
    if count < 15:
        out.append(count << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _write_varint(out, count)
    return bytes(out)


def encode(struct: Struct, of: Whole | None = None) -> bytes:
    """The bytes of a struct. Values that it shares with another one, which still is as it was read, are not written
    again."""
    out = bytearray()
    _write_struct(out, struct, {} if of is None else dict(of.written))
    return bytes(out)


def field(struct: Struct, number: int, kind: int) -> Any:
    """The value of a field that has to be there, of the wire type that it has to have."""
    found, value = struct.get(number, (None, None))
    if found != kind:
        raise Damaged(f"field {number} of its footer is not of wire type {kind}")
    return value


def structs(struct: Struct, number: int) -> list[Struct]:
    """The elements of a list of structs."""
    kind, values = field(struct, number, LIST)
    if values and kind != STRUCT:
        raise Damaged(f"field {number} of its footer is not a list of structs")
    return list(values)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    result, at = data[at], at + 1
    if result < 0x80:
        return result, at
    result, shift = result & 0x7F, 7
    while shift <= 63:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return result | byte << shift, at
        result |= (byte & 0x7F) << shift
        shift += 7
    raise Damaged("its footer has a number of more than 64 bits")


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _read_bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size > len(data) - at:
        raise IndexError
    return data[at : at + size], at + size


def _read_struct(data: bytes, at: int, depth: int, seen: _Seen, number: int = 0) -> tuple[Struct, int]:
    """Spelled out where footers have thousands of something: a call for each took twice as long."""
    fields: Struct = {}
    small = _SMALL
    while header := data[at]:
        at += 1
        kind = header & 0x0F
        if header > 0x0F:
            number += header >> 4
        else:
            number, at = _read_zigzag(data, at)
        if number in fields:
            raise Damaged(f"its footer has field {number} twice")
        if kind in _NUMBERS:
            value: Any = data[at]
            at += 1
            if value > 0x7F:
                value, at = _read_varint(data, at - 1)
                fields[number] = kind, (value >> 1) ^ -(value & 1)
            else:
                fields[number] = small[kind][value]
        elif kind == BINARY:
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _read_varint(data, at - 1)
            value = data[at : at + size]
            if len(value) < size:
                raise IndexError
            at += size
            fields[number] = kind, value
        elif kind in _TRUTHS:
            fields[number] = kind, None
        else:
            before, raw, value = seen.get(number, _NOTHING)
            if before == kind and data.startswith(raw, at):
                at += len(raw)
            else:
                begin = at
                value, at = _read_value(data, at, kind, depth, seen)
                raw = data[begin:at]
                seen[number] = kind, raw, value
                seen.all[id(value)] = raw
            fields[number] = kind, value
    return fields, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int, seen: _Seen) -> tuple[Any, int]:
    """A value that stands alone, so that a boolean takes a byte of its own."""
    if kind in _NUMBERS or kind == I16:
        return _read_zigzag(data, at)
    if kind == BINARY:
        size, at = _read_varint(data, at)
        return _read_bytes(data, at, size)
    if kind in (TRUE, FALSE, BYTE):
        return _read_bytes(data, at, 1)
    if kind == DOUBLE:
        return _read_bytes(data, at, 8)
    if depth == 0:
        raise Damaged(f"its footer is nested more than {_DEEPEST} deep")
    if kind == STRUCT:
        return _read_struct(data, at, depth - 1, seen)
    if kind in (LIST, SET):
        return _read_list(data, at, depth - 1, seen)
    if kind == MAP:
        return _read_map(data, at, depth - 1, seen)
    raise Damaged(f"its footer has wire type {kind}, which does not exist")


def _read_list(data: bytes, at: int, depth: int, seen: _Seen) -> tuple[tuple[int, list[Any]], int]:
    kind, count, at = list_at(data, at)
    values = []
    read = _read_struct if kind == STRUCT and depth else None
    for _ in range(count):
        value, at = read(data, at, depth - 1, seen) if read else _read_value(data, at, kind, depth, seen)
        values.append(value)
    return (kind, values), at


def _read_map(data: bytes, at: int, depth: int, seen: _Seen) -> tuple[tuple[int, int, list[tuple[Any, Any]]], int]:
    count, at = _read_varint(data, at)
    if count == 0:
        return (0, 0, []), at
    kinds = data[at]
    at += 1
    pairs = []
    for _ in range(count):
        key, at = _read_value(data, at, kinds >> 4, depth, seen)
        value, at = _read_value(data, at, kinds & 0x0F, depth, seen)
        pairs.append((key, value))
    return (kinds >> 4, kinds & 0x0F, pairs), at


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, struct: Struct, written: _Written) -> None:
    last = 0
    for number in sorted(struct):
        kind, value = struct[number]
        step = number - last
        last = number
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        if kind in _NUMBERS:
            value = value << 1 if value >= 0 else (-value << 1) - 1
            while value > 0x7F:
                out.append(value & 0x7F | 0x80)
                value >>= 7
            out.append(value)
        elif kind == BINARY:
            _write_varint(out, len(value))
            out += value
        elif kind not in _TRUTHS:
            same = written.get(id(value))
            if same is not None:
                out += same
            else:
                begin = len(out)
                _write_value(out, kind, value, written)
                written[id(value)] = bytes(out[begin:])
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any, written: _Written) -> None:
    if kind in _NUMBERS or kind == I16:
        _write_zigzag(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value, written)
    elif kind in (LIST, SET):
        element, values = value
        _write_list(out, element, values, written)
    elif kind == MAP:
        of_keys, of_values, pairs = value
        _write_map(out, of_keys, of_values, pairs, written)
    else:
        out += value


def _write_list(out: bytearray, kind: int, values: list[Any], written: _Written) -> None:
    out += list_header(kind, len(values))
    for value in values:
        _write_value(out, kind, value, written)


def _write_map(out: bytearray, key_kind: int, value_kind: int, pairs: list[tuple[Any, Any]], written: _Written) -> None:
    _write_varint(out, len(pairs))
    if pairs:
        out.append(key_kind << 4 | value_kind)
    for key, value in pairs:
        _write_value(out, key_kind, key, written)
        _write_value(out, value_kind, value, written)
