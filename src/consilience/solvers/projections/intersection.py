"""Whether sets have a point in common: approach it, or prove that none is near."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.solvers.infeasible import Infeasible
from consilience.solvers.projections.convex_set import Array, ConvexSet

NEARBY = 100.0
"""Sets are called disjoint when no common point lies within this many times the size of the data."""
ROUNDING = 1e-14
INVOLVED = 1e-4
"""A set takes part in a contradiction when it pulls with at least this part of the strongest pull."""


def toward_all(sets: Sequence[ConvexSet], point: Array, *, rounds: int = 400) -> Array:
    """The point moved towards the intersection by projecting onto the sets in turn; the last set holds exactly.

    It stops when what is violated is rounding, or when twenty rounds no longer halve it.
    """
    best, least, least_before = point, np.inf, np.inf
    for at in range(rounds):
        for each in sets:
            point = each.project(point)
        worst = max((each.violation(point) for each in sets), default=0.0)
        if worst < least:
            best, least = point, worst
        if least <= ROUNDING * float(np.abs(point).max(initial=0.0)):
            break
        if at % 20 == 19:
            if least > 0.5 * least_before:
                break
            least_before = least
    return best


# At any x let v_i = x − Π_i(x). A point p in all sets satisfies ⟨v_i, p⟩ ≤ ⟨v_i, Π_i(x)⟩ = ⟨v_i, x⟩ − ‖v_i‖², so with
# e = Σ v_i it satisfies ⟨e, x − p⟩ ≥ Σ ‖v_i‖², and therefore lies at a distance of at least Σ ‖v_i‖² / ‖e‖ from x.
# Where the sets are disjoint, the minimiser of ½ Σ ‖x − Π_i(x)‖² has e = 0 and v ≠ 0, and the distance grows
# beyond all bounds on the way there. The way is an accelerated gradient descent (Nesterov 1983) with restarts: the
# gradient is e, and the mean of the projections is a step of the right length.
@dataclass(eq=False)
class DisjointnessSearch:
    """Looks for a proof that sets have no point in common; it can be continued."""

    sets: Sequence[ConvexSet]
    point: Array
    data_size: float
    _previous: Array | None = None
    _momentum: float = 1.0

    def run(self, steps: int) -> Infeasible | None:
        """The error to raise once disjointness is proved; None while it is not."""
        for _ in range(steps):
            pulls = [self.point - each.project(self.point) for each in self.sets]
            strength = sum(float(np.vdot(pull, pull)) for pull in pulls)
            gradient = np.sum(pulls, axis=0)
            size = self.data_size + float(np.linalg.norm(self.point))
            if strength <= (1e-12 * size) ** 2:
                return None
            if strength >= NEARBY * size * float(np.linalg.norm(gradient)):
                return self._report(pulls)
            self._advance(gradient / len(self.sets))
        return None

    def _advance(self, step: Array) -> None:
        arrived = self.point - step
        previous = arrived if self._previous is None else self._previous
        if float(np.vdot(step, arrived - previous)) > 0:
            self._momentum = 1.0
        momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self._momentum**2))
        self.point = arrived + ((self._momentum - 1.0) / momentum) * (arrived - previous)
        self._previous, self._momentum = arrived, momentum

    def _report(self, pulls: Sequence[Array]) -> Infeasible:
        strengths = np.array([np.linalg.norm(pull) for pull in pulls])
        pulling = strengths > INVOLVED * strengths.max()
        involved = [each.name for each, pulls_hard in zip(self.sets, pulling, strict=True) if pulls_hard]
        violation = max(each.violation(self.point) for each in self.sets)
        return Infeasible(
            f"no numbers satisfy {' and '.join(involved)} together: at the nearest point to all, a condition is "
            f"still broken by {violation:.6g}; drop or correct one of them",
            violation=violation,
            constraints=involved,
        )
