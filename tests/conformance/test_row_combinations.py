"""Every option with every strategy: allowed, or refused and why; what is allowed equals the reference model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import reference
from reference import Options, Row

from damage import nothing_changes
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import ArgumentError
from support import multiset, rows, write_lake

STRATEGIES = ("insert", "update", "upsert", "delete")
ALLOWED = ""
NO_DELETES = "delete_column"
NO_UPDATES = "update_columns|exclude_columns"

# Option: the arguments, and for insert, update, upsert and delete what the message of the refusal names.
TABLE: dict[str, tuple[dict[str, Any], tuple[str, str, str, str]]] = {
    "delete_column": ({"delete_column": "gone"}, (NO_DELETES, ALLOWED, ALLOWED, NO_DELETES)),
    "delete_column, delete_values": (
        {"delete_column": "op", "delete_values": ["D"]},
        (NO_DELETES, ALLOWED, ALLOWED, NO_DELETES),
    ),
    "delete_values": ({"delete_values": ["D"]}, ("delete_values|delete_column",) * 4),
    "sequence_by": ({"sequence_by": ["version"]}, ("sequence_by", ALLOWED, ALLOWED, ALLOWED)),
    "on_duplicates": ({"on_duplicates": "latest"}, ("sequence_by",) * 4),
    "sequence_by, on_duplicates": ({"sequence_by": ["version"], "on_duplicates": "latest"}, (ALLOWED,) * 4),
    "update_columns": ({"update_columns": ["x"]}, ("update_columns", ALLOWED, ALLOWED, "update_columns")),
    "exclude_columns": ({"exclude_columns": ["x"]}, ("exclude_columns", ALLOWED, ALLOWED, "exclude_columns")),
    "update_columns, exclude_columns": ({"update_columns": ["x"], "exclude_columns": ["version"]}, (NO_UPDATES,) * 4),
    "delete_missing='all'": ({"delete_missing": "all"}, ("delete_missing", ALLOWED, ALLOWED, "delete_missing")),
    "delete_missing='partitions'": (
        {"delete_missing": "partitions"},
        ("delete_missing", ALLOWED, ALLOWED, "delete_missing"),
    ),
    "on_move": ({"on_move": "move"}, ("on_move", ALLOWED, ALLOWED, "on_move")),
    "on_move, update_columns": ({"on_move": "move", "update_columns": ["x"]}, ("on_move|update_columns",) * 4),
    "on_move, exclude_columns": ({"on_move": "move", "exclude_columns": ["x"]}, ("on_move|exclude_columns",) * 4),
    "batch": ({"batch": Batch("app", 1)}, (ALLOWED,) * 4),
    "batch, delete_missing": ({"batch": Batch("app", 1), "delete_missing": "all"}, ("delete_missing",) * 4),
    "none": ({}, (ALLOWED,) * 4),
}

TARGET: dict[str, list[Row]] = {
    "a": [{"id": i, "x": "old", "version": 5} for i in (1, 2, 3, 4)] + [{"id": None, "x": "null key", "version": 1}],
    "b": [{"id": i, "x": "old", "version": 5} for i in (5, 6, 7)] + [{"id": 8, "x": "old", "version": None}],
    "c": [{"id": i, "x": "old", "version": 5} for i in (9, 9, 10)],
}


def source(options: Options) -> list[Row]:
    """Newer, older, equal and new rows, and where the options allow them deletes, moves and several rows of a key."""
    rows = [
        {"id": 1, "x": "new", "version": 9, "day": "a"},
        {"id": 2, "x": "new", "version": 1, "day": "a"},
        {"id": 3, "x": "old", "version": 5, "day": "a"},
        {"id": 5, "x": "new", "version": 9, "day": "b"},
        {"id": 8, "x": "new", "version": -1, "day": "b"},
        {"id": 100, "x": "new", "version": 0, "day": "a"},
        {"id": 101, "x": "new", "version": 0, "day": "d"},
    ]
    if options.on_duplicates == "latest" or options.strategy == "delete":
        rows += [{"id": 1, "x": "lost", "version": 8, "day": "c"}, {"id": 100, "x": "lost", "version": -1, "day": "z"}]
    if options.on_move == "move":
        rows += [{"id": 6, "x": "moved", "version": 9, "day": "a"}, {"id": 9, "x": "moved", "version": 9, "day": "e"}]
    rows = [{**row, "gone": False, "op": None} for row in rows]
    if options.delete_column:
        rows += [
            {"id": 4, "x": None, "version": 9, "day": None, "gone": True, "op": "D"},
            {"id": 7, "x": None, "version": 1, "day": "z", "gone": True, "op": "D"},
            {"id": 102, "x": None, "version": 1, "day": "a", "gone": True, "op": "D"},
        ]
    flags = {"gone", "op"} - {options.delete_column}
    return [{name: value for name, value in row.items() if name not in flags} for row in rows]


def table_of(found: list[Row]) -> pa.Table:
    types = {"id": pa.int64(), "version": pa.int64(), "gone": pa.bool_()}
    return pa.table({name: pa.array([row[name] for row in found], types.get(name, pa.string())) for name in found[0]})


def make_lake(folder: Path) -> str:
    return write_lake(folder, {f"day={d}/f.parquet": table_of(found) for d, found in TARGET.items()}, row_group_size=2)


def check_allowed(io: Any, lake: str, options: Options, more: dict[str, Any]) -> None:
    """Rows and counts are those of the reference model."""
    found = source(options)
    target = [[{**row, "day": d} for row in rows] for d, rows in TARGET.items()]
    expected = reference.merge(target, found, ["id"], ["day"], options)
    assert isinstance(expected, reference.Merged)
    arguments = options.arguments()
    plan = io.plan(table_of(found), lake, options.strategy, ["id"], **arguments)
    result = io.merge(table_of(found), lake, options.strategy, ["id"], **arguments, **more)
    assert {name: getattr(result, name) for name in reference.COUNTS} == dict(expected.counts)
    known = [name for name in reference.COUNTS if name != "changed"]
    assert [getattr(plan, name) for name in known] == [getattr(result, name) for name in known]
    assert multiset(rows(lake)) == multiset([{"x": None, "version": None, **row} for row in expected.rows])


def check_refused(io: Any, lake: str, options: Options, more: dict[str, Any], match: str) -> None:
    data = table_of(source(options))
    with nothing_changes(lake), pytest.raises(ArgumentError, match=match):
        io.merge(data, lake, options.strategy, ["id"], **options.arguments(), **more)
    if not more:
        with nothing_changes(lake), pytest.raises(ArgumentError, match=match):
            io.plan(data, lake, options.strategy, ["id"], **options.arguments())


def options_of(strategy: str, arguments: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
    """Options of the model, and other arguments."""
    more = {name: value for name, value in arguments.items() if name == "batch"}
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in arguments.items() if n not in more}
    return Options(strategy, **given), more


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", TABLE)
def test_option_and_strategy(io: Any, tmp_path: Path, name: str, strategy: str) -> None:
    arguments, cells = TABLE[name]
    lake, match = make_lake(tmp_path / "lake"), cells[STRATEGIES.index(strategy)]
    options, more = options_of(strategy, arguments)
    if match:
        check_refused(io, lake, options, more, match)
    else:
        check_allowed(io, lake, options, more)


@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
@pytest.mark.parametrize("name", TABLE)
def test_other_strategies_are_not_of_merge(io: Any, tmp_path: Path, name: str, strategy: str) -> None:
    options, more = options_of(strategy, TABLE[name][0])
    check_refused(io, make_lake(tmp_path / "lake"), options, more, "write_parquet_dataset")


# All options together

CHOICES: list[list[dict[str, Any]]] = [
    [{}, {"delete_column": "gone"}, {"delete_column": "op", "delete_values": ["D"]}],
    [{}, {"sequence_by": ["version"]}, {"sequence_by": ["version"], "on_duplicates": "latest"}],
    [{}, {"update_columns": ["x"]}, {"exclude_columns": ["x"]}],
    [{}, {"delete_missing": "all"}, {"delete_missing": "partitions"}],
    [{}, {"on_move": "move"}],
]


def combinations() -> Iterator[dict[str, Any]]:
    for choice in itertools.product(*CHOICES):
        yield {name: value for part in choice for name, value in part.items()}


def why(strategy: str, arguments: dict[str, Any]) -> str:
    """The options of which a refusal must name one; empty if the merge is allowed."""
    some = {"update_columns", "exclude_columns"} & arguments.keys()
    wrong = {"on_move", *some} if some and "on_move" in arguments else set()
    if strategy in ("insert", "delete"):
        wrong |= {"delete_column", "delete_values", "delete_missing", "on_move", *some} & arguments.keys()
    if strategy == "insert" and "on_duplicates" not in arguments:
        wrong |= {"sequence_by"} & arguments.keys()
    return "|".join(sorted(wrong))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_combinations(io: Any, engine: str, tmp_path: Path, strategy: str) -> None:
    if engine == "spark":
        pytest.skip("hundreds of merges: the property test draws combinations for Spark")
    allowed = 0
    for number, arguments in enumerate(combinations()):
        lake, match = make_lake(tmp_path / str(number) / "lake"), why(strategy, arguments)
        options, more = options_of(strategy, arguments)
        try:
            if match:
                check_refused(io, lake, options, more, match)
            else:
                check_allowed(io, lake, options, more)
        except BaseException as error:
            error.add_note(f"{strategy}, {arguments}")
            raise
        allowed += not match
    assert allowed == {"insert": 2, "update": 108, "upsert": 108, "delete": 3}[strategy]
