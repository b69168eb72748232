"""The errors of an estimate that is linear in its measurements: weighted least squares with counts of either sign.

With rows A of all measured queries, noise n of variances Σ and G = AᵀΣ⁻¹A, the least-squares answers to queries Q that
the measurements determine are off by

    θ̂ − θ = L n,    L = Q G⁺ AᵀΣ⁻¹,    of covariance L Σ Lᵀ,

whatever the data. For Gaussian noise the half-width of an interval is z·√diag(L Σ Lᵀ); for other laws noise is drawn
and L n looked at. Written out for tables up to `LARGEST_TABLE` cells; larger ones are refitted.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from consilience.domain.queries import Query
from consilience.estimators.base import Estimate
from consilience.estimators.evidence import GAUSSIAN_LAWS
from consilience.kernels.rng import generator
from consilience.measurements import Exact

Array = NDArray[np.float64]

LARGEST_TABLE = 1024
LARGEST_ROWS = 8192
DRAWS = 4000
LINEAR_METHODS = ("tree", "table", "matrix", "residual")


def linear_errors(estimate: Estimate) -> "LinearErrors | None":
    """The errors of a linear estimate; None where the method is not linear, or the table too large to write out.

    Exact facts, clipped and withheld answers, impossible cells and whole numbers each make a method non-linear.
    """
    method, domain, measured = estimate.method, estimate.domain, estimate.measurements
    squares = method.get("loss", "l2") == "l2" and not method.get("integers", False)
    if method.get("method") not in LINEAR_METHODS or method.get("nonnegative") is not False or not squares:
        return None
    if domain.impossible or domain.public.total is not None or domain.public.margins:
        return None
    if any(each.kind != "linear" or each.clipped or each.threshold is not None for each in measured):
        return None
    if any(isinstance(each.noise, Exact) for each in measured):
        return None
    rows = sum(each.values.size for each in measured)
    return LinearErrors(estimate) if domain.cells <= LARGEST_TABLE and rows <= LARGEST_ROWS else None


@dataclass(frozen=True, eq=False)
class LinearErrors:
    """The map from noise to errors."""

    estimate: Estimate

    @cached_property
    def _to_cells(self) -> Array:
        """G⁺AᵀΣ⁻¹: the least-squares cells of least norm for given answers."""
        scale = 1.0 / np.sqrt(self._variances)
        return np.linalg.pinv(self._rows * scale[:, None], rcond=1e-12) * scale

    @cached_property
    def _rows(self) -> Array:
        return np.concatenate([self._rows_of(each.query) for each in self.estimate.measurements])

    @cached_property
    def _variances(self) -> Array:
        measured = self.estimate.measurements
        return np.concatenate([np.full(each.values.size, max(each.noise.variance, 1e-300)) for each in measured])

    def _rows_of(self, query: Query) -> Array:
        return query.bind(self.estimate.domain).written_out()

    def _errors_of(self, query: Query) -> Array:
        return self._rows_of(query) @ self._to_cells

    def half_width(self, query: Query, level: float, seed: int) -> Array:
        """How far each answer is from the truth at most, in a share `level` of all noise."""
        if all(each.noise.law in GAUSSIAN_LAWS for each in self.estimate.measurements):
            variances = self._errors_of(query) ** 2 @ self._variances
            return np.sqrt(variances) * float(ndtri(0.5 + level / 2.0))
        return np.quantile(np.abs(self.draws(query, seed)), level, axis=0)

    def draws(self, query: Query, seed: int) -> Array:
        """Errors of the answers under noise drawn anew, with a row for each draw."""
        rng = generator(seed)
        measured = self.estimate.measurements
        noise = [each.noise.simulate((DRAWS, each.values.size), rng) for each in measured]
        return np.concatenate(noise, axis=1) @ self._errors_of(query).T
