"""Spark's collations: text that is equal though its bytes differ. Keys are compared by bytes, so these are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fsspeckit.core.errors import SchemaMismatchError

_ROW = b"org.apache.spark.sql.parquet.row.metadata"
_MARK = "__COLLATIONS"


def collations(entries: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """The collated columns that a footer's entries tell of, as Spark writes them: column to collation."""
    row = (entries or {}).get(_ROW, b"")
    if _MARK.encode() not in row:
        return {}
    try:
        fields = json.loads(row)["fields"]
        return {f["name"]: f["metadata"][_MARK].get(f["name"]) or "…" for f in fields if _MARK in f["metadata"]}
    except (ValueError, LookupError, TypeError, AttributeError):  # another program's idea of it
        return {}


def check_keys(collations_by_column: Mapping[str, str], key_columns: tuple[str, ...], where: str) -> None:
    collated = {name: collations_by_column[name] for name in key_columns if name in collations_by_column}
    for name, collation in collated.items():
        raise SchemaMismatchError(
            f"Key column {name!r} has the collation {collation.removeprefix('spark.')} in {where}: values that it "
            "takes for equal would stand twice, since keys are compared byte by byte. Use a key column of plain text "
            "(UTF8_BINARY), such as lower(…)."
        )
