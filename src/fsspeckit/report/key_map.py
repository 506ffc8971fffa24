"""The map of a data set: each file is a bar over its range of keys, on as many lines as ranges overlap."""

from __future__ import annotations

import heapq
import math
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsspeckit.core.key_map import MAX_FILES
from fsspeckit.core.reports import KeyMap, KeySpan
from fsspeckit.report.content import PageFile
from fsspeckit.report.elements import Element, add, el
from fsspeckit.report.inspection import key_value
from fsspeckit.report.summary import LABELS, count, relative

MAX_GROUPS = 48
MAX_LINES = 240
MAX_BARS = 2500
WIDTH = 1000
"""The unit of the drawings, which are stretched to the width of the page."""
MARK_WIDTH = 1.5 / WIDTH
MAX_THROUGH = 0.2
"""The share of the width that marks of source keys may cover. More marks, drawn across the files, would hide them."""
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
TICK_LENGTH, VALUE_LENGTH = 40, 120
CHANGES = ("rewrite", "rewritten", "inserted", "removed")
UNCHANGED = ("prune", "preserved")
_HEIGHTS = {"rewrite": 1.0, "rewritten": 1.0, "inserted": 1.0, "file": 0.8, "scan": 0.7, "guard": 0.7}
"""The height of a bar in its line says the same as its colour."""


@dataclass(frozen=True)
class Scale:
    """Places of keys between 0 and 1; `by_rank` if the keys are only put in order."""

    place: Callable[[Any], float]
    value: Callable[[float], Any]
    by_rank: bool
    why: str = ""


