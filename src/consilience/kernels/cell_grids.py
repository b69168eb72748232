"""Equal cells of a region, and which cell a point is in.

Each side of the box [−1, 1]^d is cut into g equal parts. With u the coordinate of a point in lattice units 2^−b, its
part is ⌊(u + 2^b) · g / 2^(b+1)⌋, the last one where u = 2^b: whole numbers alone decide, and each point by itself. In
the L1 ball, the cells that do not meet it hold no point, whatever the data, and are left out.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.regions import Region

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_GRID = 2**20
"""The most cells of the whole box: noise is drawn for each that meets the region."""

TOUCHING = 1e-9
"""Cells this close to the ball are counted as meeting it: leaving out too few does no harm."""


@dataclass(frozen=True)
class CellGrid:
    """The box cut into `divisions` parts on each side; its cells are those that meet the region, in C order.

    >>> CellGrid(5, Region("ball", 2)).size, CellGrid(5, Region("box", 2)).size
    (21, 25)
    """

    divisions: int
    region: Region

    def __post_init__(self) -> None:
        if not isinstance(self.divisions, int) or isinstance(self.divisions, bool) or self.divisions < 1:
            raise DeclarationError(f"a grid of {self.divisions!r} parts on each side was asked for; give 1 or more")
        if self.divisions**self.region.dimensions > LARGEST_GRID:
            raise TooLarge(
                f"a grid of {self.divisions} parts on each of {self.region.dimensions} sides has "
                f"{float(self.divisions) ** self.region.dimensions:.2g} cells, more than {LARGEST_GRID:,}; use fewer "
                "parts or fewer attributes"
            )

    @cached_property
    def _cells(self) -> Integers:
        """Where the cells lie in the grid of the whole box."""
        shape = (self.divisions,) * self.region.dimensions
        every = np.arange(self.divisions**self.region.dimensions)
        if self.region.kind == "box":
            return every
        edges = np.linspace(-1.0, 1.0, self.divisions + 1)
        nearest = np.maximum(np.maximum(edges[:-1], -edges[1:]), 0.0)
        norms = sum(nearest[part] for part in np.unravel_index(every, shape))
        return every[np.asarray(norms) <= 1.0 + TOUCHING]

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self._cells.size

    @cached_property
    def centres(self) -> Floats:
        """The middle of each cell, moved into the region where it lies outside."""
        parts = np.stack(np.unravel_index(self._cells, (self.divisions,) * self.region.dimensions), axis=1)
        return self.region.project((2.0 * parts + 1.0) / self.divisions - 1.0)

    def counts(self, units: NDArray[np.int32], *, bits: int) -> Integers:
        """How many points, given in units of 2^−bits, each cell holds; every point is counted at most once."""
        found = np.zeros(self.divisions**self.region.dimensions, dtype=np.int64)
        one = np.int64(1) << bits
        # In batches, so that whole numbers of 64 bits never take much more memory than the points themselves.
        for start in range(0, len(units), 2**16):
            part = (units[start : start + 2**16].astype(np.int64) + one) * self.divisions >> (bits + 1)
            np.clip(part, 0, self.divisions - 1, out=part)
            cells = np.ravel_multi_index(tuple(part.T), (self.divisions,) * self.region.dimensions)
            found += np.bincount(cells, minlength=found.size)
        return found[self._cells]
