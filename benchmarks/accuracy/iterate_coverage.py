"""How often 90 % intervals of cluster centres, cluster sizes and logistic coefficients hold, and how wide they are.

Rounds of `plans.KMeans` and `plans.Logistic`, grids and hybrids with simulated noise, read by `cluster` and `regress`
with their defaults.
What an interval is to hold: of a centre, the mean of the real records nearest to the reported centre; of a size, their
number; of a coefficient, that of the fit to the real records without noise or clipping, with the same ridge.

*Silent* is the share of clusters that are within the noise: no interval of their centre is given, and none counted.
*Width* is the median over intervals, in units in which the declared range has length 2. *Narrowest* is the width that
would have held 90 % if it had been the same for all centres of the row, or all coefficients, around what was reported:
twice the 90 % quantile of the errors, which only hindsight knows. Those of sizes are in shares of the records. A row
is *met* if its centres and its sizes hold.

Constants of clusters were chosen on S1, Adult and the check-ins, marked *tuned*, with seeds 0 to 9: the lumps of a cell
(`estimators.cell_clusters.LUMPS_OF_CELL`) and what is supposed of records at bounds (`BELIEVED` there), by how much a
cluster's records may be more frequent (`iterates.kriging.GROUP_SPREAD`), the lumps of a cluster in rounds
(`estimators.clusters.LUMPS_OF_CLUSTER`), and how the records of a grid lean (`iterates.kriging.leaning_shares`). The
other three sets, and generated ones, judge; the least number of lumps of rounds (`LUMPS`) was chosen before, with Image
among the tuned. The last six generated sets were made after all else; what three of their rows with a grid showed
led to fewer lumps in uneven cells, and no constant was chosen on them. The rows have seeds from 200 on. Constants of
regressions were chosen on all three of their sets, with the seeds 0 to 3.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.regression import source_of
from benchmarks.problems.clusterings import nearest
from benchmarks.problems.labelled_points import LabelledPoints, labelled_points
from benchmarks.problems.points import NamedPoints, awkward_points, published_points, unseen_points
from consilience.estimators.clusters import ClusterEstimate, cluster
from consilience.estimators.iterates import Iterates
from consilience.estimators.logistic import regress
from consilience.iterates.problems import fit_logistic, signed_records
from consilience.kernels.regions import Region, RegionKind, normalised
from consilience.measuring import measure
from consilience.plans.published.clusters import ClusterGrid, HybridClusters
from consilience.plans.rounds import KMeans, Logistic

Row = dict[str, Any]
Array = NDArray[np.float64]

LEVEL = 0.9
LEAST = 0.8
"""The share that must hold in every row."""
FIRST_SEED = 200
RUNS = 10
CLUSTER_CASES: tuple[tuple[RegionKind, float], ...] = (("ball", 0.1), ("ball", 0.5), ("box", 0.5))
PLANS = {"rounds": KMeans, "grid": ClusterGrid, "hybrid": HybridClusters}
REGRESSION_EPSILONS = (0.1, 1.0)
TUNED = ("S1", "Gowalla", "Adult", "generated, ", "lifesci", "adult income")
RIDGE = 1.0


class Outcome(NamedTuple):
    """What one run says of its intervals: which held, how wide they were, and how far off the reported values are."""

    held: NDArray[np.bool_]
    widths: Array
    errors: Array
    sizes_held: NDArray[np.bool_]
    silent: Array
    size_widths: Array
    size_errors: Array
    """In shares of the records."""


def run(quick: bool) -> list[Row]:
    """All sets of points and of labelled points; if quick, one run of S1 and of the generated labels."""
    runs = 1 if quick else RUNS
    rows = []
    for row in _rows(quick, runs):
        row |= {"tuned": "yes" if is_tuned(row["records"]) else "no"}
        holds = min(row["covered"], row.get("sizes covered", 1.0)) >= LEAST
        row |= {"target": f"at least {LEAST:g}", "met": "yes" if holds else "no"}
        rows.append(row)
        print(f"  {row['intervals of']}, {row['records']}, ε = {row['epsilon']:g}: {row['covered']:.2f}", flush=True)
    return rows


def _rows(quick: bool, runs: int) -> Iterator[Row]:
    for problem in [*published_points(), *awkward_points(), *unseen_points()][: 1 if quick else None]:
        for kind in PLANS:
            for region, epsilon in CLUSTER_CASES[1:2] if quick else CLUSTER_CASES:
                yield cluster_row(problem, kind, region, epsilon, runs)
    for name in ("generated",) if quick else ("adult", "lifesci", "generated"):
        labelled = labelled_points(name)
        for epsilon in REGRESSION_EPSILONS[:1] if quick else REGRESSION_EPSILONS:
            outcomes = [regression_outcome(labelled, epsilon, FIRST_SEED + each) for each in range(runs)]
            shown = {"intervals of": "coefficients", "measured by": "rounds", "records": labelled.name}
            shown |= {"region": "box", "epsilon": epsilon}
            yield shown | summary(outcomes, runs)


def cluster_row(problem: NamedPoints, kind: str, region: RegionKind, epsilon: float, runs: int) -> Row:
    """The row of a set of points that were measured in one way."""
    found = [cluster_outcome(problem, region, epsilon, FIRST_SEED + each, kind=kind) for each in range(runs)]
    shown = {"intervals of": "centres", "measured by": kind, "records": problem.name} | {
        "region": region, "epsilon": epsilon
    }  # fmt: skip
    held, widths, errors = (
        np.concatenate([getattr(each, name) for each in found]) for name in ("sizes_held", "size_widths", "size_errors")
    )
    sizes = {"sizes covered": float(held.mean()), "size width": float(np.median(widths))}
    return shown | summary(found, runs) | sizes | {"narrowest for sizes": 2 * float(np.quantile(errors, LEVEL))}


def cluster_outcome(
    problem: NamedPoints,
    region: RegionKind,
    epsilon: float,
    seed: int,
    settings: Iterates | None = None,
    *,
    kind: str = "rounds",
) -> Outcome:
    """One run on a set of points."""
    plan = PLANS[kind](problem.clusters, region=region, seed=seed)
    measured = measure(problem.table(), plan, epsilon=epsilon, simulate=seed)
    found = cluster(measured, replace(settings or Iterates(), seed=seed), clusters=problem.clusters)
    return clusters_held(found, Region(region, problem.dimensions).project(normalised(problem.points, found.bounds)))


def clusters_held(found: ClusterEstimate, points: Array) -> Outcome:
    """Whether the intervals hold the mean and the number of the points nearest to each reported centroid."""
    interval = found.interval(LEVEL)
    centroids = normalised(found.centroids, found.bounds)
    labels = nearest(points, centroids)
    counts = np.bincount(labels, minlength=len(centroids))
    sums = np.array([np.bincount(labels, column, len(centroids)) for column in points.T]).T
    known = interval.determined & (counts > 0)
    low, high = (normalised(end, found.bounds)[known] for end in interval.centroids)
    means = sums[known] / counts[known, None]
    return Outcome(
        held=((low <= means) & (means <= high)).ravel(),
        widths=(high - low).ravel(),
        errors=np.abs(centroids[known] - means).ravel(),
        sizes_held=(interval.sizes[0] <= counts) & (counts <= interval.sizes[1]),
        silent=np.where(interval.determined, 0.0, 1.0),
        size_widths=(interval.sizes[1] - interval.sizes[0]) / len(points),
        size_errors=np.abs(found.sizes - counts) / len(points),
    )


def regression_outcome(problem: LabelledPoints, epsilon: float, seed: int, settings: Iterates | None = None) -> Outcome:
    """One run on labelled points."""
    rows = problem.training_rows()
    signed = signed_records(rows[:, :-1], rows[:, -1])
    truth = fit_logistic(signed, ridge=RIDGE / len(rows)).coefficients
    measured = measure(source_of(problem), Logistic("label"), epsilon=epsilon, simulate=seed)
    found = regress(measured, replace(settings or Iterates(), seed=seed), ridge=RIDGE)
    low, high = found.interval(LEVEL)
    none = np.zeros(0)
    held, errors = (low <= truth) & (truth <= high), np.abs(found.coefficients - truth)
    return Outcome(held, high - low, errors, none.astype(np.bool_), none, none, none)


def summary(found: list[Outcome], runs: int) -> Row:
    """The figures of a row, from all its runs together."""
    held, widths, errors, silent = (
        np.concatenate([getattr(each, name) for each in found]) for name in ("held", "widths", "errors", "silent")
    )
    return {
        "runs": runs,
        "number": len(held),
        "covered": float(held.mean()) if len(held) else 1.0,
        "silent": float(silent.mean()) if len(silent) else 0.0,
        "width": float(np.median(widths)) if len(held) else 0.0,
        "narrowest": 2 * float(np.quantile(errors, LEVEL)) if len(held) else 0.0,
    }


def is_tuned(records: str) -> bool:
    """Whether constants were chosen on these records."""
    return records.startswith(TUNED)
