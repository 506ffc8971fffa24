"""The options about schema changes: their values, and where they have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspeckit.core import defaults
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import SchemaChanges
from fsspeckit.datasets.options import SchemaOptions

OPTIONS = tuple(SchemaOptions.__annotations__)
_CHOICES = {"on_schema_change": ("refuse", "evolve"), "evolve_files": ("all", "touched")}


def schema_changes(
    options: Mapping[str, Any], no_effect: str | None = None, *, only_columns: bool = False
) -> SchemaChanges:
    """The options as a value. `no_effect` says where they have no effect, and `evolve` is refused then."""
    for name, choices in _CHOICES.items():
        value = options.get(name)
        if value is not None and value not in choices:
            raise ArgumentError(f"Unknown {name} {value!r}. Choose {' or '.join(map(repr, choices))}.")
    evolve = options.get("on_schema_change") == "evolve"
    if evolve and no_effect:
        raise ArgumentError(f"on_schema_change='evolve' has no effect with {no_effect}. Leave it out.")
    for name in ("evolve_files", "evolve_max_bytes"):
        if options.get(name) is not None and not evolve:
            raise ArgumentError(f"{name} has no effect without on_schema_change='evolve'. Leave it out.")
    max_bytes: Any = options.get("evolve_max_bytes")
    if max_bytes is None:
        max_bytes = defaults.EVOLVE_MAX_BYTES
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
        raise ArgumentError(f"evolve_max_bytes must be a number of bytes, 0 or more, not {max_bytes!r}.")
    return SchemaChanges(evolve, options.get("evolve_files") != "touched", max_bytes, only_columns)
