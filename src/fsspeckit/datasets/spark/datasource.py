"""`format("fsspeckit")`: the data source for Spark's own readers and writers, batch and stream. Spark 4.1 or newer.

    register(spark)
    frame.write.format("fsspeckit").option("key", "id").option("strategy", "upsert").mode("append").save("/lake/orders")

Executors write their rows to files beside the data set (`task_output`); the driver merges and commits them. Spark gives
a data source no session, so the merge runs on one machine, with PyArrow or DuckDB. PyArrow reads the rows of large
sources from disk and holds their keys in memory. So more than `MAX_KEY_BYTES` of keys are refused; `SparkDatasetIO`
merges them on executors.
"""

from __future__ import annotations

import contextlib
import logging
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
from fsspeckit.datasets.spark.columns import arrow_schema, check_storable, collations, nullable_schema, spark_schema
from fsspeckit.datasets.spark.datasource_options import ParsedOptions, parse_read_options, parse_write_options
from fsspeckit.datasets.spark.files import Files, open_files, spark_batches
from fsspeckit.datasets.spark.task_output import OutputFolder, TaskOutput, read_outputs

log = logging.getLogger("fsspeckit.spark")

# PyArrow holds the keys in memory, with an index of about three times their size; DuckDB does not.
MAX_KEY_BYTES = 256 << 20
# Smaller sources are not refused for their keys.
SMALL_BYTES = 1 << 30


