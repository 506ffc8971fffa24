"""The core cases over Spark Connect, with a server of its own."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from spark_process import result_of
from spark_session import HAS_DATA_SOURCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 comes without the server of Spark Connect"),
]


def test_core_cases(tmp_path: Path) -> None:
    found = result_of("connect", str(tmp_path))
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["small"] == [True] * 2
    assert found["large"] == [True] * 2
    for by_connect, by_pyarrow, unchanged in found["unreadable"].values():
        assert by_connect == by_pyarrow
        assert by_connect.startswith("UnreadableFileError: Cannot read lake/day=1/f1.parquet as Parquet")
        assert unchanged
    assert found["refused"].startswith("DuplicateKeyError: The source has duplicate keys: 1 key(s) of ['id']")
    assert found["too_wide"].startswith("SchemaMismatchError: Column 'x' is int32 in the source and int8 in the target")
    assert found["streamed"] == [30, 30]
    assert found["read"] == [300, ["day", "id", "x"]]
    if HAS_DATA_SOURCE:
        assert found["sourced"][:2] == [311, 45]
        assert "fsspeckit.core.errors.DuplicateKeyError: The source has duplicate keys" in found["sourced"][2]
        assert found["sourced_stream"] == [30, 30]
    assert found["cataloged"] == [300, 311, ["fsspeckit merge cataloged-spark: match 6 of 6 files"], []]
