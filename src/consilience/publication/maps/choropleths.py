"""A choropleth of answers: the values of places, and beside them how sure each is, one row for each group.

How sure a count is stands as half of its interval in per cent of the count; of shares, means, medians and differences
as half of the interval in their own units. Classes and colours (`classes`) are the same in all rows.

What was not measured is hatched. Which places have no shape, and which shapes no place, is said below the map.

Wide areas in degrees are drawn with areas that are true (Albers' cone through one sixth and five sixths of their
latitudes), small ones with angles that are true (Mercator), and other coordinates as they are.
"""

import html
import itertools
import json
import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.files import write_atomically
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError, FileFormatError, TooLarge
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.publication.answers import AnswerTable, answer_table
from consilience.publication.bundle import Bundle, keep_refits
from consilience.publication.intervals import interval
from consilience.publication.maps.classes import Classes, Numbers
from consilience.publication.maps.shapes import Shape, Shapes, label_text_of, read_shapes
from consilience.publication.questions import BoundQuestion, as_question
from consilience.publication.report_page import DARK, FONT, GREY, SIMULATED, Picture, altair, check_pictures

logger = logging.getLogger(__name__)

Projection = Literal["auto", "albers", "mercator", "albers-usa", "identity"]

BLANK = "#efefef"
WIDTH = 340
"""Of one map, in pixels."""
NARROW, WIDE = 0.35, 1.7
"""The least and the greatest height of a map, in widths."""
MOST_GROUPS = 12
SMALL_AREA = 3.0
"""Degrees of latitude of an area that Mercator's projection hardly distorts."""
MANY = 1_500
"""So many shapes are drawn without lines between them."""
HATCHES = 110
"""Lines across a map."""


@dataclass(frozen=True, eq=False)
class Map:
    """A finished map, with what it shows."""

    picture: Picture
    answers: AnswerTable
    notes: tuple[str, ...]
    """What is to be said below it: what is hatched, and what has no shape or no place."""
    path: Path | None = None

    def html(self) -> str:
        """A page that stands alone, where a place says its numbers when it is pointed at."""
        import vl_convert

        page = vl_convert.vegalite_to_html(self.picture.specification, bundle=True)
        title = f"<title>{html.escape(self.picture.title)}</title>"
        return re.sub(r"<title>.*?</title>", lambda _: title, page, count=1, flags=re.DOTALL)

    def content(self, suffix: str) -> bytes:
        """The file of this kind: .png, .svg or .html."""
        if suffix == ".png":
            return self.picture.png
        return (self.html() if suffix == ".html" else self.picture.svg).encode("utf-8")

    def _repr_png_(self) -> bytes:
        return self.picture.png


