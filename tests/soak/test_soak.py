"""The short form of `make soak`; the long one has Spark in it too."""

from __future__ import annotations

from soak.run import soak


def test_a_short_soak() -> None:
    done = soak(minutes=5, engines=("pyarrow", "duckdb"), seed=1, turns=40)
    assert not done.differences, done.report()
    assert done.seen["done"] and done.seen["recoveries"], done.report()
    assert sum(n for name, n in done.seen.items() if name.endswith("live journal")), done.report()
