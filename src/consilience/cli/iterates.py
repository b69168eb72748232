"""`consilience kmeans` and `logistic`: points or earlier rounds in, a folder out, nothing spent in between."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, note, print_json, print_table, progress, tell_chains
from consilience.cli.release import before_charge, show_preview

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.estimators.clusters import ClusterEstimate, ClusterInterval
    from consilience.estimators.iterates import SavedIterates
    from consilience.estimators.logistic import RegressionEstimate
    from consilience.measurements import MeasurementSet
    from consilience.privacy.measure import Plan
    from consilience.publication.iterate_folders import IterateFolder


@dataclass(frozen=True)
class IterateOptions:
    """What both verbs ask about the points, the budget, the chains and the folder."""

    data: options.Points = None
    epsilon: options.Epsilon = None
    delta: options.Delta = None
    rho: options.Rho = None
    bounds: options.Bounds = None
    domain: options.PointsDomainFile = None
    out: options.NewFolder = None
    measurements: options.EarlierRounds = None
    region: options.RegionOfPoints = "box"
    level: options.BarLevel = 0.9
    steps: options.ChainSteps = None
    chains: options.Chains = None
    overwrite: options.OverwriteFolder = False
    pictures: options.Pictures = True
    dry_run: options.DryRunOnly = False
    json: options.AsJson = False

    def publish(
        self, publish: Callable[..., Any], charge: options.Charged, plan: Callable[[], "Plan"], **asked: object
    ) -> Any:
        """What `publish` found and wrote; None where only the price was asked for.

        `asked` are the options of the verb's own that say what to measure.
        """
        from consilience.measurements import MeasurementSet

        listen()
        amount = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        before: dict[str, Any] = {}
        if self.measurements is not None:
            options.refuse_both(data=self.data, **asked, bounds=self.bounds, domain=self.domain, **amount)
            request = None
        else:
            declared = charge.written_as(options.points_domain(self.data, self.bounds, self.domain))
            suggestion = None if self.domain is None else charge.suggestion(self.domain, str(self.data), declared)
            request = charge.asked(data=self.data, domain=declared, plan=plan(), **amount)
            before["before_charge"] = before_charge(declared, suggestion)
        if self.dry_run:
            if request is None:
                raise typer.BadParameter("rounds that were measured before cost nothing", param_hint="--dry-run")
            show_preview(request.priced, json=self.json)
            return None
        if self.out is None:
            raise typer.BadParameter("name the folder to write, or use --dry-run", param_hint="--out")
        if request is None:
            note("the rounds were measured before: nothing is spent")
        same = ("level", "steps", "chains", "pictures", "overwrite")
        with progress() as show:
            return publish(
                MeasurementSet.load(str(self.measurements)) if request is None else request,
                self.out,
                **{name: getattr(self, name) for name in same},
                **before,
                progress=show,
            )

    @property
    def folder(self) -> Path:
        """The folder that was written."""
        assert self.out is not None
        return self.out

    def tell(
        self,
        found: "SavedIterates",
        written: "IterateFolder[Any]",
        summarise: "Callable[[Any, MeasurementSet, IterateOptions], dict[str, Any]]",
        show: Callable[[Any, float], None],
    ) -> None:
        """Print what was found, what it cost, and the files of the folder, those of them that are there."""
        _, measured = written.open(self.folder)
        if self.json:
            print_json(summarise(found, measured, self))
            return
        show(found, self.level)
        echo(measured.privacy.describe())
        files = (name for name in written.files if (self.folder / name).exists())
        echo(f"wrote {self.folder}: {', '.join(files)}")


def names_of(text: str | None) -> list[str] | None:
    """The attributes that were typed as a,b,c; None for all."""
    return None if text is None else [name.strip() for name in text.split(",")]


def summary(found: "SavedIterates", measured: "MeasurementSet") -> dict[str, Any]:
    """What both verbs print as JSON about how the result came about."""
    return {
        "method": found.method["name"],
        "no_intervals": found.no_intervals,
        "private": found.private,
        "privacy": measured.privacy.to_json(),
        "diagnostics": {key: value for key, value in found.diagnostics.items() if key not in ("trace", "trace_stride")},
    }


def or_none(values: "NDArray[np.float64]") -> list[Any]:
    """The values for JSON, which has no NaN."""
    return [or_none(row) if row.ndim else (None if row != row else float(row)) for row in values]


# ----------------------------------------------------------------------------------------------------------------------
# `consilience kmeans`: clusters of confidential points, from noisy counts of cells and sums of clusters.


KMEANS_EXAMPLE = (
    "Example: consilience kmeans points.csv --clusters 5 --epsilon 0.5 --bounds x=0:100,y=-50:50 --out clusters"
)
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
    from consilience.publication.iterate_folders import CLUSTERS

    def plan() -> "Plan":
        from consilience.plans.clusters import cluster_plan

        if clusters is None:
            raise typer.BadParameter("say how many clusters to look for", param_hint="--clusters")
        region: Any = iterates.region
        return cluster_plan(method, clusters, names_of(attributes), rounds=rounds, region=region, seed=seed)

    found = iterates.publish(partial(cluster_points, seed=seed), charge, plan, clusters=clusters)
    if found is not None:
        iterates.tell(found, CLUSTERS, _clusters_summary, _show_clusters)


def _clusters_summary(found: "ClusterEstimate", measured: "MeasurementSet", iterates: IterateOptions) -> dict[str, Any]:
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
        **summary(found, measured),
    }


def _show_clusters(found: "ClusterEstimate", level: float) -> None:
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


# ----------------------------------------------------------------------------------------------------------------------
# `consilience logistic`: a logistic regression of confidential records, from all rounds of a noisy one.


LOGISTIC_EXAMPLE = (
    "Example: consilience logistic patients.csv --domain patients.domain.toml --label cured --features age,dose "
    "--epsilon 1 --out regression"
)


@options.charged
def logistic_command(
    *,
    label: Annotated[
        str | None, typer.Option("--label", help="What to explain: the upper half of its bounds against the lower.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="What explains it, as a,b,c; all other continuous attributes else.")
    ] = None,
    iterates: IterateOptions,
    method: Annotated[
        str, typer.Option("--method", help="rounds of noisy gradients, or privgene: no error bars.")
    ] = "rounds",
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of noisy gradients; they share the budget.")] = 20,
    step_size: Annotated[
        float, typer.Option("--step-size", help="How far a round moves along its mean gradient.")
    ] = 4.0,
    ridge: Annotated[float, typer.Option("--ridge", help="The weight of the squared coefficients, halved.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="A public seed: the chains, or the candidates of privgene.")] = 0,
    charge: options.Charged,
) -> None:
    """Explain a label of confidential records: coefficients with error bars. Spends budget, which the ledger holds."""
    from consilience.iterative import regress_records
    from consilience.publication.iterate_folders import REGRESSIONS

    def plan() -> "Plan":
        from consilience.plans.published.privgene import regression_plan

        if label is None:
            raise typer.BadParameter("name the attribute to explain", param_hint="--label")
        chosen: dict[str, Any] = {"region": iterates.region, "rounds": rounds, "step": step_size, "seed": seed}
        return regression_plan(method, label, names_of(features), **chosen)

    publish = partial(regress_records, ridge=ridge, seed=seed)
    found = iterates.publish(publish, charge, plan, label=label, features=features)
    if found is not None:
        iterates.tell(found, REGRESSIONS, _regression_summary, _show_coefficients)


def _regression_summary(
    found: "RegressionEstimate", measured: "MeasurementSet", iterates: IterateOptions
) -> dict[str, Any]:
    low, high = found.interval(iterates.level)
    per_unit = {}
    if found.region == "box":
        least, most = found.interval_in_original_units(iterates.level)
        per_unit = {
            "per_unit": found.in_original_units().tolist(),
            "per_unit_low": or_none(least),
            "per_unit_high": or_none(most),
        }
    return {
        "folder": str(iterates.folder),
        "label": found.label,
        "terms": list(found.terms),
        "level": iterates.level,
        "coefficients": found.coefficients.tolist(),
        "low": or_none(low),
        "high": or_none(high),
        **per_unit,
        "records": found.records,
        **summary(found, measured),
    }


def _show_coefficients(found: "RegressionEstimate", level: float) -> None:
    """The coefficients for attributes between −1 and 1, and per unit where there are such."""
    columns = [(found.coefficients, found.interval(level))]
    header = ["term", "coefficient", f"{level:.0%}"]
    if found.region == "box":
        columns.append((found.in_original_units(), found.interval_in_original_units(level)))
        header += ["per unit", f"{level:.0%}"]
    rows = [
        [term, *(text for values, (low, high) in columns for text in _cells(values[i], low[i], high[i]))]
        for i, term in enumerate(found.terms)
    ]
    print_table(header, rows, numeric=len(header) - 1)
    echo(
        f"log odds of the upper half of {found.label} among about {found.records:,.0f} records; "
        "`coefficient` is for attributes whose bounds are mapped to -1 and 1"
    )
    if found.no_intervals:
        note(found.no_intervals)
        return
    tell_chains(found.diagnostics, better="coefficients", many="attributes")


def _cells(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{value:.4g}", "—" if low != low else f"{low:.4g} – {high:.4g}"
