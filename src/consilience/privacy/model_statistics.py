"""What records say of a model: their gradients and losses under it, and values of a function that a user wrote."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.kernels.record_functions import RecordFunction, gradient_sums, own_sums
from consilience.kernels.regions import LATTICE_BITS, Bounds, Region, RegionKind, lattice_points
from consilience.privacy.cluster_statistics import CHUNK, declared_bounds, refuse_other_bounds
from consilience.privacy.scores import RecordScore

# ----------------------------------------------------------------------------------------------------------------------
# The statistics of one round of logistic regression: how many records there are, and the sum of their gradients.
#
# A record becomes a point x of the region on the lattice (kernels/regions.py) with a label y, 1 where the
# label's attribute lies in the upper half of its declared bounds and −1 elsewhere. With the coefficients θ of the round
# before it adds
#
#     to the count      1
#     to the gradient   φ(x, y; θ), the gradient of its logistic loss, clipped to the norm C
#                       (kernels/record_functions.py).
#
# φ = −s y (x, 1) with 0 ≤ s ≤ 1, so that its L1 norm is at most R₁ + 1 and its L2 norm at most √(R₂² + 1), R the
# largest norms in the region. Clipping bounds the one norm by C, and through ‖·‖₂ ≤ ‖·‖₁ ≤ √(d + 1) ‖·‖₂ the other.
# *Adding or removing* a record moves the sum by ‖φ‖. *Replacing* one moves it by at most ‖φ‖ + ‖φ'‖, twice as much. The
# count moves by 1 either way: a new record may be one that the declaration drops.
#
# Labels, points and φ depend on one record and on θ alone, so nothing else changes when that record does.


Part = Literal["count", "gradient"]


@dataclass(frozen=True)
class GradientStatistic:
    """The number of records, or the sum of their clipped gradients under given coefficients.

    `coefficients` belong to normalised attributes, whose bounds are −1 and 1; the intercept's comes last. `bounds`
    are those of the attributes and, last, of the label. `clip` bounds each record's gradient in the norm `clip_norm`.
    `step` and `radius` change nothing here: they go into the description, so that what the round leads to
    (iterates/problems.py) follows from what a file holds.

    >>> found = GradientStatistic("gradient", ("x",), "y", ((0, 1), (0, 1)), "box", (0, 0), clip=1.0, clip_norm=1)
    >>> found.sensitivity(1, "add-remove"), found.sensitivity(1, "replace-one")
    (1.0, 2.0)
    """

    part: Part
    features: tuple[str, ...]
    label: str
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    coefficients: tuple[float, ...]
    clip: float
    clip_norm: Literal[1, 2]
    step: float = 0.0
    radius: float = 0.0
    lattice_bits: int = LATTICE_BITS

    additive = True

    @property
    def attributes(self) -> tuple[str, ...]:
        return (*self.features, self.label)

    @property
    def size(self) -> int:
        return 1 if self.part == "count" else len(self.features) + 1

    @property
    def bits(self) -> int:
        """The count is a whole number of records, the gradient one of lattice units."""
        return 0 if self.part == "count" else self.lattice_bits

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        if self.part == "count":
            return 1.0
        clipped = self.clip
        if norm == 1 and self.clip_norm == 2:
            clipped *= math.sqrt(len(self.features) + 1)
        largest = min(clipped, largest_gradient(self.region, len(self.features), norm))
        return 2 * largest if neighbours == "replace-one" else largest

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        region = Region(self.region, len(self.features))
        total = np.zeros(self.size, np.int64)
        for start in range(0, len(points), CHUNK):
            some = points[start : start + CHUNK]
            units, labels = labelled_points(some, self.bounds, region, bits=self.lattice_bits)
            if self.part == "count":
                total += len(units)
                continue
            coefficients = np.array(self.coefficients, dtype=np.float64)
            clipped: dict[str, Any] = {"clip": self.clip, "norm": self.clip_norm}
            total += gradient_sums(units, labels, coefficients, bits=self.lattice_bits, **clipped)
        return total

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "logistic",
            "part": self.part,
            "attributes": list(self.features),
            "label": self.label,
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "coefficients": list(self.coefficients),
            "clip": self.clip,
            "clip_norm": self.clip_norm,
            "step": self.step,
            "radius": self.radius,
        }

    def check(self, domain: Domain) -> None:
        if self.part not in ("count", "gradient"):
            raise DeclarationError(f"logistic regression has no statistic {self.part!r}; use 'count' or 'gradient'")
        if not self.features:
            raise DeclarationError("logistic regression needs an attribute besides the label; name one or more")
        refuse_other_bounds(domain, self.attributes, self.bounds)
        if self.clip_norm not in (1, 2) or not (math.isfinite(self.clip) and self.clip * 2.0**self.lattice_bits >= 1):
            raise DeclarationError(
                f"gradients are to be clipped to {self.clip} in the norm {self.clip_norm!r}; give a finite number of "
                "at least one lattice unit, and the norm 1 or 2"
            )
        if len(self.coefficients) != len(self.attributes) or not np.isfinite(self.coefficients).all():
            raise DeclarationError(
                f"{len(self.coefficients)} coefficients were given for {len(self.features)} attributes and an "
                "intercept; give a finite number for each"
            )
        region = Region(self.region, len(self.features))
        lattice_points(np.empty((0, region.dimensions)), self.bounds[:-1], region, bits=self.lattice_bits)


def labelled_points(
    points: NDArray[np.float64], bounds: Bounds, region: Region, *, bits: int = LATTICE_BITS
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The records without a missing value on the lattice, and their labels: 1 in the upper half of the last bounds.

    Each row of the result depends on one record alone.
    """
    whole = points[~np.isnan(points).any(axis=1)]
    low, high = bounds[-1]
    units = lattice_points(whole[:, :-1], bounds[:-1], region, bits=bits)
    return units, np.where(whole[:, -1] >= low / 2 + high / 2, 1.0, -1.0)


