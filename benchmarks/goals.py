"""What we want to be: ours, the better of our engines, as a part of what others take. `report.py` prints how it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from results import Suite


@dataclass(frozen=True)
class Goal:
    """`ours` is a family or contender, and so is `against`; without it the limit is of peak memory in MiB."""

    suite: str
    work: str
    against: str
    limit: float
    ours: str = "fsspeckit"


@dataclass(frozen=True)
class Outcome:
    text: str
    limit: float
    reached: float | None

    @property
    def met(self) -> str:
        return "not measured" if self.reached is None else "met" if self.reached <= self.limit else "**not met**"


FLOOR, DELTA, POLARS = "PyArrow read+write", "delta-rs", "Polars by hand"
MERGE, COPYING, READING = "Delta MERGE", "Iceberg copy-on-write", "Iceberg merge-on-read"
BY_POLARS, BY_DUCKDB, BY_SPARK = "Polars' lake, ", "DuckDB's lake, ", "Spark's lake, "
ALL, ONE = "all 50 files, all columns change", "all 50 files, 1 column of 9 changes"
GOALS = [
    Goal("local", ALL, FLOOR, 0.45),
    Goal("local", ALL, DELTA, 0.7),
    Goal("local", ALL, POLARS, 1.1),
    Goal("local", ONE, FLOOR, 0.25),
    Goal("local", ONE, DELTA, 0.4),
    Goal("local", ONE, POLARS, 0.5),
    Goal("local", "200 columns, 3 change", FLOOR, 0.3),
    Goal("local", "1 row group of 10", FLOOR, 0.12),
    Goal("local", "1 row group of 10", POLARS, 0.3),
    Goal("local", "5 of 50 files", FLOOR, 0.45),
    Goal("local", "5 of 50 files", DELTA, 0.15),
    Goal("local", "5 of 50 files", POLARS, 0.7),
    Goal("local", "2,000 files, 5 touched", DELTA, 0.3),
    Goal("local", "2,000 files, 5 touched", "fsspeckit, plan first", 0.2, "fsspeckit, plan again"),
    Goal("local", "tiny", DELTA, 0.7),
    Goal("spark", "5 of 50 files", MERGE, 0.35),
    Goal("spark", ALL, MERGE, 0.35),
    Goal("spark", "2,000 files, 5 touched", MERGE, 0.6),
    Goal("spark", "5 of 50 files", COPYING, 0.5),
    Goal("spark", ALL, COPYING, 0.35),
    Goal("spark", ONE, COPYING, 0.35),
    Goal("spark", "2,000 files, 5 touched", COPYING, 1.0),
    Goal("spark", "tiny", COPYING, 1.0),
    Goal("spark", ONE, READING, 1.0),
]
# On lakes as users have them: ahead of everyone.
GOALS += [
    Goal("local", lake + part, peer, 1.0)
    for lake, part in [
        (BY_POLARS, "5 of 50 files"),
        (BY_POLARS, "all 50 files"),
        (BY_POLARS, "1 column of 9"),
        (BY_DUCKDB, "5 of 50 files"),
        (BY_DUCKDB, "all 50 files"),
        (BY_DUCKDB, "1 column of 9"),
    ]
    for peer in (FLOOR, DELTA, POLARS, "DuckDB by hand")
]
GOALS += [
    Goal("spark", BY_SPARK + part, peer, 1.0)
    for part in ("5 of 50 files", "all 50 files", "1 column of 9", "zstd, all 50 files")
    for peer in (MERGE, COPYING, READING)
]
# Deletes and change feeds: ahead of everyone who does the same. PyIceberg has deletes only.
DELETES, FEED, ERASED = (
    "10,000 deletes in 5 of 50 files",
    "feed with deletes, all 50 files",
    "100 keys erased from 2,000 files",
)
GOALS += [
    Goal("local", work, peer, 1.0)
    for work in (DELETES, FEED, ERASED)
    for peer in (DELTA, POLARS, "DuckDB by hand", "PyIceberg")
    if (work, peer) != (FEED, "PyIceberg")
]
GOALS += [
    Goal("spark", work, peer, 1.0)
    for work in (DELETES, FEED, ERASED)
    for peer in (MERGE, f"{MERGE} with deletion vectors", COPYING, READING, "read-join-overwrite")
]
PEAKS = {"local": {"fsspeckit, PyArrow": 400.0, "fsspeckit, DuckDB": 600.0}}


def outcomes(suite: Suite) -> Iterator[Outcome]:
    for goal in GOALS:
        if goal.suite == suite.suite:
            ours, theirs = seconds(suite, goal.work, goal.ours), seconds(suite, goal.work, goal.against)
            ratio = ours / theirs if ours is not None and theirs else None
            yield Outcome(f"{goal.work}: {goal.ours} to {goal.against}", goal.limit, ratio)
    for name, limit in PEAKS.get(suite.suite, {}).items():
        peaks = [row.peak_mib for row in suite.rows if row.contender == name and row.peak_mib is not None]
        yield Outcome(f"{name}: peak memory in MiB, at most of all works", limit, max(peaks, default=None))


def seconds(suite: Suite, work: str, name: str) -> float | None:
    """Of one contender, or of the best of a family."""
    return suite.of(work, name).wall if "," in name else suite.best(work, name).wall
