"""The options about single rows: their values, and which of them fit which strategy and each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pyarrow as pa

from fsspeckit.core import validate
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergeStrategy, RowOptions
from fsspeckit.datasets.options import RowChangeOptions, Strategy

OPTIONS = tuple(RowChangeOptions.__annotations__)
_NEVER_CHANGES = "insert never changes rows that exist"
_KEYS_ONLY = "delete removes whole rows by their key"
REFUSED: Mapping[tuple[str, str], str] = {
    ("delete_column", "insert"): _NEVER_CHANGES,
    ("delete_column", "delete"): "with delete, every row of the source deletes",
    ("delete_values", "insert"): _NEVER_CHANGES,
    ("delete_values", "delete"): "with delete, every row of the source deletes",
    ("sequence_by", "insert"): f"{_NEVER_CHANGES}; only on_duplicates='latest' gives it a meaning",
    ("update_columns", "insert"): _NEVER_CHANGES,
    ("update_columns", "delete"): _KEYS_ONLY,
    ("exclude_columns", "insert"): _NEVER_CHANGES,
    ("exclude_columns", "delete"): _KEYS_ONLY,
    ("delete_missing", "insert"): _NEVER_CHANGES,
    ("delete_missing", "delete"): _KEYS_ONLY,
    ("on_move", "insert"): "insert skips keys that exist in any partition",
    ("on_move", "delete"): "a delete finds its row in every partition",
}
"""Options that have no meaning with a strategy, and why."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two options that do not go together, or an option that needs another one."""

    option: str
    other: str
    reason: str
    needs: bool = False


CONFLICTS = (
    Conflict("delete_values", "delete_column", "they are the values of that column that mean delete", needs=True),
    Conflict("on_duplicates", "sequence_by", "it decides which row is the latest", needs=True),
    Conflict("exclude_columns", "update_columns", "one is the complement of the other"),
    Conflict("on_move", "update_columns", "a row that moves is written whole"),
    Conflict("on_move", "exclude_columns", "a row that moves is written whole"),
    Conflict("delete_missing", "batch", "a batch of a stream is never all of the data"),
)


def row_arguments(strategy: MergeStrategy, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Request` for the options about rows; refuses what does not go together."""
    on_duplicates = _choice(options, "on_duplicates", ("refuse", "latest")) or "refuse"
    on_move = _choice(options, "on_move", ("refuse", "move")) or "refuse"
    delete_missing = _choice(options, "delete_missing", ("all", "partitions"))
    _check_combination(strategy, options)
    return {
        "rows": RowOptions(
            delete_column=_name(options, "delete_column"),
            delete_values=_values(options.get("delete_values")),
            sequence_by=validate.column_names("sequence_by", options.get("sequence_by")) or (),
            update_columns=_columns(options, "update_columns"),
            exclude_columns=_columns(options, "exclude_columns"),
            only_keys=strategy is MergeStrategy.DELETE,
        ),
        "latest": on_duplicates == "latest",
        "delete_missing": delete_missing,
        "on_move": on_move,
    }


def _check_combination(strategy: MergeStrategy, options: Mapping[str, Any]) -> None:
    used = {name for name in (*OPTIONS, "batch") if _is_used(name, options.get(name))}
    for name in OPTIONS:
        reason = REFUSED.get((name, strategy.value))
        if name in used and reason and not (name == "sequence_by" and "on_duplicates" in used):
            raise ArgumentError(f"{name} cannot be used with strategy={strategy.value!r}: {reason}. Leave it out.")
    for conflict in CONFLICTS:
        if conflict.option in used and (conflict.other in used) != conflict.needs:
            verb = "needs" if conflict.needs else "cannot be used with"
            raise ArgumentError(f"{conflict.option} {verb} {conflict.other}: {conflict.reason}.")


def _is_used(name: str, value: Any) -> bool:
    """`refuse` is the default of two options, and asks for nothing."""
    return value is not None and not (name in ("on_duplicates", "on_move") and value == "refuse")


def _choice(options: Mapping[str, Any], name: str, choices: Sequence[str]) -> Any:
    value = options.get(name)
    if value is not None and value not in choices:
        raise ArgumentError(f"Unknown {name} {value!r}. Choose {' or '.join(map(repr, choices))}.")
    return value


def _name(options: Mapping[str, Any], option: str) -> str | None:
    value = options.get(option)
    if value is not None and not (isinstance(value, str) and value):
        raise ArgumentError(f"{option} takes the name of one column, not {value!r}.")
    return value


def _columns(options: Mapping[str, Any], option: str) -> tuple[str, ...] | None:
    names = validate.column_names(option, options.get(option))
    if names == ():
        raise ArgumentError(f"{option} names no column. Name some, or leave it out.")
    return names


def _values(values: Any) -> tuple[Any, ...] | None:
    if values is None:
        return None
    if isinstance(values, (str, bytes, bool, int, float)):
        values = [values]
    try:
        listed = tuple(values)
        pa.array(listed)
    except (TypeError, OverflowError, pa.ArrowException):
        raise ArgumentError(f"delete_values takes a list of values of one type, not {values!r}.") from None
    if not listed or any(value is None for value in listed):
        raise ArgumentError(f"delete_values takes at least one value and no null, not {list(listed)}.")
    return listed


def combination_table() -> str:
    """The table option × strategy in Markdown, for the documentation."""
    strategies = get_args(Strategy)
    lines = [f"| option | {' | '.join(f'`{s}`' for s in strategies)} |", "|---" * (len(strategies) + 1) + "|"]
    for name in OPTIONS:
        cells = [_cell(name, strategy) for strategy in strategies]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_conflict_lines()])


def _cell(name: str, strategy: str) -> str:
    reason = REFUSED.get((name, strategy))
    return "yes" if reason is None else f"refused: {reason}"


def _conflict_lines() -> Iterator[str]:
    for conflict in CONFLICTS:
        verb = "needs" if conflict.needs else "is refused with"
        yield f"- `{conflict.option}` {verb} `{conflict.other}`: {conflict.reason}."
