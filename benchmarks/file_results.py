"""Results of the benchmarks about files: compaction, schema changes, undo, and readers during merges.

Each benchmark replaces its own part of benchmarks/results/files.json, and `report.py` makes a section of RESULTS.md of
all parts. Programs take turns in one run, so what counts are ratios.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import results

PARTS = ("compaction", "compaction with Spark", "schema changes", "undo", "readers")


@dataclass
class Ratio:
    """A ratio, of wall time if nothing else is said, and its limit. `cpu` is that of processor time."""

    text: str
    ratio: float | None
    limit: float
    cpu: float | None = None
    detail: str = ""

    @property
    def met(self) -> str:
        return "not measured" if self.ratio is None else "met" if self.ratio <= self.limit else "**not met**"


@dataclass
class Part:
    """What one benchmark measured, and with which arguments. `load` is the average load of the machine meanwhile.

    It is not `whole` with fewer or smaller files, or fewer rounds, than the limits are for.
    """

    name: str
    arguments: str
    ratios: list[Ratio]
    whole: bool
    packages: tuple[str, ...] = ()
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))
    machine: str = field(default_factory=results.machine)
    versions: dict[str, str] = field(default_factory=dict)
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))

    def save(self) -> None:
        found = {name: metadata.version(name) for name in ("pyarrow", *self.packages)}
        self.versions = {"fsspeckit": results.our_version(), **self.versions, **found}
        parts = {part.name: part for part in load()} | {self.name: self}
        results.FOLDER.mkdir(exist_ok=True)
        stored = {name: asdict(parts[name]) for name in PARTS if name in parts}
        _path().write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load() -> list[Part]:
    if not _path().exists():
        return []
    stored = json.loads(_path().read_text(encoding="utf-8"))
    parts = [Part(**part) for part in stored.values()]
    for part in parts:
        part.ratios = [Ratio(**ratio) for ratio in part.ratios]  # type: ignore[arg-type]
    return parts


def _path() -> Path:
    return results.FOLDER / "files.json"


def section(parts: list[Part]) -> list[str]:
    """The section of RESULTS.md."""
    lines = ["## Compaction, schema changes, undo, readers", ""]
    lines += [
        "Programs take turns in one run. Ratios are of the fastest rounds; other work on the machine disturbs them.",
        "",
    ]
    for part in parts:
        versions = ", ".join(f"{name} {version}" for name, version in part.versions.items())
        smaller = [] if part.whole else ["**A try, not a measurement.**", ""]
        lines += [f"### {part.name[0].upper()}{part.name[1:]}", ""]
        lines += [f"{part.date}; {part.machine}, load {part.load:g}; {versions}; `{part.arguments}`.", "", *smaller]
        lines += ["| | ratio | of processor time | limit | | |", "| --- | ---: | ---: | ---: | --- | --- |"]
        lines += [_line(ratio) for ratio in part.ratios] + [""]
    return lines if parts else []


def _line(ratio: Ratio) -> str:
    figures = ["–" if value is None else f"{value:.2f}" for value in (ratio.ratio, ratio.cpu)]
    return f"| {ratio.text} | {figures[0]} | {figures[1]} | {ratio.limit:g} | {ratio.met} | {ratio.detail} |"
