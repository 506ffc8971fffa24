"""Every lake of the suite is read by others before and after each merge, and every new file with filters."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from readers.check import all_readers, fast_readers
from readers.recorder import Recorder
from readers.suite import Checks


@pytest.fixture(scope="session")
def reader_checks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checks | None]:
    how, keep = request.config.getoption("--readers"), request.config.getoption("--keep-rewritten")
    if how == "off":
        yield None
        return
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base
    (shared / "readers").mkdir(exist_ok=True)
    checks = Checks(all_readers() if how == "all" else fast_readers(), shared / "readers", keep)
    yield checks
    with (shared / "readers.txt").open("a") as file:
        file.write(
            f"{checks.tally.files} files, {checks.lakes} lakes, {dict(checks.tally.filters)} filters; "
            f"{len(checks.tally.excused)} differences of old files, too\n"
        )


@pytest.fixture(autouse=True)
def recorded_merges(reader_checks: Checks | None) -> Iterator[Recorder | None]:
    if reader_checks is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="readers-") as folder:
        recorder = Recorder(Path(folder))
        with recorder.patched():
            yield recorder


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    result = yield
    recorder, checks = (pyfuncitem.funcargs.get(name) for name in ("recorded_merges", "reader_checks"))
    if isinstance(recorder, Recorder) and isinstance(checks, Checks):
        found = [text for merge in recorder.merges for text in checks.check(merge)]
        if found:
            pytest.fail("Other readers:\n" + "\n".join(found), pytrace=False)
    return result
