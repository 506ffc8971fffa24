"""A report as a single web page that needs nothing else: it loads nothing, works without its script, and prints.

The skeleton, the styles and the script are files in `assets`. A Content-Security-Policy allows exactly these.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata, resources
from string import Template

from fsspeckit import __version__
from fsspeckit.core.reports import MergeResult
from fsspeckit.report.content import TOP, Content, PageReport, Record, content_of
from fsspeckit.report.elements import Child, Element, add, el, markup, table
from fsspeckit.report.files import file_list
from fsspeckit.report.key_map import draw
from fsspeckit.report.summary import LABELS, count, share, size

_ENGINE_PACKAGES = {"duckdb": "duckdb", "spark": "pyspark"}


def page(report: PageReport, target: str, record: Record | None = None) -> str:
    """A whole HTML document."""
    content = content_of(report, target)
    content = replace(content, title=_without_password(content.title))
    main = el("main")
    add(main, *_head(content), _record(report, content, record or Record()))
    add(main, *(el("p", notice, class_="notice") for notice in content.notices))
    add(main, *_places(content.places), *_shares(content), *_phases(content.phases))
    drawn = _map(content, target)
    add(main, *drawn)
    for shown in content.tables:
        cells = table(shown.caption, shown.heads, shown.rows, shown.numeric, "cards")
        add(main, el("h2", shown.title), cells)
    if content.files:
        listed = file_list(content.files, content.key_map, target)
        add(main, el("h2", "Files"), None if drawn else _controls(content), listed)
    style, script = _asset("page.css"), _asset("page.js")
    title = markup(el("title", f"{content.state.split(' ')[0]}: {content.title}"))
    rules = {"style-src": _hash(style), "script-src": _hash(script)}
    policy = "; ".join(
        [
            "default-src 'none'",
            *(f"{name} {allowed}" for name, allowed in rules.items()),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return Template(_asset("page.html")).substitute(
        policy=policy, title=title, style=style, script=script, main=markup(main)
    )


def _asset(name: str) -> str:
    return resources.files("fsspeckit.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(content: Content) -> list[Element]:
    tiles = [
        el("div", el("strong", number), el("span", word), class_="tile", data_name=name)
        for name, word, number in content.tiles
    ]
    return [
        el(
            "header",
            el("p", content.state, class_="state"),
            el("h1", content.title),
            el("p", content.sentence, class_="counts"),
        ),
        el("div", *tiles, class_="tiles"),
    ]


def _record(report: PageReport, content: Content, record: Record) -> Element:
    """When, how and with what: the page is a record of the operation."""
    engine, started, seconds = record.engine, record.started, record.seconds
    if isinstance(report, MergeResult):
        engine, started = engine or report.engine, report.started or started
        seconds = report.seconds or seconds
    time = started or datetime.now(UTC)
    packages = ["pyarrow", *([_ENGINE_PACKAGES[engine]] if engine in _ENGINE_PACKAGES else [])]
    versions = [f"fsspeckit {__version__}", f"Python {sys.version.split()[0]}"]
    versions += [f"{name} {metadata.version(name)}" for name in packages]
    facts: list[tuple[str, Child]] = (
        [("command", el("code", _without_password(record.command)))] if record.command else []
    )
    facts += [("time", el("time", f"{time:%Y-%m-%d %H:%M:%S} UTC", datetime=time.isoformat(timespec="seconds")))]
    facts += [("duration", _seconds(seconds))] if seconds else []
    facts += [("engine", engine)] if engine else []
    facts += [*content.facts, ("versions", ", ".join(versions))]
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="record")


def _without_password(text: str) -> str:
    """A path or command without names and passwords in URLs.

    >>> _without_password("sftp://me:secret@host/lake")
    'sftp://…@host/lake'
    """
    return re.sub(r"(?<=://)[^/@\s]+@", "…@", text)


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _places(places: Sequence[tuple[str, str, str]]) -> list[Element]:
    """Folders that get new rows, appear, or disappear."""
    if not places:
        return []
    rows = [(el("bdi", folder, class_="path", dir="ltr"), rows, note) for folder, rows, note in places[:MAX_PLACES]]
    left = f", the first {count(MAX_PLACES)} of {count(len(places))}" if len(places) > MAX_PLACES else ""
    return [
        el("h2", "New files and partitions"),
        table(f"Folders that gain or lose files{left}", ("folder", "rows", ""), rows, (1,), "cards narrow"),
    ]


MAX_PLACES = 200


def _shares(content: Content) -> list[Element]:
    groups = content.groups
    if not groups:
        return []
    total = sum(g.bytes for g in groups)
    rows = [
        (_action(g.name, g.label), count(g.files), count(g.rows), size(g.bytes), share(g.bytes, total), g.meaning)
        for g in groups
    ]
    heads = ("action", "files", "rows", "size", "of all bytes", "meaning")
    return [
        el("h2", content.written or "Files by action"),
        _bar("Files", [(f"a-{g.name}", g.files, f"{g.label}: {count(g.files, 'file')}") for g in groups]),
        _bar("Bytes", [(f"a-{g.name}", g.bytes, f"{g.label}: {size(g.bytes)}") for g in groups]),
        table("Files by action", heads, rows, (1, 2, 3, 4), "cards groups"),
    ]


def _action(name: str, label: str) -> Element:
    return el("span", el("span", class_=f"dot a-{name}"), label, class_="action")


def _bar(label: str, parts: Sequence[tuple[str, float, str]]) -> Element:
    """A bar divided in proportion; a part greater than zero stays visible."""
    total, drawing, x = sum(amount for _, amount, _ in parts) or 1, el("svg", role="img", height="22"), 0.0
    drawing.set("viewBox", "0 0 1000 22")
    drawing.set("preserveAspectRatio", "none")
    drawing.set("aria-label", f"{label}: {', '.join(text for _, _, text in parts)}")
    widths = [max(6.0, 994 * amount / total) if amount else 0.0 for _, amount, _ in parts]
    for (name, _, text), width in zip(parts, widths, strict=True):
        width = width * 1000 / sum(widths)
        add(
            drawing,
            el("rect", el("title", text), x=f"{x:.1f}", width=f"{max(width - 2, 1):.1f}", height="22", class_=name),
        )
        x += width
    return el("div", el("span", label, class_="soft"), drawing, class_="bar")


def _phases(phases: Mapping[str, float]) -> list[Element]:
    if not phases:
        return []
    words = [(name, seconds, f"{name} {seconds:.2f} s") for name, seconds in phases.items()]
    parts = [(f"p{number % 7}", seconds, text) for number, (_, seconds, text) in enumerate(words)]
    legend = [
        el("li", el("span", class_=f"dot p{number % 7}"), f"{name} ", el("b", f"{seconds:.2f} s"))
        for number, (name, seconds, _) in enumerate(words)
    ]
    return [
        el("h2", f"{sum(phases.values()):.2f} seconds, by phase"),
        _bar("Time", parts),
        el("ul", *legend, class_="legend"),
    ]


def _map(content: Content, target: str) -> list[Element]:
    """The map of key ranges, below the controls for it and for the list of files."""
    new_rows = {"" if folder == TOP else folder: rows for folder, rows, _ in content.places if rows}
    drawn = draw(content.files, content.key_map, target, new_rows) if content.key_map is not None else None
    return [] if drawn is None else [el("h2", "Map of the data set"), _controls(content), drawn]


def _controls(content: Content) -> Element:
    """Hidden until the script works."""
    present = {f.action for f in content.files}
    labels = [(name, label) for name, label in LABELS.items() if name in present]
    boxes = [
        el("label", el("input", type="checkbox", checked="", value=name), *_action(name, label), class_="chip")
        for name, label in labels
    ]
    text = el("input", type="search", placeholder="Filter by path or reason", aria_label="Filter by path or reason")
    return el("div", text, *boxes, el("output", ""), class_="controls", hidden="")
