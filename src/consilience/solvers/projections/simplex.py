"""Non-negative numbers with a given sum."""

from dataclasses import dataclass

import numpy as np

from consilience.errors import DeclarationError
from consilience.kernels.simplex import project_to_simplex
from consilience.solvers.infeasible import Infeasible
from consilience.solvers.projections.convex_set import Array


@dataclass(frozen=True)
class Simplex:
    """{x : x ≥ 0, Σx = total}, for instance a table whose total is public.

    >>> Simplex(3.0).project(np.array([2.0, 4.0, -1.0]))
    array([0.5, 2.5, 0. ])
    """

    total: float
    name: str = "Simplex"

    def __post_init__(self) -> None:
        if not np.isfinite(self.total) or self.total < 0:
            raise DeclarationError(
                f"the total of {self.name!r} is {self.total:g}, and numbers from 0 upwards cannot sum to it; "
                "give a finite total of at least 0"
            )

    def project(self, point: Array) -> Array:
        if point.size == 0:
            self._refuse_no_cells()
        return project_to_simplex(point, self.total)

    def violation(self, point: Array) -> float:
        return float(max(abs(point.sum() - self.total), -point.min(initial=0.0)))

    def support(self, direction: Array) -> float:
        if direction.size == 0:
            self._refuse_no_cells()
            return 0.0
        return float(self.total * direction.max())

    def _refuse_no_cells(self) -> None:
        if self.total > 0:
            raise Infeasible(
                f"{self.name!r} asks for a total of {self.total:g} over no cells; give cells, or a total of 0",
                violation=self.total,
                constraints=(self.name,),
            )
