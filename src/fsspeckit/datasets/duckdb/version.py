"""The version of DuckDB, and whether to use its MERGE statement."""

from __future__ import annotations

import logging
import re
from contextlib import closing
from typing import Any
from weakref import WeakKeyDictionary

import duckdb

from fsspeckit.core.errors import ArgumentError, DatasetMergeError

Version = tuple[int, int, int]
MERGE_SINCE: Version = (1, 4, 0)
UNKNOWN: Version = (0, 0, 0)

logger = logging.getLogger(__name__)
_versions: WeakKeyDictionary[Any, Version] = WeakKeyDictionary()


def detect_version(connection: Any) -> Version:
    """The version of a connection's DuckDB, cached per connection; `(0, 0, 0)` and a warning if it is unknown."""
    if connection not in _versions:
        _versions[connection] = _query_version(connection)
    return _versions[connection]


def _query_version(connection: Any) -> Version:
    """Use a cursor: the connection itself may have an open result or a failed transaction."""
    try:
        with closing(connection.cursor()) as cursor:
            return parse_version(cursor.execute("SELECT * FROM pragma_version()").fetchone()[0])
    except (duckdb.Error, ValueError, TypeError, IndexError) as error:
        logger.warning("Could not determine DuckDB version: %s", error)
        return UNKNOWN


def library_version() -> Version:
    """The version of the installed module; `(0, 0, 0)` for builds between releases."""
    try:
        return parse_version(duckdb.__version__)
    except ValueError:
        return UNKNOWN


def parse_version(text: str) -> Version:
    """
    >>> parse_version("v1.4.1"), parse_version("10.2.3")
    ((1, 4, 1), (10, 2, 3))
    """
    numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?![\d.])", text)
    if numbers is None:
        raise ValueError(f"unexpected version {text!r}")
    major, minor, patch = map(int, numbers.groups())
    return major, minor, patch


def supports_merge(version: Version) -> bool:
    return version >= MERGE_SINCE


def check_use_merge(value: Any) -> None:
    if not (value is None or value is True or value is False):
        raise ArgumentError(f"Invalid use_merge value: {value}\nMust be True, False, or None for auto-detect")


def choose_merge(connection: Any, use_merge: bool | None) -> bool:
    """Use the native MERGE (`True`) or UNION ALL (`False`)? `use_merge=False` does not query the version."""
    if use_merge is False:
        logger.info("Using UNION ALL (explicitly requested)")
        return False
    version = detect_version(connection)
    if use_merge and not supports_merge(version):
        raise DatasetMergeError(
            f"DuckDB MERGE requested but not available. Required version: >= {_dotted(MERGE_SINCE)}, "
            f"Current: {_dotted(version)}. Upgrade DuckDB, or pass use_merge=False.",
            operation="merge",
        )
    if use_merge:
        logger.info("Using DuckDB MERGE (explicitly requested)")
    elif supports_merge(version):
        logger.info("Using DuckDB MERGE for merge operation (auto-detected)")
    else:
        logger.info("Using UNION ALL fallback for merge operation (DuckDB < 1.4.0 or MERGE unavailable)")
    return supports_merge(version)


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
