"""Fixtures: every behaviour runs on every engine named by `--engines`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from fsspeckit.api import dataset_io
from fsspeckit.datasets.options import EngineName

ENGINES = (*get_args(EngineName), "duckdb-union")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines", default=",".join(ENGINES), help="engines to test, separated by commas")
    parser.addoption("--place", default="disk", help="disk, or s3: folders are mirrored in a store and merged there")
    parser.addoption("--examples", type=int, default=None, help="examples drawn by each property test")
    parser.addoption("--wide", action="store_true", help="also merge a source larger than Spark's driver")
    parser.addoption("--kills", type=int, default=2, help="how often the stream is killed before it may end")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        names = metafunc.config.getoption("--engines").split(",")
        metafunc.parametrize("engine", names, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest go first, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One small Spark session for all tests of a worker."""
    from spark_session import local_session

    session = local_session()
    yield session
    session.stop()


@pytest.fixture
def io(engine: str, request: pytest.FixtureRequest) -> Any:
    """The engine's `DatasetIO`; `duckdb-union` is DuckDB without its MERGE statement."""
    if engine == "duckdb-union":
        made = dataset_io("duckdb", use_merge=False)
    else:
        made = dataset_io(engine, **({"spark": request.getfixturevalue("spark")} if engine == "spark" else {}))
    if request.config.getoption("--place") == "disk":
        return made
    from s3.mirrored import Mirrored

    return Mirrored(made, request.getfixturevalue("mirror_bucket"))
