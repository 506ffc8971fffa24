"""The WHEN clauses of a MERGE as the options of a merge that do exactly the same, or a refusal.

For every kind of row, the first clause that applies is compared with what the options would do. The statement is
accepted only if they agree on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Literal

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.conditions import OTHER, Case, Conditions, Test, literal_text

Kind = Literal["matched", "new", "missing"]
Action = Literal["update", "insert", "delete", "nothing"]
_DOES = {
    "update": "updates the row",
    "insert": "inserts it",
    "delete": "deletes the row",
    "nothing": "does nothing",
}
_MAX_SEQUENCE_COLUMNS = 3


@dataclass(frozen=True)
class Clause:
    """WHEN … THEN …: `columns` are those of an UPDATE or INSERT, `None` for all."""

    kind: Kind
    test: Test | None
    action: Action
    text: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MergeCall:
    """A merge that does what the clauses say. `insert_columns` are those of INSERT, `()` for all of the target."""

    strategy: Literal["insert", "update", "upsert", "delete"]
    key_columns: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    insert_columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _Rule:
    """What a merge with some options does with each kind of row."""

    strategy: Literal["insert", "update", "upsert", "delete"]
    deletes: tuple[Any, ...]
    sequence: tuple[str, ...]

    def expected(self, kind: Kind, case: Case) -> Action:
        is_delete = case.mark in self.deletes
        if kind == "new":
            return "insert" if self.strategy in ("insert", "upsert") and not is_delete else "nothing"
        if self.strategy == "insert" or self._is_older(case):
            return "nothing"
        return "delete" if is_delete or self.strategy == "delete" else "update"

    def _is_older(self, case: Case) -> bool:
        """A null in the target is least, whatever the next columns are."""
        orders = (case.order[name] for name in self.sequence)
        return next((order for order in orders if order != "equal"), "equal") == "less"

    def clauses(self, conditions: Conditions) -> str:
        """The statement that has exactly this meaning."""
        source, target = conditions.source, conditions.target
        newer = f"({_newer(self.sequence, source, target)})" if self.sequence else ""
        mark, values = f"{source}.{conditions.mark}", ", ".join(map(literal_text, self.deletes))
        if is_flag(self.deletes) or not self.deletes:
            deletes, stays = mark, f"{mark} IS NOT TRUE"
        elif len(self.deletes) == 1:
            deletes, stays = f"{mark} = {values}", f"{mark} IS DISTINCT FROM {values}"
        else:
            deletes, stays = f"{mark} IN ({values})", f"({mark} IS NULL OR {mark} NOT IN ({values}))"
        written = []
        if self.strategy == "delete" or self.deletes:
            written.append(_when("MATCHED", "DELETE", deletes if self.deletes else "", newer))
        if self.strategy in ("update", "upsert"):
            written.append(_when("MATCHED", "UPDATE SET *", newer))
        if self.strategy in ("insert", "upsert"):
            written.append(_when("NOT MATCHED", "INSERT *", stays if self.deletes else ""))
        return " ".join(written)


def is_flag(deletes: Sequence[Any]) -> bool:
    """Is the delete column a Boolean that is true for rows that delete? In Python, 1 equals `True`."""
    return len(deletes) == 1 and deletes[0] is True


def _when(kind: str, action: str, *tests: str) -> str:
    return " AND ".join([f"WHEN {kind}", *filter(None, tests)]) + f" THEN {action}"


def _newer(sequence: Sequence[str], source: str, target: str) -> str:
    first, *rest = sequence
    if not rest:
        return f"{target}.{first} IS NULL OR {source}.{first} >= {target}.{first}"
    tie = f"{source}.{first} = {target}.{first} AND ({_newer(rest, source, target)})"
    return f"{target}.{first} IS NULL OR {source}.{first} > {target}.{first} OR ({tie})"


def merge_call(key_columns: Sequence[str], clauses: Sequence[Clause], conditions: Conditions) -> MergeCall:
    """The merge that the clauses describe. `ArgumentError` names the first clause that no option stands for."""
    options: dict[str, Any] = {}
    if _deletes_missing(clauses):
        options["delete_missing"] = "all"
    _check_new(clauses, conditions)
    rule = _rule(clauses, conditions)
    if rule.strategy in ("insert", "delete") and options:
        raise ArgumentError(
            "Refused: WHEN NOT MATCHED BY SOURCE THEN DELETE. It goes together with WHEN MATCHED THEN UPDATE only. Add "
            "that clause."
        )
    if rule.sequence:
        options["sequence_by"] = list(rule.sequence)
    if rule.deletes:
        options["delete_column"] = conditions.mark
        if not is_flag(rule.deletes):
            options["delete_values"] = list(rule.deletes)
    _check_reached(clauses, conditions)
    updated, inserted = _columns(clauses, "update"), _columns(clauses, "insert")
    if updated:
        options["update_columns"] = _update_columns(updated, key_columns, rule, clauses)
    if inserted == () and not updated:
        inserted = None  # such a merge needs all columns of the target anyway
    return MergeCall(rule.strategy, tuple(key_columns), options, inserted)


def _deletes_missing(clauses: Sequence[Clause]) -> bool:
    missing = [clause for clause in clauses if clause.kind == "missing"]
    for clause in missing:
        if clause.test is not None:
            raise ArgumentError(
                f"Refused: {clause.text}. Rows that the source does not have are deleted without a condition, or with "
                "delete_missing='partitions' in the partitions that the source has rows of. Leave the condition out, "
                "or call fsspeckit.merge(…, delete_missing='partitions')."
            )
        if clause.action != "delete":
            raise ArgumentError(f"Refused: {clause.text}. WHEN NOT MATCHED BY SOURCE takes only DELETE.")
    if len(missing) > 1:
        raise ArgumentError(f"Refused: {missing[1].text}. It is never reached. Leave it out.")
    return bool(missing)


def _check_new(clauses: Sequence[Clause], conditions: Conditions) -> None:
    """The target's row is unknown where there is none, so a condition cannot name it."""
    for clause in clauses:
        allowed = ("insert", "nothing") if clause.kind == "new" else ("update", "delete", "nothing")
        if clause.action not in allowed:
            advice = (
                "NOT MATCHED takes only INSERT." if clause.kind == "new" else "MATCHED takes only UPDATE and DELETE."
            )
            raise ArgumentError(f"Refused: {clause.text}. WHEN {advice}")
        if clause.kind != "new" or clause.test is None:
            continue
        try:
            for mark in conditions.marks():
                clause.test(Case(mark, {}))
        except KeyError as error:
            raise ArgumentError(
                f"Refused: {clause.text}. There is no row of the target that {error} could be compared with. Leave "
                "the comparison out."
            ) from None


