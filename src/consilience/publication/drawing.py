"""What all pictures share: the libraries that draw, the colours, and the files a picture becomes.

Pictures need the extra `plots`. Colours are those of Okabe and Ito, which colour-blind readers can tell apart; nothing
rests on colour alone.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from consilience.errors import ConsilienceError

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
        raise NoPictures("pictures need more libraries; install them with: pip install 'consilience[plots]'") from None
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


def picture(chart: Any, *, name: str, title: str, subtitle: str, description: str, private: bool) -> Picture:
    """The chart, dark on white, with its title; of simulated noise every picture says so."""
    import vl_convert

    below = [*([] if private else [SIMULATED]), subtitle]
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
