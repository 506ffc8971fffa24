"""The numbers of the Parquet format stand in `core/parquet/format.py`, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.parquet import format as numbers
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.parquet.format import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup, SchemaElement, Type

ROOT = Path(fsspeckit.__file__).parent
FORMAT = ROOT / "core/parquet/format.py"
NAMES = {name for struct in vars(numbers).values() if isinstance(struct, type) for name in vars(struct)}
TAKE_FIELDS = {"field", "structs", "end_of_field", "get"}


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def defined(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Constants of a module that have a name of the format, as `_ROW_GROUPS = 4`."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(is_number(part) for part in ast.walk(node.value)):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and name.id.lstrip("_") in NAMES:
                        yield node.lineno, name.id


def spelled_out(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Field ids as bare numbers: `pair[1][1]`, `header[3]`, `{1: (thrift.I32, 0)}`, `field(entry, 3, STRUCT)`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Subscript) and is_number(node.slice):
            number, inner = ast.literal_eval(node.slice), node.value
            is_pair = isinstance(inner, ast.Subscript) and not isinstance(inner.value, ast.Subscript | ast.Call)
            of_call = isinstance(inner, ast.Call)
            if (number > 1 and not of_call) or (
                number == 1 and is_pair and re.search(r"\[[1-9]\d*\]$", ast.unparse(inner))
            ):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Dict) and any(key is not None and is_number(key) for key in node.keys):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKE_FIELDS:
            place = 0 if node.func.attr == "get" else 1
            if len(node.args) > place and is_number(node.args[place]):
                yield node.lineno, ast.unparse(node)


def modules() -> list[Path]:
    """Those that take a Thrift struct apart."""
    return [
        path
        for path in ROOT.rglob("*.py")
        if re.search(r"^from fsspeckit\.core\.parquet.* import .*", path.read_text(), re.MULTILINE)
        and "thrift" in path.read_text()
        and path != FORMAT
        and path.name != "thrift.py"
    ]


def test_no_other_module_defines_or_spells_out_a_field_id() -> None:
    assert len(modules()) > 10
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in modules()
        for module in [ast.parse(path.read_text())]
        for line, text in [*defined(module), *spelled_out(module)]
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_ROW_GROUPS, _COLUMNS = 4, 1", ["_ROW_GROUPS", "_COLUMNS"]),
        ("key = pair[1][1]", ["pair[1][1]"]),
        ("size = header[3]", ["header[3]"]),
        ("group = thrift.structs(footer, 4)", ["thrift.structs(footer, 4)"]),
        ("entry = {2: (thrift.BINARY, b'')}", ["{2: (thrift.BINARY, b'')}"]),
        ("value = pair[KeyValue.KEY][1]; first = footer[0]; group = footer[X][1][1][n]", []),
    ],
)
def test_what_counts_as_spelled_out(text: str, expected: list[str]) -> None:
    module = ast.parse(text)
    assert [text for _, text in [*defined(module), *spelled_out(module)]] == expected


def test_the_numbers_are_those_of_a_file(tmp_path: Path) -> None:
    """PyArrow names what it reads: the same values stand under our field ids."""
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "b"]})
    pq.write_table(table, tmp_path / "f.parquet", compression="zstd", write_page_index=True)
    with pa.OSFile(str(tmp_path / "f.parquet")) as file:
        footer = thrift.decode_whole(footer_bytes(file))
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    group = thrift.structs(footer, FileMetaData.ROW_GROUPS)[0]
    assert footer[FileMetaData.NUM_ROWS][1] == 3
    assert footer[FileMetaData.CREATED_BY][1].decode() == metadata.created_by
    assert [e[SchemaElement.NAME][1] for e in thrift.structs(footer, FileMetaData.SCHEMA)][1:] == [b"id", b"name"]
    assert group[RowGroup.TOTAL_BYTE_SIZE][1] == metadata.row_group(0).total_byte_size
    for number, entry in enumerate(thrift.structs(group, RowGroup.COLUMNS)):
        chunk, expected = entry[ColumnChunk.META_DATA][1], metadata.row_group(0).column(number)
        assert Type(chunk[ColumnMetaData.TYPE][1]).name == expected.physical_type
        assert numbers.Codec(chunk[ColumnMetaData.CODEC][1]).name == expected.compression
        assert {numbers.Encoding(e).name for e in chunk[ColumnMetaData.ENCODINGS][1][1]} == set(expected.encodings)
        assert chunk[ColumnMetaData.DATA_PAGE_OFFSET][1] == expected.data_page_offset
        assert chunk[ColumnMetaData.DICTIONARY_PAGE_OFFSET][1] == expected.dictionary_page_offset
        assert chunk[ColumnMetaData.TOTAL_COMPRESSED_SIZE][1] == expected.total_compressed_size
        assert chunk[ColumnMetaData.STATISTICS][1][numbers.Statistics.NULL_COUNT][1] == expected.statistics.null_count
        assert (ColumnChunk.OFFSET_INDEX_OFFSET in entry, ColumnChunk.COLUMN_INDEX_OFFSET in entry) == (True, True)