def _rule(clauses: Sequence[Clause], conditions: Conditions) -> _Rule:
    actions = {clause.action for clause in clauses if clause.kind != "missing"} - {"nothing"}
    strategies: dict[frozenset[str], Any] = {
        frozenset({"insert"}): "insert",
        frozenset({"update"}): "update",
        frozenset({"update", "delete"}): "update",
        frozenset({"update", "insert"}): "upsert",
        frozenset({"update", "delete", "insert"}): "upsert",
        frozenset({"delete"}): "delete",
    }
    strategy = strategies.get(frozenset(actions))
    if strategy is None:
        text = " ".join(clause.text for clause in clauses)
        raise ArgumentError(
            f"Refused: {text or 'a statement without WHEN clauses'}. A merge updates (WHEN MATCHED THEN UPDATE SET *), "
            "inserts (WHEN NOT MATCHED THEN INSERT *), does both, with or without deletes, or only deletes."
        )
    if len(conditions.ordered) > _MAX_SEQUENCE_COLUMNS:
        named = ", ".join(conditions.ordered)
        raise ArgumentError(
            f"Refused: comparisons of {named}. At most {_MAX_SEQUENCE_COLUMNS} columns order the changes of a key. "
            "Call fsspeckit.merge(…, sequence_by=[…])."
        )
    deletes: tuple[Any, ...] = ()
    if strategy in ("update", "upsert"):
        newest = dict.fromkeys(conditions.ordered, "greater")
        marks = [mark for mark in conditions.marks() if mark is not OTHER and mark is not None]
        deletes = tuple(mark for mark in marks if _decide(clauses, "matched", Case(mark, newest))[0] == "delete")
    if conditions.mark is not None and not deletes:
        text = next(clause.text for clause in clauses if clause.test is not None)
        raise ArgumentError(
            f"Refused: {text}. {conditions.source}.{conditions.mark} chooses among the rows of the source, which only "
            "deletes beside an UPDATE can. Give a source that has only the rows you mean. What fsspeckit can do: "
            f"{_Rule(strategy, (), tuple(conditions.ordered)).clauses(conditions)}"
        )
    rules = [_Rule(strategy, deletes, order) for order in permutations(conditions.ordered)]
    differences = [next(_differences(clauses, conditions, rule), None) for rule in rules]
    for rule, difference in zip(rules, differences):
        if difference is None:
            return rule
    raise _refusal(*differences[0] or (), clauses=clauses, conditions=conditions, rule=rules[0])


def _decide(clauses: Sequence[Clause], kind: Kind, case: Case) -> tuple[Action, Clause | None]:
    """What SQL does: the first clause whose condition is true."""
    for clause in clauses:
        if clause.kind == kind and (clause.test is None or clause.test(case)):
            return clause.action, clause
    return "nothing", None


