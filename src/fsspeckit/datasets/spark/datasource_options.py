"""The options of the data source, which Spark passes as strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fsspeckit.core.dataset.partitions import timezone
from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets import row_options
from fsspeckit.datasets.arguments import batch_interval

# Spark passes these options of its own to the data source too.
_SPARK_OPTIONS = {"checkpointlocation", "queryname"}


@dataclass(frozen=True)
class ParsedOptions:
    """The options of a write. `arguments` are passed on to `DatasetIO`."""

    path: str
    strategy: str | None
    keys: list[str] | None
    partitions: list[str] | None
    stream: str | None
    compact_every: int | None
    engine: str
    scratch: str | None
    arguments: dict[str, Any]


def parse_read_options(options: Mapping[str, str]) -> tuple[str, str | None]:
    """The path, and the zone of timestamps in folder names. Options without effect are refused."""
    by_name = {name.lower(): value for name, value in options.items()}
    unknown = sorted(by_name.keys() - {"path", "partition_timezone"})
    if unknown:
        raise ArgumentError(f"Unknown option {unknown[0]!r}: reading accepts only partition_timezone.")
    zone = by_name.get("partition_timezone")
    return _path(by_name), None if zone is None else timezone(zone)


def parse_write_options(options: Mapping[str, str]) -> ParsedOptions:
    """Parse the options. Options without effect are refused."""
    by_name = {name.lower(): value for name, value in options.items()}
    if "table" in by_name:
        raise ArgumentError(
            "The option table does not exist: Spark gives a data source no session, so it can neither find the table "
            "nor add partitions to the catalog. Use SparkDatasetIO(spark).merge(frame, table=...) or, for a stream, "
            ".foreach_batch(table=...)."
        )
    unknown = sorted(by_name.keys() - _WRITE_OPTIONS - _SPARK_OPTIONS)
    if unknown:
        raise ArgumentError(f"Unknown option {unknown[0]!r} of the data source. It knows {sorted(_WRITE_OPTIONS)}.")
    keys, strategy = by_name.get("key"), by_name.get("strategy")
    if (keys is None) != (strategy is None):
        raise ArgumentError("A merge needs both options, key and strategy; a plain append or overwrite has neither.")
    if "compact_every" in by_name and "stream" not in by_name:
        raise ArgumentError("The option compact_every has no effect without the option stream. Leave it out.")
    idle = [
        name
        for name in ("replace", "commit_log", "small_files", *row_options.OPTIONS)
        if name in by_name and strategy is None
    ]
    if idle:
        raise ArgumentError(f"The option {idle[0]} has no effect without a strategy. Leave it out.")
    partitions = by_name.get("partition")
    return ParsedOptions(
        _path(by_name),
        strategy,
        None if keys is None else text_list(keys),
        None if partitions is None else text_list(partitions),
        by_name.get("stream"),
        batch_interval(_argument("compact_every", int, by_name["compact_every"]))
        if "compact_every" in by_name
        else None,
        by_name.get("engine", "pyarrow"),
        by_name.get("scratch"),
        {name: _argument(name, parse, by_name[name]) for name, parse in _ARGUMENTS.items() if name in by_name},
    )


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise ArgumentError("The data source needs the path of a data set: pass it to save, load or start.")
    return path


def text_list(text: str) -> list[str]:
    """Names separated by commas, or a JSON list of names, which may contain commas.

    >>> text_list("id, day"), text_list('["a,b"]')
    (['id', 'day'], ['a,b'])
    """
    return [str(name) for name in value_list(text)]


def value_list(text: str) -> list[Any]:
    """Text separated by commas, or a JSON list of values of any type.

    >>> value_list("D, d"), value_list("[1, 2]")
    (['D', 'd'], [1, 2])
    """
    if not text.startswith("["):
        return [value.strip() for value in text.split(",")]
    try:
        return list(json.loads(text))
    except ValueError as error:
        raise ArgumentError(f"{text!r} is not a JSON list: {error}.") from error


def _argument(name: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ArgumentError:
        raise
    except ValueError:
        raise ArgumentError(f"The option {name} is a number, not {text!r}.") from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentError(f"The option undoable must be true or false, not {text!r}.")
    return text.lower() == "true"


_ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "compression": str,
    "max_rows_per_file": int,
    "row_group_size": int,
    "replace": str,
    "lock_timeout": float,
    "commit_log": str,
    "partition_timezone": timezone,
    "source_timezone": partial(timezone, argument="source_timezone"),
    "delete_column": str,
    "delete_values": value_list,
    "sequence_by": text_list,
    "on_duplicates": str,
    "update_columns": text_list,
    "exclude_columns": text_list,
    "delete_missing": str,
    "on_move": str,
    "on_schema_change": str,
    "evolve_files": str,
    "evolve_max_bytes": int,
    "small_files": str,
    "undoable": _boolean,
}
_WRITE_OPTIONS = {"path", "key", "strategy", "partition", "stream", "compact_every", "engine", "scratch", *_ARGUMENTS}
