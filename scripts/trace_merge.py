"""What a two-row upsert runs through, and how large each room is: `python scripts/trace_merge.py [checkout/src]`.

For every engine: the files and functions of ours that the merge runs, in this process and its threads (for Spark that
is the driver's side). Then the lines of every room. Run it before and after a change of structure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ENGINES = ("pyarrow", "duckdb", "spark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", nargs="?", default=str(Path(__file__).parent.parent / "src"), help="a checkout's src")
    parser.add_argument("--engines", default=",".join(ENGINES), help="separated by commas")
    parser.add_argument("--list", action="store_true", help="name the files, too")
    arguments = parser.parse_args()
    src = Path(arguments.src).resolve()
    sys.path.insert(0, str(src))
    os.environ["PYTHONPATH"] = str(src)  # for Spark's executors
    print(f"{'engine':<10}{'files':>7}{'functions':>11}")
    for engine in arguments.engines.split(","):
        codes = traced_upsert(engine, src)
        files = Counter(str(Path(code.co_filename).relative_to(src)) for code in codes)
        print(f"{engine:<10}{len(files):>7}{len(codes):>11}")
        if arguments.list:
            print("\n".join(f"    {file}  {count}" for file, count in sorted(files.items())))
    print_lines(src / "fsspeckit")


def traced_upsert(engine: str, src: Path) -> set[CodeType]:
    """The functions that run while two rows are merged into a lake of four files, one of which holds one of them."""
    import pyarrow as pa

    from fsspeckit.api import dataset_io

    codes: set[CodeType] = set()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(src)) and is_function(code):
            codes.add(code)

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
    return codes


def is_function(code: CodeType) -> bool:
    """Not a module's own body, a comprehension or a lambda: nobody jumps to those."""
    return not code.co_name.startswith("<")


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
