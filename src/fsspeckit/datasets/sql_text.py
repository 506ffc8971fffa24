"""MERGE and DELETE statements as the calls that do exactly the same, or a refusal that quotes what has no option."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import errors, exp, parse, tokenize
from sqlglot.tokens import TokenType

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.clauses import Action, Clause, Kind, MergeCall, merge_call
from fsspeckit.datasets.conditions import Conditions, Dialect, first_line, literal, show

Filters = list[list[tuple[str, str, Any]]]

_TOO_DEEP = "The statement has too many conditions. Write x IN (…) instead of many ORs, or delete by keys from a file."
_ONLY = "Write MERGE INTO or DELETE FROM."
_WAYS_OUT = {
    "insert": "Append rows by fsspeckit.write_dataset(data, path).",
    "update": "Give the new values as a source: MERGE INTO … WHEN MATCHED THEN UPDATE SET …",
    "select": "Read by fsspeckit.read(path), or with DuckDB: FROM read_parquet('…/**/*.parquet').",
    "create": "Create a data set by fsspeckit.write_dataset(data, path).",
    "truncate": "Remove all rows by fsspeckit.write_dataset(data, path, 'overwrite') with no rows.",
    "explain": "Call fsspeckit.plan_sql, or on the command line add --dry-run.",
    "copy": "Read and write by fsspeckit.read and fsspeckit.write_dataset.",
}
_OPERATORS = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAX_CONDITIONS = 100
# Words that mean the same, as expressions over tokens; BY TARGET is T-SQL's and BigQuery's, ALL BY NAME Snowflake's.
_SAME = (
    ("by target", ""),
    ("update all by name", "\0update\0\0set\0\0*\0"),
    ("insert all by name", "\0insert\0\0*\0"),
    (r"cast \( ([^\0]*) as (date|timestamp) \)", "\0\\2\0\0\\1\0"),
)


@dataclass(frozen=True)
class MergeStatement:
    """`source` is the name of a source, or if `source_is_path` a path."""

    target: str
    source: str
    source_is_path: bool
    call: MergeCall


@dataclass(frozen=True)
class DeleteStatement:
    target: str
    filters: Filters


def parse_statement(text: str) -> MergeStatement | DeleteStatement:
    """One MERGE or DELETE.

    >>> statement = parse_statement("MERGE INTO 'lake' t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    >>> statement.target, statement.source, statement.call.strategy, statement.call.key_columns
    ('lake', 'changes', 'update', ('id',))
    """
    if not isinstance(text, str):
        raise ArgumentError(f"The statement is text, not {type(text).__name__}.")
    if not text.strip():
        raise ArgumentError("The statement is empty. Write MERGE INTO or DELETE FROM.")
    try:
        first = next(map(_word, tokenize(text, read=Dialect)), "")
        if first not in ("merge", "delete", "with"):
            raise ArgumentError(f"{_first_words(text)!r} is not supported. {_WAYS_OUT.get(first, _ONLY)}")
        statements = [tree for tree in parse(text, read=Dialect) if tree is not None]
    except errors.SqlglotError as error:
        raise ArgumentError(f"The statement is not understood: {first_line(error)}{_hint(text)}") from None
    except RecursionError:
        raise ArgumentError(_TOO_DEEP) from None
    if len(statements) != 1:
        raise ArgumentError(f"Give one statement, not {len(statements)}.")
    tree = statements[0]
    if type(tree) not in (exp.Merge, exp.Delete):
        raise ArgumentError(f"{_first_words(text)!r} is not supported. {_ONLY}")
    try:
        statement = _merge(tree) if type(tree) is exp.Merge else _delete(tree)
    except ArgumentError as error:
        raise ArgumentError(f"{error}{_hint(text)}") from None
    except RecursionError:
        raise ArgumentError(_TOO_DEEP) from None
    _check_nothing_lost(text, tree)
    return statement


def _hint(text: str) -> str:
    words = " ".join(text.upper().split())
    if "WITH SCHEMA EVOLUTION" in words:
        return " Leave out WITH SCHEMA EVOLUTION, and pass on_schema_change='evolve'."
    if "BY NAME" in words or "BY POSITION" in words:
        return " Write UPDATE SET * and INSERT *: columns are always matched by name."
    return ""


def _first_words(text: str) -> str:
    return " ".join(text.split()[:2])


# -- MERGE


def _merge(tree: Any) -> MergeStatement:
    _check_parts(tree, ("this", "using", "on", "using_cond", "whens"), "MERGE")
    target, target_name, quoted = _table(tree.this, "INTO")
    if not quoted:
        raise ArgumentError(
            f"The target {target!r} is not in quotes. Write a path: MERGE INTO '{target}'. A table of Spark's catalog: "
            f"fsspeckit.merge(…, table={target!r})."
        )
    if isinstance(tree.args["using"], exp.Subquery):
        raise ArgumentError(
            f"Refused: USING {show(tree.args['using'])}. Give the rows of the query under a name: USING changes s …, "
            "changes=duckdb.sql('SELECT …')."
        )
    source, source_name, is_path = _table(tree.args["using"], "USING")
    if not is_path and "." in source:
        raise ArgumentError(f"Refused: USING {source}. Give the source a plain name, and its rows under it: changes=…")
    if target_name.casefold() == source_name.casefold():
        raise ArgumentError(
            f"Target and source are both called {source_name}. Give them different names: … t USING … s."
        )
    conditions = Conditions(source_name, target_name)
    keys = _keys(tree, conditions)
    clauses = [_clause(when, conditions) for when in tree.args["whens"].expressions]
    return MergeStatement(target, source, is_path, merge_call(keys, clauses, conditions))


def _check_parts(node: Any, allowed: Sequence[str], where: str) -> None:
    """Refuse whatever else sqlglot found, such as RETURNING."""
    for name, part in node.args.items():
        if part and name not in allowed:
            shown = show(part) if isinstance(part, exp.Expression) else name
            raise ArgumentError(f"{where} has {shown}, which no option stands for. Leave it out.")


def _table(node: Any, where: str) -> tuple[str, str, bool]:
    """The path or name of a table, the name by which columns refer to it, and whether it is in quotes."""
    if type(node) is not exp.Table or not isinstance(node.this, exp.Identifier):
        raise ArgumentError(f"Refused: {where} {show(node)}. Write a path in quotes, or the name of a source.")
    _check_parts(node, ("this", "alias", "db", "catalog"), where)
    alias = node.args.get("alias")
    if alias is not None:
        _check_parts(alias, ("this",), where)
    if node.db and (node.db.casefold() != "parquet" or not node.this.quoted):
        if node.db.casefold() in ("delta", "iceberg"):
            raise ArgumentError(
                f"Refused: {where} {show(node)}. fsspeckit writes plain Parquet; use {node.db}'s own MERGE."
            )
        return ".".join(part.name for part in node.parts), node.alias or node.name, False
    return node.name, node.alias or node.name, bool(node.this.quoted)


def _keys(tree: Any, conditions: Conditions) -> list[str]:
    if tree.args.get("using_cond"):
        return [str(name.name) for name in tree.args["using_cond"]]
    on = tree.args.get("on")
    if not on:
        raise ArgumentError("MERGE has no ON. Name the key columns: ON t.id = s.id.")
    keys = []
    for part in _all_of(on, exp.And):
        is_equality = type(part) in (exp.EQ, exp.NullSafeEQ)
        sides = (conditions.column(part.left), conditions.column(part.right)) if is_equality else ()
        if len(sides) != 2 or None in sides or sides[0].of_source == sides[1].of_source:  # type: ignore[union-attr]
            raise ArgumentError(
                f"Refused: ON … {show(part)}. ON compares the key columns: t.id = s.id AND t.day = s.day. Conditions "
                "that only narrow the search are not needed: files are skipped by their statistics. Leave it out."
            )
        names_of_sides = [side.name for side in sides if side is not None]
        if names_of_sides[0] != names_of_sides[1]:
            raise ArgumentError(
                f"Refused: ON … {show(part)}. Key columns have the same name in source and target, also in upper and "
                "lower case. Rename the source's column."
            )
        keys.append(names_of_sides[0])
    return list(dict.fromkeys(keys))


def _all_of(node: Any, connective: type[Any]) -> Iterator[Any]:
    """The parts of an AND or OR, in any parentheses."""
    while type(node) is exp.Paren:
        node = node.this
    if type(node) is connective:
        yield from _all_of(node.left, connective)
        yield from _all_of(node.right, connective)
    else:
        yield node


def _clause(when: Any, conditions: Conditions) -> Clause:
    text, then = show(when), when.args["then"]
    kind: Kind = "matched" if when.args["matched"] else "missing" if when.args.get("source") else "new"
    condition = when.args.get("condition")
    try:
        test = None if condition is None or kind == "missing" else conditions.compile(condition)
        if kind == "missing" and condition is not None:
            test = lambda case: None  # noqa: E731  any condition is refused
        action, columns = _action(then, kind, conditions)
    except ArgumentError as error:
        raise ArgumentError(f"Refused: {text}. {error}") from None
    return Clause(kind, test, action, text, columns)


def _action(then: Any, kind: Kind, conditions: Conditions) -> tuple[Action, tuple[str, ...] | None]:
    if isinstance(then, exp.Var) and then.name.upper() in ("DELETE", "DO NOTHING"):
        return ("delete" if then.name.upper() == "DELETE" else "nothing"), None
    if type(then) is exp.Update:
        _check_parts(then, ("expressions",), "UPDATE")
        if len(then.expressions) == 1 and _is_star(then.expressions[0]):
            return "update", None
        if then.expressions and kind != "missing":
            return "update", _unique([_assigned(part, conditions) for part in then.expressions], "SET")
        if kind == "missing":
            return "update", None
    if type(then) is exp.Insert:
        _check_parts(then, ("this", "expression"), "INSERT")
        if _is_star(then.this) and not then.expression:
            return "insert", None
        if isinstance(then.this, exp.Tuple) and isinstance(then.expression, exp.Tuple):
            return "insert", _inserted(then.this.expressions, then.expression.expressions, conditions)
    raise ArgumentError(
        f"Write THEN UPDATE SET *, UPDATE SET x = {conditions.source}.x, INSERT *, INSERT (id, x) VALUES "
        f"({conditions.source}.id, {conditions.source}.x), or DELETE."
    )


def _is_star(node: Any) -> bool:
    """`*`, and not `* EXCEPT (x)`."""
    return isinstance(node, exp.Star) and not any(node.args.values())


def _assigned(part: Any, conditions: Conditions) -> str:
    """`x` of `x = s.x` or `t.x = s.x`."""
    if type(part) is exp.EQ and isinstance(part.left, exp.Column):
        name, value = part.left.name, conditions.column(part.right)
        if _of_target(part.left, conditions) and value is not None and value.of_source and value.name == name:
            return str(name)
    raise ArgumentError(
        f"In SET {show(part)}: a column takes the value of the source's column of the same name: "
        f"x = {conditions.source}.x. Compute values in the source, and rename its columns."
    )


def _of_target(column: Any, conditions: Conditions) -> bool:
    if isinstance(column, exp.Identifier):
        return True
    return column.table.casefold() in ("", conditions.target.casefold()) and not column.args.get("db")


def _inserted(columns: Sequence[Any], values: Sequence[Any], conditions: Conditions) -> tuple[str, ...]:
    for column in columns:
        if not isinstance(column, (exp.Column, exp.Identifier)) or not _of_target(column, conditions):
            raise ArgumentError(f"INSERT ({show(column)} …) is not a column of the target. Write names only.")
    names = [column.name for column in columns]
    for number, value in enumerate(values):
        column = conditions.column(value)
        if column is None or not column.of_source or number >= len(names) or column.name != names[number]:
            raise ArgumentError(
                f"In VALUES (… {show(value)} …): a column takes the value of the source's column of the same "
                "name. Compute values in the source, and rename its columns."
            )
    if len(values) != len(names):
        raise ArgumentError(f"INSERT names {len(names)} columns and {len(values)} values.")
    return _unique(names, "INSERT")


def _unique(names: Sequence[str], where: str) -> tuple[str, ...]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ArgumentError(f"{where} names {', '.join(repeated)} more than once.")
    return tuple(names)


# -- DELETE


def _delete(tree: Any) -> DeleteStatement:
    _check_parts(tree, ("this", "where"), "DELETE")
    target, name, quoted = _table(tree.this, "FROM")
    if not quoted:
        raise ArgumentError(f"The target {target!r} is not in quotes. Write a path: DELETE FROM '{target}'.")
    if tree.args.get("where") is None:
        raise ArgumentError(
            "DELETE without WHERE would remove all rows. Write a condition, or call fsspeckit.write_dataset(data, "
            "path, 'overwrite') with no rows."
        )
    return DeleteStatement(target, _any_of(tree.args["where"].this, name))


def _any_of(node: Any, table: str) -> Filters:
    """A condition as lists of conditions, of which one list must hold."""
    while type(node) is exp.Paren:
        node = node.this
    if type(node) is exp.Or:
        return [*_any_of(node.left, table), *_any_of(node.right, table)]
    if type(node) is exp.And:
        left, right = _any_of(node.left, table), _any_of(node.right, table)
        if len(left) * len(right) > _MAX_CONDITIONS:
            raise ArgumentError("Refused: WHERE has too many combinations of AND and OR. Delete in several statements.")
        return [[*one, *other] for one in left for other in right]
    return [_comparison(node, table)]


def _comparison(node: Any, table: str) -> list[tuple[str, str, Any]]:
    inner, negated = (node.this, True) if type(node) is exp.Not else (node, False)
    while negated and type(inner) is exp.Paren:
        inner = inner.this
    if type(inner) is exp.In and inner.expressions:
        column, values = _column(inner.this, table), [_value(value) for value in inner.expressions]
        if column is not None and None not in values:
            return [(column, "not in" if negated else "in", values)]
    if type(node) is exp.Between:
        column, low, high = _column(node.this, table), _value(node.args["low"]), _value(node.args["high"])
        if column is not None and low is not None and high is not None and not node.args.get("symmetric"):
            return [(column, ">=", low), (column, "<=", high)]
    if type(node) in _OPERATORS:
        sign = _OPERATORS[type(node)]
        for left, right, operator in ((node.left, node.right, sign), (node.right, node.left, _FLIPPED.get(sign, sign))):
            column, value = _column(left, table), _value(right)
            if column is not None and value is not None:
                return [(column, operator, value)]
    raise ArgumentError(
        f"Refused: WHERE … {show(node)}. Conditions compare a column with a text, an integer, TRUE, FALSE, DATE '…' "
        "or TIMESTAMP '…', by =, <>, <, <=, >, >=, BETWEEN, IN or NOT IN. Other values: fsspeckit.delete(path, "
        "filters=…); other conditions: select the keys, and call fsspeckit.delete(path, keys, key_columns)."
    )


def _column(node: Any, table: str) -> str | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("db"):
        return None
    return str(node.name) if node.table.casefold() in ("", table.casefold()) else None


def _value(node: Any) -> Any:
    if type(node) is not exp.Cast or type(node.this) is not exp.Literal or not node.this.is_string:
        return literal(node)
    type_name, text = node.to.sql(dialect=Dialect), str(node.this.this)
    try:
        if type_name == "DATE":
            return dt.date.fromisoformat(text)
        if type_name == "TIMESTAMP" and (parsed := dt.datetime.fromisoformat(text)).tzinfo is None:
            return parsed
    except ValueError:
        pass
    return None


# -- nothing is lost


def _check_nothing_lost(text: str, tree: Any) -> None:
    """sqlglot drops or misreads some words without an error, such as those of DuckDB's INSERT BY NAME."""
    words, read_words = _words(text), _words(show(tree))
    if words == read_words:
        return
    lost = next((a for a, b in zip(words[0], read_words[0]) if a != b), words[0][-1])
    raise ArgumentError(
        f"The statement would be read as another one, from {lost!r} on: {show(tree)}. Write that, if you mean it."
        f"{_hint(text)}"
    )


def _words(text: str) -> tuple[list[str], int]:
    """The tokens, without spelling that has no meaning. NOT is only counted: `x NOT IN` is written `NOT x IN`."""
    joined = "".join(f"\0{word}\0" for word in map(_word, tokenize(text, read=Dialect)))
    for spelling, same in _SAME:
        joined = re.sub(spelling.replace(" ", "\0\0").join("\0\0"), same, joined)
    words = joined.strip("\0").split("\0\0")
    return [word for word in words if word not in ("not", "as", ";")], words.count("not")


def _word(token: Any) -> str:
    if token.token_type is TokenType.STRING:
        return str(token.text)
    text = str(token.text).casefold()
    return {"!=": "<>", "==": "="}.get(text, text)
