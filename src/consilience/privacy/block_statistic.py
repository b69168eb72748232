"""The sum, over blocks of records, of the centroids that each block has by itself: sample and aggregate.

Nissim, Raskhodnikova and Smith (2007); GUPT (Mohan et al. 2012) is this with averages. The statistic is no sum over
records, and no bound on single records gives its sensitivity. What does:

1. A record's block is a hash of that record, on the lattice, and a public seed. It does not depend on other records,
   nor on where in the table the record is: one that comes or goes leaves all other records in their blocks.
2. The centroids of a block follow from its records, a public start and nothing else, to the last bit (numerics/
   clustering_mechanisms/record_blocks.py). So a record that comes or goes changes the centroids of one block, and
   one that is replaced, of two at most.
3. Whatever a block holds, each of its K centroids is moved into the region and rounded toward zero on the lattice
   before it is added: in place of one such centroid another moves the sum by at most twice the largest norm of the
   region. All K of a block move it by 2K·max‖c‖₁ in the L1 norm and by 2√K·max‖c‖₂ in the L2 norm.

Under *add-remove* these are the sensitivities; under *replace-one*, twice as much. The number of blocks is public:
declared, or found from a noisy number of records. How well the blocks' centroids match is a matter of accuracy alone.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.kernels.regions import LATTICE_BITS, Region, RegionKind, lattice_points
from consilience.privacy.grid_statistic import refuse_other_bounds
from consilience.privacy.record_blocks import block_centroids

LARGEST_BLOCKS = 2**20


@dataclass(frozen=True)
class BlockCentroids:
    """Σ over blocks of the block's centroids, listed by cluster and then by attribute, in normalised coordinates.

    >>> BlockCentroids(("x", "y"), ((0, 1), (0, 5)), "ball", ((0.0, 0.0), (0.5, 0.5)), blocks=10).sensitivity(
    ...     1, "add-remove"
    ... )
    4.0
    """

    attributes: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    region: RegionKind
    start: tuple[tuple[float, ...], ...]
    blocks: int
    seed: int = 0
    lattice_bits: int = LATTICE_BITS

    @property
    def size(self) -> int:
        return len(self.start) * len(self.attributes)

    @property
    def bits(self) -> int:
        return self.lattice_bits

    def sensitivity(self, norm: Literal[1, 2], neighbours: Neighbours) -> float:
        clusters = len(self.start)
        largest = Region(self.region, len(self.attributes)).sensitivity(norm)
        one_block = 2.0 * largest * (clusters if norm == 1 else math.sqrt(clusters))
        return one_block if neighbours == "add-remove" else 2.0 * one_block

    def exact(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        region = Region(self.region, len(self.attributes))
        units = lattice_points(points, self.bounds, region, bits=self.lattice_bits)
        start = np.array(self.start, dtype=np.float64)
        found = block_centroids(units, start, blocks=self.blocks, bits=self.lattice_bits, seed=self.seed)
        rows = lattice_points(
            found.reshape(-1, region.dimensions), ((-1.0, 1.0),) * region.dimensions, region, bits=self.lattice_bits
        )
        return rows.reshape(self.blocks, self.size).sum(axis=0, dtype=np.int64)

    def describe(self) -> dict[str, Any]:
        return {
            "algorithm": "sample-and-aggregate",
            "part": "centroids",
            "attributes": list(self.attributes),
            "bounds": [list(interval) for interval in self.bounds],
            "region": self.region,
            "bits": self.lattice_bits,
            "start": [list(centroid) for centroid in self.start],
            "blocks": self.blocks,
            "seed": self.seed,
        }

    def check(self, domain: Domain) -> None:
        refuse_other_bounds(domain, self.attributes, self.bounds)
        whole = isinstance(self.blocks, int) and not isinstance(self.blocks, bool)
        if not whole or not 1 <= self.blocks <= LARGEST_BLOCKS:
            raise DeclarationError(f"{self.blocks!r} blocks were asked for; use from 1 to {LARGEST_BLOCKS:,}")
        region = Region(self.region, len(self.attributes))
        start = np.array(self.start, dtype=np.float64)
        if start.ndim != 2 or not len(start) or start.shape[1] != region.dimensions:
            raise DeclarationError(
                f"a start of the shape {start.shape} does not fit {region.dimensions} attributes; give a row of "
                "coordinates for each of at least one cluster"
            )
        if not (np.isfinite(start).all() and region.contains(start).all()):
            raise DeclarationError(f"the start must lie in the region {self.region!r}; project it first")
        lattice_points(np.empty((0, region.dimensions)), self.bounds, region, bits=self.lattice_bits)
