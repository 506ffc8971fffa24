"""`fsspeckit.sql` and its plan: MERGE and DELETE statements as calls of `merge` and `delete`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.api import dataset_io, engine_for
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.progress import OnProgress
from fsspeckit.core.reports import MergePlan, MergeResult
from fsspeckit.core.storage import Access
from fsspeckit.core.suggestions import did_you_mean
from fsspeckit.datasets.inputs import source_columns
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.options import (
    ONLY_FOR_MERGES,
    SET_BY_STATEMENTS,
    AnyMergeOptions,
    DeleteOptions,
    check_known,
)
from fsspeckit.datasets.scan import column_names

if TYPE_CHECKING:
    from fsspeckit.datasets.sql_text import DeleteStatement, MergeStatement


def sql(statement: str, /, **arguments: Any) -> MergeResult:
    """Run a MERGE or DELETE statement on a directory of Parquet files, which must exist.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2], "status": ["new", "new"]})
    >>> _ = fsspeckit.merge(orders, "memory://sql/orders", key_columns=["id"])
    >>> result = fsspeckit.sql('''
    ...     MERGE INTO 'memory://sql/orders' t USING changes s ON t.id = s.id
    ...     WHEN MATCHED AND s.op = 'D' THEN DELETE
    ...     WHEN MATCHED THEN UPDATE SET *
    ...     WHEN NOT MATCHED AND s.op IS DISTINCT FROM 'D' THEN INSERT *
    ... ''', changes=pa.table({"id": [1, 2], "status": ["paid", None], "op": ["U", "D"]}))
    >>> result.updated, result.deleted
    (1, 1)

    Only statements that mean exactly what a merge with some options does are run (docs/sql.md). Others are refused,
    with the clause that has no option. Columns are matched by name, and names keep their case.

    Args:
        statement: one MERGE INTO or DELETE FROM. The target is a path in quotes.
        arguments: the source, under the name that the statement gives it (`USING changes s`: `changes=…`), and options
            of `merge` or `delete` that the statement does not express, such as `engine`, `storage_options`,
            `on_duplicates`, `on_move` and `undoable`. With `must_exist=False`, a MERGE creates a missing target.

    Raises:
        ArgumentError: the statement is refused. Nothing was changed.
    """
    call, io = _prepared("sql", statement, arguments)
    return call.run(io)


def plan_sql(statement: str, /, **arguments: Any) -> MergePlan:
    """Describe what `sql` would do, file by file and with exact counts, and change nothing. The arguments are the same.

    >>> import fsspeckit, pyarrow as pa
    >>> _ = fsspeckit.merge(pa.table({"id": [1, 2]}), "memory://plan_sql/orders", key_columns=["id"])
    >>> fsspeckit.plan_sql("DELETE FROM 'memory://plan_sql/orders' WHERE id >= 2").deleted
    1
    """
    call, io = _prepared("plan_sql", statement, arguments)
    return call.plan(io)


@dataclass(frozen=True)
class Call:
    """The call of `merge` or `delete` that a statement stands for."""

    verb: Literal["merge", "delete"]
    target: str
    data: Any
    arguments: dict[str, Any]

    def watched(self, on_progress: OnProgress) -> Call:
        """The same call, which reports its progress."""
        return replace(self, arguments={**self.arguments, "on_progress": on_progress})

    def run(self, io: DatasetIO[Any]) -> MergeResult:
        if self.verb == "delete":
            return io.delete(self.target, **self.arguments)
        return io.merge(self.data, self.target, **self.arguments)

    def plan(self, io: DatasetIO[Any]) -> MergePlan:
        if self.verb == "delete":
            return io.plan_delete(self.target, **self.arguments)
        planned = {name: value for name, value in self.arguments.items() if name not in ONLY_FOR_MERGES}
        return io.plan(self.data, self.target, **planned)


def parsed(statement: str) -> MergeStatement | DeleteStatement:
    """The statement; `ArgumentError` if sqlglot is not installed."""
    try:
        from fsspeckit.datasets.sql_text import parse_statement
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise ArgumentError("SQL needs sqlglot, which is not installed. Run: pip install 'sqlglot>=29,<31'") from None
    return parse_statement(statement)


def call_of(statement: MergeStatement | DeleteStatement, data: Any, options: Mapping[str, Any], access: Access) -> Call:
    """The call. The target of a MERGE must exist, as in SQL, and the columns of INSERT must fit those of the source."""
    from fsspeckit.datasets.clauses import check_inserted
    from fsspeckit.datasets.sql_text import DeleteStatement

    if isinstance(statement, DeleteStatement):
        return Call("delete", statement.target, None, {"filters": statement.filters, **options})
    merge = statement.call
    if merge.insert_columns is not None:
        data, names = source_columns(data, access)
        check_inserted(merge, names, lambda: column_names(access.locate(statement.target)))
    arguments = {"strategy": merge.strategy, "key_columns": list(merge.key_columns), **merge.options}
    return Call("merge", statement.target, data, {**arguments, "must_exist": True, **options})


def _prepared(function: str, statement: str, arguments: Mapping[str, Any]) -> tuple[Call, DatasetIO[Any]]:
    read, options = parsed(statement), dict(arguments)
    data = _source(read, options)
    repeated = [name for name in SET_BY_STATEMENTS if name in options]
    if repeated:
        raise ArgumentError(
            f"The statement says {', '.join(repeated)} itself. Leave it out of the arguments of {function}."
        )
    engine, filesystem = options.pop("engine", None), options.pop("filesystem", None)
    storage_options = options.pop("storage_options", None)
    partitions = {name: options.pop(name) for name in ("partition_columns",) if name in options and data is not None}
    check_known(function, options, DeleteOptions if data is None else AnyMergeOptions)
    call = call_of(read, data, {**options, **partitions}, Access(filesystem, storage_options))
    return call, dataset_io(engine or engine_for(data), filesystem, storage_options)


def _source(statement: MergeStatement | DeleteStatement, arguments: dict[str, Any]) -> Any:
    """The source that the statement names, taken out of the arguments."""
    name = getattr(statement, "source", None)
    if name is None:
        return None
    if name in arguments:
        return arguments.pop(name)
    if getattr(statement, "source_is_path", False):
        return name
    hint = did_you_mean([name], list(arguments))
    raise ArgumentError(
        f"The statement's source {name!r} is missing. Pass it under this name: {name}=…, or write a path in quotes: "
        f"USING '{name}.parquet'.{hint}"
    )
