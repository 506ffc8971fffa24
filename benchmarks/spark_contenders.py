"""The contenders of the Spark benchmark. Each makes its table from a lake once; every round starts with this table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from fsspeckit.datasets.spark import SparkDatasetIO

_MERGE = (
    "MERGE INTO {} AS t USING changes AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


class Contender(Protocol):
    name: str
    about: str
    spark: Any

    def prepare(self, lake: Path) -> None:
        """Make the table that all rounds start from."""

    def reset(self) -> None:
        """The table as it was prepared."""

    def merge(self, changes: Any) -> None:
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

    def merge(self, changes: Any) -> None:
        SparkDatasetIO(self.spark).merge(changes, str(self._table), "upsert", ["id"])


class Overwrite(_Folder):
    """An upsert without MERGE: write unmatched target rows and the source to a new folder, then swap the folders."""

    name = "read-join-overwrite"
    about = "anti-join, union, a new folder, swap"

    def merge(self, changes: Any) -> None:
        target = self.rows()
        kept = target.join(changes.select("id"), "id", "left_anti").select(target.columns)
        new = self._folder / "new"
        kept.unionByName(changes).write.parquet(str(new))
        shutil.rmtree(self._table)
        new.rename(self._table)


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

    def merge(self, changes: Any) -> None:
        self.spark.sql(_MERGE.format(f"delta.`{self._table}`"))


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

    def merge(self, changes: Any) -> None:
        self.spark.sql(_MERGE.format(self._table))

    def rows(self) -> Any:
        return self.spark.table(self._table)

    def clear(self) -> None:
        self.spark.sql(f"DROP TABLE {self._table} PURGE")
