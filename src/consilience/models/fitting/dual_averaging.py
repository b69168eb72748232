"""Algorithm 2 of McKenna, Sheldon & Miklau (2019): accelerated regularised dual averaging (Xiao 2010, Algorithm 3).

    ω = (1 − c)μ + cν,   ḡ = (1 − c)ḡ + c·∇L(ω),   θ = −t(t + 1)/4K · ḡ,   ν = μ(θ),   μ = (1 − c)μ + cν

with c = 2/(t + 1). K is the Lipschitz constant of ∇L between the norm Σ|·| of cells and the largest entry, in counts:
for rows B with curvatures q, no more than N·max over cells x of Σ q·B(x)². The averaged marginals μ converge fastest,
but no potentials are known for them: what is judged, and returned, are the potentials θ with their own marginals ν.
"""

from dataclasses import dataclass

import numpy as np

from consilience.errors import DeclarationError
from consilience.models.fitting.model_losses import RowLoss
from consilience.models.fitting.optimisers import SmoothSearch
from consilience.solvers.fit import Status


@dataclass(frozen=True)
class DualAveraging:
    """Algorithm 2; `lipschitz` is K, found where costs are squares and needed for other losses."""

    lipschitz: float | None = None

    name = "dual averaging"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop."""
        constant = self._constant(search)
        averaged = newest = search.oracle.marginals(search.start).values
        mean_gradient = np.zeros_like(averaged)
        status, steps = search.note(search.start, newest, search.loss.value(newest)), 0
        while status is None:
            steps += 1
            share = 2.0 / (steps + 1)
            between = averaged + share * (newest - averaged)
            gradient = search.loss.value_and_gradient(between)[1]
            mean_gradient += share * (gradient - mean_gradient)
            potentials = search.start - (steps * (steps + 1) / (4.0 * constant)) * mean_gradient
            newest = search.oracle.marginals(potentials).values
            averaged = averaged + share * (newest - averaged)
            status = search.note(potentials, newest, search.loss.value(newest))
        return status

    def _constant(self, search: SmoothSearch) -> float:
        if self.lipschitz is not None:
            if not (np.isfinite(self.lipschitz) and self.lipschitz > 0):
                raise DeclarationError(f"the Lipschitz constant is {self.lipschitz}; it must be a positive number")
            return self.lipschitz
        loss = search.loss
        if not isinstance(loss, RowLoss) or loss.costs.slope.any():
            raise DeclarationError(
                "dual averaging needs the Lipschitz constant of a loss that is not a sum of squares: give `lipschitz`, "
                "or choose another optimiser"
            )
        steepness = loss.rows.adjoint_squared(loss.costs.curvature)
        return search.oracle.total * max(search.oracle.largest(steepness), np.finfo(np.float64).tiny)
