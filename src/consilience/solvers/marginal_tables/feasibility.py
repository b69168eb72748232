"""How nearly a table can have marginals that no table has.

    min over x ≥ 0 of ½ Σ_B ‖m_B(x) − m_B‖²

is always attained. In coordinates it reads ½ Σ_u κ_u (c_u(x) − c̄_u)² plus a constant, where κ_u = Σ_B 1/(cells of B)
over the marginals that fix u, and c̄_u is their weighted mean. The interior point solves it with slack: c(x) + λ/κ =
c̄.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.infeasible import Infeasible
from consilience.solvers.marginal_tables.interior_point import solve_by_interior_point
from consilience.solvers.marginal_tables.known_marginals import KnownMarginals
from consilience.solvers.marginal_tables.marginal_basis import MarginalBasis
from consilience.solvers.marginal_tables.problem import CellCosts, TableProblem

TOLERATED = 1e-8
"""Marginals that are missed by this share of the largest value are met."""


@dataclass(frozen=True, eq=False)
class NearestMarginals:
    """The least-squares violation: its largest entry, and for each marginal the largest of its own."""

    violation: float
    each: tuple[float, ...]


def nearest_marginals(known: KnownMarginals, *, free: NDArray[np.bool_], floor: bool) -> NearestMarginals:
    """How far the marginals of a table must stay from the known ones."""
    coordinates = known.coordinates
    basis = MarginalBasis(known.layout, coordinates.frequencies)
    unit = max(known.largest / max(known.layout.cells, 1), np.finfo(float).tiny) * 10.0
    if floor:
        zeros = np.zeros(known.layout.cells)
        high = np.where(free, np.inf, 0.0)
        problem = TableProblem(basis, coordinates.target / unit, CellCosts(zeros, zeros, zeros), zeros, high)
        slack = 1.0 / (coordinates.weight * known.layout.cells)
        inner = solve_by_interior_point(problem, tolerance=1e-10, slack=slack)
        reached = basis.apply(inner.moves) * unit
    else:
        reachable, size = basis.gram(free.astype(np.float64)), np.sqrt(coordinates.weight)
        best = np.linalg.lstsq(size[:, None] * reachable, size * coordinates.target, rcond=1e-10)[0]
        reached = reachable @ best
    misfits = known.misfits(reached)
    each = tuple(float(np.abs(misfit).max(initial=0.0)) for misfit in misfits)
    return NearestMarginals(max(each, default=0.0), each)


def refuse_impossible(known: KnownMarginals, *, free: NDArray[np.bool_], floor: bool) -> None:
    """Raise `Infeasible` where a glance shows that no table has these marginals."""
    if not known.each:
        return
    if any(known.coordinates.contradicted):
        pairs = zip(known.each, known.coordinates.contradicted, strict=True)
        involved = [each.name for each, bad in pairs if bad]
        _refuse(known, involved, "contradict each other where they overlap", free=free, floor=floor)
    for each in known.each:
        if floor and each.values.min(initial=0.0) < 0.0:
            _refuse(known, [each.name], "hold a negative value, and counts are not negative", free=free, floor=floor)
        if free.all():
            continue
        room = known.layout.marginal(free.astype(np.float64), each.places)
        if np.any((room == 0.0) & (each.values != 0.0)):
            _refuse(known, [each.name], "are not 0 where all cells are structural zeros", free=free, floor=floor)


def refuse_if_infeasible(known: KnownMarginals, *, free: NDArray[np.bool_], floor: bool) -> None:
    """Raise `Infeasible` if the nearest marginals are not the known ones."""
    nearest = nearest_marginals(known, free=free, floor=floor)
    if nearest.violation <= TOLERATED * max(known.largest, np.finfo(float).tiny):
        return
    pairs = zip(known.each, nearest.each, strict=True)
    involved = [each.name for each, amount in pairs if amount > 0.01 * nearest.violation]
    raise _infeasible(involved, "belong to no table of non-negative counts", nearest.violation)


def _refuse(known: KnownMarginals, involved: list[str], reason: str, *, free: NDArray[np.bool_], floor: bool) -> None:
    nearest = nearest_marginals(known, free=free, floor=floor)
    raise _infeasible(involved, reason, nearest.violation)


def _infeasible(involved: list[str], reason: str, violation: float) -> Infeasible:
    shown = ", ".join(involved[:6]) + (f" and {len(involved) - 6} more" if len(involved) > 6 else "")
    return Infeasible(
        f"the marginals on {shown} {reason}; the closest table misses one of them by {violation:.6g}. Correct them, or "
        "give them as measurements with noise instead of as exact",
        violation=violation,
        constraints=involved,
    )