def map(  # noqa: A001 - the verb of the command line
    source: Estimate | Bundle,
    query: Query | Question | str,
    shapes: Shapes | str | os.PathLike[str],
    *,
    key: str | None = None,
    per: Query | str | None = None,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    projection: Projection = "auto",
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Map:
    """A map of the answers to a query, and beside it how sure they are; written to `out`, where that is given.

    `shapes` is a GeoJSON or TopoJSON file, and `key` the property of its shapes that names places: found, if left out.
    Further attributes of the query have a row of maps for each group: "by County, sex". Spends nothing.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain("two", (cs.Attribute.categorical("place", ["W", "E"]),))
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, {"place": [30, 50]}, noise=cs.Gaussian(2.0)))
    >>> corners = {"W": [0, 1], "E": [1, 2]}
    >>> features = [
    ...     {"type": "Feature", "id": name, "geometry": {"type": "Polygon", "coordinates": [
    ...         [[west, 0], [west, 1], [east, 1], [east, 0], [west, 0]]]}} for name, (west, east) in corners.items()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "two.geojson")
    ...     text = path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    ...     print(cs.map(account, "by place", path).picture.title)
    two: by place
    """
    if out is not None:
        check_place(Path(out), overwrite=overwrite)
    if projection not in get_args(Projection):
        raise DeclarationError(
            f"there is no projection {projection!r}; choose one of {', '.join(get_args(Projection))}"
        )
    check_pictures()
    estimate = source.estimate if isinstance(source, Bundle) else source
    question = as_question(query, per).over(estimate.domain)
    if question.top is not None:
        raise DeclarationError(f"a map shows all places; leave 'top {question.top} of' out of {question.describe()!r}")
    read = shapes if isinstance(shapes, Shapes) else read_shapes(shapes)
    plain = answer_table(estimate, question)
    if plain.style.days is not None:
        raise DeclarationError(
            f"{question.describe()!r} asks for dates, which have no scale of colours; ask for counts"
        )
    drawing = Drawing.of(
        plain, read, key, estimate.domain
    )  # refuses what does not fit before error bars take their time
    found = interval(estimate, question, level, refits=refits, seed=seed, progress=progress)
    if isinstance(source, Bundle):
        keep_refits(source)
    counts = BoundQuestion(question, estimate.domain).are_counts and not (question.per or question.word)
    asked = question.describe() if per is not None or not isinstance(query, str) else query
    table = answer_table(estimate, question, found)
    done = drawing.drawn(table, asked, estimate.domain, relative=counts, projection=projection)
    if out is None:
        return done
    write_atomically(Path(out), done.content(Path(out).suffix.lower()))
    return Map(done.picture, done.answers, done.notes, Path(out))


def check_place(out: Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a file that is no picture, or that is there already."""
    if out.suffix.lower() not in (".png", ".svg", ".html"):
        raise DeclarationError(f"{out} is neither .png, .svg nor .html; name it so")
    if out.is_dir() or (out.exists() and not overwrite):
        raise FileFormatError(f"{out} exists already; choose another name, or replace a file with overwrite=True")
    if not out.absolute().parent.is_dir():
        raise FileFormatError(f"there is no folder {out.parent}; create it first")


# ----------------------------------------------------------------------------------------------------------------------
# Which answers belong to which shapes.


@dataclass(frozen=True, eq=False)
class Drawing:
    """The shapes of the places that were asked about, and for each group the answers of these places."""

    axis: int
    """That of the places."""
    shapes: tuple[Shape, ...]
    extent: Shapes
    places: tuple[int, ...]
    """Of each shape the place of its label along the axis."""
    notes: tuple[str, ...]

    @staticmethod
    def of(table: AnswerTable, shapes: Shapes, key: str | None, domain: Domain) -> "Drawing":
        axis = _axis_of_places(table, shapes, key)
        labels = table.axes[axis]
        used, found = shapes.by_key(key, labels)
        if key is None:
            logger.info("places are found by the property %s of %s", used, shapes.name)
        groups = len(table) // len(labels)
        if groups > MOST_GROUPS:
            raise TooLarge(
                f"{table.title!r} has {groups:,} groups, and a picture has room for maps of {MOST_GROUPS}; ask for "
                "fewer, or for coarser ones"
            )
        drawn = [(place, found[label]) for place, label in enumerate(labels) if label in found]
        chosen = Shapes(shapes.name, tuple(shape for _, shape in drawn)).simplified()
        missing = [label for label in labels if label not in found]
        known = {*labels, *(name for each in domain.counted for name in each.nameable)}
        extra = [label for label in found if label not in known]
        notes = []
        if missing:
            notes.append(f"{_number(missing, 'place')} without a shape in {shapes.name}, not drawn: {_named(missing)}.")
        if extra:
            notes.append(f"{_number(extra, 'shape')} of no place of the domain, left out: {_named(extra)}.")
        return Drawing(axis, chosen.every, chosen, tuple(place for place, _ in drawn), tuple(notes))

    def drawn(self, table: AnswerTable, asked: str, domain: Domain, *, relative: bool, projection: Projection) -> Map:
        panels = _panels(table, self.axis, self.places)
        values = Classes.of_values([each.values for each in panels], table)
        doubts = [each.doubts(relative) for each in panels]
        sure = Classes.of_shares() if relative else Classes.of_doubts(doubts, table)
        missing = np.array([np.isnan(each.values) for each in panels])
        notes = list(self.notes)
        if missing.any():
            of = "" if len(panels) == 1 else f" in {len(panels)} maps"
            notes.insert(0, f"Hatched: not measured ({int(missing.sum()):,} of {missing.size:,} places{of}).")
        page = _Page(self, panels, values, sure, doubts, table, asked, domain, relative, projection)
        return Map(page.picture(notes), table, tuple(notes))


def _axis_of_places(table: AnswerTable, shapes: Shapes, key: str | None) -> int:
    """The axis most of whose labels are names of shapes."""
    names = {name for shape in shapes.every for name in shape.properties} if key is None else {key}
    known = {label_text_of(shape, name) for shape in shapes.every for name in names}
    many = [axis for axis, labels in enumerate(table.axes) if len(labels) > 1] or [*range(len(table.axes))]
    if not many:
        raise DeclarationError(f"{table.title!r} has no places; ask by them: 'by County'")
    return max(many, key=lambda axis: (sum(label in known for label in table.axes[axis]), len(table.axes[axis])))


def _number(names: Sequence[str], noun: str) -> str:
    return f"{len(names):,} {noun}{'s' * (len(names) != 1)}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


@dataclass(frozen=True, eq=False)
class _Panel:
    """The answers of one group, for each shape."""

    name: str
    values: Numbers
    low: Numbers
    high: Numbers
    told: tuple[tuple[str, str], ...]
    """For each shape its label and its answer in words."""

    def doubts(self, relative: bool) -> Numbers:
        """Half of the interval, in parts of the value where that is wanted."""
        with np.errstate(invalid="ignore", divide="ignore"):
            half = (self.high - self.low) / 2.0
            found = np.where(self.values > 0.0, half / self.values, np.where(half > 0.0, np.inf, half))
        return np.where(np.isnan(self.values), np.nan, found if relative else half)


def _panels(table: AnswerTable, axis: int, places: Sequence[int]) -> list[_Panel]:
    shape = [len(labels) for labels in table.axes]
    bars = table.interval
    ends = (table.estimates, table.estimates) if bars is None else (bars.low, bars.high)
    arrays = [
        np.moveaxis(np.reshape(each, shape), axis, -1).reshape(-1, shape[axis]) for each in (table.estimates, *ends)
    ]
    others = [labels for at, labels in enumerate(table.shown_axes) if at != axis]
    several = [at for at, labels in enumerate(others) if len(labels) > 1]
    found = []
    for at, labels in enumerate(itertools.product(*others)):
        own = [each[at, list(places)] for each in arrays]
        told = [
            (table.shown_axes[axis][place], _told(table, *numbers))
            for place, *numbers in zip(places, *(each.tolist() for each in own), strict=True)
        ]
        group = ", ".join(labels[place] for place in several)
        found.append(_Panel(group, own[0], own[1], own[2], tuple(told)))
    return found


def _told(table: AnswerTable, value: float, low: float, high: float) -> str:
    """An answer in words."""
    text = table.style.text
    return "not measured" if math.isnan(value) else f"{text(value)} ({text(low)} to {text(high)})"


# ----------------------------------------------------------------------------------------------------------------------
# The picture.


@dataclass(frozen=True, eq=False)
class _Page:
    """Rows of two maps, of the values and of how sure they are."""

    drawing: Drawing
    panels: Sequence[_Panel]
    values: Classes
    sure: Classes
    doubts: Sequence[Numbers]
    table: AnswerTable
    asked: str
    """The question as it was typed."""
    domain: Domain
    relative: bool
    projection: Projection

    def picture(self, notes: Sequence[str]) -> Picture:
        import vl_convert

        alt = altair()
        rows = [self._row(place) for place in range(len(self.panels))]
        title = self._title()
        lines = [*([] if self.table.private else [SIMULATED]), *self._wrapped(notes)]
        text = alt.TitleParams(
            title,
            subtitle=lines,
            anchor="start",
            fontSize=15,
            color=DARK,
            subtitleFontSize=12,
            subtitleColor=DARK,
            offset=12,
        )
        chart = alt.vconcat(*rows, spacing=8).properties(title=text)
        chart = chart.configure(font=FONT, background="white", padding=8).configure_view(stroke=None)
        chart = chart.configure_legend(labelLimit=260, titleLimit=320, labelColor=DARK, titleColor=DARK)
        document = chart.to_dict(validate=False)
        document["datasets"] = {"places": self._features} | {f"hatches {at}": self._hatches(at) for at in self._hatched}
        drawn = json.dumps(document)
        return Picture("map", title, self._description(notes), drawn, vl_convert.vegalite_to_svg(drawn))

    @property
    def unit(self) -> str:
        """What values are numbers of; empty where that is not known."""
        question = self.table.question
        name = question.mean_of or question.quantiles_of
        if name is not None:
            return self.domain[name].wording.unit or ""
        if question.per is not None or question.word == "per":
            return "a ratio"
        return "records" if self.domain.weight is None else "by weight"

    def _title(self) -> str:
        heading = f"{self.domain.name}: {self.asked}"
        return heading if len(heading) <= 90 else heading[:89] + "…"

    def _wrapped(self, notes: Sequence[str]) -> list[str]:
        import textwrap

        return [line for note in notes for line in textwrap.wrap(note, 110)]

    def _description(self, notes: Sequence[str]) -> str:
        level = 95.0 if self.table.interval is None else 100 * self.table.interval.level
        rows = f"{len(self.panels)} rows of two maps" if len(self.panels) > 1 else "Two maps"
        start = "" if self.table.private else f"{SIMULATED}. "
        about = f"{start}{rows} of {self._title()}: the values, and half of their {level:g} % intervals"
        return " ".join([about + f", for {len(self.drawing.shapes):,} places.", *notes])

    @property
    def _features(self) -> list[dict[str, Any]]:
        """The shapes, with the classes of their values and doubts of each group."""
        values = [self.values.of(each.values) for each in self.panels]
        doubts = [self.sure.of(each) for each in self.doubts]
        found = []
        for place, shape in enumerate(self.drawing.shapes):
            about: dict[str, Any] = {"place": self.panels[0].told[place][0]}
            for at, panel in enumerate(self.panels):
                about |= {f"v{at}": values[at][place], f"d{at}": doubts[at][place], f"t{at}": panel.told[place][1]}
            found.append({"type": "Feature", "properties": about, "geometry": shape.geometry()})
        return found

    @property
    def _hatched(self) -> list[int]:
        """The groups in which some place was not measured."""
        return [at for at, panel in enumerate(self.panels) if np.isnan(panel.values).any()]

    def _hatches(self, at: int) -> list[dict[str, Any]]:
        """Lines across the places of a group that were not measured."""
        west, south, east, north = self.drawing.extent.extent
        step = max(east - west, north - south, 1e-12) / HATCHES
        missing = np.flatnonzero(np.isnan(self.panels[at].values)).tolist()
        lines = (self.drawing.shapes[place].hatching(step) for place in missing)
        return [{"type": "Feature", "properties": {}, "geometry": each} for each in lines if each["coordinates"]]

    def _row(self, at: int) -> Any:
        level = 95.0 if self.table.interval is None else 100 * self.table.interval.level
        unit = f" ({self.unit})" if self.unit else ""
        what = " in % of the count" if self.relative else unit
        name = self.panels[at].name
        heads = (name + (unit if name else f"Values{unit}"), f"How sure: ± half of the {level:g} % interval{what}")
        last = at == len(self.panels) - 1
        maps = [
            self._map(at, f"v{at}", self.values, heads[0], last),
            self._map(at, f"d{at}", self.sure, heads[1], last),
        ]
        return altair().hconcat(*maps, spacing=24).resolve_scale(color="independent")

    def _map(self, at: int, field: str, classes: Classes, head: str, legend: bool) -> Any:
        alt = altair()
        shown = (
            alt.Legend(orient="bottom", columns=2, title=None, symbolType="square", symbolSize=140) if legend else None
        )
        scale = alt.Scale(domain=list(classes.names), range=list(classes.colours))
        colour = alt.Color(f"properties.{field}:N", scale=scale, legend=shown)
        many = len(self.drawing.shapes) > MANY
        line = {"strokeWidth": 0.0} if many else {"stroke": "#8a8a8a", "strokeWidth": 0.3}
        told = [alt.Tooltip("properties.place:N", title=self.table.shown_columns[self.drawing.axis])]
        told.append(alt.Tooltip(f"properties.t{at}:N", title=self.panels[at].name or "answer"))
        base = alt.Chart(alt.NamedData("places")).mark_geoshape(**line)
        test = alt.datum["properties"][field] != None  # noqa: E711 - an expression of the chart
        layers = [base.encode(color=alt.condition(test, colour, alt.value(BLANK)), tooltip=told)]
        if at in self._hatched:
            strokes = alt.Chart(alt.NamedData(f"hatches {at}")).mark_geoshape(
                filled=False, stroke=GREY, strokeWidth=0.8
            )
            layers.append(strokes)
        width, height = self._size
        title = alt.TitleParams(head, anchor="start", fontSize=12, fontWeight="normal", color=DARK, limit=width + 20)
        return alt.layer(*layers).project(**self._projected).properties(width=width, height=height, title=title)

    @cached_property
    def _size(self) -> tuple[int, int]:
        west, south, east, north = self.drawing.extent.extent
        narrower = math.cos(math.radians((south + north) / 2)) if self.drawing.extent.in_degrees else 1.0
        ratio = (north - south) / max((east - west) * narrower, 1e-12)
        return WIDTH, round(WIDTH * min(max(ratio, NARROW), WIDE))

    @cached_property
    def _projected(self) -> Mapping[str, Any]:
        """The projection, in the words of Vega-Lite."""
        west, south, east, north = self.drawing.extent.extent
        kind: str = self.projection
        if kind == "auto":
            small = north - south < SMALL_AREA
            kind = ("mercator" if small else "albers") if self.drawing.extent.in_degrees else "identity"
        if kind == "identity":
            return {"type": "identity", "reflectY": True}
        if kind == "albers-usa":
            return {"type": "albersUsa"}
        turn = {"rotate": [-(west + east) / 2, 0, 0]}
        if kind == "mercator":
            return {"type": "mercator", **turn}
        sixth = (north - south) / 6
        return {"type": "conicEqualArea", "parallels": [south + sixth, north - sixth], **turn}
