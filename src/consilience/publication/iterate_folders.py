"""Folders of what all rounds of an iterative algorithm speak for: clusters, or a regression.

A folder holds the estimate as JSON, the noisy rounds as `measurements.parquet`, a table as CSV, and pictures. It is
written beside its place and renamed, so that it is there whole or not at all.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from consilience.errors import FileFormatError
from consilience.estimators.clusters import ClusterEstimate, ClusterInterval
from consilience.estimators.iterates import SavedIterates
from consilience.estimators.logistic import RegressionEstimate
from consilience.measurements import MeasurementSet
from consilience.publication.answers import CsvWriter, cell, heading
from consilience.publication.bundle import folder_in_place_of
from consilience.publication.report_page import BLUE, GREEN, GREY, ORANGE, PINK, altair, finished

Saved = TypeVar("Saved", bound=SavedIterates)

MEASUREMENTS, PROGRESS = "measurements.parquet", "chain.png"


@dataclass(frozen=True)
class IterateFolder(Generic[Saved]):
    """One kind of folder: what its estimate is called and read by, its table and its picture."""

    kind: type[Saved]
    model: str
    table: str
    picture: str
    lines: Callable[[Saved, float], str]
    """The table, with intervals of this level."""
    draw: Callable[[Saved, float, Path], None]

    @property
    def files(self) -> tuple[str, ...]:
        """Everything that such a folder may hold."""
        return (self.table, self.model, MEASUREMENTS, self.picture, PROGRESS)

    def is_at(self, path: Path) -> bool:
        """Whether a folder is one of these, with nothing else in it."""
        inside = {each.name for each in path.iterdir()} if path.is_dir() else set[str]()
        return self.model in inside and inside <= set(self.files)

    def open(self, path: Path) -> tuple[Saved, MeasurementSet]:
        """The estimate and the noisy rounds it comes from, which agree on whether the noise was real."""
        found = self.kind.load(path / self.model)
        measured = MeasurementSet.load(path / MEASUREMENTS)
        if found.private != measured.private:
            said = {True: "private", False: "not private"}
            raise FileFormatError(
                f"the files of {path} do not agree: {self.model} calls itself {said[found.private]}, and "
                f"{MEASUREMENTS} {said[measured.private]}; they are of different runs, or were changed"
            )
        return found, measured

    def refuse_other_place(self, path: Path, *, overwrite: bool) -> None:
        """Refuse a place where something else lies, before anything is spent."""
        if path.exists() and not (overwrite and self.is_at(path)):
            hint = "or overwrite it on purpose" if self.is_at(path) else "it holds other things"
            raise FileFormatError(f"{path} exists already; choose another name, {hint}")
        if not path.absolute().parent.is_dir():
            raise FileFormatError(f"there is no folder {path.parent}; create it first")

    def publish(
        self,
        estimate: Saved,
        measured: MeasurementSet,
        path: Path,
        *,
        level: float = 0.9,
        pictures: bool = True,
        overwrite: bool = False,
    ) -> Path:
        """Write the folder, and return its path. `level` is that of the intervals in the table and the picture."""
        self.refuse_other_place(path, overwrite=overwrite)
        with folder_in_place_of(path) as building:
            (building / self.table).write_text(self.lines(estimate, level), encoding="utf-8")
            estimate.save(building / self.model)
            measured.save(building / MEASUREMENTS)
            if pictures:
                self.draw(estimate, level, building / self.picture)
                if "trace" in estimate.diagnostics:
                    draw_progress(estimate, building / PROGRESS)
        return path


def six_digits(value: float) -> str:
    """The number as tables have it, and nothing for what is not known."""
    return "" if math.isnan(value) else f"{float(value):.6g}"


def draw_progress(estimate: SavedIterates, path: Path) -> None:
    """Draw the log posterior of each chain against its steps: it should settle, and all chains at one height."""
    alt = altair()
    found = estimate.diagnostics
    stride = int(found["trace_stride"])
    rows = [
        {"chain": f"{number}", "step": stride * place, "log posterior": height}
        for number, trace in enumerate(found["trace"], start=1)
        for place, height in enumerate(trace, start=1)
    ]
    agreement = "the chains have not moved" if found["rhat"] is None else f"R-hat {found['rhat']:.2f}"
    title = alt.TitleParams(
        f"{len(found['trace'])} chains of {found['steps']:,} steps",
        subtitle=[
            f"Accepted: {found['acceptance']:.0%} of the steps; effective sample size "
            f"{found['effective_sample_size']:,.0f}; {agreement}.",
            "Left of the dashed line, burn-in: tuned there, and not used.",
        ],
        anchor="start",
    )
    lines = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=1)
        .encode(
            x=alt.X("step:Q"),
            y=alt.Y("log posterior:Q", scale=alt.Scale(zero=False)),
            color=alt.Color("chain:N", scale=alt.Scale(range=[BLUE, ORANGE, GREEN, PINK])),
            strokeDash=alt.StrokeDash("chain:N"),
        )
    )
    end = alt.Chart(alt.Data(values=[{"step": found["burn_in"]}])).mark_rule(strokeDash=[4, 4], color=GREY)
    chart = alt.layer(lines, end.encode(x="step:Q")).properties(width=520, height=260, title=title)
    finished(chart).save(str(path), scale_factor=2)


# ----------------------------------------------------------------------------------------------------------------------
# What `consilience kmeans` publishes: a folder with clusters, the noisy rounds they come from, and pictures.
#
# centroids.csv          cluster, size and its interval; then each attribute and its interval
# clusters.json          the whole estimate: settings, diagnostics, draws (`ClusterEstimate.load` reads it)
# measurements.parquet   the noisy counts and sums of all rounds, with the privacy statement
# clusters.png           centroids with error bars, where the extra `plots` is installed
# chain.png              the progress of the chains
#
# Centroids are drawn as a map where there are two attributes, and else as points with bars in a panel for each
# attribute. Areas are in proportion to sizes, bars are intervals, and crosses are what the last round alone would give.
# Nothing rests on colour alone.


LARGEST_AREA = 900.0
MOST_ATTRIBUTES = 24
"""More attributes than these would make a picture that nobody can read."""


def draw_clusters(estimate: ClusterEstimate, level: float, path: Path) -> None:
    """Draw the centroids with their intervals; the file's suffix says how (.png or .svg)."""
    alt = altair()
    interval = estimate.interval(level)
    rows = _rows(estimate, interval)
    title = alt.TitleParams(
        _title(estimate),
        subtitle=[_bars(estimate, interval) + ("" if estimate.private else " SIMULATED NOISE: NOT PRIVATE.")],
        anchor="start",
    )
    chart = _map(alt, estimate, rows) if len(estimate.attributes) == 2 else _dots(alt, estimate, rows)
    finished(chart.properties(title=title)).save(str(path), scale_factor=2)


