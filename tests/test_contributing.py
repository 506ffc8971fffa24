"""CONTRIBUTING.md is true: its map names every room and no other, and its layers are those that are enforced."""

from __future__ import annotations

import re
from pathlib import Path

import fsspeckit
from core.test_imports import LAYERS

ROOT = Path(fsspeckit.__file__).parent
REPOSITORY = Path(__file__).parent.parent
TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text()
DECISIONS = REPOSITORY / "docs/decisions"


def rooms() -> set[str]:
    """Packages, and modules that stand in none. `core` and `datasets` are floors, with rooms of their own."""
    floors = [ROOT, ROOT / "core", ROOT / "datasets"]
    modules = {file for floor in floors for file in floor.glob("*.py") if not file.name.startswith("__")}
    packages = {file.parent for floor in floors for file in floor.glob("*/__init__.py")} - set(floors)
    return {str(file.relative_to(ROOT)) for file in modules} | {f"{p.relative_to(ROOT)}/" for p in packages}


def test_the_map_names_every_room_and_no_other() -> None:
    firsts = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    named = [name for first in firsts for name in re.findall(r"`([^`]+)`", first)]
    assert sorted(named) == sorted(rooms())


def test_modules_that_the_map_names_within_rooms_are_there() -> None:
    """`keys`, `footers`: a word in backquotes that is a module's name in one row is a module of that room."""
    modules = {file.stem for file in ROOT.rglob("*.py")}
    astray = [
        f"{room}{word}"
        for room, what in re.findall(r"^\| `(core/\w+/)` \|(.*)\|$", TEXT, re.MULTILINE)
        for word in re.findall(r"`([a-z_]+)`", what)
        if word not in modules or not (ROOT / room / f"{word}.py").exists()
    ]
    assert astray == []


def test_the_layers_are_those_that_are_enforced() -> None:
    block = TEXT.split("From the ground up", 1)[1].split("\n\n")[1]
    layers = [set(line.strip().split(", ")) for line in block.splitlines()]
    assert layers[: len(LAYERS)] == LAYERS
    assert layers[len(LAYERS) :] == [{"datasets"}, {"api", "cli", "report", "ship", "utils"}]


def test_paths_that_the_documents_name_exist() -> None:
    """`core/match/prune.py`, `tests/soak`. guarantees.md leaves `tests/` out."""
    pages = [REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
    path = re.compile(r"`((?:core|datasets|cli|report|tests|scripts|benchmarks)/[\w./]+)`")
    named = [(page.name, name) for page in pages for name in path.findall(page.read_text())]
    assert len(named) > 50
    roots = (ROOT, REPOSITORY, REPOSITORY / "tests")
    assert [entry for entry in named if not any((root / entry[1]).exists() for root in roots)] == []


def test_every_decision_record_is_in_the_index() -> None:
    records = {file.name: file.read_text().splitlines()[0] for file in DECISIONS.glob("0*.md")}
    index = re.findall(r"^\| \[(\d{4})\]\((.+)\) \| (.+) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert {name: f"# {number} {title}" for number, name, title in index} == records


def test_decision_records_that_are_referred_to_exist() -> None:
    numbers = {file.name[:4] for file in DECISIONS.glob("0*.md")}
    folders = [REPOSITORY / name for name in ("src", "scripts", "tests", "docs")]
    pages = [file for folder in folders for file in folder.rglob("*.[pm][yd]")]
    pages += [REPOSITORY / name for name in ("pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md")]
    referred = {(file.name, number) for file in pages for number in re.findall(r"decisions/(\d{4})", file.read_text())}
    assert referred
    assert [reference for reference in referred if reference[1] not in numbers] == []
