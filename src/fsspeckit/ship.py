"""The zip for Spark's executors: this package and fsspec, both pure Python.

PyArrow, NumPy and pandas contain compiled code and cannot be imported from a zip. Spark's Arrow functions need them on
the executors anyway.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

_PACKAGES = ("fsspeckit", "fsspec")
# A fixed time, so that the zip is reproducible.
_TIME = (1980, 1, 1, 0, 0, 0)


def make_zip(file: str | Path) -> int:
    """Write the zip for `--py-files` or `addArtifacts` and return its size."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for name, content in _modules(resources.files(package), package):
                archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return Path(file).stat().st_size


def _modules(folder: Any, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        path = f"{name}/{entry.name}"
        if entry.is_dir() and entry.name not in ("__pycache__", "tests"):
            yield from _modules(entry, path)
        elif entry.name.endswith((".py", "py.typed", ".html", ".css", ".js")):
            yield path, entry.read_bytes()
