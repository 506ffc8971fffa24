"""What a suite leaves behind: `benchmarks/results/<suite>.json`, of which `report.py` makes tables and charts.

    {"suite": "local", "date": "2026-11-16", "scale": 1.0, "whole": true, "machine": "2 cores, 24 GiB, Linux",
     "versions": {"pyarrow": "26.0.1"}, "ours": ["fsspeckit, PyArrow"], "floor": "PyArrow read+write",
     "works": {"tiny": "5 files of 2,000 rows"}, "contenders": {"Polars by hand": "read, join, write"},
     "rows": [{"work": "tiny", "contender": "Polars by hand", "wall": 0.016, "cpu": 0.02, "peak_mib": 301.0,
               "rounds": 5, "note": ""}]}

`wall`, `cpu` and `peak_mib` are null where `note` says why there is no figure. Names that are the same up to a comma
are one family, of which charts and goals take the best. docs/performance.md quotes a suite only if it is `whole`: no
trial at a smaller scale, with fewer rounds or with some of the works.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "results"


@dataclass
class Row:
    work: str
    contender: str
    wall: float | None = None
    cpu: float | None = None
    peak_mib: float | None = None
    rounds: int = 0
    note: str = ""


@dataclass
class Suite:
    suite: str
    ours: list[str]
    floor: str
    works: dict[str, str]
    contenders: dict[str, str]
    scale: float = 1.0
    whole: bool = True
    versions: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))
    machine: str = field(default_factory=lambda: machine())

    def of(self, work: str, contender: str) -> Row:
        """Its row; an empty one where nothing was measured."""
        matching = (row for row in self.rows if (row.work, row.contender) == (work, contender))
        return next(matching, Row(work, contender, note="not run"))

    def columns(self) -> list[str]:
        """Contenders that were given every work, ours first."""
        return [name for name in self.contenders if any(row.contender == name for row in self.rows)]

    def families(self) -> list[str]:
        return list(dict.fromkeys(family(name) for name in self.columns()))

    def best(self, work: str, name: str) -> Row:
        """The fastest of a family at this work, or the first if none has a time."""
        rows = [self.of(work, column) for column in self.columns() if family(column) == name] or [Row(work, name)]
        return min(rows, key=lambda row: row.wall if row.wall is not None else float("inf"))

    def ours_at(self, work: str) -> Row:
        return self.best(work, family(self.ours[0]))

    def save(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{self.suite}.json").write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


def family(contender: str) -> str:
    return contender.partition(",")[0]


def load(suite: str) -> Suite | None:
    path = FOLDER / f"{suite}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    return Suite(**stored | {"rows": [Row(**row) for row in stored["rows"]]})


def machine() -> str:
    """No name of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def our_version() -> str:
    """The commit that was measured; `-dirty` if something else was."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    described = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    return described.stdout.strip() or "unknown"
