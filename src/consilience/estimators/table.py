"""`Table`: the non-negative weighted least-squares table behind any set of measured queries.

With measured queries A_q, noisy answers y_q and noise standard deviations σ_q the estimate is

    min over x ≥ 0 of  ½ Σ_q ‖(A_q x − y_q) / σ_q‖²,

over the cells of the full table, with Σ x fixed where the total is public and x = 0 where a cell is impossible. The
fitted answers A_q x are unique; among the tables that share them the estimate is the one of greatest entropy. Queries
act by their Kronecker structure: a step costs one sum over the table for each query, and no matrix is built.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery
from consilience.errors import MeasurementError, TooLarge
from consilience.estimators.base import Progress, Suitability
from consilience.estimators.full_table import FullTableEstimate
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.numerics.fit import Fit
from consilience.numerics.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SumMap
from consilience.numerics.marginal_sums import MarginalSums
from consilience.numerics.nonnegative_least_squares import fit_nonnegative_least_squares, predicted_bytes

LARGEST_TABLE = 10_000_000


@dataclass(frozen=True)
class Table:
    """Non-negative weighted least squares over the full table; up to ten million cells.

    `tolerance` bounds the optimality gap in units of the objective or of the expected noise, whichever is larger.
    """

    tolerance: float = 1e-4
    max_steps: int = 50_000

    name: ClassVar[str] = "table"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        cells = measured.domain.cells
        margins = _exact_margins(measured)
        if margins:
            return Suitability(
                False,
                f"exact counts by {margins[0]} are declared public, and Table keeps an exact total only; "
                "remove them, or bring them as measurements with a small noise",
            )
        need = predicted_bytes(min(cells, 2**60))
        if cells > LARGEST_TABLE:
            return Suitability(
                False,
                f"the full table has {cells:,} cells and would need {_readable(need)} of memory; "
                f"Table fits up to {LARGEST_TABLE:,} cells",
                need,
            )
        return Suitability(True, f"the full table has {cells:,} cells and fits in memory ({_readable(need)})", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "FullTableEstimate":
        suitable = self.suitability(measured)
        if not suitable.possible:
            raise TooLarge(f"{suitable.reason}. Otherwise measure fewer attributes, or project the domain to fewer")
        domain = measured.domain
        noisy = [each for each in measured if not isinstance(each.noise, Exact)]
        operator = MeasuredOperator(domain, noisy)
        fit = fit_nonnegative_least_squares(
            operator,
            operator.scaled_values(),
            total=_public_total(measured),
            allowed=domain.allowed_cells(),
            cover=operator.cover(),
            tolerance=self.tolerance,
            noise_energy=operator.rows / 2,
            max_steps=self.max_steps,
            progress=_reporter(progress, self.max_steps),
        )
        return FullTableEstimate(measured, self._describe(), fit.status, _stats(fit, operator), fit.counts)

    def _describe(self) -> dict[str, Any]:
        return {"method": self.name, "loss": "l2", "tolerance": self.tolerance}


class MeasuredOperator:
    """The measured queries as one operator on the full table, each row divided by its noise's standard deviation.

    Censored answers, of which only a bound was released, are left out.
    """

    def __init__(self, domain: Domain, measurements: list[Measurement]) -> None:
        if not measurements:
            raise MeasurementError("there is no noisy measurement to fit; measure something first")
        self.shape_in = domain.shape
        self.bounds: list[BoundQuery] = [each.query.bind(domain) for each in measurements]
        self._squared = [bound.squared() for bound in self.bounds]
        names = domain.counted_names
        self._sums = MarginalSums(domain.shape, [tuple(map(names.index, bound.attributes)) for bound in self.bounds])
        self._values = [each.values for each in measurements]
        self._weights = [_weights(each) for each in measurements]
        self._ends = np.cumsum([bound.size for bound in self.bounds])

    @property
    def rows(self) -> int:
        """The number of answers that take part in the fit."""
        return sum(int(np.count_nonzero(weights)) for weights in self._weights)

    def scaled_values(self) -> NDArray[np.float64]:
        pairs = zip(self._values, self._weights, strict=True)
        return np.concatenate([np.where(weights > 0, values, 0.0) * weights for values, weights in pairs])

    def apply(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = zip(self.bounds, self._weights, self._sums.of(x), strict=True)
        return np.concatenate([bound.answer(marginal).ravel() * weights for bound, weights, marginal in parts])

    def apply_squared(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The operator with every entry squared, for the solver's preconditioner."""
        parts = zip(self._squared, self._weights, self._sums.of(x), strict=True)
        return np.concatenate([bound.answer(marginal).ravel() * weights**2 for bound, weights, marginal in parts])

    def adjoint(self, residuals: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = zip(self.bounds, self._weights, np.split(residuals, self._ends[:-1]), strict=True)
        return self._sums.spread(
            [bound.adjoint((part * weights).reshape(bound.shape)) for bound, weights, part in parts]
        )

    def cover(self) -> NDArray[np.float64] | None:
        """A vector v with Aᵀv > 0 on every cell that a query with such a vector touches; None when no query has one."""
        parts = []
        for bound, weights in zip(self.bounds, self._weights, strict=True):
            vectors = [_factor_cover(each) for each in bound.maps] if weights.all() else [None]
            product = np.ones(1)
            for vector in vectors:
                product = np.zeros(1) if vector is None else np.outer(product, vector).ravel()
            usable = all(vector is not None for vector in vectors)
            parts.append(product / weights if usable else np.zeros(bound.size))
        return np.concatenate(parts) if any(part.any() for part in parts) else None


def _factor_cover(each: LinearMap) -> NDArray[np.float64] | None:
    """A vector v with Fᵀv ≥ 0 everywhere and > 0 on every column of F that is not zero, or None."""
    if isinstance(each, IdentityMap | SumMap):
        return np.ones(each.rows)
    if isinstance(each, PrefixMap):
        return np.eye(each.rows)[-1]
    if isinstance(each, AllRangesMap):
        return np.eye(1, each.rows, each.columns - 1)[0]
    touched = each.column_norms(1) > 0
    matrix = each.dense() if each.rows * each.columns <= 4_000_000 else None
    if matrix is None:
        return None
    rows_without_negatives: NDArray[np.float64] = np.all(matrix >= 0, axis=1, keepdims=True)[:, 0].astype(np.float64)
    if (rows_without_negatives @ matrix)[touched].min(initial=1.0) > 0:
        return rows_without_negatives
    solved = np.asarray(np.linalg.lstsq(matrix.T, touched.astype(np.float64), rcond=None)[0], dtype=np.float64)
    reached = solved @ matrix
    return solved if reached[touched].min(initial=1.0) > 1e-9 and reached.min(initial=0.0) > -1e-12 else None


def _reporter(progress: Progress | None, most: int) -> Callable[[int, float, float], None] | None:
    """The solver's progress in the words of ours."""
    if progress is None:
        return None

    def report(steps: int, objective: float, gap: float) -> None:  # noqa: ARG001
        progress("fitting", steps, most)

    return report


def _weights(measurement: Measurement) -> NDArray[np.float64]:
    weights = np.full(measurement.values.size, 1 / math.sqrt(measurement.noise.variance))
    if measurement.censored is not None:
        weights[np.asarray(measurement.censored).ravel()] = 0.0
    return weights


def _public_total(measured: MeasurementSet) -> float | None:
    """The exact total: declared in the domain, or added as a public measurement."""
    totals = [] if measured.domain.public.total is None else [float(measured.domain.public.total)]
    totals += [float(each.values[0]) for each in measured if isinstance(each.noise, Exact) and not each.query.factors]
    if totals and max(totals) - min(totals) > 1e-9 * max(1.0, max(totals)):
        raise MeasurementError(f"the exact totals {min(totals):g} and {max(totals):g} contradict each other; keep one")
    return totals[0] if totals else None


def _exact_margins(measured: MeasurementSet) -> list[str]:
    """The exact facts beyond the total, as their attributes."""
    declared = [", ".join(margin.attributes) for margin in measured.domain.public.margins]
    added = [each.query.describe() for each in measured if isinstance(each.noise, Exact) and each.query.factors]
    return declared + added


def _stats(fit: Fit, operator: MeasuredOperator) -> Mapping[str, float | int | str]:
    return {
        "objective": fit.objective,
        "gap": fit.gap,
        "expected_noise_energy": operator.rows / 2,
        "measured_answers": operator.rows,
        **fit.stats,
    }


def _readable(count: int) -> str:
    """A number of bytes for people: 1.5 GB."""
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"
