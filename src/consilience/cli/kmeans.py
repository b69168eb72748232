"""`consilience kmeans`: clusters of confidential points, from noisy counts of cells and sums of clusters."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli import options
from consilience.cli.console import echo, note, print_json, print_table, tell_chains
from consilience.cli.iterates import IterateOptions, names_of, or_none, summary, wrote

if TYPE_CHECKING:
    from consilience.estimators.clusters import ClusterEstimate, ClusterInterval
    from consilience.measurements import MeasurementSet
    from consilience.privacy.measure import Plan

EXAMPLE = "Example: consilience kmeans points.csv --clusters 5 --epsilon 0.5 --bounds x=0:100,y=-50:50 --out clusters"
MOST_SHOWN = 6
"""More attributes than these are left to the files."""
MOST_DIGITS = 1000


@options.charged
def kmeans_command(
    *,
    clusters: Annotated[int | None, typer.Option("--clusters", help="How many clusters to look for.")] = None,
    iterates: IterateOptions,
    attributes: Annotated[
        str | None, typer.Option("--attributes", help="With --domain: which to cluster by; all continuous ones else.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="rounds of k-means, grid, hybrid, gupt, privgene, or auto (default): what suits records and budget.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="Rounds of noisy k-means, where these are taken; they share the budget.")
    ] = 5,
    seed: Annotated[int, typer.Option("--seed", help="A public seed: the first centroids, and the chains.")] = 0,
    charge: options.Charged,
) -> None:
    """Cluster confidential points: centroids and sizes with error bars. Spends budget, which the ledger holds."""
    from consilience.iterative import cluster_points

    def plan() -> "Plan":
        from consilience.plans.clusters import cluster_plan

        if clusters is None:
            raise typer.BadParameter("say how many clusters to look for", param_hint="--clusters")
        region: Any = iterates.region
        return cluster_plan(method, clusters, names_of(attributes), rounds=rounds, region=region, seed=seed)

    found = iterates.publish(partial(cluster_points, seed=seed), charge, plan, clusters=clusters)
    if found is not None:
        _tell(found, iterates)


def _tell(found: "ClusterEstimate", iterates: IterateOptions) -> None:
    from consilience.publication.clusters import CLUSTERS

    _, measured = CLUSTERS.open(iterates.folder)
    if iterates.json:
        print_json(_summary(found, measured, iterates))
        return
    _show(found, iterates.level)
    echo(measured.privacy.describe())
    files = ("centroids.csv", "clusters.json", "measurements.parquet", "clusters.png", "chain.png")
    echo(wrote(iterates.folder, *files))


def _summary(found: "ClusterEstimate", measured: "MeasurementSet", iterates: IterateOptions) -> dict[str, Any]:
    interval = found.interval(iterates.level)
    return {
        "folder": str(iterates.folder),
        "attributes": list(found.attributes),
        "level": iterates.level,
        "centroids": found.centroids.tolist(),
        "determined": interval.determined.tolist(),
        "centroids_low": or_none(interval.centroids[0]),
        "centroids_high": or_none(interval.centroids[1]),
        "sizes": or_none(found.sizes),
        "sizes_low": or_none(interval.sizes[0]),
        "sizes_high": or_none(interval.sizes[1]),
        "intervals_of": found.intervals_of,
        **summary(found, measured),
    }


def _show(found: "ClusterEstimate", level: float) -> None:
    interval = found.interval(level)

    def bar(low: float, high: float) -> str:
        return "—" if low != low else f"{_number(low)} – {_number(high)}"

    names = found.attributes[:MOST_SHOWN]
    rows = []
    for k, centroid in enumerate(found.centroids):
        row = [
            str(k + 1),
            f"{found.sizes[k]:,.0f}" if found.sized else "—",
            bar(interval.sizes[0][k], interval.sizes[1][k]),
        ]
        for j in range(len(names)):
            row += [_number(centroid[j]), bar(interval.centroids[0][k, j], interval.centroids[1][k, j])]
        rows.append(row)
    percent = f"{level:.0%}"
    header = ["cluster", "size", percent]
    for name in names:
        header += [name, percent]
    print_table(header, rows, numeric=len(header) - 1)
    if len(found.attributes) > MOST_SHOWN:
        echo(f"{len(found.attributes) - MOST_SHOWN} more attributes are in centroids.csv")
    _say_how_it_went(found, interval)


def _number(value: float) -> str:
    """Four digits, and thousands apart from each other; a dash for what is not known."""
    if value != value:
        return "—"
    return f"{value:,.0f}" if abs(value) >= MOST_DIGITS else f"{value:.4g}"


def _say_how_it_went(found: "ClusterEstimate", interval: "ClusterInterval") -> None:
    if found.no_intervals:
        note(found.no_intervals)
        return
    if found.intervals_of:
        note(found.intervals_of)
    lost = [str(k + 1) for k, known in enumerate(interval.determined) if not known]
    if lost:
        note(
            f"within the noise: cluster {', '.join(lost)}. It may have no records, and nothing can be said of where "
            "they are; ask for fewer clusters, or spend more"
        )
    if "rhat" not in found.diagnostics:
        return
    tell_chains(found.diagnostics, better="centroids", many="clusters and attributes")
