"""Options of the data source `fsspeckit`, which Spark hands over as texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fsspeckit.core.dataset.partitions import timezone
from fsspeckit.core.errors import ArgumentError

# Spark's own, which it passes on.
_SPARKS = {"checkpointlocation", "queryname"}
_WRITING = {
    "compression": str,
    "max_rows_per_file": int,
    "row_group_size": int,
    "replace": str,
    "lock_timeout": float,
    "partition_timezone": timezone,
    "source_timezone": partial(timezone, argument="source_timezone"),
}
_KNOWN = {"path", "key", "strategy", "partition", "stream", "engine", "scratch", *_WRITING}


@dataclass(frozen=True)
class WriteOptionsGiven:
    """What the options of a write ask for; `writing` are arguments of `DatasetIO`."""

    path: str
    strategy: str | None
    keys: list[str] | None
    partitions: list[str] | None
    stream: str | None
    engine: str
    scratch: str | None
    writing: dict[str, Any]


def read_options(options: Mapping[str, str]) -> tuple[str, str | None]:
    """The path, and the zone of instants in the names of folders. An option that would do nothing is refused."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - {"path", "partition_timezone"})
    if unknown:
        raise ArgumentError(f"Unknown option {unknown[0]!r}: reading takes none but partition_timezone.")
    zone = given.get("partition_timezone")
    return _path_of(given), None if zone is None else timezone(zone)


def _path_of(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise ArgumentError("The data source needs the path of a data set: give it to save, load or start.")
    return path


def write_options(options: Mapping[str, str]) -> WriteOptionsGiven:
    """Read the options; one that would do nothing is refused."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(given.keys() - _KNOWN - _SPARKS)
    if unknown:
        raise ArgumentError(f"Unknown option {unknown[0]!r} of the data source. It knows {sorted(_KNOWN)}.")
    keys, strategy = _names(given.get("key")), given.get("strategy")
    if (keys is None) != (strategy is None):
        raise ArgumentError("A merge needs both options, key and strategy; a plain append or overwrite has neither.")
    writing = {name: _parsed(name, kind, given[name]) for name, kind in _WRITING.items() if name in given}
    if strategy is None and "replace" in writing:
        raise ArgumentError("The option replace without a strategy does nothing. Leave it out.")
    return WriteOptionsGiven(
        _path_of(given),
        strategy,
        keys,
        _names(given.get("partition")),
        given.get("stream"),
        given.get("engine", "pyarrow"),
        given.get("scratch"),
        writing,
    )


def _names(text: str | None) -> list[str] | None:
    """Columns separated by commas, or a JSON list of them, for names that have commas.

    >>> _names("id, day"), _names('["a,b"]')
    (['id', 'day'], ['a,b'])
    """
    if text is None:
        return None
    if not text.startswith("["):
        return [name.strip() for name in text.split(",")]
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{text!r} is no JSON list of columns: {error}.") from error
    return [str(name) for name in found]


def _parsed(name: str, kind: Any, text: str) -> Any:
    try:
        return kind(text)
    except ArgumentError:
        raise
    except ValueError:
        raise ArgumentError(f"The option {name} is a number, not {text!r}.") from None
