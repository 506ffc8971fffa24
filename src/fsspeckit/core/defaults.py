"""Default values of options. Imports nothing, so that `fsspeckit --help` can show them at once."""

from __future__ import annotations

COMPRESSION = "snappy"
# The codecs of Parquet. `pa.Codec` has others, such as bz2, and raises a plain error for unknown names.
CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
MAX_ROWS_PER_FILE = 5_000_000
ROW_GROUP_SIZE = 500_000
# Unless the caller names a row group size, a row group of new rows has at most this many bytes in memory.
ROW_GROUP_BYTES = 256 << 20
# New files take the row-group size of the data set within these bounds: fewer rows are rarely a choice, and a writer
# holds the rows of one row group in memory.
ROW_GROUP_SIZES = (1_000, 1_048_576)
LOCK_TIMEOUT = 60.0
# The most bytes of files that a schema change rewrites although none of their rows change.
EVOLVE_MAX_BYTES = 100 * 10**9
TARGET_SIZE = 256_000_000
