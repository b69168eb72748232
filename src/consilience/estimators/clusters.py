"""`cluster`: centroids from all rounds of noisy k-means, with sizes and error bars (Lee and Kifer 2016).

The chain's draws are datasets D that make all rounds likely. The reported centroids minimise the expected
within-cluster sum of squares E[WCSS(c, D) | released]: noise-free k-means, with restarts, on all draws put together.

*Intervals.* That of a centroid is about the mean of the real records that are nearest to the reported centroid, and
that of a size about their number. Both are sums over the records of a public cell, and are drawn given all rounds and
the law of their noise (iterates/kriging.py). Where the interval of a size reaches 0, the cluster may be
nothing but noise: no interval of its centroid is given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import ConsilienceError, MeasurementError
from consilience.estimators.base import Progress, check_level, check_whole
from consilience.estimators.cell_clusters import Reading, cell_means, possible_sizes, read_blocks, read_cells
from consilience.estimators.iterates import Iterates, Observed, SavedIterates, diagnostics, finite_or_none
from consilience.estimators.published.privgene import NO_BARS_OF_CHOICE, ChosenModel
from consilience.iterates.chain import ChainRuns, Simulated, effective_sample_size, split_rhat
from consilience.iterates.chain_kernels import KMEANS
from consilience.iterates.clustering import lloyd
from consilience.iterates.kriging import Kriging, statistics_of
from consilience.iterates.problems import NoisyRounds, cluster_problem
from consilience.kernels.regions import Region, in_original_units
from consilience.kernels.rng import generator
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]

ANYWHERE_SHARE = 0.05
LUMPS, LUMPS_OF_CLUSTER = 16.0, 3.0
"""Of 12, 16, 24, 32 and 48 lumps 48 were right for the 15 clusters of S1, whose 90 % intervals held 89 to 93 % with
them and 98 to 100 % with 16, and 16 for the five of Adult, whose intervals held 72 to 82 % with 48 (both regions,
ε = 0.1 and 0.5, seeds 0 to 4): as many for a cluster as for the cell of a grid, and never fewer in all than 16."""
PRIOR_POWER = 0.25
"""Of 0, 1/4, 1/2 and 1 the one with the least cost over S1, Adult and two sets of places."""


@dataclass(frozen=True, eq=False)
class ClusterInterval:
    """Lower and upper ends, in the shapes of what they bound.

    Ends of a centroid are NaN where the cluster's size is within the noise: nothing can be said of where it is.
    """

    level: float
    centroids: tuple[Array, Array]
    sizes: tuple[Array, Array]

    @property
    def determined(self) -> NDArray[np.bool_]:
        """For each cluster whether its centroid has an interval: its size is above the noise."""
        return np.asarray(np.isfinite(self.centroids[0]).all(axis=1))


@dataclass(frozen=True, eq=False)
class ClusterEstimate(SavedIterates):
    """Centroids in original units, a row each, and how many records each cluster has."""

    FORMAT = "clusters"
    ARRAYS = MappingProxyType(
        {
            "bounds": ("attributes", "ends"),
            "centroids": ("clusters", "attributes"),
            "sizes": ("clusters",),
            "last_iterate": ("clusters", "attributes"),
            "drawn_centroids": ("draws", "clusters", "attributes"),
            "drawn_sizes": ("draws", "clusters"),
        }
    )

    UNKNOWN = ("sizes", "drawn_centroids", "drawn_sizes")

    bounds: Array
    """The declared bounds, a row of two ends for each attribute."""
    centroids: Array
    sizes: Array
    """NaN where they were not measured, as in blocks."""
    last_iterate: Array
    """The centroids of the last round: what DP-KMEANS alone gives. Without rounds, the centroids."""
    drawn_centroids: Array
    """Draws of the mean of the records nearest to each centroid, with axes for draws, clusters and attributes."""
    drawn_sizes: Array

    @property
    def intervals_of(self) -> str:
        """What intervals are about, if not the records nearest to a centroid; empty where they are."""
        return str(self.method.get("intervals_of", ""))

    @property
    def sized(self) -> bool:
        """Whether sizes were measured."""
        return not np.isnan(self.sizes).any()

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.sizes.sum())

    def interval(self, level: float = 0.9) -> ClusterInterval:
        """Where the mean and the number of the records nearest to each centroid lie with this probability.

        An interval always holds the reported value, which lies beyond what the rounds say where the chains got stuck.
        All ends are NaN where there are `no_intervals`.
        """
        check_level(level)
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = np.quantile(self.drawn_centroids, ends, axis=0)
        least, most = np.maximum(np.quantile(self.drawn_sizes, ends, axis=0), 0.0)
        least, most = np.minimum(least, self.sizes), np.maximum(most, self.sizes)
        known = ~(least <= 0)[:, None]
        low = np.where(known, np.minimum(low, self.centroids), np.nan)
        high = np.where(known, np.maximum(high, self.centroids), np.nan)
        return ClusterInterval(float(level), (low, high), (least, most))


def cluster(
    measured: MeasurementSet,
    settings: Iterates | None = None,
    *,
    clusters: int | None = None,
    progress: Progress | None = None,
) -> ClusterEstimate:
    """The clusters that all measurements of a run together speak for.

    Rounds of `plans.KMeans` are read by chains. Counts of the cells of a grid, such a grid and rounds together, and
    centroids of blocks (`plans.ClusterGrid`, `HybridClusters`, `SampleAndAggregate`) need none, nor do the centroids
    that `plans.PrivGene` chose. How many clusters there are follows from what was measured; a grid alone does not say,
    so that it is what its plan was asked for, or `clusters`. `method` of the result says what was read, `no_intervals`
    why there are none, and `intervals_of` that those of blocks are about the average of the blocks' centroids.

    Where no noisy count is left after correction (every one negative, say), there is nothing to go by but the noisy
    values themselves: the result is defined, and its intervals are wide.
    """
    settings = settings or Iterates()
    chosen = ChosenModel.of(measured, "clusters")
    if chosen is not None:
        reading = Reading.without_intervals(chosen.found, NO_BARS_OF_CHOICE)
        return _as_read("privgene", reading, chosen.attributes, chosen.bounds, private=measured.private)
    cells = [each for each in measured.measurements if _algorithm(each) == "cell-grid"]
    others = tuple(each for each in measured.measurements if _algorithm(each) != "cell-grid")
    is_grid = any(each.values.size > 1 for each in cells)
    if is_grid or any(_algorithm(each) == "sample-and-aggregate" for each in others):
        try:
            return _without_chains(measured, cells if is_grid else (), others, settings, clusters)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise MeasurementError(f"the measurements describe no clustering of points: {error!r}") from None
    return _of_rounds(replace(measured, measurements=others) if cells else measured, settings, progress)


def _algorithm(measurement: Measurement) -> str | None:
    return None if measurement.statistic is None else measurement.statistic.get("algorithm")


def _without_chains(
    measured: MeasurementSet,
    cells: Sequence[Measurement],
    others: tuple[Measurement, ...],
    settings: Iterates,
    clusters: int | None,
) -> ClusterEstimate:
    """Clusters of a grid, of a grid and a round, or of blocks."""
    plan = measured.provenance.get("plan")
    plan = plan if isinstance(plan, Mapping) else {}
    options: dict[str, Any] = {"seed": settings.seed, "negatives": plan.get("negatives", "project")}
    last = None
    if not cells:
        name, found = "blocks", read_blocks(measured, generator(settings.seed))
    elif others:
        rounds = noisy_rounds(Observed.of(replace(measured, measurements=others)))
        last = rounds.last_iterate
        name, found = "grid and round", read_cells(cells, rounds, measured.domain, len(last), **options)
    else:
        asked = clusters if clusters is not None else plan.get("clusters")
        if asked is None:
            raise MeasurementError("a grid does not say how many clusters to look for; say so with clusters=")
        check_whole(asked, "the number of clusters")
        options["seed"] = plan.get("seed", settings.seed)
        check_whole(options["seed"], "the seed", 0)
        name, found = "grid", read_cells(cells, None, measured.domain, asked, **options)
    about = (cells[-1] if cells else others[-1]).extra["statistic"]
    return _as_read(name, found, tuple(about["attributes"]), about["bounds"], last=last, private=measured.private)


def _as_read(
    name: str, found: Reading, attributes: tuple[str, ...], bounds: Any, *, private: bool, last: Array | None = None
) -> ClusterEstimate:
    """What was read without chains, in original units."""
    centroids = in_original_units(found.centroids, bounds)
    return ClusterEstimate(
        attributes=attributes,
        bounds=np.array(bounds, dtype=np.float64),
        centroids=centroids,
        sizes=found.sizes,
        last_iterate=centroids if last is None else in_original_units(last, bounds),
        drawn_centroids=in_original_units(found.drawn_centroids, bounds),
        drawn_sizes=found.drawn_sizes,
        private=private,
        method={"name": name, "no_intervals": found.no_intervals, "intervals_of": found.intervals_of},
        diagnostics=found.diagnostics,
    )


def _of_rounds(measured: MeasurementSet, settings: Iterates, progress: Progress | None) -> ClusterEstimate:
    """Clusters of a run of `plans.KMeans`, by chains."""
    if settings.prior_power is None:
        settings = replace(settings, prior_power=PRIOR_POWER)
    observed = Observed.of(measured, algorithm="k-means")
    rounds = noisy_rounds(observed)
    published = settings.moves == "jumps"
    problem = cluster_problem(
        rounds,
        target=settings.target,
        allow_for_noise=not published,
        anywhere=0.0 if published else ANYWHERE_SHARE,
        overdispersed=not published,
        simulate_images=published,
    )
    runs = settings.run(problem, clusters=rounds.thetas.shape[1], progress=progress)
    rng = generator(settings.seed)
    chosen = runs.pooled if settings.use == "posterior" else runs.best
    start = rounds.last_iterate
    centroids = lloyd(chosen.points, len(start), rng, weights=chosen.masses, start=start, restarts=settings.restarts)
    by_chain = [cell_means(_sums(draw, centroids), centroids) for draw in runs.draws]
    conditional = Kriging.of(
        problem.target, runs.pooled, rounds.region, rng, lumps=max(LUMPS, LUMPS_OF_CLUSTER * len(start))
    )
    if conditional is None:
        expected, drawn = _sums(chosen, centroids), by_chain
    else:
        cells = statistics_of(KMEANS, centroids, conditional.base.points)
        expected, sums = conditional.draws(cells, len(runs.draws), rng)
        drawn = [cell_means(each, centroids) for each in sums]
    bounds = observed.shared["bounds"]
    sizes, drawn_sizes = possible_sizes(expected[: len(centroids)], np.array([counts for counts, _ in drawn]))
    return ClusterEstimate(
        attributes=tuple(observed.shared["attributes"]),
        bounds=np.array(bounds, dtype=np.float64),
        centroids=in_original_units(centroids, bounds),
        sizes=sizes,
        last_iterate=in_original_units(rounds.last_iterate, bounds),
        drawn_centroids=in_original_units(np.array([means for _, means in drawn]), bounds),
        drawn_sizes=drawn_sizes,
        private=measured.private,
        method={"name": "iterates", "algorithm": "k-means", "settings": settings.to_json()},
        diagnostics=diagnostics(runs, conditional)
        | _centroid_diagnostics(np.array([means for _, means in by_chain]), runs),
    )


def noisy_rounds(observed: Observed) -> NoisyRounds:
    """The rounds as arrays in normalised coordinates."""
    thetas = observed.thetas
    names, bounds = observed.shared["attributes"], observed.shared["bounds"]
    counts, sums = observed.values("counts"), observed.values("sums")
    expected = (len(thetas), *thetas.shape[1:2])
    if thetas.ndim != 3 or thetas.shape[2] != len(names) or counts.shape != expected or sums[0].size != thetas[0].size:
        raise MeasurementError(
            f"centroids of the shape {thetas.shape[1:]}, {counts.shape[1:]} counts and {sums.shape[1:]} sums do not "
            f"fit {len(names)} attributes; measure with plans.KMeans"
        )
    try:
        region = Region(observed.shared["region"], len(names))
        in_original_units(np.zeros(len(names)), bounds)
    except (ConsilienceError, TypeError, ValueError) as error:
        raise MeasurementError(f"the rounds describe no region of points: {error}") from None
    return NoisyRounds(
        thetas=region.project(thetas),
        counts=counts,
        sums=sums.reshape(thetas.shape),
        count_scales=observed.scales("counts"),
        sum_scales=observed.scales("sums"),
        laplace=observed.laplace,
        region=region,
    )


def _sums(dataset: Simulated, centroids: Array) -> Array:
    return statistics_of(KMEANS, centroids, dataset.points) @ dataset.masses


def _centroid_diagnostics(drawn: Array, runs: ChainRuns) -> dict[str, Any]:
    """The least effective sample size and the greatest R-hat of all coordinates of all centroids."""
    each = drawn.reshape(len(runs.chains), -1, drawn.shape[1] * drawn.shape[2])
    sizes = [effective_sample_size(each[:, :, i]) for i in range(each.shape[2])]
    hats = [split_rhat(each[:, :, i]) for i in range(each.shape[2])]
    return {
        "centroid_effective_sample_size": float(min(sizes)),
        "centroid_median_effective_sample_size": float(np.median(sizes)),
        "centroid_rhat": finite_or_none(max(hats)),
    }
