"""Tests that look at folders, run on a store: what is in a folder is uploaded, merged there, and brought back."""

from __future__ import annotations

import dataclasses
import inspect
import posixpath
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from s3.bucket import Bucket

_NEW_NAME = re.compile(r"\.fk[0-9a-f]{8}(?=\.[^.]*$)")
CALLS = ("merge", "plan", "compact", "plan_compact", "read")
WRITES = ("write_dataset", "plan_write", "write_parquet_dataset", "plan_parquet_dataset")


class Mirrored:
    """Stands for a `DatasetIO`. Paths of folders become `s3://`; in results and errors they become folders again."""

    def __init__(self, io: Any, bucket: Bucket) -> None:
        self._io, self._bucket = io, bucket

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._io, name)
        return call if name not in CALLS + WRITES else lambda *given, **named: self._run(call, given, named)

    def _run(self, call: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        bound = inspect.signature(call).bind(*given, **named)
        folder = bound.arguments["path"]
        if not isinstance(folder, str) or ":" in folder or not folder.startswith("/"):
            return call(*given, **named)
        prefix = f"{uuid.uuid4().hex[:12]}{folder.rstrip('/')}"
        url = f"s3://{self._bucket.name}/{prefix}"
        self._upload(Path(folder), prefix)
        before = self._bucket.etags(f"{prefix}/")
        bound.arguments["path"] = url
        places = [bound.arguments, bound.arguments.get("options", {})]
        in_place = any(each.get("replace") == "in_place" for each in places)
        for each in places if in_place else ():
            each.pop("replace", None)
        renamed: dict[str, str] = {}
        try:
            result = call(*bound.args, **bound.kwargs)
        except Exception as error:
            if "Leave out replace='in_place'" in str(error):
                pytest.skip("in a store no file is replaced in place; test_spark and test_refusals see it refused")
            error.args = tuple(a.replace(url, folder) if isinstance(a, str) else a for a in error.args)
            raise
        finally:
            assert set(self._bucket.litter(prefix)) <= {k for k in before if not k.endswith(".parquet")}
            renamed = self._download(Path(folder), prefix, before, in_place)
        result = _renamed(result, {url: folder, **renamed})
        if renamed and hasattr(result, "removed_files"):  # on a disk, a file that is replaced in place is not removed
            result = dataclasses.replace(
                result, removed_files=[f for f in result.removed_files if not Path(f).exists()]
            )
        return result

    def _upload(self, folder: Path, prefix: str) -> None:
        for file in folder.rglob("*"):
            if file.is_file():
                self._bucket.put(f"{prefix}/{file.relative_to(folder)}", file.read_bytes())

    def _download(self, folder: Path, prefix: str, before: dict[str, str], in_place: bool) -> dict[str, str]:
        """What is new, under the old name if it is to look as if written `in_place`; returns such names."""
        now, renamed = self._bucket.etags(f"{prefix}/"), dict[str, str]()
        for key in before.keys() - now.keys():
            (folder / key.removeprefix(f"{prefix}/")).unlink()
        for key in (k for k in now if before.get(k) != now[k]):
            old = _NEW_NAME.sub("", key)
            name = old if in_place and old in before and old not in now else key
            if name != key:
                renamed[posixpath.basename(key)] = posixpath.basename(name)
            target = folder / name.removeprefix(f"{prefix}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._bucket.get(key))
        for key in before.keys() - now.keys():  # a store has no folders without objects
            for empty in (folder / key.removeprefix(f"{prefix}/")).parents:
                if empty != folder and folder in empty.parents and empty.is_dir() and not any(empty.iterdir()):
                    empty.rmdir()
        return renamed


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, wanted in names.items():
            value = value.replace(name, wanted)
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_renamed(v, names) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _renamed(getattr(value, f.name), names) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value
