"""Readers fail in many ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def attempt(call: Callable[[], Result]) -> Result | str:
    """What a reader gives, or its error as text. A panic of Rust is no `Exception`."""
    try:
        return call()
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return f"{type(error).__name__}: {error}"[:500]
