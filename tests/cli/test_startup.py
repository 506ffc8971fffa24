"""`fsspeckit --help` answers at once: nothing heavy is imported before a command runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fsspeckit.cli

FIRST = ["__init__", "commands", "exit_codes", "options", "output", "sources", "write_options", "columns"]
FIRST += ["compact_options", "row_options", "sql_options", "tools", "watching"]
LIGHT = {"click", "fsspeckit", "fsspeckit.core", "fsspeckit.core.suggestions", "fsspeckit.datasets.options"}
LIGHT |= {f"fsspeckit.cli.{name}" for name in FIRST}


@pytest.mark.parametrize("name", FIRST)
def test_modules_that_every_command_imports_import_only_click(name: str) -> None:
    source = (Path(fsspeckit.cli.__file__).parent / f"{name}.py").read_text()
    heavy = {
        m for m in _imported(ast.parse(source)) if m.partition(".")[0] in ("rich", "pyarrow", "numpy", "fsspeckit")
    }
    assert heavy <= LIGHT


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, fsspeckit.cli.commands; print([m for m in ('pyarrow', 'numpy', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found
