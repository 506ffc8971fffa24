# scripts/make_stubs.py wrote this from PyArrow 26.0.1.
from typing import Any, TypeAlias

CsvFileFormat: TypeAlias = Any
CsvFragmentScanOptions: TypeAlias = Any
Dataset: TypeAlias = Any
DatasetFactory: TypeAlias = Any
DirectoryPartitioning: TypeAlias = Any
Expression: TypeAlias = Any
FeatherFileFormat: TypeAlias = Any
FileFormat: TypeAlias = Any
FileFragment: TypeAlias = Any
FileSystemDataset: TypeAlias = Any
FileSystemDatasetFactory: TypeAlias = Any
FileSystemFactoryOptions: TypeAlias = Any
FileWriteOptions: TypeAlias = Any
FilenamePartitioning: TypeAlias = Any
Fragment: TypeAlias = Any
FragmentScanOptions: TypeAlias = Any
HivePartitioning: TypeAlias = Any
InMemoryDataset: TypeAlias = Any
IpcFileFormat: TypeAlias = Any
IpcFileWriteOptions: TypeAlias = Any
JsonFileFormat: TypeAlias = Any
JsonFragmentScanOptions: TypeAlias = Any
OrcFileFormat: TypeAlias = Any
ParquetDatasetFactory: TypeAlias = Any
ParquetDecryptionConfig: TypeAlias = Any
ParquetEncryptionConfig: TypeAlias = Any
ParquetFactoryOptions: TypeAlias = Any
ParquetFileFormat: TypeAlias = Any
ParquetFileFragment: TypeAlias = Any
ParquetFileWriteOptions: TypeAlias = Any
ParquetFragmentScanOptions: TypeAlias = Any
ParquetReadOptions: TypeAlias = Any
Partitioning: TypeAlias = Any
PartitioningFactory: TypeAlias = Any
RowGroupInfo: TypeAlias = Any
Scanner: TypeAlias = Any
TaggedRecordBatch: TypeAlias = Any
UnionDataset: TypeAlias = Any
UnionDatasetFactory: TypeAlias = Any
WrittenFile: TypeAlias = Any
def dataset(source: Any, schema: Any = ..., format: Any = ..., filesystem: Any = ..., partitioning: Any = ..., partition_base_dir: Any = ..., exclude_invalid_files: Any = ..., ignore_prefixes: Any = ...) -> Any: ...
def field(*name_or_index: Any) -> Any: ...
def get_partition_keys(partition_expression: Any) -> Any: ...
def parquet_dataset(metadata_path: Any, schema: Any = ..., filesystem: Any = ..., format: Any = ..., partitioning: Any = ..., partition_base_dir: Any = ...) -> Any: ...
def partitioning(schema: Any = ..., field_names: Any = ..., flavor: Any = ..., dictionaries: Any = ...) -> Any: ...
def scalar(value: Any) -> Any: ...
def write_dataset(data: Any, base_dir: Any, *, basename_template: Any = ..., format: Any = ..., partitioning: Any = ..., partitioning_flavor: Any = ..., schema: Any = ..., filesystem: Any = ..., file_options: Any = ..., use_threads: Any = ..., preserve_order: Any = ..., max_partitions: Any = ..., max_open_files: Any = ..., max_rows_per_file: Any = ..., min_rows_per_group: Any = ..., max_rows_per_group: Any = ..., file_visitor: Any = ..., existing_data_behavior: Any = ..., create_dir: Any = ...) -> Any: ...
