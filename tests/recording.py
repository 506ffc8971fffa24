"""A DuckDB connection that writes down what is done with it, and can be made to lie or to fail."""

from __future__ import annotations

from typing import Any

import duckdb


class Recording:
    """Stands for a connection: `statements`, `views` registered and `gone` again, cursors `closed`.

    `version` is what `pragma_version()` answers (an exception is raised); a statement with `fail_at` in it fails.
    """

    def __init__(self, connection: Any = None, version: Any = None, fail_at: str | None = None) -> None:
        self.connection = connection or duckdb.connect()
        self.version, self.fail_at = version, fail_at
        self.statements: list[str] = []
        self.views: dict[str, Any] = {}
        self.gone: list[str] = []
        self.cursors = 0
        self.closed = 0

    def cursor(self) -> _Cursor:
        self.cursors += 1
        return _Cursor(self, self.connection.cursor())

    def sql(self, text: str) -> Any:
        self.statements.append(text)
        return self.connection.sql(text)

    def having(self, part: str) -> list[str]:
        return [s for s in self.statements if part in s]

    def note(self, text: str) -> None:
        self.statements.append(text)
        if self.fail_at is not None and self.fail_at in text:
            raise duckdb.ParserException(f"made to fail at {self.fail_at}")


class _Cursor:
    def __init__(self, record: Recording, cursor: Any) -> None:
        self._record, self._cursor = record, cursor

    def execute(self, text: str, *more: Any) -> Any:
        self._record.note(text)
        if "pragma_version" in text and self._record.version is not None:
            return _Answer(self._record.version)
        return self._cursor.execute(text, *more)

    def sql(self, text: str, *more: Any) -> Any:
        self._record.note(text)
        return self._cursor.sql(text, *more)

    def extract_statements(self, text: str) -> Any:
        return self._cursor.extract_statements(text)

    def register(self, name: str, table: Any) -> None:
        self._record.views[name] = table
        self._cursor.register(name, table)

    def unregister(self, name: str) -> None:
        self._record.gone.append(name)
        self._cursor.unregister(name)

    def close(self) -> None:
        self._record.closed += 1
        self._cursor.close()


class _Answer:
    def __init__(self, version: Any) -> None:
        self._version = version

    def fetchone(self) -> Any:
        if isinstance(self._version, Exception):
            raise self._version
        return (self._version, "hash", "name")


def snapshot(connection: Any) -> dict[str, Any]:
    """All that a user could find changed: what the catalog holds, settings and temporary files."""
    queries = {
        "tables": "SELECT database_name, schema_name, table_name, temporary, estimated_size FROM duckdb_tables()",
        "views": "SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal",
        "settings": "SELECT name, value FROM duckdb_settings()",
        "schemas": "SELECT database_name, schema_name FROM duckdb_schemas()",
        "databases": "SELECT database_name, path FROM duckdb_databases()",
        "types": "SELECT database_name, schema_name, type_name FROM duckdb_types() WHERE NOT internal",
        "sequences": "SELECT database_name, schema_name, sequence_name, last_value FROM duckdb_sequences()",
        "indexes": "SELECT database_name, schema_name, index_name FROM duckdb_indexes()",
        "macros": "SELECT database_name, schema_name, function_name, macro_definition FROM duckdb_functions() "
        "WHERE NOT internal",
        "functions": "SELECT count(*) FROM duckdb_functions()",
        "spilled": "SELECT * FROM duckdb_temporary_files()",
    }
    return {name: sorted(connection.execute(query).fetchall(), key=str) for name, query in queries.items()}


def in_transaction(connection: Any) -> bool:
    """Without a transaction of the user's, every statement is one of its own."""
    ids = [connection.execute("SELECT txid_current()").fetchone() for _ in range(2)]
    return bool(ids[0] == ids[1])
