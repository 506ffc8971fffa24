# scripts/make_stubs.py wrote this from PyArrow 26.0.1.
from typing import Any, TypeAlias

AwsDefaultS3RetryStrategy: TypeAlias = Any
AwsStandardS3RetryStrategy: TypeAlias = Any
AzureFileSystem: TypeAlias = Any
FSSpecHandler: TypeAlias = Any
FileInfo: TypeAlias = Any
FileSelector: TypeAlias = Any
FileStats: TypeAlias = Any
FileSystem: TypeAlias = Any
FileSystemHandler: TypeAlias = Any
FileType: TypeAlias = Any
GcsFileSystem: TypeAlias = Any
HadoopFileSystem: TypeAlias = Any
LocalFileSystem: TypeAlias = Any
PyFileSystem: TypeAlias = Any
S3FileSystem: TypeAlias = Any
S3LogLevel: TypeAlias = Any
S3RetryStrategy: TypeAlias = Any
SubTreeFileSystem: TypeAlias = Any
def copy_files(source: Any, destination: Any, source_filesystem: Any = ..., destination_filesystem: Any = ..., *, chunk_size: Any = ..., use_threads: Any = ...) -> Any: ...
def ensure_s3_finalized() -> Any: ...
def ensure_s3_initialized() -> Any: ...
def finalize_s3() -> Any: ...
def initialize_s3(log_level: Any = ..., num_event_loop_threads: Any = ...) -> Any: ...
def resolve_s3_region(bucket: Any) -> Any: ...
