"""A suite as a picture, light and dark: for every work one bar per family, as long as it takes in times of ours."""

from __future__ import annotations

from html import escape

from results import Suite

PARTS = ("paper", "ink", "faint", "ours", "theirs", "line")
THEMES = {
    "light": dict(zip(PARTS, ("#ffffff", "#1f2328", "#59636e", "#0969da", "#afb8c1", "#d1d9e0"))),
    "dark": dict(zip(PARTS, ("#0d1117", "#f0f6fc", "#9198a1", "#4493f8", "#545d68", "#3d444d"))),
}
PANEL, GAP, NAMES, BARS = 430, 20, 128, 190
STEP, TITLE = 17, 44
LONGEST = 5.0  # times ours; longer bars are cut off, and say so


def draw(suite: Suite, theme: str) -> str:
    colours, works = THEMES[theme], list(suite.works)
    each = TITLE + STEP * len(suite.families()) + 12
    height = 62 + each * -(-len(works) // 2)
    idle = f"; {suite.floor} merges nothing" if suite.suite == "local" else ""
    body = [
        text(GAP, 26, f"Time of a merge, in times of {suite.families()[0]}'s", 15, colours["ink"], bold=True),
        text(
            GAP,
            45,
            f"{suite.machine}; {suite.date}{tried(suite)}. Shorter is better{idle}.",
            11,
            colours["faint"],
        ),
    ]
    for number, work in enumerate(works):
        x, y = GAP + number % 2 * (PANEL + GAP), 62 + number // 2 * each
        body += panel(suite, work, x, y, colours)
    width = 2 * PANEL + 3 * GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img" '
            'aria-label="Time of a merge beside that of others">',
            f'<rect width="{width}" height="{height}" fill="{colours["paper"]}"/>',
            *body,
            "</svg>\n",
        ]
    )


def tried(suite: Suite) -> str:
    return "" if suite.whole else f"; a try at scale {suite.scale:g}"


def panel(suite: Suite, work: str, x: float, y: float, colours: dict[str, str]) -> list[str]:
    ours, bars, one = suite.ours_at(work).wall, x + NAMES, BARS / LONGEST
    drawn = [
        text(x, y + 16, work, 13, colours["ink"], bold=True),
        text(x, y + 32, suite.works[work], 10.5, colours["faint"]),
    ]
    for number, name in enumerate(suite.families()):
        top, own = y + TITLE + number * STEP, number == 0
        wall = suite.best(work, name).wall
        colour = colours["ink"] if own else colours["faint"]
        drawn.append(text(bars - 8, top + 10, name, 11, colour, bold=own, anchor="end"))
        if wall is None or ours is None:
            drawn.append(text(bars + 2, top + 10, "–", 11, colours["faint"]))
            continue
        ratio = wall / ours
        length = max(1.0, min(ratio, LONGEST) / LONGEST * BARS)
        fill = colours["ours" if own else "theirs"]
        drawn.append(f'<rect x="{bars}" y="{top}" width="{length:.1f}" height="12" rx="2" fill="{fill}"/>')
        if ratio > LONGEST:
            cut = bars + BARS - 14
            drawn.append(f'<path d="M{cut} {top + 13} l5 -14 h4 l-5 14 z" fill="{colours["paper"]}"/>')
        said = f"{seconds(wall)}" if own else f"{seconds(wall)} · {times(ratio)}"
        drawn.append(text(bars + max(length, one) + 6, top + 10, said, 11, colour, bold=own))
    bottom = y + TITLE + STEP * len(suite.families()) - 4
    drawn.insert(
        2, f'<path d="M{bars + one} {y + TITLE - 3} V{bottom}" stroke="{colours["line"]}" stroke-dasharray="2 2"/>'
    )
    return drawn


def text(x: float, y: float, words: str, size: float, colour: str, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )


def seconds(wall: float) -> str:
    return f"{wall:.3f} s" if wall < 0.1 else f"{wall:.2f} s" if wall < 10 else f"{wall:.1f} s"


def times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.0f}×"
