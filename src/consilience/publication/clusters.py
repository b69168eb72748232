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

import numpy as np

from consilience.domain.files import folder_in_place_of
from consilience.errors import FileFormatError
from consilience.estimators.clusters import ClusterEstimate
from consilience.measurements import MeasurementSet
from consilience.publication.answers import CsvWriter
from consilience.publication.cluster_pictures import draw_clusters, draw_progress
from consilience.publication.simulated_tables import cell, heading

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
