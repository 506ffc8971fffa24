"""Measure the structure of the code: `python scripts/trace_merge.py [checkout/src]`, before and after a change of it.

The first table describes an upsert of two rows by each engine, in this process and its threads (with Spark: on the
driver).

- files, functions: our files and functions that run
- switches: calls into another package than the call before in the same thread
- row path: functions on the call stack when the two rows are cast to the target's types, when their keys are compared
  with the target's, and when they are passed to the Parquet writer

The second table has the size of each package: files, lines, and lines of code without blanks, comments and docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ENGINES = ("pyarrow", "duckdb", "spark")
ROW_FUNCTIONS = {"conform", "find", "fetch", "store"}
"""`schema.conform`, `KeyIndex.find` or `Workspace.fetch` of DuckDB, and `Layout.store`."""
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", nargs="?", default=str(Path(__file__).parent.parent / "src"), help="a checkout's src")
    parser.add_argument("--engines", default=",".join(ENGINES), help="separated by commas")
    parser.add_argument("--list", action="store_true", help="list the files, too")
    arguments = parser.parse_args()
    src = Path(arguments.src).resolve()
    sys.path.insert(0, str(src))
    os.environ["PYTHONPATH"] = str(src)  # for Spark's executors
    print(f"{'engine':<10}{'files':>7}{'functions':>11}{'switches':>10}{'row path':>10}")
    for engine in arguments.engines.split(","):
        trace = traced_upsert(engine, src)
        files = Counter(str(Path(code.co_filename).relative_to(src)) for code in trace.functions)
        print(f"{engine:<10}{len(files):>7}{len(trace.functions):>11}{trace.switches:>10}{len(trace.row_path):>10}")
        if arguments.list:
            print("\n".join(f"    {file}  {count}" for file, count in sorted(files.items())))
    print_sizes(src / "fsspeckit")


@dataclass
class Trace:
    """What `sys.setprofile` reports about the code in `src`. `caller` is the thread that called the merge."""

    src: Path
    caller: int = field(default_factory=threading.get_ident)
    functions: set[CodeType] = field(default_factory=set)
    row_path: set[CodeType] = field(default_factory=set)
    switches: int = 0
    _package_of_thread: dict[int, str] = field(default_factory=dict)

    def called(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not self._is_ours(code):
            return
        self.functions.add(code)
        package = package_of(Path(code.co_filename).relative_to(self.src / "fsspeckit"))
        last = self._package_of_thread.setdefault(threading.get_ident(), package)
        self._package_of_thread[threading.get_ident()] = package
        self.switches += package != last
        if code.co_name in ROW_FUNCTIONS:
            self.row_path.update(c for c in self._stack(frame) if self._is_ours(c))

    def _is_ours(self, code: CodeType) -> bool:
        """Not the body of a module, a comprehension or a lambda: a reader does not look those up."""
        return code.co_filename.startswith(str(self.src)) and not code.co_name.startswith("<")

    def _stack(self, frame: FrameType | None) -> Iterator[CodeType]:
        """The call stack of this thread, and of the caller that waits for it."""
        waiting = None if threading.get_ident() == self.caller else sys._current_frames().get(self.caller)
        for top in (frame, waiting):
            while top is not None:
                yield top.f_code
                top = top.f_back


def traced_upsert(engine: str, src: Path) -> Trace:
    """Upsert two rows into a lake of four files, of which one has one of the two keys."""
    import pyarrow as pa

    from fsspeckit.api import dataset_io

    trace = Trace(src)
    with tempfile.TemporaryDirectory() as folder:
        lake, dataset = f"{folder}/lake", dataset_io(engine)
        orders = pa.table({"id": list(range(40)), "status": ["new"] * 40})
        dataset_io("pyarrow").merge(orders, lake, "upsert", ["id"], max_rows_per_file=10)
        dataset.merge(orders.slice(0, 1), lake, "update", ["id"])  # imports, and what is started once
        threading.setprofile(trace.called)
        sys.setprofile(trace.called)
        try:
            result = dataset.merge(pa.table({"id": [3, 40], "status": ["paid", "new"]}), lake, "upsert", ["id"])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert (result.updated, result.inserted) == (1, 1), result
    return trace


def package_of(file: Path) -> str:
    """`core/values` for `core/values/keys.py`, `core` for `core/merge.py`, `(top)` for `api.py`."""
    return "/".join(file.parts[:-1][:2]) or "(top)"


def print_sizes(package: Path) -> None:
    files, lines, code = Counter[str](), Counter[str](), Counter[str]()
    for file in package.rglob("*.py"):
        name, text = package_of(file.relative_to(package)), file.read_text()
        files[name] += 1
        lines[name] += len(text.splitlines())
        code[name] += code_lines(text)
    print(f"\n{'package':<20}{'files':>7}{'lines':>8}{'code':>8}")
    for name in sorted(files):
        print(f"{name:<20}{files[name]:>7}{lines[name]:>8}{code[name]:>8}")
    print(f"{'all':<20}{files.total():>7}{lines.total():>8}{code.total():>8}")


def code_lines(text: str) -> int:
    """The lines without blanks, comments and docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for token in tokens if token.type not in _NO_CODE for n in range(token.start[0], token.end[0] + 1)}
    return len(lines - docstrings)


if __name__ == "__main__":
    main()
