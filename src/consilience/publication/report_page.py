"""HTML that is escaped by construction: text becomes markup only through the functions here.

The page needs no network and no script, and forbids both to the browser, so that not even a mistake here could turn a
label into a program.
"""

import base64
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from consilience.errors import ConsilienceError

# ----------------------------------------------------------------------------------------------------------------------
# What all pictures share: the libraries that draw, the colours, and the files a picture becomes.
#
# Pictures need the extra `plots`. Colours are those of Okabe and Ito, which colour-blind readers can tell apart;
# nothing rests on colour alone.


BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY, DARK = "#777777", "#222222"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"


class NoPictures(ConsilienceError):
    """The libraries that draw are not installed."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture in both kinds of file, with words for those who cannot see it."""

    name: str
    """The name of its files, without a suffix."""
    title: str
    description: str
    specification: str
    """What it is drawn from, in Vega-Lite."""
    svg: str

    @property
    def width(self) -> int:
        """In pixels; pages show it no wider."""
        return _width(self.svg)

    @cached_property
    def png(self) -> bytes:
        import vl_convert

        return vl_convert.vegalite_to_png(self.specification, scale=2)


def altair() -> Any:
    """The library that draws, refused clearly where it or the one that writes files is not installed."""
    try:
        import altair as library
        import vl_convert  # noqa: F401 (altair saves pictures with it)
    except ImportError:
        raise NoPictures(
            "pictures need altair and vl-convert, which are part of the install: pip install altair vl-convert-python"
        ) from None
    return library


def check_pictures() -> None:
    """Refuse where nothing could be drawn."""
    altair()


def finished(chart: Any) -> Any:
    """The chart in the colours and sizes that all pictures share."""
    plain = chart.configure_view(stroke="#cccccc")
    return plain.configure_axis(gridColor="#eeeeee", labelFontSize=11, titleFontSize=12)


SIMULATED = "SIMULATED NOISE: NOT PRIVATE"
LONGEST_TITLE = 330


def picture(
    chart: Any, *, name: str, title: str, subtitle: str, description: str, private: bool, stamp: str = SIMULATED
) -> Picture:
    """The chart, dark on white, with its title; of simulated noise every picture says so, with the stamp."""
    import vl_convert

    below = [*([] if private else [stamp]), subtitle]
    written = altair().TitleParams(
        title,
        subtitle=[line for line in below if line],
        anchor="start",
        frame="bounds",
        limit=LONGEST_TITLE,
        fontSize=14,
        color=DARK,
        subtitleFontSize=12,
        subtitleColor=DARK,
        offset=10,
    )
    plain = chart.properties(title=written).configure(font=FONT, background="white", padding=4)
    plain = plain.configure_view(stroke=None).configure_axis(
        gridColor="#e4e4e4",
        domainColor=GREY,
        tickColor=GREY,
        labelColor=DARK,
        titleColor=DARK,
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
    )
    drawn = json.dumps(plain.to_dict(validate=False))  # each part was validated when it was made
    return Picture(name, title, description, drawn, _renumbered(vl_convert.vegalite_to_svg(drawn)))


def _renumbered(svg: str) -> str:
    """The same picture, with the numbers of its clips and gradients counted from 0.

    The library counts them on from picture to picture; a file should depend on what it shows alone.

    >>> _renumbered('<g clip-path="url(#clip7)"/><clipPath id="clip7"/>')
    '<g clip-path="url(#clip0)"/><clipPath id="clip0"/>'
    """
    found = list(dict.fromkeys(re.findall(r'(?:id="|url\(#)((?:clip|gradient_)\d+)(?=[")])', svg)))
    places = {name: f"{name.rstrip('0123456789')}{place}" for place, name in enumerate(found)}
    return re.sub(r'(id="|url\(#)((?:clip|gradient_)\d+)(?=[")])', lambda match: match[1] + places[match[2]], svg)


def _width(svg: str) -> int:
    """The width that the file says of itself.

    >>> _width('<svg class="marks" width="312.5" height="20">')
    313
    """
    head = svg[: svg.index(">")]
    return round(float(head.partition('width="')[2].partition('"')[0]) + 0.49)


# ----------------------------------------------------------------------------------------------------------------------
# HTML that is escaped by construction: text becomes markup only through the functions here.


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


def page(
    title: str, header: Content, sections: Sequence[tuple[str, str, Content]], *, language: str, contents: str
) -> str:
    """The whole file; a section has an identifier, a title, which stands in the contents, too, and what it says."""
    style = (files("consilience.publication") / "report.css").read_text(encoding="utf-8")
    links = [element("li", element("a", name, href=f"#{identifier}")) for identifier, name, _ in sections]
    body = [
        element("section", element("h2", name, id=identifier), content, aria_labelledby=identifier)
        for identifier, name, content in sections
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    listed = element("nav", element("ol", *links), aria_label=contents)
    whole = element("body", element("header", header), listed, element("main", *body))
    return "<!DOCTYPE html>\n" + element("html", head, whole, lang=language) + "\n"