def _title(estimate: ClusterEstimate) -> str:
    size = "" if estimate.no_intervals else f" of about {estimate.total:,.0f} records"
    return f"{len(estimate.centroids)} clusters{size}"


def _bars(estimate: ClusterEstimate, interval: ClusterInterval) -> str:
    """What bars and crosses are."""
    if estimate.no_intervals:
        return "No sizes were measured, and there are no error bars."
    bars = f"Bars: {interval.level:.0%} intervals of the mean of the nearest records, and none within the noise."
    return bars + (" Crosses: the last round alone." if "trace" in estimate.diagnostics else "")


def _rows(estimate: ClusterEstimate, interval: ClusterInterval) -> list[dict[str, Any]]:
    """One row for each cluster and attribute; a cluster within the noise has a bar of no length."""
    low, high = (np.where(np.isnan(ends), estimate.centroids, ends) for ends in interval.centroids)
    sizes = np.ones(len(estimate.sizes)) if estimate.no_intervals else estimate.sizes
    area = LARGEST_AREA / max(float(sizes.max()), len(sizes) if estimate.no_intervals else 1.0)
    return [
        {
            "cluster": str(k + 1),
            "attribute": name,
            "centre": float(estimate.centroids[k, j]),
            "low": float(low[k, j]),
            "high": float(high[k, j]),
            "last": float(estimate.last_iterate[k, j]),
            "area": max(float(sizes[k]) * area, 12.0),
        }
        for k in range(len(estimate.centroids))
        for j, name in enumerate(estimate.attributes)
    ]


