"""Values that a plan makes by the thousand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[Class]) -> type[Class]:
    """A frozen dataclass to mypy, which refuses to set its fields. At run time nothing does.

    `frozen` makes a value of seven fields in 0.85 µs instead of 0.19, and a plan makes several for each file.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
