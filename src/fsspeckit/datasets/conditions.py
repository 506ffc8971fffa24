"""Conditions of MERGE clauses: what they say of each kind of row that they can tell apart.

A condition compares a column of the source with literals (which rows delete), and a column of the source with the same
column of the target (which row is newer). So there are few kinds of rows: one for each literal, any other value and
null, times less, equal, greater and null in the target. `Case` is one of them, and `Test` is a condition's value for
it in SQL's logic: `True`, `False`, or `None` for unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from sqlglot import errors, exp, parse_one
from sqlglot.dialects.duckdb import DuckDB

from fsspeckit.core.errors import ArgumentError


class Dialect(DuckDB):  # type: ignore[misc]
    """DuckDB's SQL, with names in backticks too."""

    class Tokenizer(DuckDB.Tokenizer):  # type: ignore[misc]
        IDENTIFIERS: ClassVar[list[str]] = ['"', "`"]


class _Other:
    """A value that no condition names."""


OTHER = _Other()
ORDERS = ("greater", "equal", "less", "null")
_SIGNS = {"greater": ">", "equal": "=", "less": "<"}
_HOLDS: dict[type[Any], tuple[str, ...]] = {
    exp.GT: ("greater",),
    exp.GTE: ("greater", "equal"),
    exp.LT: ("less",),
    exp.LTE: ("less", "equal"),
    exp.EQ: ("equal",),
    exp.NEQ: ("less", "greater"),
    exp.NullSafeEQ: ("equal",),
    exp.NullSafeNEQ: ("less", "greater", "null"),
}
_FLIPPED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
_NULL_SAFE = (exp.NullSafeEQ, exp.NullSafeNEQ)
_ADVICE = (
    "Conditions compare a column of the source with literals (s.op = 'D'), or the source's sequence with the target's "
    "(t.ts IS NULL OR s.ts >= t.ts)"
)


@dataclass(frozen=True)
class Case:
    """A kind of row: the value of the source's delete column, and how its sequence compares with the target's."""

    mark: Any
    order: dict[str, str]


Test = Callable[[Case], bool | None]


def show(node: Any) -> str:
    return str(node.sql(dialect=Dialect, unsupported_level=errors.ErrorLevel.IGNORE))


@dataclass(frozen=True)
class Column:
    of_source: bool
    name: str


