"""The arguments of `DatasetIO`, checked and with defaults for missing options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from fsspeckit.core import defaults, validate
from fsspeckit.core.actions import PRESETS
from fsspeckit.core.compact import CompactRequest
from fsspeckit.core.dataset.partitions import timezone
from fsspeckit.core.dataset.replaced_partitions import check_form
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergeStrategy, SchemaChanges, WriteOptions
from fsspeckit.core.progress import OnProgress
from fsspeckit.core.write_plan import MODES, WriteRequest
from fsspeckit.datasets.options import Columns

_SCHEMA_CHOICES = {"on_schema_change": ("refuse", "evolve"), "evolve_files": ("all", "touched")}


def write_request(mode: Any, partition_columns: Columns | None, options: Mapping[str, Any]) -> WriteRequest:
    if mode not in MODES:
        raise ArgumentError(f"Unknown mode {mode!r}. Choose one of {', '.join(map(repr, MODES))}.")
    check_form(mode, options.get("partitions"))
    return WriteRequest(
        mode=mode,
        partitions=options.get("partitions"),
        schema=schema_changes(options, "mode='overwrite'" if mode == "overwrite" else None),
        **common_arguments(partition_columns, options),
    )


def common_arguments(partition_columns: Columns | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `CommonRequest` but `schema`."""
    return {
        "partition_columns": partition_argument(partition_columns, options.get("partition_by")),
        "options": layout(options),
        "partition_timezone": zone(options, "partition_timezone"),
        "source_timezone": zone(options, "source_timezone"),
        "max_lengths": options.get("max_lengths") or {},
        "max_removed_rows": row_limit(options),
        "undoable": flag("undoable", options),
        "lock_timeout": timeout(options),
        "on_progress": progress_callback(options),
    }


def schema_changes(
    options: Mapping[str, Any], no_effect: str | None = None, *, only_columns: bool = False
) -> SchemaChanges:
    """The options about schema changes. `no_effect` says where they have no effect, and `evolve` is refused then."""
    for name, choices in _SCHEMA_CHOICES.items():
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


def flag(name: str, options: Mapping[str, Any]) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, not {value!r}.")
    return value


def progress_callback(options: Mapping[str, Any]) -> OnProgress | None:
    callback: OnProgress | None = options.get("on_progress")
    if callback is not None and not callable(callback):
        raise ArgumentError(
            f"on_progress is a function that takes a ProgressEvent, such as fsspeckit.progress_bar(), not {callback!r}."
        )
    return callback


def batch_interval(compact_every: Any) -> int | None:
    if compact_every is not None and (type(compact_every) is not int or compact_every < 1):
        raise ArgumentError(f"compact_every must be a number of batches, 1 or more, not {compact_every!r}.")
    return compact_every


def row_limit(options: Mapping[str, Any]) -> int | None:
    limit: Any = options.get("max_removed_rows")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ArgumentError(f"max_removed_rows must be a number of rows, 0 or more, not {limit!r}.")
    return limit


def layout(options: Mapping[str, Any]) -> WriteOptions:
    names = ("compression", "max_rows_per_file", "row_group_size")
    return WriteOptions(**{name: options[name] for name in names if options.get(name) is not None})


def timeout(options: Mapping[str, Any]) -> float:
    seconds: Any = options.get("lock_timeout", defaults.LOCK_TIMEOUT)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ArgumentError(f"lock_timeout must be a number of seconds, 0 or more, not {seconds!r}.")
    return seconds


def check_used(strategy: Any, key_columns: Any, rewrite_mode: str, options: Mapping[str, Any]) -> None:
    """Refuse arguments that would have no effect."""
    plain, reducing = strategy is None, [name for name, actions in PRESETS.items() if actions.reduce_source]
    mode, order = options.get("mode", "append"), options.get("dedup_order_by")
    without_effect = {
        "key_columns without a strategy": plain and key_columns is not None,
        "rewrite_mode='incremental' without a strategy": plain and rewrite_mode == "incremental",
        f"mode={mode!r} with a strategy": not plain and mode != "append",
        "partitions with a strategy": not plain and options.get("partitions") is not None,
        "dedup_order_by without strategy='deduplicate'": order is not None and strategy not in reducing,
        "replace without rewrite_mode='incremental'": options.get("replace") is not None and rewrite_mode == "full",
        "commit_log without a strategy": plain and options.get("commit_log") is not None,
    }
    for what, does_nothing in without_effect.items():
        if does_nothing:
            raise ArgumentError(f"{what} has no effect. Leave it out, or name the strategy that you mean.")


def file_name(argument: str, path: Any) -> str | None:
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ArgumentError(f"{argument} is the path of a file, not {path!r}.")
    return str(os.fspath(path))


def zone(options: Mapping[str, Any], argument: str) -> str | None:
    name = options.get(argument)
    return None if name is None else timezone(name, argument)


def partition_argument(partition_columns: Any, partition_by: Any) -> tuple[str, ...] | None:
    first = validate.column_names("partition_columns", partition_columns)
    second = validate.column_names("partition_by", partition_by)
    if first is not None and second is not None and first != second:
        raise ArgumentError(
            f"partition_columns={list(first)} and partition_by={list(second)} differ; pass only one of them."
        )
    return first if first is not None else second


def small_files(strategy: MergeStrategy, how: Any) -> Literal["new", "append"]:
    if how not in ("new", "append"):
        raise ArgumentError(f"Unknown small_files {how!r}. Choose 'new' or 'append'.")
    if how == "append" and strategy is not MergeStrategy.UPSERT:
        raise ArgumentError(f"small_files='append' needs strategy='upsert', not {strategy.value!r}.")
    return "append" if how == "append" else "new"


def compact_request(options: Mapping[str, Any]) -> CompactRequest:
    partitions = options.get("partitions")
    if partitions is not None and not (
        isinstance(partitions, (list, tuple)) and partitions and all(isinstance(p, Mapping) for p in partitions)
    ):
        raise ArgumentError(f'partitions is a list such as [{{"day": "2026-01-01"}}], not {partitions!r}.')
    return CompactRequest(
        target_size=validate.byte_size("target_size", options.get("target_size", defaults.TARGET_SIZE)),
        sort_by=validate.column_names("sort_by", options.get("sort_by")) or (),
        partitions=None if partitions is None else tuple(partitions),
        lock_timeout=timeout(options),
        on_progress=progress_callback(options),
        undoable=flag("undoable", options),
    )
