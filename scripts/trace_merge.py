"""What a two-row upsert runs through, and how large each room is: `python scripts/trace_merge.py [checkout/src]`.

For every engine: the files and functions of ours that the merge runs, in this process and its threads (for Spark that
is the driver's side). Of these, the jumps: the functions that someone goes through who follows the two rows, to where
they get the target's types, where their keys meet the target's, and where they are handed to the Parquet writer. Then
the lines of every room. Run it before and after a change of structure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ENGINES = ("pyarrow", "duckdb", "spark")
STATIONS = {"conform", "find", "fetch", "store"}
"""Of a row's way: `schema.conform`, `KeyIndex.find` or DuckDB's `Workspace.fetch`, `Layout.store`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", nargs="?", default=str(Path(__file__).parent.parent / "src"), help="a checkout's src")
    parser.add_argument("--engines", default=",".join(ENGINES), help="separated by commas")
    parser.add_argument("--list", action="store_true", help="name the files, too")
    arguments = parser.parse_args()
    src = Path(arguments.src).resolve()
    sys.path.insert(0, str(src))
    os.environ["PYTHONPATH"] = str(src)  # for Spark's executors
    print(f"{'engine':<10}{'files':>7}{'functions':>11}{'jumps':>7}")
    for engine in arguments.engines.split(","):
        codes, way = traced_upsert(engine, src)
        files = Counter(str(Path(code.co_filename).relative_to(src)) for code in codes)
        print(f"{engine:<10}{len(files):>7}{len(codes):>11}{len(way):>7}")
        if arguments.list:
            print("\n".join(f"    {file}  {count}" for file, count in sorted(files.items())))
    print_lines(src / "fsspeckit")


def traced_upsert(engine: str, src: Path) -> tuple[set[CodeType], set[CodeType]]:
    """The functions that run while two rows are merged into a lake of four files, one of which holds one of them; and
    those of them through which the rows go."""
    import pyarrow as pa

    from fsspeckit.api import dataset_io

    codes: set[CodeType] = set()
    way: set[CodeType] = set()
    caller = threading.get_ident()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and is_ours(code, src):
            codes.add(code)
            if code.co_name in STATIONS:
                way.update(c for c in stack(frame, caller) if is_ours(c, src))

    with tempfile.TemporaryDirectory() as folder:
        lake, io = f"{folder}/lake", dataset_io(engine)
        orders = pa.table({"id": list(range(40)), "status": ["new"] * 40})
        dataset_io("pyarrow").merge(orders, lake, "upsert", ["id"], max_rows_per_file=10)
        io.merge(orders.slice(0, 1), lake, "update", ["id"])  # what is imported and started once is not counted
        threading.setprofile(called)
        sys.setprofile(called)
        try:
            result = io.merge(pa.table({"id": [3, 40], "status": ["paid", "new"]}), lake, "upsert", ["id"])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert (result.updated, result.inserted) == (1, 1), result
    return codes, way


def is_ours(code: CodeType, src: Path) -> bool:
    """Not a module's own body, a comprehension or a lambda: nobody jumps to those."""
    return code.co_filename.startswith(str(src)) and not code.co_name.startswith("<")


def stack(frame: FrameType | None, caller: int) -> Iterator[CodeType]:
    """Who called whom, from a thread back to where the caller waits for it."""
    waiting = None if threading.get_ident() == caller else sys._current_frames().get(caller)
    for top in (frame, waiting):
        while top is not None:
            yield top.f_code
            top = top.f_back


def print_lines(package: Path) -> None:
    lines = Counter[str]()
    for file in package.rglob("*.py"):
        parts = file.relative_to(package).parts
        room = "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) == 2 else "(top)"
        lines[room] += len(file.read_text().splitlines())
    print(f"\n{'room':<20}{'lines':>8}")
    for room, count in sorted(lines.items()):
        print(f"{room:<20}{count:>8}")
    print(f"{'all':<20}{lines.total():>8}")


if __name__ == "__main__":
    main()
