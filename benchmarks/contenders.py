"""The programs that are compared. Each does the same merge on plain Parquet files, or on a table made from them.

A contender imports its libraries in its methods: its process loads no others, and libraries of another environment can
be named here too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import by_hand
import pyarrow as pa
import pyarrow.parquet as pq
from works import OPERATION, SEQUENCE, Work


class Contender:
    """`merge` is timed, `prepare` is not. `files` returns the files with the rows after the merge."""

    name: ClassVar[str]
    about: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    upserts: ClassVar[bool] = True
    elsewhere: ClassVar[bool] = False  # in `.venv-peer`
    src: ClassVar[str | None] = None  # of another checkout of ours

    def unfit(self, work: Work) -> str | None:
        """Why the contender cannot do this work."""
        return None

    def prepare(self, folder: Path, work: Work) -> None: ...

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        raise NotImplementedError

    def files(self, folder: Path) -> list[str]:
        return sorted(map(str, folder.rglob("*.parquet")))


OPTIONS: dict[str, dict[str, Any]] = {
    "upsert": {"strategy": "upsert"},
    "delete": {"strategy": "delete"},
    "feed": {"strategy": "upsert", "delete_column": OPERATION, "delete_values": ["D"], "sequence_by": SEQUENCE},
}


class OursPyArrow(Contender):
    name = "fsspeckit, PyArrow"
    about = "`PyArrowDatasetIO().merge`"
    packages = ("fsspeckit", "pyarrow")

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

        PyArrowDatasetIO().merge(source, str(folder), key_columns=list(work.lake.keys), **OPTIONS[work.kind])


class OursDuckDB(Contender):
    name = "fsspeckit, DuckDB"
    about = "`DuckDBDatasetIO().merge`"
    packages = ("fsspeckit", "duckdb")

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        from fsspeckit.datasets.duckdb import DuckDBDatasetIO

        DuckDBDatasetIO().merge(source, str(folder), key_columns=list(work.lake.keys), **OPTIONS[work.kind])


class Plan(Contender):
    """Not a rival: a plan in one process, and the same in the next, which may have footers cached."""

    name = "fsspeckit, plan"
    about = "`PyArrowDatasetIO().plan`: the first process that sees the lake, and the one after it"
    upserts = False

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

        PyArrowDatasetIO().plan(source, str(folder), "upsert", list(work.lake.keys))


class ReadAndWrite(Contender):
    name = "PyArrow read+write"
    about = (
        "reads the touched files, which it knows in advance, and writes them again one after the other; merges nothing"
    )
    packages = ("pyarrow",)
    upserts = False

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        for number in work.touched_files():
            path = folder / work.lake.path(number)
            beside = path.with_suffix(".new")
            old = pq.ParquetFile(path)
            rows = old.metadata.row_group(0).num_rows
            pq.write_table(old.read(), beside, compression=work.lake.codec, row_group_size=rows)
            beside.replace(path)


class Polars(Contender):
    name = "Polars by hand"
    about = (
        "per touched file, found by statistics: read, left join (anti join to delete), write beside and rename; "
        "nothing is synced or locked"
    )
    packages = ("polars",)

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        by_hand.by_polars(folder, source, work)


class DuckDB(Contender):
    name = "DuckDB by hand"
    about = "the same in SQL: per touched file a join by `COPY`"
    packages = ("duckdb",)

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        by_hand.by_duckdb(folder, source, work)


class DeltaStreamed(Contender):
    name = "delta-rs, streamed"
    about = "`DeltaTable.merge` as it is by default, on a table that `convert_to_deltalake` made of the files"
    packages = ("deltalake",)
    streamed: ClassVar[bool] = True

    def prepare(self, folder: Path, work: Work) -> None:
        from deltalake import Schema, convert_to_deltalake
        from deltalake.schema import Field, PrimitiveType

        by_day = Schema([Field("day", PrimitiveType("string"))])
        if work.lake.days:
            convert_to_deltalake(str(folder), partition_by=by_day, partition_strategy="hive")
        else:
            convert_to_deltalake(str(folder))

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        from deltalake import DeltaTable

        on = [*work.lake.keys, "day"] if work.lake.days else work.lake.keys
        predicate = " AND ".join(f"t.{name} = s.{name}" for name in on)
        merge = DeltaTable(str(folder)).merge(source, predicate, "s", "t", streamed_exec=self.streamed)
        if work.kind == "delete":
            merge.when_matched_delete().execute()
        elif work.kind == "feed":
            deletes, newer = f"s.{OPERATION} = 'D'", f"s.{SEQUENCE} >= t.{SEQUENCE}"
            merge = merge.when_matched_delete(f"{deletes} AND {newer}").when_matched_update_all(newer)
            merge.when_not_matched_insert_all(f"s.{OPERATION} <> 'D'").execute()
        else:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def files(self, folder: Path) -> list[str]:
        from deltalake import DeltaTable

        return sorted(DeltaTable(str(folder)).file_uris())


class DeltaPruned(DeltaStreamed):
    name = "delta-rs, pruned"
    about = "the same with `streamed_exec=False`: statistics of the source prune the target first"
    streamed = False


class Iceberg(Contender):
    name = "PyIceberg"
    about = (
        "`Table.upsert` or `Table.delete`, with a catalog in SQLite, on a table to which the files were added by "
        "`add_files`"
    )
    packages = ("pyiceberg",)

    def unfit(self, work: Work) -> str | None:
        if work.lake.days:
            return "`add_files` takes no values from the names of folders"
        if work.kind == "feed":
            return "`upsert` has neither deletes nor conditions"
        return None

    def _catalog(self, folder: Path) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")

    def prepare(self, folder: Path, work: Work) -> None:
        files = super().files(folder)
        catalog = self._catalog(folder)
        catalog.create_namespace("bench")
        catalog.create_table("bench.lake", schema=pq.read_schema(files[0])).add_files(
            files, check_duplicate_files=False
        )

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        from pyiceberg.expressions import In

        table, keys = self._catalog(folder).load_table("bench.lake"), list(work.lake.keys)
        if work.kind == "delete":
            table.delete(In(keys[0], source[keys[0]].to_pylist()))
        else:
            table.upsert(source, keys)

    def files(self, folder: Path) -> list[str]:
        tasks = list(self._catalog(folder).load_table("bench.lake").scan().plan_files())
        assert not any(task.delete_files for task in tasks)
        return sorted(task.file.file_path.removeprefix("file://") for task in tasks)


class Peer(Contender):
    name = "PyPI's fsspeckit"
    about = (
        "`PyarrowDatasetIO().merge` of the other project of this name, in an environment of its own, its log silenced"
    )
    packages = ("fsspeckit",)
    elsewhere = True

    def unfit(self, work: Work) -> str | None:
        return "its merge has no deletes" if work.kind != "upsert" else None

    def merge(self, folder: Path, source: pa.Table, work: Work) -> None:
        from loguru import logger

        from fsspeckit.datasets.pyarrow import PyarrowDatasetIO  # type: ignore[attr-defined]

        logger.remove()
        days = ["day"] if work.lake.days else None
        PyarrowDatasetIO().merge(source, str(folder), "upsert", list(work.lake.keys), partition_columns=days)


BEFORE = ", before"


def before(contender: type[Contender], src: Path) -> type[Contender]:
    """Our contender, with the code of another checkout."""
    return type(contender.__name__, (contender,), {"name": f"{contender.name}{BEFORE}", "src": str(src)})


OURS: list[type[Contender]] = [OursPyArrow, OursDuckDB]
OTHERS: list[type[Contender]] = [ReadAndWrite, Polars, DuckDB, DeltaStreamed, DeltaPruned, Iceberg, Peer]
EVERYONE: list[type[Contender]] = [*OURS, *OTHERS, Plan]
