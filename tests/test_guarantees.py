"""docs/guarantees.md and docs/semantics.md name the test behind each sentence: they exist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (DOCS / "guarantees.md").read_text(), re.MULTILINE)
SEMANTICS = re.findall(
    r"^\| (?!situation|values|-)(.+?) \| (.+?) \| ([^|]+) \|$", (DOCS / "semantics.md").read_text(), re.MULTILINE
)


def _named(cells: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Files and functions; a function without a file is in the one named last."""
    file = ""
    for shown_by in cells:
        for token in re.findall(r"`([^`]+)`", shown_by):
            path, _, function = token.rpartition(": ") if ".py" in token else ("", "", token)
            if token.endswith(".py"):
                path, function = token, ""
            file = path or file
            if path or re.match(r"(test|check)_", function):
                yield file, function


def test_every_sentence_has_a_test() -> None:
    assert len(ROWS) > 20
    untested = [sentence for sentence, shown_by in ROWS if "`" not in shown_by and shown_by != "the same"]
    assert len(untested) == 1 and untested[0].startswith("With new names"), "that one is measured"


def test_the_tests_named_exist() -> None:
    named = list(_named(shown_by for _, shown_by in ROWS))
    assert len(named) > 30
    missing = [
        f"{file}: {function}"
        for file, function in named
        if not re.search(rf"^def {function.rstrip('…')}", (TESTS / file).read_text(), re.MULTILINE)
    ]
    assert not missing


def test_every_line_of_the_semantics_has_tests_on_all_engines() -> None:
    """A test that takes `io` runs on every engine."""
    assert len(SEMANTICS) > 50
    for situation, result, cell in SEMANTICS:
        named = list(_named([cell]))
        assert named, f"{situation}: {result}"
        for file, function in named:
            found = re.search(rf"^def {function}\((.*)$", (TESTS / "conformance" / file).read_text(), re.MULTILINE)
            assert found, f"{file}: {function}"
            assert re.search(r"\bio\b|^$", found[1]), f"{file}: {function} runs on one engine only"
