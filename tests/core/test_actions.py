"""What a merge does with matched, new and missing rows: presets, exact counts, no strategy names."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fsspeckit
from fsspeckit.core.actions import PRESETS, Actions, Counts, HitAction, MatchedRows
from fsspeckit.core.model import MergeStrategy

ROOT = Path(fsspeckit.__file__).parent
COMBINATIONS = [
    Actions(*values)  # type: ignore[arg-type]
    for values in product(("update", "delete", "keep"), ("insert", "skip"), ("keep", "delete"), ("keep", "delete"))
]


def test_every_strategy_has_a_preset() -> None:
    assert list(PRESETS) == [strategy.value for strategy in MergeStrategy]
    assert {s.value: s.actions for s in MergeStrategy} == PRESETS


def merged(actions: Actions, source: list[int], target: list[int | None]) -> tuple[Counts, list[int | None]]:
    """Row by row: the counts, and the keys that the target has afterwards."""
    counts, after, seen = Counter[str](), list[int | None](), set[int | None]()
    for key in target:
        repeated, _ = key in seen, seen.add(key)
        action: str = actions.missing
        if key in source:
            action = "delete" if repeated and actions.surplus == "delete" else actions.matched
        counts[action] += 1
        after += [] if action == "delete" else [key]
    new = [key for key in source if key not in target and actions.new == "insert"]
    return Counts(len(new), counts["update"], counts["delete"]), after + new


LAKES: dict[str, tuple[list[int], list[int | None]]] = {
    "all kinds of rows": ([1, 2, 3, 8, 9], [1, 2, 2, 2, 4, None, None, 5, 5]),
    "no source": ([], [1, 1, None]),
    "no target": ([1, 2], []),
    "all matched": ([1, 2], [2, 1]),
    "nothing": ([], []),
}


@pytest.mark.parametrize("lake", LAKES)
@pytest.mark.parametrize("actions", COMBINATIONS, ids=lambda a: f"{a.matched}-{a.new}-{a.missing}-{a.surplus}")
def test_counts_of_every_combination(actions: Actions, lake: str) -> None:
    source, target = LAKES[lake]
    matched = [key for key in target if key in source]
    done = {"update": "updated", "delete": "deleted", "keep": "kept"}[actions.matched]
    counts = actions.counts(
        source_rows=len(source),
        target_rows=len(target),
        matched_keys=len(set(matched)),
        matched=MatchedRows(**{done: len(matched)}),
    )
    expected, after = merged(actions, source, target)
    assert counts == expected
    assert len(target) + counts.inserted - counts.deleted == len(after)
    assert bool(counts) == (counts != Counts(0, 0, 0))
    if actions.replaces_target:
        assert sorted(after, key=repr) == sorted(source)


def test_files_without_a_matched_row_stay_only_if_no_missing_row_goes() -> None:
    assert [name for name, actions in PRESETS.items() if actions.incremental] == [
        "insert",
        "update",
        "upsert",
        "delete",
    ]
    assert [name for name, actions in PRESETS.items() if actions.replaces_target] == ["full_merge"]
    assert [a for a in COMBINATIONS if a.incremental and "delete" in (a.missing, a.surplus)] == []


def asks_for_names(path: Path) -> Iterator[str]:
    """Members of `MergeStrategy`, and comparisons of a strategy with anything but `None`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in MergeStrategy.__members__:
            yield from [] if ast.unparse(node.value) == "HitAction" else [ast.unparse(node)]
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            names = [getattr(operand, "attr", getattr(operand, "id", "")) for operand in operands]
            if "strategy" in names and not any(isinstance(o, ast.Constant) and o.value is None for o in operands):
                yield ast.unparse(node)


def test_nobody_asks_for_the_name_of_a_strategy() -> None:
    """But argument checks, reports, and the module that turns clauses of SQL into a strategy."""
    names = {str(path.relative_to(ROOT)): list(asks_for_names(path)) for path in ROOT.rglob("*.py")}
    assert names.pop("datasets/clauses.py")
    assert {path: found for path, found in names.items() if found} == {
        "datasets/io.py": ["strategy == MergeStrategy.DELETE", "MergeStrategy.DELETE"],
        "datasets/arguments.py": [
            "strategy is not MergeStrategy.UPSERT",
            "strategy not in reducing",
            "MergeStrategy.UPSERT",
        ],
        "datasets/spark/datasource.py": ["options.strategy != MergeStrategy.DELETE", "MergeStrategy.DELETE"],
        "datasets/spark/stream.py": ["self.request.strategy is not MergeStrategy.DELETE", "MergeStrategy.DELETE"],
        "datasets/spark/io.py": ["MergeStrategy.DELETE"],
        "datasets/row_options.py": ["strategy is MergeStrategy.DELETE", "MergeStrategy.DELETE"],
        "cli/commands.py": ["command.strategy in ('update', 'delete')"],
        "report/content.py": ["report.strategy != 'delete'"],
        "report/summary.py": ["report.strategy != 'delete'"],
        "report/terminal.py": ["result.strategy == 'delete'"],
    }


HITS = {
    # strategy: of a hit that is (a delete, older, in another partition)
    "update": {
        (False, False, False): HitAction.UPDATE,
        (False, False, True): HitAction.MOVE,
        (True, False, False): HitAction.DELETE,
        (True, False, True): HitAction.DELETE,
        (False, True, False): HitAction.SKIP,
        (True, True, False): HitAction.SKIP,
        (False, True, True): HitAction.SKIP_ELSEWHERE,
        (True, True, True): HitAction.SKIP_ELSEWHERE,
    },
    "delete": {
        (False, False, False): HitAction.DELETE,
        (False, False, True): HitAction.DELETE,
        (False, True, False): HitAction.SKIP,
    },
    "insert": {(False, False, False): HitAction.KEEP, (False, False, True): HitAction.KEEP},
}


@pytest.mark.parametrize("strategy", HITS)
def test_what_happens_to_each_hit(strategy: str) -> None:
    facts = [np.array(column) for column in zip(*HITS[strategy], strict=True)]
    assert PRESETS[strategy].hit_actions(*facts).tolist() == list(HITS[strategy].values())


def test_a_row_that_moves_is_updated_and_its_other_copies_are_deleted() -> None:
    """Three copies in another partition: one moves, two are deleted."""
    matched = MatchedRows.of({HitAction.MOVE: 3, HitAction.UPDATE: 1, HitAction.SKIP: 2, HitAction.SKIP_ELSEWHERE: 1})
    assert matched == MatchedRows(updated=1, deleted=3, skipped=3)
    counts = PRESETS["upsert"].counts(source_rows=5, target_rows=20, matched_keys=4, matched=matched, moved=1)
    assert counts == Counts(inserted=1, updated=2, deleted=2, skipped=3, moved=1)
