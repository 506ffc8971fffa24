"""The protocol as it is written: every interleaving of two writers, of whom one dies or is not answered once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fsspeckit.core.commit import finish, head, store
from fsspeckit.core.commit.lease import Lease
from fsspeckit.core.errors import StorageError
from s3.conftest import WHOLE
from s3.explorer import explore, merge, merge_or_discard, remove_or_discard, remove_or_merge, visible

LIMIT = 100_000 if WHOLE else 3000
FAULTS = ["die before", "die after", "lost, done", "lost, not done", "late", "not found", "no bytes"]


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_two_writers(fault: str | None) -> None:
    """`make test` looks at three thousand states for each fault, `make test-s3` at a hundred thousand."""
    findings = explore(faults=[fault] if fault else [], limit=LIMIT)
    assert findings.violations == []
    assert findings.states > 1000
    assert "acknowledged" in findings.ends


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_writer_and_one_who_discards(fault: str | None) -> None:
    findings = explore(merge_or_discard, faults=[fault] if fault else [], limit=LIMIT)
    assert findings.violations == []
    assert findings.states > 1000
    assert "acknowledged" in findings.ends


@pytest.mark.parametrize("program", [remove_or_merge, remove_or_discard])
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_writer_that_only_removes_files(program: Any, fault: str | None) -> None:
    findings = explore(program, faults=[fault] if fault else [], limit=LIMIT)
    assert findings.violations == []
    assert findings.states > 500
    assert {"acknowledged", "refused"} <= findings.ends or program is remove_or_merge


def mistakes() -> dict[str, Any]:
    """The ways in which the obvious protocols lose rows: the model has to find each of them."""

    def copying(patch: pytest.MonkeyPatch) -> None:
        """Old files go before all of the new ones are there."""
        complete = finish.Finisher._complete_uploads

        def late(self: Any, version: Any, *, force: bool) -> Any:
            decided = self._decide(version, "removing", version.head.journal)
            self._remove_old_files(decided)
            return complete(self, version, force=force)

        patch.setattr(finish.Finisher, "_complete_uploads", late)

    def believing(patch: pytest.MonkeyPatch) -> None:
        """A commit without an answer is taken as failed, and what it needs is cleared away."""

        def resolve(self: Any, journal: Any) -> Any:
            self._state = "open"
            raise StorageError("no answer", operation="commit")

        patch.setattr(store.StoreSession, "_resolve_unknown", resolve)
        patch.setattr(Lease, "_read_outcome", lambda self, state: "lost")

    def sweeping(patch: pytest.MonkeyPatch) -> None:
        """What sessions left is looked for after the lease was taken, when it may be a living one's."""
        remove = store._Acquisition._remove

        def late(self: Any, finisher: Any, leftovers: Any) -> None:
            remove(self, finisher, finisher.leftovers())

        patch.setattr(store._Acquisition, "_remove", late)

    def ignoring(patch: pytest.MonkeyPatch) -> None:
        """The head is changed without a condition."""
        from s3.memory import MemoryObjects, etag_of

        def put_if(self: Any, key: str, data: bytes, etag: str | None) -> str:
            self.objects[key] = data
            return etag_of(data)

        patch.setattr(MemoryObjects, "put_if", put_if)

    def listing(patch: pytest.MonkeyPatch) -> None:
        """Uploads are looked for by the folder of their keys, which some stores do not answer."""
        patch.setattr(finish.Finisher, "_key_of_intent", lambda self, intent: self.location.root)

    def hurrying(patch: pytest.MonkeyPatch) -> None:
        """A commit is given up that is not held for it: it may be finished, and its files live."""

        def decide(self: Any, version: Any, state: Any, journal: Any) -> Any:
            return head.HeadVersion(replace(version.head, state=state, journal=journal), version.etag)

        patch.setattr(finish.Finisher, "_decide", decide)
        patch.setattr(finish.Finisher, "_is_current", lambda self, version: True)

    def hoping(patch: pytest.MonkeyPatch) -> None:
        """No head after the commit is taken as a commit that others finished."""
        really = store.StoreSession._finish

        def finish_or_not(self: Any) -> None:
            if head.read_head(self.lease.objects, self.lease.key) is not None:
                really(self)

        patch.setattr(store.StoreSession, "_finish", finish_or_not)

    def trusting(patch: pytest.MonkeyPatch) -> None:
        """What the store answers to a complete is believed."""
        patch.setattr(head.Addition, "matches", lambda self, entry, completed_etag="": True)

    found = (copying, believing, sweeping, ignoring, listing, hurrying, hoping, trusting)
    return {mistake.__name__: mistake for mistake in found}


MISTAKES = [
    ("copying", merge, None),
    ("believing", merge, "late"),
    ("sweeping", merge, None),
    ("ignoring", merge, None),
    ("listing", merge, "die before"),
    ("hurrying", merge_or_discard, None),
    ("hoping", merge, "not found"),
    ("trusting", merge, "no bytes"),
    ("believing", remove_or_merge, "late"),
    ("ignoring", remove_or_merge, None),
    ("hurrying", remove_or_discard, None),
]


@pytest.mark.parametrize(
    "mistake,program,fault", MISTAKES, ids=[f"{name}, {program.__name__}" for name, program, _ in MISTAKES]
)
def test_the_model_finds_mistakes(
    mistake: str, program: Any, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistakes()[mistake](monkeypatch)
    findings = explore(program, faults=[fault] if fault else [], limit=20_000, until_violated=True)
    assert findings.violations


def test_the_rows_that_are_seen() -> None:
    from s3.memory import MemoryObjects

    bucket = MemoryObjects()
    bucket.put("lake/a.parquet", json.dumps(["base", "row0"]).encode())
    bucket.put("lake.parquet", b"beside it")
    assert visible(bucket) == ["base", "row0"]