@contextlib.contextmanager
def message_first() -> Iterator[None]:
    """Make Spark show the message of an error without a traceback before it.

    Spark reads the variable in this process, which it started for this call and which ends with it.
    """
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
        with message_first():
            return spark_schema(_open(parse_read_options(self.options)[0]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        with message_first():
            return Reader(*parse_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with message_first():
            options = parse_write_options(self.options)
            if options.stream is not None:
                raise ArgumentError("The option stream is for writeStream. Leave it out.")
            if overwrite and options.strategy is not None:
                raise ArgumentError('A strategy has no effect in mode("overwrite"). Use mode("append") to merge.')
            return BatchWriter(_Target.of(options, schema), "overwrite" if overwrite else "append")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        with message_first():
            options = parse_write_options(self.options)
            if not options.stream or options.strategy is None:
                raise ArgumentError(
                    "A stream needs the options key, strategy and stream. The option stream is the name under which "
                    "the data set records the last batch: use one per query, and a new one for a new checkpoint."
                )
            if overwrite:
                raise ArgumentError('outputMode("complete") is not supported; use "append" or "update".')
            return StreamWriter(_Target.of(options, schema))


# -- writing


@dataclass(frozen=True)
class _Target:
    """Where the rows go, and with which options. `columns` are the numbers of the source's columns in `schema`."""

    options: ParsedOptions
    location: Location
    schema: pa.Schema
    columns: tuple[int, ...]
    folder: OutputFolder

    @classmethod
    def of(cls, options: ParsedOptions, schema: StructType) -> _Target:
        location = locate(options.path)
        if location.storage.local_path(location.root) is None:
            raise ArgumentError(f"{options.path} is not on a disk that driver and executors share.")
        if options.scratch is not None and not os.path.isdir(options.scratch):
            raise ArgumentError(f"The option scratch is {options.scratch!r}, which is not a folder. Make it first.")
        folder = OutputFolder.beside(location, options.stream, options.scratch)
        columns = _needed_columns(options, schema)
        fields = pa.schema([_arrow_field(schema.fields[i]) for i in columns])
        if options.strategy is not None:  # refuse invalid options before the work, not after it
            strategy = MergeStrategy.parse(options.strategy)
            validate.incremental(strategy)
            batch = None if options.stream is None else Batch(options.stream, 0)
            arguments = {**options.arguments, "batch": batch}
            dataset_io(options.engine).request(strategy, options.keys, options.partitions, arguments)
            check_key_collations(collations(schema.names, schema), tuple(options.keys or ()), "the source")
        return cls(options, location, nullable_schema(fields), columns, folder)

    @property
    def columns_in_memory(self) -> list[str]:
        """The columns that a merge with PyArrow holds in memory."""
        names = {*(self.options.keys or ()), *self.options.arguments.get("sequence_by", ())}
        return [name for name in self.schema.names if name in names]

    def merge(self, outputs: Sequence[TaskOutput], batch: Batch | None) -> None:
        """Rewritten files get new names, because Spark readers remember file lengths."""
        options, arguments = self.options, {"replace": "new_file", **self._arguments(outputs)}
        self._check_zone(arguments)
        io: DatasetIO[Any] = dataset_io(options.engine)
        rows = self._rows(outputs)
        io.merge(rows, options.path, options.strategy, options.keys, options.partitions, batch=batch, **arguments)  # type: ignore[arg-type]

    def write(self, outputs: Sequence[TaskOutput], mode: Any) -> None:
        """Append the rows, or overwrite the data set with them."""
        options, arguments = self.options, self._arguments(outputs)
        if mode == "append":
            self._check_zone(arguments)
        dataset_io(options.engine).write_dataset(
            self._rows(outputs), options.path, mode, options.partitions, **arguments
        )

    def _rows(self, outputs: Sequence[TaskOutput]) -> pa.RecordBatchReader:
        size, keys = sum(output.bytes for output in outputs), sum(output.key_bytes for output in outputs)
        if self.options.engine == "pyarrow" and size > SMALL_BYTES and keys > MAX_KEY_BYTES:
            raise ArgumentError(
                f"The source has {size:,} bytes, of which {keys:,} are keys, and the data source holds at most "
                f"{MAX_KEY_BYTES:,} bytes of keys on the driver. Use SparkDatasetIO(spark).merge(frame, path, "
                "strategy, key_columns), or foreach_batch for a stream, which merge on executors, or set the option "
                "engine to duckdb, which spills to disk."
            )
        return read_outputs(outputs, self.schema)

    def _arguments(self, outputs: Sequence[TaskOutput]) -> dict[str, Any]:
        """Zones are the session's by default. It is known only if the source has a column of TIMESTAMP."""
        zone = next((output.zone for output in outputs if output.zone is not None), None)
        return {"partition_timezone": zone, "source_timezone": zone, **self.options.arguments}

    def _check_zone(self, arguments: dict[str, Any]) -> None:
        """In Spark, INT96 is TIMESTAMP; PyArrow and DuckDB would store TIMESTAMP_NTZ there as if it were UTC."""
        without_zone = [field.name for field in self.schema if has_timestamp(field.type, zoned=False)]
        if arguments["source_timezone"] is not None or not without_zone:
            return
        for footer in read_footers(self.location, list_files(self.location), ()):
            for name in footer.int96.intersection(without_zone):
                raise SchemaMismatchError(
                    f"Column {name!r} is TIMESTAMP_NTZ in the source and TIMESTAMP (INT96) in {footer.path}. Spark did "
                    "not pass the session's time zone to the data source. Set the option source_timezone, or cast the "
                    "column."
                )


def _needed_columns(options: ParsedOptions, schema: StructType) -> tuple[int, ...]:
    """Strategy `delete` needs the key and the sequence, and ignores other columns, whatever their type."""
    names, needed = schema.names, {*(options.keys or ()), *options.arguments.get("sequence_by", ())}
    if options.strategy != MergeStrategy.DELETE or not needed.issubset(names):
        return tuple(range(len(names)))
    return tuple(number for number, name in enumerate(names) if name in needed)


def _arrow_field(field: StructField) -> pa.Field:
    check_storable(field)
    try:
        return arrow_schema(StructType([field])).field(0)
    except (PySparkException, ValueError) as error:  # ValueError for `array()`, whose elements have no type
        raise SchemaMismatchError(
            f"Column {field.name!r} of the source is {field.dataType.simpleString()}, which a data source cannot take "
            f"from Spark: {error}. Cast it to another type, or use SparkDatasetIO."
        ) from error


@dataclass
class Message(WriterCommitMessage):
    """What a task returns to the commit."""

    output: TaskOutput | None


def _outputs(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutput]:
    return [m.output for m in messages if isinstance(m, Message) and m.output is not None]


class _TaskWriter:
    """The part of a writer that runs on executors."""

    def __init__(self, target: _Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        with message_first():
            target = self._target
            return Message(target.folder.write(iterator, target.columns, target.schema, target.columns_in_memory))


class BatchWriter(_TaskWriter, DataSourceArrowWriter):
    def __init__(self, target: _Target, mode: str) -> None:
        super().__init__(target)
        self._mode = mode

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        outputs = _outputs(messages)
        with message_first():
            try:
                if self._target.options.strategy is None:
                    self._target.write(outputs, self._mode)
                else:
                    self._target.merge(outputs, None)
            finally:
                self._target.folder.remove(outputs)
                self._target.folder.remove_leftovers(at_once=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.folder.remove(_outputs(messages))


class StreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark repeats a batch if it died before it recorded our commit. The ledger of the data set has it then."""
        stream = self._target.options.stream
        assert stream is not None
        with message_first():
            self._target.merge(_outputs(messages), Batch(stream, batchId))
        self._target.folder.remove_leftovers(at_once=True)
        every = self._target.options.compact_every
        if every is not None and (batchId + 1) % every == 0:
            self._compact(batchId)

    def _compact(self, batch_id: int) -> None:
        """The batch is committed, so no error of the compaction may fail it."""
        options = self._target.options
        timeouts = {name: value for name, value in options.arguments.items() if name == "lock_timeout"}
        try:
            dataset_io(options.engine).compact(options.path, **timeouts)
        except Exception:
            log.warning("%s was not compacted after batch %d", options.path, batch_id, exc_info=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._target.folder.remove_leftovers(at_once=True)


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
        with message_first():
            files = _open(self._path)
            missing = [name for name in self._schema.names if name not in files.schema.names]
            if missing:
                raise SchemaMismatchError(f"{self._path} has no column {missing}. It has {files.schema.names}.")
            self._check_zone(files)
            return [FilePartition(location, replace(footer, metadata=None)) for location, footer in files.files]

    def _check_zone(self, files: Files) -> None:
        """A data source has no session, and so does not know its time zone."""
        in_paths = {name for _, footer in files.files for name in footer.partition if name not in footer.schema.names}
        fields = [f.name for f in self._schema.fields if f.name in in_paths and isinstance(f.dataType, TimestampType)]
        if fields and self._zone is None:
            raise ArgumentError(
                f"Column {fields[0]!r} is a timestamp in your schema, but folder names have no time zone. Set the "
                "option partition_timezone to the spark.sql.session.timeZone with which they were written."
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePartition)
        schema = arrow_schema(self._schema)
        with message_first():
            yield from spark_batches(partition.location, schema, partition.footer, self._zone or "UTC")


def _open(path: str) -> Files:
    return open_files([path], Access(), read_footers)
