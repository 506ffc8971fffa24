"""HTML elements. Every text and attribute is escaped when the page is written, so no value can become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

Element = ElementTree.Element
Child = Element | str | None

# Controls, and characters that are invisible or change the direction of the text around them.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Text in which characters that a browser would not show, or would obey, are written as escapes.

    >>> visible("a\u202eb\n"), visible("Zoë")
    ('a\\u202eb\\x0a', 'Zoë')
    """
    return _INVISIBLE.sub(lambda match: _escape(ord(match[0])), text)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def el(tag: str, *children: Child, **attributes: str | None) -> Element:
    """An element. `class_` is the attribute `class`, `data_rows` is `data-rows`, and `None` leaves an attribute out.

    >>> markup(el("p", "1 < 2 ", el("b", "yes"), class_="note"))
    '<p class="note">1 &lt; 2 <b>yes</b></p>'
    """
    values = {
        name.rstrip("_").replace("_", "-"): visible(value) for name, value in attributes.items() if value is not None
    }
    made = ElementTree.Element(
        tag, {("viewBox" if name == "viewbox" else name): value for name, value in values.items()}
    )
    return add(made, *children)


def add(parent: Element, *children: Child) -> Element:
    """Append elements and text."""
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif child and len(parent):
            parent[-1].tail = (parent[-1].tail or "") + visible(child)
        elif child:
            parent.text = (parent.text or "") + visible(child)
    return parent


def markup(element: Element) -> str:
    return ElementTree.tostring(element, encoding="unicode", method="html", short_empty_elements=False)


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[Child]], numeric: Sequence[int] = (), class_: str = ""
) -> Element:
    """A table whose cells carry their heading, so that a narrow screen can show each row as a card."""
    styles = ["n" if number in numeric else None for number in range(len(heads))]
    top = el("tr", *(el("th", head, scope="col", class_=style) for head, style in zip(heads, styles, strict=True)))
    body = el("tbody")
    for row in rows:
        cells = zip(row, heads, styles, strict=True)
        add(body, el("tr", *(el("td", cell, data_head=head or None, class_=style) for cell, head, style in cells)))
    return el("table", el("caption", caption), el("thead", top), body, class_=class_ or None)
