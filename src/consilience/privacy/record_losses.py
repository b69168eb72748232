"""Scores for the private selection of a model: which candidate has the least loss, added up over all records?

A record x, as a point of the region on the lattice (kernels/regions.py), has under the candidate ω the loss

    k-means               ℓ(x; ω) = min_k ‖x − c_k‖²             ω = (c₁, …, c_K)
    logistic regression   ℓ(x; ω) = ln(1 + exp(−y ω·(x, 1)))     y = ±1 by the half of the label's bounds.

A selection compares candidates: what all of them lose alike changes nothing. From every record's losses, in units of
2^−b, the least is taken away, and what is left is cut off at a public Λ:

    score(ω) = −Σ over records of min(ℓ(x; ω) − min_ω′ ℓ(x; ω′), Λ).

This is integer arithmetic, one record by itself. A record that comes or goes moves each score by a number from 0 to Λ,
hence the difference of two scores by at most Λ, and that is what selectors need (privacy/scores.py), who call Λ/2 the
sensitivity. A record replaced moves differences by 2Λ at most. That differences count is the idea of the enhanced
exponential mechanism of PrivGene (Zhang et al. 2013); here it needs no number of records that neighbours share.

Any Λ is private. One that cuts nothing off follows from the candidates (plans/published/privgene.py).
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.compilation import announce
from consilience.kernels.regions import LATTICE_BITS, Region, RegionKind, lattice_points
from consilience.privacy.cluster_statistics import CHUNK, refuse_other_bounds
from consilience.privacy.gradient_statistic import labelled_points
from consilience.privacy.scores import RecordScore

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Places = NDArray[np.int32]

LOSS_BITS = 16
"""Losses are whole numbers of 2^−16."""

LARGEST = 2.0**12
"""Of a coordinate, a coefficient and Λ: losses of 2^33 records add up to less than 2^62 units."""


@dataclass(frozen=True, eq=False)
class RecordLosses(RecordScore[int]):
    """Minus the losses of candidates, which are chosen by their place; `cut` is Λ.

    Candidates are in normalised coordinates, the first axis tells them apart: centroids as candidates × clusters ×
    attributes, or coefficients as candidates × attributes, where the last attribute is the label and the last
    coefficient the intercept.
    """

    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    parameters: Floats
    cut: float

    @property
    def candidates(self) -> Sequence[int]:
        return range(len(self.parameters))

    @property
    def limit(self) -> int:
        """Λ in units of the losses, and one more, by which their rounding may move a difference."""
        return math.ceil(self.cut * 2.0**LOSS_BITS) + 1

    def sensitivity(self, neighbours: Neighbours) -> float:
        return self.limit / 2 if neighbours == "add-remove" else float(self.limit)

    def values(self, exact_counts: Sequence[NDArray[Any]]) -> Integers:
        (points,) = exact_counts
        totals = np.zeros(len(self.parameters), np.int64)
        parameters = np.ascontiguousarray(np.moveaxis(self.parameters, 0, -1))
        add = _add_distances if self.parameters.ndim == 3 else _add_logistic
        announce(add)
        region = Region(self.region, self.parameters.shape[-1] - (self.parameters.ndim == 2))
        for start in range(0, len(points), CHUNK):
            some = points[start : start + CHUNK]
            if self.parameters.ndim == 3:
                units, labels = lattice_points(some, self.bounds, region), np.empty(0)
            else:
                units, labels = labelled_points(some, self.bounds, region)
            add(units, labels, parameters, 2.0**-LATTICE_BITS, self.limit, totals)
        return totals

    def check(self, domain: Domain) -> None:
        refuse_other_bounds(domain, self.attributes, self.bounds)
        found = self.parameters
        terms = found.shape[-1] if found.ndim in (2, 3) and found.size else 0
        if (
            not terms == len(self.attributes) >= 4 - found.ndim
            or not (np.abs(found) <= LARGEST).all()
            or not 0 <= self.cut <= LARGEST
        ):
            raise DeclarationError(
                f"candidates of the shape {found.shape}, cut off at {self.cut}, do not fit {len(self.attributes)} "
                f"attributes; give a row of numbers for each candidate, none of them beyond {LARGEST:g}"
            )

    def fingerprint(self) -> Sequence[object]:
        digest = hashlib.sha256(np.ascontiguousarray(self.parameters, dtype="<f8").tobytes()).hexdigest()
        about = [self.attributes, self.bounds, self.region, LOSS_BITS, self.parameters.shape]
        return ["record-losses", *about, self.limit, digest]


# Candidates are on the last axis, so that a processor takes several of them at a time.


@numba.njit(nogil=True, cache=True)
def _add_scores(losses: Floats, limit: int, totals: Integers) -> None:  # pragma: no cover - compiled
    least = np.int64(losses.min() * 2.0**LOSS_BITS)
    for c in range(len(losses)):
        totals[c] -= min(np.int64(losses[c] * 2.0**LOSS_BITS) - least, limit)


@numba.njit(nogil=True, cache=True)
def _add_distances(
    units: Places, _: Floats, centroids: Floats, unit: float, limit: int, totals: Integers
) -> None:  # pragma: no cover - compiled
    clusters, dimensions, candidates = centroids.shape
    distances, losses = np.empty(candidates), np.empty(candidates)
    for i in range(units.shape[0]):
        losses[:] = np.inf
        for k in range(clusters):
            distances[:] = 0.0
            for j in range(dimensions):
                for c in range(candidates):
                    gap = units[i, j] * unit - centroids[k, j, c]
                    distances[c] += gap * gap
            for c in range(candidates):
                losses[c] = min(losses[c], distances[c])
        _add_scores(losses, limit, totals)


@numba.njit(nogil=True, cache=True)
def _add_logistic(
    units: Places, labels: Floats, coefficients: Floats, unit: float, limit: int, totals: Integers
) -> None:  # pragma: no cover - compiled
    terms, candidates = coefficients.shape
    losses = np.empty(candidates)
    for i in range(units.shape[0]):
        for c in range(candidates):
            margin = coefficients[terms - 1, c]
            for j in range(terms - 1):
                margin += coefficients[j, c] * units[i, j] * unit
            margin *= labels[i]
            losses[c] = np.log1p(np.exp(-abs(margin))) + max(-margin, 0.0)
        _add_scores(losses, limit, totals)
