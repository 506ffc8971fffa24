"""Fixtures of the crash tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder open to every user, in memory where there is some: to a killed process the disk makes no difference."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
