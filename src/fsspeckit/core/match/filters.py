"""Filters in PyArrow's form: conditions that select rows of the target.

`[("day", "<", "2025-01-01"), ("kind", "in", ["a", "b"])]` selects the rows for which both conditions hold; a list of
such lists selects the rows for which one of the lists holds. As in SQL, no condition holds for a null. NaN is equal to
NaN and greater than all other values, and text compares by code point, as keys do.
"""

from __future__ import annotations

import numbers
import posixpath
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.dataset.partitions import Unreadable, parse_hive_partition_path, read_value
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.match import filter_values
from fsspeckit.core.match.filter_values import Literal, NotComparable, NullValue, Value, rank
from fsspeckit.core.model import Target
from fsspeckit.core.suggestions import did_you_mean
from fsspeckit.core.values import arrays, keys
from fsspeckit.core.values.schema import in_target_case

_OPERATORS = {"=": "in", "==": "in", "!=": "not in", **{op: op for op in ("<", "<=", ">", ">=", "in", "not in")}}
_FAMILY_NAMES = {
    "number": "a number",
    "bool": "a Boolean",
    "date": "a date",
    "naive timestamp": "a time without a zone",
    "zoned timestamp": "a time with a zone",
    "time": "a time of day",
    "duration": "a duration",
}
_FORM = (
    'filters takes a list of tuples such as [("day", "<", "2025-01-01")], which must all hold, or a list of such '
    "lists, one of which must hold"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with literals.

    `operator` is `<`, `<=`, `>`, `>=`, `in` or `not in`. `literals` are sorted; only the last two take several.
    `dtype` is the column's plain type.
    """

    column: str
    operator: str
    literals: tuple[Literal, ...]
    dtype: pa.DataType

    def mask(self, column: Any) -> npt.NDArray[np.bool_]:
        """In which rows of a plain column does the condition hold?"""
        values = filter_values.comparable(column)
        if self.operator in ("in", "not in"):
            selected = filter_values.is_one_of(values, self.literals)
            if self.operator == "not in":
                selected = pc.and_(pc.invert(selected), pc.is_valid(values))
        else:
            selected = filter_values.is_below(values, self.literals[0], or_equal=self.operator in ("<=", ">"))
            if self.operator in (">", ">="):
                selected = pc.invert(selected)
        mask: npt.NDArray[np.bool_] = selected.fill_null(False).to_numpy(zero_copy_only=False)
        return mask

    def decide(self, lower: Any, upper: Any) -> tuple[bool, bool]:
        """Does the condition hold for some, and for every, value from `lower` to `upper`? They are order values.

        "Some" may be wrong if it is true, and "every" if it is false.
        """
        low, high, at = rank(lower), rank(upper), self.literals[0].rank
        if self.operator == "<":
            return low < at, high < at
        if self.operator == "<=":
            return low <= at, high <= at
        if self.operator == ">":
            return high > at, low > at
        if self.operator == ">=":
            return high >= at, low >= at
        start = bisect_left(self.literals, low, key=lambda literal: literal.rank)
        between = start < bisect_right(self.literals, high, key=lambda literal: literal.rank)
        if self.operator == "in":
            return between, between and low == high
        return not (between and low == high), not between


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter for one target: a row is selected if all conditions of one of the lists hold.

    The paths give the values of `partitions`; timestamps in folder names are in `zone`.
    """

    any_of: tuple[tuple[Condition, ...], ...]
    partitions: frozenset[str]
    zone: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(dict.fromkeys(condition.column for condition in self.conditions))

    @property
    def conditions(self) -> Iterator[Condition]:
        return (condition for conditions in self.any_of for condition in conditions)

    def path_value(self, condition: Condition, text: str | None) -> Any:
        """The order value of a partition column in the files of a folder; `None` for null."""
        value = read_value(text, condition.dtype, self.zone)
        return float("nan") if isinstance(value, str) else value  # see `partitions.identities`


# -- parse


def filter_names(filters: Any) -> tuple[str, ...]:
    """The columns of a filter, before the target is known. Refuses filters of another form."""
    return tuple(dict.fromkeys(name for conditions in _any_of(filters) for name, _, _ in conditions))


def parse_filters(filters: Any, target: Target, zone: str = "UTC", *, ignores_case: bool = False) -> RowFilter:
    """Check a filter, and convert its values to the types of the target's columns.

    A partition column that no file stores has the type of the values that it is compared with. `zone` is the zone of
    timestamps in folder names. Of a target with `ignores_case`, `Day` is the column `day`.
    """
    any_of = _any_of(filters)
    names = dict.fromkeys(name for conditions in any_of for name, _, _ in conditions)
    if target.schema is None:
        raise ArgumentError("filters select rows of a data set, and there is no data set yet.")
    column_of = dict(zip(names, in_target_case(target, list(names)) if ignores_case else names, strict=True))
    values: dict[str, list[Value]] = {name: [] for name in column_of.values()}
    for conditions in any_of:
        for name, _, operands in conditions:
            values[column_of[name]] += [_value(name, operand) for operand in operands]
    types = {name: _column_type(name, target, values[name]) for name in values}
    for name in values:
        _check_folders(name, types[name], target, zone)
    convert = _Converter(target, types, zone)
    return RowFilter(
        tuple(
            tuple(convert.condition(column_of[name], operator, operands) for name, operator, operands in conditions)
            for conditions in any_of
        ),
        frozenset(target.partition_columns).intersection(values),
        zone,
    )


_Parsed = tuple[str, str, list[Any]]
"""Column, operator and values of a condition."""


def _any_of(filters: Any) -> list[list[_Parsed]]:
    """The conditions of a filter, as lists of which one must hold."""
    if not _is_list(filters) or (filters and isinstance(filters[0], str)):
        raise ArgumentError(f"{_FORM}, not {filters!r}.")
    if not len(filters) or any(_is_list(part) and not len(part) for part in filters):
        raise ArgumentError("filters has no conditions. An empty filter would select every row; name a condition.")
    if not any(_is_list(part) and _is_list(part[0]) for part in filters):
        return [[_parsed(part) for part in filters]]
    if not all(_is_list(part) and _is_list(part[0]) for part in filters):
        raise ArgumentError(f"{_FORM}. It mixes both: {filters!r}.")
    return [[_parsed(condition) for condition in part] for part in filters]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _parsed(condition: Any) -> _Parsed:
    if not _is_list(condition) or len(condition) != 3 or not isinstance(condition[0], str):
        raise ArgumentError(f"{condition!r} is not a condition. A condition is a tuple of column, operator and value.")
    name, operator, operand = condition
    known = " ".join(operator.lower().split()) if isinstance(operator, str) else operator
    if known not in _OPERATORS:
        raise ArgumentError(f"Unknown operator {operator!r} in {condition!r}. Choose one of {', '.join(_OPERATORS)}.")
    several = isinstance(operand, (list, tuple, set, frozenset, np.ndarray, pa.Array, pa.ChunkedArray))
    if several != (known in ("in", "not in")):
        wanted = "one value" if several else "a list of values"
        raise ArgumentError(f"The operator {operator!r} takes {wanted}, not {operand!r}, in {condition!r}.")
    values = list(operand) if several else [operand]
    if not values:
        raise ArgumentError(f"{condition!r} has an empty list of values; name one.")
    return name, _OPERATORS[known], values


def _value(name: str, value: Any) -> Value:
    try:
        return filter_values.value_of(value)
    except NullValue:
        raise ArgumentError(
            f"The filter compares column {name!r} with null, and as in SQL no comparison with null holds. Name a value."
        ) from None
    except (TypeError, UnicodeEncodeError):
        raise ArgumentError(
            f"The filter compares column {name!r} with {value!r} of type {type(value).__name__}. Use a number, text, "
            "bytes, a Boolean, a date or a time."
        ) from None


def _column_type(name: str, target: Target, values: Sequence[Value]) -> pa.DataType:
    """The plain type of a column. Refuses unknown columns, and those that have no order."""
    assert target.schema is not None
    if name not in target.schema.names and name not in target.partition_columns:
        columns = list(dict.fromkeys([*target.schema.names, *target.partition_columns]))
        raise ArgumentError(
            f"The filter names column {name!r}, which the target does not have.{did_you_mean([name], columns)} It has: "
            f"{columns}."
        )
    stored = name in target.schema.names and not pa.types.is_null(target.schema.field(name).type)
    if name in target.partition_columns and not stored:
        dtype = filter_values.common_type(values)
        if dtype is None:
            families = sorted({value.family for value in values})
            raise ArgumentError(
                f"The filter compares the partition column {name!r} with values of different types "
                f"({', '.join(families)}). Its values are only in the paths, and are read as the type of the filter's "
                "values: give values of one type."
            )
        return dtype
    dtype = arrays.plain_type(target.schema.field(name).type)
    if not keys.is_plain_value(dtype) and not pa.types.is_null(dtype):
        raise ArgumentError(
            f"The filter compares column {name!r}, whose type {target.schema.field(name).type} has no order. Use "
            "columns of numbers, text, binary, dates or times."
        )
    for footer in target.files.templates:
        if name in footer.collated:
            raise ArgumentError(
                f"The filter compares column {name!r}, which has the collation "
                f"{footer.collated[name].removeprefix('spark.')} in {footer.path}. Filters compare text by code point, "
                "which would select other rows. Delete these rows by their keys."
            )
    return dtype


def _check_folders(name: str, dtype: pa.DataType, target: Target, zone: str) -> None:
    """Every folder must have a value of the column's type: a value that cannot be compared may have to go, or stay."""
    if name not in target.partition_columns:
        return
    checked: set[str | None] = {None}
    for info in target.files.infos:
        text = parse_hive_partition_path(info.path, [name]).get(name)
        if text not in checked and isinstance(read_value(text, dtype, zone), Unreadable):
            folder = posixpath.dirname(info.path)
            raise ArgumentError(
                f"The filter compares partition column {name!r} with values of type {dtype}, and the folder {folder!r} "
                f"is not a value of this type. Compare with text ({name} = '…'), or rename the folder."
            )
        checked.add(text)


def _is_nan(value: Any) -> bool:
    return isinstance(value, numbers.Number) and value != value


@dataclass(frozen=True, slots=True)
class _Converter:
    target: Target
    types: Mapping[str, pa.DataType]
    zone: str

    def condition(self, name: str, operator: str, operands: Sequence[Any]) -> Condition:
        if operator in ("<", "<=", ">", ">=") and any(map(_is_nan, operands)):
            raise ArgumentError(
                f"The filter compares column {name!r} by {operator} with NaN, which is usually a mistake: "
                "as the greatest value it would select all rows or none. Name a number; = and != find NaN."
            )
        literals = sorted((self._literal(name, operand) for operand in operands), key=lambda literal: literal.rank)
        return Condition(name, operator, tuple(literals), self.types[name])

    def _literal(self, name: str, operand: Any) -> Literal:
        dtype, value, int96 = self.types[name], _value(name, operand), name in self.target.int96
        if pa.types.is_null(dtype):  # only nulls, for which no condition holds
            return Literal(0, None, False)
        try:
            return filter_values.literal(value, dtype, int96=int96, utc=self.zone == "UTC")
        except NotComparable as error:
            raise ArgumentError(
                f"The filter compares column {name!r} of type {dtype}{' (INT96)' if int96 else ''} with {operand!r}, "
                f"which is {_FAMILY_NAMES.get(value.family, value.family)}. {error.args[0]}".rstrip()
            ) from None