def scale_of(values: Iterable[Any]) -> Scale | None:
    """Numbers and times get their true distances, text gets equal ones; so do numbers of which few lie far away."""
    try:
        edges = sorted(set(values))
    except TypeError:
        return None
    if not edges:
        return None
    if isinstance(edges[0], bytes):
        return _rank(edges, "text has an order, but no distances")
    finite = [float(v) for v in edges if math.isfinite(v)]
    lower, upper = (finite[0], finite[-1]) if finite else (0.0, 0.0)
    if upper == lower or not math.isfinite(upper - lower):
        return _rank(edges, "")
    middle = sorted(finite)[len(finite) // 10 : len(finite) - len(finite) // 10]
    if len(finite) >= 10 and middle[-1] - middle[0] < 0.05 * (upper - lower):
        return _rank(edges, "a few keys lie far away from all others")

    def place(value: Any) -> float:
        return min(1.0, max(0.0, (float(value) - lower) / (upper - lower)))

    whole = all(isinstance(v, int) for v in edges)

    def value(at: float) -> Any:
        if at in (0.0, 1.0):
            return edges[-1] if at else edges[0]
        between = lower + at * (upper - lower)
        return round(between) if whole else between

    return Scale(place, value, False)


def _rank(edges: Sequence[Any], why: str) -> Scale:
    ranks = {value: number for number, value in enumerate(edges)}
    last = max(1, len(edges) - 1)
    return Scale(lambda value: ranks[value] / last, lambda at: edges[round(at * (len(edges) - 1))], True, why)


@dataclass(frozen=True)
class Bar:
    """One file, or neighbours with the same action that are too narrow to be told apart."""

    left: float
    right: float
    action: str
    title: str
    files: int = 1


@dataclass(frozen=True)
class Block:
    """The files of one folder: bars by line, and a sentence about files that are not drawn."""

    folder: str
    actions: Mapping[str, int]
    lines: tuple[tuple[Bar, ...], ...]
    note: str
    new_rows: str = ""


def draw(files: Sequence[PageFile], key_map: KeyMap, target: str, new_rows: Mapping[str, str]) -> Element | None:
    """The map, or `None` if no file has a range. `new_rows` are in words, by the folder that gets them."""
    spans = [span for span in key_map.ranges.values() if span is not None and span[0] is not None]
    source = key_map.source or ()
    scale = scale_of(value for span in (*spans, *source) for value in span)
    if scale is None or not spans:
        return None
    blocks = _narrowed(_blocks(files, key_map, scale, target))
    folders = {block.folder for block in blocks}
    blocks = [replace(block, new_rows=new_rows.get(block.folder.rstrip("."), "")) for block in blocks]
    if len(new_rows) <= MAX_GROUPS:
        added = (folder for folder in new_rows if folder and folder not in folders)
        blocks += [Block(folder, {}, (), "", new_rows[folder]) for folder in added]
    marks = _drawn_marks((scale.place(lower), scale.place(upper)) for lower, upper in source)
    figure = el("figure", class_="map")
    add(
        figure, el("figcaption", f"Range of {key_map.column} in each file", class_="soft"), _axis(scale, key_map, marks)
    )
    for block in blocks:
        add(figure, _block(block, 0 < sum(right - left for left, right in marks) <= MAX_THROUGH))
    return add(figure, *(el("p", sentence, class_="soft") for sentence in _sentences(scale, key_map, files)))


def _drawn_marks(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The places of the source's keys as wide as they are drawn. Those that would touch are one."""
    drawn: list[tuple[float, float]] = []
    for left, right in sorted(places):
        left = min(left, 1 - MARK_WIDTH)
        right = max(right, left + MARK_WIDTH)
        if drawn and left <= drawn[-1][1]:
            drawn[-1] = (drawn[-1][0], max(drawn[-1][1], right))
        else:
            drawn.append((left, right))
    return drawn


def _sentences(scale: Scale, key_map: KeyMap, files: Sequence[PageFile]) -> list[str]:
    notes = [f"Keys are evenly spaced, in their order: {scale.why}."] if scale.by_rank and scale.why else []
    if key_map.source is None:
        notes.append("Keys of the source are not marked: some are not numbers (NaN).")
    present = [f for f in files if f.action != "removed"]
    missing = sum(f.path not in key_map.ranges for f in present)
    if missing:
        why = "it shows no more" if len(key_map.ranges) >= MAX_FILES else "their footers were not read again"
        notes.append(f"Not on the map are {count(missing)} of {count(len(present), 'file')}: {why}.")
    return notes


def _blocks(files: Sequence[PageFile], key_map: KeyMap, scale: Scale, target: str) -> list[Block]:
    """The folders, those with changes first if there are too many; the others share a block."""
    folders: dict[str, list[PageFile]] = {}
    for file in files:
        if file.path in key_map.ranges:
            folders.setdefault(posixpath.dirname(relative(file.path, target)), []).append(file)
    names = sorted(folders)
    if len(names) > MAX_GROUPS:
        changes = {name: sum(f.action in CHANGES for f in folders[name]) for name in names}
        first = sorted(sorted(names, key=lambda name: -changes[name])[: MAX_GROUPS - 1])
        rest = [file for name in names if name not in set(first) for file in folders[name]]
        named = [*((name, folders[name]) for name in first), (f"{count(len(names) - len(first))} other folders", rest)]
    else:
        named = [(name or ("." if len(names) > 1 else ""), folders[name]) for name in names]
    lines = max(2, MAX_LINES // max(1, len(named)))
    return [_packed(name, group, key_map, scale, target, lines) for name, group in named]


def _packed(folder: str, files: Sequence[PageFile], key_map: KeyMap, scale: Scale, target: str, most: int) -> Block:
    """The files of a folder on as few lines as possible: files on different lines overlap."""
    bars, unknown, empty = [], 0, 0
    for file in files:
        span = key_map.ranges[file.path]
        if span is None or span[0] is None:
            unknown, empty = unknown + (span is None), empty + (span is not None)
            continue
        left, right = scale.place(span[0]), scale.place(span[1])
        bars.append(Bar(left, right, file.action, f"{relative(file.path, target)}: {bar_text(file, span, key_map)}"))
    lines, crowd = _lines(bars, most)
    if crowd:
        lines.append(_union(crowd))
    notes = [
        (len(crowd), "overlapping file", "in the lowest line"),
        (unknown, "file", "without statistics: any key may be in there"),
        (empty, "file", "without keys"),
    ]
    note = "; ".join(f"{count(number, noun)} {rest}" for number, noun, rest in notes if number)
    return Block(folder, Counter(f.action for f in files), tuple(map(tuple, lines)), note)


def _lines(bars: Sequence[Bar], most: int) -> tuple[list[list[Bar]], list[Bar]]:
    """Bars on lines on which they do not overlap, changes first, and the bars for which there is no line."""
    in_order = sorted(bars, key=lambda bar: (bar.left, bar.action in UNCHANGED, bar.right))
    lines, crowd = _fill(in_order, most)
    if not crowd:
        return lines, crowd
    changes, missed = _fill([bar for bar in in_order if bar.action not in UNCHANGED], most - 1)
    others, crowd = _fill([bar for bar in in_order if bar.action in UNCHANGED], most - 1 - len(changes))
    return [*changes, *others], [*missed, *crowd]


def _fill(bars: Iterable[Bar], most: int) -> tuple[list[list[Bar]], list[Bar]]:
    """Sorted bars, each on the first line that is free again."""
    lines: list[list[Bar]] = []
    ends: list[tuple[float, int]] = []
    left_out = []
    for bar in bars:
        if ends and ends[0][0] < bar.left:
            _, line = heapq.heappop(ends)
        elif len(lines) < most:
            line = len(lines)
            lines.append([])
        else:
            left_out.append(bar)
            continue
        lines[line].append(bar)
        heapq.heappush(ends, (bar.right, line))
    return lines, left_out


def _union(crowd: Sequence[Bar]) -> list[Bar]:
    """Bars that overlap as one."""
    joined: list[Bar] = []
    for bar in sorted(crowd, key=lambda bar: bar.left):
        if joined and bar.left <= joined[-1].right:
            last = joined[-1]
            joined[-1] = Bar(last.left, max(last.right, bar.right), "crowd", "", last.files + 1)
        else:
            joined.append(replace(bar, action="crowd"))
    return [replace(bar, title=f"{count(bar.files, 'file')} that overlap") for bar in joined]


def bar_text(file: PageFile, span: KeySpan, key_map: KeyMap) -> str:
    return f"{LABELS.get(file.action, '')} {span_text(span, key_map.type)}".strip()


def span_text(span: KeySpan | None, type_name: str) -> str:
    """The range of a file in words."""
    if span is None:
        return "no statistics"
    if span[0] is None:
        return "no values"
    lower, upper = (shortened(key_value(value, type_name), VALUE_LENGTH) for value in span)
    return lower if lower == upper else f"{lower} … {upper}"


def _narrowed(blocks: list[Block]) -> list[Block]:
    """With narrow neighbours as one bar, as many as it takes to stay below `MAX_BARS`."""
    narrow = 2 / WIDTH
    while True:
        joined = [replace(block, lines=tuple(_joined(line, narrow) for line in block.lines)) for block in blocks]
        if narrow > 1 or sum(len(line) for block in joined for line in block.lines) <= MAX_BARS:
            return joined
        narrow *= 2


def _joined(line: Sequence[Bar], narrow: float) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for bar in line:
        last = bars[-1] if bars else None
        if (
            last is not None
            and last.action == bar.action
            and bar.left - last.right < narrow
            and bar.right - last.left < 3 * narrow
        ):
            files = last.files + 1
            bars[-1] = Bar(
                last.left, bar.right, bar.action, f"{count(files, 'file')}: {LABELS.get(bar.action, '')}", files
            )
        else:
            bars.append(bar)
    return tuple(bars)


def _axis(scale: Scale, key_map: KeyMap, marks: Sequence[KeySpan]) -> Element:
    """The values along the map, and where the keys of the source are."""
    ticks = (0.0, 1.0) if scale.by_rank else TICKS
    first, *between, last = (scale.value(at) for at in ticks)
    if key_map.type.startswith("timestamp"):
        between = [value - value % _clock(last - first) for value in between]
    texts = [_tick(value, key_map.type) for value in (first, *between, last)]
    if len(set(texts)) < len(texts):
        texts = list(dict.fromkeys([texts[0], texts[-1]]))
    strip = None
    if marks:
        strip = el(
            "svg", el("defs", el("g", *(_rect(a, b, 0, 1, "mark") for a, b in marks), id="marks")), **_drawing(14)
        )
        add(strip, el("use", href="#marks", transform="scale(1 14)"))
        strip.set("aria-label", f"Keys of the source, in {count(len(marks), 'place')}")
    label = el("div", el("span", "keys of the source", class_="mark-key") if marks else None, class_="label")
    values = el("div", *(el("span", text) for text in texts), class_="ticks")
    return el("div", label, el("div", strip, values, class_="lines"), class_="block axis")


def _clock(nanoseconds: int) -> int:
    """Days, minutes or seconds, whichever divide a time into enough parts."""
    return next((unit for unit in (86400 * 10**9, 60 * 10**9, 10**9) if nanoseconds > 20 * unit), 1)


def _tick(value: Any, type_name: str) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return shortened(key_value(value, type_name), TICK_LENGTH)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _block(block: Block, with_marks: bool) -> Element:
    height = 12 if len(block.lines) <= 6 else 7 if len(block.lines) <= 20 else 4
    total = max(1, len(block.lines)) * (height + 2) + 2
    files = sum(block.actions.values())
    parts = ", ".join(f"{count(n)} {LABELS[action]}" for action, n in _in_order(block.actions) if action in LABELS)
    drawing = el("svg", **_drawing(total))
    drawing.set("aria-label", f"{block.folder}: {count(files, 'file')}" + (f", {parts}" if parts else ""))
    for number, line in enumerate(block.lines):
        for bar in line:
            part = height * _HEIGHTS.get(bar.action, 0.5)
            top = 2 + number * (height + 2) + (height - part) / 2
            add(drawing, add(_rect(bar.left, bar.right, top, part, f"a-{bar.action}"), el("title", bar.title)))
    if with_marks:
        add(drawing, el("use", href="#marks", transform=f"scale(1 {total})", class_="through"))
    changes = [
        f"{count(n)} {LABELS[action]}"
        for action, n in _in_order(block.actions)
        if action in LABELS and action not in UNCHANGED
    ]
    summary = ", ".join([*([count(files, "file")] if files else []), *changes, *filter(None, [block.new_rows])])
    label = el(
        "div",
        el("bdi", block.folder, class_="folder", dir="ltr") if block.folder else None,
        el("span", summary, class_="soft"),
        class_="label",
    )
    note = el("p", block.note, class_="soft") if block.note else None
    return el("div", label, el("div", drawing, note, class_="lines"), class_="block", data_folder=block.folder)


def _in_order(actions: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(action, actions[action]) for action in (*LABELS, "file") if action in actions]


def _drawing(height: int) -> dict[str, str]:
    return {"viewbox": f"0 0 {WIDTH} {height}", "preserveAspectRatio": "none", "height": str(height), "role": "img"}


def _rect(left: float, right: float, top: float, height: float, class_: str) -> Element:
    """A bar that stays visible if it is narrow, with a gap to the next one if it is wide."""
    x, width = left * WIDTH, (right - left) * WIDTH
    least = 0 if class_ == "mark" else 3
    if width < least:
        x, width = min(x, WIDTH - least), least
    elif class_ != "mark" and width > 6:
        width -= 1.5
    return el("rect", x=_number(x), y=_number(top), width=_number(width), height=_number(height), class_=class_)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def mini(span: KeySpan | None, scale: Scale | None, action: str) -> Element | None:
    """The range of one file, for its row in the table."""
    if span is None or span[0] is None or scale is None:
        return None
    bar = _rect(scale.place(span[0]), scale.place(span[1]), 0, 6, f"a-{action}")
    return el(
        "svg", bar, viewbox=f"0 0 {WIDTH} 6", preserveAspectRatio="none", height="6", class_="mini", aria_hidden="true"
    )
