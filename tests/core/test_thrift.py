"""Footers, read and written back byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.rewrite import thrift
from fsspeckit.core.rewrite.graft import Graft, footer_bytes

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
    assert Graft.of(raw).apply(raw) == raw


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


def test_the_compact_protocol_as_others_write_it() -> None:
    """Field 1: i32 1 (zigzag 2); field 2, one further: "ab"; field 20, more than 15 further, written out; stop."""
    raw = bytes([0x15, 2, 0x18, 2]) + b"ab" + bytes([0x05, 40, 3, 0])
    assert thrift.decode(raw) == {1: (thrift.I32, 1), 2: (thrift.BINARY, b"ab"), 20: (thrift.I32, -2)}
    assert thrift.encode(thrift.decode(raw)) == raw
