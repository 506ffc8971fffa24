"""Two executor processes: the work is shared between them, and losing one changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_process import result_of

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.slow]


def test_two_executors(tmp_path: Path) -> None:
    found = result_of("cluster", str(tmp_path))
    assert found["balanced"]["updated"] == 50
    assert len(found["balanced"]["shares"]) == 2
    assert sum(found["balanced"]["shares"]) == 50
    assert min(found["balanced"]["shares"]) >= 15  # each at least 30 %
    survived = found["survives"]
    assert survived["merged"] == survived["pinned"] == survived["as_pinned"] > 1000
    assert survived["rows"] == survived["expected"]
