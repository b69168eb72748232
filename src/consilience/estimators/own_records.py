"""Records that make all rounds of a private algorithm of one's own likely (after Lee and Kifer 2016).

The chains know of the algorithm what its rounds released and the user's statistic φ(x, θ), nothing else
(estimators/iterates.py). Points are drawn without regard to the rounds, Gaussian around the middle of the region, so
that their density is known. What comes out are records to run the algorithm on, without noise: each has a weight.

Nothing here sees data or spends budget.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import ConsilienceError, MeasurementError
from consilience.estimators.base import Progress
from consilience.estimators.iterates import Iterates, Observed, diagnostics
from consilience.iterates.chain import ChainProblem, Mixture, Simulated
from consilience.iterates.chain_kernels import OWN, Target, fill_statistics
from consilience.iterates.problems import noise_terms, uniform_deviation
from consilience.kernels.record_functions import RecordFunction
from consilience.kernels.regions import Region, in_original_units
from consilience.measurements import MeasurementSet

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OwnRecords:
    """Simulated records, and how many real ones each stands for."""

    attributes: tuple[str, ...]
    bounds: Array
    """A row of two ends for each attribute."""
    points: Array
    """A row for each record, with the bounds mapped to −1 and 1, as the statistic sees them."""
    weights: Array
    draws: tuple[Simulated, ...]
    """The same, one dataset after another: what is left open is how far the algorithm on one of them is from others."""
    statistic: RecordFunction
    private: bool
    """False where the noise was simulated, and protects nobody."""
    diagnostics: dict[str, Any]

    def sums(self, theta: ArrayLike) -> Array:
        """The statistic under θ, summed over the records without noise."""
        return (self._filled(theta)[1:] * self.weights).sum(axis=1)

    def follow(self, start: ArrayLike, step: Callable[[Array, float, Array], ArrayLike], rounds: int = 100) -> Array:
        """The θ that so many rounds without noise lead to."""
        theta = np.array(start, dtype=np.float64)
        for _ in range(rounds):
            theta = np.array(step(theta.copy(), float(self.weights.sum()), self.sums(theta)), dtype=np.float64)
        return theta

    def _filled(self, theta: ArrayLike) -> Array:
        found = np.zeros((1 + self.statistic.size, len(self.points)))
        matrix = np.array(theta, dtype=np.float64, order="C", ndmin=2)
        fill_statistics(OWN, self.statistic.compiled, matrix, np.ascontiguousarray(self.points), found)
        return found

    def in_original_units(self) -> Array:
        """The points in the units in which bounds were declared."""
        return in_original_units(self.points, self.bounds)


def own_records(
    measured: MeasurementSet,
    statistic: RecordFunction,
    settings: Iterates | None = None,
    *,
    progress: Progress | None = None,
) -> OwnRecords:
    """The records that all rounds of a run of `plans.OwnRounds` together speak for.

    `statistic` is that of the plan: measurements keep a digest of it, and another is refused.
    """
    settings = settings or Iterates()
    observed = Observed.of(measured, algorithm="own")
    shared, asked = observed.shared, statistic.describe()
    other = [key for key, value in asked.items() if shared[key] != value]
    if other:
        raise MeasurementError(
            f"the rounds were measured with another statistic: its {' and '.join(other)} differ; give that of the plan"
        )
    problem, region = _problem(observed, statistic)
    runs = settings.run(problem, clusters=1, progress=progress)
    pooled = runs.pooled
    return OwnRecords(
        attributes=tuple(shared["attributes"]),
        bounds=np.array(shared["bounds"], dtype=np.float64),
        points=region.project(pooled.points),
        weights=pooled.masses,
        draws=runs.draws,
        statistic=statistic,
        private=measured.private,
        diagnostics=diagnostics(runs, None),
    )


def _problem(observed: Observed, statistic: RecordFunction) -> tuple[ChainProblem, Region]:
    """The problem that the rounds pose, and the region of the points."""
    dimensions = len(observed.shared["attributes"])
    try:
        region = Region(observed.shared["region"], dimensions)
        in_original_units(np.zeros(dimensions), observed.shared["bounds"])
    except (ConsilienceError, TypeError, ValueError) as error:
        raise MeasurementError(f"the rounds describe no region of points: {error}") from None
    counts, values = observed.values("count"), observed.values("values")
    if counts.shape[1] != 1 or values.shape[1] != statistic.size or observed.thetas.ndim != 3:
        raise MeasurementError(
            f"{counts.shape[1]} counts and {values.shape[1]} values do not fit a statistic of {statistic.size} "
            "numbers; measure with plans.OwnRounds"
        )
    scales = np.column_stack(
        [observed.scales("count"), np.repeat(observed.scales("values")[:, None], statistic.size, 1)]
    )
    linear, quadratic = noise_terms(scales, laplace=observed.laplace)
    target = Target(
        kind=OWN,
        region=region.code,
        bounded=dimensions,
        places=1 + statistic.size,
        thetas=np.ascontiguousarray(observed.thetas),
        released=np.column_stack([counts, values]),
        linear=linear,
        quadratic=quadratic,
        own=statistic.compiled,
    )
    spread = np.full((1, dimensions), uniform_deviation(region))
    none = np.zeros((1, dimensions))
    records = max(float(np.average(counts[:, 0], weights=scales[:, 0] ** -2.0)), 1.0)
    mixture = Mixture(centres=none, weights=np.ones(1), widths=none, extra=spread)
    return ChainProblem(target, mixture, records, (np.ones(1),)), region
