"""Thrift's compact protocol, generically: enough to read a Parquet footer and write it back byte for byte.

A struct is a dict of field id to `(wire type, value)`, a list is `(element type, values)`. Keeping wire types makes
the round trip exact without knowing Parquet's definitions, so fields of a future format version survive too.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, tuple[int, Any]]


def decode(data: bytes) -> Struct:
    """Read the struct at the start of `data`."""
    return _read_struct(data, 0)[0]


def encode(struct: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    fields: Struct = {}
    number = 0
    while True:
        header = data[at]
        at += 1
        if header == 0:
            return fields, at
        if header >> 4:
            number += header >> 4
        else:
            number, at = _read_zigzag(data, at)
        kind = header & 0x0F
        value, at = _read_value(data, at, kind)
        fields[number] = (kind, value)


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        return _read_zigzag(data, at)
    if kind == BINARY:
        size, at = _read_varint(data, at)
        return data[at : at + size], at + size
    if kind == STRUCT:
        return _read_struct(data, at)
    if kind in (LIST, SET):
        return _read_list(data, at)
    if kind in (TRUE, FALSE):
        return None, at
    size = {BYTE: 1, DOUBLE: 8}[kind]
    return data[at : at + size], at + size


def _read_list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    header = data[at]
    at += 1
    count, kind = header >> 4, header & 0x0F
    if count == 15:
        count, at = _read_varint(data, at)
    values = []
    for _ in range(count):
        value, at = (data[at : at + 1], at + 1) if kind in (TRUE, FALSE) else _read_value(data, at, kind)
        values.append(value)
    return (kind, values), at


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        _write_value(out, kind, value)
        last = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_zigzag(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        _write_list(out, *value)
    elif kind in (BYTE, DOUBLE):
        out += value


def _write_list(out: bytearray, kind: int, values: list[Any]) -> None:
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _write_varint(out, len(values))
    for value in values:
        if kind in (TRUE, FALSE):
            out += value
        else:
            _write_value(out, kind, value)