class Conditions:
    """The conditions of one statement, and the columns and literals that they name.

    >>> conditions = Conditions("s", "t")
    >>> test = conditions.parse("s.op = 'D' AND (t.ts IS NULL OR s.ts >= t.ts)")
    >>> [test(case) for case in conditions.cases() if case.mark == "D"]
    [True, True, False, True]
    """

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.ordered: dict[str, None] = {}
        self._literals: dict[str, list[Any]] = {}

    @property
    def mark(self) -> str | None:
        """The column of the source that is compared with literals."""
        return next(iter(self._literals), None)

    @property
    def literals(self) -> list[Any]:
        return [] if self.mark is None else self._literals[self.mark]

    def marks(self) -> list[Any]:
        if self.mark is None:
            return [OTHER]
        if all(isinstance(value, bool) for value in self.literals) and self.literals:
            return [True, False, None]
        return [*self.literals, OTHER, None]

    def cases(self) -> Iterator[Case]:
        for mark, *orders in product(self.marks(), *[ORDERS] * len(self.ordered)):
            yield Case(mark, dict(zip(self.ordered, orders)))

    def describe(self, case: Case, *, matched: bool) -> str:
        """A kind of row, in words of SQL."""
        parts = []
        if self.mark is not None:
            name, listed = f"{self.source}.{self.mark}", ", ".join(map(literal_text, self.literals))
            if case.mark is OTHER:
                parts.append(f"{name} is not null and not {listed}" if listed else f"{name} is not null")
            else:
                parts.append(f"{name} is null" if case.mark is None else f"{name} is {literal_text(case.mark)}")
        for column, order in case.order.items() if matched else ():
            target = f"{self.target}.{column}"
            is_null = order == "null"
            parts.append(f"{target} is null" if is_null else f"{self.source}.{column} {_SIGNS[order]} {target}")
        return " and ".join(parts)

    def parse(self, text: str) -> Test:
        """A condition as text."""
        try:
            return self.compile(parse_one(text, read=Dialect))
        except errors.SqlglotError as error:
            raise ArgumentError(f"{text!r} is not a condition in SQL: {first_line(error)}") from None

    def compile(self, node: Any) -> Test:
        node_type = type(node)
        if node_type is exp.Paren:
            return self.compile(node.this)
        if node_type is exp.Not:
            inner = self.compile(node.this)
            return lambda case: None if (value := inner(case)) is None else not value
        if node_type in (exp.And, exp.Or):
            sides, decides = (self.compile(node.left), self.compile(node.right)), node_type is exp.Or
            return lambda case: _either([side(case) for side in sides], decides)
        if node_type is exp.Boolean:
            return lambda case: bool(node.this)
        if node_type is exp.Column:
            return self._is_one_of(node, [True], node)
        if node_type is exp.In and not node.args.get("query") and not node.args.get("unnest"):
            return self._is_one_of(node.this, [literal(value) for value in node.expressions], node)
        if node_type is exp.Is:
            return self._is(node)
        if node_type in _HOLDS:
            return self._comparison(node, node_type)
        raise self._unknown(node)

    def _is(self, node: Any) -> Test:
        column = self.column(node.this)
        if isinstance(node.expression, exp.Boolean):
            equal = self._is_one_of(node.this, [bool(node.expression.this)], node)
            return lambda case: bool(equal(case))
        if column is None or not isinstance(node.expression, exp.Null):
            raise self._unknown(node)
        if column.of_source:
            self._name_mark(column.name, [], node)
            return lambda case: case.mark is None
        self.ordered[column.name] = None
        return lambda case: case.order[column.name] == "null"

    def _comparison(self, node: Any, node_type: type[Any]) -> Test:
        left, right = self.column(node.left), self.column(node.right)
        if left is not None and right is not None:
            if left.name != right.name or left.of_source == right.of_source:
                raise self._unknown(node, "it compares different columns")
            holds = _HOLDS[node_type if left.of_source else _FLIPPED.get(node_type, node_type)]
            self.ordered[left.name] = None
            return lambda case: (
                None
                if case.order[left.name] == "null" and node_type not in _NULL_SAFE
                else case.order[left.name] in holds
            )
        if node_type not in (exp.EQ, exp.NEQ, *_NULL_SAFE) or (left is None) == (right is None):
            raise self._unknown(node)
        column, value = (node.left, node.right) if left is not None else (node.right, node.left)
        equal = self._is_one_of(column, [literal(value)], node)
        if node_type in _NULL_SAFE:
            return lambda case: bool(equal(case)) == (node_type is exp.NullSafeEQ)
        return equal if node_type is exp.EQ else lambda case: None if (same := equal(case)) is None else not same

    def _is_one_of(self, node: Any, values: list[Any], whole: Any) -> Test:
        column = self.column(node)
        if column is None or any(value is None for value in values):
            raise self._unknown(whole)
        if not column.of_source:
            raise self._unknown(whole, "it depends on a value of the target")
        self._name_mark(column.name, values, whole)
        return lambda case: None if case.mark is None else case.mark in values

    def _name_mark(self, name: str, values: list[Any], node: Any) -> None:
        literals = self._literals.setdefault(name, [])
        if len(self._literals) > 1:
            raise self._unknown(node, f"only one column may say which rows delete, and {self.mark!r} does already")
        literals += [value for value in values if value not in literals]
        if len({type(value) for value in literals}) > 1:
            raise self._unknown(node, f"column {name!r} is compared with values of different types")

    def column(self, node: Any) -> Column | None:
        """`s.op` or `t.ts`; `None` if it is something else. A name without a table is refused."""
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        table = node.table.casefold()
        if node.args.get("db") or table not in (self.source.casefold(), self.target.casefold()):
            raise ArgumentError(
                f"{show(node)!r} is a column of neither {self.source} (the source) nor {self.target} (the target). "
                f"Write {self.source}.{node.name} or {self.target}.{node.name}; text is in single quotes."
            )
        return Column(table == self.source.casefold(), node.name)

    def _unknown(self, node: Any, why: str = "") -> ArgumentError:
        message = f"{show(node)}: {why}" if why else f"No option of a merge expresses {show(node)}"
        return ArgumentError(f"{message}. {_ADVICE}.")


def _either(values: list[bool | None], decides: bool) -> bool | None:
    """AND, which `False` decides, or OR, which `True` decides, in SQL's logic."""
    if decides in values:
        return decides
    return None if None in values else not decides


def literal(node: Any) -> Any:
    """The value of a text, an integer or a Boolean; `None` for anything else."""
    if isinstance(node, exp.Paren):
        return literal(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        value = literal(node.this)
        return -value if type(value) is int else None
    if type(node) is not exp.Literal:
        return None
    if node.is_string:
        return str(node.this)
    return int(node.this) if str(node.this).isdecimal() and len(str(node.this)) < 19 else None


def literal_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def first_line(error: Exception) -> str:
    """sqlglot's message without its terminal codes and tokens."""
    described = getattr(error, "errors", None) or [{}]
    if "<class" in str(error):  # sqlglot's own objects
        return "it is not complete, or has something between USING and ON."
    description, line, column = (described[0].get(name) for name in ("description", "line", "col"))
    where = f" (line {line}, column {column})" if line is not None else ""
    message, _, _ = str(description or str(error).splitlines()[0]).partition(" but got <Token")
    return f"{message.rstrip('.')}{where}."
