"""Parquet's own encryption: fsspeckit has no keys, and says so."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe  # type: ignore[import-untyped]
import pytest

from damage import nothing_changes
from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.report.inspection import inspect
from support import write_lake


class NoKeys(pe.KmsClient):  # type: ignore[misc]
    """Keys that are stored in the file. The code under test has no such client."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(key_bytes).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file(io: Any, tmp_path: Path, plaintext_footer: bool) -> None:
    """It is not called damaged. With a readable footer, PyArrow ends the process at the statistics of such a column."""
    files = {f"f{i}.parquet": pa.table({"id": [10 * i, 10 * i + 1], "x": ["old"] * 2}) for i in range(2)}
    lake = Path(write_lake(tmp_path / "lake", files))
    keys = pe.EncryptionConfiguration("footer", column_keys={"column": ["x"]}, plaintext_footer=plaintext_footer)
    factory = pe.CryptoFactory(NoKeys)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), keys)
    table = files["f0.parquet"]
    with pq.ParquetWriter(lake / "f0.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    new = pa.table({"id": [0], "x": ["new"]})
    operations: list[Callable[[], Any]] = [
        lambda: io.merge(new, str(lake), "upsert", ["id"]),
        lambda: io.merge(new.append_column("y", pa.array([1])), str(lake), "upsert", ["id"], on_schema_change="evolve"),
        lambda: io.delete(str(lake), keys=[0], key_columns=["id"]),
        lambda: io.delete(str(lake), filters=[("x", "=", "old")]),
        lambda: io.compact(str(lake)),
        lambda: io.plan(new, str(lake), "upsert", ["id"]),
        lambda: inspect(str(lake), ["x"]),
    ]
    for operation in operations:
        with nothing_changes(str(lake)), pytest.raises(UnreadableFileError) as problem:
            operation()
        assert "f0.parquet: it is encrypted, and fsspeckit has no keys" in str(problem.value)
        assert "Store it without Parquet's encryption, or take it out of the data set" in str(problem.value)
