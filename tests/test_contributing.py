"""CONTRIBUTING.md is true: its map names every room and no other, and its layers are those that are enforced."""

from __future__ import annotations

import re
from pathlib import Path

import fsspeckit
from core.test_imports import LAYERS

ROOT = Path(fsspeckit.__file__).parent
TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


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
    assert layers[len(LAYERS) :] == [{"datasets"}, {"api", "cli", "report", "ship"}]
