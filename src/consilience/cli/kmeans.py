"""`consilience kmeans`: clusters of confidential points, from noisy counts of cells and sums of clusters."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, note, print_json, print_table, progress, tell_chains
from consilience.cli.measure import before_charge, show_preview

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.estimators.clusters import ClusterEstimate, ClusterInterval
    from consilience.measurements import MeasurementSet
    from consilience.privacy.measure import Plan

EXAMPLE = "Example: consilience kmeans points.csv --clusters 5 --epsilon 0.5 --bounds x=0:100,y=-50:50 --out clusters"
MOST_SHOWN = 6
"""More attributes than these are left to the files."""
MOST_DIGITS = 1000


@options.charged
def kmeans_command(
    data: options.Points = None,
    clusters: Annotated[int | None, typer.Option("--clusters", help="How many clusters to look for.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    bounds: options.Bounds = None,
    domain: options.PointsDomainFile = None,
    attributes: Annotated[
        str | None, typer.Option("--attributes", help="With --domain: which to cluster by; all continuous ones else.")
    ] = None,
    out: options.NewFolder = None,
    measurements: options.EarlierRounds = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="rounds of k-means, grid, hybrid, gupt, or auto, the default: what suits records and budget.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="Rounds of noisy k-means, where these are taken; they share the budget.")
    ] = 5,
    region: options.RegionOfPoints = "box",
    level: options.BarLevel = 0.9,
    steps: options.ChainSteps = None,
    chains: options.Chains = None,
    seed: Annotated[int, typer.Option("--seed", help="A public seed: the first centroids, and the chains.")] = 0,
    *,
    charge: options.Charged,
    overwrite: options.OverwriteFolder = False,
    pictures: options.Pictures = True,
    dry_run: options.DryRunOnly = False,
    json: options.AsJson = False,
) -> None:
    """Cluster confidential points: centroids and sizes with error bars. Spends budget, which the ledger holds."""
    from consilience.iterative import cluster_points
    from consilience.measurements import MeasurementSet

    listen()
    declared, suggestion = None, None
    amount = {"epsilon": epsilon, "delta": delta, "rho": rho}
    if measurements is not None:
        options.refuse_both(
            data=data, clusters=clusters, bounds=bounds, domain=domain, epsilon=epsilon, delta=delta, rho=rho
        )
        asked = None
    else:
        declared = charge.written_as(options.points_domain(data, bounds, domain))
        if domain is not None:
            suggestion = charge.suggestion(domain, str(data), declared)
        plan = _plan(method, clusters, attributes, rounds, region, seed)
        asked = charge.asked(data=data, domain=declared, plan=plan, **amount)
    if dry_run:
        if asked is None:
            raise typer.BadParameter("rounds that were measured before cost nothing", param_hint="--dry-run")
        show_preview(asked.priced, json=json)
        return
    if out is None:
        raise typer.BadParameter("name the folder to write, or use --dry-run", param_hint="--out")
    if asked is None:
        note("the rounds were measured before: nothing is spent")
    with progress() as show:
        found = cluster_points(
            MeasurementSet.load(str(measurements)) if asked is None else asked,
            out,
            level=level,
            steps=steps,
            chains=chains,
            seed=seed,
            pictures=pictures,
            overwrite=overwrite,
            before_charge=None if declared is None else before_charge(declared, suggestion),
            progress=show,
        )
    _tell(found, out, level, json=json)


def _plan(
    method: str | None, clusters: int | None, attributes: str | None, rounds: int, region: str, seed: int
) -> "Plan":
    from consilience.plans.clusters import cluster_plan

    if clusters is None:
        raise typer.BadParameter("say how many clusters to look for", param_hint="--clusters")
    names = None if attributes is None else [name.strip() for name in attributes.split(",")]
    kind: Any = region
    return cluster_plan(method, clusters, names, rounds=rounds, region=kind, seed=seed)


def _tell(found: "ClusterEstimate", out: Path, level: float, *, json: bool) -> None:
    from consilience.publication.clusters import CLUSTERS

    _, measured = CLUSTERS.open(out)
    if json:
        print_json(_summary(found, measured, out, level))
        return
    _show(found, level)
    echo(measured.privacy.describe())
    drawn = "".join(f", {name}" for name in ("clusters.png", "chain.png") if (out / name).exists())
    echo(f"wrote {out}: centroids.csv, clusters.json, measurements.parquet{drawn}")


def _summary(found: "ClusterEstimate", measured: "MeasurementSet", out: Path, level: float) -> dict[str, Any]:
    interval = found.interval(level)
    shown = {key: value for key, value in found.diagnostics.items() if key not in ("trace", "trace_stride")}
    return {
        "folder": str(out),
        "attributes": list(found.attributes),
        "level": level,
        "centroids": found.centroids.tolist(),
        "determined": interval.determined.tolist(),
        "centroids_low": _or_none(interval.centroids[0]),
        "centroids_high": _or_none(interval.centroids[1]),
        "sizes": _or_none(found.sizes),
        "sizes_low": _or_none(interval.sizes[0]),
        "sizes_high": _or_none(interval.sizes[1]),
        "method": found.method["name"],
        "no_intervals": found.no_intervals,
        "private": found.private,
        "privacy": measured.privacy.to_json(),
        "diagnostics": shown,
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
            "—" if found.no_intervals else f"{found.sizes[k]:,.0f}",
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


def _or_none(values: "NDArray[np.float64]") -> list[Any]:
    """The values for JSON, which has no NaN."""
    return [_or_none(row) if row.ndim else (None if row != row else float(row)) for row in values]


def _number(value: float) -> str:
    """Four digits, and thousands apart from each other; a dash for what is not known."""
    if value != value:
        return "—"
    return f"{value:,.0f}" if abs(value) >= MOST_DIGITS else f"{value:.4g}"


def _say_how_it_went(found: "ClusterEstimate", interval: "ClusterInterval") -> None:
    if found.no_intervals:
        note(found.no_intervals)
        return
    lost = [str(k + 1) for k, known in enumerate(interval.determined) if not known]
    if lost:
        note(
            f"within the noise: cluster {', '.join(lost)}. It may have no records, and nothing can be said of where "
            "they are; ask for fewer clusters, or spend more"
        )
    if "rhat" not in found.diagnostics:
        return
    tell_chains(found.diagnostics, better="centroids", many="clusters and attributes")
