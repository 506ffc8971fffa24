"""The code map in CONTRIBUTING.md names every package and module, in the order of imports; paths in documents exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fsspeckit
from core.test_imports import LAYERS

ROOT = Path(fsspeckit.__file__).parent
REPOSITORY = Path(__file__).parent.parent
TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text()
DECISIONS = REPOSITORY / "docs/decisions"


def packages_and_modules() -> set[str]:
    """All packages but `core` and `datasets`, and the modules that are in none of them."""
    folders = [ROOT, ROOT / "core", ROOT / "datasets"]
    modules = {file for folder in folders for file in folder.glob("*.py") if not file.name.startswith("__")}
    packages = {file.parent for folder in folders for file in folder.glob("*/__init__.py")} - set(folders)
    return {str(file.relative_to(ROOT)) for file in modules} | {f"{p.relative_to(ROOT)}/" for p in packages}


def test_the_map_names_every_package_and_module() -> None:
    firsts = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    named = [name for first in firsts for name in re.findall(r"`([^`]+)`", first)]
    assert sorted(named) == sorted(packages_and_modules())


def test_modules_that_the_map_names_exist() -> None:
    """In the row of `core/values/`, `keys` means `core/values/keys.py`."""
    missing = [
        f"{package}{word}"
        for package, contents in re.findall(r"^\| `(core/\w+/)` \|(.*)\|$", TEXT, re.MULTILINE)
        for word in re.findall(r"`([a-z_0-9]+)`", contents)
        if not (ROOT / package / f"{word}.py").exists()
    ]
    assert missing == []


def imported_names(file: Path) -> Iterator[str]:
    """`fsspeckit.core.merge.run` for `from fsspeckit.core.merge import run`, imports in functions included."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_row_of_the_map_imports_only_from_rows_above() -> None:
    rows = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in TEXT.splitlines() if line.startswith("| `")]
    ranks = {re.sub(r"\.py$|/$", "", name): rank for rank, names in enumerate(rows) for name in names}

    def row_of(path: str) -> str | None:
        return next((row for row in ranks if f"{path}/".startswith(f"{row}/")), None)

    imports = {
        (row_of(str(file.relative_to(ROOT).with_suffix(""))), row_of(name.removeprefix("fsspeckit.").replace(".", "/")))
        for file in ROOT.rglob("*.py")
        for name in imported_names(file)
        if name.startswith("fsspeckit.")
    }
    assert {(row, other) for row, other in imports if row and other and ranks[other] > ranks[row]} == {
        ("core/values", "core/model"),  # these two, and `footer_columns`, know each other
        ("core/model", "core/footer_columns"),
        ("core/incremental", "datasets/pyarrow"),  # when it is called: see test_imports
        ("datasets/spark", "api"),
    }


def test_the_map_is_in_the_order_of_the_enforced_layers() -> None:
    rows = re.findall(r"^\| `core/(\w+)(?:\.py|/)` \|", TEXT, re.MULTILINE)
    layers = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    assert sorted(rows) == sorted(layers)
    assert rows == sorted(rows, key=lambda name: layers[name])


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
