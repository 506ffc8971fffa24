"""Merge the Parquet files that AWS DMS writes: first the full load, then the changes.

Files of changes have a column `Op`: I, U or D. Files of a full load have none, unless `IncludeOpForFullLoad` is set, so
the recipe adds it. `ts` is the column that `TimestampColumnName` names. All changes of a transaction have the same
`ts`; `seq` orders them. It is `AR_H_CHANGE_SEQ`, which a transformation rule adds to the table: 35 digits as text, and
empty in a full load.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import fsspeckit


def changes_of(file: Path) -> pa.Table:
    """The rows of a file of DMS. Every row of a full load is an insert."""
    table = pq.read_table(file)
    if "Op" in table.column_names:
        return table
    return table.append_column("Op", pa.array(["I"] * table.num_rows, pa.string()))


def merge_file(file: Path, lake: str) -> fsspeckit.MergeResult:
    return fsspeckit.merge(
        changes_of(file),
        lake,
        key_columns=["id"],
        delete_column="Op",
        delete_values=["D"],
        sequence_by=["ts", "seq"],
        on_duplicates="latest",
    )


def land(folder: Path) -> None:
    """The files of a full load and of three changes, two of them of the same row in one transaction."""
    loaded = {"id": [1, 2], "city": ["London", "Paris"], "ts": ["2026-05-01 08:00:00"] * 2, "seq": ["", ""]}
    pq.write_table(pa.table(loaded), folder / "LOAD00000001.parquet")
    changes = {
        "Op": ["U", "U", "D"],
        "id": [1, 1, 2],
        "city": ["Turin", "Rome", None],
        "ts": ["2026-05-01 09:30:00", "2026-05-01 09:30:00", "2026-05-01 09:31:00"],
        "seq": [f"20260501093000000000000000000000{n:03d}" for n in (1, 2, 3)],
    }
    pq.write_table(pa.table(changes), folder / "20260501-093500000.parquet")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake, landing = str(Path(folder) / "customers"), Path(folder) / "landing"
        landing.mkdir()
        land(landing)
        for name in ("LOAD00000001.parquet", "20260501-093500000.parquet"):
            result = merge_file(landing / name, lake)
            print(f"{name}: {result.inserted} inserted, {result.updated} updated, {result.deleted} deleted")
        print(fsspeckit.read(lake, ["id", "city"]).to_pylist())


if __name__ == "__main__":
    main()
