"""Anderson's extrapolation of a fixed-point iteration, for iterations that spiral slowly into their limit."""

import numpy as np

from consilience.solvers.projections.convex_set import Array

LONGEST_MEMORY = 20
MEMORY_BYTES = 2**28
"""What the remembered steps may take; with large problems fewer are remembered."""
REGULARISATION = 1e-8
FARTHEST = 1e6
"""Proposals farther away than this many times the last residual are not made: they come from rounding."""


# Near its limit a fixed-point map T is almost affine. If the last steps took s_j to T(s_j) with residuals
# f_j = T(s_j) − s_j, the combination Σ c_j f_j with Σ c_j = 1 of least length tells which combination of the points is
# nearest to a fixed point; the proposal is Σ c_j T(s_j) (Anderson 1965; Walker and Ni 2011). In differences:
# γ = argmin ‖f_last − Σ γ_j Δf_j‖, proposal = T(s_last) − Σ γ_j ΔT_j.
class Extrapolation:
    """Proposes where a fixed-point iteration is heading, from the steps it remembers."""

    def __init__(self, size: int) -> None:
        self.memory = max(2, min(LONGEST_MEMORY, MEMORY_BYTES // (16 * max(size, 1))))
        self._arrivals: list[Array] = []
        self._residuals: list[Array] = []

    def forget(self) -> None:
        """Start anew: the map has changed, or the steps misled."""
        self._arrivals.clear()
        self._residuals.clear()

    def remember(self, departure: Array, arrival: Array) -> None:
        self._arrivals.append(arrival)
        self._residuals.append(arrival - departure)
        if len(self._arrivals) > self.memory + 1:
            del self._arrivals[0], self._residuals[0]

    def propose(self) -> Array | None:
        """The extrapolated point; None while too few steps are known."""
        if len(self._arrivals) < 3:
            return None
        last = self._residuals[-1]
        changes = np.array([(b - a).ravel() for a, b in zip(self._residuals, self._residuals[1:], strict=False)])
        gram = changes @ changes.T
        energy = float(np.trace(gram))
        if not energy > 0:
            return None
        gram /= energy
        gram[np.diag_indices_from(gram)] += REGULARISATION
        shares = np.linalg.solve(gram, changes @ last.ravel() / energy)
        moves = zip(shares, self._arrivals, self._arrivals[1:], strict=False)
        jump = sum((share * (b - a) for share, a, b in moves), np.zeros_like(last))
        if np.linalg.norm(jump) > FARTHEST * np.linalg.norm(last):
            return None
        return self._arrivals[-1] - jump
