"""Spark reads rewritten files with filters pushed down and not, and lakes before and after merges.

`python -m readers.spark FOLDER` goes through what the conformance suite kept there (`--keep-rewritten`).

Spark plans a scan in 20 ms, and starts a job in 100. So one job has a hundred scans, each with its own filter, and one
scan reads all files of one schema that have the filter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from readers.attempt import attempt
from readers.check import Tally, filter_differences
from readers.engines import CannotFilter, bounds_of, rows_of
from readers.filters import MOST_ROWS, Filter, filters_of, read
from readers.lakes import MOST_ROWS as MOST_LAKE_ROWS
from readers.lakes import Counts, Read, unreadable
from readers.spark_files import (
    INTERPRETED,
    PUSHDOWNS,
    ROW,
    Content,
    SparkFile,
    SparkReader,
    aggregates,
    escaped,
    new_session,
    schema_of,
    texts_of,
    values_of,
)
from spark_session import local_session

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Rows = Counter[tuple[str, int]]  # files, and the hashes of rows
_QUERIES = 100  # of one job
_FILES = 200  # that are read together
_PATH = "_path_of_file"


@dataclass(frozen=True)
class Pair:
    """A rewritten file, and the file before the merge."""

    new: str
    old: str | None


@dataclass
class Group:
    """Rewritten files of one schema, and the files that each condition is for, with the filter that it is for them."""

    view: str
    files: list[Content] = field(default_factory=list)
    conditions: dict[str, dict[str, Filter]] = field(default_factory=lambda: defaultdict(dict))

    def open(self, session: Any) -> None:
        paths = [escaped(file.path) for file in self.files]
        frame = session.read.schema(self.files[0].schema).parquet(*paths)
        frame.selectExpr("*", f"_metadata.file_path AS {_PATH}").createOrReplaceTempView(self.view)

    def select(self, *columns: str) -> str:
        return f"SELECT {', '.join((_PATH, *columns))} FROM {self.view}"

    def pushed(self, condition: str) -> str:
        """A scan of the files that the condition is for. Spark prunes the other files before it reads anything."""
        uris = [
            f"CAST(X'{file.uri.encode().hex()}' AS STRING)"
            for file in self.files
            if file.path in self.conditions[condition]
        ]
        others = f" AND {_PATH} IN ({', '.join(uris)})" if len(uris) < len(self.files) else ""
        return f"{self.select(f'hash({ROW})')} WHERE {condition}{others}"


def differences(new: str, old: str | None, readers: Sequence[SparkReader], tally: Tally) -> list[str]:
    """As `readers.check.differences`."""
    return [text for _, text in all_differences([Pair(new, old)], readers, tally)]


def all_differences(pairs: Sequence[Pair], readers: Sequence[SparkReader], tally: Tally) -> list[tuple[Pair, str]]:
    """What Spark finds in files only without a filter pushed down, or only with it: many files and filters in a job."""
    filters = {pair: made for pair in pairs if (made := _filters(pair)) is not None}
    contents = read_contents(readers[0].plain, [path for pair in filters for path in (pair.new, pair.old) if path])
    tally.files += len(filters)
    found: list[tuple[Pair, str]] = []
    read: dict[str, tuple[Pair, Content, Content | None]] = {}
    for pair in filters:
        new, old = contents[pair.new], contents[pair.old] if pair.old else None
        if not isinstance(new, str):
            read[pair.new] = (pair, new, old if isinstance(old, Content) else None)
        elif isinstance(old, Content):
            found.append((pair, f"spark read the file before the merge, and now: {new}"))
    groups = _groups([(new, old, filters[pair]) for pair, new, old in read.values()])
    expected = _expected(readers[0].plain, groups)
    for reader in readers:
        suspects = _differing(reader, groups, expected, tally)
        if reader is readers[0]:  # readers differ only in how they push down filters
            suspects += _differing_bounds(reader, [(new, filters[pair]) for pair, new, _ in read.values()], tally)
        whole: dict[str, bool] = {}
        for path, suspect in suspects:
            pair, new, old = read[path]
            if old is not None and old.path not in whole:
                whole[old.path] = _reads_whole(reader, old)
            if old is not None and not whole[old.path]:
                tally.excused.append(f"{reader.name} does not read the file before the merge either: {path}")
                continue
            one, other = SparkFile(reader, new), SparkFile(reader, old) if old else None
            found += [(pair, text) for text in filter_differences(reader, one, other, suspect, tally)]
    return found


def _reads_whole(reader: SparkReader, file: Content) -> bool:
    """Without a filter. Row by row, Spark fails at some nested columns with small pages, which PyArrow writes."""
    rows = attempt(lambda: reader.pushing.read.schema(file.schema).parquet(escaped(file.path)).collect())
    return not isinstance(rows, str)


def _filters(pair: Pair) -> list[Filter] | None:
    table, before = read(pair.new), read(pair.old) if pair.old else None
    return None if table is None or table.num_rows > MOST_ROWS else filters_of(table, before)


def _groups(files: Iterable[tuple[Content, Content | None, list[Filter]]]) -> list[Group]:
    groups: dict[str, Group] = {}
    for new, old, filters in files:
        group = groups.setdefault(new.schema.json(), Group(f"files_{len(groups)}"))
        group.files.append(new)
        for one in filters:
            if one.operator != "bounds":
                condition = attempt(partial(new.condition, one, old))
                if not condition.startswith(CannotFilter.__name__):
                    group.conditions[condition][new.path] = one
    return list(groups.values())


def read_contents(session: Any, paths: Iterable[str]) -> dict[str, Content | str]:
    """What Spark reads without filters, or its error."""
    found: dict[str, Content | str] = {}
    schemas: dict[tuple[str, str], Any] = {}
    groups: dict[str, Group] = {}
    for path in dict.fromkeys(paths):
        metadata = pq.read_metadata(path)
        same = (str(metadata.schema), str(metadata.metadata))
        if isinstance(schemas.get(same, ""), str):
            schemas[same] = attempt(partial(schema_of, session, path))
        if isinstance(schemas[same], str):
            found[path] = schemas[same]
        else:
            group = groups.setdefault(schemas[same].json(), Group(f"contents_{len(groups)}"))
            group.files.append(Content(path, schemas[same], {}))
    return found | _with_values(session, list(groups.values()))


def _with_values(session: Any, groups: Sequence[Group]) -> dict[str, Content | str]:
    """The files with their values. Of a group that Spark cannot read, each file is read alone."""
    found: dict[str, Content | str] = {}
    texts = [texts_of(group.files[0].schema, group.files[0].path) for group in groups]
    queries = {}
    for at, group in enumerate(groups):
        group.open(session)
        queries[at] = group.select(f"CAST(array({', '.join(texts[at].values())}) AS ARRAY<STRING>)")
    for at, answer in answers(session, queries).items():
        files = groups[at].files
        if isinstance(answer, str) and len(files) > 1:
            found |= _with_values(session, [Group(f"{groups[at].view}_{i}", [file]) for i, file in enumerate(files)])
        elif isinstance(answer, str):
            found[files[0].path] = answer
        else:
            uris, rows = {}, defaultdict(list)
            for uri, values in answer:
                path = unquote(urlparse(uri).path)
                uris[path] = uri
                rows[path].append(values)
            found |= {
                f.path: Content(f.path, f.schema, values_of(texts[at], rows[f.path]), uris.get(f.path, ""))
                for f in files
            }
    return found


def _expected(plain: Any, groups: Sequence[Group]) -> dict[tuple[str, str], Rows | str]:
    """The rows for which each condition holds, by a scan that does not know of it: Spark pushes down no condition that
    it is to select."""
    parts = {(group.view, part): group for group in groups for part in batched(group.conditions, _QUERIES)}
    for group in groups:
        group.open(plain)
    queries = {
        (view, part): group.select(f"hash({ROW})", "concat(" + ", ".join(f"if({one}, '1', '0')" for one in part) + ")")
        for (view, part), group in parts.items()
    }
    expected: dict[tuple[str, str], Rows | str] = {}
    for (view, part), answer in answers(plain, queries).items():
        for at, condition in enumerate(part):
            uris = {
                file.uri for file in parts[view, part].files if file.path in parts[view, part].conditions[condition]
            }
            expected[view, condition] = (
                answer
                if isinstance(answer, str)
                else Counter((uri, row) for uri, row, holds in answer if holds[at] == "1" and uri in uris)
            )
    return expected


def _differing(
    reader: SparkReader, groups: Sequence[Group], expected: Mapping[tuple[str, str], Rows | str], tally: Tally
) -> list[tuple[str, Filter]]:
    """The files and filters that find other rows in a scan with the filter."""
    for group in groups:
        group.open(reader.pushing)
    found = answers(
        reader.pushing, {(group.view, text): group.pushed(text) for group in groups for text in group.conditions}
    )
    suspects = []
    for group in groups:
        for condition, filters in group.conditions.items():
            rows, answer = expected[group.view, condition], found[group.view, condition]
            differing = {file.uri for file in group.files}
            if not isinstance(rows, str) and not isinstance(answer, str):
                pushed = Counter((uri, row) for uri, row in answer)
                differing = {uri for uri, _ in (pushed - rows) + (rows - pushed)}
            suspected = [file.path for file in group.files if file.path in filters and file.uri in differing]
            tally.filters[reader.name] += len(filters) - len(suspected)
            suspects += [(path, filters[path]) for path in suspected]
    return suspects


def _differing_bounds(
    reader: SparkReader, files: Sequence[tuple[Content, list[Filter]]], tally: Tally
) -> list[tuple[str, Filter]]:
    """The files and columns with other bounds in the footer than in the rows."""
    queries: dict[str, str] = {}
    plain: dict[str, str] = {}
    bounded: dict[str, list[Filter]] = {}
    for number, (file, filters) in enumerate(files):
        found = [one for one in filters if one.operator == "bounds" and file.has_bounds(one.leaf)]
        if found:
            bounded[file.path] = found
            view = f"bounds_{number}"
            calls = ", ".join(f"CAST({call} AS STRING)" for call in aggregates([one.leaf for one in found]))
            for session, made in ((reader.aggregating, queries), (reader.plain, plain)):
                session.read.schema(file.schema).parquet(escaped(file.path)).createOrReplaceTempView(view)
                made[file.path] = f"SELECT array({calls}) FROM {view}"
    suspects = []
    expected, answered = answers(reader.plain, plain), answers(reader.aggregating, queries)
    for path, found in bounded.items():
        one, other = expected[path], answered[path]
        same = not isinstance(one, str) and not isinstance(other, str) and bounds_of(one) == bounds_of(other)
        tally.filters[reader.name] += len(found) if same else 0
        suspects += [] if same else [(path, one) for one in found]
    return suspects


def answers(session: Any, queries: Mapping[Key, str]) -> dict[Key, list[tuple[Any, ...]] | str]:
    """The rows of many queries with the same types of columns, or errors: a job for a hundred of them.

    If a job fails, its halves run alone, until the query is found that fails.
    """
    found: dict[Key, list[tuple[Any, ...]] | str] = {}
    waiting = list(batched(queries, _QUERIES))
    while waiting:
        keys = waiting.pop()
        rows = attempt(partial(_collect, session, [queries[key] for key in keys]))
        if not isinstance(rows, str):
            found |= dict(zip(keys, rows, strict=True))
        elif len(keys) == 1:
            found[keys[0]] = rows
        else:
            waiting += [keys[: len(keys) // 2], keys[len(keys) // 2 :]]
    return found


def _collect(session: Any, queries: Sequence[str]) -> list[list[tuple[Any, ...]]]:
    rows: list[list[tuple[Any, ...]]] = [[] for _ in queries]
    for row in union(session, queries).coalesce(1).collect():
        rows[row[0]].append(tuple(row[1:]))
    return rows


def union(session: Any, queries: Sequence[str]) -> Any:
    """All rows of the queries, each with the number of its query."""
    return session.sql(" UNION ALL ".join(f"SELECT {at}, * FROM ({query})" for at, query in enumerate(queries)))


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """As `itertools.batched` of Python 3.12.

    >>> list(batched("abc", 2))
    [('a', 'b'), ('c',)]
    """
    rest = iter(items)
    while batch := tuple(islice(rest, size)):
        yield batch


def read_lake(spark: Any, lake: Path) -> Read | str:
    """What Spark reads with its default options, or its error."""

    def collect() -> Read:
        frame = spark.read.parquet(escaped(str(lake)))
        rows = frame.selectExpr(ROW).collect()
        return Read(len(rows), frame.schema.simpleString(), rows_of(rows) if len(rows) <= MOST_LAKE_ROWS else None)

    return attempt(collect)


def lake_differences(spark: Any, before: Path, after: Path, counts: Counts) -> tuple[bool, list[str]]:
    """Did Spark read the lake before the merge, and does it read the right rows afterwards?"""
    old, new = read_lake(spark, before), read_lake(spark, after)
    was_read = not isinstance(old, str) and old.count == counts.before
    return was_read, unreadable({"spark": old}, {"spark": new}, counts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, help="stop after as long, and say how far it got")
    options = parser.parse_args(arguments)
    files = sorted((options.folder / "files").glob("*.parquet"), key=_schema_text)
    lakes = sorted((options.folder / "lakes").iterdir())
    if not files or not lakes:
        parser.error(f"{options.folder} has no files or no lakes")
    begin = time.monotonic()
    end = begin + 60 * options.minutes if options.minutes else float("inf")
    spark = local_session(**{"spark.driver.extraJavaOptions": "", "spark.log.level": "OFF"})
    session = new_session(spark, INTERPRETED)
    tally, found, read_before, done = Tally(), 0, 0, 0
    for lake in lakes:
        done += 1
        counts = Counts(**json.loads((lake / "counts.json").read_text()))
        was_read, texts = lake_differences(session, lake / "before", lake / "after", counts)
        read_before += was_read
        found += _print(lake.name, texts)
        if time.monotonic() > end:
            break
    seconds = time.monotonic() - begin
    print(f"{done} of {len(lakes)} lakes, {read_before} of them read before the merge, {seconds:.0f} s", flush=True)
    readers, done = [SparkReader(spark, name) for name in PUSHDOWNS], 0
    for some in batched(files, _FILES):
        pairs = [Pair(str(file), str(old) if (old := _old(file)).exists() else None) for file in some]
        for pair, text in all_differences(pairs, readers, tally):
            found += _print(Path(pair.new).name, [text])
        done += len(some)
        print(f"{done} of {len(files)} files, {time.monotonic() - begin:.0f} s", flush=True)
        if time.monotonic() > end:
            break
    spark.stop()
    print(
        f"{done} of {len(files)} files, {tally.files} of them with filters: {dict(tally.filters)}; "
        f"{found} differences, {len(tally.excused)} more that the old files have, too"
    )
    return 1 if found else 0


def _schema_text(path: Path) -> str:
    """Files of one schema are read together."""
    return str(attempt(lambda: pq.read_schema(path).remove_metadata()))


def _old(file: Path) -> Path:
    return file.parent.parent / "old" / file.name


def _print(name: str, texts: Sequence[str]) -> int:
    for text in texts:
        print(f"{name}: {text}", flush=True)
    return len(texts)


if __name__ == "__main__":
    sys.exit(main())
