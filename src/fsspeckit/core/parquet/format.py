"""The Parquet format's numbers: field ids by Thrift struct, and enums, as `parquet.thrift` names them.

No other module spells out such a number. The structs are those that we read or write, with all of their fields up to
format version 2.12.
"""

from __future__ import annotations

from enum import IntEnum

MAGIC = b"PAR1"


class FileMetaData:
    VERSION, SCHEMA, NUM_ROWS, ROW_GROUPS, KEY_VALUE_METADATA, CREATED_BY, COLUMN_ORDERS = range(1, 8)
    ENCRYPTION_ALGORITHM, FOOTER_SIGNING_KEY_METADATA = range(8, 10)


class SchemaElement:
    TYPE, TYPE_LENGTH, REPETITION_TYPE, NAME, NUM_CHILDREN, CONVERTED_TYPE, SCALE, PRECISION = range(1, 9)
    FIELD_ID, LOGICAL_TYPE = range(9, 11)


class LogicalType:
    """A union: the field that is set is the type."""

    STRING, MAP, LIST, ENUM, DECIMAL, DATE, TIME, TIMESTAMP = range(1, 9)


class RowGroup:
    COLUMNS, TOTAL_BYTE_SIZE, NUM_ROWS, SORTING_COLUMNS, FILE_OFFSET, TOTAL_COMPRESSED_SIZE, ORDINAL = range(1, 8)


class ColumnChunk:
    FILE_PATH, FILE_OFFSET, META_DATA, OFFSET_INDEX_OFFSET, OFFSET_INDEX_LENGTH = range(1, 6)
    COLUMN_INDEX_OFFSET, COLUMN_INDEX_LENGTH, CRYPTO_METADATA, ENCRYPTED_COLUMN_METADATA = range(6, 10)


class ColumnMetaData:
    TYPE, ENCODINGS, PATH_IN_SCHEMA, CODEC, NUM_VALUES = range(1, 6)
    TOTAL_UNCOMPRESSED_SIZE, TOTAL_COMPRESSED_SIZE, KEY_VALUE_METADATA = range(6, 9)
    DATA_PAGE_OFFSET, INDEX_PAGE_OFFSET, DICTIONARY_PAGE_OFFSET, STATISTICS, ENCODING_STATS = range(9, 14)
    BLOOM_FILTER_OFFSET, BLOOM_FILTER_LENGTH, SIZE_STATISTICS, GEOSPATIAL_STATISTICS = range(14, 18)


class Statistics:
    """`MAX` and `MIN` are deprecated: their order is not defined for all types."""

    MAX, MIN, NULL_COUNT, DISTINCT_COUNT, MAX_VALUE, MIN_VALUE = range(1, 7)
    IS_MAX_VALUE_EXACT, IS_MIN_VALUE_EXACT, NAN_COUNT = range(7, 10)


class SizeStatistics:
    UNENCODED_BYTE_ARRAY_DATA_BYTES, REPETITION_LEVEL_HISTOGRAM, DEFINITION_LEVEL_HISTOGRAM = range(1, 4)


class PageEncodingStats:
    PAGE_TYPE, ENCODING, COUNT = range(1, 4)


class KeyValue:
    KEY, VALUE = range(1, 3)


class ColumnOrder:
    """A union with one field so far."""

    TYPE_ORDER = 1


class PageHeader:
    TYPE, UNCOMPRESSED_PAGE_SIZE, COMPRESSED_PAGE_SIZE, CRC = range(1, 5)
    DATA_PAGE_HEADER, INDEX_PAGE_HEADER, DICTIONARY_PAGE_HEADER, DATA_PAGE_HEADER_V2 = range(5, 9)


class DataPageHeader:
    NUM_VALUES, ENCODING, DEFINITION_LEVEL_ENCODING, REPETITION_LEVEL_ENCODING, STATISTICS = range(1, 6)


class DictionaryPageHeader:
    NUM_VALUES, ENCODING, IS_SORTED = range(1, 4)


class DataPageHeaderV2:
    NUM_VALUES, NUM_NULLS, NUM_ROWS, ENCODING = range(1, 5)
    DEFINITION_LEVELS_BYTE_LENGTH, REPETITION_LEVELS_BYTE_LENGTH, IS_COMPRESSED, STATISTICS = range(5, 9)


class OffsetIndex:
    PAGE_LOCATIONS, UNENCODED_BYTE_ARRAY_DATA_BYTES = range(1, 3)


class PageLocation:
    OFFSET, COMPRESSED_PAGE_SIZE, FIRST_ROW_INDEX = range(1, 4)


class BloomFilterHeader:
    NUM_BYTES, ALGORITHM, HASH, COMPRESSION = range(1, 5)


class Type(IntEnum):
    """Physical types."""

    BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = range(8)


class Repetition(IntEnum):
    REQUIRED, OPTIONAL, REPEATED = range(3)


class ConvertedType(IntEnum):
    UTF8, MAP, MAP_KEY_VALUE, LIST = range(4)


class Codec(IntEnum):
    UNCOMPRESSED, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD, LZ4_RAW = range(8)


class Encoding(IntEnum):
    PLAIN = 0
    PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = range(2, 8)
    RLE_DICTIONARY, BYTE_STREAM_SPLIT = range(8, 10)


class PageType(IntEnum):
    DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
