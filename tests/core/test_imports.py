"""Who may import what, and the names that the package promises."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsspeckit
import fsspeckit.core.errors

ROOT = Path(fsspeckit.__file__).parent


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, within functions too; not those of which it only needs the types."""
    tree = ast.parse(path.read_text())
    only_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    skipped = {id(node) for block in only_types for statement in block.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def importers(library: str) -> set[str]:
    files = ROOT.rglob("*.py")
    return {
        str(path.relative_to(ROOT))
        for path in files
        if any(name == library or name.startswith(f"{library}.") for name in imported(path))
    }


def test_sqlglot_and_dbt_are_imported_where_statements_are_read() -> None:
    assert importers("sqlglot") == {"datasets/conditions.py", "datasets/sql_text.py", "datasets/spark/merge_into.py"}
    assert importers("dbt") == {"dbt.py"}


@pytest.mark.parametrize("library", ["duckdb", "pyspark"])
def test_an_engine_is_imported_in_its_own_folder_only(library: str) -> None:
    folder = {"duckdb": "datasets/duckdb/", "pyspark": "datasets/spark/"}[library]
    assert {name for name in importers(library) if not name.startswith(folder)} == set()


def test_engines_have_the_same_names_for_the_same_things() -> None:
    """So that they can be read side by side."""
    homes = {"open_source": "source.py", "spool": "source.py", "match": "keys.py", "exchange": "engine.py"}
    engines = [path.parent for path in (ROOT / "datasets").glob("*/__init__.py")]
    assert [folder.name for folder in engines if not (folder / "engine.py").exists()] == []
    assert [folder.name for folder in engines if not (folder / "io.py").exists()] == []
    astray = [
        f"{node.name} in {path.relative_to(ROOT)}"
        for folder in engines
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and homes.get(node.name, path.name) != path.name
    ]
    assert astray == []


# The packages and modules of the core, lowest first. Those of one line may import each other.
LAYERS = [
    {"actions", "defaults", "errors", "parallel", "progress", "report_text", "reports", "suggestions"},
    {"values", "model", "footer_columns"},
    {"storage", "validate"},
    {"parquet"},
    {"dataset"},
    {"rows"},
    {"match"},
    {"rewrite"},
    {"commit"},
    {"engine"},
    {"local_engine", "execution_plan", "write_plan"},
    {"write_changes"},
    {"key_map"},
    {"compact", "merge", "merge_log", "layout_hints", "results", "incremental"},
]


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["fsspeckit", "core"] and len(parts) > 2 else None


def imported_packages(path: Path) -> Iterator[str]:
    """The packages of the core that a file imports from, `from fsspeckit.core import merge` included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "fsspeckit.core":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from filter(None, [package_of(node.module)])
        elif isinstance(node, ast.Import):
            yield from filter(None, (package_of(alias.name) for alias in node.names))


def test_only_the_parquet_package_knows_field_ids() -> None:
    users = importers("fsspeckit.core.parquet.format")
    assert "core/parquet/splice.py" in users
    assert {name for name in users if not name.startswith("core/parquet/")} == set()


def test_no_caller_asks_for_the_class_of_a_storage() -> None:
    """Callers ask what a storage can do (`on_disk`, `opens_by_request`, `local_path`), so that a new one need not."""
    asking = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        if path.parent != ROOT / "core" / "storage"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and re.search(r"Storage\b|\bDisk\b", ast.unparse(node.args[1]))
    ]
    assert asking == []


def test_the_two_commit_protocols_do_not_know_each_other() -> None:
    disks = {"disk", "staging", "journal", "apply", "recovery", "undo_records"}
    stores = {"store", "head", "lease", "finish", "store_undo"}
    folder = ROOT / "core" / "commit"
    assert disks | stores | {"shared", "session", "forget", "readers", "record", "replace", "undo", "__init__"} == {
        p.stem for p in folder.glob("*.py")
    }
    for ours, theirs in ((disks, stores), (stores, disks)):
        imports = {name for module in ours for name in _commit_modules(folder / f"{module}.py")}
        assert imports & theirs == set()


def _commit_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "fsspeckit.core.commit":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fsspeckit.core.commit."):
            yield str(node.module).rsplit(".", 1)[1]


def test_only_the_commit_knows_the_names_of_its_folders() -> None:
    name = re.compile(r"""["'](\.fsspeckit-?|\.staging_?)["']""")
    knowing = {str(path.relative_to(ROOT).parent) for path in ROOT.rglob("*.py") if name.search(path.read_text())}
    assert knowing == {"core/commit"}


def test_cached_properties_have_no_lock() -> None:
    """That of Python 3.11 would be held forever in a process that is forked while another thread computes one."""
    of_functools = re.compile(r"from functools import .*cached_property|functools\.cached_property")
    users = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if of_functools.search(path.read_text())}
    assert users == {"core/parallel.py"}


def test_imports_go_down_only() -> None:
    rank = {package: number for number, packages in enumerate(LAYERS) for package in packages}
    packages = {
        path: path.relative_to(ROOT / "core").parts[0].removesuffix(".py") for path in (ROOT / "core").rglob("*.py")
    }
    assert {package for package in packages.values() if package != "__init__"} == set(rank)
    upwards = [
        f"{path.relative_to(ROOT)} imports {below}"
        for path, package in packages.items()
        if package != "__init__"
        for below in imported_packages(path)
        if rank[below] > rank[package]
    ]
    assert upwards == []


def test_the_core_knows_no_engine() -> None:
    """`core.incremental.merge` alone reaches for the PyArrow engine, when it is called."""
    assert {name for name in importers("fsspeckit.datasets") if name.startswith("core/")} == {"core/incremental.py"}


def test_nothing_runs_through_the_door_of_spec_001() -> None:
    assert importers("fsspeckit.core.incremental") == set()


LOADED = """
import sys, {module}
engines = [f"fsspeckit.datasets.{{name}}" for name in ("pyarrow", "duckdb", "spark")]
print([m for m in ("duckdb", "pyspark", "polars", "pandas", *engines) if m in sys.modules])
"""


@pytest.mark.parametrize("module", ["fsspeckit", "fsspeckit.core.merge", "fsspeckit.core.incremental"])
def test_no_engine_is_loaded_at_import(module: str) -> None:
    code = LOADED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


MERGED = """
import sys, pyarrow as pa, fsspeckit
for number in range(2):
    fsspeckit.merge(pa.table({"id": [1, number]}).slice(1), sys.argv[1], key_columns=["id"])
print("pyarrow.dataset" in sys.modules)
"""


def test_a_merge_does_without_pyarrows_data_sets(tmp_path: Path) -> None:
    """To load them takes half as long as a tiny merge, and only readers need them."""
    command = [sys.executable, "-c", MERGED, str(tmp_path / "lake")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_public_names() -> None:
    errors = {name for name in vars(fsspeckit.core.errors) if name.endswith("Error")}
    functions = {"delete", "inspect", "merge", "plan", "plan_delete", "plan_write", "read", "recover", "write_dataset"}
    functions |= {"history", "plan_sql", "snapshot", "sql", "undo"}
    results = {"FilePlan", "Inspection", "MergeFileMetadata", "MergePlan", "MergeResult", "WritePlan", "WriteResult"}
    results |= {"KeptCommit", "UndoResult"}
    functions |= {"compact", "plan_compact"}
    results |= {"CompactPlan", "CompactResult"}
    others = {"MergeOptions", "MergeStrategy", "PlanOptions", "PyArrowDatasetIO", "ProgressEvent", "progress_bar"}
    assert len(errors) == 16
    assert fsspeckit.__all__ == sorted(errors | functions | results | others)
    assert {name: getattr(fsspeckit, name).__name__ for name in fsspeckit.__all__} == {n: n for n in fsspeckit.__all__}
    assert {"DuckDBDatasetIO", "SparkDatasetIO", *fsspeckit.__all__} <= set(dir(fsspeckit))
    with pytest.raises(AttributeError, match="has no attribute 'upsert'"):
        _ = fsspeckit.upsert


FUNCTIONS = ["merge", "plan", "write_dataset", "plan_write", "compact", "plan_compact", "read", "inspect", "recover"]
FUNCTIONS += ["sql", "plan_sql"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_have_an_example(name: str) -> None:
    examples = [e.source for e in doctest.DocTestParser().get_examples(inspect.getdoc(getattr(fsspeckit, name)) or "")]
    assert [source for source in examples if f"fsspeckit.{name}(" in source]


def test_the_classes_of_engines_are_loaded_when_asked_for() -> None:
    import fsspeckit.datasets.duckdb

    assert fsspeckit.DuckDBDatasetIO is fsspeckit.datasets.duckdb.DuckDBDatasetIO
    code = "from fsspeckit import *; import sys; print('duckdb' in sys.modules, 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_defaults_stand_once() -> None:
    """A number that is written twice is changed once."""
    for number in ("5_000_000", "500_000"):
        assert [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py") if number in p.read_text()] == ["core/defaults.py"]


def test_the_package_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
