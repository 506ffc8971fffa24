"""Footers, read and written back byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.parquet.footer_override import FooterOverride

DATA = Path(__file__).parent.parent / "data"
SAMPLES = sorted(str(path.relative_to(DATA)) for path in DATA.rglob("*.parquet"))


def footer_of(path: Path) -> bytes:
    with pa.OSFile(str(path), "rb") as file:
        return footer_bytes(file)


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip(name: str) -> None:
    raw = footer_of(DATA / name)
    assert thrift.encode(thrift.decode(raw)) == raw


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_decoded(name: str) -> None:
    metadata = pq.read_metadata(DATA / name)
    fields = thrift.decode(footer_of(DATA / name))
    assert fields[3] == (thrift.I64, metadata.num_rows)
    assert len(fields[4][1][1]) == metadata.num_row_groups
    assert fields[6] == (thrift.BINARY, metadata.created_by.encode())
    leaves = [element[4][1].decode() for element in fields[2][1][1] if 5 not in element]
    assert leaves == [metadata.schema.column(i).name for i in range(metadata.num_columns)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_graft_of_a_footer_onto_itself_changes_nothing(name: str) -> None:
    raw = footer_of(DATA / name)
    footer = thrift.decode_whole(raw)
    override = replace(FooterOverride.of(footer), created_by=None)  # which names us as the build of INT96 files
    assert thrift.encode(override.apply(footer)) == raw


def test_there_are_samples_of_every_writer() -> None:
    assert {name.partition("/")[0] for name in SAMPLES} == {
        "duckdb",
        "fastparquet",
        "polars",
        "pyarrow",
        "spark",
        "spark_legacy",
    }


@pytest.mark.parametrize(
    "struct",
    [
        {},
        {1: (thrift.TRUE, None), 2: (thrift.FALSE, None)},
        {1: (thrift.I32, 0), 17: (thrift.I32, -1), 40: (thrift.I16, 2**15 - 1), 1000: (thrift.I64, -(2**63))},
        {1: (thrift.I64, 2**63 - 1), 2: (thrift.BYTE, b"\xff"), 3: (thrift.DOUBLE, b"12345678")},
        {1: (thrift.BINARY, b""), 2: (thrift.BINARY, b"x" * 300)},
        {1: (thrift.LIST, (thrift.I32, [])), 2: (thrift.LIST, (thrift.I32, list(range(14))))},
        {1: (thrift.LIST, (thrift.I32, list(range(15)))), 2: (thrift.LIST, (thrift.BINARY, [b"a"] * 200))},
        {1: (thrift.LIST, (thrift.TRUE, [b"\x01", b"\x02"])), 2: (thrift.SET, (thrift.I64, [1, 2]))},
        {5: (thrift.STRUCT, {1: (thrift.STRUCT, {}), 2: (thrift.LIST, (thrift.STRUCT, [{3: (thrift.I32, 4)}]))})},
    ],
)
def test_encode_and_decode(struct: Any) -> None:
    assert thrift.decode(thrift.encode(struct)) == struct


def test_what_stands_there_again_is_the_same_and_almost_the_same_is_not() -> None:
    """Lists of which one begins like the other, fields of one number but another type, and structs within structs."""
    one, two = (thrift.LIST, (thrift.I32, [1, 2])), (thrift.LIST, (thrift.I32, [1, 2, 3]))
    chunks = [
        {2: one, 3: (thrift.STRUCT, {2: two, 4: (thrift.I32, number)}), 5: second}
        for number, second in enumerate([one, one, two, (thrift.SET, one[1]), (thrift.I32, 1), one])
    ]
    struct = {4: (thrift.LIST, (thrift.STRUCT, chunks)), 5: one}
    decoded = thrift.decode(thrift.encode(struct))
    assert decoded == struct
    first, second = thrift.structs(decoded, 4)[:2]
    assert first[5][1] is second[5][1]
    assert thrift.encode(decoded) == thrift.encode(struct)


def test_the_compact_protocol_as_others_write_it() -> None:
    """Field 1: i32 1 (zigzag 2); field 2, one further: "ab"; field 20, more than 15 further, written out; stop."""
    raw = bytes([0x15, 2, 0x18, 2]) + b"ab" + bytes([0x05, 40, 3, 0])
    assert thrift.decode(raw) == {1: (thrift.I32, 1), 2: (thrift.BINARY, b"ab"), 20: (thrift.I32, -2)}
    assert thrift.encode(thrift.decode(raw)) == raw


def test_maps_survive() -> None:
    struct = {
        1: (thrift.MAP, (0, 0, [])),
        2: (thrift.MAP, (thrift.BINARY, thrift.I32, [(b"a", 1), (b"b", -2)])),
        3: (thrift.MAP, (thrift.I64, thrift.TRUE, [(7, b"\x01")])),
        4: (thrift.LIST, (thrift.MAP, [(thrift.I32, thrift.STRUCT, [(1, {1: (thrift.I32, 2)})])])),
    }
    assert thrift.decode(thrift.encode(struct)) == struct


def test_a_map_as_others_write_it() -> None:
    """Field 1: a map of one pair, of text and i32: "a" is 3 (zigzag 6); stop. Then one of no pairs: no types either."""
    assert thrift.decode(bytes([0x1B, 1, 0x85, 1, 97, 6, 0])) == {
        1: (thrift.MAP, (thrift.BINARY, thrift.I32, [(b"a", 3)]))
    }
    assert thrift.decode(bytes([0x1B, 0, 0])) == {1: (thrift.MAP, (0, 0, []))}


def test_a_list_of_another_type_than_it_says() -> None:
    """One bit of a footer, which PyArrow reads all the same: written back, it would be shorter."""
    good = thrift.encode({7: (thrift.LIST, (thrift.STRUCT, [{1: (thrift.STRUCT, {})}] * 20))})
    assert thrift.decode_whole(good) == thrift.decode(good)
    bad = good.replace(b"\x79\xfc", b"\x79\xf4", 1)
    assert len(thrift.encode(thrift.decode(bad))) < len(bad)
    for raw in (bad, good + b"\0", good[:-1]):
        with pytest.raises(thrift.CorruptFile, match="does not end where it should"):
            thrift.decode_whole(raw)


@pytest.mark.parametrize(
    "raw, problem",
    [
        (b"", "cut off"),
        (b"\x15", "cut off"),
        (b"\x15\x02", "cut off"),
        (b"\x18\x05ab\x00", "cut off"),
        (b"\x17\x00\x00", "cut off"),
        (b"\x13", "cut off"),
        (b"\x19\xf1" + b"\xff" * 8 + b"\x7f", "cut off"),
        (b"\x19\xf3" + b"\xff" * 8 + b"\x7f", "cut off"),
        (b"\x1b\xff\xff\xff\x7f\x33", "cut off"),
        (b"\x16" + b"\x80" * 11 + b"\x01\x00", "64 bits"),
        (b"\x10\x00\x00", "wire type 0"),
        (b"\x1d\x00\x00", "wire type 13"),
        (b"\x1e\x00\x00", "wire type 14"),
        (b"\x1f\x00\x00", "wire type 15"),
        (b"\x19\x20\x00\x00\x00", "wire type 0"),
        (b"\x1b\x01\x0d\x00\x00", "wire type 0"),
        (b"\x15\x02\x05\x02\x04\x00", "field 1 twice"),
        (b"\x1c" * 100_000, "nested"),
        (b"\x19\x19" * 100_000, "nested"),
        (b"\x1b" + b"\x01\x8b\x00" * 100_000, "nested"),
    ],
)
def test_what_is_no_struct_is_refused_at_once(raw: bytes, problem: str) -> None:
    with pytest.raises(thrift.CorruptFile, match=problem):
        thrift.decode(raw)


@pytest.mark.parametrize(
    "footer",
    [
        {},
        {2: (thrift.I32, 1)},
        {2: (thrift.LIST, (thrift.I32, [1]))},
        {2: (thrift.LIST, (thrift.STRUCT, []))},
        {2: (thrift.LIST, (thrift.STRUCT, [{4: (thrift.BINARY, b"root"), 5: (thrift.I32, 2)}]))},
        {2: (thrift.LIST, (thrift.STRUCT, [{5: (thrift.I32, 1)}, {1: (thrift.I32, 1)}]))},
        {2: (thrift.LIST, (thrift.STRUCT, [{5: (thrift.I32, 1)}, {4: (thrift.I32, 1)}]))},
        {2: (thrift.LIST, (thrift.STRUCT, [{5: (thrift.I32, 1), 4: (thrift.BINARY, b"x")}] * 1000))},
        {2: (thrift.LIST, (thrift.STRUCT, [{}])), 5: (thrift.I32, 1)},
        {2: (thrift.LIST, (thrift.STRUCT, [{}])), 5: (thrift.LIST, (thrift.STRUCT, [{2: (thrift.BINARY, b"v")}]))},
    ],
)
def test_a_graft_of_what_is_no_footer_is_refused(footer: Any) -> None:
    with pytest.raises(thrift.CorruptFile):
        FooterOverride.of(thrift.decode(thrift.encode(footer)))


def test_numbers_of_a_struct_as_a_full_decode_gives_them() -> None:
    header: thrift.Struct = {
        1: (thrift.I32, 0),
        2: (thrift.I32, 1 << 20),
        3: (thrift.I32, -7),
        4: (thrift.I64, 5),
        5: (
            thrift.STRUCT,
            {1: (thrift.I32, 300), 2: (thrift.TRUE, None), 60: (thrift.I32, 9), 61: (thrift.BINARY, b"xy")},
        ),
        7: (thrift.LIST, (thrift.I32, [1, 2, 3])),
        9: (thrift.I32, 64),
    }
    raw = thrift.encode(header)
    numbers = {1: 0, 2: 1 << 20, 3: -7, -5: {1: 300, 2: True, 60: 9}, 9: 64}
    assert thrift.numbers_at(b"??" + raw + b"more", 2) == (numbers, 2 + len(raw))
    assert thrift.decode_at(b"??" + raw + b"more", 2) == (header, 2 + len(raw))
    for end in range(len(raw)):
        assert thrift.numbers_at(raw[:end], 0) is None
        assert thrift.decode_at(raw[:end], 0) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_kept_bytes_and_values_agree(name: str) -> None:
    """A footer is written the same from the bytes that it keeps, from its values, and with one chunk changed."""
    raw = footer_of(DATA / name)
    kept, plain = thrift.decode_whole(raw), thrift.decode(raw)
    assert kept == plain
    assert thrift.encode(kept) == raw

    def changed(footer: thrift.Struct) -> thrift.Struct:
        groups = thrift.structs(footer, 4)
        chunks = thrift.structs(groups[0], 1)
        metadata = {**chunks[-1][3][1], 9: (thrift.I64, 1 << 40)}
        chunks[-1] = {**chunks[-1], 3: (thrift.STRUCT, metadata)}
        groups[0] = {**groups[0], 1: (thrift.LIST, (thrift.STRUCT, chunks))}
        return {**footer, 4: (thrift.LIST, (thrift.STRUCT, groups))}

    assert thrift.encode(changed(kept)) == thrift.encode(changed(plain)) != raw
    assert thrift.decode(thrift.encode(changed(kept))) == changed(plain)
    assert thrift.encode(kept) == raw


def test_a_struct_that_keeps_its_bytes_cannot_be_changed() -> None:
    """Else it would be written as it was. A copy can be."""
    raw = thrift.encode({1: (thrift.STRUCT, {2: (thrift.I32, 3)})})
    struct = thrift.decode_whole(raw)[1][1]
    for change in (
        lambda: struct.update({2: (thrift.I32, 4)}),
        lambda: struct.pop(2),
        lambda: struct.__setitem__(2, (thrift.I32, 4)),
        lambda: struct.__delitem__(2),
        lambda: struct.__ior__({2: (thrift.I32, 4)}),
    ):
        with pytest.raises(TypeError, match="Change a copy"):
            change()
    assert thrift.encode({1: (thrift.STRUCT, {**struct, 2: (thrift.I32, 4)})}) != raw
    assert thrift.encode({1: (thrift.STRUCT, struct)}) == raw


def test_a_negative_field_is_not_taken_for_a_struct() -> None:
    """Where `numbers_at` puts field 5 if it is a struct, a byte of damage could put a number."""
    struct = thrift.encode({1: (thrift.I32, 0)})[:-1]
    minus_five = bytes([thrift.TRUE, 9])  # the long form: a wire type, and the number of the field
    with pytest.raises(thrift.CorruptFile):
        thrift.numbers_at(struct + minus_five + b"\0", 0)
