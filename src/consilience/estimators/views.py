"""`Views`: any marginal from a few overlapping ones (PriView; Qardaji, Yang, Li 2014).

1. *Consistency.* Every residual of the views becomes its weighted mean over all views that have it: the generalised
   least-squares fit, in closed form (marginals/consistency.py proves that the paper's procedure ends there).
2. *Non-negativity.* The nearest consistent views without negative counts, weighted by precision, with the one-way
   counts of step 1 (marginals/nonnegativity.py). Or Ripple, as published: negative counts are moved to
   neighbouring cells and consistency is restored, round by round (marginals/nonnegativity.py).
3. *Reconstruction*, on request. A marginal that is part of a view is summed from it; any other is the table of greatest
   entropy with what the views say of its parts, or another of the paper's choices (marginals/reconstruction.py).

Where all measured attributes together have few cells, their joint table is reconstructed at once and everything is
summed from it, so that all answers agree with each other.

What is known exactly, totals and margins, is kept.
"""

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, readable_bytes, readable_count
from consilience.estimators.base import Progress, Suitability, check_choice, check_whole
from consilience.estimators.marginals import MeasuredMarginals, MeasuredScopes, ViewsEstimate, noisy_table
from consilience.marginals.consistency import StackedViews, ViewConsistency, stacked_views
from consilience.marginals.margins import ViewReader
from consilience.marginals.nonnegativity import NEAREST, NonnegativeViews, nearest_views, nonnegative_views
from consilience.marginals.reconstruction import Method as Reconstruction
from consilience.marginals.reconstruction import reconstruct
from consilience.marginals.table_stacks import Scope, TableStack, maximal, stored_order
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Infeasible, Status

Array = NDArray[np.float64]

BYTES_PER_CELL = 125
"""Views are held as noisy, as residuals with their numbers, and as results."""

Nonnegativity = Literal["nearest", "ripple", "global", "simple", "none"]

SMALL_JOINT = 2**12
MOST_JOINT_ATTRIBUTES = 12
"""Up to so many cells and attributes the joint table of all measured attributes is reconstructed."""

LARGEST_ROUNDING = 0.1
"""What such a table may miss the views by where they fit together, in standard deviations of a cell."""


