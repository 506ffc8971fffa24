"""Random operations of the soak, which fit the rows and columns that the lake has."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from soak.model import BASE, LARGEST_INT32, Operation, Row, State
from soak.readers import text_of

KEYS = 120
PARTITIONS = 4
NEW_COLUMNS = ("c1", "c2", "c3")
KINDS = (
    *("insert", "update", "upsert", "upsert", "full_merge", "deduplicate", "append", "overwrite"),
    *("delete", "feed", "feed", "move", "move", "empty a partition", "filter", "some columns", "missing"),
    *("compact", "compact", "evolve", "evolve", "overwrite_partitions", "overwrite_partitions"),
    *("batch", "batch", "undo", "undo", "undo", "forget"),
)
_STRATEGIES = {
    **dict.fromkeys(("feed", "move", "evolve", "batch", "some columns", "missing"), "upsert"),
    "empty a partition": "delete",
}
_FEED = {"delete_column": "op", "delete_values": ["D"], "sequence_by": "n", "on_duplicates": "latest"}
_UNDOABLE = 0.8


@dataclass
class Draw:
    """Draws one operation after the other. `number` is in every row that it writes."""

    lake: str
    chance: Random
    number: int = 0

    def operation(self, state: State) -> Operation:
        self.number += 1
        kind = self.chance.choice(KINDS)
        strategy = _STRATEGIES.get(kind, kind)
        columns = self._columns(kind, state)
        rows = self._rows(kind, state)
        recorded = self.chance.random() < 0.7
        return Operation(
            lake=self.lake,
            kind=kind,
            strategy=strategy,
            rows=[{name: row[name] for name in columns} for row in rows],
            columns=columns,
            options=self._options(kind, strategy, state, rows),
            is_wide=kind == "evolve" or (state.is_wide and kind != "overwrite"),
            fate=self.chance.choice(["live", "kill", "kill", "kill", "fail"]),
            recorded=recorded,
            point=self.chance.randrange(20 if recorded else 150),
        )

    def first_rows(self) -> State:
        rows = [self._row(key, 0, key // 2 % PARTITIONS) for key in range(0, KEYS, 2)]
        return State({row["id"]: {name: row[name] for name in BASE} for row in rows})

    def _columns(self, kind: str, state: State) -> list[str]:
        if kind in ("delete", "empty a partition"):
            return ["id"]
        if kind == "overwrite":
            return list(BASE)
        columns = [*state.columns, *(["op"] if kind == "feed" else [])]
        if kind == "evolve":
            known = [name for name in NEW_COLUMNS if name in state.columns]
            if known and self.chance.random() < 0.3:  # not both: that would look like a new name
                columns.remove(self.chance.choice(known))
            else:
                columns += NEW_COLUMNS[len(known) : len(known) + 1]
        return columns

    def _options(self, kind: str, strategy: str, state: State, rows: list[Row]) -> dict[str, Any]:
        chance = self.chance
        options: dict[str, Any] = {"undoable": True} if chance.random() < _UNDOABLE else {}
        if strategy in ("undo", "forget"):
            return {}
        if strategy == "compact":
            partitions = sorted({row["p"] for row in state.rows.values()})
            named = [{"p": chance.choice(partitions)}] if partitions and chance.random() < 0.3 else None
            size, order = chance.choice(["2KB", "20KB", "256MB"]), chance.choice([None, "id", "n"])
            return options | {"target_size": size, "sort_by": order, "partitions": named}
        if strategy == "overwrite_partitions":
            replaced = sorted({row["p"] for row in rows})
            if not replaced or chance.random() < 0.5:
                return options | {"partitions": [{"p": p} for p in replaced or [chance.randrange(PARTITIONS)]]}
            return options
        if strategy in ("append", "overwrite", "full_merge", "deduplicate"):
            return options
        options["replace"] = chance.choice(["in_place", "new_file"])
        if strategy == "upsert" and kind != "move" and chance.random() < 0.3:
            options["small_files"] = "append"
        bound = ("p", ">=", 1) if chance.random() < 0.3 else ("n", ">=", self.number - chance.randint(3, 30))
        more: dict[str, dict[str, Any]] = {
            "feed": _FEED,
            "move": {"on_move": "move"},
            "evolve": {"on_schema_change": "evolve"},
            "some columns": {"update_columns": ["x", "n"]},
            "missing": {"delete_missing": "partitions"},
            "filter": {"filters": [(bound[0], "<", bound[2])]},
            "batch": {"batch": max(1, state.batch + chance.choice([0, 1, 1]))},
        }
        return options | more.get(kind, {})

    def _rows(self, kind: str, state: State) -> list[Row]:
        if kind in ("compact", "forget", "undo", "filter"):
            return []
        ids = self.chance.sample(range(KEYS), self.chance.randint(1, KEYS // 3))
        if kind == "append":
            ids = [key for key in ids if key not in state.rows]
        if kind == "overwrite_partitions":
            return self._rows_of_partitions(ids, state)
        if kind == "empty a partition":
            gone = self.chance.randrange(PARTITIONS)
            ids = [key for key, row in state.rows.items() if row["p"] == gone] or ids
        if kind == "feed":
            return [change for key in ids for change in self._changes(key, state)]
        found = [self._row(key, self.number, self._partition(key, state, is_any=kind == "move")) for key in ids]
        for row in found:
            if kind == "evolve" and self.chance.random() < 0.1:
                row["w"] += LARGEST_INT32
        return found

    def _rows_of_partitions(self, ids: list[int], state: State) -> list[Row]:
        """No key of another partition: a write does not look for it."""
        partitions = self.chance.sample(range(PARTITIONS), self.chance.randint(1, 2))
        free = [key for key in ids if key not in state.rows or state.rows[key]["p"] in partitions]
        rows = [self._row(key, self.number, self.chance.choice(partitions)) for key in free]
        replaced = {row["p"] for row in rows}  # perhaps one of the two only
        return [row for row in rows if row["id"] not in state.rows or state.rows[row["id"]]["p"] in replaced]

    def _changes(self, key: int, state: State) -> list[Row]:
        """One or two changes of a key, in any order. Some are older than its row."""
        changes = []
        for n in self.chance.sample(range(max(0, self.number - 5), self.number + 2), self.chance.randint(1, 2)):
            if self.chance.random() < 0.3:
                changes.append({**dict.fromkeys(self._row(key, n, 0)), "id": key, "n": n, "op": "D"})
            else:
                is_older = n < state.rows.get(key, {"n": -1})["n"]  # its partition does not matter
                changes.append({**self._row(key, n, self._partition(key, state, is_any=is_older)), "op": "U"})
        return changes

    def _partition(self, key: int, state: State, *, is_any: bool) -> int:
        """The partition of an existing key, or any."""
        old = state.rows.get(key)
        return self.chance.randrange(PARTITIONS) if is_any or old is None else int(old["p"])

    def _row(self, key: int, number: int, partition: int) -> Row:
        row = {"id": key, "x": text_of(key, number), "n": number, "p": partition, "w": number}
        return row | {name: 10 * number + i for i, name in enumerate(NEW_COLUMNS)}
