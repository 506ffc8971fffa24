# scripts/make_stubs.py wrote this from PyArrow 26.0.1.
from typing import Any, TypeAlias

CSVStreamingReader: TypeAlias = Any
CSVWriter: TypeAlias = Any
ConvertOptions: TypeAlias = Any
ISO8601: Any
InvalidRow: TypeAlias = Any
ParseOptions: TypeAlias = Any
ReadOptions: TypeAlias = Any
WriteOptions: TypeAlias = Any
def open_csv(input_file: Any, read_options: Any = ..., parse_options: Any = ..., convert_options: Any = ..., memory_pool: Any = ...) -> Any: ...
def read_csv(input_file: Any, read_options: Any = ..., parse_options: Any = ..., convert_options: Any = ..., memory_pool: Any = ...) -> Any: ...
def write_csv(data: Any, output_file: Any, write_options: Any = ..., memory_pool: Any = ...) -> Any: ...
