"""Every example in README and in docs runs, in the order of its page and in one folder, and prints what the page says.

Pages with PySpark run in `tests/spark/test_documents.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

README = Path(__file__).parent.parent / "README.md"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    language: str
    code: str
    line: int
    prints: str | None
    page: Path = README

    @property
    def place(self) -> str:
        return f"{self.page.name}, line {self.line}"


def examples(page: Path = README) -> Iterator[Example]:
    """Fenced blocks; a `text` block is what the one before it prints."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCED.finditer(text))
    for block, following in zip(found, [*found[1:], None]):
        if block[1] != "text":
            prints = following[2] if following is not None and following[1] == "text" else None
            yield Example(block[1], block[2], text.count("\n", 0, block.start()) + 2, prints, page)


def run_python(example: Example, names: dict[str, Any]) -> str:
    said = io.StringIO()
    code = compile("\n" * (example.line - 1) + example.code, str(example.page), "exec")
    with contextlib.redirect_stdout(said):
        exec(code, names)
    return said.getvalue()


def run_shell(example: Example) -> str:
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    env["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), env["PATH"]]
    )  # as if the environment were activated
    command = ["bash", "-euo", "pipefail", "-c", example.code]
    pipe = subprocess.PIPE
    done = subprocess.run(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=env, timeout=120)
    assert done.returncode == 0, f"{example.place}:\n{done.stdout}"
    return done.stdout


def normalized(text: str) -> list[str]:
    """Without what differs from run to run: names, sizes, times, bars, versions and the width of columns."""
    text = re.sub(r"part-[0-9a-f]{12}|\.fk[0-9a-f]{8}", "<name>", text)
    text = re.sub(r"\b\d[\d.,]* (B|kB|s|%)", r"<number> \1", text)
    text = re.sub(r"parquet-cpp-arrow version \S+", "<writer>", text)
    text = re.sub(r"█+░+", "<bar>", text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]


def can_run(example: Example) -> bool:
    if "pyspark" not in example.code:
        return True
    return all(_there(name) for name in ("pyspark", "fsspeckit.datasets.spark"))


def _there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def activated_path() -> str:
    """As if the environment of this Python were activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def run_all(page: Path = README) -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    for example in filter(can_run, examples(page)):
        said = run_python(example, names) if example.language == "python" else run_shell(example)
        if example.prints is not None:
            assert normalized(said) == normalized(example.prints), f"{example.place}:\n{said}"


def run_in_a_new_process(page: Path, folder: Path) -> None:
    """As a reader would: Java never leaves the folder that it was started in."""
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PATH": activated_path(), "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-c", f"import pathlib, test_readme; test_readme.run_all(pathlib.Path({str(page)!r}))"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


DOCS = README.parent / "docs"
WITH_CODE = [page for page in [README, *sorted(DOCS.rglob("*.md"))] if list(examples(page))]
ON_SPARK = [page for page in WITH_CODE if any("pyspark" in example.code for example in examples(page))]


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in ON_SPARK], ids=lambda page: page.name)
def test_examples_run_and_print_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", activated_path())
    run_all(page)


def test_every_fence_is_an_example_or_an_output() -> None:
    pages = [README, README.parent / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    fences = {language for page in pages for language in re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)}
    assert fences == {"", "python", "sh", "text"}
    assert len(list(examples())) >= 3
    assert len([example for page in WITH_CODE for example in examples(page)]) >= 60


def test_outputs_are_written_down() -> None:
    """What an example prints from Python is on its page."""
    silent = [
        example.place
        for page in WITH_CODE
        for example in examples(page)
        if example.language == "python" and re.search(r"^print\(", example.code, re.MULTILINE) and not example.prints
    ]
    assert silent == []
