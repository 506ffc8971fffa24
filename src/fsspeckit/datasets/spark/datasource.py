"""`format("fsspeckit")`: the data source for Spark's own readers and writers, batch and stream. Spark 4.1 or newer.

    register(spark)
    frame.write.format("fsspeckit").option("key", "id").option("strategy", "upsert").mode("append").save("/lake/orders")

Executors lay their rows down beside the data set (`laid`); the driver merges and commits them. Spark gives a data
source no session, so the merge itself is the work of one machine, by PyArrow or DuckDB: sources larger than
`MAX_BYTES` are refused, and are for `SparkDatasetIO`, which spreads all of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from fsspeckit.api import dataset_io
from fsspeckit.core import validate
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import ArgumentError, FsspeckitError, SchemaMismatchError
from fsspeckit.core.model import Footer, MergeStrategy
from fsspeckit.core.storage import Access, Location, locate
from fsspeckit.core.values.schema import check_key_collations
from fsspeckit.core.values.zones import has_timestamp
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.spark.columns import as_spark_has_it, check_carried, collated, loose_schema, spark_schema
from fsspeckit.datasets.spark.laid import Laid, Spool, read_spool
from fsspeckit.datasets.spark.options import WriteOptionsGiven, read_options, write_options
from fsspeckit.datasets.spark.source import Files, open_files, row_groups

# PyArrow holds the source in memory; DuckDB need not.
MAX_BYTES = 1 << 30


@contextlib.contextmanager
def our_words_first() -> Iterator[None]:
    """Spark puts a traceback before the message of an error, unless this process says otherwise; it ends anyway."""
    try:
        yield
    except FsspeckitError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class FsspeckitSource(DataSource):
    """The data source `fsspeckit`."""

    @classmethod
    def name(cls) -> str:
        return "fsspeckit"

    def schema(self) -> StructType:
        with our_words_first():
            return spark_schema(_open(read_options(self.options)[0]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        with our_words_first():
            return Reader(*read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with our_words_first():
            options = write_options(self.options)
            if options.stream is not None:
                raise ArgumentError("The option stream is for writeStream. Leave it out.")
            if overwrite and options.strategy is not None:
                raise ArgumentError('mode("overwrite") with a strategy does nothing; say mode("append") to merge.')
            return BatchWriter(_Target.of(options, schema), "overwrite" if overwrite else "append")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        with our_words_first():
            options = write_options(self.options)
            if not options.stream or options.strategy is None:
                raise ArgumentError(
                    "A stream needs the options key, strategy and stream. The last one names the stream in the data "
                    "set, where its last batch is recorded: one for each query, and a new one for a new checkpoint."
                )
            if overwrite:
                raise ArgumentError('outputMode("complete") is not supported; use "append" or "update".')
            return StreamWriter(_Target.of(options, schema))


@dataclass(frozen=True)
class _Target:
    """Where the rows go, and by which way."""

    options: WriteOptionsGiven
    location: Location
    schema: pa.Schema
    spool: Spool

    @classmethod
    def of(cls, options: WriteOptionsGiven, schema: StructType) -> _Target:
        location = locate(options.path)
        if location.storage.local_path(location.root) is None:
            raise ArgumentError(f"{options.path} is not on a disk that driver and executors share.")
        if options.scratch is not None and not os.path.isdir(options.scratch):
            raise ArgumentError(f"The option scratch is {options.scratch!r}, which is no folder. Make it first.")
        spool = Spool.beside(location, options.stream, options.scratch)
        target = cls(options, location, loose_schema(_arrow_schema(schema)), spool)
        if options.strategy is not None:  # refused here rather than after the work
            strategy = MergeStrategy.parse(options.strategy)
            validate.incremental(strategy)
            dataset_io(options.engine).request(strategy, options.keys, options.partitions, options.writing)
            check_key_collations(collated(schema.names, schema), tuple(options.keys or ()), "the source")
        return target

    def rows(self, laid: Sequence[Laid]) -> pa.RecordBatchReader:
        size = sum(one.bytes for one in laid)
        if self.options.engine == "pyarrow" and size > MAX_BYTES:
            raise ArgumentError(
                f"The source has {size:,} bytes, and the data source merges at most {MAX_BYTES:,} on the driver. Use "
                "SparkDatasetIO, which lets executors merge, or the option engine with the value duckdb."
            )
        return read_spool(laid, self.schema)

    def merge(self, laid: Sequence[Laid], batch: Batch | None) -> None:
        """Spark readers remember file lengths, so rewritten files get new names."""
        given, writing = self.options, {"replace": "new_file", **self._writing(laid)}
        self._check_zone_known(writing)
        io: DatasetIO[Any] = dataset_io(given.engine)
        io.merge(self.rows(laid), given.path, given.strategy, given.keys, given.partitions, batch=batch, **writing)  # type: ignore[arg-type]

    def append(self, laid: Sequence[Laid], mode: Any) -> None:
        io, partitions, writing = dataset_io(self.options.engine), self.options.partitions, self._writing(laid)
        if mode == "append":
            self._check_zone_known(writing)
        io.write_dataset(self.rows(laid), self.options.path, mode, partitions, **writing)

    def _check_zone_known(self, writing: dict[str, Any]) -> None:
        """INT96 holds TIMESTAMP to Spark; the engines of one machine would take TIMESTAMP_NTZ for UTC there."""
        local = [field.name for field in self.schema if has_timestamp(field.type, zoned=False)]
        if writing["source_timezone"] is not None or not local:
            return
        for footer in read_footers(self.location, list_files(self.location), ()):
            for name in footer.int96.intersection(local):
                raise SchemaMismatchError(
                    f"Column {name!r} is TIMESTAMP_NTZ in the source and TIMESTAMP (INT96) in {footer.path}. Spark "
                    "tells a data source no zone here. Give the option source_timezone, or cast the column."
                )

    def _writing(self, laid: Sequence[Laid]) -> dict[str, Any]:
        """Zones are the session's, unless the options say otherwise. Only columns of instants bring it along."""
        zone = next((one.zone for one in laid if one.zone is not None), None)
        return {"partition_timezone": zone, "source_timezone": zone, **self.options.writing}


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the commit."""

    laid: Laid | None


def _laid(messages: Sequence[WriterCommitMessage | None]) -> list[Laid]:
    return [m.laid for m in messages if isinstance(m, Message) and m.laid is not None]


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, target: _Target, mode: str) -> None:
        self._target, self._mode = target, mode

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        with our_words_first():
            return Message(self._target.spool.lay(iterator, self._target.schema))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        laid = _laid(messages)
        with our_words_first():
            try:
                if self._target.options.strategy is None:
                    self._target.append(laid, self._mode)
                else:
                    self._target.merge(laid, None)
            finally:
                self._target.spool.clear(laid)
                self._target.spool.clear_left_behind(own=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.spool.clear(_laid(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, target: _Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        with our_words_first():
            return Message(self._target.spool.lay(iterator, self._target.schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark gives a batch again when it died before it heard of our commit; the ledger knows it."""
        stream = self._target.options.stream
        assert stream is not None
        with our_words_first():
            self._target.merge(_laid(messages), Batch(stream, batchId))
        self._target.spool.clear_left_behind(own=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._target.spool.clear_left_behind(own=True)


# -- reading


@dataclass
class FilePartition(InputPartition):
    """One data file."""

    location: Location
    footer: Footer


class Reader(DataSourceReader):
    def __init__(self, path: str, zone: str | None, schema: StructType) -> None:
        self._path, self._zone, self._schema = path, zone, schema

    def partitions(self) -> Sequence[InputPartition]:
        with our_words_first():
            files = _open(self._path)
            missing = [name for name in self._schema.names if name not in files.schema.names]
            if missing:
                raise SchemaMismatchError(f"{self._path} has no column {missing}. It has {files.schema.names}.")
            self._check_zone(files)
            return [FilePartition(location, replace(footer, metadata=None)) for location, footer in files.files]

    def _check_zone(self, files: Files) -> None:
        """Spark tells a data source no session, and so no zone."""
        named = {name for _, footer in files.files for name in footer.partition if name not in footer.schema.names}
        instants = [f.name for f in self._schema.fields if f.name in named and isinstance(f.dataType, TimestampType)]
        if instants and self._zone is None:
            raise ArgumentError(
                f"Column {instants[0]!r} is asked for as timestamp, which folders name without a zone. Give the option "
                "partition_timezone: what spark.sql.session.timeZone was when they were written."
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePartition)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        with our_words_first():
            for table in row_groups(partition.location, wanted, wanted.names, partition.footer, self._zone or "UTC"):
                columns = [as_spark_has_it(column, field) for column, field in zip(table.columns, wanted, strict=True)]
                yield from pa.table(columns, schema=wanted).to_batches(max_chunksize=16_384)


def _open(path: str) -> Any:
    return open_files([path], Access(), read_footers)


def _arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: StructField) -> pa.Field:
    check_carried(field)
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0)
    except (PySparkException, ValueError) as error:  # the latter of `array()`, whose elements have no type
        raise SchemaMismatchError(
            f"Column {field.name!r} of the source is {field.dataType.simpleString()}, which a data source cannot take "
            f"from Spark: {error}. Cast it to another type, or use SparkDatasetIO."
        ) from error
