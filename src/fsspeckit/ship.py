"""The zip that Spark's executors need: this package and fsspec, both plain Python.

PyArrow, NumPy and pandas hold compiled code and cannot be imported from a zip; Spark's own Arrow functions need them on
the executors anyway.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

_PACKAGES = ("fsspeckit", "fsspec")
# The same bytes for the same files, whenever it is made.
_TIME = (1980, 1, 1, 0, 0, 0)


def make_zip(file: str | Path) -> int:
    """Write the zip for `--py-files` or `addArtifacts`; returns its size."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for package in _PACKAGES:
            for name, content in _modules(resources.files(package), package):
                made.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return Path(file).stat().st_size


def _modules(folder: Any, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        inside = f"{name}/{entry.name}"
        if entry.is_dir() and entry.name not in ("__pycache__", "tests"):
            yield from _modules(entry, inside)
        elif entry.name.endswith((".py", "py.typed")):
            yield inside, entry.read_bytes()
