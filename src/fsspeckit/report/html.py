"""A plan or a result as a single web page: no scripts, no external resources, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fsspeckit.core.reports import MergePlan, MergeResult
from fsspeckit.report.summary import (
    LABELS,
    Group,
    count,
    counts,
    headline,
    partition_facts,
    plan_groups,
    relative,
    result_groups,
    retyped,
    share,
    size,
    still_kept,
    written,
)

MAX_FILES = 1000

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5c656d; --paper: #fff; --line: #dfe3e6;
  --rewrite: #c2410c; --scan: #a16207; --guard: #7e22ce; --prune: #94a3b8; --insert: #0e7490; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a3adb5; --paper: #16191c; --line: #343a40;
  --rewrite: #fb923c; --scan: #facc15; --guard: #c084fc; --prune: #64748b; --insert: #22d3ee; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 64rem; padding: 2rem 1rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.counts { font-size: 1.15rem; margin: .25rem 0 0; } .soft, caption, dt { color: var(--soft); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.bar { display: flex; gap: 2px; height: 1.6rem; margin: .25rem 0 .75rem; }
.bar span { min-width: 4px; border-radius: 2px; }
.rewrite, .rewritten { background: var(--rewrite); } .inserted { background: var(--insert); }
.scan { background: var(--scan); } .guard { background: var(--guard); }
.prune, .preserved { background: var(--prune); }
.dot { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: .25rem 0; }
th, td { text-align: left; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
td.n, .action { white-space: nowrap; } td .soft, td .why { display: inline-block; min-width: 12rem; }
.path { display: inline-block; font: .875em ui-monospace, monospace; overflow-wrap: anywhere; min-width: 16rem; }
.hint { border-left: 4px solid var(--scan); padding: .25rem 1rem; }
"""


def page(report: MergePlan | MergeResult, target: str) -> str:
    """A whole HTML document."""
    if isinstance(report, MergePlan):
        title, groups = f"Plan: {headline(report, target)}", plan_groups(report)
        parts = [*_plan_facts(report), *_bars(groups), *_plan_files(report, target), *_hints(report.hints)]
    else:
        title, groups = f"Done: {headline(report, target)}", result_groups(report)
        sentences = [sentence for sentence in (retyped(report), still_kept(report)) if sentence]
        parts = [*_bars(groups), *_result_files(report, target), *_hints(sentences)]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="counts">{escape(counts(report))}</p>',
            f'<p class="soft">{count(report.source_count, "row")} in the source</p>',
            *parts,
            "</main>\n</body>\n</html>\n",
        ]
    )


def _plan_facts(plan: MergePlan) -> list[str]:
    facts = [("Key", ", ".join(plan.key_columns)), ("Partitions", ", ".join(plan.partition_columns) or "none")]
    facts = [*(fact for fact in facts if fact[1]), *((name.capitalize(), text) for name, text in partition_facts(plan))]
    return ["<dl>", *(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts), "</dl>"]


def _bars(groups: Sequence[Group]) -> list[str]:
    if not any(g.files for g in groups):
        return []
    heads = ("", "files", "rows", "bytes", "of all bytes", "")
    rows = [_legend(group, sum(g.bytes for g in groups)) for group in groups]
    return [
        f"<h2>{escape(written(groups))}</h2>",
        _bar("Files", [(g, g.files, count(g.files, "file")) for g in groups]),
        _bar("Bytes", [(g, g.bytes, size(g.bytes)) for g in groups]),
        _table("Files by action", heads, rows, numeric=(1, 2, 3, 4)),
    ]


def _bar(label: str, parts: Sequence[tuple[Group, int, str]]) -> str:
    description = ", ".join(f"{group.label}: {shown}" for group, _, shown in parts)
    spans = "".join(
        f'<span class="{group.name}" style="flex: {amount} 1 0" title="{group.label}: {shown}"></span>'
        for group, amount, shown in parts
        if amount
    )
    return (
        f'<div class="soft">{label}</div><div class="bar" role="img" aria-label="{label}: {description}">{spans}</div>'
    )


def _legend(group: Group, total: int) -> list[str]:
    figures = [count(group.files), count(group.rows), size(group.bytes), share(group.bytes, total)]
    return [_action(group.name), *figures, f'<span class="soft">{escape(group.meaning)}</span>']


def _plan_files(plan: MergePlan, target: str) -> list[str]:
    order = {"rewrite": 0, "scan": 1, "guard": 2, "prune": 3}
    files = sorted(plan.files, key=lambda f: order[f.action])
    heads = ("file", "action", "updated", "deleted", "skipped", "row groups read", "rows", "size", "reason")
    rows = [
        [
            _path(f.path, target),
            _action(f.action),
            count(f.updated_rows),
            count(f.deleted_rows),
            count(f.skipped_rows),
            f"{count(f.scanned_row_groups)} of {count(f.row_groups)}",
            count(f.rows),
            size(f.bytes),
            f'<span class="why">{escape(f.reason)}</span>',
        ]
        for f in files[:MAX_FILES]
    ]
    return _files(heads, rows, len(files), numeric=(2, 3, 4, 5, 6, 7))


def _result_files(result: MergeResult, target: str) -> list[str]:
    heads = ("file", "", "rows", "size")
    rows = [
        [_path(f.path, target), _action(f.operation), count(f.row_count), size(f.size_bytes or 0)]
        for f in result.files[:MAX_FILES]
    ]
    return _files(heads, rows, len(result.files), numeric=(2, 3))


def _files(heads: Sequence[str], rows: list[list[str]], total: int, numeric: Sequence[int]) -> list[str]:
    if not rows:
        return []
    shown = "All files" if len(rows) == total else f"The first {count(len(rows))} of {count(total)}; --json lists all"
    return ["<h2>Files</h2>", _table(shown, heads, rows, numeric)]


def _action(name: str) -> str:
    return f'<span class="action"><span class="dot {name}"></span>{LABELS.get(name, name)}</span>'


def _path(path: str, target: str) -> str:
    return f'<span class="path">{escape(relative(path, target))}</span>'


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int]) -> str:
    """`rows` contain HTML."""
    classes = [' class="n"' if i in numeric else "" for i in range(len(heads))]
    top = "".join(
        f'<th scope="col"{k}>{head}</th>' if head else "<td></td>" for head, k in zip(heads, classes, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(f"<td{k}>{cell}</td>" for cell, k in zip(row, classes, strict=True)) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _hints(hints: Iterable[str]) -> list[str]:
    return [f'<p class="hint">{escape(hint)}</p>' for hint in hints]
