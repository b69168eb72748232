"""A statistic of a record that a user wrote: how many records there are, or the sum of its values over them.

A record becomes a point x of the region on the lattice (kernels/regions.py) and adds φ(x, θ), as the user's function
has it, clipped to the norm C and cut toward zero to the lattice (kernels/own_statistics.py). Whatever the function
does, one record adds at most C in that norm. *Adding or removing* a record moves the sum by ‖φ‖ ≤ C, *replacing* one by
‖φ‖ + ‖φ'‖ ≤ 2C; ‖·‖₂ ≤ ‖·‖₁ ≤ √size ‖·‖₂ bounds the other norm. The count moves by 1 either way: a new record may be
one that the declaration drops. A record for which the function raises, or gives what is no number, adds zeros.

That only this record's part changes rests on the function having no memory: what it is given is read-only, and it may
not draw random numbers, print or call Python. What else compiled code can do (call a library by its address, never
return) is outside.
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
from consilience.kernels.compilation import announce
from consilience.kernels.own_statistics import RecordFunction, own_sums
from consilience.kernels.regions import LATTICE_BITS, Region, RegionKind, lattice_points
from consilience.privacy.cluster_statistics import CHUNK, declared_bounds, refuse_other_bounds


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
        announce(own_sums)
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
