"""A plugin of dbt-duckdb: what an external model selects is merged into a data set. See docs/sql.md.

In the profile: `plugins: [{module: fsspeckit.dbt, alias: fsspeckit}]`; in the model: `materialized="external"`,
`plugin="fsspeckit"`, and `fsspeckit={"path": "lake/orders", "key_columns": ["id"], …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import TargetConfig
from dbt.adapters.events.logging import AdapterLogger

from fsspeckit.api import merge
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.storage import Access
from fsspeckit.datasets.sources import path_reader

_log = AdapterLogger("fsspeckit")


class Plugin(BasePlugin):  # type: ignore[misc]
    """Merges the rows of a model, and shows the whole data set as the model's relation."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        self._storage_options = plugin_config.get("storage_options")
        self._connection: Any = None

    def configure_connection(self, conn: Any) -> None:
        self._connection = conn

    def store(self, target_config: TargetConfig) -> None:
        """Merge the file that dbt has written for the model into its data set.

        For a model without rows dbt writes one row of nulls, which is not merged.
        """
        model = str(target_config.relation.identifier)
        options = _options(model, target_config.config)
        path, view = str(options.pop("path")), options.pop("view", True)
        location = target_config.location
        if location is None or location.format != "parquet":
            raise ArgumentError(
                f"Model {model}: fsspeckit merges Parquet. Leave format out, or write format='parquet'."
            )
        rows = path_reader(location.path, Access(None, self._storage_options)).read_all()
        if rows.num_rows == 1 and all(column.null_count == 1 for column in rows.columns):
            rows = rows.slice(0, 0)
        try:
            result = merge(rows, path, storage_options=self._storage_options, **options)
        finally:
            if view:
                self._show(target_config.relation, path)
        _log.info(f"{model}: {result.inserted} inserted, {result.updated} updated, {result.deleted} deleted in {path}")

    def _show(self, relation: Any, path: str) -> None:
        """Let `ref` and `this` read the data set. dbt has made a view of the rows of this run."""
        pattern = path.rstrip("/").replace("'", "''") + "/**/*.parquet"
        with self._connection.cursor() as cursor:
            if cursor.execute(f"SELECT count(*) FROM glob('{pattern}')").fetchone()[0]:
                query = f"SELECT * FROM read_parquet('{pattern}', union_by_name = true)"
                cursor.execute(f"CREATE OR REPLACE VIEW {relation} AS {query}")
            else:
                cursor.execute(f"DROP VIEW IF EXISTS {relation}")


def _options(model: str, config: Any) -> dict[str, Any]:
    """The arguments of `merge`; dbt's `unique_key` names the key columns, if nothing else does."""
    given = config.get("fsspeckit")
    if not isinstance(given, Mapping) or not given.get("path"):
        raise ArgumentError(f'Model {model}: its config needs fsspeckit={{"path": "lake/{model}"}}.')
    options = dict(given)
    key = config.get("unique_key")
    if "key_columns" not in options and key:
        options["key_columns"] = [key] if isinstance(key, str) else list(key)
    return options