@dataclass(frozen=True)
class Views:
    """Consistent views without negative counts, and any marginal from them.

    `nonnegativity` is "nearest", or "ripple" as published, or one of its rivals there: "global", "simple" and "none".
    `rounds` of these are each followed by consistency, once in the paper; None means until no count is negative.
    `theta`, in standard deviations of the least noisy cell, is how negative a count Ripple leaves. `reconstruction` is
    "entropy", "least-squares" or "linear-programme". `consistent=False` leaves the noisy views as they are, for the
    linear programme. `joint_cells` is up to how many cells all attributes are reconstructed at once; 0 for never, as in
    the paper. `memory_limit` is in bytes.
    """

    nonnegativity: Nonnegativity = "nearest"
    rounds: int | None = None
    theta: float = 0.2
    reconstruction: Reconstruction = "entropy"
    consistent: bool = True
    joint_cells: int = SMALL_JOINT
    memory_limit: int = 4_000_000_000

    name: ClassVar[str] = "views"

    def __post_init__(self) -> None:
        check_choice(self.nonnegativity, "nonnegativity", get_args(Nonnegativity))
        check_choice(self.reconstruction, "reconstruction", get_args(Reconstruction))
        if not (math.isfinite(self.theta) and self.theta > 0):
            raise DeclarationError(f"theta is {self.theta!r}; give a part of the noise above 0, such as 0.2")
        check_whole(self.rounds, "rounds", 0, optional=True)
        if self.rounds is not None and self.nonnegativity == "nearest":
            raise DeclarationError(
                f"{self.rounds} rounds were asked for, and the nearest views take the steps that they need; leave out "
                'rounds, or give nonnegativity="ripple"'
            )
        if not self.consistent and (self.reconstruction, self.nonnegativity) != ("linear-programme", "none"):
            raise DeclarationError(
                "views that are left inconsistent can only be reconstructed by the linear programme, from the noisy "
                'counts; give reconstruction="linear-programme" and nonnegativity="none", or drop consistent=False'
            )

    def suitability(self, measured: MeasurementSet) -> Suitability:
        problem = MeasuredScopes.of(measured)
        for measurement, found in problem.others:
            if not found.is_marginal:
                return Suitability(
                    False,
                    f"the query {measurement.query.describe()!r} is no marginal, and views are marginals; "
                    "Table, Graphical and Residual take other queries",
                )
        if measured.domain.impossible:
            return Suitability(False, "views keep no impossible cells empty; Graphical and Residual do")
        need = BYTES_PER_CELL * problem.cells
        text = (
            f"{len(problem.scopes):,} views have {readable_count(problem.cells)} cells and take about "
            f"{readable_bytes(need)}"
        )
        if need > self.memory_limit:
            return Suitability(False, f"{text}; the limit is {readable_bytes(self.memory_limit)}", need)
        return Suitability(True, f"{text} of memory, however large the joint table is", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> ViewsEstimate:
        self.suitability(measured).require(self.name)
        began = time.perf_counter()
        problem = MeasuredMarginals.of(measured)
        views = _noisy_views(problem)
        consistency = ViewConsistency(views.stack, views.precisions, problem.facts)
        found = self._agreed(consistency, views)
        if self.rounds is None and self.nonnegativity != "none":
            _refuse_negative_facts(found, problem)
        scopes, counts = _largest(views.stack, found.flat, problem.scopes)
        total = _total(views.stack, found.flat)
        violation = 0.0
        if self._joins(problem):
            noise = 1.0 / math.sqrt(float(views.precisions.max()))
            scopes, counts, violation = self._joint(problem, scopes, counts, total, noise)
        squares = views.squares(found.flat)
        stats: dict[str, float | int | str] = {
            "views": len(problem.scopes),
            "cells": problem.cells,
            "rounds": found.rounds,
            "most_negative": found.most_negative,
            "mixed": found.mixed,
            "mixing_changed": found.changed,
            "violation": violation,
            "disagreement": found.disagreement,
            "objective": squares,
            "gap": NEAREST.gap * squares if self.nonnegativity == "nearest" else 0.0,
            "seconds": time.perf_counter() - began,
        }
        status = Status.CONVERGED if found.rounds < NEAREST.most_steps else Status.STEP_LIMIT
        return ViewsEstimate(measured, self._describe(found), status, stats, scopes, counts, total)

    def _agreed(self, consistency: ViewConsistency, views: StackedViews) -> NonnegativeViews:
        """The views after consistency and non-negativity, or as they came."""
        if not self.consistent:
            lowest = min(0.0, float(views.flat.min(initial=0.0)))
            return NonnegativeViews(views.flat, 0, lowest, 0.0, 0.0, consistency.disagreement(views.flat), 0)
        if self.nonnegativity == "nearest":
            return nearest_views(consistency, views.flat)
        exact = self.rounds is None and self.nonnegativity != "none"
        theta = self.theta / math.sqrt(float(views.precisions.max()))
        return nonnegative_views(
            consistency, views.flat, method=self.nonnegativity, rounds=self.rounds, theta=theta, exact=exact
        )

    def _joins(self, problem: MeasuredMarginals) -> bool:
        shape = [problem.domain.shape[place] for place in problem.attributes]
        small = len(shape) <= MOST_JOINT_ATTRIBUTES and math.prod(shape) <= self.joint_cells
        return self.consistent and small and len(problem.scopes) > 1

    def _joint(
        self, problem: MeasuredMarginals, scopes: tuple[Scope, ...], counts: Array, total: float, noise: float
    ) -> tuple[tuple[Scope, ...], Array, float]:
        """The joint table of all measured attributes in place of the views, and what it misses of them.

        The views themselves where that is a matter of how exactly the table is found, and more than their noise.
        """
        sizes = problem.domain.shape
        target = stored_order(sizes, problem.attributes)
        stack = TableStack(sizes, scopes)
        (joint,) = reconstruct(ViewReader(stack, counts), [target], method=self.reconstruction, total=total)
        if not joint.relaxed and joint.violation > LARGEST_ROUNDING * noise:
            return scopes, counts, 0.0
        return (target,), joint.table.ravel(), joint.violation

    def _describe(self, found: NonnegativeViews) -> dict[str, Any]:
        return {
            "method": self.name,
            "nonnegativity": self.nonnegativity,
            "rounds": self.rounds,
            "theta": self.theta,
            "reconstruction": self.reconstruction,
            "consistent": self.consistent,
            "nonnegative": found.most_negative >= 0,
        }


def _noisy_views(problem: MeasuredMarginals) -> StackedViews:
    """The measured marginals, one table for each set of attributes, repeated ones combined."""
    scopes: list[Scope] = []
    tables: list[Array] = []
    precisions: list[float] = []
    for each in problem.answers:
        if not each.exact:
            noisy = noisy_table(each)
            scopes.append(noisy.scope)
            tables.append(noisy.values.reshape([problem.domain.shape[place] for place in noisy.scope]))
            # Answers that were withheld have a larger variance than the others of their table; one number stands for
            # all of them.
            precisions.append(float(noisy.precisions.mean()))
    # A fact about attributes that no view has becomes a view of its own, as precise as the best of them.
    best = max(precisions)
    for fact in problem.facts:
        if not any(set(fact.scope) <= set(scope) for scope in scopes):
            scopes.append(fact.scope)
            tables.append(fact.table)
            precisions.append(best)
    return stacked_views(problem.domain.shape, scopes, tables, precisions)


def _largest(stack: TableStack, flat: Array, scopes: list[Scope]) -> tuple[tuple[Scope, ...], Array]:
    """The tables of the largest scopes, from which all others can be summed."""
    kept = TableStack(stack.sizes, [stored_order(stack.sizes, scope) for scope in maximal(scopes)])
    found = np.concatenate([stack.table(flat, scope).ravel() for scope in kept.scopes])
    return tuple(kept.scopes), found


def _total(stack: TableStack, flat: Array) -> float:
    scope = stack.scopes[0]
    return float(stack.table(flat, scope).sum())


def _refuse_negative_facts(found: NonnegativeViews, problem: MeasuredMarginals) -> None:
    """Refuse facts with which no views without negative counts were found."""
    if found.most_negative >= 0 or not problem.facts:
        return
    names = [fact.name for fact in problem.facts]
    raise Infeasible(
        f"no views without negative counts were found that keep to {' and '.join(names)}: the lowest count is "
        f"{found.most_negative:.3g}; fit these measurements by graphical or residual, or leave a fact out",
        violation=-found.most_negative,
        constraints=names,
    )
