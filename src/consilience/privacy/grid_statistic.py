"""How many records each cell of a grid over continuous attributes holds.

A record x becomes a point of the region on the lattice (kernels/regions.py), and then one of the cells by
whole numbers alone (kernels/cell_grids.py): φ(x) is a unit vector, or zero where the declaration
drops the record. *Adding or removing* a record moves the counts by ‖φ(x)‖ ≤ 1 in both norms. *Replacing* one moves
them by ‖φ(x) − φ(x')‖, at most 2 in the L1 norm and √2 in the L2 norm; with one cell at most 1, by a record that is
dropped.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.cell_grids import CellGrid
from consilience.kernels.regions import LATTICE_BITS, Region, RegionKind, lattice_points
from consilience.privacy.cluster_statistics import CHUNK, declared_bounds


@dataclass(frozen=True)
class GridCounts:
    """The counts of the cells that meet the region, in the order of `CellGrid`; one division counts all records.

    >>> GridCounts(("x", "y"), ((0, 1), (0, 5)), "box", 4).size
    16
    """

    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    divisions: int
    lattice_bits: int = LATTICE_BITS

    @cached_property
    def grid(self) -> CellGrid:
        return CellGrid(self.divisions, Region(self.region, len(self.attributes)))

    @property
    def size(self) -> int:
        return self.grid.size

    @property
    def bits(self) -> int:
        """Counts are whole numbers of records."""
        return 0

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        if neighbours == "add-remove" or self.size == 1:
            return 1.0
        return 2.0 if norm == 1 else math.sqrt(2)

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        counts = np.zeros(self.size, np.int64)
        for start in range(0, len(points), CHUNK):
            units = lattice_points(points[start : start + CHUNK], self.bounds, self.grid.region, bits=self.lattice_bits)
            counts += self.grid.counts(units, bits=self.lattice_bits)
        return counts

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "cell-grid",
            "part": "counts",
            "attributes": list(self.attributes),
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "divisions": self.divisions,
        }

    def check(self, domain: Domain) -> None:
        refuse_other_bounds(domain, self.attributes, self.bounds)
        region = self.grid.region
        lattice_points(np.empty((0, region.dimensions)), self.bounds, region, bits=self.lattice_bits)


def refuse_other_bounds(domain: Domain, attributes: tuple[str, ...], bounds: tuple[tuple[float, float], ...]) -> None:
    """Refuse bounds that are not those which the domain declares."""
    declared = declared_bounds(domain, attributes)
    if declared != bounds:
        raise DeclarationError(
            f"the bounds {bounds} of {', '.join(attributes)} are declared as {declared} in the domain "
            f"{domain.name!r}; take them from there"
        )
