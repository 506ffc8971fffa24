"""Fixtures: every behaviour runs on every engine named by `--engines`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from fsspeckit.api import dataset_io
from fsspeckit.core.storage import cache
from fsspeckit.datasets.options import EngineName

ENGINES = (*get_args(EngineName), "duckdb-union")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines", default=",".join(ENGINES), help="engines to test, separated by commas")
    parser.addoption("--place", default="disk", help="disk, or s3: folders are mirrored in a store and merged there")
    parser.addoption("--examples", type=int, default=None, help="examples drawn by each property test")
    parser.addoption("--wide", action="store_true", help="also merge a source larger than Spark's driver")
    parser.addoption("--rounds", type=int, default=13, help="how often four threads of one Spark session merge")
    parser.addoption("--batches", type=int, default=10, help="batches of the stream into a table")
    parser.addoption("--kills", type=int, default=2, help="how often the stream is killed before it may end")
    parser.addoption(
        "--readers",
        choices=("off", "fast", "all"),
        default="off",
        help="read the conformance suite's lakes with others, with filters pushed down by DuckDB or by all readers",
    )
    parser.addoption("--keep-rewritten", type=Path, help="a folder for the files and lakes that Spark is to read")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        names = metafunc.config.getoption("--engines").split(",")
        metafunc.parametrize("engine", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The slowest go first, so that no worker is left alone with one of them at the end."""
    if config.getoption("--place") != "disk":
        items[:] = [item for item in items if item.get_closest_marker("disk") is None]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def cache_of_all_tests() -> Iterator[None]:
    """No test writes into the cache folder of the user who runs it; processes that tests start do not either."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, os.path.join(folder, "cache"))
        yield


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    return folder


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
    options: dict[str, Any] = {"use_merge": False} if engine == "duckdb-union" else {}
    if engine == "spark":
        options["spark"] = request.getfixturevalue("spark")
    if request.config.getoption("--place") == "disk":
        return dataset_io(engine.partition("-")[0], **options)
    from s3 import servers
    from s3.mirrored import Mirrored

    bucket = request.getfixturevalue("mirror_bucket")
    if engine == "spark":  # the environment of its executors is older than the server
        options["storage_options"] = servers.options(request.getfixturevalue("any_server"))
    return Mirrored(dataset_io(engine.partition("-")[0], **options), bucket)
