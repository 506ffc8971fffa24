"""What is done with a mutant, and the ways to do it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from fsspeckit.api import dataset_io
from fuzz import oracle
from fuzz.mutations import Dice, mutate
from fuzz.samples import Sample

MERGES = ("upsert", "insert", "update", "full_merge", "deduplicate", "overwrite", "append")
LOOKS = ("plan", "inspect", "read", "filter", "confirm", "stamp")
MAINTENANCE = ("compact", "copy", "sort", "cut", "evolve", "evolve", "delete", "delete filter", "append rows", "undo")
FORMS = ("path", "paths", "directory", "stream")


Mode = Literal["merge", "splice", "maintain"]


@dataclass(frozen=True)
class Case:
    """What is done with which mutant; all of it follows from seed and number."""

    number: int
    sample: Sample
    role: str
    engine: str
    operation: str
    form: str
    mutant: bytes

    @classmethod
    def of(cls, seed: int, number: int, samples: list[Sample], mode: Mode = "merge") -> Case:
        """`splice` and `maintain` are for files of which most is to be copied: their footers, and the headers of their
        pages."""
        random = Dice(f"{seed}:{number}")
        sample = random.choice(samples)
        if mode == "maintain":
            random.regions = (55, 35, 0, 10)
            mutant = mutate(sample.file, random) if number % 50 else sample.file
            operation = random.choice(MAINTENANCE)
            return cls(number, sample, "maintained target", "pyarrow", operation, "path", mutant)
        if mode == "splice":
            random.regions = (55, 45, 0, 0)
            mutant = mutate(sample.file, random) if number % 50 else sample.file
            engine = random.choices(("pyarrow", "duckdb"), (95, 5))[0]
            return cls(number, sample, "spliced target", engine, random.choice(("update", "upsert")), "path", mutant)
        role = random.choice(("source", "target"))
        engine = random.choices(("pyarrow", "duckdb"), (80, 20))[0]
        operation = random.choice((*MERGES, "plan") if role == "source" else (*MERGES, *LOOKS))
        form = random.choices(FORMS, (50, 20, 20, 10))[0]
        mutant = mutate(sample.file, random) if number % 50 else sample.file
        return cls(number, sample, role, engine, operation, form, mutant)

    def __str__(self) -> str:
        how = f" as {self.form}" if self.role == "source" else ""
        return f"mutant {self.number}: {self.sample.name} as {self.role}{how}, {self.operation} by {self.engine}"


class Finding(Exception):
    """Something that may not happen."""


_ios: dict[str, Any] = {}


def engine_io(engine: str) -> Any:
    return _ios.setdefault(engine, dataset_io(engine))


def write(engine: str, source: Any, lake: str, operation: str) -> Any:
    if operation in ("append", "overwrite"):
        return engine_io(engine).write_dataset(source, lake, operation)
    if operation in ("full_merge", "deduplicate"):
        return engine_io(engine).write_parquet_dataset(source, lake, operation, ["id"])
    return getattr(engine_io(engine), "plan" if operation == "plan" else "merge")(
        source, lake, "upsert" if operation == "plan" else operation, ["id"]
    )


@dataclass
class Trial:
    case: Case
    folder: Path

    @property
    def lake(self) -> str:
        return str(self.folder / "lake")

    def lake_rows(self, names: list[str]) -> list[oracle.Row]:
        files = sorted(Path(self.lake).rglob("*.parquet"))
        return [row for file in files for row in oracle.rows(oracle.read(file.read_bytes()), names)]

    def names(self) -> list[str]:
        schema = pq.read_schema(io.BytesIO(self.case.sample.file))
        return ["id", *(n for n in schema.names if n != "id")]

    def expect(self, expected: Any, names: list[str] | None = None) -> str:
        try:
            found = oracle.Counter(self.lake_rows(names or self.names()))
        except oracle.Unread as error:
            raise Finding(f"the lake cannot be read after the merge: {error}") from error
        if found != expected:
            lost, new = list((expected - found).items())[:2], list((found - expected).items())[:2]
            raise Finding(f"other rows than PyArrow reads: lacks {lost}, has {new}")
        return "merged"


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}
