"""What `consilience kmeans` publishes: a folder with clusters, the noisy rounds they come from, and pictures.

    centroids.csv          cluster, size and its interval; then each attribute and its interval
    clusters.json          the whole estimate: settings, diagnostics, draws (`ClusterEstimate.load` reads it)
    measurements.parquet   the noisy counts and sums of all rounds, with the privacy statement
    clusters.png           centroids with error bars, where the extra `plots` is installed
    chain.png              the progress of the chains

The folder is written beside its place and renamed, so that it is there whole or not at all.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from consilience.domain.files import folder_in_place_of
from consilience.errors import FileFormatError
from consilience.estimators.clusters import ClusterEstimate, ClusterInterval
from consilience.measurements import MeasurementSet
from consilience.publication.answers import CsvWriter, cell, heading
from consilience.publication.report_page import BLUE, GREEN, GREY, ORANGE, PINK, altair, finished

# ----------------------------------------------------------------------------------------------------------------------
# Pictures of clusters and of the chain that found them. They need the extra `plots`.
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
        f"{len(estimate.centroids)} clusters of about {estimate.total:,.0f} records",
        subtitle=[
            f"Bars: {interval.level:.0%} intervals of the mean of the nearest records, and none within the noise. "
            "Crosses: the last round alone." + ("" if estimate.private else " SIMULATED NOISE: NOT PRIVATE.")
        ],
        anchor="start",
    )
    chart = _map(alt, estimate, rows) if len(estimate.attributes) == 2 else _dots(alt, estimate, rows)
    finished(chart.properties(title=title)).save(str(path), scale_factor=2)


def draw_progress(estimate: ClusterEstimate, path: Path) -> None:
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


def _rows(estimate: ClusterEstimate, interval: ClusterInterval) -> list[dict[str, Any]]:
    """One row for each cluster and attribute; a cluster within the noise has a bar of no length."""
    low, high = (np.where(np.isnan(ends), estimate.centroids, ends) for ends in interval.centroids)
    area = LARGEST_AREA / max(float(estimate.sizes.max()), 1.0)
    return [
        {
            "cluster": str(k + 1),
            "attribute": name,
            "centre": float(estimate.centroids[k, j]),
            "low": float(low[k, j]),
            "high": float(high[k, j]),
            "last": float(estimate.last_iterate[k, j]),
            "area": max(float(estimate.sizes[k]) * area, 12.0),
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


FILES = frozenset({"centroids.csv", "clusters.json", "measurements.parquet", "clusters.png", "chain.png"})


def is_cluster_folder(path: Path) -> bool:
    """Whether a folder is one of these, with nothing else in it."""
    inside = {each.name for each in path.iterdir()} if path.is_dir() else set[str]()
    return "clusters.json" in inside and inside <= FILES


def open_clusters(path: Path) -> tuple[ClusterEstimate, MeasurementSet]:
    """The clusters of a folder and the noisy rounds they come from, which agree on whether the noise was real."""
    clusters = ClusterEstimate.load(path / "clusters.json")
    measured = MeasurementSet.load(path / "measurements.parquet")
    if clusters.private != measured.private:
        said = {True: "private", False: "not private"}
        raise FileFormatError(
            f"the files of {path} do not agree: clusters.json calls itself {said[clusters.private]}, and "
            f"measurements.parquet {said[measured.private]}; they are of different runs, or were changed"
        )
    return clusters, measured


def refuse_other_place(path: Path, *, overwrite: bool) -> None:
    """Refuse a place where something else lies, before anything is spent."""
    if path.exists() and not (overwrite and is_cluster_folder(path)):
        hint = "or overwrite it on purpose" if is_cluster_folder(path) else "it holds other things"
        raise FileFormatError(f"{path} exists already; choose another name, {hint}")
    if not path.absolute().parent.is_dir():
        raise FileFormatError(f"there is no folder {path.parent}; create it first")


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
    target = Path(path)
    refuse_other_place(target, overwrite=overwrite)
    interval = estimate.interval(level)
    with folder_in_place_of(target) as building:
        (building / "centroids.csv").write_text(centroid_table(estimate, level), encoding="utf-8")
        estimate.save(building / "clusters.json")
        measured.save(building / "measurements.parquet")
        if pictures:
            draw_clusters(estimate, interval, building / "clusters.png")
            draw_progress(estimate, building / "chain.png")
    return target


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
        writer.writerow([*cell(private=estimate.private), k + 1, *map(_number, numbers)])
    return text.getvalue()


def _number(value: float) -> str:
    """Six digits, and nothing for what is not known."""
    return "" if np.isnan(value) else f"{float(value):.6g}"
