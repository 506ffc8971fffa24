"""A few hundred damaged files; `make fuzz` runs thousands."""

from __future__ import annotations

import pytest

from fuzz.case import Case
from fuzz.run import fuzz, report
from fuzz.samples import samples


@pytest.mark.parametrize("seed", [100])
def test_mutants_are_merged_as_pyarrow_reads_them_or_refused(seed: int) -> None:
    summary = fuzz(seed, range(300), workers=1)
    told = report(summary, seed, 300, 0)
    assert not summary.findings, told
    assert not summary.aborts, told
    assert sum(summary.outcomes.values()) == 300
    assert summary.outcomes["merged"] > 30, told
    assert summary.outcomes["refused: UnreadableFileError"] > 100, told


def test_mutants_are_spliced_as_pyarrow_reads_them_or_refused() -> None:
    """Footers and headers of pages of files of which most would be copied as bytes."""
    summary = fuzz(100, range(200), workers=1, splice=True)
    told = report(summary, 100, 200, 0, splice=True)
    assert not summary.findings, told
    assert not summary.aborts, told
    assert sum(summary.outcomes.values()) == 200
    assert summary.outcomes["spliced"] > 30, told
    assert summary.outcomes["written anew"] > 3, told
    assert summary.outcomes["refused: UnreadableFileError"] > 60, told


def test_a_mutant_follows_from_its_seed_and_number() -> None:
    known = samples()
    cases = [Case.of(7, number, known) for number in (1, 2, 1)]
    assert cases[0] == cases[2] != cases[1]
    assert cases[0].mutant != cases[0].sample.file
    assert Case.of(7, 50, known).mutant == Case.of(7, 50, known).sample.file, "every fiftieth is healthy"
