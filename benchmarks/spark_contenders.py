"""The contenders of the Spark benchmark. Each makes its table from a lake once; every round starts with this table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from spark_works import OPERATION, SEQUENCE, Kind

from fsspeckit.datasets.spark import SparkDatasetIO

_NEWER, _DELETES = f"s.{SEQUENCE} >= t.{SEQUENCE}", f"s.{OPERATION} = 'D'"
_CLAUSES: dict[Kind, str] = {
    "upsert": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "delete": "WHEN MATCHED THEN DELETE",
    "feed": (
        f"WHEN MATCHED AND {_DELETES} AND {_NEWER} THEN DELETE WHEN MATCHED AND {_NEWER} THEN UPDATE SET * "
        f"WHEN NOT MATCHED AND s.{OPERATION} <> 'D' THEN INSERT *"
    ),
}
_OPTIONS: dict[Kind, dict[str, Any]] = {
    "upsert": {"strategy": "upsert"},
    "delete": {"strategy": "delete"},
    "feed": {"strategy": "upsert", "delete_column": OPERATION, "delete_values": ["D"], "sequence_by": SEQUENCE},
}


def _merge_sql(table: str, kind: Kind) -> str:
    return f"MERGE INTO {table} AS t USING changes AS s ON t.id = s.id {_CLAUSES[kind]}"


class Contender(Protocol):
    name: str
    about: str
    spark: Any

    def prepare(self, lake: Path) -> None:
        """Make the table that all rounds start from."""

    def reset(self) -> None:
        """The table as it was prepared."""

    def merge(self, changes: Any, kind: Kind) -> None:
        """Timed. The rows of the source are also a view of this name."""

    def rows(self) -> Any:
        """The table as it is now."""

    def clear(self) -> None: ...


def contenders(spark: Any, root: Path, packages: set[str]) -> list[Contender]:
    everybody: list[Contender] = [Ours(spark, root)]
    if "delta" in packages:
        everybody += [Delta(spark, root, vectors) for vectors in (False, True)]
    if "iceberg" in packages:
        everybody += [Iceberg(spark, mode) for mode in ("copy-on-write", "merge-on-read")]
    return [*everybody, Overwrite(spark, root)]


class _Folder:
    """A table that is a folder, of which every round gets a copy under a name of its own.

    The copy is of links, for nobody writes into a file that is there.
    """

    name = about = ""
    _format = "parquet"

    def __init__(self, spark: Any, root: Path) -> None:
        self.spark = spark
        self._folder = root / self.name.replace(" ", "-").replace(",", "")
        self._round = 0

    @property
    def _table(self) -> Path:
        return self._folder / f"round-{self._round}"

    @property
    def _pristine(self) -> Path:
        return self._folder / "pristine"

    def prepare(self, lake: Path) -> None:
        self._folder.mkdir()
        shutil.copytree(lake, self._pristine, copy_function=os.link)

    def reset(self) -> None:
        shutil.rmtree(self._table, ignore_errors=True)
        self._round += 1
        shutil.copytree(self._pristine, self._table, copy_function=os.link)

    def rows(self) -> Any:
        return self.spark.read.format(self._format).load(str(self._table))

    def clear(self) -> None:
        shutil.rmtree(self._folder)


class Ours(_Folder):
    name = "fsspeckit, Spark"
    about = "`SparkDatasetIO.merge`"

    def merge(self, changes: Any, kind: Kind) -> None:
        SparkDatasetIO(self.spark).merge(changes, str(self._table), key_columns=["id"], **_OPTIONS[kind])


class Overwrite(_Folder):
    """Without MERGE: write the rows that stay and those of the source to a new folder, then swap the folders."""

    name = "read-join-overwrite"
    about = "anti-join and union, or an outer join for a feed; a new folder, swap"

    def merge(self, changes: Any, kind: Kind) -> None:
        target = self.rows()
        kept = target.join(changes.select("id"), "id", "left_anti").select(target.columns)
        new = self._folder / "new"
        if kind == "feed":
            kept = self._fed(target, changes)
        elif kind == "upsert":
            kept = kept.unionByName(changes)
        kept.write.parquet(str(new))
        shutil.rmtree(self._table)
        new.rename(self._table)

    def _fed(self, target: Any, changes: Any) -> Any:
        """The row of the source unless there is none or it is older; without those that delete."""
        both = target.alias("t").join(changes.alias("s"), target["id"] == changes["id"], "full_outer")
        takes = f"(s.id IS NOT NULL AND (t.id IS NULL OR t.{SEQUENCE} IS NULL OR {_NEWER}))"
        kept = both.where(f"NOT ({takes} AND {_DELETES}) OR s.id IS NULL")
        return kept.selectExpr(*(f"IF({takes}, s.{name}, t.{name}) AS {name}" for name in target.columns))


class Delta(_Folder):
    about = "`MERGE INTO`, the lake converted to Delta"
    _format = "delta"

    def __init__(self, spark: Any, root: Path, vectors: bool) -> None:
        self.name = "Delta MERGE with deletion vectors" if vectors else "Delta MERGE"
        self._vectors = vectors
        super().__init__(spark, root)

    def prepare(self, lake: Path) -> None:
        super().prepare(lake)
        self.spark.sql(f"CONVERT TO DELTA parquet.`{self._pristine}`")
        wanted = f"'delta.enableDeletionVectors' = '{str(self._vectors).lower()}'"
        self.spark.sql(f"ALTER TABLE delta.`{self._pristine}` SET TBLPROPERTIES ({wanted})")

    def reset(self) -> None:
        """The log is read before the measurement, as in a session that has merged before."""
        super().reset()
        self.rows().count()

    def merge(self, changes: Any, kind: Kind) -> None:
        self.spark.sql(_merge_sql(f"delta.`{self._table}`", kind))


class Iceberg:
    """Paths in its metadata are absolute. So a round begins with a rollback instead of a copy."""

    about = "`MERGE INTO`, the lake's files added to a table of format version 2"

    def __init__(self, spark: Any, mode: str) -> None:
        self.name, self.spark, self._mode = f"Iceberg {mode}", spark, mode
        self._short = "db." + mode.replace("-", "_")
        self._table = f"ice.{self._short}"
        self._snapshot = 0

    def prepare(self, lake: Path) -> None:
        schema = self.spark.read.parquet(str(lake)).schema
        columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema)
        self.spark.sql(
            f"CREATE TABLE {self._table} ({columns}) USING iceberg TBLPROPERTIES "
            f"('format-version' = '2', 'write.merge.mode' = '{self._mode}')"
        )
        self.spark.sql(f"CALL ice.system.add_files(table => '{self._short}', source_table => '`parquet`.`{lake}`')")
        self._snapshot = self.spark.sql(f"SELECT max(snapshot_id) FROM {self._table}.snapshots").first()[0]

    def reset(self) -> None:
        self.spark.sql(f"CALL ice.system.set_current_snapshot('{self._short}', {self._snapshot})")

    def merge(self, changes: Any, kind: Kind) -> None:
        self.spark.sql(_merge_sql(self._table, kind))

    def rows(self) -> Any:
        return self.spark.table(self._table)

    def clear(self) -> None:
        self.spark.sql(f"DROP TABLE {self._table} PURGE")
