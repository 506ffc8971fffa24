"""Numbers packed bit by bit are read and replaced where they lie, as if all of them had been unpacked."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from fsspeckit.core.rewrite.packed import Packed, PackedPages

LONGEST = 63


def pack(numbers: list[int], width: int) -> bytes:
    """Eights of numbers, the lowest bit first; the last eight is filled up with zeros."""
    bits = sum(number << i * width for i, number in enumerate(numbers))
    return bits.to_bytes(-(-len(numbers) // 8) * width, "little")


def in_runs(numbers: list[int], width: int, groups: int = LONGEST) -> bytes:
    """As writers pack them: a header before each run."""
    runs = [numbers[i : i + groups * 8] for i in range(0, len(numbers), groups * 8)]
    return b"".join(bytes([-(-len(run) // 8) << 1 | 1]) + pack(run, width) for run in runs)


def every_of(pages: list[Packed]) -> list[tuple[int, list[int]]]:
    """The numbers, which come in whatever order, and up to where."""
    return [(position, sorted(numbers.tolist())) for position, numbers in PackedPages(pages).every()]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 503, 504, 505, 1008, 1500])
@pytest.mark.parametrize("width", [0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 25])
def test_numbers_are_read_and_replaced_in_place(width: int, count: int) -> None:
    random = Random(width * 10_000 + count)
    numbers = [random.randrange(1 << width) for _ in range(count)]
    before = b"???"
    packed = Packed.of(before + in_runs(numbers, width) + b"!", len(before), width, count)
    assert packed is not None
    assert packed.every().tolist() == numbers
    assert every_of([packed]) == [(len(numbers), sorted(numbers))]
    for share in (1.0, 0.5, 0.02):
        pages = PackedPages([packed])
        positions = np.array([i for i in range(count) if random.random() < share], dtype=np.int64)
        places = pages.places(positions)
        old = pages.at(places)
        assert old.tolist() == [numbers[i] for i in positions]
        assert set(places.masks.tolist()) <= {(1 << width) - 1}
        new = np.array([random.randrange(1 << width) for _ in positions], dtype=np.uint32)
        expected = list(numbers)
        for position, number in zip(positions.tolist(), new.tolist(), strict=True):
            expected[position] = number
        assert pages.replace(places, old, new) == [before + in_runs(expected, width) + b"!"]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 503, 504, 505, 1500])
@pytest.mark.parametrize("width", range(26))
def test_the_greatest_number_is_found_wherever_it_is(width: int, count: int) -> None:
    random = Random(width * 10_000 + count)
    greatest = (1 << width) - 1 - random.randrange(1 + (1 << width >> 2))
    numbers = [random.randrange(greatest + 1) for _ in range(count)]
    for place in {0, count - 1, random.randrange(count)}:
        some = [*numbers[:place], greatest, *numbers[place + 1 :]]
        whole = b"??" + in_runs(some, width) + b"\xff"  # what is behind the numbers does not count
        packed = [Packed.of(data, 2, width, count) for data in (b"??" + in_runs([0] * count, width), whole, whole)]
        pages = PackedPages([page for page in packed if page is not None])
        assert pages.are_below(greatest + 1)
        assert not pages.are_below(greatest)


def test_what_fills_up_the_last_eight_does_not_count() -> None:
    full = Packed.of(b"\x03" + pack([1, 1, 1, 3, 3, 3, 3, 3], 2), 0, 2, 3)
    assert full is not None
    assert PackedPages([full, full]).are_below(2)
    assert not PackedPages([full, full]).are_below(1)


def test_pages_of_other_widths_and_sizes() -> None:
    random, kinds = Random(3), [(3, 700, 63), (5, 1000, 63), (0, 9, 2), (11, 504, 63), (25, 13, 1), (1, 1, 4)]
    numbers = [[random.randrange(1 << width) for _ in range(count)] for width, count, _ in kinds]
    made = [
        Packed.of(bytes(i) + in_runs(some, width, groups), i, width, count)
        for i, (some, (width, count, groups)) in enumerate(zip(numbers, kinds, strict=True))
    ]
    found = [page for page in made if page is not None]
    pages = PackedPages(found)
    ends = np.cumsum([len(some) for some in numbers]).tolist()
    assert every_of(found) == [(end, sorted(some)) for end, some in zip(ends, numbers, strict=True)]
    assert every_of(found[:1] * 4 + found[2:3]) == [
        (700, sorted(numbers[0])),
        (2800, sorted(numbers[0] * 3)),
        (2809, sorted(numbers[2])),
    ]
    flat = [number for some in numbers for number in some]
    assert pages.are_below(max(flat) + 1) and not pages.are_below(max(flat))
    assert PackedPages(found[:2] * 3).are_below(32) and not PackedPages(found[:2] * 3).are_below(7)
    positions = np.array(sorted(random.sample(range(len(flat)), 400)))
    places = pages.places(positions)
    old = pages.at(places)
    assert old.tolist() == [flat[i] for i in positions]
    new = old ^ (places.masks & np.uint32(1))
    for position, number in zip(positions.tolist(), new.tolist(), strict=True):
        flat[position] = number
    expected, first = [], 0
    for i, (width, count, groups) in enumerate(kinds):
        expected.append(bytes(i) + in_runs(flat[first : first + count], width, groups))
        first += count
    assert pages.replace(places, old, new) == expected


def test_numbers_without_headers() -> None:
    numbers = [Random(1).randrange(2) for _ in range(77)]
    packed = Packed.one_run(b"?" + pack(numbers, 1), 1, 1, 77)
    assert packed is not None
    assert packed.every().tolist() == numbers
    assert every_of([packed]) == [(len(numbers), sorted(numbers))]
    assert Packed.one_run(b"?" + pack(numbers, 1)[:-1], 1, 1, 77) is None


def test_what_is_not_in_runs_alike_is_not_understood() -> None:
    """Runs that repeat a number, that are cut off, or of another length."""
    numbers = list(range(600))
    whole = in_runs(numbers, 10)
    assert Packed.of(whole, 0, 10, 600) is not None
    assert Packed.of(whole[:-1], 0, 10, 600) is None
    assert Packed.of(whole[:631], 0, 10, 600) is None  # the first run, without the second
    assert Packed.of(bytes([600 >> 1 << 1 & 0x7E]) + whole[1:], 0, 10, 600) is None
    assert Packed.of(in_runs(numbers[:80], 10, 5) + in_runs(numbers[80:], 10, 5), 0, 10, 600) is not None
    assert Packed.of(in_runs(numbers[:80], 10, 5) + in_runs(numbers[80:], 10, 7), 0, 10, 600) is None
    assert Packed.of(in_runs(numbers, 26), 0, 26, 600) is None
    assert Packed.of(b"\x01" * 700, 0, 10, 600) is None
    assert Packed.of(bytes([0x81]) + whole[1:], 0, 10, 600) is None
