"""The statistics of one round of logistic regression: how many records there are, and the sum of their gradients.

A record becomes a point x of the region on the lattice (kernels/regions.py) with a label y, 1 where the
label's attribute lies in the upper half of its declared bounds and −1 elsewhere. With the coefficients θ of the round
before it adds

    to the count      1
    to the gradient   φ(x, y; θ), the gradient of its logistic loss, clipped to the norm C
                      (kernels/logistic_gradients.py).

φ = −s y (x, 1) with 0 ≤ s ≤ 1, so that its L1 norm is at most R₁ + 1 and its L2 norm at most √(R₂² + 1), R the largest
norms in the region. Clipping bounds the one norm by C, and through ‖·‖₂ ≤ ‖·‖₁ ≤ √(d + 1) ‖·‖₂ the other. *Adding or
removing* a record moves the sum by ‖φ‖. *Replacing* one moves it by at most ‖φ‖ + ‖φ'‖, twice as much. The count moves
by 1 either way: a new record may be one that the declaration drops.

Labels, points and φ depend on one record and on θ alone, so nothing else changes when that record does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.logistic_gradients import gradient_sums
from consilience.kernels.regions import LATTICE_BITS, Bounds, Region, RegionKind, lattice_points
from consilience.privacy.cluster_statistics import CHUNK, declared_bounds, refuse_other_bounds

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
