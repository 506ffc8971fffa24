"""CSV and JSON lines as Arrow streams in the target's types. An error names the line."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv

from fsspeckit.core.errors import ArgumentError, SchemaMismatchError, UnreadableFileError, os_reason
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays
from fsspeckit.datasets import text_values
from fsspeckit.datasets.text_values import BadText, Number

TypeOf = Callable[[str], pa.DataType | None]
"""The type of a column in the target, or `None` if it has no such column."""

_BATCH_ROWS = 16_384
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}


@dataclass(frozen=True)
class TextFile(ABC):
    """A file of text: it has names of columns, and no types."""

    location: Location

    def reader(self, type_of: TypeOf) -> pa.RecordBatchReader:
        """The rows in the types of the target. Columns that the target does not have get inferred types."""
        with self._errors():
            schema = pa.schema([pa.field(name, dtype) for name, dtype in self._types(type_of).items()])
        return pa.RecordBatchReader.from_batches(schema, self._typed(schema))

    @abstractmethod
    def _types(self, type_of: TypeOf) -> dict[str, pa.DataType]: ...

    @abstractmethod
    def _columns(self) -> Iterator[Mapping[str, Any]]:
        """The columns of one batch after the other, as text."""

    @abstractmethod
    def _convert(self, values: Any, dtype: pa.DataType) -> pa.Array: ...

    @abstractmethod
    def _line(self, row: int) -> int:
        """The line in which a row begins; both count from the file's beginning."""

    def _typed(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        start = 0
        with self._errors():
            for columns in self._columns():
                rows = len(next(iter(columns.values())))
                typed = [self._array(columns.get(f.name, [None] * rows), f, start) for f in schema]
                yield pa.record_batch(typed, schema=schema)
                start += rows

    def _array(self, values: Any, field: pa.Field, start: int) -> pa.Array:
        try:
            return self._convert(values, field.type)
        except BadText as error:
            row, value = error.args
            raise SchemaMismatchError(
                f"{self.location.shown}, line {self._line(start + row)}: column {field.name!r} is {field.type}, and "
                f"{_shown(value)} is not a value of this type. Correct the line."
            ) from None

    def _target_type(self, name: str, dtype: pa.DataType) -> pa.DataType:
        plain = arrays.plain_type(dtype)
        if not text_values.has_text_form(plain):
            raise SchemaMismatchError(
                f"Column {name!r} is {dtype} in the target, which {self.location.shown} cannot hold as text. Give the "
                "rows as Parquet or as a table."
            )
        return plain

    def _open(self) -> Any:
        source = self.location.storage.open_input(self.location.root)
        compression = self._compression()
        return source if compression is None else pa.CompressedInputStream(source, compression)

    def _compression(self) -> str | None:
        return _COMPRESSIONS.get(self.location.name.lower().rpartition(".")[2])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError:
            raise ArgumentError(f"{self.location.shown} is not UTF-8. Convert it, e.g. with iconv.") from None
        except (pa.ArrowException, OSError, EOFError) as error:
            raise UnreadableFileError(f"Cannot read {self.location.shown}: {self._reason(error)}.") from error

    def _reason(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno is not None:
            return os_reason(error)
        compression = self._compression()
        if compression is not None and isinstance(error, (OSError, EOFError)):
            return f"it is not {compression}, or it is damaged"
        return str(error).rstrip(".")


def _shown(value: Any) -> str:
    shown = str(value) if isinstance(value, Number) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


@dataclass(frozen=True)
class CsvFile(TextFile):
    """CSV with a header. An empty field is null; `""` in a column of text is empty text."""

    delimiter: str = ","

    def _types(self, type_of: TypeOf) -> dict[str, pa.DataType]:
        names, first = self._first_batch()
        known = {name: dtype for name in names if (dtype := type_of(name)) is not None and not pa.types.is_null(dtype)}
        types = {name: text_values.type_for(first[name], self._target_type(name, known[name])) for name in known}
        others = [name for name in names if name not in known]
        if others:
            inferred = text_values.infer(others, self._columns())
            types |= {name: inferred.get(name) or type_of(name) or pa.string() for name in others}
        return {name: types[name] for name in names}

    def _first_batch(self) -> tuple[list[str], Mapping[str, pa.Array]]:
        with self._open() as source:
            header = next(csv.reader(_lines(source), delimiter=self.delimiter), [])
        if not any(header):
            raise ArgumentError(f"{self.location.shown} has no header: its first line must name the columns.")
        other = next((mark for mark in (";", "\t", "|", ",") if len(header) == 1 and mark in header[0]), None)
        if other is not None:
            raise ArgumentError(
                f"{self.location.shown} separates columns by {other!r}, not by {self.delimiter!r}. Read it with "
                f"pandas.read_csv(…, sep={other!r}) and give the frame."
            )
        repeated = sorted({name for name in header if header.count(name) > 1})
        if repeated:
            raise ArgumentError(f"{self.location.shown} has more than one column named {repeated}; rename them.")
        return header, next(self._columns(), {name: pa.array([], pa.string()) for name in header})

    def _columns(self) -> Iterator[Mapping[str, Any]]:
        with self._open() as source:
            names = next(csv.reader(_lines(source), delimiter=self.delimiter))
        options = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        try:
            with self._open() as source:
                for batch in pyarrow.csv.open_csv(source, convert_options=options, parse_options=parse):
                    if batch.num_rows:
                        yield dict(zip(names, batch.columns, strict=True))
        except pa.ArrowInvalid as error:
            raise self._wrong_line(len(names)) or error from None

    def _wrong_line(self, columns: int) -> ArgumentError | None:
        """The first line that has not as many fields as the header, or is not UTF-8."""
        begin = 1
        with self._open() as source:
            rows = csv.reader(_lines(source), delimiter=self.delimiter)
            for row in rows:
                if row and len(row) != columns:
                    return ArgumentError(
                        f"{self.location.shown}, line {begin}: the header names {columns} columns, and this line has "
                        f"{len(row)}. Correct the line."
                    )
                begin = rows.line_num + 1
        return None

    def _convert(self, values: Any, dtype: pa.DataType) -> pa.Array:
        return text_values.parse(values, dtype)

    def _line(self, row: int) -> int:
        begin, position = 1, -1  # of the header
        with self._open() as source:
            rows = csv.reader(_lines(source), delimiter=self.delimiter)
            for fields in rows:
                if fields and position == row:
                    break
                position += bool(fields)
                begin = rows.line_num + 1
        return begin


def _lines(source: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(source, encoding="utf-8-sig", newline="")


@dataclass(frozen=True)
class JsonLines(TextFile):
    """One JSON object on each line. A name that a line lacks is null, as Spark writes nulls."""

    def _types(self, type_of: TypeOf) -> dict[str, pa.DataType]:
        names: dict[str, set[type]] = {}
        first: dict[str, Any] = {}
        for columns in self._columns():
            for name, values in columns.items():
                json_types = names.setdefault(name, set())
                if type_of(name) in (None, pa.null()):
                    json_types.update(text_values.json_type(value) for value in values if value is not None)
                elif first.get(name) is None:
                    first[name] = next((value for value in values if value is not None), None)
        if not names:
            raise ArgumentError(f"{self.location.shown} has no rows, so its columns are unknown.")
        return {
            name: self._type(name, type_of(name), first.get(name), json_types) for name, json_types in names.items()
        }

    def _type(self, name: str, dtype: pa.DataType | None, first: Any, json_types: set[type]) -> pa.DataType:
        if dtype not in (None, pa.null()):
            plain = arrays.plain_type(dtype)
            sample = pa.array([first if isinstance(first, str) else None], pa.string())
            return plain if pa.types.is_nested(plain) else text_values.type_for(sample, self._target_type(name, plain))
        inferred = text_values.infer_json(json_types)
        if inferred is None:
            names = ", ".join(sorted(kind.__name__ for kind in json_types))
            raise ArgumentError(
                f"{self.location.shown}: no type fits column {name!r}, whose values are of these kinds: {names}. The "
                "target has no type for the column; give the rows as Parquet or as a table."
            )
        return inferred

    def _columns(self) -> Iterator[Mapping[str, Any]]:
        rows: list[dict[str, Any]] = []
        for _, row in self._rows():
            rows.append(row)
            if len(rows) == _BATCH_ROWS:
                yield _transposed(rows)
                rows = []
        if rows:
            yield _transposed(rows)

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        loads = partial(json.loads, parse_int=Number, parse_float=Number, parse_constant=Number)
        with self._open() as source:
            for number, line in enumerate(_lines(source), 1):
                if not line.strip():
                    continue
                where = f"{self.location.shown}, line {number}"
                try:
                    row = loads(line)
                except json.JSONDecodeError as error:
                    raise ArgumentError(
                        f"{where}: not a JSON object (from character {error.pos + 1} on). Write one object per line."
                    ) from None
                if not isinstance(row, dict) or not row:
                    raise ArgumentError(f"{where}: not a JSON object with columns. Write one object per line.")
                yield number, row

    def _convert(self, values: Any, dtype: pa.DataType) -> pa.Array:
        return text_values.parse_json(values, dtype)

    def _line(self, row: int) -> int:
        return next(number for position, (number, _) in enumerate(self._rows()) if position == row)


def _transposed(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