def largest_gradient(region: RegionKind, dimensions: int, norm: Literal[1, 2]) -> float:
    """The largest norm that the gradient of one record's loss can have in the region, the intercept included.

    >>> largest_gradient("box", 3, 1), largest_gradient("box", 3, 2), largest_gradient("ball", 3, 1)
    (4.0, 2.0, 2.0)
    """
    if norm == 1:
        return Region(region, dimensions).sensitivity(1) + 1
    return math.sqrt(dimensions + 1 if region == "box" else 2)


def gradient_statistics(
    domain: Domain,
    features: Sequence[str],
    label: str,
    region: RegionKind,
    coefficients: ArrayLike,
    *,
    clip: float,
    clip_norm: Literal[1, 2],
    step: float = 0.0,
    radius: float = 0.0,
    lattice_bits: int = LATTICE_BITS,
) -> tuple[GradientStatistic, GradientStatistic]:
    """The count, and the sum of the gradients under these coefficients (normalised attributes, intercept last)."""
    names = tuple(features)
    bounds = declared_bounds(domain, (*names, label))
    numbers = tuple(map(float, np.asarray(coefficients, dtype=np.float64)))
    gradient = GradientStatistic(
        "gradient", names, label, bounds, region, numbers, clip, clip_norm, step, radius, lattice_bits
    )
    return replace(gradient, part="count"), gradient


# ----------------------------------------------------------------------------------------------------------------------
# Scores for the private selection of a model: which candidate has the least loss, added up over all records?
#
# A record x, as a point of the region on the lattice (kernels/regions.py), has under the candidate ω the loss
#
#     k-means               ℓ(x; ω) = min_k ‖x − c_k‖²             ω = (c₁, …, c_K)
#     logistic regression   ℓ(x; ω) = ln(1 + exp(−y ω·(x, 1)))     y = ±1 by the half of the label's bounds.
#
# A selection compares candidates: what all of them lose alike changes nothing. From every record's losses, in units of
# 2^−b, the least is taken away, and what is left is cut off at a public Λ:
#
#     score(ω) = −Σ over records of min(ℓ(x; ω) − min_ω′ ℓ(x; ω′), Λ).
#
# This is integer arithmetic, one record by itself. A record that comes or goes moves each score by a number from 0 to
# Λ, hence the difference of two scores by at most Λ, and that is what selectors need (privacy/scores.py), who call Λ/2
# the sensitivity. A record replaced moves differences by 2Λ at most. That differences count is the idea of the enhanced
# exponential mechanism of PrivGene (Zhang et al. 2013); here it needs no number of records that neighbours share.
#
# Any Λ is private. One that cuts nothing off follows from the candidates (plans/published/privgene.py).


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


