"""Small lakes for the options that decide about rows, and what is asserted of every merge into them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from damage import nothing_changes
from fsspeckit.core.errors import MergeValidationError
from support import data_files, rows, write_lake

COUNTS = ("inserted", "updated", "deleted", "skipped", "moved")


def flat_lake(folder: Path, **options: Any) -> str:
    """Ids 0 to 29 in three files of ten rows, each id with the text `old` and the version 5."""
    files = {f"f{i}.parquet": flat_rows(range(i * 10, i * 10 + 10)) for i in range(3)}
    return write_lake(folder / "lake", files, **{"row_group_size": 4, **options})


def flat_rows(ids: Any, x: Any = "old", version: Any = 5) -> pa.Table:
    ids = list(ids)
    texts = x if isinstance(x, list) else [x] * len(ids)
    if not isinstance(version, pa.Array):
        version = pa.array(version if isinstance(version, list) else [version] * len(ids), pa.int64())
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array(texts, pa.string()), "version": version})


def day_lake(folder: Path, **options: Any) -> str:
    """Ids 1 to 6, two of each of the days a, b and c, which only the folders name."""
    files = {f"day={d}/f{d}.parquet": flat_rows([2 * n + 1, 2 * n + 2]) for n, d in enumerate("abc")}
    return write_lake(folder / "lake", files, **options)


def changes(ids: Any, day: Any = None, x: Any = "new", version: Any = 9, **more: Any) -> pa.Table:
    """Rows of a source: the columns of `flat_rows`, a day if it is given, and others."""
    table = flat_rows(ids, x, version)
    for name, values in {**({} if day is None else {"day": day}), **more}.items():
        table = table.append_column(name, values if isinstance(values, pa.Array) else pa.array(list(values)))
    return table


def counts(result: Any) -> dict[str, int]:
    """The counts that are not zero."""
    return {name: getattr(result, name) for name in COUNTS if getattr(result, name)}


def merged(io: Any, data: Any, lake: str, strategy: str = "upsert", keys: Any = ("id",), **options: Any) -> Any:
    """The result of a merge. Its plan has the same counts, and changes nothing."""
    with nothing_changes(lake):
        plan = io.plan(data, lake, strategy, list(keys), **options)
    result = io.merge(data, lake, strategy, list(keys), **options)
    assert counts(plan) == counts(result)
    assert plan.target_count_after == result.target_count_after == len(rows(lake))
    consistent(result, lake)
    return result


def consistent(result: Any, lake: str) -> None:
    """Counts and files of a result agree with each other and with the folder."""
    assert result.target_count_after == result.target_count_before + result.inserted - result.deleted
    assert sorted(file.path for file in result.files) == [f"{lake}/{name}" for name in data_files(lake)]
    assert sum(file.row_count for file in result.files) == result.target_count_after
    for operation in ("rewritten", "inserted", "preserved"):
        paths = [file.path for file in result.files if file.operation == operation]
        assert sorted(getattr(result, f"{operation}_files")) == sorted(paths)
    assert {f"{lake}/{name}" for name in data_files(lake)}.isdisjoint(result.removed_files)
    assert result.changed is None or 0 <= result.changed <= result.updated


def refused(
    io: Any,
    data: Any,
    lake: str,
    match: str,
    strategy: str = "upsert",
    keys: Any = ("id",),
    error: type[Exception] = MergeValidationError,
    **options: Any,
) -> None:
    """Merge and plan refuse the input, and change nothing."""
    for call in (io.merge, io.plan):
        with refusal(lake, match, error):
            call(data, lake, strategy, list(keys), **options)


@contextmanager
def refusal(lake: str, match: str, error: type[Exception] = MergeValidationError) -> Any:
    with nothing_changes(lake), pytest.raises(error, match=match) as caught:
        yield
    assert isinstance(caught.value, ValueError)


def seen(lake: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a lake in order, as tuples of these columns."""
    found = [tuple(row[name] for name in columns) for row in rows(lake)]
    return sorted(found, key=lambda row: tuple((value is not None, value) for value in row))


def ids(lake: str) -> list[Any]:
    return [row[0] for row in seen(lake, "id")]


def folders(lake: str) -> list[str]:
    """All folders below a lake."""
    return sorted(str(path.relative_to(lake)) for path in Path(lake).rglob("*") if path.is_dir())


def keeps(before: dict[str, Any], after: dict[str, Any], *names: str) -> None:
    """These files have the same bytes and times as before."""
    assert {name: after.get(name) for name in names} == {name: before[name] for name in names}
