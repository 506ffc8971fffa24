"""Which DuckDB is this, and does it know MERGE?"""

from __future__ import annotations

import logging
import re
from typing import Any
from weakref import WeakKeyDictionary

import duckdb

from fsspeckit.core.errors import ArgumentError, DatasetMergeError

Version = tuple[int, int, int]
MERGE_SINCE: Version = (1, 4, 0)
UNKNOWN: Version = (0, 0, 0)

logger = logging.getLogger(__name__)
_known: WeakKeyDictionary[Any, Version] = WeakKeyDictionary()


def detect_version(connection: Any) -> Version:
    """The version of the library behind a connection, asked once; `(0, 0, 0)` and a warning if it cannot be told."""
    if connection not in _known:
        _known[connection] = _ask(connection)
    return _known[connection]


def _ask(connection: Any) -> Version:
    """On a cursor: the user's connection may hold a result, or a transaction that failed."""
    try:
        cursor = connection.cursor()
        try:
            answer = cursor.execute("SELECT * FROM pragma_version()").fetchone()
        finally:
            cursor.close()
        return parse_version(answer[0])
    except (duckdb.Error, ValueError, TypeError, IndexError) as error:
        logger.warning("Could not determine DuckDB version: %s", error)
        return UNKNOWN


def library_version() -> Version:
    """Of the installed module, for those who have no connection to ask; `(0, 0, 0)` for builds between releases."""
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
    """Native MERGE, or UNION ALL? `use_merge=False` does not even ask for the version."""
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
    logger.info(_chosen(bool(use_merge), supports_merge(version)))
    return supports_merge(version)


def _chosen(requested: bool, native: bool) -> str:
    if requested:
        return "Using DuckDB MERGE (explicitly requested)"
    if native:
        return "Using DuckDB MERGE for merge operation (auto-detected)"
    return "Using UNION ALL fallback for merge operation (DuckDB < 1.4.0 or MERGE unavailable)"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
