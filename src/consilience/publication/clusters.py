"""What `consilience kmeans` publishes: a folder with clusters, the noisy rounds they come from, and pictures.

centroids.csv          cluster, size and its interval; then each attribute and its interval
clusters.json          the whole estimate: settings, diagnostics, draws (`ClusterEstimate.load` reads it)
measurements.parquet   the noisy counts and sums of all rounds, with the privacy statement
clusters.png           centroids with error bars, where the extra `plots` is installed
chain.png              the progress of the chains
"""

import io
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from consilience.estimators.clusters import ClusterEstimate, ClusterInterval
from consilience.measurements import MeasurementSet
from consilience.publication.answers import CsvWriter, cell, heading
from consilience.publication.iterate_folders import IterateFolder, six_digits
from consilience.publication.report_page import BLUE, GREY, altair, finished

# ----------------------------------------------------------------------------------------------------------------------
# The picture of clusters, which needs the extra `plots`.
#
# Centroids are drawn as a map where there are two attributes, and else as points with bars in a panel for each
# attribute. Areas are in proportion to sizes, bars are intervals, and crosses are what the last round alone would give.
# Nothing rests on colour alone.


LARGEST_AREA = 900.0
MOST_ATTRIBUTES = 24
"""More attributes than these would make a picture that nobody can read."""


def draw_clusters(estimate: ClusterEstimate, interval: ClusterInterval, path: Path) -> None:
    """Draw the centroids with their intervals; the file's suffix says how (.png or .svg)."""
    alt = altair()
    rows = _rows(estimate, interval)
    title = alt.TitleParams(
        _title(estimate),
        subtitle=[_bars(estimate, interval) + ("" if estimate.private else " SIMULATED NOISE: NOT PRIVATE.")],
        anchor="start",
    )
    chart = _map(alt, estimate, rows) if len(estimate.attributes) == 2 else _dots(alt, estimate, rows)
    finished(chart.properties(title=title)).save(str(path), scale_factor=2)


def _title(estimate: ClusterEstimate) -> str:
    size = f" of about {estimate.total:,.0f} records" if estimate.sized else ""
    return f"{len(estimate.centroids)} clusters{size}"


def _bars(estimate: ClusterEstimate, interval: ClusterInterval) -> str:
    """What bars and crosses are."""
    if estimate.no_intervals:
        return "No sizes were measured, and there are no error bars."
    if estimate.intervals_of:
        return f"Bars: {interval.level:.0%} intervals of the average of the blocks' centroids without noise."
    bars = f"Bars: {interval.level:.0%} intervals of the mean of the nearest records, and none within the noise."
    return bars + (" Crosses: the last round alone." if "trace" in estimate.diagnostics else "")


def _rows(estimate: ClusterEstimate, interval: ClusterInterval) -> list[dict[str, Any]]:
    """One row for each cluster and attribute; a cluster within the noise has a bar of no length."""
    low, high = (np.where(np.isnan(ends), estimate.centroids, ends) for ends in interval.centroids)
    sizes = estimate.sizes if estimate.sized else np.ones(len(estimate.sizes))
    area = LARGEST_AREA / max(float(sizes.max()), 1.0 if estimate.sized else len(sizes))
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


# ----------------------------------------------------------------------------------------------------------------------
# What `consilience kmeans` publishes: a folder with clusters, the noisy rounds they come from, and pictures.


CLUSTERS = IterateFolder(ClusterEstimate, model="clusters.json", table="centroids.csv", picture="clusters.png")


def publish_clusters(
    estimate: ClusterEstimate,
    measured: MeasurementSet,
    path: str | os.PathLike[str],
    *,
    level: float = 0.9,
    pictures: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the folder, and return its path. `level` is that of the intervals in the table and the picture."""
    interval = estimate.interval(level)
    return CLUSTERS.write(
        estimate,
        measured,
        Path(path),
        table=centroid_table(estimate, level),
        draw=partial(draw_clusters, estimate, interval) if pictures else None,
        overwrite=overwrite,
    )


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
