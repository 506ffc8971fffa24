"""Entries that nobody can decode are kept as they are: PyArrow opens such files all the same."""

from __future__ import annotations

import pytest

from fsspeckit.core.parquet.metadata_entries import NewValues, updated_entry


@pytest.mark.parametrize("value", [b"", b"A", b"====", b"bm90IGFuIEFycm93IHNjaGVtYQ=="])
def test_an_arrow_schema_that_cannot_be_decoded(value: bytes) -> None:
    assert updated_entry(b"ARROW:schema", value, NewValues(["x"], 3)) == value
