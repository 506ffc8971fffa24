"""docs/guarantees.md names the test behind each sentence: they exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (TESTS.parent / "docs/guarantees.md").read_text(), re.MULTILINE)


def _named() -> Iterator[tuple[str, str]]:
    """Files and functions; a function without a file is in the one named last."""
    file = ""
    for _, shown_by in ROWS:
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
    named = list(_named())
    assert len(named) > 30
    missing = [
        f"{file}: {function}"
        for file, function in named
        if not re.search(rf"^def {function.rstrip('…')}", (TESTS / file).read_text(), re.MULTILINE)
    ]
    assert not missing
