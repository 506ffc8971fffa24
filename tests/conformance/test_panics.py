"""Errors of other libraries and of the surroundings that are not exceptions like others."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.errors import ArgumentError
from support import rows, write_lake

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


class OfPolars:
    """A stream that Polars makes when it is asked for: it panics at decimal256."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import polars

        wide = pa.table({"id": [1], "d": pa.array([Decimal("1.5")], pa.decimal256(50, 2))})
        return polars.from_arrow(wide).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_a_source_that_panics(tmp_path: Path, name: str) -> None:
    pytest.importorskip("polars")
    import fsspeckit

    lake = write_lake(tmp_path / "lake", {"f0.parquet": pa.table({"id": [0], "d": ["x"]})})
    with pytest.raises(ArgumentError, match=r"OfPolars, cannot be read: .*Int256.*PyArrow table"):
        fsspeckit.merge(OfPolars(), lake, key_columns=["id"], engine=name)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["lake"] and len(rows(lake)) == 1


def _in_ascii(code: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    command: list[str | bytes] = [sys.executable, "-c", code, os.fsencode(folder)]
    return subprocess.run(command, capture_output=True, env={**os.environ, **ASCII}, timeout=240)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take file names for UTF-8 always")
@pytest.mark.parametrize("lake", ["sys.argv[1] + '/lake'", "'lake\\xfc'"])
def test_a_path_that_the_locale_cannot_write(tmp_path: Path, lake: str) -> None:
    """As the shell gives it, and as text in a program."""
    folder = tmp_path / "ü"
    write_lake(folder / "lake", {"f0.parquet": pa.table({"id": [0], "x": ["old"]})})
    call = f"fsspeckit.merge(pa.table({{'id': [0], 'x': ['new']}}), {lake}, key_columns=['id'])"
    code = f"import sys, pyarrow as pa, fsspeckit\ntry:\n    {call}\nexcept fsspeckit.ArgumentError as e: print(e)"
    ended = _in_ascii(code, folder)
    assert b"treats file names as ascii. Run it with PYTHONUTF8=1" in ended.stdout, ended.stderr
    assert rows(folder / "lake") == [{"id": 0, "x": "old"}]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take file names for UTF-8 always")
def test_a_partition_value_that_the_locale_cannot_write(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", {"p=a/f0.parquet": pa.table({"id": [0]})})
    call = "fsspeckit.merge(pa.table({'id': [1], 'p': ['\\xfc']}), sys.argv[1] + '/lake', key_columns=['id'])"
    code = f"import sys, pyarrow as pa, fsspeckit\ntry:\n    {call}\nexcept fsspeckit.StorageError as e: "
    code += "print(ascii(str(e)))"
    ended = _in_ascii(code, tmp_path)
    assert b"treats file names as ascii. Run it with PYTHONUTF8=1" in ended.stdout, ended.stderr
    assert b"Nothing was changed" in ended.stdout
    assert os.listdir(tmp_path) == ["lake"] and len(rows(tmp_path / "lake")) == 1
