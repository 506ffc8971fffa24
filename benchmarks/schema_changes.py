"""Schema changes beside a copy of the files, and beside PyArrow's read and write.

    python benchmarks/schema_changes.py [--files 50] [--rows 130000] [--repeat 5]

A column is added to all files: the ratio is to a copy of the files with fsync, at most 1.3, and 1.8 with four row
groups and page indexes. One of nine columns is widened: the ratio is to PyArrow's read and write with fsync, at most
0.35. All are measured in turn, since the machine is shared; the ratio is that of the best of some repeats.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from file_results import Part, Ratio

from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

NUMBERS = [f"x{i}" for i in range(6)]


def make_lake(folder: Path, files: int, rows: int, groups: int) -> int:
    """Files of nine columns, with page indexes if they have several row groups. Returns their size in bytes."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(1)
    for number in range(files):
        columns = {
            "id": np.arange(number * rows, (number + 1) * rows),
            **{name: generator.random(rows) for name in NUMBERS},
            "n": generator.integers(0, 1 << 30, rows).astype("int32"),
            "t": pa.array(np.char.add("value-", generator.integers(0, 10**6, rows).astype(str))),
        }
        path = folder / f"f{number:04}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=-(-rows // groups), write_page_index=groups > 1)
    return sum(path.stat().st_size for path in folder.iterdir())


def source(n: int = 1, **more: list[str]) -> pa.Table:
    numbers = {name: [0.5] for name in NUMBERS}
    return pa.table({"id": [10**12], **numbers, "n": pa.array([n]), "t": ["a"], **more})


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def copied(lake: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(lake.iterdir()):
        shutil.copyfile(path, target / path.name)
        sync(target / path.name)


def written_by_pyarrow(lake: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(lake.iterdir()):
        table = pq.read_table(path)
        table = table.set_column(table.column_names.index("n"), "n", table["n"].cast("int64"))
        pq.write_table(table, target / path.name)
        sync(target / path.name)


def evolved(data: pa.Table, lake: Path, target: Path) -> None:
    result = PyArrowDatasetIO().merge(data, str(target), "insert", ["id"], on_schema_change="evolve")
    assert result.spliced_files == len(list(lake.iterdir()))


def seconds(work: Callable[[Path, Path], None], lake: Path, target: Path, *, in_place: bool) -> tuple[float, float]:
    """Wall time and processor time."""
    shutil.rmtree(target, ignore_errors=True)
    if in_place:
        shutil.copytree(lake, target)
    os.sync()
    started, cpu = time.perf_counter(), time.process_time()
    work(lake, target)
    return time.perf_counter() - started, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 50), ("rows", 130_000), ("repeat", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", help="where to write the lakes; a temporary folder by default")
    options = parser.parse_args()
    works = {
        "copy": (copied, False),
        "add a column": (lambda lake, target: evolved(source(new=["x"]), lake, target), True),
        "PyArrow's read and write": (written_by_pyarrow, False),
        "widen a column": (lambda lake, target: evolved(source(2**40), lake, target), True),
    }
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for groups in (1, 4):
            lake = Path(folder, f"groups-{groups}")
            size = make_lake(lake, options.files, options.rows, groups)
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
            for _ in range(options.repeat):
                for name, (work, in_place) in works.items():
                    times[name].append(seconds(work, lake, Path(folder, "target"), in_place=in_place))
            best = {name: (min(t[0] for t in found), min(t[1] for t in found)) for name, found in times.items()}
            lakes = f"{options.files} files of {size / options.files / 1e6:.1f} MB"
            print(f"{lakes}, {groups} row group(s) each:")
            print("  " + ", ".join(f"{name} {wall:.2f} s" for name, (wall, _) in best.items()))
            more = ", four row groups and page indexes" if groups > 1 else ""
            for name, against, limit in (
                ("add a column", "copy", 1.8 if groups > 1 else 1.3),
                ("widen a column", "PyArrow's read and write", 0.35),
            ):
                (wall, cpu), (their_wall, their_cpu) = best[name], best[against]
                detail = f"{wall:.2f} s, {their_wall:.2f} s"
                text = f"{name} of {lakes}{more}, to {against}"
                ratios.append(Ratio(text, wall / their_wall, limit, cpu / (their_cpu or 0.01), detail))
                print(f"  {text}: {wall / their_wall:.2f} (at most {limit})", flush=True)
    called = f"schema_changes.py --files {options.files} --rows {options.rows} --repeat {options.repeat}"
    whole = (options.files, options.rows) == (50, 130_000) and options.repeat >= 3
    Part("schema changes", called, ratios, whole).save()


if __name__ == "__main__":
    main()