@njit(nogil=True, cache=True)
def _add_scores(losses: Floats, limit: int, totals: Integers) -> None:  # pragma: no cover - compiled
    least = np.int64(losses.min() * 2.0**LOSS_BITS)
    for c in range(len(losses)):
        totals[c] -= min(np.int64(losses[c] * 2.0**LOSS_BITS) - least, limit)


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


# ----------------------------------------------------------------------------------------------------------------------
# A statistic of a record that a user wrote: how many records there are, or the sum of its values over them.
#
# A record becomes a point x of the region on the lattice (kernels/regions.py) and adds φ(x, θ), as the user's function
# has it, clipped to the norm C and cut toward zero to the lattice (kernels/record_functions.py). Whatever the function
# does, one record adds at most C in that norm. *Adding or removing* a record moves the sum by ‖φ‖ ≤ C, *replacing* one
# by ‖φ‖ + ‖φ'‖ ≤ 2C; ‖·‖₂ ≤ ‖·‖₁ ≤ √size ‖·‖₂ bounds the other norm. The count moves by 1 either way: a new record may
# be one that the declaration drops. A record for which the function raises, or gives what is no number, adds zeros.
#
# That only this record's part changes rests on the function having no memory: what it is given is read-only, and it may
# not draw random numbers, print or call Python. What else compiled code can do (call a library by its address, never
# return) is outside.


@dataclass(frozen=True)
class OwnStatistic:
    """The number of records, or the sum of a user's function of a record and `theta` over them."""

    part: Literal["count", "values"]
    asked: RecordFunction
    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    theta: tuple[tuple[float, ...], ...]
    lattice_bits: int = LATTICE_BITS

    additive = True

    @property
    def size(self) -> int:
        return 1 if self.part == "count" else self.asked.size

    @property
    def bits(self) -> int:
        """The count is a whole number of records, the values are of lattice units."""
        return 0 if self.part == "count" else self.lattice_bits

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        if self.part == "count":
            return 1.0
        wider = math.sqrt(self.size) if norm == 1 and self.asked.clip_norm == 2 else 1.0
        return self.asked.clip * wider * (2 if neighbours == "replace-one" else 1)

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        region, theta = Region(self.region, len(self.attributes)), np.array(self.theta, dtype=np.float64)
        total = np.zeros(self.size, np.int64)
        for start in range(0, len(points), CHUNK):
            units = lattice_points(points[start : start + CHUNK], self.bounds, region, bits=self.lattice_bits)
            if self.part == "count":
                total += len(units)
            else:
                clip, norm = float(self.asked.clip), int(self.asked.clip_norm)
                total += own_sums(self.asked.compiled, units, theta, self.size, clip, norm, self.lattice_bits)
        return total

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "own",
            "part": self.part,
            "attributes": list(self.attributes),
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "theta": [list(row) for row in self.theta],
        } | self.asked.describe()

    def check(self, domain: Domain) -> None:
        if self.part not in ("count", "values"):
            raise DeclarationError(f"a statistic of one's own has no part {self.part!r}; use 'count' or 'values'")
        refuse_other_bounds(domain, self.attributes, self.bounds)
        theta = np.array(self.theta, dtype=np.float64)
        if theta.ndim != 2 or not theta.size or not np.isfinite(theta).all():
            raise DeclarationError(f"theta of the shape {theta.shape} is no matrix of finite numbers")
        if self.asked.clip * 2.0**self.lattice_bits < 1:
            raise DeclarationError(f"the statistic is clipped to {self.asked.clip}, less than one unit of the lattice")
        region = Region(self.region, len(self.attributes))
        lattice_points(np.empty((0, region.dimensions)), self.bounds, region, bits=self.lattice_bits)
        _ = self.asked.compiled


def own_statistics(
    domain: Domain, attributes: Sequence[str], region: RegionKind, asked: RecordFunction, theta: ArrayLike
) -> tuple[OwnStatistic, OwnStatistic]:
    """The count, and the sum of the function's values under this θ."""
    names = tuple(attributes)
    rows = tuple(tuple(map(float, row)) for row in np.asarray(theta, dtype=np.float64))
    values = OwnStatistic("values", asked, names, declared_bounds(domain, names), region, rows)
    return replace(values, part="count"), values
