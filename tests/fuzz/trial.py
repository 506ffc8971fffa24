"""One mutant: break a file, use it as source or as target, and hold what happened against what PyArrow reads."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspeckit.core.errors import FsspeckitError, UnreadableFileError
from fuzz import oracle
from fuzz.case import Case, Finding, content
from fuzz.maintenance import MaintenanceTrial
from fuzz.source import SourceTrial
from fuzz.target import SplicedTrial, TargetTrial

Phase = Callable[[str], None]


def run(case: Case, folder: Path, phase: Phase) -> str:
    """What came of it, in a word or two; `Finding` if it may not be. `phase` is called with the name of each step."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lake").mkdir(parents=True)
    trials: dict[str, Any] = {
        "source": SourceTrial,
        "target": TargetTrial,
        "spliced target": SplicedTrial,
        "maintained target": MaintenanceTrial,
    }
    trial = trials[case.role](case, folder)
    trial.prepare()
    before = content(folder)
    phase("fsspeckit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = trial.act()
    except FsspeckitError as error:
        _check_refusal(case, error, before, content(folder))
        phase("pyarrow")
        return f"refused: {type(error).__name__}" + (", though PyArrow reads it" if _is_read(case) else "")
    except Exception as error:
        raise Finding(f"raw {type(error).__name__}: {error}") from error
    _check_tidy(before, content(folder))
    phase("pyarrow")
    return str(trial.verdict(result, before))


def _check_refusal(case: Case, error: FsspeckitError, before: Any, after: Any) -> None:
    if before != after:
        raise Finding(f"{type(error).__name__}, and yet changed: {sorted(before.items() ^ after.items())[:2]}")
    if not case.number % 50:
        raise Finding(f"a healthy file refused: {type(error).__name__}: {error}")
    if "bug in fsspeckit" in str(error):
        raise Finding(str(error))

    named = any(name in str(error) for name in ("lake/a.parquet", "mutant.parquet"))
    if isinstance(error, UnreadableFileError) and not named:
        raise Finding(f"the file is not named: {error}")


def _check_tidy(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    left = [
        name for name in after.keys() - before.keys() if not (name.startswith("lake/") and name.endswith(".parquet"))
    ]
    if left:
        raise Finding(f"left behind: {left}")


def _is_read(case: Case) -> bool:
    try:
        oracle.read(case.mutant)
    except oracle.Unread:
        return False
    return True


def scratch_folder() -> Path:
    """In memory if the system has such a folder."""
    return Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