def _map(alt: Any, estimate: ClusterEstimate, rows: list[dict[str, Any]]) -> Any:
    across, up = rows[0::2], rows[1::2]
    shown = ("centre", "low", "high", "last")
    pairs = [
        {f"{key} {axis}": row[key] for axis, row in (("x", east), ("y", north)) for key in shown}
        | {"cluster": east["cluster"], "area": east["area"]}
        for east, north in zip(across, up, strict=True)
    ]
    x, y = (
        {"title": name, "scale": alt.Scale(domain=bounds.tolist(), nice=False)}
        for name, bounds in zip(estimate.attributes, estimate.bounds, strict=True)
    )
    base = alt.Chart(alt.Data(values=pairs))
    return alt.layer(
        base.mark_point(shape="cross", size=40, color=GREY, filled=True).encode(
            x=alt.X("last x:Q", **x), y=alt.Y("last y:Q", **y)
        ),
        base.mark_circle(color=BLUE, opacity=0.35).encode(
            x=alt.X("centre x:Q", **x), y=alt.Y("centre y:Q", **y), size=alt.Size("area:Q", scale=None)
        ),
        base.mark_rule(color=BLUE, strokeWidth=1.5).encode(
            x=alt.X("low x:Q", **x), x2="high x:Q", y=alt.Y("centre y:Q", **y)
        ),
        base.mark_rule(color=BLUE, strokeWidth=1.5).encode(
            x=alt.X("centre x:Q", **x), y=alt.Y("low y:Q", **y), y2="high y:Q"
        ),
        base.mark_text(dx=9, dy=-9, fontSize=11).encode(
            x=alt.X("centre x:Q", **x), y=alt.Y("centre y:Q", **y), text="cluster:N"
        ),
    ).properties(width=460, height=460)


def _dots(alt: Any, estimate: ClusterEstimate, rows: list[dict[str, Any]]) -> Any:
    panels = []
    for j, name in enumerate(estimate.attributes[:MOST_ATTRIBUTES]):
        inside = [row for row in rows if row["attribute"] == name]
        scale = alt.Scale(domain=estimate.bounds[j].tolist(), nice=False)
        base = alt.Chart(alt.Data(values=inside)).encode(y=alt.Y("cluster:N", sort=None, title="cluster"))
        panels.append(
            alt.layer(
                base.mark_point(shape="cross", size=40, color=GREY, filled=True).encode(
                    x=alt.X("last:Q", title=name, scale=scale)
                ),
                base.mark_rule(color=BLUE, strokeWidth=1.5).encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
                base.mark_point(color=BLUE, filled=True, size=50).encode(x=alt.X("centre:Q", scale=scale)),
            ).properties(width=220, height=18 * len(inside))
        )
    return alt.vconcat(*(alt.hconcat(*panels[i : i + 3]) for i in range(0, len(panels), 3)))


def centroid_table(estimate: ClusterEstimate, level: float) -> str:
    """The clusters as CSV, a line each, with the ends of their intervals; the first column tells simulated noise.

    A cluster whose size is within the noise has no ends of its centroid.
    """
    interval = estimate.interval(level)
    text = io.StringIO()
    writer = CsvWriter(text)
    names = ["size", *estimate.attributes]
    writer.writerow(
        [
            *heading(private=estimate.private),
            "cluster",
            *(f"{name}{end}" for name in names for end in ("", "_low", "_high")),
        ]
    )
    for k, centroid in enumerate(estimate.centroids):
        numbers: list[float] = [estimate.sizes[k], interval.sizes[0][k], interval.sizes[1][k]]
        for j, value in enumerate(centroid):
            numbers += [value, interval.centroids[0][k, j], interval.centroids[1][k, j]]
        writer.writerow([*cell(private=estimate.private), k + 1, *map(six_digits, numbers)])
    return text.getvalue()


