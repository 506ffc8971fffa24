"""A few hundred damaged files; `make fuzz` runs thousands."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import chunk_of, edit_footer
from fsspeckit.core.parquet import thrift
from fuzz import oracle
from fuzz.case import MAINTENANCE, Case
from fuzz.mutations import Dice, _describe
from fuzz.run import fuzz, report
from fuzz.samples import samples


@pytest.mark.parametrize("seed", [100])
def test_mutants_are_merged_as_pyarrow_reads_them_or_refused(seed: int) -> None:
    summary = fuzz(seed, range(300), workers=1)
    text = report(summary, seed, 300, 0)
    assert not summary.findings, text
    assert not summary.aborts, text
    assert sum(summary.outcomes.values()) == 300
    assert summary.outcomes["merged"] > 30, text
    assert summary.outcomes["refused: UnreadableFileError"] > 100, text


def test_mutants_are_spliced_as_pyarrow_reads_them_or_refused() -> None:
    """Footers and headers of pages of files of which most would be copied as bytes."""
    summary = fuzz(100, range(200), workers=1, mode="splice")
    text = report(summary, 100, 200, 0, mode="splice")
    assert not summary.findings, text
    assert not summary.aborts, text
    assert sum(summary.outcomes.values()) == 200
    assert summary.outcomes["spliced"] > 30, text
    assert summary.outcomes["written anew"] > 3, text
    assert summary.outcomes["refused: UnreadableFileError"] > 60, text


def test_mutants_are_compacted_and_changed_as_pyarrow_reads_them_or_refused() -> None:
    """Compactions, new columns, deletes, appended rows and undo."""
    summary = fuzz(100, range(200), workers=1, mode="maintain")
    text = report(summary, 100, 200, 0, mode="maintain")
    assert not summary.findings, text
    assert not summary.aborts, text
    assert sum(summary.outcomes.values()) == 200
    done, all_of_them = {name.partition(":")[0] for name in summary.outcomes}, {*MAINTENANCE, "undone"} - {"undo"}
    assert done >= all_of_them, text
    assert summary.outcomes["evolve around damage"], text
    assert summary.outcomes["refused: UnreadableFileError"] > 60, text


def test_descriptions_are_mutated_too() -> None:
    """Bounds in the wrong order, counts beyond the rows, entries that readers act upon: the pages stay as they are."""
    changed = set()
    for sample in samples():
        end = len(sample.file) - 8 - int.from_bytes(sample.file[-8:-4], "little")
        for number in range(20):
            dice = Dice(number)
            dice.headers = (4,)
            mutant = _describe(sample.file, dice)
            if mutant[:end] == sample.file[:end] != mutant:
                changed.add((sample.name, mutant))
    assert len({name for name, _ in changed}) > 30
    assert len(changed) > 300


def test_bounds_in_the_wrong_order_are_no_excuse(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)

    def bounds(least: int, greatest: int) -> dict[int, object]:
        return {at: (thrift.BINARY, value.to_bytes(8, "little")) for at, value in ((6, least), (5, greatest))}

    edit_footer(path, lambda footer: chunk_of(footer)[12][1].update(bounds(3, 1)))
    assert not oracle.statistics_lie(path.read_bytes(), "id")
    edit_footer(path, lambda footer: chunk_of(footer)[12][1].update(bounds(1, 2)))
    assert oracle.statistics_lie(path.read_bytes(), "id")


def test_a_mutant_follows_from_its_seed_and_number() -> None:
    known = samples()
    cases = [Case.of(7, number, known) for number in (1, 2, 1)]
    assert cases[0] == cases[2] != cases[1]
    assert cases[0].mutant != cases[0].sample.file
    assert Case.of(7, 50, known).mutant == Case.of(7, 50, known).sample.file, "every fiftieth is healthy"
