"""`merge_into`: a merge with the methods of Spark's `DataFrame.mergeInto`, for a directory of Parquet files.

A chain of calls becomes a MERGE statement, and is judged as one: see `datasets/clauses.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.reports import MergePlan, MergeResult
from fsspeckit.core.storage import Access
from fsspeckit.datasets.inputs import Path
from fsspeckit.datasets.options import ONLY_FOR_MERGES, SET_BY_STATEMENTS, AnyMergeOptions
from fsspeckit.datasets.scan import column_names

if TYPE_CHECKING:
    import pyspark.sql

    from fsspeckit.datasets.clauses import MergeCall
    from fsspeckit.datasets.spark.io import SparkDatasetIO

_NEEDS = "merge_into needs sqlglot, which is not installed. Run: pip install 'sqlglot>=29,<31'"


def merge_into(
    frame: pyspark.sql.DataFrame,
    path: Path | None = None,
    on: str | Sequence[str] = (),
    *,
    source: str = "s",
    target: str = "t",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[AnyMergeOptions],
) -> MergeInto:
    """Merge a Spark DataFrame into a directory of Parquet files, which must exist, with Spark's method names.

        merge_into(changes, "/lake/orders", on=["id"]) \\
            .whenMatched("s.op = 'D'").delete() \\
            .whenMatched().updateAll() \\
            .whenNotMatched("s.op IS DISTINCT FROM 'D'").insertAll() \\
            .merge()

    Conditions are SQL text. What is not exactly what a merge with some options does is refused, as in `fsspeckit.sql`
    (docs/sql.md).

    Args:
        frame: the source.
        path: the data set. Instead of it, `table` may name a Parquet table of Spark's catalog.
        on: the key columns, or a condition such as `"t.id = s.id"`.
        source, target: the names of source and target in conditions.
        filesystem, storage_options, options: as in `fsspeckit.merge`. With `must_exist=False`, a missing data set is
            created.
    """
    return MergeInto(frame, path, on, source, target, filesystem, storage_options, options)


@dataclass(frozen=True)
class MergeInto:
    """A merge that is described clause by clause. The first clause that applies to a row decides."""

    frame: Any = field(repr=False)
    path: Path | None
    on: str | Sequence[str]
    source: str = "s"
    target: str = "t"
    filesystem: Any = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    clauses: tuple[str, ...] = ()

    def whenMatched(self, condition: str | None = None) -> WhenMatched:
        """For rows whose key the target has."""
        return WhenMatched(self, "MATCHED", condition)

    def whenNotMatched(self, condition: str | None = None) -> WhenNotMatched:
        """For source rows whose key the target does not have."""
        return WhenNotMatched(self, "NOT MATCHED", condition)

    def whenNotMatchedBySource(self, condition: str | None = None) -> WhenMatched:
        """For target rows whose key the source does not have. They can only be deleted, without a condition."""
        return WhenMatched(self, "NOT MATCHED BY SOURCE", condition)

    def withSchemaEvolution(self) -> MergeInto:
        """Add new columns of the source to the target: `on_schema_change="evolve"`."""
        return replace(self, options={**self.options, "on_schema_change": "evolve"})

    def merge(self) -> MergeResult:
        call, io = self._call()
        return io.merge(self.frame, self.path, call.strategy, list(call.key_columns), **self._options(call))

    def plan(self) -> MergePlan:
        """What `merge` would do. Nothing is changed."""
        call, io = self._call()
        options = {name: value for name, value in self._options(call).items() if name not in ONLY_FOR_MERGES}
        return io.plan(self.frame, self.path, call.strategy, list(call.key_columns), **options)

    @property
    def sql(self) -> str:
        """The same merge as a statement."""
        place = self.options.get("table") if self.path is None else self.path
        names = f"{_quoted(str(place))} AS {_quoted(self.target)} USING source AS {_quoted(self.source)}"
        return " ".join([f"MERGE INTO {names} ON {self._condition()}", *self.clauses])

    def _condition(self) -> str:
        if isinstance(self.on, str) and "=" in self.on:
            return checked_condition(self.on)
        names = [self.on] if isinstance(self.on, str) else list(self.on)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ArgumentError(f"on takes key columns, such as on=['id'], or a condition as text, not {self.on!r}.")
        target, source = _quoted(self.target), _quoted(self.source)
        return " AND ".join(f"{target}.{_quoted(name)} = {source}.{_quoted(name)}" for name in names)

    def _call(self) -> tuple[MergeCall, SparkDatasetIO]:
        try:
            from fsspeckit.datasets.clauses import check_inserted
            from fsspeckit.datasets.sql_text import MergeStatement, parse_statement
        except ModuleNotFoundError as error:
            if error.name != "sqlglot":
                raise
            raise ArgumentError(_NEEDS) from None
        from fsspeckit.datasets.spark.io import SparkDatasetIO

        if not self.clauses:
            raise ArgumentError("The merge has no clause. Add one, such as whenMatched().updateAll().")
        statement = parse_statement(self.sql)
        assert isinstance(statement, MergeStatement)
        repeated = [name for name in self.options if name in SET_BY_STATEMENTS]
        if repeated:
            raise ArgumentError(f"The clauses say {', '.join(repeated)} themselves. Leave it out of the arguments.")
        access = Access(self.filesystem, self.storage_options)
        io = SparkDatasetIO(
            getattr(self.frame, "sparkSession", None), self.filesystem, storage_options=self.storage_options
        )
        if statement.call.insert_columns is not None:
            path = self.path
            check_inserted(
                statement.call,
                list(self.frame.columns),
                lambda: (
                    column_names(access.locate(path))
                    if path is not None
                    else io.spark.table(self.options["table"]).columns
                ),
            )
        return statement.call, io

    def _options(self, call: MergeCall) -> dict[str, Any]:
        return {"must_exist": True, **self.options, **call.options}


@dataclass(frozen=True)
class _When:
    writer: MergeInto
    kind: Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]
    condition: str | None

    def _then(self, action: str) -> MergeInto:
        condition = "" if self.condition is None else f" AND ({checked_condition(self.condition)})"
        return replace(self.writer, clauses=(*self.writer.clauses, f"WHEN {self.kind}{condition} THEN {action}"))


class WhenMatched(_When):
    """What happens to rows of the target."""

    def updateAll(self) -> MergeInto:
        """Replace all columns by those of the source, by name."""
        return self._then("UPDATE SET *")

    def update(self, assignments: Mapping[str, str]) -> MergeInto:
        """Replace some columns: `update({"status": "s.status"})`."""
        columns = _assignments(self.writer, assignments)
        return self._then("UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in columns))

    def delete(self) -> MergeInto:
        return self._then("DELETE")


class WhenNotMatched(_When):
    """What happens to source rows that the target does not have."""

    def insertAll(self) -> MergeInto:
        """Insert all columns, by name."""
        return self._then("INSERT *")

    def insert(self, assignments: Mapping[str, str]) -> MergeInto:
        """Insert these columns, which must be all that the source has: `insert({"id": "s.id", "n": "s.n"})`."""
        columns = _assignments(self.writer, assignments)
        names, values = ", ".join(name for name, _ in columns), ", ".join(value for _, value in columns)
        return self._then(f"INSERT ({names}) VALUES ({values})")


def _assignments(writer: MergeInto, assignments: Mapping[str, str]) -> list[tuple[str, str]]:
    if not isinstance(assignments, Mapping) or not assignments:
        raise ArgumentError(
            f"Assignments are a dictionary of columns, such as {{'n': '{writer.source}.n'}}, not {assignments!r}."
        )
    prefix = f"{writer.target}."
    return [(_quoted(name.removeprefix(prefix)), checked_condition(value)) for name, value in assignments.items()]


def checked_condition(text: Any) -> str:
    """SQL text that is one expression, so that it cannot end the clause that it is in."""
    from sqlglot import errors, parse_one

    from fsspeckit.datasets.conditions import Dialect, first_line

    if not isinstance(text, str):
        raise ArgumentError(f"Conditions and values are SQL text such as \"s.op = 'D'\", not {type(text).__name__}.")
    try:
        parse_one(f"SELECT ({text})", read=Dialect)
        parse_one(text, read=Dialect)
    except errors.SqlglotError as error:
        raise ArgumentError(f"{text!r} is not understood: {first_line(error)}") from None
    return text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