Difference = tuple[Kind, Case, Action, Clause | None]


def _differences(clauses: Sequence[Clause], conditions: Conditions, rule: _Rule) -> Iterator[Difference]:
    kinds: tuple[Kind, ...] = ("matched", "new")
    for kind in kinds:
        for case in conditions.cases():
            action, clause = _decide(clauses, kind, case)
            if action != rule.expected(kind, case):
                yield kind, case, action, clause


def _refusal(
    kind: Kind,
    case: Case,
    action: Action,
    clause: Clause | None,
    *,
    clauses: Sequence[Clause],
    conditions: Conditions,
    rule: _Rule,
) -> ArgumentError:
    expected, hint = rule.expected(kind, case), ""
    if case.order and _updates_older(clauses, conditions):  # t.x <> s.x is no sequence
        rule, hint = (
            replace(rule, sequence=()),
            " A condition that finds rows that differ is not needed: equal rows are not written anew.",
        )
    of_kind = [each for each in clauses if each.kind == kind]
    nearest = next((each for each in of_kind if each.action == expected), next(iter(of_kind), None))
    quoted = clause or nearest
    text = "a statement without such a clause" if quoted is None else quoted.text
    row = conditions.describe(case, matched=kind == "matched")
    where = "a key that the target has" if kind == "matched" else "a new key"
    return ArgumentError(
        f"Refused: {text}. For {where}{' where ' if row else ''}{row}, the statement {_DOES[action]}, and no option of "
        f"fsspeckit does so: it {_DOES[expected]}. What it can do: {rule.clauses(conditions)}.{hint}"
    )


def _updates_older(clauses: Sequence[Clause], conditions: Conditions) -> bool:
    older = dict.fromkeys(conditions.ordered, "less")
    return _decide(clauses, "matched", Case(OTHER, older))[0] == "update"


def _check_reached(clauses: Sequence[Clause], conditions: Conditions) -> None:
    kinds: tuple[Kind, ...] = ("matched", "new")
    reached = {id(_decide(clauses, kind, case)[1]) for kind in kinds for case in conditions.cases()}
    for clause in clauses:
        if clause.kind != "missing" and id(clause) not in reached:
            raise ArgumentError(f"Refused: {clause.text}. It is never reached. Leave it out, or change the order.")


def _columns(clauses: Sequence[Clause], action: Action) -> tuple[str, ...] | None:
    """The columns of all UPDATEs, or of all INSERTs: `()` for all, `None` if there is no such clause."""
    by_columns = {clause.columns or (): clause for clause in clauses if clause.action == action}
    if len(by_columns) > 1:
        raise ArgumentError(
            f"Refused: {list(by_columns.values())[1].text}. Every {action.upper()} must name the same columns."
        )
    return next(iter(by_columns), None)


def _update_columns(
    updated: Sequence[str], key_columns: Sequence[str], rule: _Rule, clauses: Sequence[Clause]
) -> list[str]:
    """Without the keys, which are equal. The sequence is always stored, so it must be among them."""
    text = next(clause.text for clause in clauses if clause.action == "update")
    unnamed = [name for name in rule.sequence if name not in updated]
    if unnamed:
        raise ArgumentError(
            f"Refused: {text}. Rows take the columns of the sequence too, or an older row could win later. Add "
            f"{', '.join(unnamed)} to SET."
        )
    columns = [name for name in updated if name not in key_columns]
    if not columns:
        raise ArgumentError(
            f"Refused: {text}. It sets only the key, which is equal. Name other columns, or leave it out."
        )
    return columns


def check_inserted(call: MergeCall, source: Sequence[str], target: Callable[[], Sequence[str]]) -> None:
    """Does the source have exactly the columns that INSERT names? A merge inserts every column that it has."""
    if call.insert_columns is None:
        return
    deletes = call.options.get("delete_column")
    given = [name for name in source if name != deletes]
    if call.insert_columns:
        unnamed = [name for name in given if name not in call.insert_columns]
        missing = [name for name in call.insert_columns if name not in given]
        if unnamed or missing:
            wrong = (
                f"does not name {unnamed}, which the source has" if unnamed else f"names {missing}, which it has not"
            )
            raise ArgumentError(
                f"Refused: INSERT ({', '.join(call.insert_columns)}) {wrong}. Inserted rows take every column of the "
                "source. Select the same columns in the source, or write INSERT *."
            )
        return
    absent = [name for name in target() if name not in given]
    if absent:
        raise ArgumentError(
            f"Refused: INSERT *. The source has no {absent}, which the target has. Add them to the source, or name the "
            "columns: INSERT (…) VALUES (…)."
        )