CLUSTERS = IterateFolder(
    ClusterEstimate, "clusters.json", "centroids.csv", "clusters.png", centroid_table, draw_clusters
)


# ----------------------------------------------------------------------------------------------------------------------
# What `consilience logistic` publishes: a folder with coefficients, the noisy rounds they come from, and pictures.
#
# coefficients.csv       each term and its interval, for attributes between −1 and 1, and per unit of the attribute
# regression.json        the whole estimate: settings, diagnostics, draws (`RegressionEstimate.load` reads it)
# measurements.parquet   the noisy counts and gradients of all rounds, with the privacy statement
# coefficients.png       coefficients with error bars, where the extra `plots` is installed
# chain.png              the progress of the chains


def coefficient_table(estimate: RegressionEstimate, level: float) -> str:
    """The coefficients as CSV, a line each, with the ends of their intervals; the first column tells simulated noise.

    The columns of coefficients per unit are empty where points are moved to a ball: there are none. Ends are where
    there are intervals.
    """
    text = io.StringIO()
    writer = CsvWriter(text)
    names = ("coefficient", "per_unit")
    ends = ("", "_low", "_high")
    writer.writerow([*heading(private=estimate.private), "term", *(f"{name}{end}" for name in names for end in ends)])
    numbers = [estimate.coefficients, *estimate.interval(level)]
    if estimate.region == "box":
        numbers += [estimate.in_original_units(), *estimate.interval_in_original_units(level)]
    for place, term in enumerate(estimate.terms):
        row = [six_digits(each[place]) for each in numbers]
        writer.writerow([*cell(private=estimate.private), term, *row, *[""] * (6 - len(row))])
    return text.getvalue()


def draw_coefficients(estimate: RegressionEstimate, level: float, path: Path) -> None:
    """Draw the coefficients with their intervals; the file's suffix says how (.png or .svg)."""
    alt = altair()
    low, high = (np.where(np.isnan(ends), estimate.coefficients, ends) for ends in estimate.interval(level))
    bars = (
        f"Bars: {level:.0%} intervals of the fit to the real records, attributes mapped to −1 and 1. "
        "Crosses: the last round alone."
    )
    rows = [
        {
            "term": term,
            "coefficient": float(estimate.coefficients[place]),
            "low": float(low[place]),
            "high": float(high[place]),
            "last": float(estimate.last_iterate[place]),
        }
        for place, term in enumerate(estimate.terms)
    ]
    title = alt.TitleParams(
        f"What speaks for the upper half of {estimate.label}, about {estimate.records:,.0f} records",
        subtitle=[
            ("Attributes mapped to −1 and 1. There are no error bars." if estimate.no_intervals else bars)
            + ("" if estimate.private else " SIMULATED NOISE: NOT PRIVATE.")
        ],
        anchor="start",
    )
    base = alt.Chart(alt.Data(values=rows)).encode(y=alt.Y("term:N", sort=None, title=None))
    axis: Any = alt.X("coefficient:Q", title="coefficient (log odds)")
    chart = alt.layer(
        alt.Chart(alt.Data(values=[{"zero": 0.0}])).mark_rule(color=GREY, strokeDash=[4, 4]).encode(x="zero:Q"),
        base.mark_point(shape="cross", size=40, color=GREY, filled=True).encode(x="last:Q"),
        base.mark_rule(color=BLUE, strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
        base.mark_point(color=BLUE, filled=True, size=50).encode(x=axis),
    ).properties(width=460, height=24 * len(rows), title=title)
    finished(chart).save(str(path), scale_factor=2)


REGRESSIONS = IterateFolder(
    RegressionEstimate, "regression.json", "coefficients.csv", "coefficients.png", coefficient_table, draw_coefficients
)
