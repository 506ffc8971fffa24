"""The pages whose examples use PySpark run, each in a process of its own, and print what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

import test_readme
from spark_session import HAS_DATA_SOURCE

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", test_readme.ON_SPARK, ids=lambda page: page.name)
def test_examples_run_and_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    if not HAS_DATA_SOURCE and 'format("fsspeckit")' in page.read_text(encoding="utf-8"):
        pytest.skip("the data source needs Spark 4.1")
    test_readme.run_in_a_new_process(page, tmp_path)


def test_the_first_steps_have_spark_and_a_stream(tmp_path: Path) -> None:
    (page,) = [page for page in test_readme.ON_SPARK if page.name == "start.md"]
    code = "".join(example.code for example in test_readme.examples(page))
    assert all(name in code for name in ("fsspeckit.merge(frame", "foreach_batch", 'format("fsspeckit")'))
