"""The list of files on a report's page: plain without JavaScript, with it filtered and sorted."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence

from fsspeckit.core.reports import KeyMap
from fsspeckit.report.content import PageFile
from fsspeckit.report.elements import Child, Element, add, el
from fsspeckit.report.key_map import CHANGES, Scale, mini, scale_of, span_text
from fsspeckit.report.summary import LABELS, count, relative, size

MAX_FILES = 500


def file_list(files: Sequence[PageFile], key_map: KeyMap | None, target: str) -> Element:
    """The files by folder; if there are too many, those that change first."""
    first = sorted(range(len(files)), key=lambda n: files[n].action not in CHANGES)[:MAX_FILES]
    listed = sorted(
        (files[n] for n in first), key=lambda f: (posixpath.dirname(f.path), f.action not in CHANGES, f.path)
    )
    with_changes = any(number for file in listed for _, number in file.changes)
    heads = [
        "file",
        "action" if any(f.action != "file" for f in listed) else "",
        "changed rows" if with_changes else "",
    ]
    heads += ["rows", "size"] if any(f.bytes is not None for f in listed) else []
    heads += [f"range of {key_map.column}"] if key_map is not None else []
    shown = [head for head in heads if head]
    top = el(
        "tr",
        *(
            el(
                "th",
                el("span", head),
                scope="col",
                class_="n" if head in NUMERIC else None,
                data_sort=SORTS.get(head, "low"),
            )
            for head in shown
        ),
    )
    made = el("table", el("caption", _caption(files, listed)), el("thead", top), class_="files")
    scale = None
    if key_map is not None:
        spans = [key_map.ranges.get(f.path) for f in files]
        scale = scale_of(
            value
            for span in (*spans, *(key_map.source or ()))
            if span is not None and span[0] is not None
            for value in span
        )
    folders = Counter(posixpath.dirname(relative(f.path, target)) for f in listed)
    grouped = 1 < len(folders) <= len(listed) // 2
    made.set("class", "files grouped" if grouped else "files")
    body, current = el("tbody"), None
    for place, file in enumerate(listed):
        folder = posixpath.dirname(relative(file.path, target))
        if grouped and folder != current:
            head = el(
                "th",
                el("bdi", folder or ".", dir="ltr"),
                el("span", f" {count(folders[folder], 'file')}", class_="soft"),
                colspan=str(len(shown)),
                scope="rowgroup",
            )
            add(body, el("tr", head, class_="folder-row", data_folder=folder))
            current = folder
        add(body, _row(file, shown, place, folder, key_map, scale))
    return add(made, body)


NUMERIC = ("changed rows", "rows", "size")
SORTS = {"file": "file", "action": "action", "changed rows": "changes", "rows": "rows", "size": "bytes"}
_ORDER = {name: str(number) for number, name in enumerate(LABELS)}


def _caption(files: Sequence[PageFile], listed: Sequence[PageFile]) -> str:
    if len(listed) == len(files):
        return f"All {count(len(files))} files" if len(files) > 1 else "One file"
    counted = Counter(f.action for f in files) - Counter(f.action for f in listed)
    others = ", ".join(f"{count(n)} {LABELS.get(action, 'files')}" for action, n in counted.items())
    first = f"The first {count(len(listed))} of {count(len(files))} files, changes first."
    return f"{first} Left out: {others}; --json lists all."


def _row(
    file: PageFile,
    heads: Sequence[str],
    place: int,
    folder: str,
    key_map: KeyMap | None,
    scale: Scale | None,
) -> Element:
    span = key_map.ranges.get(file.path) if key_map is not None else None
    changes = [(count(number), word) for word, number in file.changes if number]
    name = posixpath.basename(file.path)
    path = el(
        "td", el("bdi", el("span", f"{folder}/" if folder else "", class_="soft"), name, class_="path", dir="ltr")
    )
    label = (
        el("span", el("span", class_=f"dot a-{file.action}"), LABELS.get(file.action, ""), class_="action")
        if file.action in LABELS
        else None
    )
    why = el("span", file.reason, class_="why") if file.reason else None
    low = "" if span is None or span[0] is None or scale is None else f"{scale.place(span[0]):.6f}"
    cells = {
        "file": add(path, why if label is None else None),
        "action": el("td", label, why),
        "changed rows": el("td", ", ".join(f"{number} {word}" for number, word in changes), class_="n"),
        "rows": el("td", "" if file.rows is None else count(file.rows), class_="n"),
        "size": el("td", "" if file.bytes is None else size(file.bytes), class_="n"),
    }
    if key_map is not None:
        text = span_text(span, key_map.type) if file.path in key_map.ranges else "not read"
        lower, dots, upper = text.partition(" … ")
        values: list[Child] = [
            el("span", lower, class_="value"),
            dots,
            el("span", upper, class_="value") if dots else None,
        ]
        cells[f"range of {key_map.column}"] = el("td", *values, mini(span, scale, file.action), class_="range")
    for head in heads:
        if head != "file":
            cells[head].set("data-head", head)
    return el(
        "tr",
        *(cells[head] for head in heads),
        data_place=str(place),
        data_folder=folder,
        data_action=file.action,
        data_order=_ORDER.get(file.action, "9"),
        data_rows=str(file.rows or 0),
        data_bytes=str(file.bytes or 0),
        data_changes=str(sum(number for _, number in file.changes)),
        data_low=low,
    )
