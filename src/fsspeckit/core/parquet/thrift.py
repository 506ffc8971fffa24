"""Thrift's compact protocol: decode a Parquet footer, and encode it again byte for byte.

A struct is a dict of field id to `(wire type, value)`, a list is `(element type, values)`, a map is
`(key type, value type, pairs)`. With the wire types kept, fields of future format versions survive. Other bytes are a
`CorruptFile`.

The column chunks of a footer repeat each other. A value with the same bytes as the last one of its field is not decoded
again but is the same object, so nothing within a struct may be changed in place. `decode_whole` also keeps the bytes of
lists and structs for `encode`. A footer of 200 columns takes two thirds of the time so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS, _BOOLEANS = frozenset((I32, I64)), frozenset((TRUE, FALSE))

Struct = dict[int, tuple[int, Any]]

# Every footer has hundreds of numbers of one byte. Shared tuples spare Python's garbage collector.
_SMALL = {wire_type: [(wire_type, (byte >> 1) ^ -(byte & 1)) for byte in range(0x80)] for wire_type in _INTEGERS}

_NOTHING = (-1, b"", None)


class _Seen(dict[int, tuple[int, bytes, Any]]):
    """By field id: the wire type, bytes and value of the last list or struct; `keep` if values keep their bytes."""

    keep = False


_MAX_DEPTH = 64


class RawStruct(Struct):
    """A struct that keeps its bytes. Only copies of it can be changed, and these have no bytes."""

    __slots__ = ("raw",)

    def __init__(self, fields: Struct, raw: bytes) -> None:
        super().__init__(fields)
        self.raw = raw

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("Change a copy: this struct is written as the bytes that it was read from")

    __setitem__ = __delitem__ = __ior__ = pop = popitem = setdefault = update = clear = _refuse


class RawList(tuple[int, list[Any]]):
    """A list that keeps its bytes. Its values must not be changed."""

    raw: bytes


class CorruptFile(ValueError):
    """A file with damaged bytes, or with parts that contradict each other."""


def decode(data: bytes, at: int = 0, after: int = 0) -> Struct:
    """Decode the struct at a position, or its rest after the field with the id `after`."""
    try:
        return _read_struct(data, at, _MAX_DEPTH, _Seen(), after)[0]
    except IndexError:
        raise CorruptFile("its footer is cut off") from None


def decode_whole(data: bytes) -> Struct:
    """Decode a struct that takes up all of the bytes. Lists and structs in it keep their bytes.

    Other readers ignore the element types of lists. Where one is wrong they read on, and this would end early.
    """
    seen = _Seen()
    seen.keep = True
    with contextlib.suppress(IndexError):
        fields, end = _read_struct(data, 0, _MAX_DEPTH, seen)
        if end == len(data):
            return fields
    raise CorruptFile("its footer does not end where it should")


def decode_at(data: bytes, at: int) -> tuple[Struct, int] | None:
    """The struct at a position, and where it ends; `None` if the bytes end before it does."""
    try:
        return _read_struct(data, at, _MAX_DEPTH, _Seen())
    except IndexError:
        return None


def numbers_at(data: bytes, at: int) -> tuple[dict[int, Any], int] | None:
    """The 32-bit integers and booleans in a struct by field id, and where it ends. Structs in it have minus their id.

    Faster than `decode_at`: a file has thousands of page headers. `None` if the bytes end before the struct does.
    """
    try:
        return _read_numbers(data, at, _MAX_DEPTH)
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
            number, at = number_at(data, at)
            if number < 1:  # minus a number is where a struct stands
                raise CorruptFile(f"a struct has field {number}")
        wire_type = header & 0x0F
        if wire_type == I32:
            value = data[at]
            at += 1
            if value >= 0x80:
                value, at = _read_varint(data, at - 1)
            fields[number] = (value >> 1) ^ -(value & 1)
        elif wire_type == STRUCT and depth:
            fields[-number], at = _read_numbers(data, at, depth - 1)
        elif wire_type in _BOOLEANS:
            fields[number] = wire_type == TRUE
        elif wire_type == BINARY:
            size, at = _read_varint(data, at)
            at += size
        else:
            _, at = _read_value(data, at, wire_type, depth, _Seen())
    return fields, at + 1


def end_of_field(data: bytes, number: int) -> int:
    """Where a field of the struct at the beginning of the bytes ends."""
    at = last = 0
    try:
        while header := data[at]:
            last, at = (last + (header >> 4), at + 1) if header >> 4 else number_at(data, at + 1)
            wire_type = header & 0x0F
            at = at if wire_type in (TRUE, FALSE) else _read_value(data, at, wire_type, _MAX_DEPTH, _Seen())[1]
            if last == number:
                return at
    except IndexError:
        raise CorruptFile("its footer is cut off") from None
    raise CorruptFile(f"its footer has no field {number}")


def list_at(data: bytes, at: int) -> tuple[int, int, int]:
    """The element type of a list, the number of its elements, and where the first one begins."""
    header = data[at]
    count, at = (header >> 4, at + 1) if header >> 4 < 15 else _read_varint(data, at + 1)
    return header & 0x0F, count, at


def list_header(wire_type: int, count: int) -> bytes:
    """The bytes before the elements of a list."""
    out = bytearray()
    if count < 15:
        out.append(count << 4 | wire_type)
    else:
        out.append(0xF0 | wire_type)
        _write_varint(out, count)
    return bytes(out)


def encode(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def field(struct: Struct, number: int, wire_type: int, default: Any = None) -> Any:
    """The value of a field, which must have this wire type. Only a field that may be missing has a default."""
    if default is not None and number not in struct:
        return default
    actual_type, value = struct.get(number, (None, None))
    if actual_type != wire_type:
        raise CorruptFile(f"field {number} of its footer is not of wire type {wire_type}")
    return value


def structs(struct: Struct, number: int) -> list[Struct]:
    """The elements of a list of structs."""
    wire_type, values = field(struct, number, LIST)
    if values and wire_type != STRUCT:
        raise CorruptFile(f"field {number} of its footer is not a list of structs")
    return list(values)


def struct_list(values: Sequence[Struct]) -> tuple[int, Any]:
    """The field that holds a list of structs."""
    return LIST, (STRUCT, values)


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
    raise CorruptFile("its footer has a number of more than 64 bits")


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """The integer at a position, and where it ends."""
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _read_bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size > len(data) - at:
        raise IndexError
    return data[at : at + size], at + size


def _read_struct(data: bytes, at: int, depth: int, seen: _Seen, number: int = 0) -> tuple[Struct, int]:
    """Common types are decoded inline: a call for each value took twice as long."""
    fields: Struct = {}
    small = _SMALL
    while header := data[at]:
        at += 1
        wire_type = header & 0x0F
        if header > 0x0F:
            number += header >> 4
        else:
            number, at = number_at(data, at)
        if number in fields:
            raise CorruptFile(f"its footer has field {number} twice")
        if wire_type in _INTEGERS:
            value: Any = data[at]
            at += 1
            if value > 0x7F:
                value, at = _read_varint(data, at - 1)
                fields[number] = wire_type, (value >> 1) ^ -(value & 1)
            else:
                fields[number] = small[wire_type][value]
        elif wire_type == BINARY:
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = _read_varint(data, at - 1)
            value = data[at : at + size]
            if len(value) < size:
                raise IndexError
            at += size
            fields[number] = wire_type, value
        elif wire_type in _BOOLEANS:
            fields[number] = wire_type, None
        else:
            before, raw, value = seen.get(number, _NOTHING)
            if before == wire_type and data.startswith(raw, at):
                at += len(raw)
            else:
                begin = at
                value, at = _read_value(data, at, wire_type, depth, seen)
                raw = data[begin:at]
                if seen.keep:
                    value = _with_bytes(wire_type, value, raw)
                seen[number] = wire_type, raw, value
            fields[number] = wire_type, value
    return fields, at + 1


def _with_bytes(wire_type: int, value: Any, raw: bytes) -> Any:
    if wire_type == STRUCT:
        return RawStruct(value, raw)
    if wire_type == LIST:
        value = RawList(value)
        value.raw = raw
    return value


def _read_value(data: bytes, at: int, wire_type: int, depth: int, seen: _Seen) -> tuple[Any, int]:
    """A value outside of a field header; a boolean takes a byte of its own."""
    if wire_type in _INTEGERS or wire_type == I16:
        return number_at(data, at)
    if wire_type == BINARY:
        size, at = _read_varint(data, at)
        return _read_bytes(data, at, size)
    if wire_type in (TRUE, FALSE, BYTE):
        return _read_bytes(data, at, 1)
    if wire_type == DOUBLE:
        return _read_bytes(data, at, 8)
    if depth == 0:
        raise CorruptFile(f"its footer is nested more than {_MAX_DEPTH} deep")
    if wire_type == STRUCT:
        return _read_struct(data, at, depth - 1, seen)
    if wire_type in (LIST, SET):
        return _read_list(data, at, depth - 1, seen)
    if wire_type == MAP:
        return _read_map(data, at, depth - 1, seen)
    raise CorruptFile(f"its footer has wire type {wire_type}, which does not exist")


def _read_list(data: bytes, at: int, depth: int, seen: _Seen) -> tuple[tuple[int, list[Any]], int]:
    wire_type, count, at = list_at(data, at)
    values = []
    read = _read_struct if wire_type == STRUCT and depth else None
    for _ in range(count):
        value, at = read(data, at, depth - 1, seen) if read else _read_value(data, at, wire_type, depth, seen)
        values.append(value)
    return (wire_type, values), at


def _read_map(data: bytes, at: int, depth: int, seen: _Seen) -> tuple[tuple[int, int, list[tuple[Any, Any]]], int]:
    count, at = _read_varint(data, at)
    if count == 0:
        return (0, 0, []), at
    types = data[at]
    at += 1
    pairs = []
    for _ in range(count):
        key, at = _read_value(data, at, types >> 4, depth, seen)
        value, at = _read_value(data, at, types & 0x0F, depth, seen)
        pairs.append((key, value))
    return (types >> 4, types & 0x0F, pairs), at


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number in sorted(struct):
        wire_type, value = struct[number]
        step = number - last
        last = number
        if 0 < step < 16:
            out.append(step << 4 | wire_type)
        else:
            out.append(wire_type)
            _write_zigzag(out, number)
        if wire_type in _INTEGERS:
            value = value << 1 if value >= 0 else (-value << 1) - 1
            while value > 0x7F:
                out.append(value & 0x7F | 0x80)
                value >>= 7
            out.append(value)
        elif wire_type == BINARY:
            _write_varint(out, len(value))
            out += value
        elif isinstance(value, RawStruct | RawList):
            out += value.raw
        elif wire_type not in _BOOLEANS:
            _write_value(out, wire_type, value)
    out.append(0)


def _write_value(out: bytearray, wire_type: int, value: Any) -> None:
    if wire_type in _INTEGERS or wire_type == I16:
        _write_zigzag(out, value)
    elif wire_type == BINARY:
        _write_varint(out, len(value))
        out += value
    elif wire_type == STRUCT:
        _write_struct(out, value)
    elif wire_type in (LIST, SET):
        element, values = value
        _write_list(out, element, values)
    elif wire_type == MAP:
        key_type, value_type, pairs = value
        _write_map(out, key_type, value_type, pairs)
    else:
        out += value


def _write_list(out: bytearray, wire_type: int, values: list[Any]) -> None:
    out += list_header(wire_type, len(values))
    for value in values:
        _write_value(out, wire_type, value)


def _write_map(out: bytearray, key_type: int, value_type: int, pairs: list[tuple[Any, Any]]) -> None:
    _write_varint(out, len(pairs))
    if pairs:
        out.append(key_type << 4 | value_type)
    for key, value in pairs:
        _write_value(out, key_type, key)
        _write_value(out, value_type, value)
