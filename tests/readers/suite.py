"""What is checked of every merge of the conformance suite."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from readers.check import Tally, differences
from readers.engines import Reader
from readers.lakes import Read, read_all, unreadable
from readers.recorder import Merge

_OWN_NAME = re.compile(r"\.fk[0-9a-f]{8}(?=\.)")


@dataclass
class Checks:
    """Checks every file of other content and every lake of other files once, in all processes of a run.

    `claims` is a folder that they share; `keep` is one for the files and lakes that Spark is to read.
    """

    readers: Sequence[Reader]
    claims: Path
    keep: Path | None = None
    tally: Tally = field(default_factory=Tally)
    lakes: int = 0

    def check(self, merge: Merge) -> list[str]:
        """What readers no longer find, or no longer read."""
        before, after = _contents(merge.before), _contents(merge.after)
        if before == after:
            return []
        old = {_OWN_NAME.sub("", name): name for name in before}
        found = [
            f"{name}: {difference}"
            for name in sorted(after)
            if after[name] not in before.values() and self._claim(after[name])
            for difference in self._check_file(merge, name, old.get(_OWN_NAME.sub("", name)), after[name])
        ]
        if self._claim(_digest(*before.items(), *after.items())):
            found += self._check_lake(merge)
        return found

    def _check_file(self, merge: Merge, new: str, old: str | None, digest: str) -> list[str]:
        if self.keep:
            _save(merge.after / new, self.keep / "files" / f"{digest}.parquet")
            if old:
                _save(merge.before / old, self.keep / "old" / f"{digest}.parquet")
        return differences(str(merge.after / new), str(merge.before / old) if old else None, self.readers, self.tally)

    def _check_lake(self, merge: Merge) -> list[str]:
        if not merge.all_files or not any(merge.before.rglob("*.parquet")):
            return []
        self.lakes += 1
        before: dict[str, Read | str] = read_all(merge.before)
        if self.keep and self._claim(name := _digest(*_schemas(merge.before), "", *_schemas(merge.after))):
            shutil.rmtree(self.keep / "lakes" / name, ignore_errors=True)  # of an earlier run into the same folder
            for lake in (merge.before, merge.after):
                shutil.copytree(lake, self.keep / "lakes" / name / lake.name.partition("-")[2])
            (self.keep / "lakes" / name / "counts.json").write_text(json.dumps(asdict(merge.counts)))
        return unreadable(before, read_all(merge.after), merge.counts)

    def _claim(self, name: str) -> bool:
        try:
            os.close(os.open(self.claims / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def _contents(lake: Path) -> dict[str, str]:
    return {
        str(file.relative_to(lake)): hashlib.sha256(file.read_bytes()).hexdigest() for file in lake.rglob("*.parquet")
    }


def _schemas(lake: Path) -> list[str]:
    """The schemas of a lake's files, which say who can read it, with the folders that they stand in."""
    found = set()
    for file in lake.rglob("*.parquet"):
        try:
            schema = str(pq.read_schema(file).remove_metadata())
        except (pa.ArrowException, OSError):
            schema = "unreadable"
        found.add(f"{file.parent.relative_to(lake)} {schema}")
    return sorted(found)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _save(file: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
