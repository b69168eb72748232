"""HTML that is escaped by construction: text becomes markup only through the functions here.

The page needs no network and no script, and forbids both to the browser, so that not even a mistake here could turn a
label into a program.
"""

import base64
import html
from collections.abc import Sequence
from importlib.resources import files

from consilience.publication.drawing import Picture

VOID = frozenset({"meta", "img", "br"})
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
WIDEST = 520
"""Pictures wider than this would be unreadable on a phone if they shrank to its width: they scroll."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Markup | None
"""What may stand inside an element: plain text, which is escaped, markup, which is not, or nothing."""


def element(tag: str, *content: Content, **attributes: str | None) -> Markup:
    """An element with its content; a trailing underscore of an attribute's name is dropped, others become hyphens.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>" if tag in VOID else f"<{tag}{given}>{join(*content)}</{tag}>")


def join(*content: Content) -> Markup:
    """The contents one after the other, what is no markup escaped."""
    return Markup(
        "".join(each if isinstance(each, Markup) else html.escape(each) for each in content if each is not None)
    )


def paragraphs(*texts: Content, class_: str | None = None) -> Markup:
    """A paragraph for each text that is not empty."""
    return join(*(element("p", text, class_=class_) for text in texts if text))


def bullets(texts: Sequence[Content]) -> Markup:
    return element("ul", *(element("li", text) for text in texts))


def table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[Content]], *, numeric: int = 0, heads: int = 1
) -> Markup:
    """A table in a box of its own, which scrolls where the page is too narrow.

    The first `heads` cells of a row head it, and the last `numeric` columns are aligned to the right.
    """
    right = len(header) - numeric

    def cell(place: int, content: Content) -> Markup:
        shown = "number" if place >= right else None
        return element("th", content, scope="row") if place < heads else element("td", content, class_=shown)

    head = element(
        "tr",
        *(element("th", name, scope="col", class_="number" if i >= right else None) for i, name in enumerate(header)),
    )
    body = [element("tr", *(cell(place, content) for place, content in enumerate(row))) for row in rows]
    inside = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", inside, class_="scroll", tabindex="0", role="region", aria_label=caption)


def facts(rows: Sequence[tuple[Content, Content]]) -> Markup:
    """Names and what they stand for."""
    return element("dl", *(join(element("dt", name), element("dd", meaning)) for name, meaning in rows))


def folded(summary: str, *content: Content) -> Markup:
    """What is shown to those who ask for it, and printed."""
    return element("details", element("summary", summary), *content)


def figure(drawn: Picture | None, *below: Content) -> Markup:
    """A picture with its words, and what stands below it: a table of the same numbers. Its title is drawn in it."""
    if drawn is None:
        return join(*below)
    coded = base64.b64encode(drawn.svg.encode("utf-8")).decode("ascii")
    source = f"data:image/svg+xml;base64,{coded}"
    image = element("img", src=source, alt=drawn.description, width=str(drawn.width))
    if drawn.width > WIDEST:
        image = element("div", image, class_="scroll wide", tabindex="0", role="region", aria_label=drawn.title)
    return element("figure", element("figcaption", drawn.title, class_="unseen"), image, *below)


def section(identifier: str, title: str, *content: Content) -> Markup:
    return element("section", element("h2", title, id=identifier), *content, aria_labelledby=identifier)


def page(title: str, contents: Sequence[tuple[str, str]], *body: Content) -> str:
    """The whole file; `contents` are the identifiers and titles of its sections."""
    style = (files("consilience.publication") / "report.css").read_text(encoding="utf-8")
    links = [element("li", element("a", name, href=f"#{identifier}")) for identifier, name in contents]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    listed = element("nav", element("ol", *links), aria_label="Contents")
    header, *rest = body
    whole = element("body", element("header", header), listed, element("main", *rest))
    return "<!DOCTYPE html>\n" + element("html", head, whole, lang="en") + "\n"
