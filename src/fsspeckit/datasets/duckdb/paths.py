"""Paths in SQL text: what is let in, and how it is written.

The merge itself puts no path into SQL: files are read by the core's own reader, because DuckDB expands a literal `*`
in a name. These rules stand for whatever text is put into SQL all the same.
"""

from __future__ import annotations

import re

from fsspeckit.core.errors import ArgumentError

_ALLOWED = re.compile(r"[A-Za-z0-9._\-/=:]+")


class PathValidator:
    """May a path stand in SQL text?

    >>> PathValidator.validate_path_for_sql("/lake/year=2024/part-0.parquet")
    >>> PathValidator.escape_for_sql("it's")
    "it''s"
    """

    @staticmethod
    def validate_path_for_sql(path: str) -> None:
        """Letters, digits and `. _ - / = :` may; quotes, semicolons, comments, `..` and other signs may not.

        Raises:
            ValueError: if the path has characters that are dangerous in SQL.
        """
        if not isinstance(path, str) or not _ALLOWED.fullmatch(path):
            raise ArgumentError(f"Path {path!r} has characters that are not allowed in SQL; bind it as a parameter.")
        if ".." in path:
            raise ArgumentError(f"Path {path!r} climbs out of its folder with '..'; give the path it leads to.")
        if "--" in path:
            raise ArgumentError(f"Path {path!r} has the sign of a SQL comment; bind it as a parameter.")

    @staticmethod
    def escape_for_sql(path: str) -> str:
        """The path as the inside of a SQL string literal."""
        return path.replace("'", "''")
