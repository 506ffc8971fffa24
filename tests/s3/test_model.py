"""The protocol as it is written: every interleaving of two writers, of whom one dies or is not answered once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsspeckit.core.commit import settle, store
from fsspeckit.core.commit.lease import Lease
from fsspeckit.core.errors import StorageError
from s3.conftest import WHOLE
from s3.explorer import explore, visible

LIMIT = 100_000 if WHOLE else 3000
FAULTS = ["die before", "die after", "lost, done", "lost, not done", "late"]


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_two_writers(fault: str | None) -> None:
    """`make test` looks at three thousand states for each fault, `make test-s3` at a hundred thousand."""
    findings = explore(faults=[fault] if fault else [], limit=LIMIT)
    assert findings.violations == []
    assert findings.states > 1000
    assert "acknowledged" in findings.ends


def mistakes() -> dict[str, Any]:
    """The ways in which the obvious protocols lose rows: the model has to find each of them."""

    def copying(patch: pytest.MonkeyPatch) -> None:
        """Old files go before all of the new ones are there."""
        patch.setattr(settle.Settlement, "_complete", lambda self, addition: True)

    def believing(patch: pytest.MonkeyPatch) -> None:
        """A commit without an answer is taken as failed, and what it needs is cleared away."""

        def resolve(self: Any, journal: Any) -> Any:
            self._state = "open"
            raise StorageError("no answer", operation="commit")

        patch.setattr(store.StoreSession, "_resolve", resolve)
        patch.setattr(Lease, "_look", lambda self, state: "lost")

    def sweeping(patch: pytest.MonkeyPatch) -> None:
        """What sessions left is looked for after the lease was taken, when it may be a living one's."""
        clear = store._Entry._clear

        def late(self: Any, settlement: Any, left: Any) -> None:
            clear(self, settlement, settlement.survey())

        patch.setattr(store._Entry, "_clear", late)

    def ignoring(patch: pytest.MonkeyPatch) -> None:
        """The head is changed without a condition."""
        from s3.memory import MemoryObjects, etag_of

        def put_if(self: Any, key: str, data: bytes, etag: str | None) -> str:
            self.objects[key] = data
            return etag_of(data)

        patch.setattr(MemoryObjects, "put_if", put_if)

    return {"copying": copying, "believing": believing, "sweeping": sweeping, "ignoring": ignoring}


@pytest.mark.parametrize(
    "mistake,fault", [("copying", None), ("believing", "late"), ("sweeping", None), ("ignoring", None)]
)
def test_the_model_finds_mistakes(mistake: str, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes()[mistake](monkeypatch)
    findings = explore(faults=[fault] if fault else [], limit=5000, until_violated=True)
    assert findings.violations


def test_the_rows_that_are_seen() -> None:
    from s3.memory import MemoryObjects

    bucket = MemoryObjects()
    bucket.put("lake/a.parquet", json.dumps(["base", "row0"]).encode())
    bucket.put("lake.parquet", b"beside it")
    assert visible(bucket) == ["base", "row0"]
