"""Fixtures: every behaviour runs on every engine named by `--engines`."""

from __future__ import annotations

from typing import Any

import pytest

from fsspeckit.api import dataset_io

ENGINES = ("pyarrow",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines", default=",".join(ENGINES), help="engines to test, separated by commas")
    parser.addoption("--examples", type=int, default=None, help="examples drawn by each property test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        names = metafunc.config.getoption("--engines").split(",")
        metafunc.parametrize(
            "engine", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in names], indirect=True
        )


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    name: str = request.param
    return name


@pytest.fixture
def io(engine: str) -> Any:
    """The engine's `DatasetIO`."""
    return dataset_io(engine)
